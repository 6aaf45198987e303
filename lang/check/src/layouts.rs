//! `plan`: how a job is laid out on a cluster. What it says is checked with itself and with the
//! model; whether it fits the devices is for the plan.

mod carried;
mod mesh;
mod model;
mod words;

use crate::hir::{Layout, Mesh, MeshAxis};
use crate::registry::PLAN;
use crate::scope::{Checker, Entity, In};
use monarch_diagnostic::Diagnostic;
use monarch_syntax::ast;

impl<'a> Checker<'a> {
    pub fn check_layouts(&mut self) {
        for id in 0..self.plans.len() {
            let In { file, ast, .. } = self.plans[id];
            let layout = self.layout(file, ast);
            self.state.layouts.push(layout);
        }
    }

    fn layout(&mut self, file: u32, block: &'a ast::Block) -> Option<Layout> {
        let given = self.settings(&PLAN, block.body.as_ref());
        self.remember_defaults(&PLAN, "plan", &given);
        let cluster = self.layout_cluster(file, block);
        let model = self.laid_out(block);
        if !given.values.contains_key("mesh") {
            self.missing(block, &PLAN, "mesh", &given);
        }
        let mesh = given.values.get("mesh").and_then(|e| self.mesh(file, e));
        let mesh: Option<&Mesh> = mesh.as_ref();
        let shard = match given.blocks.get("shard") {
            None => Some(Vec::new()),
            Some(b) => self.shard(b, mesh, &model),
        };
        let sequence = match given.values.get("sequence") {
            None => Some(None),
            Some(e) => self.sequence(e, mesh).map(|axis| Some((axis, e.span))),
        };
        let pipeline = match given.blocks.get("pipeline") {
            None => Some(None),
            Some(b) => self.pipeline(file, b, mesh, &model).map(Some),
        };
        let zero = match given.blocks.get("zero") {
            None => Some(None),
            Some(b) => self.zero(file, b, mesh).map(Some),
        };
        let recompute = match given.values.get("recompute") {
            None => Some(Vec::new()),
            Some(e) => self.recompute(file, e, &model),
        };
        let offload = match given.values.get("offload") {
            None => Some(Default::default()),
            Some(e) => self.offload(e),
        };
        let precision = match given.values.get("precision") {
            None => Some(Default::default()),
            Some(e) => self.precision(e),
        };
        let overlap = match given.blocks.get("overlap") {
            None => Some(Default::default()),
            Some(b) => self.overlap(file, b),
        };
        let name = block.name.as_ref()?;
        let layout = Layout {
            name: name.name.clone(),
            span: block.kind.span.to(name.span),
            cluster: cluster?,
            mesh: mesh?.clone(),
            shard: shard?,
            shard_span: given.spans.get("shard").copied(),
            sequence: sequence?,
            pipeline: pipeline?,
            zero: zero?,
            recompute: recompute?,
            offload: offload?,
            precision: precision?,
            overlap: overlap?,
        };
        // What a job is trained on is judged with the job's numbers, by the plan.
        match model.is_used() {
            true => Some(layout),
            false => self.idle_axes(&layout).then_some(layout),
        }
    }

    /// Whether each axis of the mesh is used by a setting; reports those that are not.
    fn idle_axes(&mut self, layout: &Layout) -> bool {
        let mut used: Vec<MeshAxis> = layout.shard.iter().map(|s| s.over).collect();
        used.extend(layout.sequence.map(|s| s.0));
        used.extend(layout.pipeline.as_ref().map(|p| p.over));
        used.extend(layout.zero.map(|z| z.over));
        let mut fine = true;
        for axis in &layout.mesh.axes {
            let Some(n) = axis.length.filter(|n| *n > 1 && !used.contains(&axis.axis)) else {
                continue;
            };
            let name = axis.axis.name();
            let title = format!("mesh axis `{name}` would do the same work {n} times over");
            let mut d = Diagnostic::error("M0305", title).label(axis.span, format!("{n} devices"));
            if let Some(at) = layout.shard_span {
                d = d.label(at, format!("sends nothing to `{name}`"));
            }
            let what = match axis.axis {
                MeshAxis::Pp => "cut the model into stages: `pipeline { split = model.blocks }`",
                MeshAxis::Dp => "divide the samples: `shard { B -> dp }`",
                MeshAxis::Cp => "divide the sequence: `shard { T -> cp }`",
                MeshAxis::Ep => "divide the experts: `shard { E -> ep }`",
                MeshAxis::Tp => "divide layers: `shard { H -> tp, F -> tp, V -> tp }`",
            };
            self.report(d.help(what));
            fine = false;
        }
        fine
    }

    /// The cluster that `on` names; without it the only one there is, or this machine.
    fn layout_cluster(&mut self, file: u32, block: &ast::Block) -> Option<Option<usize>> {
        let Some(on) = &block.on else {
            if self.clusters.len() < 2 {
                return Some((!self.clusters.is_empty()).then_some(0));
            }
            let at = block.name.as_ref().map_or(block.kind.span, |n| n.span);
            let title = "on which of the clusters is this?";
            self.report(
                Diagnostic::error("M0109", title)
                    .label(at, "no `on`")
                    .help("write `plan name on cluster { .. }`"),
            );
            return None;
        };
        let Some(name) = on.single() else {
            let d = Diagnostic::error("M0124", "a cluster is needed here");
            self.report(d.label(on.span, "not a name"));
            return None;
        };
        let is_cluster = |e| matches!(e, Entity::Cluster(_));
        match self.needs_entity(file, name, "a cluster", is_cluster)? {
            Entity::Cluster(id) => Some(Some(id)),
            _ => None,
        }
    }
}
