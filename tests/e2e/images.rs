//! Convolutions, dropout and the optimizers of the library, in whole runs.

use crate::support::{Place, swap};

fn example() -> String {
    let path = crate::support::root().join("examples/images.mon");
    std::fs::read_to_string(path).expect("the example is there")
}

/// `examples/images.mon`, to the letter: on images that it has not seen.
#[test]
fn a_convolutional_network_learns_to_read() {
    let place = Place::new();
    place.copy("examples/images.mon", "job.mon");
    let out = place.train(&["--workers", "2"]).ok();
    let accuracy = out.last("finished")["metrics"]["eval.accuracy"].as_f64();
    assert!(accuracy.expect("an accuracy") >= 0.97, "{accuracy:?}");
    assert!(out.errors().is_empty(), "{}", out.story());
}

/// The example with another optimizer, for two epochs.
fn with(optim: &str, name: &str) -> String {
    let text = swap(&example(), "use std.optim.{AdamW,", format!("use std.optim.{{{name},"));
    let text = swap(&text, "AdamW(decay_on = matrices)", optim);
    swap(&text, "until = 12 epochs", "until = 2 epochs")
}

const OPTIMIZERS: [(&str, &str); 5] = [
    ("SGD", "SGD(momentum = 0.9, nesterov = true, decay = 1e-4, clip = 1)"),
    ("Adam", "Adam(decay = 1e-4)"),
    ("AdamW", "AdamW(decay_on = matrices)"),
    ("Lion", "Lion(decay = 0.1)"),
    ("Muon", "Muon(decay = 0.01, others = 0.5)"),
];

/// Dropout's masks and whole-matrix updates do not depend on who computes what.
#[test]
fn the_same_bits_for_any_number_of_workers_and_every_optimizer() {
    for (name, optim) in OPTIMIZERS {
        let place = Place::with(&with(optim, name));
        let run = |args: &[&str]| {
            let out = place.run(&[&["run", "job.mon", "--json"], args].concat()).ok();
            (out.numbers(), out.fingerprint())
        };
        let first = run(&["--workers", "1", "--threads", "1"]);
        assert!(!first.0.is_empty());
        assert_eq!(first, run(&["--workers", "3", "--threads", "1"]), "{name}");
        assert_eq!(first, run(&["--workers", "2", "--threads", "2"]), "{name}");
    }
}

/// What an optimizer keeps is in its checkpoints.
#[test]
fn every_optimizer_goes_on_where_it_stopped() {
    for (name, optim) in OPTIMIZERS {
        let every = "until = 2 epochs\n  checkpoint { every = 23 steps, keep = 9 }";
        let place = Place::with(&swap(&with(optim, name), "until = 2 epochs", every));
        let whole = place.train(&["--workers", "2", "--run-id", "whole"]).ok();
        let last = place.file("runs/whole/step-000000046");
        std::fs::remove_dir_all(&last).expect("the last checkpoint");
        let rest = place.train(&["--workers", "3", "--resume", "whole"]).ok();
        assert_eq!(whole.fingerprint(), rest.fingerprint(), "{name}");
    }
}
