//! The mesh, and what goes along its axes: `shard`, `sequence`, `zero`.

use super::model::LaidOut;
use crate::calls::{as_name, bare};
use crate::hir::{Mesh, MeshAxis, MeshLength, Sharding, Zero};
use crate::registry::{MESH, SHARD, ZERO};
use crate::scope::{Checker, with_near};
use monarch_diagnostic::Diagnostic;
use monarch_graph::Span;
use monarch_syntax::ast::{self, EntryKind, Expr, ExprKind, Ident};
use std::collections::HashMap;

/// Devices along one axis.
const MOST: u64 = 1 << 20;

/// What an axis of the mesh divides, for messages.
fn role(axis: MeshAxis) -> &'static str {
    match axis {
        MeshAxis::Pp => "stages, which `pipeline` cuts",
        MeshAxis::Dp => "replicas: they divide B, the samples",
        MeshAxis::Cp => "parts of a sequence: they divide T",
        MeshAxis::Ep => "groups of experts: they divide E",
        MeshAxis::Tp => "parts of a layer: they divide heads, widths, the vocabulary",
    }
}

/// Where an axis of tensors belongs.
fn home(axis: &str) -> MeshAxis {
    match axis {
        "B" => MeshAxis::Dp,
        "T" | "S" => MeshAxis::Cp,
        "E" => MeshAxis::Ep,
        _ => MeshAxis::Tp,
    }
}

impl<'a> Checker<'a> {
    /// `{ pp = 2, dp = _, tp = 4 }`
    pub fn mesh(&mut self, file: u32, expr: &'a Expr) -> Option<Mesh> {
        let given = self.record_settings(&MESH, expr)?;
        let mut axes = Vec::new();
        let mut fine = !given.broken && given.meant.is_empty();
        let mut filler: Option<Span> = None;
        for axis in MeshAxis::ALL {
            let name = axis.name();
            let Some(value) = given.values.get(name) else { continue };
            let span = given.spans.get(name).copied().unwrap_or(value.span);
            if as_name(value).is_some_and(|n| n.name == "_") {
                if let Some(first) = filler {
                    let (again, first) = order(value.span, first);
                    self.report(
                        Diagnostic::error("M0105", "only one axis of a mesh can fill it")
                            .label(again, "a second `_`")
                            .label(first, "the first one")
                            .help("say how long one of them is"),
                    );
                    fine = false;
                }
                filler = Some(value.span);
                axes.push(MeshLength { axis, length: None, span });
                continue;
            }
            match self.whole_setting(file, &format!("plan.mesh.{name}"), value, 1) {
                Some(n) if n > MOST => {
                    let title = format!("an axis of a mesh has at most {MOST} devices, not {n}");
                    let d = Diagnostic::error("M0112", title);
                    self.report(d.label(value.span, "too many"));
                    fine = false;
                }
                Some(n) => axes.push(MeshLength { axis, length: Some(n as u32), span }),
                None => fine = false,
            }
        }
        if given.values.is_empty() && fine {
            let d = Diagnostic::error("M0109", "this mesh has no axis");
            self.report(d.label(expr.span, "empty").help("write `mesh = { dp = 4 }`"));
            fine = false;
        }
        axes.sort_by_key(|a| a.span.start);
        fine.then_some(Mesh { axes, span: expr.span })
    }

    /// The axis of the mesh that an expression names. `what` it is for decides which may stand.
    pub fn mesh_axis(&mut self, expr: &Expr, mesh: Option<&Mesh>) -> Option<(MeshAxis, Ident)> {
        let Some(name) = as_name(expr) else {
            if !matches!(bare(expr).kind, ExprKind::Broken) {
                let d = Diagnostic::error("M0111", "an axis of the mesh is needed here");
                self.report(d.label(expr.span, "not the name of one"));
            }
            return None;
        };
        let has =
            |axis: &MeshAxis| mesh.is_none_or(|m| m.axes.iter().any(|length| length.axis == *axis));
        let known = MeshAxis::ALL.into_iter().find(|a| a.name() == name.name);
        if let Some(axis) = known.filter(has) {
            return Some((axis, name.clone()));
        }
        let title = format!("the mesh has no axis `{}`", name.name);
        let mut d = Diagnostic::error("M0801", title).label(name.span, "unknown axis");
        if let Some(mesh) = mesh {
            d = d.label(mesh.span, "its axes");
        }
        let all = MeshAxis::ALL.into_iter().filter(has).map(MeshAxis::name);
        self.report(match known {
            Some(axis) => d.help(format!("add `{} = ..` to it, or take this out", axis.name())),
            None => with_near(d, name, all, "it has"),
        });
        None
    }

    /// One axis that is the only one which makes sense.
    pub fn only_axis(
        &mut self,
        expr: &Expr,
        mesh: Option<&Mesh>,
        only: MeshAxis,
        why: &str,
    ) -> Option<MeshAxis> {
        let (axis, name) = self.mesh_axis(expr, mesh)?;
        if axis == only {
            return Some(axis);
        }
        let title = format!("{why}, not over `{}`", axis.name());
        self.report(Diagnostic::error("M0802", title).label(name.span, role(axis)).fix(
            format!("did you mean `{}`?", only.name()),
            name.span,
            only.name(),
        ));
        None
    }

    /// An axis that a block takes without naming it must be in the mesh too.
    pub fn default_axis(
        &mut self,
        block: &ast::Block,
        mesh: Option<&Mesh>,
        axis: MeshAxis,
    ) -> Option<MeshAxis> {
        let Some(mesh) = mesh else { return Some(axis) };
        if mesh.axes.iter().any(|length| length.axis == axis) {
            return Some(axis);
        }
        let title =
            format!("`{}` is over `{}`, which the mesh has not", block.kind.name, axis.name());
        self.report(
            Diagnostic::error("M0801", title)
                .label(block.kind.span, format!("over `{}`", axis.name()))
                .label(mesh.span, "its axes")
                .help(format!("add `{} = ..` to the mesh", axis.name())),
        );
        None
    }

    /// `shard { B -> dp, H -> tp }`
    pub fn shard(
        &mut self,
        block: &'a ast::Block,
        mesh: Option<&Mesh>,
        model: &LaidOut,
    ) -> Option<Vec<Sharding>> {
        let mut out = Some(Vec::new());
        let mut seen = HashMap::new();
        for entry in block.body.iter().flat_map(|b| &b.entries) {
            let found = match &entry.kind {
                EntryKind::Rule(rule) => self.sharding(rule, mesh, model, &mut seen),
                EntryKind::Broken(_) => None,
                EntryKind::Assign(a) => {
                    let d = Diagnostic::error("M0101", "`shard` sends axes to the mesh by `->`")
                        .label(a.span, "a setting");
                    let text = |s: Span| self.loaded.sources.slice(s).to_owned();
                    let fixed = format!("{} -> {}", text(a.path.span), text(a.value.span));
                    self.report(d.fix(format!("write `{fixed}`"), a.span, fixed));
                    None
                }
                _ => {
                    self.misplaced(&SHARD, "this", entry.span);
                    None
                }
            };
            match (found, &mut out) {
                (Some(rule), Some(list)) => list.push(rule),
                _ => out = None,
            }
        }
        if out.as_ref().is_some_and(Vec::is_empty) {
            let d = Diagnostic::error("M0109", "this `shard` divides nothing");
            self.report(d.label(block.kind.span, "empty").help("write `shard { B -> dp }`"));
            return None;
        }
        out
    }

    fn sharding(
        &mut self,
        rule: &ast::Rule,
        mesh: Option<&Mesh>,
        model: &LaidOut,
        seen: &mut HashMap<String, Span>,
    ) -> Option<Sharding> {
        let Some(axis) = rule.from.single() else {
            let d = Diagnostic::error("M0124", "the name of an axis is needed here");
            self.report(d.label(rule.from.span, "not the name of an axis"));
            return None;
        };
        let once = self.first_time(axis, seen);
        let exists = self.axis_of_model(axis, model);
        let (over, name) = self.mesh_axis(&rule.to, mesh)?;
        if !once || !exists {
            return None;
        }
        let home = home(&axis.name);
        if over == home {
            return Some(Sharding { axis: axis.name.clone(), over, span: rule.span });
        }
        let title = format!("`{}` does not divide {}", over.name(), axis.name);
        let d = Diagnostic::error("M0802", title).label(name.span, role(over));
        let there = mesh.is_none_or(|m| m.axes.iter().any(|length| length.axis == home));
        let goes = format!("{} goes to `{}`", axis.name, home.name());
        self.report(match there {
            true => d.fix(goes, name.span, home.name()),
            false => d.help(format!("{goes}, which this mesh has not")),
        });
        None
    }

    /// `sequence = tp`
    pub fn sequence(&mut self, expr: &Expr, mesh: Option<&Mesh>) -> Option<MeshAxis> {
        let why = "T is divided outside attention and MLP over `tp`";
        self.only_axis(expr, mesh, MeshAxis::Tp, why)
    }

    /// `zero { stage = 1, over = dp }`
    pub fn zero(&mut self, file: u32, block: &'a ast::Block, mesh: Option<&Mesh>) -> Option<Zero> {
        let given = self.settings(&ZERO, block.body.as_ref());
        self.remember_defaults(&ZERO, "plan.zero", &given);
        let stage = match given.values.get("stage") {
            None => {
                self.missing(block, &ZERO, "stage", &given);
                None
            }
            Some(e) => {
                let n = self.whole_setting(file, "plan.zero.stage", e, 1);
                if let Some(n) = n.filter(|n| *n > 3) {
                    let title = format!("`stage` is 1, 2 or 3, not {n}");
                    let d = Diagnostic::error("M0112", title).label(e.span, "no such stage");
                    self.report(d.help("3 divides weights, gradients and optimizer state: all"));
                }
                n.filter(|n| *n <= 3)
            }
        };
        let over = match given.values.get("over") {
            None => self.default_axis(block, mesh, MeshAxis::Dp),
            Some(e) => self.only_axis(e, mesh, MeshAxis::Dp, "replicas divide their state"),
        };
        let span = block.kind.span.to(given.spans.get("stage").copied().unwrap_or_default());
        Some(Zero { stage: stage? as u8, over: over?, span })
    }
}

/// Two places in the order of the text, the later one first.
fn order(a: Span, b: Span) -> (Span, Span) {
    if a.start < b.start { (b, a) } else { (a, b) }
}
