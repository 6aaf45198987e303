//! Conversations as token ids, packed into samples of one length.
//!
//! Conversations are packed whole, in the order of the file: each goes into the sample at hand if
//! it fits, and begins a new one otherwise. One that is longer than a sample is cut into pieces,
//! each of which begins with the last token of the one before, so that every token but the first
//! is a target exactly once. What is left of a sample is id 0 with a weight of 0. Attention is not
//! cut at borders: a conversation can see those before it in its sample.

use crate::bpe::Bpe;
use crate::records::{Table, Values};
use crate::{DataError, file, records};
use monarch_graph::{Chat, ChatTemplate, DataFile, Field, RecordFormat, Tokenizer, Turn};

/// Samples of `pack` + 1 tokens at most; the first `pack` are ids, the last `pack` next.
#[derive(Debug)]
pub(crate) struct Packs {
    ids: Vec<u32>,
    /// For each token whether it is to be learned.
    learned: Vec<bool>,
    /// Where each sample begins, and how many tokens it has.
    samples: Vec<(usize, usize)>,
    pub(crate) pack: u64,
    /// All ids lie below this.
    pub(crate) vocabulary: u64,
}

/// What encodes texts, and the ids of the template's own tokens.
struct Encoder {
    tokenizer: Option<Bpe>,
    marks: Vec<u32>,
    vocabulary: u64,
}

/// The tokens that a template is made of.
fn marks(template: ChatTemplate) -> &'static [&'static str] {
    match template {
        ChatTemplate::Llama3 => {
            &["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
        }
        ChatTemplate::ChatMl => &["<|im_start|>", "<|im_end|>"],
    }
}

impl Encoder {
    fn new(tokenizer: &Tokenizer, template: ChatTemplate) -> Result<Encoder, DataError> {
        let names = marks(template);
        let planned = match tokenizer {
            Tokenizer::Bytes => {
                let marks = (256..).take(names.len()).collect();
                let vocabulary = 256 + names.len() as u64;
                return Ok(Encoder { tokenizer: None, marks, vocabulary });
            }
            Tokenizer::File(planned) => planned,
        };
        let bad = |what: String| DataError::Tokenizer { path: planned.path.clone(), what };
        let bpe = Bpe::read(&file::read_planned(planned)?).map_err(bad)?;
        let mut marks = Vec::new();
        for name in names {
            let id = bpe.token(name);
            marks.push(id.ok_or_else(|| bad(format!("it has no token `{name}`")))?);
        }
        let vocabulary = bpe.vocabulary();
        Ok(Encoder { tokenizer: Some(bpe), marks, vocabulary })
    }

    /// Ids of a text. What looks like a token of the template is text like any other.
    fn text(&self, text: &str, out: &mut Vec<u32>) -> Result<(), String> {
        match &self.tokenizer {
            None => out.extend(text.bytes().map(u32::from)),
            Some(bpe) => bpe.encode(text, out)?,
        }
        Ok(())
    }

    fn mark(&self, i: usize) -> u32 {
        self.marks.get(i).copied().unwrap_or_default()
    }

    /// Adds one turn; its words, and the mark that ends them, are learned or not.
    fn turn(
        &self,
        template: ChatTemplate,
        turn: &Turn,
        words: &str,
        ids: &mut Vec<u32>,
        learned: &mut Vec<bool>,
    ) -> Result<(), String> {
        match template {
            ChatTemplate::Llama3 => {
                ids.push(self.mark(1));
                self.text(&turn.role, ids)?;
                ids.push(self.mark(2));
                self.text("\n\n", ids)?;
            }
            ChatTemplate::ChatMl => {
                ids.push(self.mark(0));
                self.text(&format!("{}\n", turn.role), ids)?;
            }
        }
        learned.resize(ids.len(), false);
        self.text(words.trim(), ids)?;
        match template {
            ChatTemplate::Llama3 => ids.push(self.mark(3)),
            ChatTemplate::ChatMl => ids.push(self.mark(1)),
        }
        learned.resize(ids.len(), turn.learned);
        if template == ChatTemplate::ChatMl {
            self.text("\n", ids)?;
            learned.resize(ids.len(), false);
        }
        Ok(())
    }
}

impl Packs {
    /// Reads the planned files and verifies them.
    pub(crate) fn open(
        files: &[DataFile],
        format: RecordFormat,
        fields: &[Field],
        chat: &Chat,
    ) -> Result<Packs, DataError> {
        if chat.pack == 0 || chat.pack > 1 << 24 {
            return Err(DataError::Window { window: chat.pack });
        }
        let encoder = Encoder::new(&chat.tokenizer, chat.template)?;
        let table = records::read(files, format, fields)?;
        let mut turns = Vec::new();
        for turn in &chat.turns {
            let place = fields.iter().position(|f| f.name == turn.field);
            let texts = place.and_then(|p| match table.columns.get(p) {
                Some(Values::Text(texts)) => Some(texts),
                _ => None,
            });
            let found = texts.map(|t| (turn, t.as_slice()));
            turns.push(found.ok_or_else(|| DataError::NoColumn {
                column: turn.field.clone(),
                available: fields.iter().map(|f| f.name.clone()).collect(),
            })?);
        }
        let path = files.first().map(|f| f.path.clone()).unwrap_or_default();
        Packs::pack(&encoder, &table, chat, &turns)
            .map_err(|what| DataError::Tokenizer { path, what })
    }

    fn pack(
        encoder: &Encoder,
        table: &Table,
        chat: &Chat,
        turns: &[(&Turn, &[String])],
    ) -> Result<Packs, String> {
        let mut packs = Packs {
            ids: Vec::new(),
            learned: Vec::new(),
            samples: Vec::new(),
            pack: chat.pack,
            vocabulary: encoder.vocabulary,
        };
        let (mut ids, mut learned) = (Vec::new(), Vec::new());
        for row in 0..table.rows as usize {
            ids.clear();
            learned.clear();
            if chat.template == ChatTemplate::Llama3 {
                ids.push(encoder.mark(0));
                learned.push(false);
            }
            for (turn, texts) in turns {
                let words = texts.get(row).map_or("", String::as_str);
                encoder.turn(chat.template, turn, words, &mut ids, &mut learned)?;
            }
            packs.add(&ids, &learned);
        }
        Ok(packs)
    }

    /// Adds a conversation.
    fn add(&mut self, ids: &[u32], learned: &[bool]) {
        let most = self.pack as usize + 1;
        let room = self.samples.last().map_or(0, |(_, n)| most - n);
        if ids.len() <= room {
            self.push(ids, learned);
            if let Some((_, n)) = self.samples.last_mut() {
                *n += ids.len();
            }
            return;
        }
        let mut start = 0;
        loop {
            let end = (start + most).min(ids.len());
            self.samples.push((self.ids.len(), end - start));
            self.push(&ids[start..end], &learned[start..end]);
            if end == ids.len() {
                return;
            }
            start = end - 1;
        }
    }

    fn push(&mut self, ids: &[u32], learned: &[bool]) {
        self.ids.extend_from_slice(ids);
        self.learned.extend_from_slice(learned);
    }

    pub(crate) fn samples(&self) -> u64 {
        self.samples.len() as u64
    }

    fn place(&self, sample: u64) -> std::ops::Range<usize> {
        let (start, n) = self.samples.get(sample as usize).copied().unwrap_or_default();
        start..start + n
    }

    /// Writes ids from token `shift` of the sample on (0 ids, 1 next).
    pub(crate) fn fill_ids(&self, sample: u64, shift: usize, out: &mut [i32]) {
        let all = self.ids.get(self.place(sample)).unwrap_or_default();
        // The last token has nothing after it to predict.
        let inputs = &all[..all.len().saturating_sub(1 - shift.min(1))];
        let values = inputs.iter().skip(shift);
        out.fill(0);
        for (to, id) in out.iter_mut().zip(values) {
            *to = i32::try_from(*id).unwrap_or(i32::MAX);
        }
    }

    /// Writes 1 where the next token is to be learned.
    pub(crate) fn fill_weights(&self, sample: u64, out: &mut [f32]) {
        let all = self.learned.get(self.place(sample)).unwrap_or_default();
        out.fill(0.0);
        for (to, learned) in out.iter_mut().zip(all.iter().skip(1)) {
            *to = f32::from(u8::from(*learned));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packs(pack: u64) -> Packs {
        let (ids, learned, samples) = (Vec::new(), Vec::new(), Vec::new());
        Packs { ids, learned, samples, pack, vocabulary: 1000 }
    }

    fn columns(p: &Packs, sample: u64) -> (Vec<i32>, Vec<i32>, Vec<f32>) {
        let n = p.pack as usize;
        let (mut ids, mut next, mut weight) = (vec![9; n], vec![9; n], vec![9.0; n]);
        p.fill_ids(sample, 0, &mut ids);
        p.fill_ids(sample, 1, &mut next);
        p.fill_weights(sample, &mut weight);
        (ids, next, weight)
    }

    #[test]
    fn conversations_share_samples() {
        let mut p = packs(6);
        p.add(&[1, 2, 3], &[false, false, true]);
        p.add(&[4, 5, 6], &[false, true, true]);
        p.add(&[7, 8], &[false, true]);
        assert_eq!(p.samples(), 2);
        let (ids, next, weight) = columns(&p, 0);
        assert_eq!(ids, [1, 2, 3, 4, 5, 0]);
        assert_eq!(next, [2, 3, 4, 5, 6, 0]);
        assert_eq!(weight, [0.0, 1.0, 0.0, 1.0, 1.0, 0.0]);
        assert_eq!(columns(&p, 1).1, [8, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn turns_are_said_as_the_template_says() {
        let encoder = Encoder::new(&Tokenizer::Bytes, ChatTemplate::Llama3).unwrap();
        let turn = |role: &str, learned| Turn { role: role.into(), field: "f".into(), learned };
        let (mut ids, mut learned) = (Vec::new(), Vec::new());
        encoder
            .turn(ChatTemplate::Llama3, &turn("user", false), " hi ", &mut ids, &mut learned)
            .unwrap();
        let bytes = |s: &str| s.bytes().map(u32::from).collect::<Vec<_>>();
        let want = [vec![257], bytes("user"), vec![258], bytes("\n\nhi"), vec![259]].concat();
        assert_eq!(ids, want);
        assert!(learned.iter().all(|l| !l));
        let start = ids.len();
        encoder
            .turn(ChatTemplate::Llama3, &turn("assistant", true), "yo", &mut ids, &mut learned)
            .unwrap();
        let taught: Vec<u32> = ids.iter().zip(&learned).filter(|x| *x.1).map(|x| *x.0).collect();
        assert_eq!(taught, [bytes("yo"), vec![259]].concat());
        assert!(start < ids.len() && learned.len() == ids.len());
        assert_eq!(encoder.vocabulary, 260);
        let encoder = Encoder::new(&Tokenizer::Bytes, ChatTemplate::ChatMl).unwrap();
        ids.clear();
        encoder
            .turn(ChatTemplate::ChatMl, &turn("user", true), "hi", &mut ids, &mut Vec::new())
            .unwrap();
        assert_eq!(ids, [vec![256], bytes("user\nhi"), vec![257, 10]].concat());
    }

    proptest! {
        /// Every token but the first of its conversation is a target once, behind the one that
        /// stands before it.
        #[test]
        fn every_token_is_a_target_once(
            lengths in prop::collection::vec(1usize..20, 1..20), pack in 1u64..12,
        ) {
            let mut p = packs(pack);
            let mut wanted = Vec::new();
            for (c, n) in lengths.iter().enumerate() {
                let ids: Vec<u32> = (0..*n).map(|i| 1 + (c * 32 + i) as u32).collect();
                let learned: Vec<bool> = (0..*n).map(|i| i > 0).collect();
                wanted.extend(ids.windows(2).map(|w| (w[0] as i32, w[1] as i32)));
                p.add(&ids, &learned);
            }
            let mut found = Vec::new();
            for sample in 0..p.samples() {
                let (ids, next, weight) = columns(&p, sample);
                for ((id, next), weight) in ids.iter().zip(&next).zip(&weight) {
                    if *weight == 1.0 {
                        found.push((*id, *next));
                    }
                }
            }
            found.sort_unstable();
            wanted.sort_unstable();
            prop_assert_eq!(found, wanted);
        }
    }
}
