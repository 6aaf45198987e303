//! The 8B Llama of `examples/llama3d.mon` with its layout, over columns instead of a corpus.
#![allow(dead_code)] // Each test file uses its part.

use super::jobs::checked;
use super::world::Files;
use monarch_check::{TensorFact, hir};
use monarch_diagnostic::{Diagnostic, Style, render};
use monarch_plan::mesh::{MeshReport, Wish, plan};

/// The same as in the example, but for the data.
pub const LLAMA3D: &str = r#"use std.models.llama.Llama
use std.loss.cross_entropy
use std.optim.AdamW
cluster lab {
  nodes  = ["gpu01:7000", "gpu02:7000"]
  device = MI300X { count = 8, memory = 192 GiB }
  link   = { intra = 448 GB/s, inter = 50 GB/s }
}
data web = tensors("words.safetensors")
model llm = Llama[V = 128_256, D = 4096, H = 32, G = 8, F = 14_336, T = 8192](depth = 32)
plan p3d on lab {
  mesh      = { pp = 2, dp = 2, tp = 4 }
  shard     { B -> dp, H -> tp, G -> tp, F -> tp, V -> tp }
  sequence  = tp
  pipeline  { split = llm.blocks, over = pp, schedule = "1f1b", microbatches = 16 }
  zero      { stage = 1, over = dp }
  recompute = [llm.blocks.*.attn]
  offload   = { optimizer = never }
  precision = { weights = bf16, grads = f32, optimizer = f32 }
  overlap   { grads = buckets(64 MiB), tp = true }
}
train pretrain on p3d {
  model = llm, data = web
  loss(ids: i32[B, T], next: i32[B, T]) = cross_entropy(llm(ids), next)
  optim = AdamW(lr = 3e-4, betas = [0.9, 0.95], decay = 0.1, clip = 1.0)
  batch = 512
  until = 1000 steps
}
"#;

/// `text` with each of the lines changed that a pair names by its beginning.
pub fn with(text: &str, changes: &[(&str, &str)]) -> String {
    let mut out = text.to_owned();
    for (from, to) in changes {
        assert!(out.contains(from), "`{from}` is not in the program");
        out = out.replacen(from, to, 1);
    }
    out
}

/// Columns of `tokens` tokens.
pub fn files(text: &str, tokens: u64) -> Files {
    let tensor = |name: &str| TensorFact {
        name: name.into(),
        dtype: "I32".into(),
        shape: vec![1 << 20, tokens],
    };
    let mut files = Files::with("job.mon", text);
    files.tensors = vec![tensor("ids"), tensor("next")];
    files
}

pub fn program(text: &str) -> hir::Program {
    checked(&files(text, 8192), &[])
}

/// The plan of a program that has one, and all that is said about it.
pub fn planned(text: &str) -> (Option<MeshReport>, Vec<Diagnostic>) {
    plan(&program(text), &Wish::default())
}

pub fn report(text: &str) -> MeshReport {
    let (report, diagnostics) = planned(text);
    let shown = shown(text, &diagnostics);
    report.unwrap_or_else(|| panic!("{shown}"))
}

/// All diagnostics as a person reads them.
pub fn shown(text: &str, diagnostics: &[Diagnostic]) -> String {
    let sources = &program(text).sources;
    let texts: Vec<String> =
        diagnostics.iter().map(|d| render(d, sources, Style::default())).collect();
    texts.join("\n")
}
