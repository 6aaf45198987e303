//! The table of codes: one page each, shipped in the binary.
//!
//! A page is Markdown: a paragraph, a failing program and a fixed one, each in a fenced block
//! marked `mon` (or `text`, where a program small enough to print cannot show it).

/// What `monarch explain CODE` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// `M0101`
    pub code: &'static str,
    /// One line, without a full stop.
    pub title: &'static str,
    /// Markdown.
    pub text: &'static str,
}

impl Page {
    /// The programs on the page: by convention the first fails with this code and the last does
    /// not.
    pub fn programs(&self) -> Vec<&'static str> {
        let mut programs = Vec::new();
        let mut rest = self.text;
        while let Some((_, after)) = rest.split_once("```mon\n") {
            let Some((program, after)) = after.split_once("\n```") else { break };
            programs.push(program);
            rest = after;
        }
        programs
    }
}

/// The page of a code; the case of its letter does not matter.
pub fn page(code: &str) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.code.eq_ignore_ascii_case(code))
}

/// All pages, by code.
pub fn pages() -> &'static [Page] {
    PAGES
}

macro_rules! pages {
    ($($code:literal $title:literal)*) => {
        &[$(Page {
            code: $code,
            title: $title,
            text: include_str!(concat!("../codes/", $code, ".md")),
        }),*]
    };
}

const PAGES: &[Page] = pages! {
    "M0001" "Something unexpected, or something missing"
    "M0002" "A bracket without its partner"
    "M0003" "A string or Rhai text that is never closed"
    "M0004" "Brackets nested too deep"
    "M0005" "The program is too large"
    "M0006" "The program is empty"
    "M0007" "An expression that is too long"
    "M0008" "The program is not UTF-8 text"
    "M0009" "A word of the language used as a name"
    "M0010" "The wrong one of `=`, `==`, `:`, `~`, `=>`"
    "M0011" "A weight that does not say how it begins"
    "M0012" "A habit from another language"
    "M0013" "A value that is not used"
    "M0014" "An unknown escape in a string"
    "M0015" "Comparisons or ranges in a chain"
    "M0016" "An `if` without `else`"
    "M0017" "Something that cannot stand at the top level"
    "M0301" "A program without a job"
    "M0302" "More workers than shards"
    "M0303" "A loss that depends on no weight"
    "M0304" "A weight that does not change the loss"
    "M0313" "A number that has no value"
    "M0316" "Rotary positions over an odd length"
    "M0318" "Weights of targets that depend on the model"
    "M0399" "An internal fault of the planner"
    "M0401" "Not enough memory"
};
