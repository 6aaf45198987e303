//! Checkpoints, faults and the control link.

mod common;

use common::plan::{plan, write_data};
use common::*;
use monarch_checkpoint::{About, DataPosition, ShardInfo, Staging, axes, layout};
use monarch_graph::Plan;
use monarch_wire::*;
use monarch_worker::WorkerError;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn data(dir: &Path, poison: Option<usize>) -> PathBuf {
    let path = dir.join("data.safetensors");
    write_data(&path, poison);
    path
}

/// What the controller does once all ranks have saved.
fn commit(plan: &Plan, staging: Staging, step: u64, saves: &[&SaveReport]) -> PathBuf {
    let shards = saves.iter().filter_map(|s| s.file.as_ref()).map(|f| ShardInfo {
        file: f.name.clone(),
        bytes: f.bytes,
        sha256: f.sha256,
        finite: f.finite,
    });
    let about = About {
        step,
        data: DataPosition { epoch: 0, sample: 0 },
        seed: plan.seed,
        schedule_step: step,
        job: plan.name.clone(),
        program: "test".into(),
        world: saves.len() as u32,
        shards: plan.shards,
        fingerprint: saves[0].fingerprint.parse().unwrap(),
        loss: None,
        metrics: BTreeMap::new(),
        evaluated: None,
        answered: None,
        optimizer: "adamw".into(),
        slots: plan.optimizer.kind.slots().iter().map(|s| s.to_string()).collect(),
    };
    let axes = axes(&layout(plan, about.world));
    staging.commit(&about, &shards.collect::<Vec<_>>(), &axes).unwrap()
}

#[test]
fn another_cluster_goes_on_to_the_same_bits() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(&data(dir.path(), None), true);
    let whole = Setup::new(plan.clone(), 1, 1, Way::Shared).run(&[window(16, &[])]);
    // Step 7 is in the middle of an epoch of three steps.
    for (world, next) in [(3, 1), (1, 4), (2, 8)] {
        let staging = Staging::create(&dir.path().join(format!("runs-{world}")), 7).unwrap();
        let directory = staging.path().to_str().unwrap().to_string();
        let save = DueKind::Save { directory };
        let first = Setup::new(plan.clone(), world, 2, Way::Shared).run(&[window(9, &[(7, save)])]);
        let saves: Vec<&SaveReport> = first.iter().map(|t| &t.saves[0]).collect();
        assert!(saves.iter().all(|s| s.error.is_none() && s.step == 7));
        assert!(saves.iter().all(|s| s.fingerprint == saves[0].fingerprint));
        let checkpoint = commit(&plan, staging, 7, &saves);
        let mut second = Setup::new(plan.clone(), next, 1, Way::Quic);
        second.resume = Some(checkpoint.to_str().unwrap().into());
        second.first_step = 7;
        for transcript in second.run(&[window(16, &[])]) {
            assert_eq!(transcript.ready, saves[0].fingerprint);
            assert_eq!(transcript.numbers().0, whole[0].numbers().0[7..], "{world} then {next}");
            assert_eq!(transcript.numbers().2, whole[0].numbers().2, "{world} then {next}");
        }
        second.first_step = 8;
        let (mut ranks, _open) = second.start();
        let Some(FromWorker::Failed(failure)) = ranks[0].hear() else { panic!("no failure") };
        assert!(failure.message.contains("is of step 7"), "{}", failure.message);
        ranks.iter_mut().for_each(|r| assert!(r.join().is_err()));
    }
}

#[test]
fn a_failed_save_is_reported_and_the_run_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(&data(dir.path(), None), true);
    let want = Setup::new(plan.clone(), 2, 1, Way::Shared).run(&[window(6, &[])]);
    let directory = dir.path().join("nowhere/at/all").to_str().unwrap().to_string();
    let save = |step| (step, DueKind::Save { directory: directory.clone() });
    let got = Setup::new(plan, 2, 1, Way::Shared).run(&[window(6, &[save(2), save(4), save(6)])]);
    for transcript in &got {
        assert_eq!(transcript.saves.iter().map(|s| s.step).collect::<Vec<_>>(), [2, 4, 6]);
        for report in &transcript.saves {
            let error = report.error.as_deref().unwrap();
            assert!(error.contains("nowhere"), "{error}");
        }
        assert_eq!(transcript.numbers(), want[0].numbers());
    }
}

#[test]
fn nan_is_named_with_its_step_and_shard() {
    let dir = tempfile::tempdir().unwrap();
    // Sample 20 of an ordered epoch: batch 1, shard 3 (its samples 6 and 7).
    let mut plan = plan(&data(dir.path(), Some(20)), true);
    plan.data.order = monarch_graph::Order::File;
    for world in [1, 3] {
        let (mut ranks, _open) = Setup::new(plan.clone(), world, 2, Way::Shared).start();
        for rank in &ranks {
            assert!(matches!(rank.hear(), Some(FromWorker::Ready(_))));
        }
        ranks.iter().for_each(|r| r.say(ToWorker::Window(window(16, &[]))));
        let mut to_blame = 0;
        for rank in &ranks {
            assert!(matches!(rank.hear(), Some(FromWorker::Step(StepReport { step: 0, .. }))));
            let Some(FromWorker::Step(step)) = rank.hear() else { panic!("no step") };
            let trouble = step.trouble.expect("numbers that are not finite");
            assert_eq!(trouble.what, "`loss` is not finite in shard 3");
            if let Some(origin) = trouble.origin {
                assert_eq!((step.step, origin.shard), (1, 3));
                assert_eq!((origin.first, origin.end), (20, 22));
                assert!(origin.what.contains("NaN in column `y` of sample 20"), "{}", origin.what);
                to_blame += 1;
            }
        }
        assert_eq!(to_blame, 1);
        // Nobody goes on unasked; told to, they leave the update out.
        ranks.iter().for_each(|r| r.say(ToWorker::Skip { step: 1 }));
        for rank in &ranks {
            let Some(FromWorker::Step(step)) = rank.hear() else { panic!("no step") };
            assert_eq!((step.step, step.trouble), (2, None));
        }
        ranks.iter().for_each(|r| r.say(ToWorker::Abort { why: "enough".into() }));
        for rank in &mut ranks {
            assert!(matches!(rank.join(), Err(WorkerError::Aborted { .. })));
        }
    }
}

#[test]
fn a_misshapen_initial_weight_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut plan = plan(&data(dir.path(), None), true);
    // Column `x` of the data is [50, 4]; the weight is [4, 8].
    let path = dir.path().join("data.safetensors").to_str().unwrap().to_string();
    plan.weights[0].init = monarch_graph::Init::File { path, name: "x".into(), transpose: false };
    let (mut ranks, _open) = Setup::new(plan, 1, 1, Way::Shared).start();
    let Some(FromWorker::Failed(failure)) = ranks[0].hear() else { panic!("no failure") };
    assert_eq!(failure.task, "initialise the weights");
    assert_eq!(failure.message, "`x` is [50, 4]; the plan says [4, 8]");
    assert!(ranks[0].join().is_err());
}

/// Two ranks of which only the first has got a window: it waits in a collective.
fn stuck(way: Way, dir: &Path, overlap: bool) -> (Vec<Rank>, Box<dyn Send>) {
    let plan = plan(&data(dir, None), overlap);
    let (ranks, open) = Setup::new(plan, 2, 2, way).start();
    for rank in &ranks {
        assert!(matches!(rank.hear(), Some(FromWorker::Ready(_))));
    }
    ranks[0].say(ToWorker::Window(window(16, &[])));
    std::thread::sleep(Duration::from_millis(50));
    (ranks, open)
}

fn cases() -> [(Way, bool); 4] {
    [(Way::Shared, true), (Way::Shared, false), (Way::Quic, true), (Way::Quic, false)]
}

#[test]
fn abort_ends_a_collective_at_once() {
    let dir = tempfile::tempdir().unwrap();
    for (way, overlap) in cases() {
        let (mut ranks, _open) = stuck(way, dir.path(), overlap);
        // A ping is answered meanwhile.
        let start = Instant::now();
        ranks[0].say(ToWorker::Ping(5));
        assert!(matches!(ranks[0].hear(), Some(FromWorker::Pong(5))));
        assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
        let start = Instant::now();
        ranks.iter().for_each(|r| r.say(ToWorker::Abort { why: "enough".into() }));
        for rank in &mut ranks {
            let error = rank.join().unwrap_err();
            assert!(matches!(error, WorkerError::Aborted { .. }), "{error}");
            // It may have seen another one leave before it was told itself.
            match rank.hear() {
                None => {}
                Some(FromWorker::Failed(failure)) if failure.lost_peer.is_some() => {}
                other => panic!("an aborted worker says {other:?}"),
            }
        }
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    }
}

#[test]
fn a_closed_link_ends_a_collective_at_once() {
    let dir = tempfile::tempdir().unwrap();
    for (way, overlap) in cases() {
        let (mut ranks, _open) = stuck(way, dir.path(), overlap);
        let start = Instant::now();
        ranks.iter_mut().for_each(|r| r.to = None);
        for rank in &mut ranks {
            let error = rank.join().unwrap_err();
            assert!(matches!(error, WorkerError::LinkClosed { .. }), "{error}");
        }
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    }
}

#[test]
fn a_lost_peer_is_named() {
    let dir = tempfile::tempdir().unwrap();
    for (way, overlap) in cases() {
        let (mut ranks, _open) = stuck(way, dir.path(), overlap);
        ranks[1].to = None;
        assert!(ranks[1].join().is_err());
        let Some(FromWorker::Failed(failure)) = ranks[0].hear() else { panic!("no failure") };
        assert_eq!(failure.lost_peer, Some(1), "{way:?}: {}", failure.message);
        assert_eq!(failure.step, Some(0));
        assert!(failure.task.starts_with("reduce"), "{}", failure.task);
        // Whether the others go on is for the controller to say.
        ranks[0].say(ToWorker::Abort { why: "enough".into() });
        let error = ranks[0].join().unwrap_err();
        assert!(matches!(error, WorkerError::Aborted { .. }), "{error}");
    }
}

#[test]
fn traced_steps_show_reductions_under_backward() {
    let dir = tempfile::tempdir().unwrap();
    let mut setup = Setup::new(plan(&data(dir.path(), None), true), 2, 2, Way::Shared);
    setup.trace = vec![3];
    for transcript in setup.run(&[window(6, &[(3, DueKind::Evaluate(0))])]) {
        for report in &transcript.steps {
            assert_eq!(report.spans.is_empty(), report.step != 3);
            let phases = &report.phases;
            assert!(phases.total_ns >= phases.compute_ns + phases.wait_ns + phases.update_ns);
            assert!(phases.sent_bytes > 0);
        }
        let spans = &transcript.steps[3].spans;
        let of = |stream: &str| {
            let names = spans.iter().filter(|s| s.stream == stream).map(|s| s.name.as_str());
            names.collect::<Vec<_>>()
        };
        let reductions =
            ["reduce bucket 0: out", "reduce bucket 1: hidden", "reduce loss and counts"];
        assert_eq!(of("communication"), reductions);
        assert_eq!(of("host"), ["evaluate", "update"]);
        // Four shards of this rank.
        let folds = spans.iter().filter(|s| s.name == "fold bucket 1").count();
        assert_eq!(folds, 4);
        assert!(spans.iter().all(|s| s.start_ns <= s.end_ns));
    }
}

#[test]
fn a_worker_without_a_shard_takes_part() {
    let dir = tempfile::tempdir().unwrap();
    for overlap in [true, false] {
        let plan = plan(&data(dir.path(), None), overlap);
        let windows = [window(4, &[(4, DueKind::Evaluate(0))])];
        let want = Setup::new(plan.clone(), 1, 1, Way::Shared).run(&windows)[0].numbers();
        for way in [Way::Shared, Way::Quic] {
            for told in Setup::new(plan.clone(), 9, 1, way).run(&windows) {
                assert_eq!(told.numbers(), want, "{way:?}, overlap {overlap}");
            }
        }
    }
}

#[test]
fn an_idle_worker_is_told_off_politely() {
    let mut rank = Rank::start(monarch_worker::Config::default());
    assert!(!rank.hello.shm_domain.is_empty() && rank.hello.cores > 0);
    rank.say(ToWorker::Ping(1));
    assert!(matches!(rank.hear(), Some(FromWorker::Pong(1))));
    rank.say(ToWorker::Refused { why: "another version".into() });
    let error = rank.join().unwrap_err();
    assert!(error.to_string().contains("another version"), "{error}");
}
