//! What is said about the thing under the cursor.

mod common;

use common::{Memory, place, programs};
use monarch_ide::hover;

fn said(program: &str, what: &str, n: usize, inside: usize) -> String {
    let (name, text) = programs().into_iter().find(|p| p.0 == program).expect("a program");
    let analysis = Memory::with(name, text).analysis(name);
    let at = place(text, what, n, inside);
    hover(&analysis, at).map_or(String::new(), |h| h.markdown)
}

#[track_caller]
fn holds(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "`{part}` is not in:\n{said}");
    }
}

#[test]
fn params() {
    let width = said("digits.mon", "H = width", 0, 5);
    holds(&width, &["param width: int   = 128  in 16..4096", "Hidden units.", "**value** `128`"]);
    let lr = said("digits.mon", "AdamW(lr)", 0, 7);
    holds(&lr, &["used by `train.", "--lr VALUE"]);
}

#[test]
fn shapes_as_symbols_and_numbers() {
    let score = said("chargpt.mon", "let score", 0, 5);
    holds(&score, &["**shape** `[B, H, T, S]`", "`[B, 6, 256, 256]`", "for each sample", "FLOP"]);
    let up = said("chargpt.mon", "x @ up)", 0, 2);
    holds(&up, &["`[B, T, F]` = `[B, 256, 1536]`", "`F = 4 * D = 1536`", "FLOP forward"]);
    let arg = said("chargpt.mon", "gelu(x @ up)", 0, 5);
    holds(&arg, &["`[B, T, D]`", "`D = 384`"]);
}

#[test]
fn weights_layers_and_models() {
    let qkv = said("chargpt.mon", "qkv: [", 0, 1);
    holds(&qkv, &["`[3, D, H, K]` = `[3, 384, 6, 64]`", "442,368 elements, 1.69 MiB"]);
    holds(&qkv, &["6 copies in `gpt` (`blocks.0.attn.qkv`, ..)"]);
    let block = said("chargpt.mon", "layer Block", 0, 7);
    holds(&block, &["layer Block[D, H]", "`D = 384, H = 6`", "6 copies in `gpt`"]);
    let attn = said("chargpt.mon", "attn  = Attention", 0, 1);
    holds(&attn, &["attn  = Attention[D, H]", "layer Attention[D, H]", "FLOP forward"]);
    let gpt = said("chargpt.mon", "model gpt", 0, 7);
    holds(&gpt, &["39 weights", "MiB", "GFLOP forward for each sample"]);
    let train = said("chargpt.mon", "train shakespeare", 0, 8);
    holds(&train, &["5,000 steps of 64 samples, in 8 shards"]);
}

#[test]
fn sizes_and_axes() {
    let k = said("chargpt.mon", "K    = D / H", 0, 0);
    holds(&k, &["`K = D / H = 64`"]);
    let f = said("chargpt.mon", "layer Mlp[D, F]", 0, 13);
    holds(&f, &["axis of Mlp", "`F = 4 * D = 1536`"]);
    let b = said("chargpt.mon", "forward(x: [B", 0, 12);
    holds(&b, &["free axis"]);
}

#[test]
fn library_and_registry() {
    let softmax = said("chargpt.mon", "softmax(causal", 0, 2);
    holds(
        &softmax,
        &["op softmax(x: f32[.., over], over: axis)", "exp(x) / sum(exp(x))", "std.nn"],
    );
    let batch = said("chargpt.mon", "batch = 64", 0, 1);
    holds(&batch, &["**train.batch**", "Size of one step"]);
    let keep = said("chargpt.mon", "keep = 3", 0, 1);
    holds(&keep, &["**checkpoint.keep**", "default `3`"]);
    let eval = said("chargpt.mon", "eval       {", 0, 1);
    holds(&eval, &["eval", "every sample of the `eval` split"]);
    let einsum = said("chargpt.mon", "einsum[B T D", 0, 1);
    holds(&einsum, &["Products summed over the axes"]);
    let adam = said("chargpt.mon", "AdamW(betas", 0, 1);
    holds(&adam, &["Adam with decoupled"]);
    assert!(!adam.contains("Optimizers and schedules"), "the docs of the file: {adam}");
    let module = said("chargpt.mon", "std.nn", 0, 5);
    holds(&module, &["**std.nn**", "layer Linear"]);
}

#[test]
fn units_and_codes() {
    let time = said("chargpt.mon", "10 min", 0, 1);
    holds(&time, &["**10 min**: a time", "600 seconds"]);
    let tokens = said("llama3d.mon", "20B tokens", 0, 1);
    holds(&tokens, &["a number of tokens", "20,000,000,000 tokens"]);
    let gib = said("llama3d.mon", "192 GiB", 0, 5);
    holds(&gib, &["192 GiB, 206,158,430,208 bytes"]);
    let code = said("llama3d.mon", "rejects M0312", 0, 10);
    assert_eq!(code.is_empty(), monarch_diagnostic::page("M0312").is_none(), "{code}");
}

#[test]
fn a_program_with_errors_still_says_what_it_knows() {
    let text = "use std.nn.relu\nparam D: dim = 8\nlayer A[D, F] {\n  w: [D, F] ~ ones\n  \
                forward(x: [B, D]) -> [B, F] = relu(x @ w)\n}\n\
                model m = A[D, F = 3]\ntrain t { modl = m }\n";
    let analysis = Memory::with("job.mon", text).analysis("job.mon");
    assert!(analysis.inspected.checked.program.is_none());
    let about = |what, n, inside| {
        hover(&analysis, place(text, what, n, inside)).map_or(String::new(), |h| h.markdown)
    };
    holds(&about("w: [D", 0, 0), &["`[D, F]` = `[8, 3]`", "24 elements, 96 bytes"]);
    holds(&about("x @ w", 0, 2), &["`[B, F]`"]);
    holds(&about("relu(x", 0, 1), &["max(x, 0)"]);
    holds(&about("D, F = 3", 0, 0), &["**value** `8`"]);
    holds(&about("modl = m", 0, 1), &["**M0101**", "`monarch explain M0101`"]);
}
