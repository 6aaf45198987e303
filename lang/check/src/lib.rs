//! Names, units, sizes and shapes: from the syntax tree to a [`hir::Program`].
//!
//! Invariants
//! - Pure: files are seen through [`World`] alone; no clock, no environment, no sockets. The same
//!   files give the same program and the same diagnostics, in the same order.
//! - Never fails: there is always an answer, with all mistakes of a program in one go, one
//!   diagnostic per cause. A program is handed out only if there is no error.
//! - Nothing is ignored: a name, setting, unit or event that is not known is an error; what is
//!   known and not carried out by a run yet is kept for [`run_gate`].
//! - A layer is checked once, with symbols for its sizes, whether or not anything uses it.
//! - Knows nothing of devices, of how graphs are differentiated or of how a job is run.

mod adapters;
mod apply;
mod batch;
mod calls;
mod clusters;
mod data;
pub mod declared;
mod einops;
pub mod events;
mod fault;
mod function;
mod gate;
mod globs;
pub mod hir;
mod hooks;
mod images;
mod init;
pub mod inspect;
mod invoke;
mod later;
mod layers;
mod layouts;
pub mod library;
pub mod library_text;
mod load;
mod metrics;
mod misplaced;
mod models;
mod names;
mod objective;
mod op_numbers;
mod operators;
mod ops;
mod optimizer;
mod params;
pub mod pins;
pub mod poly;
mod pretrained;
mod records;
mod recurring;
pub mod reference;
pub mod registry;
mod rules;
mod schedule;
mod scope;
mod script;
mod settings;
mod signature;
mod sizes;
mod sources;
mod splits;
mod state;
mod statics;
mod sweeps;
mod test_calls;
mod test_values;
mod tests_block;
mod train;
mod typed;
mod types;
mod units;
mod weights;
pub mod world;

pub use declared::Declared;
pub use gate::run_gate;
use monarch_diagnostic::{Diagnostic, Sources};
use monarch_graph::Span;
pub use params::ParamHelp;
use scope::{Checker, Lazy};
pub use statics::{arithmetic, show};
use std::collections::HashSet;
pub use world::{RecordFacts, TensorFact, TextFacts, World, WorldError};

/// The answer to [`check`].
pub struct Checked {
    /// None if a diagnostic is an error.
    pub program: Option<hir::Program>,
    /// In the order of the text, files as they were read.
    pub diagnostics: Vec<Diagnostic>,
    /// What the program names and this machine does not have: files of weights or data. A check
    /// notes it (`M0608`) and goes on as far as it can; whoever needs the program shows these
    /// errors instead of the notes. Not empty: there may be no program without any error.
    pub absent: Vec<Diagnostic>,
    /// The texts that spans refer to.
    pub sources: Sources,
}

/// More than these in one answer help nobody.
const MAX_DIAGNOSTICS: usize = 100;

/// Checks the program at `path`.
///
/// `overrides` are params from the command line, by name, with their values as text; `reserved`
/// are the names of options that a param may not take.
pub fn check(
    world: &dyn World,
    path: &str,
    overrides: &[(String, String)],
    reserved: &[&str],
) -> Checked {
    inspect::run(world, path, overrides, reserved, false).checked
}

/// The params of a program, for `--help`; and what is wrong with its syntax.
pub fn params(world: &dyn World, path: &str) -> (Vec<ParamHelp>, Vec<Diagnostic>, Sources) {
    let loaded = load::load(world, path);
    (params::help(&loaded), loaded.diagnostics, loaded.sources)
}

/// What could not be read, and where: whatever the checker finds wrong on the same line follows
/// from that.
struct Causes {
    lines: HashSet<(u32, u32)>,
    spans: Vec<Span>,
}

impl Causes {
    fn of(loaded: &load::Loaded) -> Causes {
        let errors = || loaded.diagnostics.iter().filter(|d| d.is_error());
        // A habit of another language is read as what it means, unless it splits a word.
        let unread = errors().filter(|d| d.code == "M0001").filter_map(Diagnostic::span);
        let line = |span: Span| Some((span.file, loaded.sources.position(span)?.line));
        let spans = errors().filter_map(Diagnostic::span).collect();
        Causes { lines: unread.filter_map(line).collect(), spans }
    }

    fn explain(&self, d: &Diagnostic, sources: &Sources) -> bool {
        let Some(span) = d.span() else { return false };
        let touches = |s: &Span| s.file == span.file && s.start <= span.end && span.start <= s.end;
        let line = sources.position(span).map(|p| (span.file, p.line));
        line.is_some_and(|line| self.lines.contains(&line)) || self.spans.iter().any(touches)
    }
}

/// Orders the diagnostics, removes repetitions, and keeps the program only if there is no error.
fn finish(
    diagnostics: &mut Vec<Diagnostic>,
    program: Option<hir::Program>,
    complete: bool,
) -> Option<hir::Program> {
    let place = |d: &Diagnostic| d.span().map(|s| (s.file, s.start, s.end));
    diagnostics.sort_by_key(|d| place(d));
    diagnostics.dedup_by(|a, b| a.code == b.code && place(a) == place(b) && a.title == b.title);
    let wrong = diagnostics.iter().any(Diagnostic::is_error);
    if !wrong && program.is_none() && complete {
        // An invariant of this crate is broken; the user must not be left without a word.
        diagnostics.push(Diagnostic::error("M0000", "the check stopped without saying why"));
    }
    if diagnostics.len() > MAX_DIAGNOSTICS {
        // Errors first, so that none is lost behind remarks.
        diagnostics.sort_by_key(|d| (d.severity, place(d)));
        let more = diagnostics.len() - MAX_DIAGNOSTICS;
        diagnostics.truncate(MAX_DIAGNOSTICS);
        diagnostics.push(Diagnostic::note("M0099", format!("and {more} more")));
    }
    program.filter(|_| !wrong)
}

impl<'a> Checker<'a> {
    fn new(world: &'a dyn World, loaded: &'a load::Loaded) -> Checker<'a> {
        Checker {
            world,
            loaded,
            diagnostics: Vec::new(),
            scopes: Vec::new(),
            prelude: Default::default(),
            test_prelude: Default::default(),
            params: Vec::new(),
            lets: Vec::new(),
            layers: Vec::new(),
            ops: Vec::new(),
            tests: Vec::new(),
            models: Vec::new(),
            datas: Vec::new(),
            trains: Vec::new(),
            clusters: Vec::new(),
            plans: Vec::new(),
            sweeps: Vec::new(),
            state: Default::default(),
        }
    }

    fn run(
        &mut self,
        overrides: &[(String, String)],
        places: &[(monarch_graph::Span, monarch_graph::Span)],
        reserved: &[&str],
    ) -> Option<hir::Program> {
        self.collect();
        self.state.params = self.params.iter().map(|_| Lazy::Waiting).collect();
        self.state.lets = self.lets.iter().map(|_| Lazy::Waiting).collect();
        self.state.datas = self.datas.iter().map(|_| Lazy::Waiting).collect();
        self.state.models = self.models.iter().map(|_| Lazy::Waiting).collect();
        self.state.clusters = self.clusters.iter().map(|_| Lazy::Waiting).collect();
        self.take_overrides(overrides, places);
        self.check_params(reserved);
        for id in 0..self.lets.len() {
            self.let_value(id);
        }
        self.check_layers();
        self.check_recursion();
        self.check_datas();
        self.check_models();
        self.check_forwards();
        self.settle();
        let clusters = self.check_clusters();
        self.check_layouts();
        let job = self.check_trains();
        let sweeps = self.check_sweeps();
        let tests = self.check_tests(clusters.as_deref().unwrap_or(&[]));
        self.unused();
        if !self.trains.is_empty() && job.is_none() {
            return None;
        }
        Some(hir::Program {
            sources: Sources::new(),
            params: self.finished_params(),
            models: self.finished_models()?,
            layers: self.finished_layers()?,
            clusters: clusters?,
            layouts: std::mem::take(&mut self.state.layouts).into_iter().collect::<Option<_>>()?,
            job,
            settings: std::mem::take(&mut self.state.settings),
            not_run_yet: self.gate(),
            tests,
            sweeps,
            pins: std::mem::take(&mut self.state.pins),
        })
    }

    fn finished_models(&mut self) -> Option<Vec<hir::Model>> {
        (0..self.models.len()).map(|id| self.model_value(id)).collect()
    }

    fn finished_layers(&mut self) -> Option<Vec<hir::LayerDef>> {
        let states = match self.state.watched {
            // Whoever watches still asks for the values of sizes.
            Some(_) => self.state.layers.clone(),
            None => std::mem::take(&mut self.state.layers),
        };
        let all = states.into_iter().zip(&self.layers);
        all.map(|(state, item)| {
            let field =
                |f: layers::Field| hir::FieldDef { name: f.name, span: f.span, symbol: f.symbol };
            let weight = |w: layers::Weight| {
                let (name, span, axes, exists) = (w.name, w.span, w.axes?, w.exists);
                Some(hir::WeightDef { name, span, axes, exists })
            };
            let sub = |s: layers::Sub| s.def.map(std::rc::Rc::unwrap_or_clone);
            Some(hir::LayerDef {
                name: item.ast.name.name.clone(),
                span: item.ast.name.span,
                symbols: state.symbols,
                fixed: state.fixed,
                fields: state.fields.into_iter().map(field).collect(),
                weights: state.weights.into_iter().map(weight).collect::<Option<_>>()?,
                subs: state.subs.into_iter().map(sub).collect::<Option<_>>()?,
                forward: state.done?,
            })
        })
        .collect()
    }
}
