//! Definition, references, quick fixes, hints, outline.

mod common;

use common::{Memory, opened, place, programs};
use monarch_ide::index::Kind;
use monarch_ide::rename::apply;
use monarch_ide::{Analysis, definition, fix_all, fixes, hints, references, symbols};

fn example(n: usize) -> (Analysis, &'static str) {
    let (name, text) = programs()[n];
    (Memory::with(name, text).analysis(name), text)
}

/// File and first line of the definition of what stands at a place.
fn leads(analysis: &Analysis, text: &str, what: &str, n: usize, inside: usize) -> String {
    let link = definition(analysis, place(text, what, n, inside)).expect("a definition");
    let key = analysis.file_key(link.name.file).unwrap_or("?");
    format!("{key}: {}", analysis.slice(link.whole).lines().next().unwrap_or(""))
}

#[test]
fn definitions_here_and_in_the_library() {
    let (a, text) = example(1);
    assert_eq!(
        leads(&a, text, "gelu(x @", 0, 1),
        "std.nn: ## x * Phi(x), with the exact normal distribution function."
    );
    let norm = leads(&a, text, "= RmsNorm[D]", 0, 4);
    assert!(norm.starts_with("std.nn: "), "{norm}");
    assert_eq!(leads(&a, text, "over = S", 0, 7), "chargpt.mon: S");
    assert_eq!(leads(&a, text, "F = 4 * D", 0, 0), "chargpt.mon: F");
    assert_eq!(leads(&a, text, "attn(norm1", 0, 1), "chargpt.mon: attn  = Attention[D, H]");
    assert_eq!(leads(&a, text, "attn(norm1", 0, 6), "chargpt.mon: norm1 = RmsNorm[D]");
    assert_eq!(leads(&a, text, "down: [F", 0, 7), "chargpt.mon: F");
    assert_eq!(leads(&a, text, "sqrt(2 * depth", 0, 9), "chargpt.mon: param depth:  int   = 6");
    assert_eq!(
        leads(&a, text, "gpt(ids), next", 0, 1),
        "chargpt.mon: model gpt = Gpt[V = plays.V, D, H, T](depth)"
    );
    assert_eq!(leads(&a, text, "gpt(ids), next", 0, 4), "chargpt.mon: ids: i32[B, T]");
    let lr = leads(&a, text, "warmup(to = lr", 0, 12);
    assert_eq!(lr, "chargpt.mon: param lr:     float = 1e-3");
    assert!(leads(&a, text, "warmup(to = lr", 0, 7).starts_with("std.optim: to: float"));
    assert_eq!(leads(&a, text, "normal(0.02)", 0, 1).split(':').next(), Some("std.init"));
    let (a, text) = example(0);
    // The axis of the model that the metric calls.
    assert_eq!(leads(&a, text, "over = C", 0, 7), "digits.mon: C");
    assert!(leads(&a, text, "eval.accuracy", 0, 6).starts_with("digits.mon: accuracy(x"));
    let (a, text) = example(2);
    assert!(leads(&a, text, "on p3d", 0, 3).starts_with("llama3d.mon: plan p3d"));
    assert_eq!(leads(&a, text, "sequence  = tp", 0, 12), "llama3d.mon: tp = 4");
    assert!(leads(&a, text, "llm.blocks,", 0, 5).starts_with("std.models.llama: blocks ="));
    assert!(leads(&a, text, "llm.blocks.*.attn", 0, 14).starts_with("std.models.llama: attn"));
}

#[test]
fn uses() {
    let (a, text) = example(1);
    let all = references(&a, place(text, "layer Mlp[D, F]", 0, 13), true);
    let slices: Vec<&str> = all.iter().map(|s| a.slice(*s)).collect();
    assert_eq!(slices, ["F", "F", "F", "F"], "header, two weights, `F = 4 * D`");
    let uses = references(&a, place(text, "param lr", 0, 6), false);
    assert_eq!(uses.len(), 3, "warmup, cosine, sweep");
    assert!(references(&a, 0, true).is_empty());
    let relu = references(&a, place(text, "causal(score)", 0, 1), false);
    assert_eq!(relu.iter().filter(|s| s.file == 0).count(), 2, "import and call");
}

#[test]
fn quick_fixes() {
    let (a, at) = opened(
        "use std.nn.relu\nparam n: int = 3\nmodel m = A[4]\nlayer A[D] {\n  \
         w: [D] ~ ones\n  forward(x: [B, D]) -> [B, D] = rleu(x) * w$\n}\n",
    );
    let text = a.text().to_owned();
    let rleu = place(&text, "rleu", 0, 1);
    let all = fixes(&a, rleu, rleu);
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(all[0].title, "Change `rleu` to `relu`");
    assert!(all[0].preferred);
    assert!(fixes(&a, at - 60, at - 60).is_empty());
    let fixed = apply(&a, &all[0].edits)["job.mon"].clone();
    let after = Memory::with("job.mon", &fixed).analysis("job.mon");
    assert!(after.inspected.checked.diagnostics.iter().all(|d| d.code != "M0106"));
}

#[test]
fn all_fixes_at_once() {
    let text = "train t {\n  modle = m\n  lrr = 1e-3\n  batch = 2B\n}\nmodel m = A[D = 3]\n\
                layer A[D] {\n  forward(x: [B, D]) -> [B, D] = x\n}\n";
    let (a, _) = opened(&format!("{text}$"));
    let edits = fix_all(&a);
    let fixed = apply(&a, &edits)["job.mon"].clone();
    assert!(fixed.contains("  model = m\n  lr = 1e-3\n"), "{fixed}");
    // Of three ways out of `2B` none is taken.
    assert!(fixed.contains("batch = 2B\n"), "{fixed}");
}

#[test]
fn hints_of_shapes_and_numbers() {
    let (a, text) = example(1);
    let all = hints(&a, 0, text.len());
    let shown: Vec<String> = all
        .iter()
        .map(|h| {
            let line = text[..h.offset].rsplit('\n').next().unwrap_or("");
            format!("{line}«{}»", h.text)
        })
        .collect();
    let wanted = [
        "  K    = D / H« = 64»",
        "    let [q, k, v« : [B, T, H, K] each»",
        "    let score« : [B, H, T, S]»",
        "    let h« : [B, T, D]»",
    ];
    for line in wanted {
        let line = line.replace("« :", "«:");
        assert!(shown.contains(&line), "{line} is not in {shown:#?}");
    }
    let (a, text) = example(0);
    let part = hints(&a, 0, text.len());
    assert!(part.windows(2).all(|w| w[0].offset <= w[1].offset));
    let (a, at) = opened("param D: dim = 8\nlet width = 4 * D$\n");
    assert_eq!(hints(&a, 0, at)[0].text, " = 32");
}

#[test]
fn tokens_in_steps() {
    let text = programs()[1].1.replace("until = 5000 steps", "until = 82M tokens");
    let a = Memory::with("job.mon", &text).analysis("job.mon");
    let at = place(&text, "82M tokens", 0, 10);
    let all = hints(&a, at, at);
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(all[0].text.starts_with(" = 5,004.88 steps"), "{all:?}");
}

#[test]
fn outline() {
    let (a, _) = example(1);
    let tree = &a.inspected.files[0].tree;
    let all = symbols(tree, &|span| a.slice(span));
    let top: Vec<&str> = all.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(top[..8], ["corpus", "depth", "D", "H", "T", "lr", "plays", "Attention"]);
    let attention = &all[7];
    let inner: Vec<&str> = attention.children.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(inner, ["K", "qkv", "out", "forward"]);
    assert_eq!((attention.kind, attention.detail.as_str()), (Kind::Layer, "[D, H]"));
    for s in all.iter().chain(all.iter().flat_map(|s| &s.children)) {
        assert!(s.whole.start <= s.name_span.start && s.name_span.end <= s.whole.end, "{s:?}");
    }
}
