//! Jobs to plan, and inputs for their programs.
#![allow(dead_code)] // Each test file uses its part.

use super::Rng;
use super::world::Files;
use monarch_check::{TensorFact, hir};
use monarch_device::reference::{Tensor, TensorData};
use monarch_diagnostic::Diagnostic;
use monarch_graph::{Column, DType, Plan};
use monarch_plan::{Facts, Report, plan};

pub const DIGITS: &str = include_str!("../../../../examples/digits.mon");
pub const CHARGPT: &str = include_str!("../../../../examples/chargpt.mon");

pub const LLAMA: &str = r#"
use std.models.llama.Llama
use std.loss.cross_entropy
use std.optim.AdamW
data words = tensors("words.safetensors", order = file)
model llm = Llama[V = 11, D = 8, H = 4, G = 2, F = 12, T = 6](depth = 2)
train words_model {
  model = llm, data = words
  loss(ids: i32[B, T], next: i32[B, T], weight: f32[B, T]) =
    cross_entropy(llm(ids), next, weight)
  optim = AdamW(lr = 1e-3)
  batch = 12
  until = 4 steps
}
"#;

/// Every operation of the library, in small.
pub const MIXED: &str = r#"
use std.nn.{Linear, LayerNorm, RmsNorm, gelu, relu, silu, softmax, causal, rope, layer_norm}
use std.loss.cross_entropy
use std.optim.{SGD, cosine, warmup}
data words = tensors("words.safetensors", order = file)
layer Mix[V, D, H, T](flag: bool = true) {
  K    = D / H
  tok: [V, D] ~ normal(0.02)
  qk:  [2, D, H, K] ~ uniform(0.1)
  o:   [H * K, D] ~ normal(0.02 / sqrt(2 * H))
  norm = LayerNorm[D], up = Linear[D, V](bias = flag)
  forward(ids: i32[B, T], weight: f32[B, T]) -> [B, T, V] {
    let x = norm(tok[ids])
    let [q, k] = einsum[B T D, N D H K -> N B T H K](x, qk)
    let turned = rope(q, over = T)
    let score = einsum[B T H K, B S H K -> B H T S](turned, k) / sqrt(K)
    let mix = softmax(causal(score), over = S)
    let heads = einsum[B H T S, B S H K -> B T H K](mix, k)
    let y = rearrange[B T H K -> B T (H K)](heads) @ o
    let gate = silu(y) * relu(x) - abs(x) / 2 + square(tanh(y)) * exp(-x)
    let flat = mean(gate, over = D) * weight + max(gate, over = D)
    let scale = rsqrt(square(sum(flat, over = T)) + 1) + log(float(argmax(flat, over = T)) + 1)
    let by = einsum[B, B T -> B T](scale, sigmoid(flat))
    einsum[B T, B T V -> B T V](by, up(layer_norm(gelu(gate) + x)))
  }
}
model mixed = Mix[V = 11, D = 8, H = 2, T = 6]
train all_ops {
  model = mixed, data = words
  loss(ids: i32[B, T], next: i32[B, T], weight: f32[B, T]) =
    cross_entropy(mixed(ids, weight), next, weight)
  optim = SGD(momentum = 0.9)
  lr = warmup(to = 0.1, 1 steps) then cosine(to = 0)
  batch = 12
  until = 3 steps
}
"#;

pub fn checked(files: &Files, overrides: &[(&str, &str)]) -> hir::Program {
    let given: Vec<(String, String)> =
        overrides.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
    let checked = monarch_check::check(files, "job.mon", &given, &[]);
    let errors: Vec<&Diagnostic> = checked.diagnostics.iter().filter(|d| d.is_error()).collect();
    checked.program.unwrap_or_else(|| panic!("{errors:#?}"))
}

pub fn files(text: &str) -> Files {
    let tensor = |name: &str, dtype: &str| TensorFact {
        name: name.into(),
        dtype: dtype.into(),
        shape: vec![48, 6],
    };
    let mut files = Files::with("job.mon", text);
    files.tensors = vec![tensor("ids", "I32"), tensor("next", "I32"), tensor("weight", "F32")];
    files
}

pub fn planned(text: &str, overrides: &[(&str, &str)], facts: &Facts) -> (Plan, Report) {
    let (made, diagnostics) = plan(&checked(&files(text), overrides), facts);
    made.unwrap_or_else(|| panic!("{diagnostics:#?}"))
}

pub const SMALL_GPT: [(&str, &str); 4] = [("depth", "2"), ("D", "8"), ("H", "2"), ("T", "5")];

pub fn all_programs() -> [(&'static str, Plan); 4] {
    let facts = Facts::default();
    [
        ("digits", planned(DIGITS, &[("width", "16")], &facts).0),
        ("chargpt", planned(CHARGPT, &SMALL_GPT, &facts).0),
        ("llama", planned(LLAMA, &[], &facts).0),
        ("mixed", planned(MIXED, &[], &facts).0),
    ]
}

/// Random weights and columns for a program, with ids in their ranges.
pub fn random_inputs(plan: &Plan, columns: &[Column], samples: u64) -> (Vec<Tensor>, Vec<Tensor>) {
    let mut rng = Rng::new(11);
    let mut floats = |shape: &[usize]| {
        let data = rng.floats(shape.iter().product());
        Tensor::floats(shape, data)
    };
    let weights = plan
        .weights
        .iter()
        .map(|w| floats(&w.shape.iter().map(|&n| n as usize).collect::<Vec<_>>()))
        .collect();
    let mut tensors = Vec::new();
    for column in columns {
        let mut shape = vec![samples as usize];
        shape.extend(column.shape.iter().map(|&n| n as usize));
        tensors.push(match column.dtype {
            DType::F32 => floats(&shape),
            DType::I32 => {
                let n: usize = shape.iter().product();
                let below = column.below.unwrap_or(10);
                let mut ids = Rng::new(n as u64);
                Tensor::ints(&shape, (0..n).map(|_| ids.below(0, below) as i64).collect())
            }
        });
    }
    (weights, tensors)
}

/// Samples `start..end` of each column.
pub fn cut(columns: &[Tensor], start: usize, end: usize) -> Vec<Tensor> {
    let part = |t: &Tensor| {
        let row: usize = t.shape[1..].iter().product();
        let mut shape = t.shape.clone();
        shape[0] = end - start;
        let range = start * row..end * row;
        match &t.data {
            TensorData::F64(v) => Tensor::floats(&shape, v[range].to_vec()),
            TensorData::I64(v) => Tensor::ints(&shape, v[range].to_vec()),
        }
    };
    columns.iter().map(part).collect()
}
