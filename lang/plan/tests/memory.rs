//! Memory layouts and task graphs of random programs.

mod support;

use monarch_graph::{
    BinaryOp, BucketId, Dim, Graph, NodeId, Place, ReduceOp, Shape, Stream, Task, TaskKind, UnaryOp,
};
use monarch_plan::bucket::{BucketPolicy, fill, offsets, settle};
use monarch_plan::differentiate::differentiate;
use monarch_plan::memory::{ALIGN, Overwrite, plan_memory, verify_memory};
use monarch_plan::simplify::simplify;
use monarch_plan::tasks::{TaskInput, cuts, verify_tasks, worker_tasks};
use support::Bench;

/// A random program over [B, 3] and [3] tensors with up to `n` operations and its loss.
fn random_program(seed: u64, n: u64) -> (Bench, NodeId) {
    let mut t = Bench::new(seed);
    let shape = Shape(vec![Dim::samples(), Dim::fixed(3)]);
    let mut pool = vec![t.frozen(&shape), t.frozen(&shape)];
    for _ in 0..n {
        let x = pool[t.rng.below(0, pool.len() as u64) as usize];
        let y = pool[t.rng.below(0, pool.len() as u64) as usize];
        let node = match t.rng.below(0, 8) {
            0 => t.b.unary(UnaryOp::Tanh, x),
            1 => t.b.affine(x, 0.5, 0.25),
            2 => t.b.binary(BinaryOp::Mul, x, y),
            3 => {
                let w = t.weight(&[3]);
                t.b.binary(BinaryOp::Add, x, w)
            }
            4 => t.b.softmax(x, 1),
            5 => t.b.rms_norm(x, 1e-5),
            6 => {
                let flat = t.b.reshape(x, Shape(vec![Dim { per: 3, batch: true }])).unwrap();
                let flat = t.b.unary(UnaryOp::Silu, flat).unwrap();
                t.b.reshape(flat, shape.clone())
            }
            _ => {
                let largest = t.b.reduce(ReduceOp::Max, x, &[1]).unwrap();
                let wide = t.b.broadcast(largest, &[1], shape.clone()).unwrap();
                t.b.binary(BinaryOp::Sub, y, wide)
            }
        };
        pool.push(node.unwrap());
    }
    // Everything that nothing uses takes part in the loss.
    let mut loss = pool[0];
    for &x in &pool[1..] {
        loss = t.b.binary(BinaryOp::Add, loss, x).unwrap();
    }
    (t, loss)
}

struct Compiled {
    bench: Bench,
    graph: Graph,
    forward: usize,
    loss: NodeId,
    gradients: Vec<Option<NodeId>>,
}

fn compile(seed: u64, n: u64) -> Compiled {
    let (bench, loss) = random_program(seed, n);
    let d = differentiate(bench.b.graph().clone(), loss, &bench.trainable).unwrap();
    let mut roots = vec![loss];
    roots.extend(d.gradients.iter().flatten());
    let s = simplify(&d.graph, &roots).unwrap();
    let now: Vec<Option<NodeId>> =
        d.gradients.iter().map(|g| g.map(|g| s.now(g).unwrap())).collect();
    let forward = s.boundary(d.forward);
    let settled = settle(&s.graph, forward, &now).unwrap();
    let loss = settled.map[s.now(loss).unwrap().index()];
    Compiled { bench, graph: settled.graph, forward, loss, gradients: settled.gradients }
}

fn slab(c: &Compiled, policy: BucketPolicy) -> Vec<(NodeId, u64)> {
    let sizes: Vec<u64> = c.bench.weights.iter().map(|w| w.len() as u64).collect();
    let buckets = fill(&sizes, &c.gradients, policy);
    let at = offsets(&buckets, sizes.len());
    c.gradients.iter().zip(at).filter_map(|(g, o)| Some(((*g)?, o?))).collect()
}

/// Runs the graph in its arena: writes each value where the plan says, when its turn comes, and
/// finds every input unharmed when it is needed. Smaller shards use the same layout.
fn replay(
    c: &Compiled,
    plan: &monarch_graph::MemoryPlan,
    samples: u64,
    overwrite: Overwrite,
) -> Result<(), String> {
    let mut columns = c.bench.columns.clone();
    for column in &mut columns {
        let row: usize = column.shape[1..].iter().product();
        column.shape[0] = samples as usize;
        if let monarch_device::reference::TensorData::F64(v) = &mut column.data {
            v.truncate(samples as usize * row);
        }
    }
    let values =
        monarch_device::reference::eval(&c.graph, samples, &c.bench.weights, &columns).unwrap();
    let mut arena = vec![f64::NAN; plan.arena as usize];
    let mut slab = vec![f64::NAN; 1 << 12];
    let resolve = |mut id: usize| loop {
        match plan.places[id] {
            Place::Alias(to) => id = to.index(),
            place => return place,
        }
    };
    let read = |arena: &[f64], slab: &[f64], id: usize, why: &str| -> Result<(), String> {
        let want = values[id].as_f64().unwrap();
        let got = match resolve(id) {
            Place::Arena(at) => &arena[at as usize..at as usize + want.len()],
            Place::Gradient(at) => &slab[at as usize..at as usize + want.len()],
            _ => return Ok(()),
        };
        if got == want { Ok(()) } else { Err(format!("{why}: node {id} was written over")) }
    };
    for (i, node) in c.graph.nodes.iter().enumerate() {
        for input in &node.inputs {
            read(&arena, &slab, input.index(), &format!("before node {i}"))?;
        }
        let value = values[i].as_f64().unwrap();
        match plan.places[i] {
            Place::Arena(at) => {
                let own = at as usize..at as usize + value.len();
                // A kernel reads while it writes, so only elementwise ones may overlap an input.
                for input in &node.inputs {
                    if let Place::Arena(other) = resolve(input.index()) {
                        let n = values[input.index()].len();
                        let apart = other as usize + n <= own.start || own.end <= other as usize;
                        if !(apart || overwrite.allows(&node.op) && other == at) {
                            return Err(format!("node {i} overlaps its input"));
                        }
                    }
                }
                arena[own].copy_from_slice(value);
            }
            Place::Gradient(at) => {
                slab[at as usize..at as usize + value.len()].copy_from_slice(value)
            }
            _ => {}
        }
    }
    read(&arena, &slab, c.loss.index(), "at the end")?;
    c.gradients.iter().flatten().try_for_each(|g| read(&arena, &slab, g.index(), "at the end"))
}

#[test]
fn nothing_needed_is_written_over() {
    for (seed, how) in (0..60).flat_map(|s| [(s, Overwrite::Never), (s, Overwrite::Elementwise)]) {
        let c = compile(seed, 4 + seed % 30);
        let slots = slab(&c, BucketPolicy::default());
        let samples = c.bench.samples;
        let plan = plan_memory(&c.graph, samples, &[c.loss], &slots, how);
        verify_memory(&c.graph, &plan, &[c.loss], how).unwrap();
        for n in 0..=samples {
            replay(&c, &plan, n, how).unwrap_or_else(|e| panic!("seed {seed}, {n} samples: {e}"));
        }
        // As good as it can be, or close: never more than if nothing were shared.
        let all: u64 = c.graph.nodes.iter().map(|n| n.shape.elements(samples) + ALIGN).sum();
        assert!(plan.arena <= all);
    }
}

#[test]
fn reuse_is_real() {
    // A long chain needs the memory of its widest moment, not of its length.
    let mut t = Bench::new(3);
    let shape = Shape(vec![Dim::samples(), Dim::fixed(64)]);
    let mut x = t.frozen(&shape);
    for _ in 0..50 {
        x = t.b.softmax(x, 1).unwrap();
        x = t.b.unary(UnaryOp::Tanh, x).unwrap();
    }
    let graph = t.b.finish();
    for how in [Overwrite::Never, Overwrite::Elementwise] {
        let plan = plan_memory(&graph, 4, &[x], &[], how);
        verify_memory(&graph, &plan, &[x], how).unwrap();
        assert_eq!(plan.arena, 2 * 4 * 64);
    }
}

#[test]
fn a_broken_layout_is_found() {
    let mut found = 0;
    for seed in 0..40 {
        let c = compile(seed, 20);
        let slots = slab(&c, BucketPolicy::default());
        let how = Overwrite::Elementwise;
        let plan = plan_memory(&c.graph, c.bench.samples, &[c.loss], &slots, how);
        let mut broken = plan.clone();
        let places: Vec<usize> = (0..broken.places.len())
            .filter(|&i| matches!(broken.places[i], Place::Arena(_)))
            .collect();
        let victim = places[places.len() / 2];
        let other = places[places.len() / 3];
        broken.places[victim] = broken.places[other];
        let proof = verify_memory(&c.graph, &broken, &[c.loss], how).is_ok();
        let truth = replay(&c, &broken, c.bench.samples, how).is_ok();
        // Whatever the proof accepts runs without harm.
        assert!(!proof || truth, "seed {seed}: accepted a layout that overwrites");
        found += u32::from(!proof);
    }
    assert!(found > 20, "only {found} of 40 broken layouts were found");
}

#[test]
fn buckets_cover_each_gradient_once() {
    for seed in 0..30 {
        let c = compile(seed, 30);
        let sizes: Vec<u64> = c.bench.weights.iter().map(|w| w.len() as u64).collect();
        let policy = BucketPolicy { first_bytes: 64, cap_bytes: 200 };
        let buckets = fill(&sizes, &c.gradients, policy);
        let mut seen = vec![0; sizes.len()];
        let mut end = 0;
        for (i, bucket) in buckets.iter().enumerate() {
            assert_eq!(bucket.id, BucketId(i as u32));
            assert_eq!((bucket.start, bucket.start % ALIGN), (end, 0));
            let cap = if i == 0 { policy.first_bytes } else { policy.cap_bytes };
            assert!(bucket.elements * 4 <= cap || bucket.parts.len() == 1);
            let mut at = bucket.start;
            for part in &bucket.parts {
                assert_eq!((part.start, part.elements), (at, sizes[part.weight.index()]));
                at += part.elements.div_ceil(ALIGN) * ALIGN;
                seen[part.weight.index()] += 1;
            }
            end = bucket.start + bucket.elements;
            assert_eq!(at, end);
        }
        for (w, gradient) in c.gradients.iter().enumerate() {
            assert_eq!(seen[w], u32::from(gradient.is_some()));
        }
        let at = cuts(&buckets, &c.gradients, c.forward);
        assert!(at.windows(2).all(|w| w[0] <= w[1]));
    }
}

#[test]
fn tasks_are_proven() {
    for (seed, overlap) in (0..20).flat_map(|s| [(s, true), (s, false)]) {
        let c = compile(seed, 30);
        let sizes: Vec<u64> = c.bench.weights.iter().map(|w| w.len() as u64).collect();
        let policy = BucketPolicy { first_bytes: 64, cap_bytes: 128 };
        let buckets = fill(&sizes, &c.gradients, policy);
        let input = TaskInput {
            graph: &c.graph,
            forward: c.forward,
            gradients: &c.gradients,
            buckets: &buckets,
            weights: &[],
            overlap,
            span: Default::default(),
        };
        let tasks = worker_tasks(input);
        verify_tasks(&tasks, &c.graph, &c.gradients, &buckets).unwrap();
        // The first reduction waits for its own fold, or for the end of the compute stream.
        let reduce = |t: &Task| t.stream == Stream::Communication;
        let first = tasks.tasks.iter().position(reduce).unwrap();
        let fold = TaskKind::Fold { bucket: BucketId(0) };
        let own = tasks.tasks.iter().position(|t| t.kind == fold).unwrap();
        let waits = tasks.tasks[first].after.iter().map(|t| t.index()).max().unwrap();
        assert_eq!(waits, if overlap { own } else { first - 1 });
    }
}

#[test]
fn a_broken_task_graph_is_found() {
    let c = compile(7, 30);
    let sizes: Vec<u64> = c.bench.weights.iter().map(|w| w.len() as u64).collect();
    let buckets = fill(&sizes, &c.gradients, BucketPolicy { first_bytes: 64, cap_bytes: 128 });
    let input = TaskInput {
        graph: &c.graph,
        forward: c.forward,
        gradients: &c.gradients,
        buckets: &buckets,
        weights: &[],
        overlap: true,
        span: Default::default(),
    };
    let good = worker_tasks(input);
    let prove = |tasks: &monarch_graph::TaskGraph| {
        verify_tasks(tasks, &c.graph, &c.gradients, &buckets).is_ok()
    };
    assert!(prove(&good));
    for i in 0..good.tasks.len() {
        if good.tasks[i].kind == TaskKind::LoadBatch {
            continue;
        }
        // Without it, something is missing (scalars and dependencies may point past the end).
        if good.tasks[i].kind != TaskKind::AllReduceScalars {
            let mut less = good.clone();
            less.tasks.remove(i);
            for task in &mut less.tasks {
                task.after.retain(|t| t.index() != i);
                for t in &mut task.after {
                    t.0 -= u32::from(t.index() > i);
                }
            }
            assert!(!prove(&less), "task {i} ({}) is not missed", good.tasks[i].name);
        }
        // Without what it waits for, a reduction comes too early.
        if good.tasks[i].stream == Stream::Communication {
            let mut early = good.clone();
            early.tasks[i].after.clear();
            let is_reduce = matches!(good.tasks[i].kind, TaskKind::AllReduce { .. });
            assert!(!prove(&early) || !is_reduce, "{} may start early", good.tasks[i].name);
        }
    }
}
