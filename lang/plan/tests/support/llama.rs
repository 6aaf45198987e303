//! Llama 3.2 1B as facts: `examples/lora.mon` can be planned without its files.
#![allow(dead_code)] // Each test file uses its part.

use monarch_check::{Declared, RecordFacts, TensorFact};

/// The tensors of a Llama as Hugging Face stores it, with a tied head.
pub fn tensors(v: u64, d: u64, kv: u64, f: u64, depth: u64) -> Vec<TensorFact> {
    let fact = |name: String, shape: &[u64]| TensorFact {
        name,
        dtype: "BF16".into(),
        shape: shape.to_vec(),
    };
    let mut out = vec![
        fact("model.embed_tokens.weight".into(), &[v, d]),
        fact("model.norm.weight".into(), &[d]),
    ];
    for i in 0..depth {
        for (name, shape) in [
            ("input_layernorm", vec![d]),
            ("post_attention_layernorm", vec![d]),
            ("self_attn.q_proj", vec![d, d]),
            ("self_attn.k_proj", vec![kv, d]),
            ("self_attn.v_proj", vec![kv, d]),
            ("self_attn.o_proj", vec![d, d]),
            ("mlp.gate_proj", vec![f, d]),
            ("mlp.up_proj", vec![f, d]),
            ("mlp.down_proj", vec![d, f]),
        ] {
            out.push(fact(format!("model.layers.{i}.{name}.weight"), &shape));
        }
    }
    out
}

/// What `config.json` of Llama 3.2 1B says.
pub const CONFIG: &str = r#"{
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "head_dim": 64,
  "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 8192,
  "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
  "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
  "rms_norm_eps": 1e-05, "rope_scaling": { "factor": 32.0, "high_freq_factor": 4.0,
  "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3" },
  "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "vocab_size": 128256 }"#;

/// The files that `examples/lora.mon` names, beside the program `lora.mon`: the model, and 10,000
/// samples of tickets. The hash is the one that the program asks for.
pub fn world(program: &str) -> Declared {
    let dir = "models/Llama-3.2-1B";
    let weights = format!("{dir}/model.safetensors");
    let mut sha256 = [0; 32];
    sha256[..4].copy_from_slice(&[0xa5, 0xc1, 0xd0, 0x77]);
    Declared::new()
        .text("lora.mon", program)
        .tensors(&weights, tensors(128_256, 2048, 512, 8192, 16))
        .sha256(&weights, sha256)
        .text(&format!("{dir}/config.json"), CONFIG)
        .text(&format!("{dir}/tokenizer.json"), "{}")
        .records("tickets.jsonl", RecordFacts { samples: 10_000, vocabulary: Some(128_256) })
}
