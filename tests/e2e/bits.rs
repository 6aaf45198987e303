//! The same bits, whatever carries the work.

use crate::support::{CHARGPT_SMALL, Corpus, Outcome, Place, chargpt, digits, swap};
use std::process::Command;

/// Runs a program in many ways; all its numbers must be those of the first way.
struct Same {
    place: Place,
    program: Vec<String>,
    first: Option<(Vec<String>, String)>,
    checked: u32,
}

impl Same {
    fn new(place: Place, params: &[&str]) -> Same {
        let program = params.iter().map(ToString::to_string).collect();
        Same { place, program, first: None, checked: 0 }
    }

    fn run(&self, args: &[&str], isa: Option<&str>) -> Outcome {
        let mut command: Command = self.place.monarch(&["run", "job.mon", "--json"]);
        command.args(&self.program).args(args);
        if let Some(isa) = isa {
            command.env("MONARCH_ISA", isa);
        }
        crate::support::Running::start(command, crate::support::LIMIT).finish()
    }

    fn check(&mut self, args: &[&str], isa: Option<&str>) -> Outcome {
        let out = self.run(args, isa).ok();
        let found = (out.numbers(), out.fingerprint());
        assert!(!found.0.is_empty());
        let first = self.first.get_or_insert_with(|| found.clone());
        for (a, b) in first.0.iter().zip(&found.0) {
            assert_eq!(a, b, "with {args:?} {isa:?}");
        }
        assert_eq!(*first, found, "with {args:?} {isa:?}");
        self.checked += 1;
        out
    }

    fn all(mut self) {
        for workers in ["1", "2", "3", "4", "8"] {
            self.check(&["--workers", workers, "--threads", "1"], None);
        }
        for threads in ["2", "3"] {
            self.check(&["--workers", "2", "--threads", threads], None);
        }
        self.check(&["--workers", "1", "--threads", "8"], None);
        for (how, name) in [("shm", "shared memory"), ("quic", "QUIC")] {
            for workers in ["2", "3"] {
                let args = ["--workers", workers, "--transport", how, "--threads", "1"];
                let out = self.check(&args, None);
                assert_eq!(out.last("started")["transport"], name);
            }
        }
        self.check(&["--workers", "3", "--no-overlap"], None);
        self.check(&["--workers", "2", "--no-overlap", "--transport", "quic"], None);
        for isa in isas() {
            self.check(&["--workers", "2", "--threads", "1"], Some(isa));
        }
        assert!(self.checked >= 15, "{} ways were compared", self.checked);
    }
}

/// Vector instructions that this processor has.
fn isas() -> Vec<&'static str> {
    let has = [
        ("scalar", true),
        ("avx2", is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")),
        ("avx512", is_x86_feature_detected!("avx512f")),
    ];
    for (name, _) in has.iter().filter(|(_, has)| !has) {
        eprintln!("not compared: this processor has no {name}");
    }
    has.iter().filter(|(_, has)| *has).map(|(name, _)| *name).collect()
}

#[test]
fn digits_everywhere() {
    Same::new(Place::with(&digits("2 epochs")), &[]).all();
}

#[test]
fn chargpt_everywhere() {
    let place = Place::with(&chargpt(12, 4, "10 min"));
    let corpus = Corpus::write(&place, 20_000);
    let mut params = CHARGPT_SMALL.to_vec();
    params.extend(corpus.iter().map(String::as_str));
    Same::new(place, &params).all();
}

/// A number of shards that is no power of two, batches that do not divide by it, and more threads
/// than shards.
#[test]
fn odd_shards() {
    let text = swap(&digits("1 epochs"), "batch = 64", "batch = 33\n  shards = 5");
    let mut same = Same::new(Place::with(&text), &[]);
    for workers in ["1", "2", "3", "5"] {
        same.check(&["--workers", workers, "--threads", "1"], None);
    }
    same.check(&["--workers", "2", "--threads", "7"], None);
    same.check(&["--workers", "4", "--transport", "quic"], None);
    let eight = swap(&text, "shards = 5", "shards = 8");
    same.place.write("job.mon", eight);
    let other = same.run(&["--workers", "2"], None).ok();
    let five = same.first.as_ref().map(|f| f.1.clone());
    assert_ne!(five, Some(other.fingerprint()), "the tree of sums depends on the shards");
}

/// The records say which instructions were used, so that the runs above did differ.
#[test]
fn instructions_are_those_asked_for() {
    let same = Same::new(Place::with(&digits("1 steps")), &[]);
    for isa in isas() {
        same.run(&["--workers", "1", "--run-id", isa], Some(isa)).ok();
        let run = same.place.file("runs").join(isa);
        let events = crate::support::checkpoint::events(&run);
        let start = events.iter().find(|e| e["event"] == "start").expect("a start");
        assert_eq!(start["workers"][0]["isa"], isa);
    }
    let out = same.run(&["--workers", "1"], Some("mmx")).expect_code(1);
    out.says(&["MONARCH_ISA is `mmx`"]);
}
