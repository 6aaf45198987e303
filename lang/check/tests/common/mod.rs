//! A world in memory, and what several tests ask of it.
#![allow(dead_code)]

use monarch_check::{Checked, RecordFacts, TensorFact, TextFacts, World, WorldError};
use monarch_graph::{DataFile, Source};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

#[derive(Default)]
pub struct Memory {
    pub files: BTreeMap<String, Vec<u8>>,
    pub tensors: BTreeMap<String, Vec<TensorFact>>,
    /// Hashes are those of the bytes; otherwise each is 32 times 7.
    pub real_hashes: bool,
}

impl Memory {
    /// One program, a text that matches any pattern which ends in `.txt`, some tensors, a file of
    /// hooks.
    pub fn with(path: &str, program: &str) -> Memory {
        let mut world = Memory::default();
        world.files.insert(path.to_owned(), program.as_bytes().to_vec());
        world.files.insert("corpus.txt".to_owned(), b"to be or not to be ".repeat(3000));
        let hooks =
            "fn post() { note(`loss ${metric(\"loss\")}`); }\nfn tell(who) { note(who); }\n";
        world.files.insert("alerts.rhai".to_owned(), hooks.into());
        let fact = |name: &str, dtype: &str, shape: &[u64]| TensorFact {
            name: name.to_owned(),
            dtype: dtype.to_owned(),
            shape: shape.to_vec(),
        };
        let columns = vec![
            fact("ids", "I32", &[96, 16]),
            fact("next", "I32", &[96, 16]),
            fact("x", "F32", &[96, 8]),
            fact("y", "I32", &[96]),
        ];
        world.tensors.insert("columns.safetensors".to_owned(), columns);
        let weights = vec![fact("model.w", "F32", &[8, 3]), fact("model.b", "F32", &[3])];
        world.tensors.insert("prefixed.safetensors".to_owned(), weights);
        let weights = vec![fact("w", "F32", &[8, 4]), fact("c", "F32", &[3])];
        world.tensors.insert("other.safetensors".to_owned(), weights);
        world.add_checkpoint("small", "silu", &llama(2));
        world.add_checkpoint("gelu", "gelu", &llama(2));
        let mut torn = llama(2);
        torn.retain(|t| t.name != "model.layers.1.mlp.up_proj.weight");
        torn.push(fact("model.extra.weight", "BF16", &[3]));
        world.add_checkpoint("torn", "silu", &torn);
        let rows = b"{\"prompt\": \"a\", \"answer\": \"b\"}\n".repeat(40);
        world.files.insert("tickets.jsonl".to_owned(), rows);
        world.files.insert("rows.csv".to_owned(), b"x,y\n1,2\n".repeat(20));
        for name in ["web-0.bin", "web-1.bin", "code-0.bin"] {
            world.files.insert(format!("corpus/{name}"), vec![0; 4 * 9 * 10]);
        }
        world.files.insert("corpus/odd.ids".to_owned(), vec![0; 7]);
        let hash = "07".repeat(32);
        let list = format!("{hash}  web-0.bin\n{hash}  web-1.bin\n");
        world.files.insert("corpus/web.sha256".to_owned(), list.into_bytes());
        world
    }

    /// Tensors `dir/a.safetensors`, with a configuration and a tokenizer beside them.
    pub fn add_checkpoint(&mut self, dir: &str, act: &str, tensors: &[TensorFact]) {
        let config = format!(
            r#"{{ "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2,
                "tie_word_embeddings": true, "rope_theta": 500000.0, "hidden_act": "{act}" }}"#
        );
        self.tensors.insert(format!("{dir}/a.safetensors"), tensors.to_vec());
        self.files.insert(format!("{dir}/config.json"), config.into_bytes());
        self.files.insert(format!("{dir}/tokenizer.json"), b"{}".to_vec());
    }

    pub fn check(&self, path: &str) -> Checked {
        monarch_check::check(self, path, &[], &["workers", "resume"])
    }
}

impl World for Memory {
    fn read(&self, path: &str, limit_bytes: u64) -> Result<Vec<u8>, WorldError> {
        let found = self.files.get(path);
        let bytes = found.ok_or_else(|| WorldError::NotFound { path: path.to_owned() })?;
        match bytes.len() as u64 {
            n if n > limit_bytes => {
                Err(WorldError::TooLarge { path: path.to_owned(), bytes: n, limit_bytes })
            }
            _ => Ok(bytes.clone()),
        }
    }

    fn glob(&self, pattern: &str) -> Result<Vec<String>, WorldError> {
        let wanted = pattern.rsplit('.').next().unwrap_or("").trim_end_matches('}');
        let head = pattern.split('*').next().unwrap_or("");
        let exact = ["safetensors", "bin", "jsonl", "csv"].contains(&wanted);
        let fits = |p: &&String| match pattern.contains('*') {
            true if exact => p.starts_with(head) && p.ends_with(&format!(".{wanted}")),
            true => p.ends_with(&format!(".{wanted}")) || p.ends_with(".txt"),
            false => *p == pattern,
        };
        Ok(self.files.keys().chain(self.tensors.keys()).filter(fits).cloned().collect())
    }

    fn file(&self, path: &str) -> Result<DataFile, WorldError> {
        let known = self.files.get(path).map(Vec::len);
        let known = known.or_else(|| self.tensors.get(path).map(Vec::len));
        let bytes = known.ok_or_else(|| WorldError::NotFound { path: path.to_owned() })? as u64;
        let content = self.files.get(path).filter(|_| self.real_hashes);
        let sha256 = content.map_or([7; 32], |content| Sha256::digest(content).into());
        Ok(DataFile { path: path.to_owned(), bytes, sha256 })
    }

    fn tensors(&self, path: &str) -> Result<Vec<TensorFact>, WorldError> {
        let found = self.tensors.get(path).cloned();
        found.ok_or_else(|| WorldError::NotFound { path: path.to_owned() })
    }

    fn text(&self, paths: &[String]) -> Result<TextFacts, WorldError> {
        let mut all = String::new();
        for path in paths {
            let bytes = self.read(path, u64::MAX)?;
            all.push_str(&String::from_utf8_lossy(&bytes));
        }
        let mut vocabulary: Vec<char> = all.chars().collect();
        vocabulary.sort_unstable();
        vocabulary.dedup();
        Ok(TextFacts { chars: all.chars().count() as u64, vocabulary })
    }

    fn records(&self, source: &Source) -> Result<RecordFacts, WorldError> {
        let Source::Records { files, chat, .. } = source else {
            return Err(WorldError::NotFound { path: String::new() });
        };
        let lines =
            |f: &DataFile| self.files.get(&f.path).map_or(0, |b| b.split(|c| *c == 10).count());
        let samples = files.iter().map(lines).sum::<usize>() as u64;
        Ok(RecordFacts { samples, vocabulary: chat.as_ref().map(|_| 20) })
    }
}

/// A small Llama of this depth with a tied head, as Hugging Face stores it.
pub fn llama(depth: usize) -> Vec<TensorFact> {
    let fact = |name: String, shape: &[u64]| TensorFact {
        name,
        dtype: "BF16".to_owned(),
        shape: shape.to_vec(),
    };
    let mut out = vec![
        fact("model.embed_tokens.weight".to_owned(), &[20, 16]),
        fact("model.norm.weight".to_owned(), &[16]),
    ];
    for i in 0..depth {
        let mut add = |name: &str, shape: &[u64]| {
            out.push(fact(format!("model.layers.{i}.{name}.weight"), shape));
        };
        add("input_layernorm", &[16]);
        add("post_attention_layernorm", &[16]);
        add("self_attn.q_proj", &[16, 16]);
        add("self_attn.k_proj", &[8, 16]);
        add("self_attn.v_proj", &[8, 16]);
        add("self_attn.o_proj", &[16, 16]);
        add("mlp.gate_proj", &[24, 16]);
        add("mlp.up_proj", &[24, 16]);
        add("mlp.down_proj", &[16, 24]);
    }
    out
}

/// All diagnostics as text, the way a person reads them.
pub fn shown(checked: &Checked) -> String {
    let mut out = String::new();
    for d in &checked.diagnostics {
        let place = d.span().map(|s| checked.sources.place(s)).unwrap_or_default();
        let severity = d.severity.name();
        out.push_str(&format!("{severity} {} {place} {}\n", d.code, d.title));
        for label in &d.labels {
            let place = checked.sources.place(label.span);
            let slice = checked.sources.slice(label.span).replace('\n', " ");
            out.push_str(&format!("    {place} `{slice}`: {}\n", label.text));
        }
        for help in &d.help {
            out.push_str(&format!("    help: {}\n", help.text));
        }
    }
    out
}

/// `cluster lab` and `plan p3d` of an example, as they stand there.
fn declared(example: &str) -> String {
    let path = format!("{}/../../examples/{example}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("the example is there");
    let part = |from: &str| {
        let rest = &text[text.find(from).expect("the block is there")..];
        rest[..rest.find("\n}").expect("it ends") + 3].to_owned()
    };
    part("cluster lab {") + part("plan p3d on lab {").as_str()
}

/// A job that trains a small Llama on the layout of `llama3d.mon`.
pub fn llama3d() -> String {
    let head = "use std.models.llama.Llama\nuse std.loss.cross_entropy\nuse std.optim.AdamW\n\
        model llm = Llama[V = 64, D = 32, H = 4, G = 4, F = 64, T = 16](depth = 4)\n";
    let job = "train pretrain on p3d {\n  model = llm\n  \
        data = tensors(\"columns.safetensors\")\n  \
        loss(ids: i32[B, T], next: i32[B, T]) = \
        cross_entropy(llm(ids), next)\n  \
        optim = AdamW(1e-3)\n  batch = 32\n  until = 2 epochs\n}\n";
    format!("{head}{}{job}", declared("llama3d.mon"))
}
