//! The CPU device runs what is planned, and agrees with the reference.

mod support;

use monarch_device::reference::{TensorData, eval};
use monarch_device::{Columns, Isa, Lane, Weights};
use monarch_graph::{NodeId, Program};
use support::jobs::{all_programs, cut, random_inputs};

/// How far float32 may be from float64, as a share of the largest value.
const TOLERANCE: f64 = 2e-5;

fn close(name: &str, got: &[f32], want: &[f64]) {
    let largest = want.iter().fold(1e-6, |m: f64, x| m.max(x.abs()));
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let off = (f64::from(*got) - want).abs();
        assert!(off <= TOLERANCE * largest, "{name}[{i}] is {got}, the reference says {want}");
    }
}

#[test]
fn plans_run_on_every_instruction_set() {
    for (name, plan) in all_programs() {
        let program = &plan.train.program;
        let most = program.memory.max_samples;
        let (weights, columns) = random_inputs(&plan, &program.columns, most);
        let mut device_weights = Weights::new(plan.weights.iter().map(|w| w.elements())).unwrap();
        for (to, from) in device_weights.iter_mut().zip(&weights) {
            for (to, from) in to.iter_mut().zip(from.as_f64().unwrap()) {
                *to = *from as f32;
            }
        }
        for isa in Isa::available() {
            // Full shards, smaller ones, and empty ones, one after another on one lane.
            let mut lane = Lane::new(program, isa).unwrap();
            for samples in [most, 1, 0, most - 1] {
                let columns = cut(&columns, 0, samples as usize);
                let values = eval(&program.graph, samples, &weights, &columns).unwrap();
                let buffers = fill(program, &columns);
                let mut slab = vec![f32::NAN; plan.slab_elements() as usize];
                let all = 0..program.graph.nodes.len();
                lane.run(all, samples, &device_weights, &buffers, &mut slab).unwrap();
                let name = format!("{name} on {}, {samples} samples", isa.name());
                for part in plan.buckets.iter().flat_map(|b| &b.parts) {
                    let node = plan.train.gradients[part.weight.index()].unwrap();
                    let want = values[node.index()].as_f64().unwrap();
                    let start = part.start as usize;
                    let got = &slab[start..start + part.elements as usize];
                    close(
                        &format!("{name}: {}", plan.weights[part.weight.index()].name),
                        got,
                        want,
                    );
                }
                let node: NodeId = plan.train.loss.numerator;
                let got = lane.sum(node, samples, &device_weights, &buffers, &slab).unwrap();
                let want: f64 = values[node.index()].as_f64().unwrap().iter().sum();
                assert!((got - want).abs() <= TOLERANCE * want.abs().max(1.0), "{name}");
            }
        }
    }
}

fn fill(program: &Program, columns: &[monarch_device::reference::Tensor]) -> Columns {
    let mut buffers = Columns::new(&program.columns, program.memory.max_samples).unwrap();
    for (i, column) in columns.iter().enumerate() {
        match &column.data {
            TensorData::F64(v) => {
                let to = buffers.f32_mut(i).unwrap();
                to.iter_mut().zip(v).for_each(|(to, from)| *to = *from as f32);
            }
            TensorData::I64(v) => {
                let to = buffers.i32_mut(i).unwrap();
                to.iter_mut().zip(v).for_each(|(to, from)| *to = *from as i32);
            }
        }
    }
    buffers
}
