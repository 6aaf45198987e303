//! Places in the program and how a message speaks of them.

use super::shard::index;
use monarch_check::hir::{self, MeshAxis, Origin};
use monarch_diagnostic::Diagnostic;
use monarch_graph::Span;

/// The blocks of a program that a plan speaks about.
#[derive(Clone, Copy)]
pub(crate) struct Words<'a> {
    pub program: &'a hir::Program,
    pub job: &'a hir::Job,
    pub layout: Option<&'a hir::Layout>,
    pub cluster: Option<&'a hir::Cluster>,
}

impl<'a> Words<'a> {
    /// `1 block`, `6 blocks`
    pub fn plural(&self, n: u64, what: &str) -> String {
        format!("{n} {what}{}", if n == 1 { "" } else { "s" })
    }

    /// The text of the file that a span lies in.
    fn text(&self, span: Span) -> &'a str {
        self.program.sources.get(span.file).map_or("", |s| s.text())
    }

    fn slice(&self, span: Span) -> &'a str {
        self.text(span).get(span.start as usize..span.end as usize).unwrap_or("")
    }

    /// `pp = 2` in the mesh; the mesh where the axis is not written.
    pub fn axis_span(&self, layout: &hir::Layout, axis: MeshAxis) -> Span {
        let written = layout.mesh.axes.iter().find(|a| a.axis == axis);
        written.map_or(layout.mesh.span, |a| a.span)
    }

    /// Where a setting of the job is written.
    pub fn setting(&self, path: &str) -> Option<Span> {
        let setting = self.program.settings.iter().find(|s| s.path == path)?;
        match &setting.origin {
            Origin::Program(span) | Origin::CommandLine { span, .. } => Some(*span),
            Origin::Default => None,
        }
    }

    /// Whether the batch is given in tokens.
    pub fn batch_in_tokens(&self) -> bool {
        let setting = self.program.settings.iter().find(|s| s.path == "train.batch");
        setting.is_some_and(|s| s.value.contains("token"))
    }

    /// Where the job says its batch.
    pub fn batch_span(&self) -> Span {
        let record = || self.setting("train.batch.micro").or(self.setting("train.batch.global"));
        self.setting("train.batch").or_else(record).unwrap_or(self.job.span)
    }

    /// The braces of `shard { .. }`.
    pub fn shard_braces(&self, layout: &hir::Layout) -> Option<Span> {
        let (first, last) = (layout.shard.first()?.span, layout.shard.last()?.span);
        let text = self.text(first);
        let start = text.get(..first.start as usize)?.rfind('{')?;
        let end = last.end as usize + text.get(last.end as usize..)?.find('}')? + 1;
        Some(Span { start: start as u32, end: end as u32, ..first })
    }

    /// What says how often the split sublayer is repeated: `depth`.
    pub fn depth_name(&self, pipeline: &hir::Pipeline) -> String {
        self.depth(pipeline).unwrap_or_else(|| pipeline.split.clone())
    }

    fn depth(&self, pipeline: &hir::Pipeline) -> Option<String> {
        let model = self.program.model(self.job.model)?;
        let layer = self.program.layer(model.root.layer)?;
        let sub = layer.subs.iter().find(|s| s.name == pipeline.split)?;
        let symbol = match sub.repeat.as_ref()? {
            hir::Static::Size(size) => size.as_symbol()?,
            _ => return None,
        };
        let field = layer.fields.iter().find(|f| f.symbol == Some(symbol))?;
        Some(field.name.clone())
    }

    /// `depth = 6` where the model is made; else the model's name.
    pub fn depth_span(&self, pipeline: &hir::Pipeline) -> Span {
        let model = self.program.model(self.job.model);
        let Some(model) = model else { return self.job.span };
        self.depth_argument(pipeline, model.span).unwrap_or(model.span)
    }

    fn depth_argument(&self, pipeline: &hir::Pipeline, model: Span) -> Option<Span> {
        let name = self.depth(pipeline)?;
        let text = self.text(model);
        let rest = text.get(model.start as usize..)?;
        // A model's definition ends with its line, unless brackets are open.
        let mut depth = 0i32;
        let end = rest.char_indices().find(|(_, c)| {
            depth += i32::from(matches!(c, '(' | '[' | '{'));
            depth -= i32::from(matches!(c, ')' | ']' | '}'));
            *c == '\n' && depth <= 0
        });
        let item = rest.get(..end.map_or(rest.len(), |(at, _)| at))?;
        let word = |c: char| c.is_alphanumeric() || c == '_';
        let at = item.match_indices(name.as_str()).find(|(at, found)| {
            let before = item[..*at].chars().next_back();
            let after = item[at + found.len()..].chars().next();
            !before.is_some_and(word) && !after.is_some_and(word)
        })?;
        let argument = item.get(at.0..)?;
        let length = argument.find([',', ')', '\n']).unwrap_or(argument.len());
        let argument = argument.get(..length)?.trim_end();
        let start = model.start + at.0 as u32;
        Some(Span { start, end: start + argument.len() as u32, ..model })
    }

    /// The mesh does not multiply to the devices.
    pub fn product(
        &self,
        layout: &hir::Layout,
        lengths: &[Option<u32>; 5],
        devices: u64,
        (nodes, per_node): (u32, u32),
    ) -> Diagnostic {
        let known: u64 = lengths.iter().flatten().map(|n| u64::from(*n)).product();
        let parts: Vec<String> = MeshAxis::ALL
            .iter()
            .zip(lengths)
            .filter(|(_, n)| **n != Some(1))
            .map(|(a, n)| format!("{} {}", a.name(), n.map_or("_".to_owned(), |n| n.to_string())))
            .collect();
        let open = lengths.iter().any(Option::is_none);
        let title = match open {
            true => format!("no `_` makes the mesh {devices} devices: {known} does not divide it"),
            false => format!("the mesh has {known} devices, and there are {devices}"),
        };
        let cluster =
            self.cluster.map_or(layout.span, |c| c.device.as_ref().map_or(c.span, |d| d.span));
        let mut d =
            Diagnostic::error("M0306", title).label(layout.mesh.span, parts.join(" x ")).label(
                cluster,
                format!("{} x {per_node} = {devices}", self.plural(u64::from(nodes), "node")),
            );
        let data = lengths[index(MeshAxis::Dp)].map_or(1, u64::from);
        let others = if open { known } else { known / data.max(1) };
        let written = layout.mesh.axes.iter().find(|a| a.axis == MeshAxis::Dp);
        if !open && others > 0 && devices.is_multiple_of(others) {
            let text = format!("`dp = _` fills the mesh: dp would be {}", devices / others);
            d = match written {
                Some(axis) => d.fix(text, axis.span, "dp = _"),
                None => {
                    let at = layout.mesh.axes.first().map_or(layout.mesh.span, |a| a.span);
                    let at = Span { end: at.start, ..at };
                    d.fix(text, at, "dp = _, ")
                }
            };
        } else {
            let divisors: Vec<String> = (1..=devices)
                .filter(|n| devices.is_multiple_of(*n))
                .map(|n| n.to_string())
                .collect();
            d = d.help(format!("the lengths must divide {devices}: {}", divisors.join(", ")));
        }
        d
    }

    /// Bytes from the end of a span to the end of its line.
    pub fn rest_of_line(&self, span: Span) -> u32 {
        let rest = self.text(span).get(span.end as usize..).unwrap_or("");
        rest.find('\n').unwrap_or(rest.len()) as u32
    }

    /// What stands there.
    pub fn written(&self, span: Span) -> &'a str {
        self.slice(span)
    }
}
