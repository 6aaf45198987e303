//! Each sample once an epoch, as a function of (seed, epoch, position) alone: files of tokens,
//! mixes, packed conversations, tables.

use monarch_data::{Buffer, Dataset, Order, Reader, describe, record_facts};
use monarch_graph::{
    self as graph, Chat, ChatTemplate, Column, DType, Data, DataFile, Field, FieldKind, MIX_WHOLE,
    MixPart, RecordFormat, Source, Span, Split, TokenWidth, Tokenizer, Turn,
};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

fn file(dir: &Path, name: &str, content: &[u8]) -> DataFile {
    let path = dir.join(name);
    std::fs::write(&path, content).unwrap();
    describe(&path).unwrap()
}

fn column(name: &str, dtype: DType, shape: &[u64]) -> Column {
    Column { name: name.into(), dtype, shape: shape.to_vec(), below: None, span: Span::default() }
}

fn data(source: Source, samples: u64) -> Data {
    let split = Split { name: "train".into(), start: 0, end: samples };
    let span = Span::default();
    Data { source, splits: vec![split], order: graph::Order::Shuffled, span }
}

fn reader(data: &Data, seed: u64, columns: &[Column]) -> Reader {
    Reader::new(Arc::new(Dataset::open(data, seed).unwrap()), columns).unwrap()
}

fn ints(reader: &Reader, epoch: u64, range: std::ops::Range<u64>) -> Vec<i32> {
    let mut buffers = reader.buffers();
    reader.fill_buffers("train", Order::Epoch(epoch), range, &mut buffers).unwrap();
    match buffers.remove(0) {
        Buffer::I32(values) => values,
        Buffer::F32(_) => panic!("whole numbers expected"),
    }
}

/// `n` windows of two ids and their last target; each window has ids of its own.
fn windows(first: u16, n: u16) -> Vec<u8> {
    (0..n).flat_map(|i| [first + i; 3]).flat_map(u16::to_le_bytes).collect()
}

fn tokens(dir: &Path, mix: Vec<MixPart>) -> Source {
    let files = vec![
        file(dir, "web-0.bin", &windows(0, 40)),
        file(dir, "code-0.bin", &[windows(1000, 30), vec![1, 0, 2, 0]].concat()),
        file(dir, "web-1.bin", &windows(100, 60)),
    ];
    Source::Tokens { files, window: 2, width: TokenWidth::U16, mix }
}

fn part(name: &str, files: &[u32], percent: u32) -> MixPart {
    MixPart { name: name.into(), files: files.to_vec(), share: percent * (MIX_WHOLE / 100) }
}

proptest! {
    #[test]
    fn windows_come_once_an_epoch(seed: u64, epoch in 0u64..5, cut in 1u64..130) {
        let dir = tempfile::tempdir().unwrap();
        let data = data(tokens(dir.path(), Vec::new()), 130);
        let ids = [column("ids", DType::I32, &[2])];
        let (one, two) = (reader(&data, seed, &ids), reader(&data, seed, &ids));
        let whole = ints(&one, epoch, 0..130);
        let seen: BTreeSet<i32> = whole.chunks(2).map(|w| w[0]).collect();
        prop_assert_eq!(seen.len(), 130);
        // Whoever reads which part of it, and in what order.
        let last = ints(&two, epoch, cut..130);
        let first = ints(&two, epoch, 0..cut);
        prop_assert_eq!([first, last].concat(), whole);
    }

    #[test]
    fn a_mix_has_its_shares(seed: u64, epoch in 0u64..5) {
        let dir = tempfile::tempdir().unwrap();
        let mix = vec![part("web", &[0, 2], 75), part("code", &[1], 25)];
        let source = tokens(dir.path(), mix);
        // 30 windows of code are a quarter of 120; the first 90 of web are used.
        let data = data(source, 120);
        let ids = [column("ids", DType::I32, &[2])];
        let reader = reader(&data, seed, &ids);
        let all: Vec<i32> = ints(&reader, epoch, 0..120).chunks(2).map(|w| w[0]).collect();
        let seen: BTreeSet<i32> = all.iter().copied().collect();
        prop_assert_eq!(seen.len(), 120);
        prop_assert_eq!(seen.iter().filter(|id| **id >= 1000).count(), 30);
        prop_assert_eq!(seen.iter().filter(|id| (100..160).contains(*id)).count(), 50);
    }

    #[test]
    fn conversations_are_packed_alike_everywhere(
        lengths in prop::collection::vec((0usize..12, 0usize..12), 1..12), pack in 4u64..64,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let line = |(i, (p, a)): (usize, &(usize, usize))| {
            let word = char::from(b'a' + i as u8);
            let text = |n: &usize| word.to_string().repeat(*n);
            format!("{{\"p\": \"{}\", \"a\": \"{}\"}}\n", text(p), text(a))
        };
        let text: String = lengths.iter().enumerate().map(line).collect();
        let files = vec![file(dir.path(), "t.jsonl", text.as_bytes())];
        let field = |name: &str| Field { name: name.into(), kind: FieldKind::Text };
        let turn = |field: &str, learned| {
            let role = if learned { "assistant" } else { "user" };
            Turn { role: role.into(), field: field.into(), learned }
        };
        let chat = Chat {
            template: ChatTemplate::Llama3,
            tokenizer: Tokenizer::Bytes,
            turns: vec![turn("p", false), turn("a", true)],
            pack,
        };
        let source = Source::Records {
            files,
            format: RecordFormat::Jsonl,
            fields: vec![field("p"), field("a")],
            chat: Some(chat),
        };
        let facts = record_facts(&source).unwrap();
        prop_assert_eq!(facts.vocabulary, Some(260));
        let data = data(source, facts.samples);
        let columns = [column("next", DType::I32, &[pack]), column("weight", DType::F32, &[pack])];
        let reader = reader(&data, 3, &columns);
        let mut buffers = reader.buffers();
        reader.fill_buffers("train", Order::Epoch(0), 0..facts.samples, &mut buffers).unwrap();
        let (Buffer::I32(next), Buffer::F32(weight)) = (&buffers[0], &buffers[1]) else {
            panic!("ids and weights");
        };
        // What the assistant says is learned once, with the mark at its end; nothing else is.
        let learned: Vec<i32> =
            next.iter().zip(weight).filter(|x| *x.1 == 1.0).map(|x| *x.0).collect();
        let words: usize = lengths.iter().map(|l| l.1).sum();
        prop_assert_eq!(learned.len(), words + lengths.len());
        prop_assert_eq!(learned.iter().filter(|id| **id == 259).count(), lengths.len());
    }
}

#[test]
fn tables_are_read_by_sample() {
    let dir = tempfile::tempdir().unwrap();
    let mut text = String::from("y,x\n");
    (0..20).for_each(|i| text.push_str(&format!("{i},{}.5\n", i * 10)));
    let fields = vec![
        Field { name: "x".into(), kind: FieldKind::Float(vec![]) },
        Field { name: "y".into(), kind: FieldKind::Int(vec![]) },
    ];
    let files = vec![file(dir.path(), "t.csv", text.as_bytes())];
    let source = Source::Records { files, format: RecordFormat::Csv, fields, chat: None };
    assert_eq!(record_facts(&source).unwrap().samples, 20);
    let data = data(source.clone(), 20);
    let columns = [column("y", DType::I32, &[]), column("x", DType::F32, &[])];
    let reader = reader(&data, 9, &columns);
    let mut buffers = reader.buffers();
    reader.fill_buffers("train", Order::Epoch(1), 0..20, &mut buffers).unwrap();
    let (Buffer::I32(y), Buffer::F32(x)) = (&buffers[0], &buffers[1]) else { panic!("columns") };
    assert!(y.iter().zip(x).all(|(y, x)| *x == (y * 10) as f32 + 0.5));
    assert_eq!(y.iter().collect::<BTreeSet<_>>().len(), 20);

    // Another file of the same name is not the planned one.
    std::fs::write(dir.path().join("t.csv"), text.replace('9', "8")).unwrap();
    let error = Dataset::open(&data, 9).unwrap_err().to_string();
    assert!(error.contains("changed since it was planned"), "{error}");
}
