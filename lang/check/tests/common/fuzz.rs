//! Mutational fuzzing of the language's front: parser, formatter, checker.
//!
//! No instrumentation is needed: an input whose answer is of a new kind (which diagnostics, which
//! places of the tree) is kept and mutated further. Everything follows from the seed, so that an
//! execution can be repeated by its number; a failing input is also shown as a whole.

use super::Memory;
use super::generate::{self, Random};
use monarch_syntax::{format, parse};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Parser,
    Formatter,
    Checker,
}

impl Target {
    pub fn named(name: &str) -> Option<Target> {
        match name {
            "parser" => Some(Target::Parser),
            "formatter" => Some(Target::Formatter),
            "checker" => Some(Target::Checker),
            _ => None,
        }
    }

    /// Runs an input: the kind of the answer, or what is wrong with it.
    fn run(self, text: &str) -> Result<u64, String> {
        let mut kind = DefaultHasher::new();
        match self {
            Target::Parser => {
                let (file, diagnostics) = parse(0, text);
                for d in &diagnostics {
                    let spans = d.labels.iter().map(|label| label.span);
                    let inside = |s: monarch_graph::Span| {
                        text.get(s.start as usize..s.end as usize).is_some()
                    };
                    if !spans.into_iter().all(inside) {
                        return Err(format!("a label outside the text: {d:?}"));
                    }
                    if d.title == "this cannot be read" {
                        return Err("the grammar is not total".to_owned());
                    }
                    (d.code, d.labels.len(), d.help.len()).hash(&mut kind);
                }
                let kinds = file.items.iter().map(|item| std::mem::discriminant(&item.kind));
                kinds.for_each(|k| k.hash(&mut kind));
            }
            Target::Formatter => {
                let once = format(0, text);
                let twice = format(0, &once.text);
                if once.text != twice.text {
                    return Err("formatting twice is not formatting once".to_owned());
                }
                if once.diagnostics.len() != twice.diagnostics.len() {
                    return Err("formatting changes what is wrong".to_owned());
                }
                (once.kept, once.text.lines().count().min(60)).hash(&mut kind);
                once.diagnostics.iter().for_each(|d| d.code.hash(&mut kind));
            }
            Target::Checker => {
                let checked = Memory::with("job.mon", text).check("job.mon");
                let errors = checked.diagnostics.iter().any(|d| d.is_error());
                if checked.program.is_some() && errors {
                    return Err("a program with errors".to_owned());
                }
                // Without its files a program may be right and not there: then a note says so.
                let silent = checked.absent.is_empty() || checked.diagnostics.is_empty();
                if checked.program.is_none() && !errors && silent {
                    return Err("no program, and nothing says why".to_owned());
                }
                if checked.diagnostics.iter().any(|d| d.code == "M0000") {
                    return Err("the check ends in silence".to_owned());
                }
                let codes: HashSet<&str> = checked.diagnostics.iter().map(|d| d.code).collect();
                let mut codes: Vec<&str> = codes.into_iter().collect();
                codes.sort_unstable();
                codes.hash(&mut kind);
            }
        }
        Ok(kind.finish())
    }
}

/// Bytes in use and the most there were, as the allocator of the program counts them.
pub static USED: AtomicU64 = AtomicU64::new(0);
pub static MOST: AtomicU64 = AtomicU64::new(0);

/// Counts what is allocated, so that an input that takes too much is found.
pub struct Counting;

// SAFETY: everything is handed on to the system's allocator; only numbers are kept beside it.
unsafe impl std::alloc::GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: std::alloc::Layout) -> *mut u8 {
        let used = USED.fetch_add(layout.size() as u64, Relaxed) + layout.size() as u64;
        MOST.fetch_max(used, Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { std::alloc::System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: std::alloc::Layout) {
        USED.fetch_sub(layout.size() as u64, Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { std::alloc::System.dealloc(at, layout) }
    }
}

/// The input at work and since when, for the thread that watches over it.
static WORK: Mutex<Option<(Instant, String)>> = Mutex::new(None);

/// Processor time of this thread: other work on the machine is not our slowness.
fn busy() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0);
    Duration::from_nanos(ns)
}

/// Ends the process, with the input that hangs, when one takes longer than a minute.
pub fn watch() {
    std::thread::spawn(|| {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let work = WORK.lock().unwrap_or_else(|lock| lock.into_inner());
            if let Some((since, text)) = work.as_ref()
                && since.elapsed() > Duration::from_secs(60)
            {
                eprintln!("hangs:\n{text}\n");
                std::process::abort();
            }
        }
    });
}

/// One input: no panic, no lie, bounded time and memory.
pub fn run(target: Target, text: &str) -> Result<u64, String> {
    *WORK.lock().unwrap_or_else(|lock| lock.into_inner()) = Some((Instant::now(), text.to_owned()));
    let before = USED.load(Relaxed);
    MOST.store(before, Relaxed);
    let start = busy();
    let answer = catch_unwind(AssertUnwindSafe(|| target.run(text)));
    let took = busy() - start;
    let bytes = MOST.load(Relaxed).saturating_sub(before);
    *WORK.lock().unwrap_or_else(|lock| lock.into_inner()) = None;
    let kind = answer.map_err(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let words = words.or(panic.downcast_ref::<&str>().copied());
        format!("a panic: {}", words.unwrap_or("?"))
    })??;
    let kib = text.len() as u64 / 1024 + 1;
    if took > Duration::from_millis(1500 + 20 * kib) {
        return Err(format!("{took:?} for {} bytes", text.len()));
    }
    if bytes > (48 << 20) + kib * (4 << 20) {
        return Err(format!("{} MiB of memory for {} bytes", bytes >> 20, text.len()));
    }
    Ok(kind)
}

/// An input that fails, as small as removing pieces makes it.
pub fn smallest(target: Target, text: &str) -> String {
    let mut text = text.to_owned();
    let mut piece = text.len() / 2;
    while piece > 0 {
        let mut at = 0;
        while at < text.len() {
            let end = (at + piece).min(text.len());
            let whole = text.is_char_boundary(at) && text.is_char_boundary(end);
            let without = whole.then(|| format!("{}{}", &text[..at], &text[end..]));
            match without.filter(|without| run(target, without).is_err()) {
                Some(without) => text = without,
                None => at += piece,
            }
        }
        piece /= 2;
    }
    text
}

/// What a campaign did.
pub struct Campaign {
    pub executions: u64,
    pub kinds: usize,
    pub failures: Vec<(String, String)>,
}

/// Mutates the corpus until `go_on` says no; at most five different failures.
pub fn campaign(
    target: Target,
    seed: u64,
    mut corpus: Vec<String>,
    mut go_on: impl FnMut(u64) -> bool,
) -> Campaign {
    let mut random = Random(seed);
    let mut seen = HashSet::new();
    let mut out = Campaign { executions: 0, kinds: 0, failures: Vec::new() };
    let mut waiting = corpus.clone();
    while go_on(out.executions) && out.failures.len() < 5 {
        let text = match waiting.pop() {
            Some(text) => text,
            None if random.once(50) => generate::program(random.next()).text,
            None => mutate(&corpus, &mut random),
        };
        out.executions += 1;
        match run(target, &text) {
            Ok(kind) => {
                if seen.insert(kind) && text.len() < 20_000 && corpus.len() < 20_000 {
                    corpus.push(text);
                }
            }
            Err(what) => {
                let words =
                    |what: &str| what.split(|c: char| c.is_ascii_digit()).next().map(str::len);
                let known = |(other, _): &(String, String)| words(other) == words(&what);
                if !out.failures.iter().any(known) {
                    out.failures.push((what, smallest(target, &text)));
                }
            }
        }
    }
    out.kinds = seen.len();
    out
}

const PIECES: &[&str] = &[
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "=",
    "==",
    ":",
    "~",
    "->",
    "=>",
    ",",
    "..",
    ".",
    "|>",
    "-",
    "@",
    "\"",
    "```",
    "```rhai",
    "#",
    "##",
    "\n",
    " ",
    "\t",
    "\r\n",
    "if",
    "else",
    "let",
    "on",
    "in",
    "not",
    "assert",
    "use",
    "layer",
    "param",
    "op",
    "test",
    "then",
    "1",
    "2 GiB",
    "1e400",
    "é",
    "99999999999999999999",
    "“",
    "\u{feff}",
    "\0",
    ";",
    "//",
    "*",
    "^",
    "%",
    "_",
    "steps",
    "repeat",
    "einsum[B D -> B]",
    "train",
    "model",
    "data",
    "none",
    "x",
    "D",
    "D / 0",
    "rejects",
];

/// Words, numbers, and everything else a character at a time.
fn tokens(text: &str) -> Vec<&str> {
    let class = |c: char| if c.is_alphanumeric() || c == '_' { 1 } else { 0 };
    let mut out = Vec::new();
    let (mut start, mut last) = (0, 0);
    for (at, c) in text.char_indices() {
        if at > start && (class(c) == 0 || class(c) != last) {
            out.push(&text[start..at]);
            start = at;
        }
        last = class(c);
    }
    out.push(&text[start..]);
    out
}

fn mutate(corpus: &[String], random: &mut Random) -> String {
    let base = &corpus[random.below(corpus.len())];
    if random.once(8) {
        return bytes(base, random);
    }
    let other = tokens(&corpus[random.below(corpus.len())]);
    let mut all = tokens(base);
    for _ in 0..1 + random.below(4) {
        let at = random.below(all.len());
        let range = at..(at + 1 + random.below(12)).min(all.len());
        match random.below(9) {
            0 => drop(all.drain(range)),
            1 => {
                let piece = all[range].to_vec();
                let to = random.below(all.len());
                all.splice(to..to, piece);
            }
            2 => all.insert(at, random.pick(PIECES)),
            3 if !all.is_empty() => all[at] = random.pick(PIECES),
            4 if !all.is_empty() => {
                let with = random.below(all.len());
                all.swap(at, with);
            }
            5 => {
                let from = random.below(other.len());
                let piece = &other[from..(from + 1 + random.below(60)).min(other.len())];
                all.splice(at..at, piece.iter().copied());
            }
            6 if !all.is_empty() => all[at] = other[random.below(other.len())],
            7 => {
                let piece = random.pick(PIECES);
                let count = [3, 30, 300][random.below(3)];
                all.splice(at..at, std::iter::repeat_n(piece, count));
            }
            _ => all.truncate(at),
        }
        if all.is_empty() {
            all.push(" ");
        }
    }
    all.concat()
}

fn bytes(base: &str, random: &mut Random) -> String {
    let mut bytes = base.as_bytes().to_vec();
    for _ in 0..1 + random.below(6) {
        let at = random.below(bytes.len());
        match random.below(4) {
            _ if bytes.is_empty() => bytes.push(b'x'),
            0 => drop(bytes.remove(at)),
            1 => bytes.insert(at, random.next() as u8),
            2 => bytes[at] ^= 1 << random.below(8),
            _ => bytes[at] = random.next() as u8 & 0x7f,
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The programs of the repository, and generated ones.
pub fn corpus() -> Vec<String> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let mut out = Vec::new();
    for folder in
        ["examples", "stdlib", "tests/fixtures", "tests/suite", "lang/syntax/tests/golden"]
    {
        let mut files: Vec<_> = std::fs::read_dir(format!("{root}/{folder}"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|end| end == "mon"))
            .collect();
        files.sort();
        for path in files {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            out.extend(text.split("#---\n").map(str::to_owned));
        }
    }
    out.extend((0..200).map(|seed| generate::program(seed).text));
    out
}
