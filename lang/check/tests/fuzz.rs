//! A short campaign of each fuzz target; `examples/fuzz.rs` has the long ones. What they found is
//! below, one text for each kind.

mod common;
#[path = "common/fuzz.rs"]
#[allow(dead_code)]
mod fuzz;
#[path = "../../syntax/tests/common/generate.rs"]
#[allow(dead_code)]
mod generate;

use common::Memory;
use fuzz::{Counting, Target, campaign, corpus, run, watch};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One after the other, since memory is counted for all threads together.
#[test]
fn no_text_makes_a_target_fail() {
    watch();
    for (target, executions) in
        [(Target::Parser, 4000), (Target::Formatter, 1500), (Target::Checker, 800)]
    {
        let done = campaign(target, 11, corpus(), |n| n < executions);
        assert!(done.failures.is_empty(), "{target:?}: {:#?}", done.failures);
        assert!(done.kinds > 50, "{target:?}: {} kinds", done.kinds);
    }
    for (target, text) in FOUND {
        assert!(run(*target, text).is_ok(), "{target:?}: {text}");
    }
}

/// Texts that once made a target fail.
const FOUND: &[(Target, &str)] = &[
    // A comma inside nested parentheses was taken for that of a tuple.
    (Target::Formatter, "let a = ((b, [],))\n"),
    // A name for an axis that is no name was dropped without a word.
    (Target::Formatter, "let a = f[_ = x]\n"),
    // Weights that are not here: a note, and no program. The fuzzer asked for an error.
    (
        Target::Checker,
        "use std.models.llama.{Llama,hf_names}model m=Llama[T=8].load(\"\u{fffd}\")\
         {names=hf_names freeze=[]}",
    ),
];
