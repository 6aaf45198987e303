//! Tokenizers of byte-level byte-pair encoding, as a `tokenizer.json` describes them (Sennrich et
//! al. 2016, "Neural Machine Translation of Rare Words with Subword Units"; Radford et al. 2019).
//!
//! What such a file may say and is not done here (another model, a normalizer, another way to cut
//! words) is an error that names it.

use fancy_regex::Regex;
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// How GPT-2 cuts words.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// Largest file that is read.
const MAX_BYTES: usize = 256 << 20;

#[derive(Debug)]
pub(crate) struct Bpe {
    /// Ids of byte strings.
    ids: HashMap<Vec<u8>, u32>,
    /// Ids of single bytes.
    bytes: [u32; 256],
    /// Rank of a pair, lowest first, and what it becomes.
    merges: HashMap<(u32, u32), (u32, u32)>,
    /// Tokens that are no byte strings, and those that are, by their names in the file.
    named: HashMap<String, u32>,
    cuts: Vec<Regex>,
    prefix_space: bool,
    /// A word that is a token is never merged from parts.
    whole_words: bool,
    vocabulary: u64,
}

impl Bpe {
    /// Reads a `tokenizer.json`; why not, for one that cannot be used.
    pub(crate) fn read(content: &[u8]) -> Result<Bpe, String> {
        if content.len() > MAX_BYTES {
            return Err(format!("it has {} bytes; at most {MAX_BYTES} are read", content.len()));
        }
        let file: Value =
            serde_json::from_slice(content).map_err(|e| format!("it is no JSON: {e}"))?;
        let given = |key: &str| file.get(key).filter(|v| !v.is_null());
        if let Some(normalizer) = given("normalizer") {
            return Err(format!("its normalizer ({}) is not done here", kind(normalizer)));
        }
        let model = given("model").ok_or("it has no model")?;
        if model.get("type").is_some_and(|t| t != "BPE") {
            return Err(format!("its model is {}, not BPE", kind(model)));
        }
        for key in ["byte_fallback", "continuing_subword_prefix", "end_of_word_suffix", "dropout"] {
            let set = model.get(key).filter(|v| !v.is_null() && **v != false && **v != "");
            if set.is_some() {
                return Err(format!("its model has `{key}`, which is not done here"));
            }
        }
        let mut bpe = Bpe {
            ids: HashMap::new(),
            bytes: [0; 256],
            merges: HashMap::new(),
            named: HashMap::new(),
            cuts: Vec::new(),
            prefix_space: false,
            whole_words: model.get("ignore_merges").is_some_and(|v| *v == true),
            vocabulary: 0,
        };
        bpe.read_tokens(model, given("added_tokens"))?;
        bpe.read_merges(model.get("merges"))?;
        let cutter = given("pre_tokenizer").ok_or("it does not say how words are cut")?;
        let mut byte_level = false;
        bpe.read_cutter(cutter, &mut byte_level)?;
        match byte_level {
            true => Ok(bpe),
            false => Err("it is not byte-level".into()),
        }
    }

    fn read_tokens(&mut self, model: &Value, added: Option<&Value>) -> Result<(), String> {
        let vocabulary = model.get("vocab").and_then(Value::as_object);
        let table = byte_table();
        for (name, id) in vocabulary.ok_or("its model has no `vocab`")? {
            let id = id_of(id).ok_or_else(|| format!("the id of `{name}` is no number"))?;
            self.name(name, id);
            let bytes: Option<Vec<u8>> = name.chars().map(|c| table.get(&c).copied()).collect();
            if let Some(bytes) = bytes.filter(|b| !b.is_empty()) {
                self.ids.insert(bytes, id);
            }
        }
        for token in added.and_then(Value::as_array).into_iter().flatten() {
            let (name, id) = (token.get("content").and_then(Value::as_str), token.get("id"));
            let found = name.zip(id.and_then(id_of));
            let (name, id) = found.ok_or("one of its `added_tokens` has no content or no id")?;
            self.name(name, id);
        }
        for byte in 0..=255u8 {
            let id = self.ids.get([byte].as_slice());
            self.bytes[usize::from(byte)] =
                *id.ok_or_else(|| format!("it has no token for the byte {byte}"))?;
        }
        Ok(())
    }

    fn name(&mut self, name: &str, id: u32) {
        self.named.insert(name.to_owned(), id);
        self.vocabulary = self.vocabulary.max(u64::from(id) + 1);
    }

    /// `"a b"` or `["a", "b"]`, best first.
    fn read_merges(&mut self, merges: Option<&Value>) -> Result<(), String> {
        let merges = merges.and_then(Value::as_array).ok_or("its model has no `merges`")?;
        for (rank, merge) in merges.iter().enumerate() {
            let pair = match merge {
                Value::String(text) => text.split_once(' '),
                Value::Array(two) => match two.as_slice() {
                    [a, b] => a.as_str().zip(b.as_str()),
                    _ => None,
                },
                _ => None,
            };
            let (a, b) = pair.ok_or_else(|| format!("merge {rank} is no pair"))?;
            let id = |name: &str| {
                let found = self.named.get(name).copied();
                found.ok_or_else(|| format!("merge {rank} speaks of `{name}`, which is no token"))
            };
            let (left, right, both) = (id(a)?, id(b)?, id(&format!("{a}{b}"))?);
            let rank = u32::try_from(rank).map_err(|_| "it has too many merges".to_owned())?;
            self.merges.entry((left, right)).or_insert((rank, both));
        }
        Ok(())
    }

    fn read_cutter(&mut self, cutter: &Value, byte_level: &mut bool) -> Result<(), String> {
        let flag = |key: &str, default: bool| cutter.get(key).map_or(default, |v| *v == true);
        match kind(cutter).as_str() {
            "Sequence" => {
                let list = cutter.get("pretokenizers").and_then(Value::as_array);
                for part in list.ok_or("its pre-tokenizer is an empty sequence")? {
                    if kind(part) == "Sequence" {
                        return Err("its pre-tokenizers stand within one another".into());
                    }
                    self.read_cutter(part, byte_level)?;
                }
                Ok(())
            }
            "Split" => {
                let regex = cutter.get("pattern").and_then(|p| p.get("Regex"));
                let regex = regex.and_then(Value::as_str).ok_or("it splits by no `Regex`")?;
                let behavior = cutter.get("behavior").and_then(Value::as_str).unwrap_or("");
                if flag("invert", false) || behavior != "Isolated" {
                    return Err(format!("it splits in another way ({behavior})"));
                }
                self.cut_by(regex)
            }
            "ByteLevel" => {
                *byte_level = true;
                self.prefix_space |= flag("add_prefix_space", true);
                match flag("use_regex", true) {
                    true => self.cut_by(GPT2),
                    false => Ok(()),
                }
            }
            other => Err(format!("its pre-tokenizer ({other}) is not done here")),
        }
    }

    fn cut_by(&mut self, pattern: &str) -> Result<(), String> {
        let regex = Regex::new(pattern).map_err(|e| format!("its pattern cannot be used: {e}"))?;
        self.cuts.push(regex);
        Ok(())
    }

    /// Ids lie below this.
    pub(crate) fn vocabulary(&self) -> u64 {
        self.vocabulary
    }

    /// The id of a token by its name in the file.
    pub(crate) fn token(&self, name: &str) -> Option<u32> {
        self.named.get(name).copied()
    }

    /// Adds the ids of a text. Names of added tokens in it are text like any other.
    pub(crate) fn encode(&self, text: &str, out: &mut Vec<u32>) -> Result<(), String> {
        if text.is_empty() {
            return Ok(());
        }
        let spaced;
        let mut pieces = vec![text];
        if self.prefix_space && !text.starts_with(' ') {
            spaced = format!(" {text}");
            pieces = vec![spaced.as_str()];
        }
        for cut in &self.cuts {
            pieces = split(cut, &pieces)?;
        }
        for piece in pieces {
            self.word(piece.as_bytes(), out);
        }
        Ok(())
    }

    /// Merges the pair of the lowest rank, the first of equals, until no pair has one.
    fn word(&self, word: &[u8], out: &mut Vec<u32>) {
        if self.whole_words
            && let Some(id) = self.ids.get(word)
        {
            return out.push(*id);
        }
        const GONE: u32 = u32::MAX;
        let mut ids: Vec<u32> = word.iter().map(|b| self.bytes[usize::from(*b)]).collect();
        let n = ids.len();
        let mut next: Vec<usize> = (1..=n).collect();
        let mut before: Vec<Option<usize>> = (0..n).map(|i| i.checked_sub(1)).collect();
        let mut heap = BinaryHeap::new();
        let pair = |ids: &[u32], a: usize, b: usize| {
            let (left, right) = (*ids.get(a)?, *ids.get(b)?);
            let (rank, both) = self.merges.get(&(left, right))?;
            Some(Reverse((*rank, a, left, right, *both)))
        };
        for i in 1..n {
            heap.extend(pair(&ids, i - 1, i));
        }
        while let Some(Reverse((_, a, left, right, both))) = heap.pop() {
            let b = next[a];
            // One of the two has been merged with another neighbour meanwhile.
            if ids[a] != left || ids.get(b) != Some(&right) {
                continue;
            }
            ids[a] = both;
            ids[b] = GONE;
            next[a] = next[b];
            if let Some(place) = before.get_mut(next[a]) {
                *place = Some(a);
            }
            heap.extend(pair(&ids, a, next[a]));
            if let Some(left) = before[a] {
                heap.extend(pair(&ids, left, a));
            }
        }
        out.extend(ids.into_iter().filter(|id| *id != GONE));
    }
}

/// Matches, and what lies between them.
fn split<'t>(cut: &Regex, pieces: &[&'t str]) -> Result<Vec<&'t str>, String> {
    let mut out = Vec::new();
    for piece in pieces {
        let mut end = 0;
        for found in cut.find_iter(piece) {
            let found = found.map_err(|e| format!("a text cannot be cut into words: {e}"))?;
            out.extend(piece.get(end..found.start()).filter(|t| !t.is_empty()));
            out.extend(piece.get(found.range()).filter(|t| !t.is_empty()));
            end = found.end();
        }
        out.extend(piece.get(end..).filter(|t| !t.is_empty()));
    }
    Ok(out)
}

fn kind(value: &Value) -> String {
    value.get("type").and_then(Value::as_str).unwrap_or("of no type").to_owned()
}

fn id_of(value: &Value) -> Option<u32> {
    // The largest i32 stands for no token.
    value.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|n| *n < i32::MAX as u32)
}

/// The character that stands for each byte in names of tokens: itself if it can be seen, others
/// from 256 on.
fn byte_table() -> HashMap<char, u8> {
    let mut table = HashMap::new();
    let mut next = 256;
    for byte in 0..=255u8 {
        let seen = matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
        let code = match seen {
            true => u32::from(byte),
            false => {
                next += 1;
                next - 1
            }
        };
        table.extend(char::from_u32(code).map(|c| (c, byte)));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const LLAMA3: &str = concat!(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    );

    /// All bytes, then the merges in order, then two named tokens.
    fn tokenizer(merges: &[(&str, &str)]) -> Value {
        let mut names: Vec<(char, u8)> = byte_table().into_iter().collect();
        names.sort_by_key(|n| n.1);
        let mut vocab = serde_json::Map::new();
        for (c, byte) in names {
            vocab.insert(c.to_string(), json!(byte));
        }
        for (a, b) in merges {
            let id = vocab.len();
            vocab.insert(format!("{a}{b}"), json!(id));
        }
        let n = vocab.len();
        let merges: Vec<String> = merges.iter().map(|(a, b)| format!("{a} {b}")).collect();
        json!({
            "added_tokens": [
                { "id": n, "content": "<|bos|>", "special": true },
                { "id": n + 4, "content": "<|end|>", "special": true },
            ],
            "normalizer": null,
            "pre_tokenizer": { "type": "Sequence", "pretokenizers": [
                { "type": "Split", "pattern": { "Regex": LLAMA3 }, "behavior": "Isolated",
                  "invert": false },
                { "type": "ByteLevel", "add_prefix_space": false, "use_regex": false },
            ]},
            "model": { "type": "BPE", "vocab": vocab, "merges": merges, "ignore_merges": false },
        })
    }

    fn read(file: &Value) -> Result<Bpe, String> {
        Bpe::read(file.to_string().as_bytes())
    }

    fn encoded(bpe: &Bpe, text: &str) -> Vec<u32> {
        let mut out = Vec::new();
        bpe.encode(text, &mut out).unwrap();
        out
    }

    #[test]
    fn pairs_are_merged_by_rank() {
        // 256 = lo, 257 = low, 258 = er, 259 = Ġlow
        let merges = [("l", "o"), ("lo", "w"), ("e", "r"), ("\u{120}", "low")];
        let bpe = read(&tokenizer(&merges)).unwrap();
        assert_eq!(encoded(&bpe, "lower"), [257, 258]);
        assert_eq!(encoded(&bpe, "low lower"), [257, 259, 258]);
        assert_eq!(encoded(&bpe, "lolo"), [256, 256]);
        assert_eq!(encoded(&bpe, "é\n"), [0xc3, 0xa9, 10]);
        assert_eq!(encoded(&bpe, "<|bos|>").len(), 7, "names in a text are text");
        assert_eq!((bpe.token("<|bos|>"), bpe.token("<|x|>")), (Some(260), None));
        assert_eq!(bpe.vocabulary(), 265);
    }

    #[test]
    fn words_are_cut_as_llama_cuts_them() {
        let cut = Regex::new(LLAMA3).unwrap();
        let pieces = split(&cut, &["I'll pay 12345 $!\n\n  now "]).unwrap();
        let want = ["I", "'ll", " pay", " ", "123", "45", " $!\n\n", " ", " now", " "];
        assert_eq!(pieces, want);
        let cut = Regex::new(GPT2).unwrap();
        let want = ["don", "'t", "  ", " x", "2", "  "];
        assert_eq!(split(&cut, &["don't   x2  "]).unwrap(), want);
    }

    /// `tests/tools/make_bpe.py` wrote what Hugging Face's `tokenizers` makes of these texts.
    #[test]
    fn ids_are_those_of_the_reference() {
        let path = format!("{}/../../tests/fixtures/bpe.json", env!("CARGO_MANIFEST_DIR"));
        let cases: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let mut compared = 0;
        for case in cases.as_array().unwrap() {
            let bpe = read(&case["tokenizer"]).unwrap();
            for sample in case["encoded"].as_array().unwrap() {
                let text = sample["text"].as_str().unwrap();
                let want: Vec<u32> = serde_json::from_value(sample["ids"].clone()).unwrap();
                assert_eq!(encoded(&bpe, text), want, "{text:?}");
                compared += want.len();
            }
        }
        assert!(compared > 500, "{compared} ids");
    }

    #[test]
    fn what_is_not_done_is_named() {
        let file = tokenizer(&[("a", "b")]);
        let broken = |change: &dyn Fn(&mut Value)| {
            let mut file = file.clone();
            change(&mut file);
            read(&file).expect_err("refused")
        };
        let e = broken(&|f| f["normalizer"] = json!({ "type": "NFC" }));
        assert!(e.contains("NFC"), "{e}");
        let e = broken(&|f| f["model"]["type"] = json!("Unigram"));
        assert!(e.contains("Unigram"), "{e}");
        let e = broken(&|f| f["model"]["merges"] = json!(["a z"]));
        assert!(e.contains("`az`"), "{e}");
        let e = broken(&|f| f["pre_tokenizer"] = json!({ "type": "Metaspace" }));
        assert!(e.contains("Metaspace"), "{e}");
        let e = broken(&|f| f["pre_tokenizer"] = json!(null));
        assert!(e.contains("cut"), "{e}");
        let e = broken(&|f| {
            f["model"]["vocab"].as_object_mut().unwrap().remove("a");
        });
        assert!(e.contains("97") || e.contains("`a`"), "{e}");
        assert!(Bpe::read(b"[").is_err() && Bpe::read(b"{}").is_err());
    }

    proptest! {
        /// Ids of bytes give the text back, whatever was merged.
        #[test]
        fn nothing_is_lost(text in "[ab \n0é]{0,40}", ignore: bool) {
            let merges = [("a", "b"), ("ab", "ab"), ("\u{120}", "a"), ("b", "a"), ("ba", "b")];
            let mut file = tokenizer(&merges);
            file["model"]["ignore_merges"] = json!(ignore);
            let bpe = read(&file).unwrap();
            let mut words: HashMap<u32, Vec<u8>> = HashMap::new();
            words.extend(bpe.ids.iter().map(|(bytes, id)| (*id, bytes.clone())));
            let ids = encoded(&bpe, &text);
            let back: Vec<u8> = ids.iter().flat_map(|id| words[id].clone()).collect();
            prop_assert_eq!(back, text.as_bytes());
        }

        #[test]
        fn damaged_files_never_panic(at in 0usize..4000, byte in b' '..b'~') {
            let mut content = tokenizer(&[("a", "b"), ("ab", "c")]).to_string().into_bytes();
            let at = at % content.len();
            content[at] = byte;
            if let Ok(bpe) = Bpe::read(&content) {
                let _ = bpe.encode("abc abc", &mut Vec::new());
            }
        }

        #[test]
        fn arbitrary_files_never_panic(content: Vec<u8>) {
            let _ = Bpe::read(&content);
        }
    }
}
