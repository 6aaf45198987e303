//! From a file to a plan: the language's half, over the real world.

use crate::saved::SavedPlan;
use crate::world::Disk;
use monarch_check::hir::{FaultKind, Response};
use monarch_check::{Checked, ParamHelp, World, hir};
use monarch_controller::{Answer, Recovery, RunConfig, SlowAnswer};
use monarch_diagnostic::{Diagnostic, Sources, Style, render};
use monarch_graph::Plan;
use monarch_plan::mesh::{self, MeshReport, Wish};
use monarch_plan::{Facts, Report, Shares};
use std::path::{Path, PathBuf};

/// A program that was read and found right.
pub struct Job {
    /// The program's file.
    pub path: PathBuf,
    pub program: hir::Program,
    pub plan: Plan,
    pub report: Report,
    /// Hash of the plan: equal for two sides that run the same job.
    pub hash: [u8; 32],
    pub warnings: Findings,
}

/// A program that was planned for the machines that it declares; no machine was needed.
pub struct Declared {
    pub program: hir::Program,
    pub report: MeshReport,
    pub warnings: Findings,
}

/// A plan for workers of this and other machines, or for declared devices.
pub enum Planned {
    Workers(Box<Job>),
    Devices(Box<Declared>),
}

/// Diagnostics, with the texts that they point into.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    pub diagnostics: Vec<Diagnostic>,
    pub sources: Sources,
}

impl Findings {
    pub fn errors(&self) -> usize {
        self.diagnostics.iter().filter(|d| d.is_error()).count()
    }

    /// All of them, as a person reads them.
    pub fn text(&self, style: Style) -> String {
        let texts: Vec<String> =
            self.diagnostics.iter().map(|d| render(d, &self.sources, style)).collect();
        texts.join("\n")
    }
}

impl std::fmt::Display for Findings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text(Style::default()))
    }
}

impl std::error::Error for Findings {}

/// Params of the program at `path`, as far as it can be read.
pub fn params(path: &Path) -> Vec<ParamHelp> {
    monarch_check::params(&Disk::here(), &path.to_string_lossy()).0
}

/// Checks the program; `given` are params of the command line.
pub fn check(path: &Path, given: &[(String, String)], reserved: &[&str]) -> Checked {
    monarch_check::check(&Disk::here(), &path.to_string_lossy(), given, reserved)
}

/// Checks and plans the program for the cluster that `facts` makes of it.
pub fn plan(
    path: &Path,
    given: &[(String, String)],
    reserved: &[&str],
    facts: impl FnOnce(&hir::Program) -> Facts,
) -> Result<Job, Findings> {
    let checked = check(path, given, reserved);
    // A layout is for machines that a worker's plan is not made for: what a run cannot do of it
    // comes before what this machine could not hold.
    if let Some(program) = checked.program.as_ref().filter(|p| mesh::is_declared(p)) {
        let diagnostics = monarch_check::run_gate(program);
        if !diagnostics.is_empty() {
            return Err(Findings { diagnostics, sources: checked.sources });
        }
    }
    plan_checked(path, checked, facts)
}

/// As [`plan`], for those who carry the program out: what they would have to ignore is an error,
/// and is said before anything of it is planned.
pub fn plan_to_run(
    path: &Path,
    given: &[(String, String)],
    reserved: &[&str],
    facts: impl FnOnce(&hir::Program) -> Facts,
) -> Result<Job, Findings> {
    let checked = check(path, given, reserved);
    let gate = checked.program.as_ref().map(monarch_check::run_gate).unwrap_or_default();
    if gate.is_empty() {
        return plan_checked(path, checked, facts);
    }
    Err(Findings { diagnostics: gate, sources: checked.sources })
}

/// Plans the program for declared devices, if it declares some or `wish` names one, else as
/// [`plan`] does.
pub fn plan_any(
    path: &Path,
    given: &[(String, String)],
    reserved: &[&str],
    wish: &Wish,
    facts: impl FnOnce(&hir::Program) -> Facts,
) -> Result<Planned, Findings> {
    let checked = check(path, given, reserved);
    let declared = |p: &hir::Program| wish.device.is_some() || mesh::is_declared(p);
    if !checked.program.as_ref().is_some_and(declared) {
        return plan_checked(path, checked, facts).map(|job| Planned::Workers(Box::new(job)));
    }
    let (program, mut findings) = declared_program(checked)?;
    let (report, more) = mesh::plan(&program, wish);
    findings.diagnostics.extend(more);
    match report {
        Some(report) => {
            let declared = Declared { program, report, warnings: findings };
            Ok(Planned::Devices(Box::new(declared)))
        }
        None => Err(findings),
    }
}

/// The layouts that fit the devices that a program declares or `wish` names.
pub fn search(
    path: &Path,
    given: &[(String, String)],
    reserved: &[&str],
    wish: &Wish,
) -> Result<(mesh::Search, Findings), Findings> {
    let (program, mut findings) = declared_program(check(path, given, reserved))?;
    let (found, more) = mesh::search(&program, wish);
    findings.diagnostics.extend(more);
    found.map(|found| (found, findings.clone())).ok_or(findings)
}

/// How `cores` of this machine are best shared among workers.
pub fn shares(
    path: &Path,
    given: &[(String, String)],
    reserved: &[&str],
    (cores, memory): (u32, Option<u64>),
    facts: impl FnOnce(&hir::Program) -> Facts,
) -> Result<(Shares, Findings), Findings> {
    let (program, mut findings) = complete(check(path, given, reserved))?;
    let (found, more) = monarch_plan::shares(&program, &facts(&program), cores, memory);
    findings.diagnostics.extend(more);
    found.map(|found| (found, findings.clone())).ok_or(findings)
}

/// Whether the program at `path` declares devices, as far as it can be read.
pub fn is_declared(path: &Path, given: &[(String, String)], reserved: &[&str]) -> bool {
    check(path, given, reserved).program.as_ref().is_some_and(mesh::is_declared)
}

/// What tests need of a program: all that it names if one of them trains (`runs` says so), else
/// facts that the check knows.
pub fn for_tests(
    checked: Checked,
    runs: impl FnOnce(&hir::Program) -> bool,
) -> Result<(hir::Program, Findings), Findings> {
    match checked.program.as_ref().is_some_and(runs) {
        true => complete(checked),
        false => declared_program(checked),
    }
}

/// What a plan for declared devices needs: facts that the check knows. Data and weights that are
/// elsewhere stay notes.
fn declared_program(checked: Checked) -> Result<(hir::Program, Findings), Findings> {
    let mut findings = Findings { diagnostics: checked.diagnostics, sources: checked.sources };
    match checked.program {
        Some(program) => Ok((program, findings)),
        None => {
            findings.diagnostics.retain(|d| d.code != "M0608");
            findings.diagnostics.extend(checked.absent);
            Err(findings)
        }
    }
}

/// A program with all that it names at hand, its pinned files verified and its data hashed.
fn complete(checked: Checked) -> Result<(hir::Program, Findings), Findings> {
    let mut findings = Findings { diagnostics: checked.diagnostics, sources: checked.sources };
    if !checked.absent.is_empty() {
        // A check notes what is not on this machine; a plan needs it.
        findings.diagnostics.retain(|d| d.code != "M0608");
        findings.diagnostics.extend(checked.absent);
        return Err(findings);
    }
    let Some(mut program) = checked.program else { return Err(findings) };
    findings.diagnostics.extend(monarch_check::pins::verify(&Disk::here(), &program));
    findings.diagnostics.extend(hash_data(&mut program));
    if findings.errors() > 0 {
        return Err(findings);
    }
    Ok((program, findings))
}

fn plan_checked(
    path: &Path,
    checked: Checked,
    facts: impl FnOnce(&hir::Program) -> Facts,
) -> Result<Job, Findings> {
    let (program, mut findings) = complete(checked)?;
    let (planned, more) = monarch_plan::plan(&program, &facts(&program));
    findings.diagnostics.extend(more);
    let Some((plan, report)) = planned else { return Err(findings) };
    let hash = match monarch_wire::job_hash(&plan) {
        Ok(hash) => hash,
        Err(error) => {
            let title = format!("this job is too large to be sent to workers: {error}");
            findings.diagnostics.push(Diagnostic::error("M0303", title));
            return Err(findings);
        }
    };
    let path = path.to_path_buf();
    Ok(Job { path, program, plan, report, hash, warnings: findings })
}

/// Hashes files of data that the check only looked at, so that every worker reads these bytes.
fn hash_data(program: &mut hir::Program) -> Option<Diagnostic> {
    let data = &mut program.job.as_mut()?.data;
    let span = data.span;
    for file in data.source.files_mut() {
        if file.sha256 != [0; 32] || file.path.contains("://") {
            continue;
        }
        match Disk::here().file(&file.path) {
            Ok(found) => *file = found,
            Err(error) => {
                let title = format!("the data cannot be read: {error}");
                return Some(Diagnostic::error("M0607", title).label(span, "this data set"));
            }
        }
    }
    None
}

impl Declared {
    /// What the program comes to, to be saved. Data that is not on this machine enters with its
    /// names and lengths.
    pub fn saved(&self) -> SavedPlan {
        let mut program = self.program.clone();
        // A file that cannot be read has no hash, and the plan says so.
        let _ = hash_data(&mut program);
        let (plan, _) = monarch_plan::plan(&program, &Facts::default());
        SavedPlan::new(&program, plan.map(|p| p.0).as_ref(), None, self.report.json())
    }
}

impl Job {
    /// Refuses what a run of this job would have to ignore.
    ///
    /// # Errors
    /// [`Findings`] with each setting that is checked and not carried out yet.
    pub fn runnable(&self) -> Result<(), Findings> {
        let diagnostics = monarch_check::run_gate(&self.program);
        match diagnostics.is_empty() {
            true => Ok(()),
            false => Err(Findings { diagnostics, sources: self.program.sources.clone() }),
        }
    }

    /// What the program comes to, to be saved or to be held against a saved plan.
    pub fn saved(&self) -> SavedPlan {
        SavedPlan::new(&self.program, Some(&self.plan), Some(&self.hash), self.report.json())
    }

    /// What the program says of its cluster, if it says anything.
    pub fn cluster(&self) -> Option<&hir::Cluster> {
        self.program.clusters.get(self.program.job.as_ref()?.cluster?)
    }

    /// The directory that holds the job's runs, and a run's directory in it.
    pub fn run_dir(&self, run_id: &str) -> PathBuf {
        let to = self.plan.checkpoint.as_ref().map_or("runs/{run.id}", |c| c.to.as_str());
        let folder = self.path.parent().unwrap_or(Path::new("."));
        folder.join(to.replace("{run.id}", run_id))
    }

    /// Whether the program gives each run a directory of its own.
    pub fn has_a_directory_per_run(&self) -> bool {
        self.run_dir("a") != self.run_dir("b")
    }

    /// Where runs lie side by side; the one directory, when all runs share it.
    pub fn runs(&self) -> PathBuf {
        let dir = self.run_dir("{run.id}");
        let found = dir.ancestors().find(|p| !p.to_string_lossy().contains("{run.id}"));
        found.map_or_else(|| PathBuf::from("."), Path::to_path_buf)
    }

    /// A run of this job on `workers` workers, with the texts and params that its records name.
    pub fn run_config(self, id: String, run_dir: PathBuf, workers: u32) -> RunConfig {
        let params = self.params();
        let sources = self.program.sources.iter().map(|s| s.text().to_owned()).collect();
        let (recovery, answers, slow) = (self.recovery(), self.answers(), self.slow());
        let config = RunConfig::new(self.plan, self.hash, id, run_dir, workers);
        RunConfig { sources, params, recovery, answers, slow, ..config }
    }

    /// What the program says of lost workers; the gate has refused what cannot be carried out.
    fn recovery(&self) -> Recovery {
        let faults = self.program.job.iter().flat_map(|job| &job.faults);
        let lost = faults.into_iter().find(|f| f.kind == FaultKind::WorkerLost);
        let usual = Recovery::default();
        match lost.map(hir::Fault::shrinks) {
            None => usual,
            Some(Some((replace, min))) => {
                Recovery { replace, least: u32::try_from(min).unwrap_or(u32::MAX), ..usual }
            }
            Some(None) => Recovery { least: 0, replace: false, ..usual },
        }
    }

    /// What the program says of numbers that are not finite; the gate has refused the rest.
    fn answers(&self) -> Vec<Answer> {
        let faults = self.program.job.iter().flat_map(|job| &job.faults);
        let chain = faults.filter(|f| f.kind == FaultKind::LossNan).flat_map(|f| &f.chain);
        let answer = |response: &hir::Response| match response {
            hir::Response::Skip { steps } => Answer::Skip { steps: *steps },
            hir::Response::Rollback { .. } => Answer::Rollback,
            _ => Answer::Stop,
        };
        chain.map(answer).collect()
    }

    /// What the program says of slow workers.
    fn slow(&self) -> Vec<SlowAnswer> {
        let faults = self.program.job.iter().flat_map(|job| &job.faults);
        let slow = faults.into_iter().find(|f| f.kind == FaultKind::WorkerSlow);
        let Some(slow) = slow else { return SlowAnswer::usual() };
        let answer = |response: &Response| match response {
            Response::Warn { after } => SlowAnswer::Warn { after: *after },
            Response::Rebalance { after } => SlowAnswer::Rebalance { after: *after },
            Response::Exclude { after } => SlowAnswer::Exclude { after_ns: (after * 1e9) as u64 },
            Response::Replace { .. } => SlowAnswer::Replace,
            // The check knows no other answer to this fault.
            _ => SlowAnswer::Stop,
        };
        slow.chain.iter().map(answer).collect()
    }

    /// Params that were given, with their values, for the records.
    fn params(&self) -> Vec<(String, String)> {
        let shown = |p: &hir::Param| (p.name.clone(), monarch_check::show(&p.value));
        self.program.params.iter().map(shown).collect()
    }
}
