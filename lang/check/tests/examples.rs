//! The programs that a new user reads first are checked as they stand.

mod common;

use common::{Memory, shown};

fn example(name: &str) -> String {
    let path = format!("{}/../../examples/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).expect("the example is there")
}

#[test]
fn digits() {
    let world = Memory::with("examples/digits.mon", &example("digits.mon"));
    let checked = world.check("examples/digits.mon");
    let program = checked.program.as_ref().unwrap_or_else(|| panic!("{}", shown(&checked)));
    println!("{}", shown(&checked));
    let job = program.job.as_ref().expect("it trains");
    assert_eq!((job.batch, job.steps, job.rows), (64, 20 * 23, 1797));
}

#[test]
fn chargpt() {
    let world = Memory::with("examples/chargpt.mon", &example("chargpt.mon"));
    let checked = world.check("examples/chargpt.mon");
    let program = checked.program.as_ref().unwrap_or_else(|| panic!("{}", shown(&checked)));
    println!("{}", shown(&checked));
    assert_eq!(program.models[0].weights.len(), 2 + 1 + 6 * 6);
}

/// The programs of later versions parse, and what is not built yet is said, each with its place.
#[test]
fn later_programs_say_not_yet() {
    for (name, least) in [("llama3d.mon", 8), ("lora.mon", 3)] {
        let checked = Memory::with(name, &example(name)).check(name);
        let text = shown(&checked);
        println!("{text}");
        assert!(checked.program.is_none());
        let later = checked.diagnostics.iter().filter(|d| d.code.starts_with("M09"));
        assert!(later.clone().all(|d| d.span().is_some()));
        assert!(later.count() >= least, "{text}");
        assert!(!checked.diagnostics.iter().any(|d| d.code.starts_with("M00")), "{text}");
    }
}
