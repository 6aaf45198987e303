//! What of a layout a run carries out: replicas on CPU workers. The rest is planned, and a run
//! refuses it.

use crate::hir::{Float, Layout, MeshAxis, Precision};
use crate::scope::Checker;

const ALONE: &str = "`monarch plan` plans it; without it the run is data-parallel on CPU workers";

impl Checker<'_> {
    /// Marks what a run on this cluster does not carry out.
    pub fn mark_cluster(&mut self, id: usize) {
        let Some(cluster) = self.cluster_value(id) else { return };
        let given = self.clusters[id].ast.body.iter().flat_map(|b| &b.entries);
        let mut nodes = given.filter_map(|e| match &e.kind {
            monarch_syntax::ast::EntryKind::Assign(a) if a.path.text() == "nodes" => Some(a.span),
            _ => None,
        });
        if let Some(at) = nodes.next_back() {
            let help = "start `monarch worker --join HOST:PORT` there, and run with `--join N`";
            self.not_run_yet(at, "starting workers on declared machines", help);
        }
        if let Some(device) = cluster.device.filter(|d| d.kind != "CPU") {
            let what = format!("work on {} devices", device.kind);
            self.not_run_yet(device.span, &what, "`device = CPU { count = 4 }` is 4 workers");
        }
    }

    /// Marks what a run with this layout does not carry out.
    pub fn mark_layout(&mut self, layout: &Layout) {
        for axis in &layout.mesh.axes {
            if axis.axis != MeshAxis::Dp && axis.length != Some(1) {
                let what = format!("a mesh with an axis `{}`", axis.axis.name());
                self.not_run_yet(axis.span, &what, ALONE);
            }
        }
        for rule in layout.shard.iter().filter(|r| r.over != MeshAxis::Dp) {
            let what = format!("the sharding of {} over `{}`", rule.axis, rule.over.name());
            self.not_run_yet(rule.span, &what, ALONE);
        }
        if let Some((_, at)) = layout.sequence {
            self.not_run_yet(at, "a sequence that is divided", ALONE);
        }
        if let Some(pipeline) = &layout.pipeline {
            self.not_run_yet(pipeline.span, "pipelines", ALONE);
        }
        if let Some(zero) = &layout.zero {
            self.not_run_yet(zero.span, "divided state of the optimizer (ZeRO)", ALONE);
        }
        for pattern in &layout.recompute {
            self.not_run_yet(pattern.span, "recomputation", ALONE);
        }
    }

    /// Marks words of a plan whose meaning a run does not carry out.
    pub fn mark_words(&mut self, layout: &Layout, block: &monarch_syntax::ast::Block) {
        let place = |name: &str| {
            let entries = block.body.iter().flat_map(|b| &b.entries);
            let mut found = entries.filter_map(|e| match &e.kind {
                monarch_syntax::ast::EntryKind::Assign(a) if a.path.text() == name => Some(a.span),
                monarch_syntax::ast::EntryKind::Block(b) if b.kind.name == name => Some(e.span),
                _ => None,
            });
            found.next_back().unwrap_or(layout.span)
        };
        if layout.offload.optimizer {
            self.not_run_yet(place("offload"), "offloading", ALONE);
        }
        let all_f32 = Precision { weights: Float::F32, grads: Float::F32, optimizer: Float::F32 };
        if layout.precision != all_f32 {
            self.not_run_yet(place("precision"), "elements other than f32", ALONE);
        }
        let overlap = layout.overlap;
        if overlap.bucket_bytes.is_some() || overlap.tp || !overlap.exact {
            let help = "a run chooses its buckets itself and sums in one order; \
                        `overlap { grads = true }` is carried out";
            self.not_run_yet(place("overlap"), "these settings of `overlap`", help);
        }
    }
}
