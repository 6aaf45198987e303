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

/// Programs whose files and machines are elsewhere: nothing is wrong with them.
#[test]
fn programs_for_other_machines() {
    for name in ["llama3d.mon", "lora.mon"] {
        let mut world = Memory::with(name, &example(name));
        world.real_hashes = true;
        let hooks = example("hooks/alerts.rhai");
        world.files.insert("hooks/alerts.rhai".to_owned(), hooks.into_bytes());
        let checked = world.check(name);
        let text = shown(&checked);
        println!("{text}");
        let errors: Vec<&str> =
            checked.diagnostics.iter().filter(|d| d.is_error()).map(|d| d.code).collect();
        assert!(errors.is_empty(), "{text}");
    }
}
