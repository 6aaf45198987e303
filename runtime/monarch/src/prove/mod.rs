//! Tests of the language: what a program claims of itself, carried out on this machine's CPU.
//!
//! Invariants: models have the weights that a run of the program would begin with; random numbers
//! are functions of the seed and of the test's name; no clock, number of cores or order of tests
//! has a say in what passes. A test that fails is a [`Diagnostic`] at the line that failed.

mod claim;
mod fit;
mod number;
mod tensor;

use crate::front::Findings;
use fit::Fitted;
use monarch_check::hir::{MeshAxis, Program, Test, TestStep};
use monarch_check::run_gate;
use monarch_diagnostic::Diagnostic;
use monarch_graph::Span;
use monarch_plan::mesh::{self, MeshReport, Wish};
use monarch_plan::{Facts, Report};
use tensor::Tensors;

/// How a test ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Passed,
    /// What did not hold, or what it failed on; never empty.
    Failed(Vec<Diagnostic>),
}

/// What `fit` or `plan` gave.
enum Found {
    Fitted(Fitted),
    /// For workers of this machine and others.
    Workers(Box<Report>),
    /// For declared devices.
    Devices(Box<MeshReport>),
}

/// Why a test goes no further.
pub(crate) enum Stop {
    /// A claim that does not hold, or a failure while it was looked at.
    Failed(Diagnostic),
    /// A plan was refused.
    Refused(Vec<Diagnostic>),
}

impl From<Diagnostic> for Stop {
    fn from(diagnostic: Diagnostic) -> Stop {
        Stop::Failed(diagnostic)
    }
}

type Result<T> = std::result::Result<T, Stop>;

/// Carries out one test of a checked program; `facts` are those that `plan(..)` plans for.
pub fn prove(program: &Program, test: &Test, facts: &Facts) -> Verdict {
    let outcome = match &test.rejects {
        Some(rejects) if !rejects.found.is_empty() => Err(Stop::Refused(rejects.found.clone())),
        _ => Prover::new(program, test, facts).run(),
    };
    match &test.rejects {
        None => match outcome {
            Ok(()) => Verdict::Passed,
            Err(Stop::Failed(diagnostic)) => Verdict::Failed(vec![diagnostic]),
            Err(Stop::Refused(diagnostics)) => Verdict::Failed(diagnostics),
        },
        Some(_) => rejected(test, outcome),
    }
}

/// Whether the block was refused with the code that it says.
fn rejected(test: &Test, outcome: Result<()>) -> Verdict {
    let Some(rejects) = &test.rejects else { return Verdict::Passed };
    let code = &rejects.code;
    let found = match outcome {
        Ok(()) => Vec::new(),
        Err(Stop::Failed(diagnostic)) => vec![diagnostic],
        Err(Stop::Refused(diagnostics)) => diagnostics,
    };
    if found.iter().any(|d| d.code == code) {
        return Verdict::Passed;
    }
    let d = match found.first() {
        None => Diagnostic::error("M1002", format!("nothing refuses this with {code}"))
            .label(rejects.span, "it was accepted"),
        Some(first) => {
            let title = format!("this is refused with {}, not with {code}", first.code);
            let d = Diagnostic::error("M1002", title).label(rejects.span, "another mistake");
            match first.span() {
                Some(span) => d.label(span, first.title.clone()),
                None => d.help(first.title.clone()),
            }
        }
    };
    let d = match found.first().filter(|f| f.code.starts_with('M')) {
        Some(first) => {
            let text = format!("if {} is what you mean: `rejects {}`", first.title, first.code);
            d.fix(text, rejects.span, first.code)
        }
        None => d,
    };
    Verdict::Failed(vec![d])
}

/// A test under way.
pub(crate) struct Prover<'a> {
    program: &'a Program,
    facts: &'a Facts,
    test: &'a Test,
    tensors: Tensors<'a>,
    results: Vec<Option<Found>>,
}

impl<'a> Prover<'a> {
    fn new(program: &'a Program, test: &'a Test, facts: &'a Facts) -> Prover<'a> {
        let results = (0..test.results).map(|_| None).collect();
        Prover { program, facts, test, tensors: Tensors::new(program, test), results }
    }

    fn run(mut self) -> Result<()> {
        self.test.steps.iter().try_for_each(|step| self.step(step))
    }

    fn step(&mut self, step: &'a TestStep) -> Result<()> {
        match step {
            TestStep::Fit { result, steps, batches, span } => {
                if let Some(refused) = run_gate(self.program).into_iter().next() {
                    return Err(refused.label(*span, "and `fit` is a run").into());
                }
                let (plan, _) = self.plan()?;
                let fitted = fit::fit(plan, *steps, *batches).map_err(|why| {
                    let title = format!("`fit` failed: {why}");
                    Diagnostic::error("M1005", title).label(*span, "while this was trained")
                })?;
                self.keep(result.0, Found::Fitted(fitted));
            }
            TestStep::Plan { result, lengths, span } => {
                let found = self.figures(lengths, *span)?;
                self.keep(result.0, found);
            }
            TestStep::Assert { holds, span } => self.claim(holds, *span)?,
            tensor => self.tensors.step(tensor)?,
        }
        Ok(())
    }

    fn keep(&mut self, at: u32, found: Found) {
        if let Some(slot) = self.results.get_mut(at as usize) {
            *slot = Some(found);
        }
    }

    /// `plan(job, pp = 64)`
    fn figures(&self, lengths: &[(MeshAxis, u32)], span: Span) -> Result<Found> {
        if mesh::is_declared(self.program) {
            let wish = Wish { axes: lengths.to_vec(), ..Wish::default() };
            let (report, found) = mesh::plan(self.program, &wish);
            return report.map(|r| Found::Devices(Box::new(r))).ok_or_else(|| refused(found));
        }
        if let Some((axis, _)) = lengths.first() {
            let title = format!("this job has no mesh with an axis `{}`", axis.name());
            let d = Diagnostic::error("M1005", title).label(span, "planned here");
            return Err(d.help("`train name on plan` says which mesh it is for").into());
        }
        Ok(Found::Workers(Box::new(self.plan()?.1)))
    }

    fn plan(&self) -> Result<(monarch_graph::Plan, Report)> {
        let (planned, found) = monarch_plan::plan(self.program, self.facts);
        planned.ok_or_else(|| refused(found))
    }
}

fn refused(found: Vec<Diagnostic>) -> Stop {
    Stop::Refused(found.into_iter().filter(Diagnostic::is_error).collect())
}

/// The diagnostics of a test that failed, with the texts that they point into.
pub fn findings(program: &Program, diagnostics: Vec<Diagnostic>) -> Findings {
    Findings { diagnostics, sources: program.sources.clone() }
}
