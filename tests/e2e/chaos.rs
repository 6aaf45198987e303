//! `monarch chaos`: the run under fire ends with the weights of the quiet one, and says what
//! faults have cost.

use crate::support::{Outcome, Place, digits, swap};
use monarch::chaos::{Kind, Schedule};
use serde_json::Value;

/// Long enough for several faults in each run.
fn job() -> String {
    let text = swap(&digits("40 epochs"), "above = 98%", "above = 100%");
    swap(&text, "  batch = 64", "  batch = 64\n  checkpoint { every = 200 steps }")
}

fn chaos(place: &mut Place, args: &[&str]) -> Outcome {
    place.killed = true;
    let out = place.start(&[&["chaos", "job.mon", "--json"], args].concat()).finish();
    // Nothing lies beside the program.
    place.check_untouched(&["job.mon"]);
    out
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn random_faults_leave_the_same_weights() {
    let mut place = Place::with(&job());
    let out = chaos(&mut place, &["--faults", "16", "--fault-seed", "3"]).ok();
    let end = out.last("chaos");
    assert_eq!((&end["equal"], &end["quiet"]), (&Value::Bool(true), &end["under_fire"]));
    let quiet = out.last("quiet");
    assert_eq!(quiet["fingerprint"], end["quiet"]);
    // As an ordinary run says it, on another number of workers.
    let alone = place.train(&["--workers", "2"]).ok();
    assert_eq!(quiet["fingerprint"], alone.fingerprint().as_str());
    assert_eq!(number(&end["all"]["faults"]), 16);
    // A controller that is killed may have said a step of which nothing was on record yet.
    let once = number(&end["steps"]) - number(&end["steps_repeated"]);
    assert_eq!(once, number(&end["runs"]) * number(&quiet["steps"]));
    // The schedule is that of the seed; where too few were left to kill one, it was halted, and
    // workers come and go in turn.
    let usual: Vec<Kind> = Kind::EACH.into_iter().filter(|k| k.is_usual()).collect();
    let schedule = Schedule::new(3, usual);
    let faults: Vec<&Value> = out.of("fault").collect();
    for (n, fault) in (0..).zip(&faults) {
        let planned = schedule.fault(n).kind;
        let other = match planned {
            Kind::Join => "drain",
            Kind::Drain => "join",
            _ => "freeze",
        };
        let kind = fault["kind"].as_str().expect("a kind");
        assert!([planned.name(), other, "freeze"].contains(&kind), "{planned:?}: {fault}");
        assert_eq!(number(&fault["number"]), n);
    }
    assert_eq!(faults.len(), 16);
    let killed = |f: &&&Value| f["kind"] == "kill" && !f["lost_ms"].is_null();
    let kills = faults.iter().filter(killed).count() as u64;
    assert!(kills > 0 && number(&end["replaced"]) >= kills, "{}", out.story());
    assert_eq!(end["kinds"]["kill"]["lost_ms"]["n"], kills);
}

#[test]
fn with_nobody_left_a_checkpoint_is_enough() {
    let mut place = Place::with(&job());
    let args = ["--faults", "3", "--kinds", "all", "--reckless", "--workers", "2"];
    let out = chaos(&mut place, &args).ok();
    let end = out.last("chaos");
    assert_eq!((&end["equal"], number(&end["all"]["faults"])), (&Value::Bool(true), 3));
    assert!(number(&end["restarts"]) > 0, "{}", out.story());
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    let mut place = Place::with(&job());
    place.killed = true;
    let mut running = place.start(&["chaos", "job.mon", "--json", "--faults", "100000"]);
    running.until_event("fault");
    running.signal(libc::SIGINT);
    running.finish().expect_code(130).says(&["interrupted"]);
    place.check_untouched(&["job.mon"]);
}

/// A person gets a table, and the folder of the runs on request.
#[test]
fn for_people() {
    let mut place = Place::with(&job());
    place.killed = true;
    let args = ["chaos", "job.mon", "--faults", "2", "--kinds", "kill", "--keep-runs"];
    let out = place.run(&args).ok().says(&["quiet run: ", "runs are left in "]);
    let table = out.stdout.join("\n");
    for word in ["kill -9 of one", "p50", "p99", "the same in all", "lost: "] {
        assert!(table.contains(word), "{table}");
    }
    let left = out.stderr.lines().find_map(|l| l.strip_prefix("runs are left in "));
    let left = std::path::PathBuf::from(left.expect("a folder"));
    assert!(left.join("quiet/events.jsonl").exists() && left.join("fire-1/job.json").exists());
    std::fs::remove_dir_all(left).expect("a folder");
}

#[test]
fn what_it_cannot_do_is_said_before_anything_runs() {
    let place = Place::with(&job());
    let of = |args: &[&str]| place.run(&[&["chaos", "job.mon"], args].concat()).expect_code(2);
    of(&["--kinds", "meteor"]).says(&["meteor", "kill, two"]);
    of(&["--kinds", "all"]).says(&["--reckless"]);
    place.check_untouched(&["job.mon"]);
}
