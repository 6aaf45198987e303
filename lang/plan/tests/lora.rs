//! Adapters on Llama 3.2 1B, planned from facts.

mod support;

use monarch_check::{Declared, pins};
use monarch_graph::{Float, Op};
use monarch_plan::{Facts, plan};
use support::llama;

/// `examples/lora.mon` without what is not about the model and its data.
fn program() -> String {
    let path = format!("{}/../../examples/lora.mon", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("the example");
    let about =
        |line: &&str| !["hooks/", "checkpoint {", "on eval.done"].iter().any(|w| line.contains(w));
    text.lines().filter(about).collect::<Vec<_>>().join("\n")
}

#[test]
fn only_adapters_are_trained() {
    let text = program();
    let world = llama::world(&text);
    let checked = monarch_check::check(&world, "lora.mon", &[], &[]);
    let errors: Vec<_> = checked.diagnostics.iter().filter(|d| d.is_error()).collect();
    assert!(errors.is_empty() && checked.absent.is_empty(), "{errors:?}");
    let program = checked.program.expect("a program");
    assert!(pins::verify(&world, &program).is_empty());
    let (planned, diagnostics) = plan(&program, &Facts::default());
    let (plan, report) = planned.unwrap_or_else(|| panic!("{diagnostics:?}"));
    // 128256 * 2048 + 16 * (2 * 2048^2 + 2 * 2048 * 512 + 3 * 2048 * 8192 + 2 * 2048) + 2048
    let base: u64 = plan.weights.iter().filter(|w| !w.adapter).map(|w| w.elements()).sum();
    assert_eq!(base, 1_235_814_400);
    // A [2048, 16] and B [16, 2048] for q, A [2048, 16] and B [16, 512] for v, in 16 blocks.
    let adapters: u64 = plan.weights.iter().filter(|w| w.adapter).map(|w| w.elements()).sum();
    assert_eq!(adapters, 16 * 16 * (2048 + 2048 + 2048 + 512));
    assert_eq!((report.parameters, report.trainable), (base + adapters, adapters));
    for (weight, gradient) in plan.weights.iter().zip(&plan.train.gradients) {
        assert_eq!(gradient.is_some(), weight.adapter, "{}", weight.name);
        assert_eq!(weight.trainable, weight.adapter);
        assert_eq!(weight.stored, if weight.adapter { Float::F32 } else { Float::Bf16 });
    }
    let nodes = || plan.train.program.graph.nodes.iter();
    let forward = plan.train.forward as usize;
    let drops = nodes().take(forward).filter(|n| matches!(n.op, Op::Dropout { .. })).count();
    assert_eq!(drops, 32);
    // Sequences of 2048 tokens, 2 a micro-batch, 8 of them; 9,500 to train on.
    assert_eq!((plan.batch, plan.shards, plan.split("train").map(|s| s.end)), (16, 8, Some(9500)));
    assert_eq!(plan.steps, 3 * 594);
    let stretched = nodes().filter(|n| {
        matches!(n.op, Op::Rope { angles, .. } if angles.stretch.is_some_and(|s| s.factor == 32.0))
    });
    assert!(stretched.count() >= 32);
}

/// As a person should see it.
#[test]
fn a_layer_by_its_name_in_the_checkpoint() {
    let text = program().replace("blocks.*.attn.q, blocks.*.attn.v", "blocks.*.attn.q_proj");
    let checked = monarch_check::check(&llama::world(&text), "lora.mon", &[], &[]);
    let errors: Vec<_> = checked.diagnostics.iter().filter(|d| d.is_error()).collect();
    let [error] = errors.as_slice() else { panic!("{errors:?}") };
    assert_eq!(error.code, "M0107");
    assert_eq!(error.title, "`blocks.*.attn.q_proj` matches none of 112 layers");
    assert_eq!(error.labels[0].text, "no match");
    let help = "did you mean `blocks.*.attn.q` (16 layers)? `q_proj` is its name in the checkpoint";
    assert_eq!(error.help[0].text, help);
    assert_eq!(error.help[0].edits[0].replacement, "blocks.*.attn.q");
}

#[test]
fn hashes_are_compared_by_whoever_plans() {
    let text = program();
    let world = llama::world(&text).sha256("models/Llama-3.2-1B/model.safetensors", [9; 32]);
    let checked = monarch_check::check(&world, "lora.mon", &[], &[]);
    let found = pins::verify(&world, &checked.program.expect("a program"));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].code, "M0609");
    let right = format!("\"{}\"", "09".repeat(32));
    assert_eq!(found[0].help[0].edits[0].replacement, right);
}

/// A head that is not tied, and heads that the shapes alone do not tell.
#[test]
fn sizes_come_from_shapes() {
    let mut tensors = llama::tensors(100, 32, 16, 48, 3);
    let head = monarch_check::TensorFact {
        name: "lm_head.weight".into(),
        dtype: "F16".into(),
        shape: vec![100, 32],
    };
    tensors.push(head);
    let text = "use std.models.llama.{Llama, hf_names}\n\
                model m = Llama[H = 4, T = 9].load(\"w.safetensors\") { names = hf_names }\n";
    let world = Declared::new().text("job.mon", text).tensors("w.safetensors", tensors);
    let checked = monarch_check::check(&world, "job.mon", &[], &[]);
    let program = checked.program.unwrap_or_else(|| panic!("{:?}", checked.diagnostics));
    // V, D, H, G, F, T, depth
    assert_eq!(program.models[0].root.sizes, [100, 32, 4, 2, 48, 9, 3]);
    assert_eq!(program.models[0].weights.len(), 3 + 3 * 9);
}
