//! Tables of offsets for a contraction, made once per shape.

use crate::simd::LANES;
use monarch_graph::Einsum;

/// A contraction of known shapes, ready to run.
#[derive(Debug)]
pub(crate) struct Gemm {
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    /// Offsets of each batch in a, b and the result.
    pub(super) batches: Vec<(usize, usize, usize)>,
    pub(super) a_rows: Vec<usize>,
    pub(super) a_depth: Vec<usize>,
    pub(super) b_depth: Vec<usize>,
    pub(super) b_columns: Vec<usize>,
    pub(super) out_rows: Vec<usize>,
    pub(super) out_columns: Vec<usize>,
    /// Per group of sixteen columns: they lie side by side in b; in the result.
    pub(super) b_unit: Vec<bool>,
    pub(super) out_unit: Vec<bool>,
    pub(super) a_depth_unit: bool,
    pub(super) b_depth_unit: bool,
    /// All of b can be read where it lies, rows `b_step` apart.
    pub(super) b_in_place: bool,
    pub(super) b_step: usize,
    /// The graph's operands change places: the vectorised columns are the first one's.
    pub(super) swapped: bool,
    /// Elements that a, b and the result must have.
    pub(super) reach: (usize, usize, usize),
}

/// One axis group of a product: lengths, with strides in each of the tensors that have it.
#[derive(Clone, Debug, Default)]
struct Group {
    lengths: Vec<usize>,
    /// In the operand (or a), and in b or the result.
    first: Vec<usize>,
    second: Vec<usize>,
    /// Only for batches: in the result.
    third: Vec<usize>,
}

impl Group {
    fn push(&mut self, length: usize, first: usize, second: usize, third: usize) {
        self.lengths.push(length);
        self.first.push(first);
        self.second.push(second);
        self.third.push(third);
    }

    fn count(&self) -> usize {
        self.lengths.iter().product()
    }

    /// Offsets of all index vectors, in row-major order.
    fn offsets(&self, strides: &[usize]) -> Vec<usize> {
        let mut all = vec![0];
        for (&n, &stride) in self.lengths.iter().zip(strides) {
            all = all.iter().flat_map(|&at| (0..n).map(move |i| at + i * stride)).collect();
        }
        all
    }
}

/// Whether each group of sixteen offsets lies side by side.
fn units(offsets: &[usize]) -> Vec<bool> {
    offsets.chunks(LANES).map(is_unit).collect()
}

fn is_unit(offsets: &[usize]) -> bool {
    offsets.windows(2).all(|w| w[1] == w[0] + 1)
}

fn last(offsets: &[usize]) -> usize {
    offsets.iter().copied().max().unwrap_or(0)
}

fn strides(shape: &[usize]) -> Vec<usize> {
    let mut out = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        out[i - 1] = out[i] * shape[i];
    }
    out
}

impl Gemm {
    /// Tables for `einsum` over operands of these shapes, or what is wrong with it.
    pub(crate) fn new(
        einsum: &Einsum,
        a: &[usize],
        b: &[usize],
        out: &[usize],
    ) -> Result<Gemm, String> {
        if einsum.a.len() != a.len() || einsum.b.len() != b.len() || einsum.out.len() != out.len() {
            return Err("an einsum needs one label per axis".into());
        }
        let (sa, sb, so) = (strides(a), strides(b), strides(out));
        let find = |labels: &[u8], l: u8| labels.iter().position(|&x| x == l);
        let [mut batch, mut rows, mut columns, mut depth]: [Group; 4] = Default::default();
        for (i, &l) in einsum.out.iter().enumerate() {
            match (find(&einsum.a, l), find(&einsum.b, l)) {
                (Some(x), Some(y)) if a[x] == out[i] && b[y] == out[i] => {
                    batch.push(out[i], sa[x], sb[y], so[i]);
                }
                (Some(x), None) if a[x] == out[i] => rows.push(out[i], sa[x], so[i], 0),
                (None, Some(y)) if b[y] == out[i] => columns.push(out[i], sb[y], so[i], 0),
                _ => return Err(format!("label {l} of the result fits no operand")),
            }
        }
        for (x, &l) in einsum.a.iter().enumerate() {
            match (find(&einsum.b, l), find(&einsum.out, l)) {
                (_, Some(_)) => {}
                (Some(y), None) if b[y] == a[x] => depth.push(a[x], sa[x], sb[y], 0),
                _ => return Err(format!("label {l} of the first operand has no partner")),
            }
        }
        let lone = |l: &&u8| find(&einsum.a, **l).is_none() && find(&einsum.out, **l).is_none();
        if let Some(l) = einsum.b.iter().find(lone) {
            return Err(format!("label {l} of the second operand has no partner"));
        }
        Ok(Gemm::tables(batch, rows, columns, depth))
    }

    fn tables(batch: Group, mut rows: Group, mut columns: Group, mut depth: Group) -> Gemm {
        let swapped = better_swapped(&rows, &columns);
        let mut order = [batch.offsets(&batch.first), batch.offsets(&batch.second)];
        if swapped {
            std::mem::swap(&mut rows, &mut columns);
            std::mem::swap(&mut depth.first, &mut depth.second);
            order.swap(0, 1);
        }
        let [at_a, at_b] = order;
        let at_out = batch.offsets(&batch.third);
        let a_rows = rows.offsets(&rows.first);
        let b_columns = columns.offsets(&columns.first);
        let out_rows = rows.offsets(&rows.second);
        let out_columns = columns.offsets(&columns.second);
        let a_depth = depth.offsets(&depth.first);
        let b_depth = depth.offsets(&depth.second);
        let some = batch.count() * rows.count() * columns.count();
        let reach = |all: [&[usize]; 3], some: usize| {
            if some == 0 { 0 } else { all.iter().map(|t| last(t)).sum::<usize>() + 1 }
        };
        let b_step = if b_depth.len() > 1 { b_depth[1].wrapping_sub(b_depth[0]) } else { 0 };
        let b_unit = units(&b_columns);
        let even = b_depth.windows(2).all(|w| w[1].wrapping_sub(w[0]) == b_step);
        // A register tile may span two groups: side by side means over the whole row.
        let wide = b_columns.chunks(super::MAX_COLUMNS).all(is_unit);
        Gemm {
            m: rows.count(),
            n: columns.count(),
            k: depth.count(),
            reach: (
                reach([&at_a, &a_rows, &a_depth], some * depth.count()),
                reach([&at_b, &b_columns, &b_depth], some * depth.count()),
                reach([&at_out, &out_rows, &out_columns], some),
            ),
            batches: (0..at_out.len()).map(|i| (at_a[i], at_b[i], at_out[i])).collect(),
            out_unit: units(&out_columns),
            a_depth_unit: is_unit(&a_depth),
            b_depth_unit: is_unit(&b_depth),
            b_in_place: even && wide,
            b_step,
            b_unit,
            swapped,
            a_rows,
            a_depth,
            b_depth,
            b_columns,
            out_rows,
            out_columns,
        }
    }
}

/// True when it is better to vectorise over the rows: they lie side by side in the result and
/// the columns do not, or are few.
fn better_swapped(rows: &Group, columns: &Group) -> bool {
    let side_by_side = |g: &Group| match (g.lengths.last(), g.second.last()) {
        (Some(&n), Some(&1)) => n >= LANES || g.count() == n,
        (Some(_), _) => g.count() == 1,
        (None, _) => true,
    };
    match (side_by_side(rows), side_by_side(columns)) {
        (true, false) => true,
        (true, true) => columns.count() < LANES && rows.count() > columns.count(),
        _ => false,
    }
}
