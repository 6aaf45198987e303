//! What people get wrong: one clear message each, the right exit code, nothing left behind.

use crate::support::tensors::{bytes_of_f32, bytes_of_i32, write};
use crate::support::{Outcome, Place, digits, swap};
use std::fs;
use std::process::Command;
use std::time::Duration;

/// Runs a wrong program: code 2, nothing made.
#[track_caller]
fn wrong(place: &Place, args: &[&str], words: &[&str]) -> Outcome {
    let written: Vec<String> = fs::read_dir(place.path())
        .expect("a folder")
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    let out = place.run(&[&["run"], args].concat()).expect_code(2).says(words);
    assert!(out.stdout.is_empty(), "talk on standard output: {}", out.story());
    assert!(out.took < Duration::from_secs(20), "{}", out.story());
    let written: Vec<&str> = written.iter().map(String::as_str).collect();
    place.check_untouched(&written);
    out
}

#[test]
fn files_that_are_no_programs() {
    let place = Place::new();
    wrong(&place, &["nothing.mon"], &["nothing.mon"]);
    place.write("empty.mon", "");
    wrong(&place, &["empty.mon"], &["empty.mon"]);
    fs::create_dir(place.file("folder.mon")).expect("a folder");
    wrong(&place, &["folder.mon"], &["folder.mon", "folder"]);
    place.write("bytes.mon", [0xff, 0xfe, 0x00, 0x80]);
    wrong(&place, &["bytes.mon"], &["bytes.mon", "UTF-8"]);
    let pipe = Command::new("mkfifo").arg(place.file("pipe.mon")).status().expect("mkfifo");
    assert!(pipe.success());
    wrong(&place, &["pipe.mon"], &["pipe.mon", "pipe or a device"]);
    wrong(&place, &["/dev/zero"], &["/dev/zero", "pipe or a device"]);
    place.write("comment.mon", "# nothing but this\n");
    wrong(&place, &["comment.mon"], &["comment.mon"]);
}

#[test]
fn five_mistakes_are_five_messages() {
    let text = digits("2 epochs");
    let text =
        swap(&text, "use std.loss.cross_entropy", "use std.loss.{cross_entropy, crossentropy}");
    let text = swap(&text, "in 16..4096", "in 256..4096");
    let text = swap(&text, "optim = AdamW(lr)", "optimm = 3\n  optim = AdamW(lr)");
    let text = swap(&text, "batch = 64", "batch = 4 GiB");
    let text = swap(&text, "on eval.accuracy(", "on eval.acuracy(");
    let place = Place::with(&text);
    let out = place.run(&["check", "job.mon", "--json"]).expect_code(2);
    let errors = out.errors();
    let lines: Vec<u64> =
        errors.iter().filter_map(|e| e["labels"][0]["start"]["line"].as_u64()).collect();
    assert_eq!(errors.len(), 5, "{}", out.story());
    assert!(lines.is_sorted(), "in the order of the text: {lines:?}");
    let words = ["crossentropy", "256..4096", "optimm", "4 GiB", "acuracy"];
    let out = wrong(&place, &["job.mon"], &words);
    assert!(out.stderr.contains("5 errors"), "{}", out.stderr);
}

#[test]
fn columns_that_do_not_match() {
    let loss = "loss(x: f32[B, 64], y: i32[B]) = cross";
    let cases = [
        ("loss(x: f32[B, 65], y: i32[B]) = cross", vec!["65", "64"]),
        ("loss(x: f32[B, 64], z: i32[B]) = cross", vec!["`z`"]),
        ("loss(x: i32[B, 64], y: i32[B]) = cross", vec!["i32", "f32"]),
    ];
    for (changed, words) in cases {
        let place = Place::with(&swap(&digits("1 epochs"), loss, changed));
        wrong(&place, &["job.mon"], &words);
    }
}

/// A table that maps ids to ids, on a file of 32 samples.
fn table(batch: u32) -> String {
    format!(
        "use std.loss.cross_entropy
use std.optim.SGD
layer Table[V, D] {{
  tok: [V, D] ~ normal(0.02)
  out: [D, V] ~ normal(0.02)
  forward(ids: i32[B, T]) -> [B, T, V] = tok[ids] @ out
}}
model net = Table[V = 10, D = 4]
data words = tensors(\"words.safetensors\", order = file)
train job {{
  model = net, data = words
  loss(ids: i32[B, T], next: i32[B, T]) = cross_entropy(net(ids), next)
  optim = SGD(0.1)
  batch = {batch}
  until = 4 steps
}}
"
    )
}

/// Ids of 32 samples of 5, with one of them replaced.
fn words(place: &Place, wrong: Option<(&str, usize, i32)>) {
    let column = |name: &str| {
        let mut ids: Vec<i32> = (0..160).map(|i| i * 7 % 10).collect();
        if let Some((_, at, id)) = wrong.filter(|w| w.0 == name) {
            ids[at] = id;
        }
        bytes_of_i32(ids)
    };
    let columns = ["ids", "next"].map(|name| (name, "I32", &[32u64, 5][..], column(name)));
    write(&place.file("words.safetensors"), &columns);
}

#[test]
fn an_id_beyond_the_vocabulary() {
    let place = Place::with(&table(8));
    words(&place, None);
    place.train(&["--workers", "2", "--run-id", "right"]).ok();
    for (column, id) in [("ids", 10), ("next", 10), ("ids", -1), ("next", 2_000_000_000)] {
        // In sample 21, so in step 2.
        words(&place, Some((column, 21 * 5 + 3, id)));
        for workers in ["1", "3"] {
            let out = place.train(&["--workers", workers]).expect_code(1);
            assert_eq!(out.of("step").count(), 2, "{}", out.story());
            assert!(out.of("finished").all(|e| e["why"] == "failed"), "{}", out.story());
            out.says(&[&id.to_string(), "10", "job.mon:"]);
        }
    }
}

#[test]
fn data_that_is_not_what_it_should_be() {
    let place = Place::with(&table(64));
    wrong(&place, &["job.mon"], &["words.safetensors"]);
    words(&place, None);
    // 32 samples are less than a batch of 64.
    wrong(&place, &["job.mon"], &["32", "64"]);
    place.write("job.mon", table(8));
    let file = place.file("words.safetensors");
    let whole = fs::read(&file).expect("a file");
    fs::write(&file, &whole[..whole.len() - 100]).expect("written");
    wrong(&place, &["job.mon"], &["words.safetensors"]);
    fs::write(&file, b"this is no tensor file").expect("written");
    wrong(&place, &["job.mon"], &["words.safetensors"]);
    fs::write(&file, []).expect("written");
    wrong(&place, &["job.mon"], &["words.safetensors"]);
    // Columns of different lengths.
    let columns = [
        ("ids", "I32", &[4u64, 5][..], bytes_of_i32(0..20)),
        ("next", "I32", &[5u64, 5][..], bytes_of_i32(0..25)),
    ];
    write(&file, &columns);
    wrong(&place, &["job.mon"], &["words.safetensors", "4", "5"]);
    let floats = bytes_of_f32((0..160).map(|i| i as f32));
    let columns = [
        ("ids", "F32", &[32u64, 5][..], floats),
        ("next", "I32", &[32u64, 5][..], bytes_of_i32(0..160)),
    ];
    write(&file, &columns);
    wrong(&place, &["job.mon"], &["ids", "f32", "i32"]);
}

#[test]
fn weights_that_do_not_fit() {
    let program =
        swap(&table(8), "Table[V = 10, D = 4]", "Table[V = 10, D = 4].load(\"w.safetensors\")");
    let place = Place::with(&program);
    words(&place, None);
    wrong(&place, &["job.mon"], &["w.safetensors"]);
    let columns = [
        ("tok", "F32", &[10u64, 5][..], bytes_of_f32([0.5; 50])),
        ("extra", "F32", &[1u64][..], bytes_of_f32([0.5])),
    ];
    write(&place.file("w.safetensors"), &columns);
    wrong(&place, &["job.mon"], &["tok", "extra", "out"]);
    let columns = [
        ("tok", "F32", &[10u64, 4][..], bytes_of_f32([0.5; 40])),
        ("out", "F32", &[4u64, 10][..], bytes_of_f32([0.25; 40])),
    ];
    write(&place.file("w.safetensors"), &columns);
    place.train(&["--workers", "2"]).ok();
}

#[test]
fn a_hundred_megabytes() {
    let place = Place::new();
    let file = fs::File::create(place.file("huge.mon")).expect("a file");
    file.set_len(100 << 20).expect("a sparse file");
    let out = wrong(&place, &["huge.mon"], &["huge.mon"]);
    assert!(out.took < Duration::from_secs(3), "{}", out.story());
    place.write("long.mon", "# a comment\n".repeat(9 << 20));
    let out = wrong(&place, &["long.mon"], &["long.mon"]);
    assert!(out.took < Duration::from_secs(3), "{}", out.story());
}

#[test]
fn deep_nests() {
    let text = digits("1 epochs");
    for (open, close) in [("(", ")"), ("[", "]"), ("-", "")] {
        let deep = format!("{}64{}", open.repeat(100_000), close.repeat(100_000));
        let place = Place::with(&swap(&text, "batch = 64", format!("batch = {deep}")));
        let out = wrong(&place, &["job.mon"], &["job.mon:"]);
        assert!(out.took < Duration::from_secs(5), "{}", out.story());
    }
    for open in ["train t { ", "a.b(", "[[{(", "layer L[A] { forward(x: [B]) -> [B] = "] {
        let place = Place::with(&open.repeat(50_000));
        let out = wrong(&place, &["job.mon"], &["job.mon:"]);
        assert!(out.took < Duration::from_secs(5), "{}", out.story());
    }
}

#[test]
fn options_that_nobody_knows() {
    let place = Place::with(&digits("1 epochs"));
    wrong(&place, &["job.mon", "--widht", "64"], &["--widht", "--width"]);
    wrong(&place, &["job.mon", "--width", "8"], &["width", "16..4096"]);
    wrong(&place, &["job.mon", "--width", "wide"], &["width", "wide"]);
    wrong(&place, &["job.mon", "--width", "64.5"], &["width", "64.5"]);
    wrong(&place, &["job.mon", "--lr", "1e400"], &["lr"]);
    wrong(&place, &["job.mon", "--workers", "0"], &["--workers"]);
    wrong(&place, &["job.mon", "--workers", "1.5"], &["1.5", "whole number from 1"]);
    wrong(&place, &["--resume", "job.mon"], &["--resume", "before"]);
    let out = wrong(&place, &["job.mon", "--bogus-option", "3"], &["--bogus-option"]);
    assert!(!out.stderr.contains("-- --bogus"), "leads nowhere: {}", out.stderr);
    wrong(&place, &["job.mon", "--workers", "9"], &["9 workers", "8 shards"]);
    wrong(&place, &["job.mon", "--workers", "99999"], &["8 shards"]);
    wrong(&place, &["job.mon", "--workers", "4294967295"], &["8 shards"]);
    wrong(&place, &["job.mon", "--trace", "9..3"], &["--trace", "9..3"]);
    wrong(&place, &["job.mon", "--trace", "23..30"], &["--trace", "22"]);
    wrong(&place, &["job.mon", "--resume", "--run-id", "a"], &["--resume", "--run-id"]);
    wrong(&place, &["job.mon", "--transport", "pigeon"], &["pigeon", "quic"]);
    wrong(&place, &["job.mon", "--key", "no.key"], &["no.key"]);
    wrong(&place, &[], &["JOB.mon"]);
    let out = place.run(&["fly"]).expect_code(2);
    out.says(&["fly"]);
    let reserved = swap(&digits("1 epochs"), "param width", "param workers: int = 3\nparam width");
    place.write("job.mon", reserved);
    wrong(&place, &["job.mon"], &["workers"]);
}

/// What a message tells a person to type says something.
#[test]
fn helps_that_name_a_command_are_true() {
    let text = digits("1 epochs");
    let text = swap(&text, "batch = 64", "bathc = 64");
    let text = swap(&text, "eval  { every", "eval  { evry");
    let place = Place::with(&text);
    let out = place.run(&["check", "job.mon"]).expect_code(2);
    let words: Vec<&str> = out
        .stderr
        .split("`monarch explain ")
        .skip(1)
        .filter_map(|rest| rest.split('`').next())
        .collect();
    assert_eq!(words, ["train", "eval"], "{}", out.stderr);
    for word in words.iter().chain(&["events", "every", "train.batch", "AdamW", "std.nn"]) {
        let said = place.run(&["explain", word]).expect_code(0);
        assert!(said.stdout.len() > 1, "{}", said.story());
    }
    place.run(&["explain", "traim"]).expect_code(2).says(&["`traim`", "`monarch explain train`"]);
    place.write("job.mon", digits("1 epochs"));
    place.run(&["explain", "job.mon", "lr"]).expect_code(2).says(&["`train.lr`"]);
}

/// What is known and not built yet says so when it is to be run, at its place.
#[test]
fn what_comes_later_says_so() {
    let place = Place::new();
    place.copy("examples/llama3d.mon", "llama3d.mon");
    place.run(&["check", "llama3d.mon"]).expect_code(0);
    let out = place.run(&["run", "llama3d.mon", "--json"]).expect_code(2);
    let codes: Vec<&str> = out.errors().iter().filter_map(|e| e["code"].as_str()).collect();
    assert!(codes.len() > 5 && codes.iter().all(|c| *c == "M0906"), "{codes:?}");
    place.check_untouched(&["llama3d.mon"]);
}

/// What is checked and planned, and not carried out: a run says so rather than ignore it.
#[test]
fn nothing_is_run_that_would_be_ignored() {
    let text = format!("{}\n", digits("2 epochs"));
    let text = swap(&text, "batch = 64", "batch = 64\n  checkpoint { to = \"s3://a/{run.id}\" }");
    let place = Place::with(&text);
    place.run(&["check", "job.mon"]).expect_code(0);
    place.run(&["plan", "job.mon"]).expect_code(0);
    wrong(&place, &["job.mon"], &["M0906", "object stores", "s3://a"]);
}

/// Params may be called like arguments that verbs have for themselves, and may be wrong themselves.
#[test]
fn params_that_are_called_like_arguments() {
    let names = ["program", "file", "files", "what", "setting", "name", "folder", "example"];
    let text: String = names.iter().map(|n| format!("param {n}: int = 1 in 1..9\n")).collect();
    let place = Place::with(&text);
    place.run(&["check", "job.mon"]).ok();
    for name in names {
        let option = format!("--{name}");
        place.run(&["check", "job.mon", &option, "3"]).ok();
        place.run(&["check", "job.mon", &option, "30"]).expect_code(2).says(&["M0112", name]);
    }
    place.write("job.mon", "param a: int = 1\nparam a: int = 2\nlet b = a\n");
    place.run(&["check", "job.mon", "--a", "3"]).expect_code(2).says(&["M0105"]);
    place.run(&["new", ""]).expect_code(2).says(&["needs a name"]);
}
