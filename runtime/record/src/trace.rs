//! A Chrome trace (opens in Perfetto and chrome://tracing): what each worker did when.

use crate::RecordError;
use crate::events::replace;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Which of a worker's rows a span is drawn in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Track {
    /// Data, checkpoints, waiting for the controller.
    Host,
    /// A compute lane: one thread.
    Compute(u32),
    /// Collectives of one stream.
    Communication(u32),
}

/// Something that took a while.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSpan {
    pub rank: u32,
    pub track: Track,
    /// `forward`, `backward`, `all-reduce bucket 3`.
    pub name: String,
    /// On one clock for all ranks.
    pub start_ns: u64,
    pub end_ns: u64,
    pub step: Option<u64>,
    pub bucket: Option<u32>,
    pub shard: Option<u32>,
    pub bytes: Option<u64>,
}

/// Writes the spans whole, or leaves the file as it was. A rank is a process, a track a thread;
/// spans of a track that overlap without being nested get further rows, since the format has no
/// place for them in one. Times count from the first span.
///
/// `names` are shown for the ranks (`worker 0 on gpu01`), those not named are `rank N`.
pub fn write_trace(
    path: &Path,
    names: &BTreeMap<u32, String>,
    spans: &[TraceSpan],
) -> Result<(), RecordError> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).map_err(RecordError::io("create", dir))?;
    }
    replace(path, trace(names, spans).as_bytes())
}

fn trace(names: &BTreeMap<u32, String>, spans: &[TraceSpan]) -> String {
    let mut order: Vec<&TraceSpan> = spans.iter().collect();
    // Of spans that begin together the longest comes first: it encloses the others.
    order.sort_by_key(|s| (s.rank, s.track, s.start_ns, u64::MAX - s.end_ns));
    let base = spans.iter().map(|s| s.start_ns).min().unwrap_or(0);
    let mut rows = Rows::default();
    let mut lines = Vec::with_capacity(order.len());
    for span in order {
        let thread = rows.place(span);
        lines.push(complete(span, thread, base));
    }
    let mut all = rows.labels(names);
    all.append(&mut lines);
    format!("{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{}\n]}}\n", all.join(",\n"))
}

/// One row per track, and more where spans overlap.
#[derive(Default)]
struct Rows {
    /// Ends of the spans that are open in each row, outermost first.
    open: BTreeMap<(u32, Track), Vec<Vec<u64>>>,
    /// Thread numbers, unique in the whole trace: a viewer may know threads by number alone.
    threads: BTreeMap<(u32, Track, usize), usize>,
}

impl Rows {
    fn place(&mut self, span: &TraceSpan) -> usize {
        let rows = self.open.entry((span.rank, span.track)).or_default();
        let end = span.end_ns.max(span.start_ns);
        let fits = |row: &mut Vec<u64>| {
            row.retain(|&open| open > span.start_ns);
            row.last().is_none_or(|&open| open >= end)
        };
        let row = match rows.iter_mut().position(fits) {
            Some(row) => row,
            None => {
                rows.push(Vec::new());
                rows.len() - 1
            }
        };
        rows[row].push(end);
        let next = self.threads.len() + 1;
        *self.threads.entry((span.rank, span.track, row)).or_insert(next)
    }

    fn labels(&self, names: &BTreeMap<u32, String>) -> Vec<String> {
        let mut lines = Vec::new();
        let mut label = |name: &str, rank: u32, thread: usize, args: Value| {
            let event = json!({
                "ph": "M", "name": name, "pid": process(rank), "tid": thread, "args": args,
            });
            lines.push(event.to_string());
        };
        let mut last = None;
        for (&(rank, track, row), &thread) in &self.threads {
            if last.replace(rank) != Some(rank) {
                let name = names.get(&rank).cloned().unwrap_or_else(|| format!("rank {rank}"));
                label("process_name", rank, thread, json!({ "name": name }));
                label("process_sort_index", rank, thread, json!({ "sort_index": rank }));
            }
            let mut name = match track {
                Track::Host => "host".to_string(),
                Track::Compute(lane) => format!("compute {lane}"),
                Track::Communication(stream) => format!("communication {stream}"),
            };
            if row > 0 {
                name.push_str(&format!(" ({})", row + 1));
            }
            label("thread_name", rank, thread, json!({ "name": name }));
            label("thread_sort_index", rank, thread, json!({ "sort_index": thread }));
        }
        lines
    }
}

/// Number 0 is the idle task to some viewers.
fn process(rank: u32) -> u64 {
    u64::from(rank) + 1
}

fn complete(span: &TraceSpan, thread: usize, base: u64) -> String {
    let category = match span.track {
        Track::Host => "host",
        Track::Compute(_) => "compute",
        Track::Communication(_) => "communication",
    };
    let mut args = Map::new();
    let numbers = [
        ("step", span.step),
        ("bucket", span.bucket.map(u64::from)),
        ("shard", span.shard.map(u64::from)),
        ("bytes", span.bytes),
    ];
    for (name, value) in numbers {
        if let Some(value) = value {
            args.insert(name.to_string(), value.into());
        }
    }
    format!(
        "{{\"ph\":\"X\",\"name\":{},\"cat\":\"{category}\",\"pid\":{},\"tid\":{thread},\
         \"ts\":{},\"dur\":{},\"args\":{}}}",
        Value::from(span.name.as_str()),
        process(span.rank),
        micros(span.start_ns - base),
        micros(span.end_ns.saturating_sub(span.start_ns)),
        Value::Object(args),
    )
}

/// The format's unit, to the nanosecond.
fn micros(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn span(rank: u32, track: Track, name: &str, start_ns: u64, end_ns: u64) -> TraceSpan {
        let name = name.to_string();
        TraceSpan {
            rank,
            track,
            name,
            start_ns,
            end_ns,
            step: Some(3),
            bucket: None,
            shard: None,
            bytes: None,
        }
    }

    fn events(text: &str) -> Vec<Value> {
        let all: Value = serde_json::from_str(text).unwrap();
        all["traceEvents"].as_array().unwrap().clone()
    }

    #[test]
    fn collectives_lie_under_backward() {
        let mut reduce = span(1, Track::Communication(0), "all-reduce", 5_000_250, 5_900_000);
        (reduce.bucket, reduce.bytes) = (Some(2), Some(4096));
        let spans = [
            span(0, Track::Host, "load \"batch\"", 4_999_000, 5_000_000),
            span(1, Track::Compute(0), "backward", 5_000_000, 6_000_000),
            reduce,
        ];
        let names = BTreeMap::from([(1, "worker 1 on gpu01".to_string())]);
        let events = events(&trace(&names, &spans));
        let find =
            |name: &str| events.iter().find(|e| e["name"] == name && e["ph"] == "X").unwrap();
        let (backward, reduce) = (find("backward"), find("all-reduce"));
        assert_eq!(backward["pid"], reduce["pid"]);
        assert_ne!(backward["tid"], reduce["tid"]);
        assert_eq!(reduce["ts"], 1.25);
        assert_eq!(reduce["dur"], 899.75);
        assert_eq!(reduce["args"], json!({ "step": 3, "bucket": 2, "bytes": 4096 }));
        assert_eq!(find("load \"batch\"")["ts"], 0.0);
        let label = |key: &str| {
            let labels = events.iter().filter(|e| e["name"] == key);
            labels.map(|e| e["args"]["name"].as_str().unwrap().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(label("process_name"), ["rank 0", "worker 1 on gpu01"]);
        assert_eq!(label("thread_name"), ["host", "compute 0", "communication 0"]);
        assert_eq!(trace(&BTreeMap::new(), &[]).matches("[\n\n]").count(), 1);
    }

    #[test]
    fn overlapping_spans_get_rows_of_their_own() {
        let track = Track::Communication(0);
        let spans = [
            span(0, track, "a", 0, 10),
            span(0, track, "b", 5, 15),
            span(0, track, "inside a", 2, 4),
            span(0, track, "c", 10, 12),
        ];
        let events = events(&trace(&BTreeMap::new(), &spans));
        let row = |name: &str| events.iter().find(|e| e["name"] == name).unwrap()["tid"].clone();
        assert_eq!(row("a"), row("inside a"));
        assert_ne!(row("a"), row("b"));
        assert_eq!(row("c"), row("a"));
    }

    proptest! {
        /// Within a row, two spans are nested or apart.
        #[test]
        fn rows_are_well_nested(spans in proptest::collection::vec((0u64..50, 0u64..20), 0..40)) {
            let spans: Vec<_> = spans
                .iter()
                .map(|&(start, length)| (start * 1000, (start + length) * 1000))
                .map(|(start, end)| span(0, Track::Host, "s", start, end))
                .collect();
            let all = events(&trace(&BTreeMap::new(), &spans));
            let base = spans.iter().map(|s| s.start_ns).min().unwrap_or(0);
            let placed: Vec<(u64, f64, f64)> = all
                .iter()
                .filter(|e| e["ph"] == "X")
                .map(|e| {
                    let number = |key: &str| e[key].as_f64().unwrap();
                    let start = number("ts") + (base / 1000) as f64;
                    (e["tid"].as_u64().unwrap(), start, start + number("dur"))
                })
                .collect();
            prop_assert_eq!(placed.len(), spans.len());
            for (i, a) in placed.iter().enumerate() {
                for b in &placed[i + 1..] {
                    let apart = a.2 <= b.1 || b.2 <= a.1;
                    let nested = (a.1 <= b.1 && b.2 <= a.2) || (b.1 <= a.1 && a.2 <= b.2);
                    prop_assert!(a.0 != b.0 || apart || nested, "{:?} {:?}", a, b);
                }
            }
        }
    }
}
