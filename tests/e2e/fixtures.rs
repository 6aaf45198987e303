//! Reference values of PyTorch in float64: losses to 1e-5, gradients to 1e-5 and final weights to
//! 1e-4 of each tensor's largest entry.

use crate::support::tensors::distance;
use crate::support::{Place, Tensors, checkpoint, root, swap};
use serde_json::Value;
use std::fs;

const LOSS: f64 = 1e-5;
const GRADIENT: f64 = 1e-5;
const WEIGHT: f64 = 1e-4;

struct Fixture {
    name: &'static str,
    place: Place,
    /// What PyTorch found.
    right: Value,
    expect: Tensors,
    init: Tensors,
}

impl Fixture {
    fn new(name: &'static str) -> Fixture {
        let place = Place::new();
        for part in ["data.safetensors", "init.safetensors"] {
            let file = format!("{name}.{part}");
            place.copy(&format!("tests/fixtures/{file}"), &file);
        }
        let read = |part: &str| {
            let path = root().join(format!("tests/fixtures/{name}.{part}"));
            fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        };
        let tensors = |part| Tensors::read(&root().join(format!("tests/fixtures/{name}.{part}")));
        let right: Value = serde_json::from_slice(&read("json")).expect("JSON");
        let program = String::from_utf8(read("mon")).expect("a text");
        let steps = right["steps"].as_u64().expect("steps");
        // A checkpoint of the first step holds the optimizer's state, and so the gradient.
        let until = format!("until = {steps} steps");
        let saving = format!("{until}\n  checkpoint {{ every = 1 steps, keep = {} }}", steps + 1);
        place.write("job.mon", swap(&program, &until, saving));
        let (expect, init) = (tensors("expect.safetensors"), tensors("init.safetensors"));
        Fixture { name, place, right, expect, init }
    }

    fn numbers(&self, key: &str) -> Vec<f64> {
        let list = self.right[key].as_array().expect(key);
        list.iter().map(|v| v.as_f64().expect("a number")).collect()
    }

    fn holds_with(&self, workers: &str) -> String {
        let out = self.place.train(&["--workers", workers, "--run-id", workers]).ok();
        let run = self.place.file("runs").join(workers);
        let seen = |key: &str| -> Vec<f64> {
            out.of("step").map(|e| e[key].as_f64().expect("a number")).collect()
        };
        let losses = apart(&seen("loss"), &self.numbers("loss_f64"));
        let norms = apart(&seen("grad_norm"), &self.numbers("grad_norm_f64"));
        let rates = apart(&seen("lr"), &self.numbers("lr"));
        let first = Tensors::of_checkpoint(&checkpoint::directory(&run, 1));
        let last = Tensors::of_checkpoint(&out.checkpoint());
        let (mut gradients, mut weights, mut count) = (0f64, 0f64, 0);
        for (name, right) in &self.expect.0 {
            if let Some(weight) = name.strip_prefix("grad0.") {
                let found = self.gradient(weight, &first, seen("grad_norm")[0]);
                gradients = gradients.max(distance(&found, right));
                count += 1;
            } else if let Some(weight) = name.strip_prefix("final.") {
                let found: Vec<f64> = last.get(weight).iter().map(|v| f64::from(*v)).collect();
                weights = weights.max(distance(&found, right));
                count += 1;
            }
        }
        eprintln!(
            "{}, {workers} workers: losses {losses:.1e} norms {norms:.1e} gradients \
             {gradients:.1e} weights {weights:.1e}, largest errors over {count} tensors",
            self.name
        );
        assert_eq!(count, 2 * self.init.0.len(), "every weight is compared");
        assert!(losses <= LOSS, "losses {losses:e}");
        assert!(norms <= LOSS, "norms {norms:e}");
        assert!(rates <= 1e-12, "learning rates {rates:e}");
        assert!(gradients <= GRADIENT, "gradients {gradients:e}");
        assert!(weights <= WEIGHT, "weights {weights:e}");
        out.fingerprint()
    }

    /// The gradient of step 0, from what the optimizer made of it.
    fn gradient(&self, weight: &str, first: &Tensors, norm: f64) -> Vec<f64> {
        let optimizer = &self.right["optimizer"];
        if optimizer["kind"] == "sgd" {
            let decay = optimizer["decay"].as_f64().expect("a decay");
            let momentum = first.get(&format!("optim.momentum.{weight}"));
            let before = self.init.get(weight);
            let off = momentum.iter().zip(before);
            return off.map(|(v, w)| f64::from(*v) - decay * f64::from(*w)).collect();
        }
        let beta = optimizer["betas"][0].as_f64().expect("a beta");
        let clip = self.right["clip"].as_f64();
        let scale = clip.map_or(1.0, |clip| (clip / norm).min(1.0));
        let mean = first.get(&format!("optim.exp_avg.{weight}"));
        mean.iter().map(|m| f64::from(*m) / (1.0 - beta) / scale).collect()
    }
}

/// Largest distance between two curves.
#[track_caller]
fn apart(ours: &[f64], right: &[f64]) -> f64 {
    assert_eq!(ours.len(), right.len(), "as many steps");
    ours.iter().zip(right).fold(0f64, |m, (a, b)| m.max((a - b).abs() / b.abs().max(1.0)))
}

fn holds(name: &'static str) {
    let fixture = Fixture::new(name);
    assert_eq!(fixture.holds_with("1"), fixture.holds_with("3"));
}

#[test]
fn mlp_sgd() {
    holds("mlp_sgd");
}

#[test]
fn mlp_adamw() {
    holds("mlp_adamw");
}

#[test]
fn gpt_adamw() {
    holds("gpt_adamw");
}

#[test]
fn llama_adamw() {
    holds("llama_adamw");
}
