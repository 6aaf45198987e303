use crate::children::{Children, Launcher};
use crate::config::RunConfig;
use crate::control::ControlInbox;
use crate::event::{CheckpointEvent, Observer, RunEvent};
use crate::eventloop::{EventLoop, Lifeline, Parts, Pulses};
use crate::journal::{Head, Journal};
use crate::link::{Input, Links};
use crate::measure::Probe;
use crate::recorder::{Notes, Recorder};
use crate::saver::Saver;
use crate::summary::{Logs, RunError, Summary, Why};
use crate::words::{self, Named};
use monarch_net::{ControlServer, Identity, Options, Role};
use monarch_sched::{Cause, Config, Ended, Outcome, Scheduler, Tried};
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time for workers to leave by themselves when the run is over.
const LEAVE: Duration = Duration::from_secs(3);
/// How long a port may still be in use by a controller that was killed.
const REBIND: Duration = Duration::from_secs(5);
/// Time for a checkpoint that is almost whole, and for the last records.
const SETTLE: Duration = Duration::from_secs(20);

/// Carries out a run on the caller's thread and returns when it is over, its workers are gone and
/// its files are closed.
///
/// # Errors
/// [`RunError`] with the first cause, also for an interrupted run (code 130).
pub fn run(
    config: &RunConfig,
    launcher: &mut dyn Launcher,
    observer: &mut dyn Observer,
    inbox: ControlInbox,
) -> Result<Summary, RunError> {
    carry_out(config, launcher, observer, inbox, None).map(|(summary, _)| summary)
}

pub(crate) fn carry_out(
    config: &RunConfig,
    launcher: &mut dyn Launcher,
    observer: &mut dyn Observer,
    inbox: ControlInbox,
    probe: Option<Probe>,
) -> Result<(Summary, Option<Probe>), RunError> {
    let started = Instant::now();
    let mut scheduling = scheduling(config);
    let wrong = |e: monarch_sched::ConfigError| RunError::new(2, e.to_string());
    let evaluated = before(config, &mut scheduling);
    Scheduler::new(scheduling.clone(), 0).map_err(wrong)?;
    let ControlInbox { sender, receiver } = inbox;
    let place = Place::prepare(&config.run_dir)?;
    let run_dir = place.path.clone();
    let links = Links::new(listen(config, &sender).inspect_err(|_| place.leave())?);
    let address = links.server.as_ref().map(|s| s.local_addr());
    let saver = start_saver(config, &scheduling, &run_dir, &sender)?;
    let (notes, complaint) = notes(config, &run_dir, address, probe.is_some());
    let recorder = match probe {
        None => Recorder::new(config, &run_dir, notes.clone()),
        Some(_) => Recorder::silent(),
    };
    let mut children = Children::new(config, launcher, sender.clone(), address.map(from_here));
    let living = config.restore.as_ref().map_or(&[][..], |j| &j.children);
    let adopted = match children.start_all(living) {
        Ok(adopted) => adopted,
        Err((slot, error)) => {
            drop(receiver);
            turn_away(links, children);
            forget(&notes);
            place.leave();
            return Err(RunError::new(1, format!("cannot start worker {slot}: {error}")));
        }
    };
    let (scheduler, whole) = restored(config, scheduling, &run_dir, &adopted).map_err(wrong)?;
    let lifeline = config.restore.as_ref().and_then(|_| lifeline());
    let parts = Parts {
        pulses: Pulses::start(sender),
        config,
        observer,
        recorder,
        inbox: receiver,
        scheduler,
        links,
        children,
        saver,
        started,
        run_dir,
        address,
        probe,
        evaluated,
        notes: notes.clone(),
        lifeline,
    };
    let mut events = EventLoop::new(parts);
    events.note_workers();
    if let Some(address) = address {
        events.emit(RunEvent::Listening { address });
    }
    complaint.into_iter().for_each(|text| events.emit(RunEvent::Warning { text }));
    events.found_whole(whole);
    events.run();
    let begun = events.recorder.begun();
    let result = finish(events);
    if !result.as_ref().is_err_and(|error| error.only_checkpoint) {
        forget(&notes);
    }
    if !begun {
        place.leave();
    }
    result
}

/// What the checkpoint that the run goes on from says of the steps before it.
fn before(config: &RunConfig, scheduling: &mut Config) -> BTreeMap<u64, BTreeMap<String, f64>> {
    let Some(resume) = &config.resume else { return BTreeMap::new() };
    let manifest = monarch_checkpoint::glance(&resume.directory).ok();
    if let Some(a) = manifest.as_ref().and_then(|m| m.answered) {
        scheduling.tried = Tried { answer: a.answer, times: a.times, until: a.until };
    }
    scheduling.points = monarch_checkpoint::points(&config.run_dir, resume.step);
    let points = std::mem::take(&mut scheduling.points);
    scheduling.points = points.into_iter().filter(|(s, _)| scheduling.is_point(*s)).collect();
    let evaluated = manifest.and_then(|m| m.evaluated).unwrap_or(resume.step);
    BTreeMap::from([(evaluated, resume.metrics.clone())])
}

fn start_saver(
    config: &RunConfig,
    scheduling: &Config,
    run_dir: &Path,
    sender: &Sender<Input>,
) -> Result<Saver, RunError> {
    Saver::start(&config.plan, scheduling, run_dir.to_path_buf(), sender.clone())
        .map_err(|e| RunError::new(1, format!("cannot start a thread: {e}")))
}

/// Those that have started leave when nobody is at the other end.
fn turn_away(mut links: Links, mut children: Children) {
    links.dismiss("the run cannot begin");
    children.shutdown(LEAVE, &mut || {});
    links.shutdown("the run cannot begin");
}

fn scheduling(config: &RunConfig) -> Config {
    let mut scheduling = config.scheduling();
    if let (Some(_), Some(resume)) = (&scheduling.saves.best, &config.resume)
        && let Some(best) = crate::saver::best_metric(&config.plan)
    {
        let found = monarch_checkpoint::best_so_far(&config.run_dir, &best, resume.step);
        scheduling.saves.best_so_far = found;
    }
    scheduling
}

/// The journal of this run, or why there is none.
fn notes(
    config: &RunConfig,
    run_dir: &Path,
    address: Option<SocketAddr>,
    probe: bool,
) -> (Option<Notes>, Option<String>) {
    if !config.journal || probe {
        return (None, None);
    }
    let head = Head {
        run_id: config.run_id.clone(),
        job_hash: config.job_hash,
        incarnation: config.incarnation(),
        address,
        key: config.network.as_ref().map(|n| n.key.clone()),
        resume: config.resume.as_ref().map(|r| (r.directory.clone(), r.step)),
    };
    let kept = config.restore.as_ref().map_or(0, |j| j.facts.recorded);
    match Journal::create(run_dir, &head, config.restore.as_ref()) {
        Ok(journal) => {
            let (journal, kept) = (Arc::new(Mutex::new(journal)), Arc::new(AtomicU64::new(kept)));
            (Some(Notes { journal, kept }), None)
        }
        Err(error) => {
            let why = "a killed controller could not go on from where it was";
            (None, Some(format!("cannot write the journal: {error}; {why}")))
        }
    }
}

/// The run is over, and needs no journal any more. An attempt from a checkpoint, in place of one
/// with the workers, writes its own.
fn forget(notes: &Option<Notes>) {
    if let Some(notes) = notes {
        notes.journal.lock().unwrap_or_else(PoisonError::into_inner).remove();
    }
}

/// A scheduler for a new run, or for one whose controller was killed; then also the checkpoint
/// that has become whole without it.
fn restored(
    config: &RunConfig,
    scheduling: Config,
    run_dir: &Path,
    adopted: &[u32],
) -> Result<(Scheduler, Option<CheckpointEvent>), monarch_sched::ConfigError> {
    let Some(journaled) = &config.restore else {
        return Scheduler::new(scheduling, 0).map(|scheduler| (scheduler, None));
    };
    let mut facts = journaled.facts.clone();
    let points = monarch_checkpoint::points(run_dir, facts.recorded).into_iter();
    let points = points.filter(|(step, _)| scheduling.is_point(*step)).collect();
    let scheduling = Config { points, ..scheduling };
    let whole = facts.saving.and_then(|step| whole_at(config, run_dir, step));
    if let Some(whole) = &whole {
        (facts.saved, facts.saving) = (Some(whole.step), None);
        facts.best_before = facts.best_before.filter(|(edge, _)| *edge > whole.step);
    }
    Scheduler::restore(scheduling, facts, adopted, journaled.guests, 0).map(|s| (s, whole))
}

fn whole_at(config: &RunConfig, run_dir: &Path, step: u64) -> Option<CheckpointEvent> {
    let all = monarch_checkpoint::list(run_dir).ok()?;
    let (_, path) = all.into_iter().find(|(at, _)| *at == step)?;
    let checkpoint = monarch_checkpoint::open(&path).ok()?;
    let same = checkpoint.manifest.program == monarch_graph::hex(&config.job_hash);
    let fingerprint = checkpoint.manifest.fingerprint.to_string();
    same.then_some(CheckpointEvent { path, step, fingerprint, seconds: 0.0 })
}

/// A pipe that ends with this process, and where workers of the same machine find it.
fn lifeline() -> Option<Lifeline> {
    let ends = std::io::pipe().ok()?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), ends.0.as_raw_fd());
    Some(Lifeline { path, _ends: ends })
}

/// The address under which workers of this machine reach what listens on all of its addresses.
fn from_here(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

fn listen(config: &RunConfig, inbox: &Sender<Input>) -> Result<Option<ControlServer>, RunError> {
    let Some(network) = &config.network else { return Ok(None) };
    let identity = Identity::new(&network.key, Role::Controller);
    let inbox = inbox.clone();
    let options = Options { idle_timeout: network.patience, ..Options::default() };
    let deadline = Instant::now() + config.restore.as_ref().map_or(Duration::ZERO, |_| REBIND);
    loop {
        let inbox = inbox.clone();
        let take = move |event| {
            // Nobody listens any more once the run is over.
            let _ = inbox.send(Input::Net(event));
        };
        match ControlServer::start_with(&network.listen, &identity, &options, take) {
            Ok(server) => return Ok(Some(server)),
            // The kernel may not have freed the port of the one that was killed.
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
            Err(error) => return Err(RunError::new(4, error.to_string())),
        }
    }
}

/// The run's directory.
struct Place {
    /// Absolute.
    path: PathBuf,
    /// Directories that were made for it, the deepest first.
    made: Vec<PathBuf>,
    /// Held as long as the run: two that write into one directory would spoil each other's records.
    _lock: Option<File>,
}

/// Whether another process has the lock of a run's directory; if not, this one has it from now on.
fn is_locked(directory: &File) -> bool {
    matches!(directory.try_lock(), Err(TryLockError::WouldBlock))
}

/// Whether a process is at work in a run's directory.
pub fn is_at_work(run_dir: &Path) -> bool {
    File::open(run_dir).is_ok_and(|directory| is_locked(&directory))
}

impl Place {
    fn prepare(run_dir: &Path) -> Result<Place, RunError> {
        let shown = run_dir.display();
        let failed =
            |e| RunError::new(1, format!("cannot make the run's directory `{shown}`: {e}"));
        let missing = run_dir.ancestors().filter(|p| !p.as_os_str().is_empty() && !p.exists());
        let mut made: Vec<PathBuf> = missing.map(Path::to_path_buf).collect();
        std::fs::create_dir_all(run_dir).map_err(failed)?;
        let path = run_dir.canonicalize().map_err(failed)?;
        for dir in &mut made {
            // The current directory may change before they are removed again.
            *dir = dir.canonicalize().map_err(failed)?;
        }
        let lock = File::open(&path).ok();
        if lock.as_ref().is_some_and(is_locked) {
            let why = format!("another process is at work in the run's directory `{shown}`");
            return Err(RunError::new(1, why));
        }
        // What a killed run left half done; it harms nobody when it stays.
        let _ = monarch_checkpoint::remove_stale(&path);
        Ok(Place { path, made, _lock: lock })
    }

    /// A run that never began leaves nothing behind.
    fn leave(&self) {
        for dir in &self.made {
            // Somebody else has put something there: it stays.
            let _ = std::fs::remove_dir(dir);
        }
    }
}

/// Everybody leaves, files are closed, and the run is put into words.
fn finish(mut events: EventLoop) -> Result<(Summary, Option<Probe>), RunError> {
    let Some(outcome) = events.outcome.take() else {
        return Err(RunError::new(1, "the run has ended without an outcome"));
    };
    events.links.dismiss("the run is over");
    let mut late = Vec::new();
    let (inbox, children) = (&events.inbox, &mut events.children);
    // Workers in this process that have only just come in are turned away with their message.
    children.shutdown(LEAVE, &mut || {
        late.extend(inbox.try_iter().filter_map(|input| match input {
            Input::Saved(saved) => Some(saved),
            _ => None,
        }));
    });
    // Only now: a worker of ours that does not answer has been ended, and is not waited for.
    events.links.shutdown("the run is over");
    late.into_iter().for_each(|saved| events.late_save(saved));
    settle_save(&mut events);
    if let Ended::Failed(cause @ Cause::NoWayBack { .. }) = &outcome.ended {
        let named = |_| Named { name: String::new(), exit: None, last_words: Vec::new() };
        let (code, message) =
            words::failure(events.config, cause, outcome.steps, events.address, named, named);
        return Err(RunError { only_checkpoint: true, ..RunError::new(code, message) });
    }
    let (code, why, message) = verdict(&mut events, &outcome);
    let mut summary = summarise(&mut events, &outcome, why);
    events.recorder.finish(&summary, SETTLE);
    for text in events.recorder.complaints() {
        events.observer.event(&RunEvent::Warning { text });
    }
    summary.logs = events.recorder.logs();
    summary.records_dropped = events.recorder.dropped();
    if summary.records_dropped > 0 {
        let text = format!(
            "{} records are missing in {}: the disk was too slow or took no more",
            summary.records_dropped,
            events.run_dir.display()
        );
        events.observer.event(&RunEvent::Warning { text });
    }
    events.observer.event(&RunEvent::Finished(Box::new(summary.clone())));
    match message {
        None => Ok((summary, events.probe.take())),
        Some(message) => Err(RunError {
            code,
            message,
            summary: Some(Box::new(summary)),
            only_checkpoint: false,
        }),
    }
}

/// A checkpoint of which all parts were written is worth a moment.
fn settle_save(events: &mut EventLoop) {
    let deadline = Instant::now() + SETTLE;
    while events.committing.is_some() {
        let left = deadline.saturating_duration_since(Instant::now());
        match events.inbox.recv_timeout(left) {
            Ok(Input::Saved(saved)) => events.late_save(saved),
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

/// Exit code, reason, and what went wrong, if anything did.
fn verdict(events: &mut EventLoop, outcome: &Outcome) -> (u8, Why, Option<String>) {
    match &outcome.ended {
        Ended::Completed => (0, Why::Completed, None),
        Ended::Rule { rule, value } => {
            (0, Why::Rule(words::rule(events.config, *rule, *value)), None)
        }
        Ended::Stopped => (0, Why::Stopped, None),
        Ended::Interrupted { .. } => {
            let saved = events.checkpoint.as_ref().is_some_and(|(_, s)| *s == outcome.steps);
            let mut message = format!("interrupted after step {}", outcome.steps);
            append_checkpoint(&mut message, events, outcome.steps);
            (130, Why::Interrupted { saved }, Some(message))
        }
        Ended::Failed(Cause::NotFinite { step }) => {
            let what = events.not_finite.take();
            let mut message = what.unwrap_or_else(|| format!("step {step} is not finite"));
            append_checkpoint(&mut message, events, outcome.steps);
            let at_hand = events.checkpoint.as_ref().map(|(_, step)| *step);
            let finite = monarch_checkpoint::last_finite(&events.run_dir);
            if let Some((step, path)) = finite.filter(|f| Some(f.0) != at_hand) {
                let shown = path.display();
                message
                    .push_str(&format!("\n  the last finite checkpoint is {shown} (step {step})"));
            }
            (1, Why::Failed, Some(message))
        }
        Ended::Failed(cause) => {
            let rank = |r: u32| named_rank(events, r);
            let slot = |s: u32| named_slot(events, s);
            let (code, mut message) =
                words::failure(events.config, cause, outcome.steps, events.address, rank, slot);
            words::append_followed(&mut message, events.config, &outcome.followed, rank);
            append_checkpoint(&mut message, events, outcome.steps);
            report_lost(events, cause);
            (code, Why::Failed, Some(message))
        }
    }
}

fn append_checkpoint(message: &mut String, events: &EventLoop, steps: u64) {
    let text = match &events.checkpoint {
        Some((path, step)) if *step == steps => format!("all is saved in {}", path.display()),
        Some((path, step)) => {
            format!("the last whole checkpoint is {} (step {step})", path.display())
        }
        None if steps == 0 => return,
        None => "there is no checkpoint".to_string(),
    };
    message.push_str("\n  ");
    message.push_str(&text);
}

fn report_lost(events: &mut EventLoop, cause: &Cause) {
    let (rank, worker, why) = match cause {
        Cause::Exited { rank, worker, exit } => (rank, worker, exit.text.clone()),
        Cause::Lost { rank, worker, why } => (rank, worker, why.clone()),
        Cause::Hung { rank, worker, hang } => (rank, worker, hang.to_string()),
        _ => return,
    };
    if events.workers.get(worker).is_some_and(|w| w.is_told_of) {
        return;
    }
    let host = events
        .ranks
        .get(*rank as usize)
        .and_then(|w| events.workers.get(w)?.hello.as_ref())
        .map(|h| h.host.clone());
    let (host, step) = (host.unwrap_or_default(), events.scheduler.done());
    events.emit(RunEvent::WorkerLost { rank: *rank, host, why, step });
}

fn named_rank(events: &EventLoop, rank: u32) -> Named {
    let info = events.ranks.get(rank as usize).and_then(|w| events.workers.get(w));
    let Some(hello) = info.and_then(|i| i.hello.as_ref()) else {
        return Named { name: format!("worker {rank}"), exit: None, last_words: Vec::new() };
    };
    let name = format!("worker {rank} on {} (process {})", hello.host, hello.pid);
    let story = hello.slot.map(|slot| events.children.story_of(slot, hello.pid));
    let (exit, last_words) = story.unwrap_or_default();
    Named { name, exit, last_words }
}

fn named_slot(events: &EventLoop, slot: u32) -> Named {
    let (exit, last_words) = events.children.story(slot);
    Named { name: format!("worker process {slot}"), exit, last_words }
}

fn summarise(events: &mut EventLoop, outcome: &Outcome, why: Why) -> Summary {
    let config = events.config;
    let at_end = events.checkpoint.as_ref().is_some_and(|(_, s)| *s == outcome.steps);
    let saved = events.saved_fingerprint.clone().filter(|_| at_end);
    Summary {
        run_id: config.run_id.clone(),
        run_dir: events.run_dir.clone(),
        why,
        first_step: config.first_step(),
        steps: outcome.steps,
        loss: events.merge.last_loss(),
        metrics: events.metrics.clone(),
        best: events.best.clone(),
        fingerprint: outcome.fingerprint.clone().or(saved),
        checkpoint: events.checkpoint.clone(),
        logs: Logs::default(),
        wall: events.started.elapsed(),
        stepping: Duration::from_nanos(events.merge.stepping_ns),
        samples: events.merge.samples,
        tokens: config.tokens_per_sample().map(|t| t * events.merge.samples),
        wait_share: events.merge.wait_share(),
        records_dropped: 0,
    }
}
