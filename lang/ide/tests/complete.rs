//! What may be typed, in whole programs and in the middle of half a word.

mod common;

use common::{opened, place, programs};
use monarch_ide::{Completion, complete, signature};

fn offered(text: &str) -> Vec<Completion> {
    let (analysis, at) = opened(text);
    complete(&analysis, at).1
}

fn labels(text: &str) -> Vec<String> {
    offered(text).into_iter().map(|c| c.label).collect()
}

#[track_caller]
fn has(text: &str, wanted: &[&str]) -> Vec<Completion> {
    let all = offered(text);
    for word in wanted {
        assert!(all.iter().any(|c| c.label == *word), "no `{word}` in {:?}", names(&all));
    }
    all
}

fn names(all: &[Completion]) -> Vec<&str> {
    all.iter().map(|c| c.label.as_str()).collect()
}

/// An example with `from` in it replaced.
fn example(from: &str, to: &str) -> String {
    let text = programs()[1].1;
    assert!(text.contains(from), "{from}");
    text.replacen(from, to, 1)
}

#[test]
fn items() {
    let all = has("$", &["param", "layer", "model", "data", "train", "use", "cluster", "sweep"]);
    assert!(all.iter().all(|c| !c.detail.is_empty()), "{all:?}");
    has("use std.nn.relu\ntr$", &["train"]);
    has(&example("sweep widths", "mo$\nsweep widths"), &["model"]);
    has("param x: $", &["int", "float", "dim", "tokens", "path", "bool"]);
}

#[test]
fn settings_of_the_block_at_hand() {
    let text = example("  optim = AdamW(betas = [0.9, 0.99], decay = 0.1, clip = 1.0)\n", "  o$\n");
    let all = has(&text, &["optim", "seed", "shards", "on"]);
    assert!(!names(&all).contains(&"batch"), "given already: {:?}", names(&all));
    let optim = all.iter().find(|c| c.label == "optim").expect("optim");
    assert_eq!(optim.insert, "optim = ");
    assert!(optim.docs.contains("AdamW(..) or SGD(..)"), "{optim:?}");
    let all = has(&example("batches = 50 }", "$ }"), &["batches"]);
    assert!(!names(&all).contains(&"optim") && !names(&all).contains(&"every"));
    let keep = has(&example("keep = 3,", "k$,"), &["keep"]);
    assert!(keep.iter().any(|c| c.detail.contains("[default: 3]")));
    // The block is not even closed.
    has("train t {\n  model = m\n  ba$", &["batch"]);
    has("data d = text(\"x\") {\n  $", &["tokenizer", "window", "split"]);
}

#[test]
fn values_of_settings() {
    let optim = "optim = AdamW(betas = [0.9, 0.99], decay = 0.1, clip = 1.0)";
    let all = has(&example(optim, "optim = $"), &["AdamW", "SGD"]);
    let sgd = all.iter().find(|c| c.label == "SGD").expect("SGD");
    assert!(sgd.detail.contains("use std.optim.SGD"), "{sgd:?}");
    assert!(!names(&all).contains(&"warmup"));
    has(
        &example("lr    = warmup(to = lr, 100 steps) then", "lr = $ then"),
        &["warmup", "cosine", "lr"],
    );
    has(&example("lr / 10)", "lr / 10) $"), &["then"]);
    assert_eq!(labels(&example("model = gpt, data", "model = $, data")), ["gpt"]);
    has(&example("data = plays", "data = $"), &["plays", "text", "digits"]);
    let batch = has(&example("batch = 64", "batch = $"), &["T", "depth"]);
    assert!(!names(&batch).contains(&"AdamW") && !names(&batch).contains(&"ids"), "{batch:?}");
    let loss = has(&example("cross_entropy(gpt(ids), next)", "$"), &["ids", "next", "gpt"]);
    assert!(!names(&loss).contains(&"optim"));
    let truth = example("batch = 64", "overlap = $");
    assert_eq!(labels(&truth), ["false", "true"]);
    has(&example("until = 5000 steps", "on $"), &["step", "eval.done", "loss.nan", "eval.loss"]);
    has(&example("until = 5000 steps", "on loss(above = 3) => $"), &["stop"]);
}

#[test]
fn faults_and_meshes() {
    let llama = |from: &str, to: &str| {
        let text = programs()[2].1;
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    };
    let slow = "warn(after = 20%) then exclude(after = 10 min)";
    let all = has(&llama(slow, "$"), &["warn", "exclude"]);
    assert!(!names(&all).contains(&"skip") && all.iter().all(|c| !c.docs.is_empty()), "{all:?}");
    has(&llama(slow, "warn(after = 20%) $"), &["then"]);
    has(&llama("shard     { B -> dp, ", "shard     { $ -> dp, "), &["H", "G", "F", "V", "T", "B"]);
    has(&llama("shard     { B -> dp, ", "shard     { B -> $, "), &["dp", "pp", "tp"]);
}

#[test]
fn units_after_a_number() {
    let all = has(&example("until = 5000 steps", "until = 5000 st$"), &["steps", "epochs", "GiB"]);
    assert!(!names(&all).contains(&"step"));
    has(&example("until = 5000 steps", "until = 1 $"), &["step", "epoch", "B tokens"]);
    has(&example("until = 5000 steps", "until = 5000$"), &["steps", "tokens"]);
    assert!(all.iter().find(|c| c.label == "min").expect("min").docs.contains("10 min"));
}

#[test]
fn imports() {
    let modules = has("use std.$", &["nn", "optim", "loss", "data", "models.llama"]);
    assert!(modules.iter().all(|c| !c.detail.is_empty()));
    let nn = has("use std.nn.$", &["Linear", "relu", "softmax"]);
    let linear = nn.iter().find(|c| c.label == "Linear").expect("Linear");
    assert!(linear.detail.contains("[I, O](bias: bool = false)"), "{linear:?}");
    assert!(linear.docs.contains("x W + b"), "{linear:?}");
    let braces = has("use std.nn.{relu, $}", &["Linear", "gelu"]);
    assert!(!names(&braces).contains(&"relu") && !names(&braces).contains(&"nn"));
    has("use std.nn.{relu, Lin$\nmodel m = ", &["Linear"]);
    has("use std.models.$", &["llama"]);
    has("use std.nn\nlayer A[D] {\n  n = nn.$\n}", &["RmsNorm", "Linear"]);
}

#[test]
fn in_layers_and_functions() {
    let values =
        has(&example("= gelu(x @ up) @ down", "= gelu(x @ $"), &["up", "down", "x", "gelu"]);
    let up = values.iter().find(|c| c.label == "up").expect("up");
    // The layer does not parse, so only its words are known.
    assert!(up.detail.is_empty() || up.detail == "[D, F]");
    let values = has(&example("= gelu(x @ up) @ down", "= gelu(x @ $) @ down"), &["up"]);
    assert_eq!(values.iter().find(|c| c.label == "up").expect("up").detail, "[D, F]");
    has(&example("h + mlp(norm2(h))", "h + $"), &["h", "x", "attn", "mlp", "norm1", "einsum"]);
    has(
        &example("softmax(causal(score), over = S)", "softmax(causal(score), over = $)"),
        &["S", "T", "H"],
    );
    has(&example("softmax(causal(score), over = S)", "softmax(causal(score), $)"), &["over"]);
    has(&example("up:   [D, F]", "up:   [D, $]"), &["D", "F"]);
    has(&example("up:   [D, F] ~ normal(0.02)", "up:   [D, F] ~ $"), &["normal", "zeros", "ones"]);
    has(&example("attn  = Attention[D, H]", "attn  = $"), &["Attention", "RmsNorm", "repeat"]);
    has(&example("mlp = Mlp[D, F = 4 * D]", "mlp = Mlp[$]"), &["D", "H", "F = "]);
    has(&example("mlp = Mlp[D, F = 4 * D]", "mlp = Mlp[D, $"), &["F = ", "D"]);
    has(&example("model gpt = Gpt[V = plays.V", "model gpt = Gpt[V = plays.$"), &["V", "rows"]);
    has(&example("assert gpt(ids)", "assert $"), &["gpt", "ids", "edit", "random"]);
}

#[test]
fn arguments() {
    let all = has(&example("decay = 0.1, clip = 1.0)", "$)"), &["decay", "clip", "eps"]);
    let decay = all.iter().find(|c| c.label == "decay").expect("decay");
    assert_eq!((decay.insert.as_str(), decay.detail.as_str()), ("decay = ", "decay: float = 0.01"));
    assert!(!all.iter().any(|c| c.label == "betas" && c.insert == "betas = "));
    has(&example("warmup(to = lr, 100 steps)", "warmup(to = $"), &["lr"]);
}

#[test]
fn nothing_where_nothing_of_the_language_follows() {
    assert!(labels("# a comment $").is_empty());
    assert!(labels("param p: path = \"a$\"").is_empty());
    assert!(labels("param p: path = \"a$").is_empty());
}

#[test]
fn signatures() {
    let of = |from: &str, to: &str| {
        let (analysis, at) = opened(&example(from, to));
        signature(&analysis, at).expect("a signature")
    };
    let s = of("softmax(causal(score), over = S)", "softmax(causal(score), $)");
    assert_eq!(s.label, "softmax(x: f32[.., over], over: axis)");
    assert_eq!((s.active, &s.label[s.arguments[1].clone()]), (Some(1), "over: axis"));
    assert!(s.docs.contains("along an axis"));
    let s = of("clip = 1.0)", "clip = $");
    assert_eq!(&s.label[s.arguments[s.active.expect("active")].clone()], "clip: float = none");
    let s = of("attn  = Attention[D, H]", "attn  = Attention[D, $]");
    assert_eq!((s.label.as_str(), s.active), ("Attention[D, H]", Some(1)));
    let s = of("T](depth)", "T]($)");
    assert_eq!(s.label, "Gpt(depth: int)");
    let (analysis, _) = opened(&format!("{}$", programs()[1].1));
    assert!(signature(&analysis, place(programs()[1].1, "train shake", 0, 0)).is_none());
}
