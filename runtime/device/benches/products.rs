//! Rates of matrix products and of elementwise kernels, on every instruction set, in CPU time of
//! this thread (so that a busy machine disturbs them less):
//! `cargo bench -p monarch-device [-- part of a name]`.

use monarch_device::{Columns, Isa, Lane, Weights};
use monarch_graph::{
    DType, Einsum, Graph, MemoryPlan, Node, NodeId, Op, Place, Program, Shape, Span, UnaryOp,
};

/// A program of one operation on weights.
struct Case {
    name: &'static str,
    op: Op,
    inputs: Vec<Vec<u64>>,
    out: Vec<u64>,
    /// Floating-point operations (or elements, for what is not a product).
    work: f64,
    unit: &'static str,
}

fn product(name: &'static str, a: [u8; 2], b: [u8; 2], [m, n, k]: [u64; 3]) -> Case {
    let lengths = |labels: [u8; 2]| labels.map(|l| [m, n, k][usize::from(l)]).to_vec();
    Case {
        name,
        op: Op::Einsum(Einsum { a: a.to_vec(), b: b.to_vec(), out: vec![0, 1] }),
        inputs: vec![lengths(a), lengths(b)],
        out: vec![m, n],
        work: 2.0 * (m * n * k) as f64,
        unit: "GFLOP/s",
    }
}

fn rowwise(name: &'static str, op: Op, inputs: usize, shape: [u64; 2]) -> Case {
    Case {
        name,
        op,
        inputs: vec![shape.to_vec(); inputs],
        out: shape.to_vec(),
        work: (shape[0] * shape[1]) as f64,
        unit: "G/s",
    }
}

fn cases() -> Vec<Case> {
    let (nn, nt, tn) = (([0, 2], [2, 1]), ([0, 2], [1, 2]), ([2, 0], [2, 1]));
    let batched = |name, a: [u8; 4], b: [u8; 4], out: [u8; 4], of: [u64; 5]| {
        let lengths = |labels: [u8; 4]| labels.map(|l| of[usize::from(l)]).to_vec();
        Case {
            name,
            op: Op::Einsum(Einsum { a: a.to_vec(), b: b.to_vec(), out: out.to_vec() }),
            inputs: vec![lengths(a), lengths(b)],
            out: lengths(out),
            work: 2.0 * of.iter().product::<u64>() as f64,
            unit: "GFLOP/s",
        }
    };
    // Labels: batch, time, source, head, size.
    let of = [4, 256, 256, 6, 64];
    vec![
        product("up 2048x384x1536", nn.0, nn.1, [2048, 1536, 384]),
        product("up dx", nt.0, nt.1, [2048, 384, 1536]),
        product("up dw", tn.0, tn.1, [384, 1536, 2048]),
        batched("scores", [0, 1, 3, 4], [0, 2, 3, 4], [0, 3, 1, 2], of),
        batched("mix", [0, 3, 1, 2], [0, 2, 3, 4], [0, 1, 3, 4], of),
        batched("mix dv", [0, 3, 1, 2], [0, 1, 3, 4], [0, 2, 3, 4], of),
        product("digits 8x64x128", nn.0, nn.1, [8, 128, 64]),
        product("digits dw", tn.0, tn.1, [64, 128, 8]),
        product("digits dx", nt.0, nt.1, [8, 64, 128]),
        product("digits head 8x128x10", nn.0, nn.1, [8, 10, 128]),
        rowwise("gelu", Op::Unary(UnaryOp::Gelu), 1, [256, 256]),
        rowwise("gelu grad", Op::UnaryGrad(UnaryOp::Gelu), 2, [256, 256]),
        rowwise("exp", Op::Unary(UnaryOp::Exp), 1, [256, 256]),
        rowwise("softmax", Op::Softmax { axis: 1 }, 1, [256, 256]),
        rowwise("softmax grad", Op::SoftmaxGrad { axis: 1 }, 2, [256, 256]),
        rowwise("rms norm", Op::RmsNorm { eps: 1e-5 }, 1, [256, 384]),
        rowwise("rms norm grad", Op::RmsNormGrad { eps: 1e-5 }, 2, [256, 384]),
        rowwise("square", Op::Unary(UnaryOp::Square), 1, [256, 256]),
    ]
}

/// CPU time of this thread, in seconds.
fn thread_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills a struct of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Seconds of one run: the best of some rounds.
fn measure(case: &Case, isa: Isa) -> f64 {
    let mut graph = Graph::default();
    let node = |op, inputs, shape: &[u64]| Node {
        op,
        inputs,
        shape: Shape::fixed(shape),
        dtype: DType::F32,
        span: Span::default(),
    };
    let mut places = Vec::new();
    let mut ids = Vec::new();
    for (i, shape) in case.inputs.iter().enumerate() {
        ids.push(graph.push(node(Op::Weight(i as u32), vec![], shape)));
        places.push(Place::Weight(i as u32));
    }
    let last: NodeId = graph.push(node(case.op.clone(), ids, &case.out));
    places.push(Place::Arena(0));
    let arena = case.out.iter().product();
    let memory = MemoryPlan { arena, max_samples: 1, places };
    let program = Program { graph, columns: vec![], memory };
    let mut weights = Weights::new(case.inputs.iter().map(|s| s.iter().product())).unwrap();
    for tensor in weights.iter_mut() {
        for (i, x) in tensor.iter_mut().enumerate() {
            *x = (i * 7 % 23) as f32 * 0.05 - 0.5;
        }
    }
    let columns = Columns::new(&[], 1).unwrap();
    let mut lane = Lane::new(&program, isa).unwrap();
    let nodes = 0..last.index() + 1;
    let mut round = |count: u32| {
        let start = thread_seconds();
        for _ in 0..count {
            lane.run(nodes.clone(), 1, &weights, &columns, &mut []).unwrap();
        }
        (thread_seconds() - start) / f64::from(count)
    };
    let once = round(1).max(1e-7);
    if once > 0.2 {
        return once;
    }
    let count = (0.02 / once) as u32 + 1;
    (0..5).map(|_| round(count)).fold(f64::INFINITY, f64::min)
}

fn main() {
    let filter = std::env::args().skip(1).find(|a| !a.starts_with("--")).unwrap_or_default();
    for case in cases().iter().filter(|c| c.name.contains(&filter)) {
        print!("{:22}", case.name);
        for isa in Isa::available() {
            let seconds = measure(case, isa);
            let rate = case.work / seconds * 1e-9;
            print!("  {} {:9.2} us {rate:7.2} {}", isa.name(), seconds * 1e6, case.unit);
        }
        println!();
    }
}
