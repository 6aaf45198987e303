//! Lowering of single expressions, against plain loops.

mod support;

use monarch_check::hir::{
    Axis, Expr, ExprKind, Function, Instance, Job, Labels, LayerId, Local, LocalId, MathFn, Model,
    ModelId, Objective, Op, ParamDef, Poly, Program, Rearrange, Reduction, Static, Sym, Symbol,
    TensorType, Value,
};
use monarch_device::reference::{Tensor, eval};
use monarch_diagnostic::{Diagnostic, Sources};
use monarch_graph::{
    BinaryOp, Column, Count, DType, Data, Optimizer, OptimizerKind, Order, Schedule, Source, Span,
};
use monarch_plan::lower::{LoweredProgram, Mode, lower_objectives};
use support::Rng;

const SAMPLES: usize = 3;

/// Any type: what is checked here is the value.
fn any() -> TensorType {
    TensorType { dtype: DType::F32, rest: true, axes: vec![] }
}

fn expr(kind: ExprKind) -> Expr {
    Expr { kind, ty: any(), span: Span::new(0, 1, 2) }
}

/// Column number `i`.
fn col(i: u32) -> Expr {
    expr(ExprKind::Local(LocalId(i)))
}

fn op(op: Op, args: Vec<Expr>) -> Expr {
    expr(ExprKind::Op { op, args })
}

/// A symbol per axis of the first column: B, then `T`, `U`, ...
fn axis(i: u32) -> Poly {
    Poly::symbol(Sym(i))
}

fn root() -> Instance {
    Instance {
        layer: LayerId(0),
        path: String::new(),
        sizes: vec![],
        fields: vec![],
        weights: vec![],
        adapters: vec![],
        subs: vec![],
    }
}

/// A job whose loss is `result` over columns of these shapes (without the sample axis).
fn program(columns: &[(DType, &[u64])], result: Expr, weight: Option<Expr>) -> Program {
    let span = Span::new(0, 0, 1);
    let named = |size| Axis { name: None, size };
    let (mut params, mut locals, mut list) = (Vec::new(), Vec::new(), Vec::new());
    for (i, (dtype, shape)) in columns.iter().enumerate() {
        let mut axes = vec![named(axis(0))];
        for (k, &n) in shape.iter().enumerate() {
            // The first column binds symbols, the others have plain numbers.
            axes.push(named(if i == 0 { axis(k as u32 + 1) } else { Poly::number(n as i64) }));
        }
        let ty = TensorType { dtype: *dtype, rest: false, axes };
        let name = format!("c{i}");
        let local = LocalId(i as u32);
        params.push(ParamDef { name: name.clone(), local, ty: ty.clone(), span });
        locals.push(Local { name: name.clone(), ty, span });
        let shape = shape.to_vec();
        list.push(Column { name, dtype: *dtype, shape, below: None, span });
    }
    let symbols = (0..5).map(|i| Symbol { name: format!("s{i}"), span }).collect();
    let function = Function { symbols, params, locals, lets: vec![], result, span };
    let loss = Objective { name: "loss".into(), function, weight, span };
    let root = root();
    let data = Data { source: Source::Digits, splits: vec![], order: Order::File, span };
    let kind = OptimizerKind::Sgd { momentum: 0.0, decay: 0.0, nesterov: false };
    let job = Job {
        name: "test".into(),
        span,
        model: ModelId(0),
        data,
        columns: list,
        rows: 10,
        tokens_per_sample: 1,
        loss,
        optimizer: Optimizer { kind, clip: None, decay_on: Default::default() },
        schedule: Schedule { pieces: vec![] },
        steps: 1,
        batch: 8,
        shards: 8,
        seed: 1,
        drop_last: false,
        overlap: true,
        eval: None,
        checkpoint: None,
        rules: vec![],
        hooks: vec![],
        faults: vec![],
        metrics: Default::default(),
        cluster: None,
        layout: None,
        micro: None,
        accumulate: None,
    };
    Program {
        sources: Sources::new(),
        params: vec![],
        layers: vec![],
        models: vec![Model { name: "m".into(), span, root, weights: vec![] }],
        clusters: vec![],
        tests: vec![],
        sweeps: vec![],
        layouts: vec![],
        job: Some(job),
        settings: vec![],
        not_run_yet: vec![],
        pins: vec![],
    }
}

fn lower(program: &Program) -> Result<LoweredProgram, Diagnostic> {
    let job = program.job.as_ref().unwrap();
    lower_objectives(program, job, &[&job.loss], Mode::Train)
}

/// Values of the numerator for random columns, and the columns.
fn run(columns: &[(DType, &[u64])], result: Expr) -> (Tensor, Vec<Tensor>) {
    let lowered = lower(&program(columns, result, None)).unwrap();
    let mut rng = Rng::new(5);
    let mut values = Vec::new();
    for (_, shape) in columns {
        let mut lengths = vec![SAMPLES];
        lengths.extend(shape.iter().map(|&n| n as usize));
        let n = lengths.iter().product();
        values.push(Tensor::floats(&lengths, rng.floats(n)));
    }
    // The program numbers only columns that it reads, in the order of the parameters.
    let read: Vec<Tensor> = lowered
        .columns
        .iter()
        .map(|c| values[c.name[1..].parse::<usize>().unwrap()].clone())
        .collect();
    let all = eval(&lowered.graph, SAMPLES as u64, &[], &read).unwrap();
    (all[lowered.ratios[0].numerator.index()].clone(), values)
}

/// Compares a tensor with a function of its indices.
fn same(got: &Tensor, shape: &[usize], want: impl Fn(&[usize]) -> f64) {
    assert_eq!(got.shape, shape);
    let data = got.as_f64().unwrap();
    for (flat, value) in data.iter().enumerate() {
        let mut at = vec![0; shape.len()];
        let mut rest = flat;
        for i in (0..shape.len()).rev() {
            at[i] = rest % shape[i];
            rest /= shape[i];
        }
        let want = want(&at);
        assert!((value - want).abs() < 1e-12, "at {at:?}: {value}, not {want}");
    }
}

fn at(t: &Tensor, index: &[usize]) -> f64 {
    let flat = index.iter().zip(&t.shape).fold(0, |flat, (i, n)| flat * n + i);
    t.as_f64().unwrap()[flat]
}

fn labels(text: &str, names: &str) -> Labels {
    let rest = text.starts_with("..");
    let axes = text.trim_start_matches("..").chars();
    let axes = axes.map(|c| names.find(c).unwrap() as u8).collect();
    Labels { rest, axes }
}

/// `einsum[..]` with one letter a label.
fn einsum(text: &str, args: Vec<Expr>) -> Expr {
    let (inputs, output) = text.split_once("->").unwrap();
    let mut names: String = String::new();
    for c in inputs.chars().filter(char::is_ascii_alphabetic) {
        if !names.contains(c) {
            names.push(c);
        }
    }
    let inputs = inputs.split(',').map(|t| labels(t, &names)).collect();
    let output = labels(output, &names);
    let names = names.chars().map(String::from).collect();
    op(Op::Einsum { inputs, output, names }, args)
}

const F: DType = DType::F32;

#[test]
fn products_of_three() {
    // Attention's mix, values and output, with samples in every operand.
    let shapes: [(DType, &[u64]); 3] = [(F, &[2, 4, 5]), (F, &[5, 2, 3]), (F, &[2, 3, 6])];
    let (y, c) = run(&shapes, einsum("bhts,bshk,bhkd->btd", vec![col(0), col(1), col(2)]));
    same(&y, &[SAMPLES, 4, 6], |i| {
        let mut sum = 0.0;
        for (h, s, k) in
            (0..2).flat_map(|h| (0..5).flat_map(move |s| (0..3).map(move |k| (h, s, k))))
        {
            let mix = at(&c[0], &[i[0], h, i[1], s]) * at(&c[1], &[i[0], s, h, k]);
            sum += mix * at(&c[2], &[i[0], h, k, i[2]]);
        }
        sum
    });
}

#[test]
fn labels_that_occur_once_are_summed() {
    let (y, c) = run(&[(F, &[2, 4]), (F, &[3])], einsum("btu,bk->bt", vec![col(0), col(1)]));
    same(&y, &[SAMPLES, 2], |i| {
        let left: f64 = (0..4).map(|u| at(&c[0], &[i[0], i[1], u])).sum();
        let right: f64 = (0..3).map(|k| at(&c[1], &[i[0], k])).sum();
        left * right
    });
    let (y, c) = run(&[(F, &[2, 4])], einsum("btu->ub", vec![col(0)]));
    same(&y, &[4, SAMPLES], |i| (0..2).map(|t| at(&c[0], &[i[1], t, i[0]])).sum());
}

#[test]
fn leading_axes_are_carried_along() {
    let shapes: [(DType, &[u64]); 2] = [(F, &[2, 4]), (F, &[2, 4])];
    let (y, c) = run(&shapes, einsum("..i,..i->..", vec![col(0), col(1)]));
    same(&y, &[SAMPLES, 2], |i| {
        (0..4).map(|k| at(&c[0], &[i[0], i[1], k]) * at(&c[1], &[i[0], i[1], k])).sum()
    });
}

#[test]
fn rearrange_splits_permutes_joins() {
    // [B, T, (H K)] -> [B, H, (K T)] with H = 2, K = 3, T = 5.
    let r = Rearrange {
        rest: false,
        input: vec![
            vec![(0, axis(0))],
            vec![(1, axis(1))],
            vec![(2, Poly::number(2)), (3, Poly::number(3))],
        ],
        output: vec![vec![0], vec![2], vec![3, 1]],
    };
    let (y, c) = run(&[(F, &[5, 6])], op(Op::Rearrange(r), vec![col(0)]));
    same(&y, &[SAMPLES, 2, 15], |i| {
        let (k, t) = (i[2] / 5, i[2] % 5);
        at(&c[0], &[i[0], t, i[1] * 3 + k])
    });
    // Samples may be joined with what follows them.
    let r = Rearrange {
        rest: false,
        input: vec![vec![(0, axis(0))], vec![(1, axis(1))], vec![(2, axis(2))]],
        output: vec![vec![0, 1], vec![2]],
    };
    let (y, c) = run(&[(F, &[5, 6])], op(Op::Rearrange(r), vec![col(0)]));
    same(&y, &[SAMPLES * 5, 6], |i| at(&c[0], &[i[0] / 5, i[0] % 5, i[1]]));
}

#[test]
fn reductions_count_from_the_end() {
    for (kind, from_end) in [
        (Reduction::Sum, vec![0]),
        (Reduction::Mean, vec![0, 1]),
        (Reduction::Max, vec![1]),
        (Reduction::Min, vec![1]),
    ] {
        let reduce = Op::Reduce { kind, from_end: from_end.clone() };
        let (y, c) = run(&[(F, &[2, 4])], op(reduce, vec![col(0)]));
        match kind {
            Reduction::Sum => {
                same(&y, &[SAMPLES, 2], |i| (0..4).map(|u| at(&c[0], &[i[0], i[1], u])).sum())
            }
            Reduction::Mean => same(&y, &[SAMPLES], |i| {
                let all = (0..8).map(|n| at(&c[0], &[i[0], n / 4, n % 4]));
                all.sum::<f64>() / 8.0
            }),
            Reduction::Min => same(&y, &[SAMPLES, 4], |i| {
                at(&c[0], &[i[0], 0, i[1]]).min(at(&c[0], &[i[0], 1, i[1]]))
            }),
            Reduction::Max => same(&y, &[SAMPLES, 4], |i| {
                at(&c[0], &[i[0], 0, i[1]]).max(at(&c[0], &[i[0], 1, i[1]]))
            }),
        }
    }
}

#[test]
fn products_and_slices_by_position() {
    let slice =
        Op::Slice { from_end: 0, start: Static::Value(Value::Int(1)), length: Poly::number(2) };
    let part = op(slice, vec![col(0)]);
    let (y, c) = run(&[(F, &[2, 4])], part);
    same(&y, &[SAMPLES, 2, 2], |i| at(&c[0], &[i[0], i[1], i[2] + 1]));
}

#[test]
fn free_axes_are_numbers_here() {
    // x / sqrt(U), where U is the free axis 2.
    let root = Static::Call(MathFn::Sqrt, vec![Static::Size(axis(2))]);
    let divide = op(Op::Binary(BinaryOp::Div), vec![col(0), expr(ExprKind::Static(root))]);
    let (y, c) = run(&[(F, &[2, 9])], divide);
    same(&y, &[SAMPLES, 2, 9], |i| at(&c[0], i) / 3.0);
}

fn code(columns: &[(DType, &[u64])], result: Expr) -> &'static str {
    lower(&program(columns, result, None)).unwrap_err().code
}

#[test]
fn samples_never_meet() {
    let one: [(DType, &[u64]); 1] = [(F, &[4])];
    let two: [(DType, &[u64]); 2] = [(F, &[4]), (F, &[4])];
    let fold = |kind| op(Op::Reduce { kind, from_end: vec![1] }, vec![col(0)]);
    let join =
        |input, output| op(Op::Rearrange(Rearrange { rest: false, input, output }), vec![col(0)]);
    let split = || vec![vec![(0, axis(0))], vec![(1, axis(1))]];
    let programs = [
        code(&one, op(Op::Softmax { from_end: 1 }, vec![col(0)])),
        code(&one, fold(Reduction::Sum)),
        code(&one, fold(Reduction::Mean)),
        code(&one, fold(Reduction::Max)),
        code(&one, op(Op::Causal, vec![col(0)])),
        code(&one, join(split(), vec![vec![1, 0]])),
        code(&two, einsum("bi,bj->ij", vec![col(0), col(1)])),
        code(&two, einsum("bi,ci->bc", vec![col(0), col(1)])),
        code(
            &one,
            op(
                Op::RmsNorm { eps: Static::Value(Value::Float(1e-5)) },
                vec![join(split(), vec![vec![1], vec![0]])],
            ),
        ),
    ];
    assert_eq!(programs, ["M0214"; 9]);
    let count = expr(ExprKind::Static(Static::Size(axis(0))));
    assert_eq!(code(&one, op(Op::Binary(BinaryOp::Mul), vec![col(0), count])), "M0205");
}

#[test]
fn what_only_numbers_can_show() {
    let zero = Static::Binary(
        monarch_check::hir::StaticOp::Div,
        Box::new(Static::Size(axis(1))),
        Box::new(Static::Value(Value::Int(0))),
    );
    let divide = op(Op::Binary(BinaryOp::Mul), vec![col(0), expr(ExprKind::Static(zero))]);
    assert_eq!(code(&[(F, &[4])], divide), "M0313");
    let base = Static::Value(Value::Float(100.0));
    let rope = op(Op::Rope { from_end: 1, base, stretch: None }, vec![col(0)]);
    assert_eq!(code(&[(F, &[2, 3])], rope), "M0316");
    let sum = op(Op::Binary(BinaryOp::Add), vec![col(0), col(0)]);
    assert_eq!(code(&[(DType::I32, &[2])], sum), "M0210");
    // A mistake of check or of ours is a diagnostic as well.
    let gather = op(Op::CrossEntropy, vec![col(0), col(0)]);
    assert_eq!(code(&[(F, &[2])], gather), "M0399");
}

#[test]
fn means_count_what_they_divide_by() {
    let columns: [(DType, &[u64]); 2] = [(F, &[2, 5]), (F, &[5])];
    let plain = lower(&program(&columns, col(0), None)).unwrap();
    assert_eq!(plain.ratios[0].denominator, Count::PerSample(10));
    // The same for all samples: once for each.
    let three = expr(ExprKind::Static(Static::Value(Value::Float(3.0))));
    let (y, _) = run(&columns, three);
    same(&y, &[SAMPLES], |_| 3.0);
    // As many weights as elements.
    let t: [(DType, &[u64]); 2] = [(F, &[5]), (F, &[5])];
    let by = op(Op::Binary(BinaryOp::Mul), vec![col(0), col(1)]);
    let weighed = lower(&program(&t, by, Some(col(1)))).unwrap();
    let Count::Sum(node) = weighed.ratios[0].denominator else { panic!("no weights") };
    assert_eq!(weighed.graph.node(node).shape.at(3), [3, 5]);
    let half = expr(ExprKind::Static(Static::Value(Value::Float(0.5))));
    let spread = lower(&program(&t, col(0), Some(half))).unwrap();
    let Count::Sum(node) = spread.ratios[0].denominator else { panic!("no weights") };
    assert_eq!(spread.graph.node(node).shape.at(3), [3, 5]);
}
