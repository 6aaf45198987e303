//! The four programs with reference values are checked against the files beside them.

mod common;

use common::{Memory, shown};
use monarch_check::{TensorFact, hir};
use monarch_graph::{Curve, Init, OptimizerKind, Order, Source};

fn folder() -> String {
    format!("{}/../../tests/fixtures", env!("CARGO_MANIFEST_DIR"))
}

/// Names, types and shapes of a safetensors file, from its header.
fn header(name: &str) -> Vec<TensorFact> {
    let bytes = std::fs::read(format!("{}/{name}", folder())).expect("the fixture is there");
    let length = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
    let json: serde_json::Value = serde_json::from_slice(&bytes[8..8 + length]).expect("json");
    let all = json.as_object().expect("an object").iter();
    let all = all.filter(|(name, _)| *name != "__metadata__");
    all.map(|(name, entry)| TensorFact {
        name: name.clone(),
        dtype: entry["dtype"].as_str().expect("a type").to_owned(),
        shape: serde_json::from_value(entry["shape"].clone()).expect("a shape"),
    })
    .collect()
}

fn checked(name: &str) -> hir::Program {
    let program = std::fs::read_to_string(format!("{}/{name}.mon", folder())).expect("a program");
    let mut world = Memory::with(&format!("{name}.mon"), &program);
    for part in ["init", "data"] {
        let file = format!("{name}.{part}.safetensors");
        world.tensors.insert(file.clone(), header(&file));
    }
    let checked = world.check(&format!("{name}.mon"));
    let text = shown(&checked);
    assert!(checked.diagnostics.is_empty(), "{text}");
    checked.program.expect("a program without a complaint")
}

#[test]
fn mlp_sgd() {
    let program = checked("mlp_sgd");
    let job = program.job.expect("a job");
    let kind = OptimizerKind::Sgd { momentum: 0.9, decay: 1e-4, nesterov: false };
    assert_eq!(job.optimizer.kind, kind);
    assert_eq!(job.optimizer.clip, None);
    assert_eq!(job.schedule.pieces[0].curve, Curve::Constant(0.1));
    assert_eq!((job.batch, job.steps, job.rows, job.shards), (64, 20, 1280, 8));
    assert!(matches!(job.data.source, Source::Tensors { .. }));
    assert_eq!(job.data.order, Order::File);
    let names: Vec<&str> = program.models[0].weights.iter().map(|w| w.name.as_str()).collect();
    assert_eq!(names, ["up.w", "up.b", "down.w", "down.b"]);
    let init = &program.models[0].weights[0].init;
    let (path, name) = ("mlp_sgd.init.safetensors".into(), "up.w".into());
    let file = Init::File { path, name, transpose: false };
    assert_eq!(*init, file);
}

#[test]
fn mlp_adamw() {
    let job = checked("mlp_adamw").job.expect("a job");
    let kind = OptimizerKind::AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-8, decay: 0.01 };
    assert_eq!(job.optimizer.kind, kind);
    assert_eq!(job.schedule.at(7), 1e-3);
}

/// The learning rates that the reference used.
#[test]
fn gpt_adamw() {
    let program = checked("gpt_adamw");
    let job = program.job.expect("a job");
    assert_eq!(job.optimizer.clip, Some(1.0));
    let text = std::fs::read_to_string(format!("{}/gpt_adamw.json", folder())).expect("json");
    let json: serde_json::Value = serde_json::from_str(&text).expect("json");
    for (step, want) in json["lr"].as_array().expect("a list").iter().enumerate() {
        let (want, have) = (want.as_f64().expect("a number"), job.schedule.at(step as u64));
        assert!((want - have).abs() < 1e-15, "step {step}: {have} is not {want}");
    }
    assert_eq!(job.tokens_per_sample, 16);
    let qkv = program.models[0].weights.iter().find(|w| w.name == "blocks.1.attn.qkv");
    assert_eq!(qkv.expect("a weight").shape, [3, 32, 4, 8]);
    assert_eq!(qkv.expect("a weight").axes, ["3", "D", "H", "K"]);
}

#[test]
fn llama_adamw() {
    let program = checked("llama_adamw");
    let job = program.job.expect("a job");
    assert!(job.loss.weight.is_some(), "weighted targets");
    assert_eq!(program.models[0].weights.len(), 3 + 2 * 9);
}
