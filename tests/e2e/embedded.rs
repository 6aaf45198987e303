//! The crate: a run within another program.

use crate::support::{Place, checkpoint, digits};
use monarch::{Engine, EngineError, Flow, RunEvent, Why};

/// Compiled with these tests, so that it is known to build.
#[allow(dead_code)]
#[path = "../../examples/embed.rs"]
mod embed;

/// An engine that leaves its runs in a folder of its own.
fn engine(place: &Place, name: &str) -> Engine {
    Engine::new(place.file("job.mon")).run_dir(place.file("runs").join(name))
}

#[test]
fn threads_and_processes_agree() {
    let place = Place::with(&digits("1 epochs"));
    let right = place.train(&["--workers", "2", "--run-id", "processes"]).ok();
    let losses: Vec<f64> = right.of("step").map(|e| e["loss"].as_f64().expect("a loss")).collect();
    for workers in [1, 3] {
        let name = format!("threads-{workers}");
        let (mut steps, mut seen, mut started, mut finished) = (Vec::new(), Vec::new(), 0, 0);
        let run = engine(&place, &name).workers(workers).threads(2).run(|event| {
            match event {
                RunEvent::Started(s) => {
                    started += 1;
                    assert_eq!(s.workers.len(), workers as usize);
                }
                RunEvent::Step(step) => {
                    steps.push(step.step);
                    seen.push(step.loss);
                    assert_eq!(step.waits().len(), workers as usize);
                }
                RunEvent::Finished(_) => finished += 1,
                _ => {}
            }
            Flow::Continue
        });
        let summary = run.expect("a run");
        assert_eq!(summary.fingerprint, Some(right.fingerprint()));
        assert_eq!(summary.why, Why::Completed);
        assert_eq!(steps, (0..summary.steps).collect::<Vec<_>>());
        assert_eq!(seen, losses);
        assert_eq!((started, finished), (1, 1));
    }
}

#[test]
fn it_can_be_stopped_and_gone_on_with() {
    let place = Place::with(&digits("20 epochs"));
    let stopped = engine(&place, "stopped").workers(2).run(|event| match event {
        RunEvent::Step(step) if step.step >= 10 => Flow::Stop,
        _ => Flow::Continue,
    });
    let stopped = stopped.expect("a run");
    assert_eq!(stopped.why, Why::Stopped);
    assert!(stopped.steps > 10 && stopped.steps < 460, "{}", stopped.steps);
    let (path, step) = stopped.checkpoint.expect("a checkpoint");
    assert_eq!(step, stopped.steps);
    assert_eq!(checkpoint::manifest(&path)["step"], step);
    let whole = engine(&place, "whole").workers(1).run(|_| Flow::Continue).expect("a run");
    let more = engine(&place, "stopped").workers(3).resume("").run(|_| Flow::Continue);
    let more = match more {
        Ok(summary) => summary,
        Err(error) => panic!("{error}"),
    };
    assert_eq!(more.first_step, stopped.steps);
    assert_eq!(more.fingerprint, whole.fingerprint);
}

#[test]
fn a_worker_can_be_sent_away() {
    let place = Place::with(&digits("20 epochs"));
    let whole = engine(&place, "whole").workers(1).run(|_| Flow::Continue).expect("a run");
    let (mut left, mut sizes, mut warned) = (Vec::new(), Vec::new(), Vec::new());
    let run = engine(&place, "fewer").workers(3).run(|event| {
        match event {
            // There is no such worker.
            RunEvent::Step(step) if step.step == 5 => return Flow::Drain(7),
            RunEvent::Step(step) if step.step == 10 => return Flow::Drain(1),
            // Twice is once; then the last one has to stay.
            RunEvent::WorkerLeft { rank, .. } => {
                left.push(*rank);
                return Flow::Drain(if left.len() == 1 { 1 } else { 0 });
            }
            RunEvent::Regrouped { workers, .. } => sizes.push(*workers),
            RunEvent::Warning { text } => warned.push(text.clone()),
            _ => {}
        }
        Flow::Continue
    });
    let summary = run.expect("a run");
    assert_eq!(summary.fingerprint, whole.fingerprint);
    assert_eq!((left.as_slice(), sizes.as_slice()), (&[1, 1][..], &[2, 1][..]));
    let says = |word: &str| warned.iter().any(|w| w.contains(word));
    assert!(says("worker 7 is not sent away: there are 3 workers"), "{warned:?}");
    assert!(says("it is the last one"), "{warned:?}");
}

#[test]
fn params_and_mistakes() {
    let place = Place::with(&digits("2 steps"));
    let run = |width: u32| engine(&place, &width.to_string()).param("width", width);
    let wide = run(64).run(|_| Flow::Continue).expect("a run");
    let narrow = run(32).run(|_| Flow::Continue).expect("a run");
    assert_ne!(wide.fingerprint, narrow.fingerprint);
    let error = run(3).run(|_| Flow::Continue).expect_err("out of range");
    assert!(matches!(error, EngineError::Program(_)), "{error:?}");
    assert!(error.to_string().contains("16..4096"), "{error}");
    let error = Engine::new(place.file("nothing.mon")).run(|_| Flow::Continue);
    assert!(error.expect_err("no such file").to_string().contains("nothing.mon"));
    let error = run(16).workers(9).run(|_| Flow::Continue).expect_err("nine workers");
    assert!(error.to_string().contains("8 shards"), "{error}");
}
