//! The standard library, embedded.

/// Module name and text of every file of the library, sorted by name.
pub const MODULES: &[(&str, &str)] = &[
    ("std.adapt", include_str!("../../../stdlib/adapt.mon")),
    ("std.data", include_str!("../../../stdlib/data.mon")),
    ("std.init", include_str!("../../../stdlib/init.mon")),
    ("std.loss", include_str!("../../../stdlib/loss.mon")),
    ("std.math", include_str!("../../../stdlib/math.mon")),
    ("std.models.llama", include_str!("../../../stdlib/models/llama.mon")),
    ("std.nn", include_str!("../../../stdlib/nn.mon")),
    ("std.optim", include_str!("../../../stdlib/optim.mon")),
    ("std.test", include_str!("../../../stdlib/test.mon")),
];

/// Names known without an import: a module and, unless it is all of them, which.
pub(crate) const PRELUDE: &[(&str, Option<&[&str]>)] = &[
    ("std.math", None),
    ("std.init", None),
    ("std.data", Some(&["csv", "jsonl", "tensors", "text", "tokens"])),
];

/// Names known in `test` blocks on top of the prelude.
pub(crate) const TEST_PRELUDE: &str = "std.test";

/// The text of a module: `std.nn`.
pub fn module(name: &str) -> Option<&'static str> {
    MODULES.iter().find(|m| m.0 == name).map(|m| m.1)
}
