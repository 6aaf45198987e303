//! Adapters on a small Llama that lies there as Hugging Face leaves one, and files of tokens.

use crate::support::tensors::{bytes_of_f32, write};
use crate::support::{Outcome, Place, Tensors, root, swap};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

const V: usize = 262;
const D: usize = 16;
const F: usize = 24;
const BLOCKS: usize = 2;

/// Made-up numbers, the same each time.
fn noise(seed: u64, n: usize, scale: f32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 40) as f32 / (1u64 << 24) as f32 - 0.5) * scale
    };
    (0..n).map(|_| next()).collect()
}

/// A tensor of the checkpoint, its name and shape there, and ours.
struct Part {
    theirs: String,
    ours: String,
    /// Rows and columns in the file; one length for a gain.
    shape: Vec<u64>,
    transposed: bool,
    values: Vec<f32>,
}

fn parts() -> Vec<Part> {
    let mut out: Vec<Part> = Vec::new();
    let mut add = |theirs: String, ours: String, shape: &[usize], transposed: bool| {
        let n = shape.iter().product();
        let seed = out.len() as u64 + 1;
        let values = match shape.len() {
            1 => noise(seed, n, 0.2).iter().map(|x| 1.0 + x).collect(),
            _ => noise(seed, n, 0.6),
        };
        let shape = shape.iter().map(|n| *n as u64).collect();
        out.push(Part { theirs, ours, shape, transposed, values });
    };
    add("model.embed_tokens.weight".into(), "tok".into(), &[V, D], false);
    for i in 0..BLOCKS {
        let mut block = |theirs: &str, ours: &str, shape: &[usize]| {
            let theirs = format!("model.layers.{i}.{theirs}.weight");
            add(theirs, format!("blocks.{i}.{ours}"), shape, shape.len() == 2);
        };
        block("input_layernorm", "norm1.w", &[D]);
        block("post_attention_layernorm", "norm2.w", &[D]);
        block("self_attn.q_proj", "attn.q", &[D, D]);
        block("self_attn.k_proj", "attn.k", &[D / 2, D]);
        block("self_attn.v_proj", "attn.v", &[D / 2, D]);
        block("self_attn.o_proj", "attn.o", &[D, D]);
        block("mlp.gate_proj", "mlp.gate", &[F, D]);
        block("mlp.up_proj", "mlp.up", &[F, D]);
        block("mlp.down_proj", "mlp.down", &[D, F]);
    }
    add("model.norm.weight".into(), "norm.w".into(), &[D], false);
    out
}

/// The nearest bf16, ties to even.
fn bf16(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
}

/// What a weight must be in memory: ours, turned, rounded.
fn expected() -> BTreeMap<String, Vec<f32>> {
    let turned = |p: &Part| match (p.transposed, p.shape.as_slice()) {
        (true, &[rows, columns]) => {
            let (n, m) = (rows as usize, columns as usize);
            (0..m * n).map(|i| p.values[i % n * m + i / n]).collect()
        }
        _ => p.values.clone(),
    };
    let rounded = |values: Vec<f32>| values.into_iter().map(bf16).collect();
    parts().iter().map(|p| (p.ours.clone(), rounded(turned(p)))).collect()
}

/// Two files, one in F32 and one in BF16, with a configuration and a tokenizer.
fn checkpoint(place: &Place) {
    std::fs::create_dir(place.file("model")).expect("a folder");
    let all = parts();
    let (first, second) = all.split_at(all.len() / 2);
    let f32s: Vec<_> = first
        .iter()
        .map(|p| (&*p.theirs, "F32", &*p.shape, bytes_of_f32(p.values.iter().copied())))
        .collect();
    write(&place.file("model/model-00001-of-00002.safetensors"), &f32s);
    let half = |x: &f32| ((bf16(*x).to_bits() >> 16) as u16).to_le_bytes();
    let bf16s: Vec<_> = second
        .iter()
        .map(|p| (&*p.theirs, "BF16", &*p.shape, p.values.iter().flat_map(half).collect()))
        .collect();
    write(&place.file("model/model-00002-of-00002.safetensors"), &bf16s);
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "hidden_size": D,
        "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0, "tie_word_embeddings": true, "rope_scaling": {
            "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32, "rope_type": "llama3",
        },
        "vocab_size": V, "num_hidden_layers": BLOCKS,
    });
    place.write("model/config.json", config.to_string());
    place.write("model/tokenizer.json", tokenizer().to_string());
}

/// All bytes, two merges, and the marks of Llama 3.
fn tokenizer() -> Value {
    let mut vocabulary = Map::new();
    let mut next = 256u32;
    for byte in 0..=255u8 {
        let seen = matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
        let code = if seen { u32::from(byte) } else { next };
        next += u32::from(!seen);
        vocabulary.insert(char::from_u32(code).expect("a character").to_string(), json!(byte));
    }
    vocabulary.insert("th".into(), json!(256));
    vocabulary.insert("the".into(), json!(257));
    let marks = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"];
    let added = marks.iter().enumerate();
    let added: Vec<Value> =
        added.map(|(i, m)| json!({ "id": 258 + i, "content": m, "special": true })).collect();
    json!({
        "added_tokens": added,
        "pre_tokenizer": { "type": "ByteLevel", "add_prefix_space": false, "use_regex": true },
        "model": { "type": "BPE", "vocab": vocabulary, "merges": ["t h", "th e"] },
    })
}

fn tickets(place: &Place) {
    let words = ["printer", "screen", "mouse", "router", "battery"];
    let mut text = String::new();
    for i in 0..60 {
        let thing = words[i % words.len()];
        let record = json!({
            "prompt": format!("The {thing} is broken ({i})"),
            "answer": format!("Restart the {thing}."),
        });
        text.push_str(&format!("{record}\n"));
    }
    place.write("tickets.jsonl", text);
}

/// `examples/lora.mon` on the small model.
fn program() -> String {
    let path = root().join("examples/lora.mon");
    let text = std::fs::read_to_string(path).expect("the example");
    let text = swap(&text, "models/Llama-3.2-1B/*.safetensors", "model/*.safetensors");
    let line = |part: &str| {
        let found = text.lines().find(|l| l.contains(part));
        found.unwrap_or_else(|| panic!("no line with {part}")).to_owned()
    };
    let (hash, hooks, on) = (line("sha256 = "), line("use \"hooks"), line("on eval.done"));
    let saving = line("checkpoint {");
    let text = swap(&swap(&swap(&text, &hash, ""), &hooks, ""), &on, "");
    let text = swap(&text, &saving, "  checkpoint { every = 7 steps, keep = 100 }");
    let text = swap(&text, "pack   = 2048", "pack   = 64");
    let text = swap(&text, "every = 100 steps", "every = 5 steps");
    swap(&text, "= 2e-4", "= 2e-2")
}

fn place() -> Place {
    let place = Place::with(&program());
    checkpoint(&place);
    tickets(&place);
    place
}

fn numbers(out: &Outcome, event: &str, key: &str) -> Vec<f64> {
    out.of(event).map(|e| e[key].as_f64().expect("a number")).collect()
}

/// Both outputs together.
fn said(out: &Outcome) -> String {
    format!("{}\n{}", out.stdout.join("\n"), out.stderr)
}

fn evals(out: &Outcome) -> Vec<f64> {
    let list = out.of("eval").map(|e| e["values"]["eval.loss"].as_f64().expect("a number"));
    list.collect()
}

#[test]
fn adapters_are_trained_and_nothing_else() {
    let place = place();
    let one = place.train(&["--workers", "1", "--run-id", "one"]).ok();
    let three = place.train(&["--workers", "3", "--run-id", "three"]).ok();
    assert_eq!(one.fingerprint(), three.fingerprint());
    assert_eq!(numbers(&one, "step", "loss"), numbers(&three, "step", "loss"));
    let (losses, held) = (numbers(&one, "step", "loss"), evals(&one));
    assert!(losses[losses.len() - 1] < 0.9 * losses[0], "{losses:?}");
    assert!(held[held.len() - 1] < held[0], "{held:?}");

    let found = Tensors::of_checkpoint(&one.checkpoint());
    let expected = expected();
    for (name, right) in &expected {
        let ours = found.get(name);
        let same = ours.iter().zip(right).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(ours.len() == right.len() && same, "`{name}` has changed");
    }
    let more: Vec<&str> =
        found.0.keys().filter(|n| !expected.contains_key(*n)).map(String::as_str).collect();
    // A and B on two weights of two blocks, with two moments each.
    assert_eq!(more.len(), 3 * 2 * 2 * 2, "{more:?}");
    assert_eq!(found.get("blocks.1.attn.q.lora_a").len(), D * 16);
    for name in ["blocks.0.attn.q.lora_b", "blocks.1.attn.v.lora_b"] {
        assert!(found.get(name).iter().any(|x| *x != 0.0), "`{name}` is still zero");
    }
}

#[test]
fn stopped_and_gone_on_with() {
    let place = place();
    let whole = place.train(&["--workers", "2", "--run-id", "whole"]).ok();
    let mut running = place.begin(&["--workers", "2", "--run-id", "stopped"]);
    running.until_step(3);
    running.signal(libc::SIGINT);
    let stopped = running.finish();
    // It may have come to its end before it heard of it.
    assert!(matches!(stopped.code, Some(130 | 0)), "{}", stopped.story());
    if stopped.code == Some(130) {
        let out = place.train(&["--workers", "3", "--resume", "stopped"]).ok();
        assert_eq!(out.fingerprint(), whole.fingerprint());
    }
}

/// The same model under our own names gives the same losses, to the last bit.
#[test]
fn names_and_transposes_are_right() {
    let place = place();
    let theirs = place.train(&["--workers", "1", "--run-id", "theirs"]).ok();
    let expected = expected();
    let parts = parts();
    let tensors: Vec<_> = parts
        .iter()
        .map(|p| {
            let mut shape = p.shape.clone();
            if p.transposed {
                shape.reverse();
            }
            (p.ours.clone(), shape, bytes_of_f32(expected[&p.ours].iter().copied()))
        })
        .collect();
    let tensors: Vec<_> = tensors.iter().map(|(n, s, b)| (&**n, "F32", &**s, b.clone())).collect();
    write(&place.file("ours.safetensors"), &tensors);
    let sized = "Llama[V = 262, D = 16, H = 4, G = 2, F = 24, T = 64](depth = 2, base = 500000, \
                 factor = 8, context = 32, tied = true).load(\"ours.safetensors\")";
    let text = swap(&program(), "Llama.load(\"model/*.safetensors\")", sized);
    let text = swap(&text, "names  = hf_names", "# names are ours");
    let text = swap(&text, "llama.{Llama, hf_names}", "llama.Llama");
    let text = swap(&text, "pack   = 64", "pack = 64, tokenizer = \"model/tokenizer.json\"");
    place.write("job.mon", text);
    let ours = place.train(&["--workers", "1", "--run-id", "ours"]).ok();
    assert_eq!(ours.fingerprint(), theirs.fingerprint());
    assert_eq!(numbers(&ours, "step", "loss"), numbers(&theirs, "step", "loss"));
}

#[test]
fn what_is_wrong_with_files_is_said() {
    let place = place();
    let text = program();
    let hash = swap(&text, "names  = hf_names", "names = hf_names, sha256 = \"123456...\"");
    place.write("job.mon", &hash);
    let out = place.train(&[]).expect_code(2);
    assert!(out.stdout.iter().any(|l| l.contains("M0609")), "{}", out.story());
    let right = out.stdout.iter().find_map(|l| l.split("the hash is ").nth(1));
    let right = right.and_then(|l| l.get(..64)).unwrap_or_else(|| panic!("{}", out.story()));
    place.write("job.mon", swap(&hash, "123456...", right));
    assert_eq!(place.run(&["plan", "job.mon"]).code, Some(0));
    place.write("job.mon", swap(&hash, "123456...", format!("{}...", &right[..8])));
    assert_eq!(place.run(&["plan", "job.mon"]).code, Some(0));

    place.write("job.mon", &text);
    place.write("tickets.jsonl", "{\"prompt\": \"a\", \"answer\": \"b\"}\n{\"prompt\": 1}\n");
    let out = place.run(&["check", "job.mon"]).expect_code(2);
    let words = said(&out);
    assert!(words.contains("line 2: `prompt` is a number, not a text"), "{}", out.story());

    // A check goes on without the files; a plan needs them.
    std::fs::remove_file(place.file("tickets.jsonl")).expect("removed");
    assert_eq!(place.run(&["check", "job.mon"]).code, Some(0));
    let out = place.run(&["plan", "job.mon"]).expect_code(2);
    let words = said(&out);
    assert!(words.contains("M0608") && words.contains("tickets.jsonl"), "{}", out.story());
}

const TOKENS: &str = r#"
use std.models.llama.Llama
use std.loss.cross_entropy
use std.optim.AdamW
data words = tokens("*.bin") { window = 16, dtype = u16, mix = { web = 75%, code = 25% } }
model llm = Llama[V = 64, D = 16, H = 2, G = 1, F = 32, T = 16](depth = 1)
train job {
  model = llm, data = words
  loss(ids: i32[B, T], next: i32[B, T]) = cross_entropy(llm(ids), next)
  optim = AdamW(lr = 1e-2)
  batch = 12, until = 2 epochs
  eval { every = 3 steps, batches = 1 }
}
"#;

#[test]
fn files_of_tokens_are_learned() {
    let place = Place::with(TOKENS);
    let file = |name: &str, n: usize, step: usize| {
        let ids = (0..n).map(|i| (i * step % 64) as u16);
        place.write(name, ids.flat_map(u16::to_le_bytes).collect::<Vec<u8>>());
    };
    file("web-0.bin", 17 * 50 + 5, 1);
    file("web-1.bin", 17 * 20, 3);
    file("code-0.bin", 17 * 30, 5);
    let one = place.train(&["--workers", "1", "--run-id", "one"]).ok();
    let three = place.train(&["--workers", "3", "--run-id", "three"]).ok();
    assert_eq!(one.fingerprint(), three.fingerprint());
    let losses = numbers(&one, "step", "loss");
    assert!(losses[losses.len() - 1] < 0.9 * losses[0], "{losses:?}");
    // 70 windows of web and 30 of code: 93 with three of four of web, 12 held out.
    assert_eq!(losses.len(), 2 * 7, "{}", one.story());

    file("web-1.bin", 17 * 20 - 1, 70_000);
    place.write("odd-web.bin", [0u8; 3]);
    let out = place.run(&["plan", "job.mon"]).expect_code(2);
    assert!(said(&out).contains("M0607"), "{}", out.story());
}

const TABLE: &str = r#"
use std.loss.cross_entropy
use std.optim.SGD
data pairs = csv("pairs.csv", order = file) {
  fields = { thing = i32, class = i32 }
  split  = { train = 75%, eval = 25% }
}
layer Table[R, C] {
  w: [R, C] ~ zeros
  forward(row: i32[B]) -> [B, C] = w[row]
}
model table = Table[R = 10, C = 3]
train fit {
  model = table, data = pairs
  loss(thing: i32[B], class: i32[B]) = cross_entropy(table(thing), class)
  optim = SGD(lr = 2)
  batch = 8, until = 40 epochs
  eval { every = 10 epochs }
}
"#;

#[test]
fn a_table_is_learned() {
    let place = Place::with(TABLE);
    let mut table = String::from("class,name,thing\n");
    for i in 0..40 {
        table.push_str(&format!("{},\"n, {i}\",{}\n", i % 10 % 3, i % 10));
    }
    place.write("pairs.csv", table);
    let out = place.train(&["--workers", "2"]).ok();
    let losses = evals(&out);
    assert!(losses[losses.len() - 1] < 0.1, "{losses:?}");
    let found = Tensors::of_checkpoint(&out.checkpoint());
    for (row, scores) in found.get("w").chunks_exact(3).enumerate() {
        let best = (0..3).max_by(|a, b| scores[*a].total_cmp(&scores[*b]));
        assert_eq!(best, Some(row % 3), "{scores:?}");
    }
}
