//! Shapes and dtypes of results: the typing rules of every operation, in one place.
//!
//! The builder asks here before it adds a node, and `verify_graph` asks again for a whole graph,
//! so a mistake in lowering or in a rewrite is found by name rather than by a kernel.

use monarch_graph::{DType, Dim, Einsum, Graph, Op, Shape, Windows};

/// Shape and dtype of an operand or a result.
pub type Typed<'a> = (&'a Shape, DType);

type Result<T> = std::result::Result<T, String>;

/// Type of `op` over `inputs`. `declared` is what the node says of itself; it decides where the
/// operation leaves something open (leaves, and lengths of reshapes, slices and scatters), and
/// must agree everywhere else.
pub fn infer(
    op: &Op,
    inputs: &[Typed],
    declared: Option<(&Shape, DType)>,
) -> Result<(Shape, DType)> {
    let found = match op {
        Op::Weight(_) | Op::Column(_) | Op::Const(_) => leaf(op, inputs, declared)?,
        Op::Unary(_) | Op::Affine { .. } => (float(one(inputs)?)?.clone(), DType::F32),
        Op::UnaryGrad(_) => (same_pair(inputs)?.clone(), DType::F32),
        Op::LogSumExp { axis } => (without(float(one(inputs)?)?, &[*axis])?, DType::F32),
        Op::Unfold { windows, .. } => (unfold(inputs, windows, declared)?, DType::F32),
        Op::Fold(windows) => (fold(inputs, windows, declared)?, DType::F32),
        Op::Dropout { .. } => (float(one(inputs)?)?.clone(), DType::F32),
        Op::Causal { .. } => (causal(inputs)?, DType::F32),
        Op::Rope { axis, .. } => (rope(inputs, *axis)?, DType::F32),
        Op::Softmax { axis } => (with_axis(float(one(inputs)?)?, *axis)?, DType::F32),
        Op::SoftmaxGrad { axis } => (with_axis(same_pair(inputs)?, *axis)?, DType::F32),
        Op::RmsNorm { .. } | Op::LayerNorm { .. } => (rows(float(one(inputs)?)?)?, DType::F32),
        Op::RmsNormGrad { .. } | Op::LayerNormGrad { .. } => {
            (rows(same_pair(inputs)?)?, DType::F32)
        }
        Op::Binary(_) => (broadcast(inputs, true)?, DType::F32),
        Op::Compare(_) => (broadcast(inputs, false)?, DType::F32),
        Op::ToFloat => (int(one(inputs)?)?.clone(), DType::F32),
        Op::Broadcast { .. } | Op::Reshape | Op::Permute(_) => layout(op, inputs, declared)?,
        Op::Slice { .. } | Op::Unslice { .. } | Op::Concat { .. } => part(op, inputs, declared)?,
        Op::Reduce { axes, .. } => (without(float(one(inputs)?)?, axes)?, DType::F32),
        Op::ArgMax { axis } => (without(float(one(inputs)?)?, &[*axis])?, DType::I32),
        Op::Einsum(e) => (einsum(e, inputs)?, DType::F32),
        Op::CrossEntropy => (cross_entropy(inputs)?, DType::F32),
        Op::CrossEntropyGrad => (cross_entropy_grad(inputs)?, DType::F32),
        Op::Gather => (gather(inputs)?, DType::F32),
        Op::ScatterAdd => (scatter(inputs, declared)?, DType::F32),
    };
    match declared {
        Some((shape, dtype)) if *shape != found.0 || dtype != found.1 => Err(format!(
            "is declared {}{} but is {}{}",
            dtype.name(),
            text(shape),
            found.1.name(),
            text(&found.0)
        )),
        _ => Ok(found),
    }
}

/// Checks order of inputs, shapes and dtypes of every node.
pub fn verify_graph(graph: &Graph) -> Result<()> {
    for (i, node) in graph.nodes.iter().enumerate() {
        if let Some(input) = node.inputs.iter().find(|n| n.index() >= i) {
            return Err(format!(
                "node {i} ({:?}) uses node {} before it is made",
                node.op, input.0
            ));
        }
        let inputs: Vec<Typed> =
            node.inputs.iter().map(|&n| (&graph.node(n).shape, graph.node(n).dtype)).collect();
        infer(&node.op, &inputs, Some((&node.shape, node.dtype)))
            .map_err(|e| format!("node {i} ({:?}) {e}", node.op))?;
    }
    Ok(())
}

/// `[B, 3B, 64]`.
pub fn text(shape: &Shape) -> String {
    let dim = |d: &Dim| match (d.per, d.batch) {
        (1, true) => "B".to_owned(),
        (n, true) => format!("{n}B"),
        (n, false) => n.to_string(),
    };
    format!("[{}]", shape.0.iter().map(dim).collect::<Vec<_>>().join(", "))
}

fn leaf(op: &Op, inputs: &[Typed], declared: Option<Typed>) -> Result<(Shape, DType)> {
    let (shape, dtype) = declared.ok_or("has no declared shape")?;
    if !inputs.is_empty() {
        return Err("takes no input".into());
    }
    if matches!(op, Op::Weight(_)) && (dtype != DType::F32 || shape.0.iter().any(|d| d.batch)) {
        return Err(format!("is a weight of {}{}", dtype.name(), text(shape)));
    }
    Ok((shape.clone(), dtype))
}

fn one<'a>(inputs: &[Typed<'a>]) -> Result<Typed<'a>> {
    match inputs {
        [x] => Ok(*x),
        _ => Err(format!("takes 1 input, not {}", inputs.len())),
    }
}

fn two<'a>(inputs: &[Typed<'a>]) -> Result<[Typed<'a>; 2]> {
    <[Typed; 2]>::try_from(inputs).map_err(|_| format!("takes 2 inputs, not {}", inputs.len()))
}

fn three<'a>(inputs: &[Typed<'a>]) -> Result<[Typed<'a>; 3]> {
    <[Typed; 3]>::try_from(inputs).map_err(|_| format!("takes 3 inputs, not {}", inputs.len()))
}

fn float<'a>((shape, dtype): Typed<'a>) -> Result<&'a Shape> {
    match dtype {
        DType::F32 => Ok(shape),
        DType::I32 => Err("needs f32, not i32".into()),
    }
}

fn int<'a>((shape, dtype): Typed<'a>) -> Result<&'a Shape> {
    match dtype {
        DType::I32 => Ok(shape),
        DType::F32 => Err("needs i32, not f32".into()),
    }
}

fn same_pair<'a>(inputs: &[Typed<'a>]) -> Result<&'a Shape> {
    let [x, dy] = two(inputs)?;
    let (x, dy) = (float(x)?, float(dy)?);
    if x != dy {
        return Err(format!("takes equal shapes, not {} and {}", text(x), text(dy)));
    }
    Ok(x)
}

fn axis_of(shape: &Shape, axis: u8) -> Result<Dim> {
    shape
        .0
        .get(usize::from(axis))
        .copied()
        .ok_or_else(|| format!("has axis {axis}, which {} lacks", text(shape)))
}

fn with_axis(shape: &Shape, axis: u8) -> Result<Shape> {
    axis_of(shape, axis)?;
    Ok(shape.clone())
}

fn rows(shape: &Shape) -> Result<Shape> {
    if shape.rank() == 0 {
        return Err("needs at least one axis".into());
    }
    Ok(shape.clone())
}

fn causal(inputs: &[Typed]) -> Result<Shape> {
    let shape = float(one(inputs)?)?;
    match shape.0.as_slice() {
        [.., t, s] if !t.batch && !s.batch => Ok(shape.clone()),
        _ => Err(format!("needs two fixed trailing axes, not {}", text(shape))),
    }
}

fn rope(inputs: &[Typed], axis: u8) -> Result<Shape> {
    let shape = float(one(inputs)?)?;
    let position = axis_of(shape, axis)?;
    match shape.0.last() {
        Some(k) if k.per % 2 == 0 && !k.batch && !position.batch => {}
        _ => return Err(format!("needs an even, fixed last axis, not {}", text(shape))),
    }
    if usize::from(axis) + 1 == shape.rank() {
        return Err("cannot have its positions along the last axis".into());
    }
    Ok(shape.clone())
}

fn broadcast(inputs: &[Typed], float_only: bool) -> Result<Shape> {
    let [a, b] = two(inputs)?;
    if a.1 != b.1 || (float_only && a.1 != DType::F32) {
        return Err(format!("takes equal dtypes, not {} and {}", a.1.name(), b.1.name()));
    }
    let (long, short) = if a.0.rank() >= b.0.rank() { (a.0, b.0) } else { (b.0, a.0) };
    if !long.0.ends_with(&short.0) {
        return Err(format!("cannot join {} with {}", text(a.0), text(b.0)));
    }
    Ok(long.clone())
}

fn ascending(axes: &[u8], rank: usize) -> Result<()> {
    let rising = axes.windows(2).all(|w| w[0] < w[1]);
    if rising && axes.iter().all(|&a| usize::from(a) < rank) {
        return Ok(());
    }
    Err(format!("has axes {axes:?}, which are not ascending or not below {rank}"))
}

fn without(shape: &Shape, axes: &[u8]) -> Result<Shape> {
    ascending(axes, shape.rank())?;
    let keep = |i: usize| !axes.contains(&(i as u8));
    Ok(Shape(shape.0.iter().enumerate().filter(|(i, _)| keep(*i)).map(|(_, d)| *d).collect()))
}

fn layout(op: &Op, inputs: &[Typed], declared: Option<Typed>) -> Result<(Shape, DType)> {
    let (x, dtype) = one(inputs)?;
    let shape = match op {
        Op::Permute(order) => {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            if !sorted.iter().copied().eq(0..x.rank() as u8) {
                return Err(format!("is no permutation of {} axes: {order:?}", x.rank()));
            }
            Shape(order.iter().map(|&i| axis_of(x, i)).collect::<Result<_>>()?)
        }
        Op::Broadcast { axes } => {
            let (to, _) = declared.ok_or("has no declared shape")?;
            if without(to, axes)? != *x {
                return Err(format!("cannot repeat {} to {}", text(x), text(to)));
            }
            to.clone()
        }
        _ => {
            let (to, _) = declared.ok_or("has no declared shape")?;
            if volume(x) != volume(to) {
                return Err(format!("cannot turn {} into {}", text(x), text(to)));
            }
            to.clone()
        }
    };
    Ok((shape, dtype))
}

/// Elements per power of B, and that power.
fn volume(shape: &Shape) -> (u64, usize) {
    let per = shape.0.iter().fold(1u64, |n, d| n.saturating_mul(d.per));
    (per, shape.0.iter().filter(|d| d.batch).count())
}

/// `shape` with another length of `axis`.
fn resized(shape: &Shape, axis: u8, length: u64) -> Result<Shape> {
    let dim = axis_of(shape, axis)?;
    if dim.batch {
        return Err(format!("cuts or joins the samples of {}", text(shape)));
    }
    let mut out = shape.clone();
    out.0[usize::from(axis)] = Dim::fixed(length);
    Ok(out)
}

fn part(op: &Op, inputs: &[Typed], declared: Option<Typed>) -> Result<(Shape, DType)> {
    if let Op::Concat { axis } = op {
        let (first, dtype) = *inputs.first().ok_or("takes at least one input")?;
        let mut length = 0;
        for (x, other) in inputs {
            length += axis_of(x, *axis)?.per;
            let same = resized(x, *axis, 0)? == resized(first, *axis, 0)?;
            if !same || *other != dtype {
                return Err(format!("cannot join {} to {}", text(x), text(first)));
            }
        }
        return Ok((resized(first, *axis, length)?, dtype));
    }
    let (x, dtype) = one(inputs)?;
    let (to, _) = declared.ok_or("has no declared shape")?;
    let (axis, start, long, short) = match *op {
        Op::Slice { axis, start } => (axis, start, x, to),
        Op::Unslice { axis, start } => (axis, start, to, x),
        _ => return Err("is no part of a tensor".into()),
    };
    let length = axis_of(short, axis)?.per;
    let fits = start.saturating_add(length) <= axis_of(long, axis)?.per;
    if !fits || resized(long, axis, length)? != *short {
        return Err(format!("cannot cut {} at {start} out of {}", text(short), text(long)));
    }
    Ok((to.clone(), dtype))
}

fn einsum(e: &Einsum, inputs: &[Typed]) -> Result<Shape> {
    let [a, b] = two(inputs)?;
    let (a, b) = (float(a)?, float(b)?);
    let mut lengths = std::collections::BTreeMap::new();
    for (labels, shape) in [(&e.a, a), (&e.b, b)] {
        if labels.len() != shape.rank() || repeats(labels) {
            return Err(format!("labels {labels:?} do not fit {}", text(shape)));
        }
        for (label, dim) in labels.iter().zip(&shape.0) {
            if *lengths.entry(*label).or_insert(*dim) != *dim {
                return Err(format!("label {label} has two lengths: {} {}", text(a), text(b)));
            }
        }
    }
    let lonely = |l: &u8| !(e.out.contains(l) || e.a.contains(l) && e.b.contains(l));
    if repeats(&e.out) || e.a.iter().chain(&e.b).any(lonely) {
        return Err(format!("has a lonely or repeated label: {e:?}"));
    }
    let dim = |l: &u8| lengths.get(l).copied().ok_or_else(|| format!("label {l} has no length"));
    Ok(Shape(e.out.iter().map(dim).collect::<Result<_>>()?))
}

fn repeats(labels: &[u8]) -> bool {
    labels.iter().enumerate().any(|(i, l)| labels[..i].contains(l))
}

fn cross_entropy(inputs: &[Typed]) -> Result<Shape> {
    let [logits, targets] = two(inputs)?;
    let (logits, targets) = (float(logits)?, int(targets)?);
    match logits.0.split_last() {
        Some((v, rest)) if rest == targets.0 && !v.batch => Ok(targets.clone()),
        _ => Err(format!("cannot score {} against {}", text(logits), text(targets))),
    }
}

fn cross_entropy_grad(inputs: &[Typed]) -> Result<Shape> {
    let [logits, targets, dy] = three(inputs)?;
    let y = cross_entropy(&[logits, targets])?;
    if y != *float(dy)? {
        return Err(format!("has dy {} for {}", text(dy.0), text(&y)));
    }
    Ok(logits.0.clone())
}

fn gather(inputs: &[Typed]) -> Result<Shape> {
    let [table, ids] = two(inputs)?;
    let (table, ids) = (float(table)?, int(ids)?);
    match table.0.split_first() {
        Some((_, row)) if table.0.iter().all(|d| !d.batch) => {
            Ok(Shape(ids.0.iter().chain(row).copied().collect()))
        }
        _ => Err(format!("cannot take rows of {}", text(table))),
    }
}

fn scatter(inputs: &[Typed], declared: Option<Typed>) -> Result<Shape> {
    let [ids, dy] = two(inputs)?;
    let (table, dtype) = declared.ok_or("has no declared shape")?;
    let rows = gather(&[(table, dtype), ids])?;
    if rows != *float(dy)? {
        return Err(format!("cannot add {} to rows of {}", text(dy.0), text(table)));
    }
    Ok(table.clone())
}

/// The windows of `images` that make `folded`.
fn windows(w: &Windows, images: &Shape, folded: &Shape) -> Result<()> {
    let fail = || Err(format!("cannot see {} as windows {}", text(images), text(folded)));
    let ([lead @ .., y, x, c], [outer @ .., rows, columns, p, q, channels]) =
        (images.0.as_slice(), folded.0.as_slice())
    else {
        return fail();
    };
    let size = [Dim::fixed(w.size[0]), Dim::fixed(w.size[1])];
    let begins = |n: &Dim, at: usize, length: &Dim| {
        let last = n.per.saturating_sub(1).saturating_mul(w.stride[at]);
        !n.batch && !length.batch && last < length.per.saturating_add(w.before[at])
    };
    let same = lead == outer && c == channels && !c.batch && [*p, *q] == size;
    if !same || w.stride.contains(&0) || !begins(rows, 0, y) || !begins(columns, 1, x) {
        return fail();
    }
    Ok(())
}

fn unfold(inputs: &[Typed], w: &Windows, declared: Option<Typed>) -> Result<Shape> {
    let (to, _) = declared.ok_or("has no declared shape")?;
    windows(w, float(one(inputs)?)?, to)?;
    Ok(to.clone())
}

fn fold(inputs: &[Typed], w: &Windows, declared: Option<Typed>) -> Result<Shape> {
    let (to, _) = declared.ok_or("has no declared shape")?;
    windows(w, to, float(one(inputs)?)?)?;
    Ok(to.clone())
}
