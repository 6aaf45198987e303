//! Data sets end to end: facts for the planner, opened again as a worker does, samples by position.

use monarch_data::{Buffer, Cut, DataError, Dataset, FillError, Order, Reader, SourceSpec, facts};
use monarch_graph::{self as graph, Column, DType, Data, Source, Span};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn cuts(list: &[(&str, f64)]) -> Vec<Cut> {
    list.iter().map(|&(name, fraction)| Cut { name: name.into(), fraction }).collect()
}

fn column(name: &str, dtype: DType, shape: &[u64], below: Option<u64>) -> Column {
    Column { name: name.into(), dtype, shape: shape.to_vec(), below, span: Span::default() }
}

fn data(spec: &SourceSpec, list: &[(&str, f64)], order: graph::Order) -> Data {
    let found = facts(spec, &cuts(list)).unwrap();
    Data { source: found.source, splits: found.splits, order, span: Span::default() }
}

fn open(data: &Data, columns: &[Column]) -> Reader {
    Reader::new(Arc::new(Dataset::open(data, 7).unwrap()), columns).unwrap()
}

fn read(reader: &Reader, split: &str, order: Order, range: std::ops::Range<u64>) -> Vec<Buffer> {
    let mut buffers = reader.buffers();
    reader.fill_buffers(split, order, range, &mut buffers).unwrap();
    buffers
}

fn ints(buffer: &Buffer) -> &[i32] {
    match buffer {
        Buffer::I32(values) => values,
        Buffer::F32(_) => panic!("whole numbers expected"),
    }
}

/// A safetensors file by hand: name, dtype, shape, bytes.
fn safetensors(path: &Path, tensors: &[(&str, &str, &[u64], Vec<u8>)]) {
    let (mut header, mut body) = (Vec::new(), Vec::<u8>::new());
    for (name, dtype, shape, bytes) in tensors {
        let end = body.len() + bytes.len();
        header.push(format!(
            r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{},{end}]}}"#,
            body.len()
        ));
        body.extend(bytes);
    }
    let header = format!("{{{}}}", header.join(","));
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(body);
    fs::write(path, file).unwrap();
}

fn le<const N: usize, T: Copy>(values: &[T], bytes: fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|&v| bytes(v)).collect()
}

#[test]
fn digits_shuffled_once_and_per_epoch() {
    let spec = SourceSpec::Digits;
    let data = data(&spec, &[("train", 0.8), ("eval", 0.2)], graph::Order::Shuffled);
    let columns = [column("x", DType::F32, &[64], None), column("y", DType::I32, &[], Some(10))];
    let reader = open(&data, &columns);
    let stored = read(&reader, "train", Order::Stored, 0..1437);
    let held_out = read(&reader, "eval", Order::Stored, 0..360);
    // The file begins 0, 1, 2, ..: mixed once, before the cut.
    assert_ne!(ints(&stored[1])[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let count = |d| ints(&held_out[1]).iter().filter(|&&y| y == d).count();
    assert!((0..10).all(|d| count(d) > 20), "every digit is held out");
    // An epoch is the same samples in another order; images travel with their labels.
    let epoch = read(&reader, "train", Order::Epoch(3), 0..1437);
    assert_ne!(epoch, stored);
    assert_eq!(pairs(&epoch), pairs(&stored));
    // Any range is a part of the whole, so resuming anywhere gives the same samples.
    let part = read(&reader, "train", Order::Epoch(3), 700..705);
    assert_eq!(ints(&part[1]), &ints(&epoch[1])[700..705]);
    assert_eq!(ints(&read(&reader, "train", Order::Epoch(3), 9..9)[1]), [0; 0]);
}

/// (label, bits of the image), sorted.
fn pairs(buffers: &[Buffer]) -> Vec<(i32, Vec<u32>)> {
    let Buffer::F32(x) = &buffers[0] else { panic!("x is f32") };
    let images = x.chunks(64).map(|image| image.iter().map(|v| v.to_bits()).collect());
    let mut pairs: Vec<_> = ints(&buffers[1]).iter().copied().zip(images).collect();
    pairs.sort();
    pairs
}

#[test]
fn limits_name_the_sample() {
    let data = data(&SourceSpec::Digits, &[], graph::Order::File);
    let reader = open(&data, &[column("y", DType::I32, &[], Some(9))]);
    let mut buffers = reader.buffers();
    let error = reader.fill_buffers("train", Order::Stored, 0..1797, &mut buffers).unwrap_err();
    assert!(matches!(error, FillError::Limit { value: 9, below: 9, .. }), "{error}");
    assert!(error.to_string().contains("column `y`, sample "), "{error}");
    let error = reader.fill_buffers("train", Order::Stored, 0..1798, &mut buffers).unwrap_err();
    assert!(matches!(error, FillError::Positions { samples: 1797, .. }));
    let error = reader.fill_buffers("eval", Order::Stored, 0..1, &mut buffers).unwrap_err();
    assert!(matches!(error, FillError::NoSplit { .. }));
    let error = reader.fill("train", Order::Stored, 0..2, &mut []).unwrap_err();
    assert!(matches!(error, FillError::Buffer { needed: 2, .. }));
}

#[test]
fn columns_must_be_the_data_sets() {
    let data = data(&SourceSpec::Digits, &[], graph::Order::File);
    let set = Arc::new(Dataset::open(&data, 0).unwrap());
    let error = |c| Reader::new(set.clone(), &[c]).unwrap_err().to_string();
    let missing = error(column("z", DType::I32, &[], None));
    assert_eq!(missing, "the data set has no column `z`; it has `x` and `y`");
    let shape = error(column("x", DType::F32, &[63], None));
    assert_eq!(shape, "column `x` is f32[B, 64]; the program reads f32[B, 63]");
    let dtype = error(column("y", DType::F32, &[], None));
    assert_eq!(dtype, "column `y` is i32[B]; the program reads f32[B]");
}

#[test]
fn tensors_of_every_kind() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.safetensors");
    let floats: Vec<f32> = (0..15).map(|i| i as f32 * 0.5).collect();
    safetensors(
        &path,
        &[
            ("x", "F32", &[5, 3], le(&floats, f32::to_le_bytes)),
            ("id", "I32", &[5], le(&[4, -3, 2, 1, 0], i32::to_le_bytes)),
            ("long", "I64", &[5, 1], le(&[9i64, 8, 7, 6, 5], i64::to_le_bytes)),
            ("byte", "U8", &[5], vec![1, 2, 3, 4, 255]),
            ("half", "F16", &[5], vec![0; 10]),
        ],
    );
    let spec = SourceSpec::Tensors { path: path.clone() };
    let found = facts(&spec, &cuts(&[("train", 0.6), ("eval", 0.4)])).unwrap();
    assert_eq!(found.samples, 5);
    let column_fact = |name| found.columns.iter().find(|c| c.name == name).unwrap();
    assert_eq!(column_fact("id").range, Some((-3, 4)));
    assert_eq!(column_fact("byte").range, Some((1, 255)));
    assert_eq!((column_fact("long").dtype, &column_fact("long").shape), (DType::I32, &vec![1]));
    assert_eq!(column_fact("x").range, None);
    assert_eq!(found.unused[0].dtype, "F16");

    let data = data(&spec, &[("train", 0.6), ("eval", 0.4)], graph::Order::File);
    let columns = [
        column("x", DType::F32, &[3], None),
        column("long", DType::I32, &[1], Some(10)),
        column("byte", DType::I32, &[], None),
    ];
    let reader = open(&data, &columns);
    let got = read(&reader, "eval", Order::Epoch(4), 0..2);
    assert_eq!(got[0], Buffer::F32(floats[9..].to_vec()));
    assert_eq!(ints(&got[1]), [6, 5]);
    assert_eq!(ints(&got[2]), [4, 255]);

    let set = Arc::new(Dataset::open(&data, 7).unwrap());
    let error = Reader::new(set.clone(), &[column("half", DType::F32, &[], None)]).unwrap_err();
    assert!(matches!(error, DataError::Unsupported { .. }), "{error}");
    let negative = Reader::new(set, &[column("id", DType::I32, &[], Some(100))]).unwrap();
    let mut buffers = negative.buffers();
    let error = negative.fill_buffers("train", Order::Stored, 0..3, &mut buffers).unwrap_err();
    assert!(matches!(error, FillError::Limit { sample: 1, value: -3, .. }), "{error}");
}

#[test]
fn samples_of_no_elements_are_samples() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.safetensors");
    safetensors(&path, &[("x", "F32", &[4, 0], vec![]), ("n", "I32", &[4, 2, 0], vec![])]);
    let spec = SourceSpec::Tensors { path };
    let found = facts(&spec, &[]).unwrap();
    assert_eq!((found.samples, found.columns[0].range), (4, None));
    let data = data(&spec, &[], graph::Order::Shuffled);
    let columns = [column("x", DType::F32, &[0], None), column("n", DType::I32, &[2, 0], Some(1))];
    let got = read(&open(&data, &columns), "train", Order::Epoch(0), 0..4);
    assert_eq!(got, [Buffer::F32(vec![]), Buffer::I32(vec![])]);
}

#[test]
fn shuffled_tensors_are_the_permutation() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("n.safetensors");
    let numbers: Vec<i32> = (0..1000).collect();
    safetensors(&path, &[("n", "I32", &[1000], le(&numbers, i32::to_le_bytes))]);
    let spec = SourceSpec::Tensors { path };
    let data = data(&spec, &[("eval", 0.1), ("train", 0.9)], graph::Order::Shuffled);
    let reader = open(&data, &[column("n", DType::I32, &[], None)]);
    let split = reader.dataset().split("train").unwrap().clone();
    let got = read(&reader, "train", Order::Epoch(2), 0..900);
    for (i, &n) in ints(&got[0]).iter().enumerate() {
        let sample = reader.dataset().sample(&split, Order::Epoch(2), i as u64);
        assert_eq!(n as u64, sample);
        assert!((100..1000).contains(&sample));
    }
}

#[test]
fn broken_tensor_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.safetensors");
    let spec = SourceSpec::Tensors { path: path.clone() };
    let error = || facts(&spec, &[]).unwrap_err();
    assert!(matches!(error(), DataError::Io { .. }));
    fs::write(&path, "").unwrap();
    assert!(matches!(error(), DataError::EmptyFile { .. }));
    fs::write(&path, "seven b").unwrap();
    assert!(error().to_string().contains("7 bytes"), "{}", error());
    fs::write(&path, u64::MAX.to_le_bytes()).unwrap();
    assert!(matches!(error(), DataError::Safetensors { .. }));
    safetensors(&path, &[("a", "U8", &[2], vec![0; 2]), ("b", "U8", &[3], vec![0; 3])]);
    assert!(matches!(error(), DataError::Rows { .. }));
    safetensors(&path, &[("a", "U8", &[], vec![0])]);
    assert!(matches!(error(), DataError::Scalar { .. }));
    safetensors(&path, &[("a", "U8", &[0, 4], vec![])]);
    assert!(matches!(error(), DataError::NoSamples { .. }));
    safetensors(&path, &[("a", "U8", &[0, u64::MAX, u64::MAX], vec![])]);
    assert!(matches!(error(), DataError::NoSamples { .. }));
    safetensors(&path, &[]);
    assert!(matches!(error(), DataError::NoSamples { .. }));
    let large = i64::from(i32::MAX) + 1;
    safetensors(&path, &[("a", "I64", &[2], le(&[0, large], i64::to_le_bytes))]);
    assert!(matches!(error(), DataError::OutOfRange { sample: 1, .. }));
    safetensors(&path, &[("a", "U8", &[8], vec![0; 8])]);
    let whole = fs::read(&path).unwrap();
    for end in 1..whole.len() {
        fs::write(&path, &whole[..end]).unwrap();
        assert!(matches!(error(), DataError::Safetensors { .. }), "{end}");
    }
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(matches!(error(), DataError::Io { .. }));
}

#[test]
fn changed_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.txt");
    fs::write(&path, "hello hello hello").unwrap();
    let spec = SourceSpec::Text { paths: vec![path.clone()], window: 3 };
    let data = data(&spec, &[], graph::Order::File);
    assert!(Dataset::open(&data, 0).is_ok());
    fs::write(&path, "hello hello hellp").unwrap();
    let error = Dataset::open(&data, 0).unwrap_err();
    assert!(matches!(error, DataError::Changed { .. }));
    assert!(error.to_string().contains("changed since it was planned"), "{error}");
    fs::write(&path, "hello hello hello!").unwrap();
    let error = Dataset::open(&data, 0).unwrap_err().to_string();
    assert!(error.contains("18 bytes, not 17"), "{error}");
    fs::remove_file(&path).unwrap();
    assert!(matches!(Dataset::open(&data, 0), Err(DataError::Io { .. })));

    let path = dir.path().join("t.safetensors");
    safetensors(&path, &[("a", "U8", &[4], vec![1, 2, 3, 4])]);
    let data = self::data(&SourceSpec::Tensors { path: path.clone() }, &[], graph::Order::File);
    safetensors(&path, &[("a", "U8", &[4], vec![1, 2, 3, 5])]);
    assert!(matches!(Dataset::open(&data, 0), Err(DataError::Changed { .. })));
}

#[test]
fn windows_of_text() {
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = ["a.txt", "b.txt"].iter().map(|name| dir.path().join(name)).collect();
    fs::write(&paths[0], "abcdabcdé").unwrap();
    fs::write(&paths[1], "aabbccddxx").unwrap();
    let spec = SourceSpec::Text { paths: paths.clone(), window: 3 };
    let found = facts(&spec, &cuts(&[("train", 0.75), ("eval", 0.25)])).unwrap();
    assert_eq!(found.vocabulary, ['a', 'b', 'c', 'd', 'x', 'é']);
    assert_eq!((found.samples, found.left_over), (4, 3));
    assert_eq!(found.splits[0].end, 3);
    let data = data(&spec, &[("train", 0.75), ("eval", 0.25)], graph::Order::Shuffled);
    let columns =
        [column("ids", DType::I32, &[3], Some(6)), column("next", DType::I32, &[3], Some(6))];
    let reader = open(&data, &columns);
    let got = read(&reader, "train", Order::Stored, 0..3);
    assert_eq!(ints(&got[0]), [0, 1, 2, 0, 1, 2, 5, 0, 0]);
    assert_eq!(ints(&got[1]), [1, 2, 3, 1, 2, 3, 0, 0, 1]);
    let eval = read(&reader, "eval", Order::Stored, 0..1);
    assert_eq!((ints(&eval[0]), ints(&eval[1])), (&[1, 2, 2][..], &[2, 2, 3][..]));
    // A vocabulary that lacks a character is not silently widened.
    let mut narrow = data.clone();
    if let Source::Text { vocabulary, .. } = &mut narrow.source {
        vocabulary.pop();
    }
    let error = Dataset::open(&narrow, 0).unwrap_err();
    assert!(matches!(error, DataError::Vocabulary { character: 'é', .. }), "{error}");
}

#[test]
fn bad_text_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.txt");
    let spec = |window| SourceSpec::Text { paths: vec![path.clone()], window };
    let error = |window| facts(&spec(window), &[]).unwrap_err();
    fs::write(&path, b"good\xffbad").unwrap();
    assert!(matches!(error(2), DataError::NotUtf8 { offset: 4, .. }));
    fs::write(&path, "four").unwrap();
    assert_eq!(error(4).to_string(), "the text has 4 characters; a window of 4 needs 5");
    assert!(matches!(error(0), DataError::Window { .. }));
    assert!(matches!(error(u64::MAX), DataError::Window { .. }));
    assert!(facts(&spec(3), &[]).is_ok());
    let none = SourceSpec::Text { paths: Vec::new(), window: 3 };
    assert!(matches!(facts(&none, &[]), Err(DataError::NoFiles)));
    fs::write(&path, "").unwrap();
    assert!(matches!(error(3), DataError::EmptyFile { .. }));
}

#[test]
fn splits_of_a_plan_are_checked() {
    let mut data = data(&SourceSpec::Digits, &[], graph::Order::File);
    data.splits[0].end = 1798;
    assert!(matches!(Dataset::open(&data, 0), Err(DataError::Split { samples: 1797, .. })));
    data.splits[0].end = 0;
    assert!(matches!(Dataset::open(&data, 0), Err(DataError::Split { .. })));
}
