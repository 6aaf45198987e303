//! `cluster`: declared machines, what they have and how they talk.

use crate::calls::{as_name, bare};
use crate::hir::{Cluster, Device, Key, Links, Quantity, Unit, Value};
use crate::registry::{CLUSTER, DEVICE, DEVICES, LINK};
use crate::scope::{Checker, In, Lazy, with_near};
use crate::settings::Settings;
use monarch_diagnostic::Diagnostic;
use monarch_graph::Span;
use monarch_syntax::ast::{self, Arg, Expr, ExprKind, Ident};
use std::collections::HashMap;

/// Nodes, devices of a node, workers: more of them is a slip of the pen.
const MOST: u64 = 4096;

/// What a program may ask of a cluster: `lab.device.memory`.
const MEMBERS: &[&str] = &[
    "device.count",
    "device.memory",
    "devices",
    "link.inter",
    "link.intra",
    "nodes",
    "threads",
    "workers",
];

impl<'a> Checker<'a> {
    pub fn check_clusters(&mut self) -> Option<Vec<Cluster>> {
        let all: Vec<_> = (0..self.clusters.len()).map(|id| self.cluster_value(id)).collect();
        all.into_iter().collect()
    }

    /// None if reported.
    pub fn cluster_value(&mut self, id: usize) -> Option<Cluster> {
        match &self.state.clusters[id] {
            Lazy::Done(found) => return found.clone(),
            Lazy::Running => {
                let block = self.clusters[id].ast;
                let name = block.name.as_ref().map_or("this cluster", |n| n.name.as_str());
                self.circular(name, block.kind.span);
                return None;
            }
            Lazy::Waiting => self.state.clusters[id] = Lazy::Running,
        }
        let In { file, ast, .. } = self.clusters[id];
        let found = self.cluster(file, ast);
        self.state.clusters[id] = Lazy::Done(found.clone());
        found
    }

    fn cluster(&mut self, file: u32, block: &'a ast::Block) -> Option<Cluster> {
        let given = self.settings(&CLUSTER, block.body.as_ref());
        let count = |this: &mut Self, name: &str| match given.values.get(name) {
            None => Some(None),
            Some(e) => this.count(file, &format!("cluster.{name}"), e).map(Some),
        };
        let workers = count(self, "workers");
        let threads = count(self, "threads");
        let listen = match given.values.get("listen") {
            None => Some(None),
            Some(e) => self.text_setting(file, "cluster.listen", e).map(Some),
        };
        let key = match given.values.get("key") {
            None => Some(None),
            Some(e) => self.key(file, e).map(Some),
        };
        let nodes = match given.values.get("nodes") {
            None => Some(Vec::new()),
            Some(e) => self.nodes(file, e),
        };
        let device = self.device(file, &given);
        let links = match given.values.get("link") {
            None => Some(None),
            Some(e) => self.links(file, e).map(Some),
        };
        let twice = self.declared_twice(&given);
        let name: &Ident = block.name.as_ref()?;
        twice?;
        Some(Cluster {
            name: name.name.clone(),
            workers: workers?,
            threads: threads?,
            listen: listen?,
            key: key?,
            nodes: nodes?,
            device: device?,
            links: links?,
            span: name.span,
        })
    }

    /// From 1 to what a cluster may have.
    fn count(&mut self, file: u32, path: &str, expr: &Expr) -> Option<u32> {
        let n = self.whole_setting(file, path, expr, 1)?;
        if n > MOST {
            let name = crate::settings::last(path);
            let title = format!("`{name}` is at most {MOST}, not {n}");
            self.report(Diagnostic::error("M0112", title).label(expr.span, "too many"));
            return None;
        }
        Some(n as u32)
    }

    /// Workers started here and declared machines are two answers to one question.
    fn declared_twice(&mut self, given: &Settings<'a>) -> Option<()> {
        let Some(workers) = given.spans.get("workers") else { return Some(()) };
        let Some((name, at)) =
            ["nodes", "device"].into_iter().find_map(|n| Some((n, given.spans.get(n)?)))
        else {
            return Some(());
        };
        let title = format!("`workers` and `{name}` both say where the work is done");
        self.report(
            Diagnostic::error("M0105", title)
                .label(*workers, "processes on this machine")
                .label(*at, "declared machines")
                .help("keep one of them; `device = CPU { count = 4 }` is 4 workers on each node"),
        );
        None
    }

    /// `["gpu01:7000", "gpu02:7000"]`
    fn nodes(&mut self, file: u32, expr: &'a Expr) -> Option<Vec<String>> {
        let ExprKind::List(items) = &bare(expr).kind else {
            if !matches!(bare(expr).kind, ExprKind::Broken) {
                let d = Diagnostic::error("M0111", "`nodes` is a list of addresses");
                self.report(
                    d.label(expr.span, "not a list").help("write `nodes = [\"gpu01:7000\"]`"),
                );
            }
            return None;
        };
        if items.is_empty() || items.len() as u64 > MOST {
            let title = format!("a cluster has from 1 to {MOST} nodes, not {}", items.len());
            self.report(Diagnostic::error("M0112", title).label(expr.span, "the nodes"));
            return None;
        }
        let mut out = Some(Vec::new());
        let mut seen: HashMap<String, Span> = HashMap::new();
        for item in items {
            let found = self.text_setting(file, "cluster.nodes", item);
            let found = found.filter(|text| self.address(text, item.span).is_some());
            if let Some(text) = &found
                && let Some(first) = seen.insert(text.clone(), item.span)
            {
                let title = format!("`{text}` is listed twice");
                self.report(
                    Diagnostic::error("M0105", title)
                        .label(item.span, "again here")
                        .label(first, "first here"),
                );
                out = None;
            }
            match (found, &mut out) {
                (Some(text), Some(list)) => list.push(text),
                _ => out = None,
            }
        }
        out
    }

    /// `host:port`; a port alone is missing most often.
    fn address(&mut self, text: &str, at: Span) -> Option<()> {
        let bracketed = text.starts_with('[') && text.ends_with(']');
        let (host, port) = match text.rsplit_once(':') {
            Some(parts) if !bracketed => parts,
            _ => (text, ""),
        };
        let plain = |h: &str| {
            !h.is_empty() && h.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
        };
        let inner = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        let good_host = match inner {
            Some(v6) => v6.parse::<std::net::Ipv6Addr>().is_ok(),
            None => plain(host),
        };
        let good_port = port.parse::<u16>().is_ok_and(|p| p > 0);
        if good_host && good_port {
            return Some(());
        }
        let d = Diagnostic::error("M0111", format!("`{text}` is not an address"));
        self.report(match good_host && port.is_empty() {
            true => {
                let fixed = format!("\"{}:7000\"", host.trim_end_matches(':'));
                d.label(at, "which port?").fix(format!("did you mean `{fixed}`?"), at, fixed)
            }
            false => d.label(at, "not host:port").help("write `\"gpu01:7000\"`"),
        });
        None
    }

    /// `MI300X { count = 8, memory = 192 GiB }`. Inner None: not given.
    fn device(&mut self, file: u32, given: &Settings<'a>) -> Option<Option<Device>> {
        let Some(expr) = given.values.get("device") else { return Some(None) };
        let kind = self.device_kind(expr);
        let own = self.settings(&DEVICE, given.bodies.get("device").copied());
        let count = match own.values.get("count") {
            None => Some(1),
            Some(e) => self.count(file, "cluster.device.count", e),
        };
        let memory = match own.values.get("memory") {
            None => Some(None),
            Some(e) => {
                let path = "cluster.device.memory";
                self.amount_setting(file, path, e, Unit::Bytes).map(|b| Some(b as u64))
            }
        };
        Some(Some(Device {
            kind: kind?,
            count: count?,
            memory_bytes: memory?,
            span: given.spans.get("device").copied().unwrap_or(expr.span),
            memory_span: own.spans.get("memory").copied(),
        }))
    }

    fn device_kind(&mut self, expr: &Expr) -> Option<String> {
        let kinds = || DEVICES.iter().copied();
        match &bare(expr).kind {
            ExprKind::Broken => None,
            ExprKind::Name(name) if DEVICES.contains(&name.name.as_str()) => {
                Some(name.name.clone())
            }
            ExprKind::Name(name) => {
                let title = format!("there is no device `{}`", name.name);
                let d = Diagnostic::error("M0106", title).label(name.span, "unknown device");
                self.report(with_near(d, name, kinds(), "there are"));
                None
            }
            other => {
                let called = matches!(other, ExprKind::Call(..));
                let help = match called {
                    true => "its settings stand in braces: `MI300X { count = 8 }`".to_owned(),
                    false => format!("there are: {}", kinds().collect::<Vec<_>>().join(", ")),
                };
                let d = Diagnostic::error("M0111", "`device` is a kind of device");
                self.report(d.label(expr.span, "something else").help(help));
                None
            }
        }
    }

    /// `{ intra = 448 GB/s, inter = 50 GB/s }`
    fn links(&mut self, file: u32, expr: &'a Expr) -> Option<Links> {
        let given = self.record_settings(&LINK, expr)?;
        let rate = |this: &mut Self, name: &str| match given.values.get(name) {
            None => Some(None),
            Some(e) => {
                let path = format!("cluster.link.{name}");
                this.amount_setting(file, &path, e, Unit::BytesPerSecond).map(Some)
            }
        };
        let intra = rate(self, "intra");
        let inter = rate(self, "inter");
        if given.broken {
            return None;
        }
        Some(Links { intra: intra?, inter: inter?, span: expr.span })
    }

    /// `"cluster.key"` or `env("MONARCH_KEY")`
    fn key(&mut self, file: u32, expr: &'a Expr) -> Option<Key> {
        match &bare(expr).kind {
            ExprKind::Call(callee, args) if as_name(callee).is_some_and(|n| n.name == "env") => {
                self.state.read.clear();
                self.remember("cluster.key", expr);
                self.env(expr.span, args)
            }
            _ => self.text_setting(file, "cluster.key", expr).map(Key::File),
        }
    }

    fn env(&mut self, span: Span, args: &[Arg]) -> Option<Key> {
        let [Arg { name: None, value, .. }] = args else {
            let title = "`env` takes the name of one variable";
            let d = Diagnostic::error("M0118", title).label(span, "which one?");
            self.report(d.help("write `env(\"MONARCH_KEY\")`"));
            return None;
        };
        let ExprKind::Str(text) = &bare(value).kind else {
            if !matches!(bare(value).kind, ExprKind::Broken) {
                let d = Diagnostic::error("M0111", "the name of a variable is a text")
                    .label(value.span, "not a text");
                self.report(match as_name(value) {
                    Some(name) => {
                        let fixed = format!("\"{}\"", name.name);
                        d.fix(format!("did you mean `{fixed}`?"), value.span, fixed)
                    }
                    None => d.help("write `env(\"MONARCH_KEY\")`"),
                });
            }
            return None;
        };
        let name = &text.value;
        let letters = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let good = !name.is_empty() && name.chars().all(letters);
        if !good || name.starts_with(|c: char| c.is_ascii_digit()) {
            let title = format!("`{name}` cannot be the name of a variable");
            let d =
                Diagnostic::error("M0111", title).label(value.span, "a name of the environment");
            self.report(d.help("it has letters, digits and `_`, and no digit first"));
            return None;
        }
        Some(Key::Env { name: name.clone(), span })
    }

    /// `lab.device.memory`: what the program declares.
    pub fn cluster_member(&mut self, id: usize, path: &[&Ident]) -> Option<Value> {
        let cluster = self.cluster_value(id)?;
        let (first, last) = (path.first()?, path.last()?);
        let at = first.span.to(last.span);
        let names: Vec<&str> = path.iter().map(|p| p.name.as_str()).collect();
        let text = names.join(".");
        if !MEMBERS.contains(&text.as_str()) {
            let whole = Ident { name: text.clone(), span: at };
            let title = format!("`{}` has no `{text}`", cluster.name);
            let d = Diagnostic::error("M0120", title).label(at, "unknown");
            self.report(with_near(d, &whole, MEMBERS.iter().copied(), "it has"));
            return None;
        }
        let found = member(&cluster, &text);
        if found.is_none() {
            let title = format!("`{}` does not declare `{text}`", cluster.name);
            let d = Diagnostic::error("M0120", title)
                .label(at, "not known")
                .label(cluster.span, "declared here");
            self.report(d);
        }
        found
    }
}

fn member(cluster: &Cluster, path: &str) -> Option<Value> {
    let whole = |n: u32| Value::Int(i64::from(n));
    let quantity = |amount: f64, unit| Value::Quantity(Quantity { amount, unit });
    let nodes = cluster.nodes.len().max(1) as i64;
    Some(match path {
        "nodes" => Value::Int(nodes),
        "devices" => Value::Int(cluster.devices()? as i64),
        "workers" => whole(cluster.workers?),
        "threads" => whole(cluster.threads?),
        "device.count" => whole(cluster.device.as_ref()?.count),
        "device.memory" => quantity(cluster.device.as_ref()?.memory_bytes? as f64, Unit::Bytes),
        "link.intra" => quantity(cluster.links?.intra?, Unit::BytesPerSecond),
        "link.inter" => quantity(cluster.links?.inter?, Unit::BytesPerSecond),
        _ => return None,
    })
}

impl Cluster {
    /// Devices of all nodes, or workers on this machine; None if the program says neither.
    pub fn devices(&self) -> Option<u64> {
        match (&self.device, self.workers) {
            (Some(device), _) => Some(self.nodes.len().max(1) as u64 * u64::from(device.count)),
            (None, Some(workers)) => Some(u64::from(workers)),
            (None, None) => (!self.nodes.is_empty()).then_some(self.nodes.len() as u64),
        }
    }
}
