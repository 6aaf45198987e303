//! Numbers that are not finite: found before the update, named, and answered as the program says,
//! to the same bits for any workers, under kills, and resumed.

use crate::support::tensors::{bytes_of_f32, write};
use crate::support::{Outcome, Place, checkpoint};
use serde_json::Value;

/// Rows of an epoch: 64 steps of 16, each of 8 shards with 2.
const ROWS: u64 = 1024;

/// A regression on rows in the order of the file, some of which are spoilt.
fn program(until: &str, optim: &str, more: &str) -> String {
    format!(
        "use std.nn.Linear\nuse std.loss.mse\nuse std.optim.{{AdamW, SGD}}\n\
         data rows = tensors(\"rows.safetensors\", order = file)\n\
         layer Net[I, H, O] {{\n  up = Linear[I, H](bias = true)\n  \
         down = Linear[H, O](bias = true)\n  \
         forward(x: [B, I]) -> [B, O] = x |> up |> down\n}}\n\
         model net = Net[I = 4, H = 8, O = 1]\n\
         train fit {{\n  model = net, data = rows\n  \
         loss(x: f32[B, 4], y: f32[B, 1]) = mse(net(x), y)\n  \
         optim = {optim}\n  batch = 16\n  until = {until}\n  {more}\n}}\n"
    )
}

/// The data, with these values in place of the first of some rows.
fn data(place: &Place, scale: f32, spoilt: &[(u64, f32)]) {
    let mut state = 7u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    let mut x: Vec<f32> = (0..4 * ROWS).map(|_| scale * next()).collect();
    let y: Vec<f32> = x.chunks(4).map(|row| row[0] - 2.0 * row[1] + 0.5 * row[3]).collect();
    for (row, value) in spoilt {
        x[4 * *row as usize] = *value;
    }
    let columns = [
        ("x", "F32", &[ROWS, 4][..], bytes_of_f32(x)),
        ("y", "F32", &[ROWS, 1][..], bytes_of_f32(y)),
    ];
    write(&place.file("rows.safetensors"), &columns);
}

fn place(text: &str, scale: f32, spoilt: &[(u64, f32)]) -> Place {
    let place = Place::with(text);
    data(&place, scale, spoilt);
    place
}

/// (step, answer) of all steps that were not finite.
fn answers(events: &[Value]) -> Vec<(u64, String)> {
    let found = events.iter().filter(|e| e["event"] == "not_finite");
    let pair = |e: &Value| {
        (e["step"].as_u64().expect("a step"), e["answer"].as_str().expect("an answer").to_string())
    };
    found.map(pair).collect()
}

/// Whatever the machines: the same end.
#[track_caller]
fn same(out: &Outcome, right: &Outcome) {
    assert_eq!(out.fingerprint(), right.fingerprint(), "{}", out.story());
    assert_eq!(out.numbers(), right.numbers());
    assert_eq!(answers(&out.events), answers(&right.events));
}

const SKIP: &str =
    "checkpoint { every = 50 steps }\n  fault { loss.nan = skip(2 steps) then stop }";

#[test]
fn an_update_is_left_out_on_all_workers() {
    // Steps 5, 20 and 21 of each epoch.
    let spoilt = [(5 * 16 + 7, f32::NAN), (20 * 16, f32::INFINITY), (21 * 16 + 15, f32::NAN)];
    let text = program("4 epochs", "AdamW(1e-2)", SKIP);
    let start = || place(&text, 1.0, &spoilt);
    let right = start().train(&["--workers", "1"]).ok();
    let found = answers(&right.events);
    assert_eq!(found.len(), 12, "{found:?}");
    assert_eq!(found[..3].iter().map(|f| f.0).collect::<Vec<_>>(), [5, 20, 21]);
    let first = right.of("not_finite").next().expect("an event");
    let what = first["what"].as_str().expect("words");
    assert_eq!(first["shard"], 3, "{what}");
    for words in ["shard 3", "NaN in column `x` of sample 87", "samples 86 to 87", "job.mon:13:"] {
        assert!(what.contains(words), "`{words}` is missing in {what}");
    }
    for args in [
        &["--workers", "3", "--transport", "shm"][..],
        &["--workers", "2", "--transport", "quic"],
        &["--workers", "4", "--threads", "2"],
    ] {
        same(&start().train(args).ok(), &right);
    }
}

#[test]
fn three_in_a_row_are_one_too_many() {
    let spoilt = [(30 * 16, f32::NAN), (31 * 16, f32::NAN), (32 * 16 + 5, f32::NAN)];
    let place = place(&program("1 epochs", "AdamW(1e-2)", SKIP), 1.0, &spoilt);
    let out = place.train(&["--workers", "2", "--run-id", "a"]).expect_code(1);
    let found = answers(&out.events);
    let wanted = [(30, "skip"), (31, "skip"), (32, "stop")].map(|(s, a)| (s, a.to_string()));
    assert_eq!(found, wanted);
    assert_eq!(checkpoint::steps(&place.file("runs/a")), [32]);
    out.says(&["step 32", "shard 2", "column `x` of sample 517", "all is saved in", "000000032"]);
    // Gone on with, it meets the same step, and has been told of both before.
    let out = place.train(&["--workers", "3", "--resume"]).expect_code(1);
    assert_eq!(answers(&out.events), wanted[2..]);
}

const BACK: &str = "checkpoint { every = 10 steps, keep = 1 }\n  \
                    fault { loss.nan = skip then rollback then stop }";

/// Steps 33 and 34: one is left out, after the other all go back to the weights of step 30.
const TWO: [(u64, f32); 2] = [(33 * 16, f32::NAN), (34 * 16, f32::NAN)];

#[test]
fn all_go_back_to_the_last_checkpoint() {
    let text = |until: &str| program(until, "AdamW(1e-2)", BACK);
    let short = place(&text("35 steps"), 1.0, &TWO).train(&["--workers", "2"]).ok();
    let at = |step: u64| {
        let saved = short.of("checkpoint").find(|e| e["step"] == step).expect("a checkpoint");
        saved["fingerprint"].clone()
    };
    assert_eq!(short.fingerprint(), at(30).as_str().expect("a fingerprint"));
    assert_ne!(at(20), at(30));
    let right = place(&text("4 epochs"), 1.0, &TWO).train(&["--workers", "1"]).ok();
    let found = answers(&right.events);
    let epoch = |e: u64| [(64 * e + 33, "skip".into()), (64 * e + 34, "rollback".into())];
    assert_eq!(found, (0..4).flat_map(epoch).collect::<Vec<(u64, String)>>());
    for args in
        [&["--workers", "3", "--transport", "shm"][..], &["--workers", "2", "--transport", "quic"]]
    {
        same(&place(&text("4 epochs"), 1.0, &TWO).train(args).ok(), &right);
    }
}

/// Workers die before, at and after steps that are not finite.
#[test]
fn kills_change_nothing_of_it() {
    let text = program("16 epochs", "AdamW(1e-2)", BACK);
    let right = place(&text, 1.0, &TWO).train(&["--workers", "2"]).ok();
    let mut state = 0x5eed_u64;
    for (round, how) in ["shm", "quic", "shm"].iter().enumerate() {
        let mut place = place(&text, 1.0, &TWO);
        place.killed = true;
        let mut running = place.begin(&["--workers", "3", "--transport", how]);
        running.until_event("started");
        for epoch in 1..12 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            running.until_step(64 * epoch + 28 + (state >> 40) % 6);
            let workers = place.workers();
            if workers.len() > 1 {
                let victim = workers[(state >> 33) as usize % workers.len()];
                crate::support::process::send(victim, libc::SIGKILL);
            }
        }
        let out = running.finish().ok();
        assert_eq!(out.fingerprint(), right.fingerprint(), "round {round}: {}", out.story());
        assert_eq!(out.numbers(), right.numbers(), "round {round}");
        assert_eq!(answers(&out.events), answers(&right.events), "round {round}");
    }
}

/// A killed run that is gone on with answers as it would have.
#[test]
fn a_resumed_run_answers_alike() {
    let text = program("40 epochs", "AdamW(1e-2)", BACK);
    let right = place(&text, 1.0, &TWO).train(&["--workers", "2"]).ok();
    for at in [90, 98, 101, 163] {
        let mut place = place(&text, 1.0, &TWO);
        place.killed = true;
        let mut running = place.begin(&["--workers", "2", "--run-id", "a"]);
        running.until_step(at);
        running.signal(libc::SIGKILL);
        running.finish();
        let out = place.train(&["--workers", "3", "--resume"]).ok();
        assert_eq!(out.fingerprint(), right.fingerprint(), "{at}: {}", out.story());
        let recorded = answers(&checkpoint::events(&place.file("runs/a")));
        assert_eq!(recorded, answers(&right.events), "{at}");
    }
}

/// An update that is too large spoils the weights themselves: the checkpoint of such weights is
/// said to be, and the last finite one stays.
#[test]
fn the_last_finite_checkpoint_stays() {
    let spoilt = [(20 * 16 + 3, 3e18)];
    let run = |answer: &str| {
        let saves = "checkpoint { every = 1 steps, keep = 1, async = false }";
        let more = format!("{saves}\n  fault {{ loss.nan = {answer} }}");
        let text = program("40 steps", "SGD(1e3)", &more).replace("bias = true", "bias = false");
        let place = place(&text, 1e-2, &spoilt);
        let out = place.train(&["--workers", "2", "--run-id", "a"]);
        (place, out)
    };
    let (place, out) = run("stop");
    let out = out.expect_code(1);
    let saved = checkpoint::steps(&place.file("runs/a"));
    assert_eq!(saved, [20, 21], "{}", out.story());
    let finite = |step| {
        let directory = checkpoint::directory(&place.file("runs/a"), step);
        checkpoint::manifest(&directory)["finite"].clone()
    };
    assert_eq!((finite(20), finite(21)), (true.into(), false.into()));
    out.says(&["step 21", "from an earlier update", "last finite checkpoint", "000000020"]);
    let (place, out) = run("rollback");
    let out = out.ok();
    assert_eq!(answers(&out.events), [(21, "rollback".to_string())]);
    let told = out.last("not_finite")["follows"].to_string();
    assert!(told.contains("step 20"), "{told}");
    assert_eq!(checkpoint::manifest(&out.checkpoint())["finite"], true);
    drop(place);
}

/// Without an answer the run is saved and ends; a gradient is named by its layer.
#[test]
fn the_first_operation_is_named() {
    let text = program("1 epochs", "SGD(1e30)", "");
    let text = text.replace("x |> up |> down", "x |> up |> log |> down");
    let text = text.replace("std.nn.Linear", "std.nn.{Linear}");
    let out = place(&text, 1.0, &[]).train(&["--workers", "3"]).expect_code(1);
    let found = out.last("not_finite");
    let what = found["what"].as_str().expect("words");
    assert_eq!((found["step"].as_u64(), &found["answer"]), (Some(0), &"stop".into()), "{what}");
    for words in ["`log` after `up` gives NaN", "in shard ", "job.mon:8:"] {
        assert!(what.contains(words), "`{words}` is missing in {what}");
    }
}

/// With a rollback and no checkpoint to go back to, the beginning is where it goes; once.
#[test]
fn a_run_that_runs_away_comes_to_its_end() {
    let more = "fault { loss.nan = rollback then stop }";
    let out = place(&program("1 epochs", "SGD(1e30)", more), 1.0, &[]).train(&["--workers", "2"]);
    let out = out.expect_code(1);
    let found: Vec<String> = answers(&out.events).into_iter().map(|a| a.1).collect();
    assert_eq!(found, ["rollback", "stop"], "{}", out.story());
    let first = out.of("not_finite").next().expect("an event");
    assert!(first["follows"].to_string().contains("the beginning"), "{first}");
}
