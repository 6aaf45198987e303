//! The programs of `examples/`, made shorter.

use super::{Place, root};
use std::fmt::Display;

/// Replaces the one place where `from` stands.
#[track_caller]
pub fn swap(text: &str, from: &str, to: impl Display) -> String {
    assert_eq!(text.matches(from).count(), 1, "`{from}` stands once in:\n{text}");
    text.replace(from, &to.to_string())
}

fn example(name: &str) -> String {
    let path = root().join("examples").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// `digits.mon` for so long: `2 epochs`, `5 steps`.
pub fn digits(until: &str) -> String {
    swap(&example("digits.mon"), "20 epochs", until)
}

/// Params of a small `chargpt.mon`, without the corpus.
pub const CHARGPT_SMALL: &[&str] = &["--depth", "2", "--D", "48", "--H", "3", "--T", "32"];

/// `chargpt.mon` for so many steps, with a batch of 16, a warm-up of `warmup` steps, an
/// evaluation of two batches every 5 steps and a checkpoint now and then.
pub fn chargpt(steps: u64, warmup: u64, save_every: &str) -> String {
    let text = example("chargpt.mon");
    let text = swap(&text, "until = 5000 steps", format!("until = {steps} steps"));
    let text = swap(&text, "batch = 64", "batch = 16");
    let text = swap(&text, "100 steps) then", format!("{warmup} steps) then"));
    let text = swap(&text, "every = 250 steps, batches = 50", "every = 5 steps, batches = 2");
    swap(&text, "every = 10 min", format!("every = {save_every}"))
}

/// A text to learn.
pub struct Corpus;

impl Corpus {
    /// Writes about `chars` characters of made-up prose, the same each time; the option that names
    /// the file.
    pub fn write(place: &Place, chars: usize) -> [String; 2] {
        const WORDS: &[&str] = &[
            "the", "river", "carries", "small", "stones", "toward", "an", "open", "sea", "where",
            "gulls", "wait", "über", "quiet", "waves", "and", "nobody", "counts", "them", "all",
        ];
        let mut text = String::new();
        let mut state = 7u64;
        while text.len() < chars {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let pick = (state >> 33) as usize;
            text.push_str(WORDS[pick % WORDS.len()]);
            text.push_str(if pick.is_multiple_of(11) { ".\n" } else { " " });
        }
        let path = place.write("corpus.txt", text);
        ["--corpus".to_string(), path.display().to_string()]
    }
}
