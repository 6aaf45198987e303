//! Single moments of a recovery, told event by event.

use crate::elastic::config;
use monarch_graph::{Best, Every};
use monarch_sched::{
    Cause, Command, Config, Due, DueKind, Ended, EvalNumbers, Event, Exit, Failure, Forming, Hang,
    Joined, Scheduler, StepNumbers, Times, Warning, WorkerId,
};

/// A scheduler, the members that it has placed, and what it has said since the last look.
struct Script {
    scheduler: Scheduler,
    members: Vec<WorkerId>,
    generation: u64,
    now_ns: u64,
    said: Vec<Command>,
}

impl Script {
    /// All workers have come.
    fn new(config: Config) -> Script {
        let world = config.world;
        let scheduler = Scheduler::new(config, 0).unwrap();
        let (members, said) = (Vec::new(), Vec::new());
        let mut script = Script { scheduler, members, generation: 0, now_ns: 0, said };
        (0..world).for_each(|slot| script.join(u64::from(slot), Some(slot)));
        script
    }

    /// They are ready too.
    fn begun(config: Config) -> Script {
        let mut script = Script::new(config);
        script.ready("start");
        script
    }

    fn tell(&mut self, event: Event) {
        self.now_ns += 1_000;
        for command in self.scheduler.step(self.now_ns, event) {
            if let Command::Start { placements, .. } | Command::Form(Forming { placements, .. }) =
                &command
            {
                self.members = placements.iter().map(|p| p.worker).collect();
            }
            if let Command::Halt { generation, .. } = &command {
                self.generation = *generation;
            }
            self.said.push(command);
        }
    }

    fn wait(&mut self, seconds: u64) {
        self.now_ns += seconds * 1_000_000_000;
        self.tell(Event::Tick);
    }

    fn join(&mut self, worker: u64, slot: Option<u32>) {
        self.tell(Event::Joined(Joined {
            worker: WorkerId(worker),
            host: "a".into(),
            shm_domain: "a".into(),
            cores: 1,
            peer_address: String::new(),
            slot,
            objection: None,
        }));
    }

    fn ready(&mut self, fingerprint: &str) {
        for worker in self.members.clone() {
            self.tell(Event::Ready {
                worker,
                generation: self.generation,
                fingerprint: fingerprint.into(),
            });
        }
    }

    /// The process of this slot is killed.
    fn killed(&mut self, slot: u32) {
        let exit = Exit { text: "signal 9".into(), by_signal: true, clean: false };
        self.tell(Event::Exited { slot, exit });
    }

    fn halted(&mut self, worker: u64, done: Option<u64>) {
        let (worker, peer_address) = (WorkerId(worker), String::new());
        self.tell(Event::Halted { worker, generation: self.generation, done, peer_address });
    }

    fn hangs(&mut self, worker: u64) {
        let hang = Hang { phase: "update".into(), step: Some(7), evidence: "no sign".into() };
        self.tell(Event::Hung { worker: WorkerId(worker), hang });
    }

    fn fails(&mut self, worker: u64) {
        self.fails_at(worker, "no such file", None);
    }

    fn fails_at(&mut self, worker: u64, message: &str, lost_peer: Option<u32>) {
        let (task, message) = ("open the data".into(), message.into());
        let failure = Failure { step: None, task, message, span: None, lost_peer };
        self.tell(Event::Failed { worker: WorkerId(worker), failure });
    }

    fn step(&mut self, step: u64) {
        for worker in self.members.clone() {
            self.tell(Event::Step { worker, numbers: numbers(step) });
        }
    }

    fn evaluated(&mut self, step: u64, value: f64) {
        for worker in self.members.clone() {
            let EvalNumbers { evaluation, values, samples, nanoseconds, .. } = EvalNumbers {
                step,
                evaluation: 0,
                values: vec![value],
                samples: 1,
                nanoseconds: 1,
            };
            self.tell(Event::Evaluated { worker, step, evaluation, values, samples, nanoseconds });
        }
    }

    /// All that was said since the last look.
    fn said(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.said)
    }

    /// The edge up to which steps were asked for since the last look.
    fn until(&self) -> u64 {
        let edge = |c: &Command| match c {
            Command::Window { until, .. } => Some(*until),
            _ => None,
        };
        self.said.iter().filter_map(edge).max().unwrap_or_default()
    }

    /// Edges at which something was asked for since the last look.
    fn due(&mut self, what: DueKind) -> Vec<u64> {
        let windows = self.said().into_iter().filter_map(|c| match c {
            Command::Window { due, .. } => Some(due),
            _ => None,
        });
        let due = windows.flatten().filter(|d: &Due| d.what == what);
        due.map(|d| d.step).collect()
    }
}

fn numbers(step: u64) -> StepNumbers {
    // So fast that many steps are asked for at once.
    let (epoch, samples, loss, grad_norm, lr, total_ns) = (0, 1, 1.0, 1.0, 1e-3, 1_000);
    StepNumbers {
        step,
        epoch,
        samples,
        loss,
        grad_norm,
        lr,
        total_ns,
        times: Times::default(),
        finite: true,
    }
}

fn formed(said: &[Command]) -> Option<&Forming> {
    said.iter().find_map(|c| match c {
        Command::Form(forming) => Some(forming),
        _ => None,
    })
}

fn is_over(said: &[Command]) -> bool {
    said.iter().any(|c| matches!(c, Command::Conclude(_)))
}

/// Those that had said it before the loss do not say it again.
#[test]
fn the_fingerprint_of_the_start_outlives_a_loss() {
    let mut script = Script::new(config(3, 10));
    for worker in [0, 1].map(WorkerId) {
        script.tell(Event::Ready { worker, generation: 0, fingerprint: "start".into() });
    }
    script.killed(2);
    script.halted(0, Some(0));
    script.halted(1, Some(0));
    script.ready("");
    let said = script.said();
    let started =
        |c: &Command| matches!(c, Command::Started { fingerprint } if fingerprint == "start");
    assert!(said.iter().any(started), "{said:?}");
}

#[test]
fn weights_that_have_seen_no_step_are_made_again() {
    let mut script = Script::begun(config(2, 10));
    script.killed(0);
    script.join(2, Some(0));
    script.killed(1);
    let said = script.said();
    let forming = formed(&said).unwrap();
    assert_eq!((forming.base, &forming.holders[..]), (0, &[false][..]));
    assert!(!is_over(&said));
    // One alone too.
    let mut script = Script::begun(config(1, 10));
    script.killed(0);
    script.join(1, Some(0));
    assert!(formed(&script.said()).is_some());
    // But not those that have seen one.
    let mut script = Script::begun(config(2, 10));
    script.step(0);
    script.killed(0);
    script.join(2, Some(0));
    script.killed(1);
    assert!(is_over(&script.said()));
}

/// No worker is started for which there is no shard.
#[test]
fn a_guest_may_take_the_place_of_a_worker() {
    let mut script = Script::begun(Config { shards: 2, ..config(2, 10) });
    script.killed(1);
    script.halted(0, Some(0));
    script.join(2, None);
    script.join(3, Some(1));
    let said = script.said();
    let refused = |c: &Command| matches!(c, Command::Refuse { worker: WorkerId(3), .. });
    assert!(said.iter().any(refused), "{said:?}");
    let warned = |c: &Command| matches!(c, Command::Warn(Warning::Refused { .. }));
    assert!(!said.iter().any(warned), "nobody but the controller waits for it: {said:?}");
    let exit = Exit { text: "exit code 1".into(), by_signal: false, clean: false };
    script.tell(Event::Exited { slot: 1, exit });
    let said = script.said();
    assert!(!said.iter().any(|c| matches!(c, Command::Replace { .. })), "{said:?}");
}

/// A newcomer without the data, or without the memory, is the only one to leave.
#[test]
fn a_newcomer_that_cannot_begin_is_left_behind() {
    for (slot, in_time) in [(Some(1), true), (None, true), (Some(1), false)] {
        let mut script = Script::begun(config(2, 10));
        script.step(0);
        script.killed(1);
        script.halted(0, Some(1));
        script.join(2, slot);
        script.ready("");
        script.said();
        script.halted(0, Some(1));
        assert_eq!(formed(&script.said()).unwrap().holders, [true, false]);
        if !in_time {
            // Its complaint comes when members change already.
            script.join(3, None);
            script.tell(Event::Lost { worker: WorkerId(2), why: "closed".into() });
        }
        script.fails(2);
        script.halted(0, Some(1));
        let said = script.said();
        assert!(!is_over(&said), "{said:?}");
        assert!(formed(&said).unwrap().holders.starts_with(&[true]), "{said:?}");
        let why = said.iter().find_map(|c| match c {
            Command::Warn(Warning::WorkerLost { worker: WorkerId(2), why, .. }) => Some(why),
            _ => None,
        });
        assert_eq!(why.map(String::as_str), Some("open the data: no such file"), "{said:?}");
        if slot.is_none() {
            continue;
        }
        // Another one would come to the same end.
        let exit = Exit { text: "exit code 1".into(), by_signal: false, clean: false };
        script.tell(Event::Exited { slot: 1, exit });
        let said = script.said();
        assert!(!said.iter().any(|c| matches!(c, Command::Replace { .. })), "{said:?}");
    }
}

/// One that hears of a halt a moment later sees its peer leave, and neither is to blame.
#[test]
fn whoever_leaves_the_reduction_as_told_is_not_complained_of() {
    let quarrels = |said: &[Command]| {
        said.iter().any(|c| matches!(c, Command::Warn(Warning::LinkBroken { .. })))
    };
    let left = "lost worker 1: it has left the reduction";
    let mut script = Script::begun(Config { shards: 3, ..config(2, 10_000) });
    script.step(0);
    script.join(2, None);
    // Members change when all that was asked for is done.
    let asked = script.until();
    (1..asked).for_each(|step| script.step(step));
    let said = script.said();
    assert!(said.iter().any(|c| matches!(c, Command::Halt { .. })), "{said:?}");
    script.fails_at(0, left, Some(1));
    script.halted(1, Some(asked));
    script.halted(0, Some(asked));
    let said = script.said();
    assert_eq!(formed(&said).map(|f| f.placements.len()), Some(3), "{said:?}");
    assert!(!quarrels(&said) && evicted(&said).is_empty(), "{said:?}");
    // Without a halt it is another matter.
    script.ready("");
    script.fails_at(0, left, Some(1));
    (0..3).for_each(|worker| script.halted(worker, Some(asked)));
    script.wait(1);
    let said = script.said();
    assert!(quarrels(&said), "{said:?}");
}

/// `replace(from = "spares") then shrink(dp, min = 2) then stop`
#[test]
fn the_run_waits_for_a_replacement_before_it_has_too_few() {
    let two = || {
        let mut config = config(2, 10);
        config.recovery.least = 2;
        let mut script = Script::begun(config);
        script.step(0);
        script
    };
    let mut script = two();
    script.tell(Event::Lost { worker: WorkerId(1), why: "closed".into() });
    script.halted(0, Some(1));
    script.killed(1);
    let said = script.said();
    assert!(formed(&said).is_none() && !is_over(&said), "{said:?}");
    script.join(2, Some(1));
    let said = script.said();
    assert_eq!(formed(&said).unwrap().holders, [true, false]);
    // Not for ever.
    let mut script = two();
    script.killed(1);
    script.halted(0, Some(1));
    script.wait(59);
    assert!(!is_over(&script.said()));
    script.wait(2);
    assert!(is_over(&script.said()));
    // Nor for a guest.
    let mut config = config(2, 10);
    (config.recovery.least, config.recovery.replace) = (2, false);
    let mut script = Script::begun(config);
    script.killed(1);
    script.wait(1);
    assert!(is_over(&script.said()));
}

/// Steps 0 to `until` on three workers, of which the last one is then lost.
fn lost_after(config: Config, until: u64) -> Script {
    let mut script = Script::begun(config);
    (0..until).for_each(|step| script.step(step));
    script
}

fn lose_the_last(script: &mut Script, done: u64) {
    script.killed(2);
    script.halted(0, Some(done));
    script.halted(1, Some(done));
    script.ready("");
}

#[test]
fn a_checkpoint_with_each_evaluation_is_saved_with_no_other_step() {
    let mut config = config(3, 40);
    config.eval_every = Some(Every::Steps(10));
    config.saves.after_eval = true;
    let mut script = lost_after(config, 7);
    assert_eq!(script.due(DueKind::Save), [10]);
    lose_the_last(&mut script, 7);
    assert_eq!(script.due(DueKind::Save), [10]);
}

/// While the best is written, training goes on. If that is in vain, the weights of a later step
/// are not the best ones, and the next that are must not be measured by those that are gone.
#[test]
fn the_best_is_what_is_on_the_disk() {
    let mut config = config(3, 40);
    config.eval_every = Some(Every::Steps(10));
    config.saves.best = Some(Best { metric: "eval.accuracy".into(), smallest: false });
    let mut script = lost_after(config.clone(), 10);
    script.evaluated(10, 0.9);
    assert_eq!(script.due(DueKind::Save), [10]);
    (10..13).for_each(|step| script.step(step));
    lose_the_last(&mut script, 13);
    assert_eq!(script.due(DueKind::Save), []);
    (13..20).for_each(|step| script.step(step));
    script.evaluated(20, 0.8);
    assert_eq!(script.due(DueKind::Save), [20]);
    // Where nobody has gone on, it is simply saved again.
    let mut script = lost_after(config, 10);
    script.evaluated(10, 0.9);
    assert_eq!(script.due(DueKind::Save), [10]);
    lose_the_last(&mut script, 10);
    assert_eq!(script.due(DueKind::Save), [10]);
}

/// What is saved instead of a checkpoint that was lost brings no evaluation of its own.
#[test]
fn a_checkpoint_in_place_of_another_is_not_evaluated() {
    let mut config = config(3, 40);
    config.save_every = Some(Every::Steps(10));
    config.eval_after_save = true;
    let mut script = lost_after(config, 10);
    script.evaluated(10, 0.9);
    (10..13).for_each(|step| script.step(step));
    script.said();
    lose_the_last(&mut script, 13);
    let said = script.said();
    let windows = said.iter().filter_map(|c| match c {
        Command::Window { due, .. } => Some(due.iter().map(|d| (d.step, d.what))),
        _ => None,
    });
    let due: Vec<_> = windows.flatten().collect();
    assert_eq!(due[0], (13, DueKind::Save), "{due:?}");
    assert!(due[1..].iter().all(|d| d.0 == 20), "{due:?}");
}

/// An evaluation that is due with a checkpoint stays where it is due when that cannot be saved.
#[test]
fn an_evaluation_outlives_its_checkpoint() {
    let mut config = config(3, 40);
    config.save_every = Some(Every::Steps(10));
    config.eval_after_save = true;
    let mut script = lost_after(config, 7);
    assert_eq!(script.due(DueKind::Evaluate(0)).first(), Some(&10));
    script.tell(Event::SaveRefused { step: 10, why: "no space left on device".into() });
    script.said();
    lose_the_last(&mut script, 7);
    assert_eq!(script.due(DueKind::Evaluate(0)).first(), Some(&10));
}

fn evicted(said: &[Command]) -> Vec<u64> {
    let evict = |c: &Command| match c {
        Command::Evict { worker, .. } => Some(worker.0),
        _ => None,
    };
    said.iter().filter_map(evict).collect()
}

fn lost(said: &[Command]) -> Vec<String> {
    let why = |c: &Command| match c {
        Command::Warn(Warning::WorkerLost { why, .. }) => Some(why.clone()),
        _ => None,
    };
    said.iter().filter_map(why).collect()
}

/// It is killed, and that it died of this explains nothing.
#[test]
fn a_worker_that_hangs_is_ended_and_replaced() {
    let mut script = Script::begun(config(3, 10));
    script.step(0);
    script.said();
    script.hangs(1);
    assert_eq!(evicted(&script.said()), [1]);
    script.killed(1);
    script.halted(0, Some(1));
    script.halted(2, Some(1));
    let said = script.said();
    let forming = formed(&said).unwrap();
    assert!(forming.placements.iter().all(|p| p.worker != WorkerId(1)), "{forming:?}");
    assert!(said.iter().any(|c| matches!(c, Command::Replace { slot: 1 })), "{said:?}");
    assert_eq!(lost(&said), ["it hangs, update in step 7: no sign"]);
}

/// What it says when it wakes up is of no time that anybody else lives in.
#[test]
fn who_wakes_up_is_not_heard() {
    let mut script = Script::begun(config(2, 10));
    script.step(0);
    script.hangs(1);
    let first = script.generation;
    // While the others stop, and after they have gone on.
    script.fails(1);
    script.halted(1, Some(9));
    script.halted(0, Some(1));
    let said = script.said();
    let forming = formed(&said).unwrap();
    assert_eq!((forming.base, forming.placements.len()), (1, 1));
    assert!(!is_over(&said), "{said:?}");
    script.fails(1);
    let (worker, fingerprint) = (WorkerId(1), "other".to_string());
    script.tell(Event::Ready { worker, generation: first, fingerprint });
    script.tell(Event::Step { worker, numbers: numbers(5) });
    script.ready("");
    script.step(1);
    let said = script.said();
    let steps = said.iter().filter(|c| matches!(c, Command::Step(n) if n.step == 1)).count();
    assert!(steps == 1 && !is_over(&said), "{said:?}");
}

/// A thread of this process cannot be killed: the others do not wait for its end.
#[test]
fn one_that_never_ends_is_told_of_all_the_same() {
    let mut script = Script::begun(config(2, 10));
    script.hangs(0);
    script.halted(1, Some(0));
    assert!(formed(&script.said()).is_some());
    script.wait(1);
    assert_eq!(lost(&script.said()).len(), 1);
}

#[test]
fn when_the_last_one_hangs_that_is_the_cause() {
    let mut script = Script::begun(config(1, 10));
    script.step(0);
    script.hangs(0);
    let said = script.said();
    assert_eq!(evicted(&said), [0]);
    let ended = said.iter().find_map(|c| match c {
        Command::Conclude(outcome) => Some(outcome.ended.clone()),
        _ => None,
    });
    assert!(matches!(ended, Some(Ended::Failed(Cause::Hung { rank: 0, .. }))), "{ended:?}");
}
