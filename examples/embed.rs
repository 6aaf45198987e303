//! Trains the digits from a Rust program: one param changed, a typed event per step, stopped by
//! the program itself when it has seen enough.
//!
//! `cargo run --release --example embed`

use monarch::{Engine, EngineError, Flow, RunEvent};

fn main() -> Result<(), EngineError> {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits.mon");
    let engine = Engine::new(program).param("width", 64).workers(2);
    let mut seen = 0;
    let summary = engine.run(|event| {
        match event {
            RunEvent::Step(step) => {
                seen += 1;
                if step.step % 100 == 0 {
                    println!("step {:>4}  loss {:.4}  lr {:.5}", step.step, step.loss, step.lr);
                }
            }
            RunEvent::Evaluated(eval) => {
                let accuracy = eval.values.iter().find(|(name, _)| name == "eval.accuracy");
                if accuracy.is_some_and(|(_, value)| *value >= 0.97) {
                    return Flow::Stop;
                }
            }
            _ => {}
        }
        Flow::Continue
    })?;
    println!("{seen} steps, {:?}", summary.why);
    println!("weights {}", summary.fingerprint.unwrap_or_default());
    Ok(())
}
