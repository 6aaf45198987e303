use super::*;
use crate::testing::{Noise, bits, isas};
use monarch_graph::Einsum;

fn run(isa: Isa, gemm: &Gemm, a: &[f32], b: &[f32], out: usize) -> Vec<f32> {
    let mut out = vec![f32::NAN; out];
    let mut scratch = vec![f32::NAN; gemm.scratch()];
    gemm.run(isa, a, b, &mut out, &mut scratch);
    out
}

/// The definition at the head of the module, word for word.
fn plain(gemm: &Gemm, x: &[f32], y: &[f32], out: usize) -> Vec<f32> {
    let (a, b) = if gemm.swapped { (y, x) } else { (x, y) };
    let mut result = vec![0.0; out];
    for &(at_a, at_b, at_out) in &gemm.batches {
        for (&row, &to_row) in gemm.a_rows.iter().zip(&gemm.out_rows) {
            for (&column, &to_column) in gemm.b_columns.iter().zip(&gemm.out_columns) {
                let block = block_of(gemm.k).max(1);
                let depth: Vec<_> = gemm.a_depth.iter().zip(&gemm.b_depth).collect();
                let chain = |part: &[(&usize, &usize)]| {
                    part.iter().fold(0.0f32, |sum, &(&i, &j)| {
                        a[at_a + row + i].mul_add(b[at_b + column + j], sum)
                    })
                };
                let sum = depth.chunks(block).map(chain).reduce(|x, y| x + y);
                result[at_out + to_row + to_column] = sum.unwrap_or(0.0);
            }
        }
    }
    result
}

fn lengths(labels: &[u8], of: &[usize]) -> Vec<usize> {
    labels.iter().map(|&l| of[usize::from(l)]).collect()
}

fn check(a: &[u8], b: &[u8], out: &[u8], of: &[usize], noise: &mut Noise) {
    let einsum = Einsum { a: a.to_vec(), b: b.to_vec(), out: out.to_vec() };
    let (sa, sb, so) = (lengths(a, of), lengths(b, of), lengths(out, of));
    let gemm = Gemm::new(&einsum, &sa, &sb, &so).unwrap();
    let x = noise.floats(sa.iter().product());
    let y = noise.floats(sb.iter().product());
    let n = so.iter().product();
    let want = bits(&plain(&gemm, &x, &y, n));
    for isa in isas() {
        let found = bits(&run(isa, &gemm, &x, &y, n));
        assert_eq!(found, want, "{} {a:?} {b:?} {out:?} {of:?}", isa.name());
    }
}

#[test]
fn every_transposition_and_raggedness_is_the_definition() {
    let mut noise = Noise::new(1);
    for round in 0..40 {
        let (m, n) = (1 + noise.below(40), 1 + noise.below(70));
        let k = [1, 3, 16, 33, 100, 511, 530, 1100][round % 8];
        for (a, b) in [([0, 2], [2, 1]), ([2, 0], [2, 1]), ([0, 2], [1, 2]), ([2, 0], [1, 2])] {
            check(&a, &b, &[0, 1], &[m, n, k], &mut noise);
            check(&a, &b, &[1, 0], &[m, n, k], &mut noise);
        }
    }
}

#[test]
fn contractions_with_batches_and_groups() {
    let mut noise = Noise::new(2);
    for (b, t, h, k, d) in [(2, 5, 3, 4, 7), (1, 20, 2, 16, 33), (3, 17, 1, 32, 48)] {
        // B T D, 3 D H K -> 3 B T H K; B T H K, B S H K -> B H T S; B H T S, B S H K -> B T H K.
        let of = [b, t, t, h, k, d, 3];
        check(&[0, 1, 5], &[6, 5, 3, 4], &[6, 0, 1, 3, 4], &of, &mut noise);
        check(&[0, 1, 3, 4], &[0, 2, 3, 4], &[0, 3, 1, 2], &of, &mut noise);
        check(&[0, 3, 1, 2], &[0, 2, 3, 4], &[0, 1, 3, 4], &of, &mut noise);
        check(&[0, 1, 3, 4], &[3, 4, 5], &[0, 1, 5], &of, &mut noise);
        check(&[0, 1, 5], &[6, 0, 1, 3, 4], &[6, 5, 3, 4], &of, &mut noise);
    }
}

#[test]
fn vectors_outer_products_and_nothing() {
    let mut noise = Noise::new(3);
    check(&[0, 2], &[2], &[0], &[50, 1, 70], &mut noise);
    check(&[2], &[2, 1], &[1], &[1, 50, 70], &mut noise);
    check(&[0], &[1], &[0, 1], &[50, 19, 1], &mut noise);
    check(&[2], &[2], &[], &[1, 1, 700], &mut noise);
    check(&[0, 2], &[2, 1], &[0, 1], &[0, 5, 3], &mut noise);
    check(&[0, 2], &[2, 1], &[0, 1], &[4, 5, 0], &mut noise);
}

#[test]
fn wide_products_cross_the_resident_block() {
    let mut noise = Noise::new(4);
    check(&[0, 2], &[2, 1], &[0, 1], &[3, 900, 520], &mut noise);
    check(&[0, 2], &[1, 2], &[0, 1], &[30, 700, 520], &mut noise);
}

#[test]
fn what_is_no_contraction_is_refused() {
    let bad = |a: &[u8], b: &[u8], out: &[u8]| {
        let einsum = Einsum { a: a.to_vec(), b: b.to_vec(), out: out.to_vec() };
        let shape = |labels: &[u8]| vec![2; labels.len()];
        Gemm::new(&einsum, &shape(a), &shape(b), &shape(out)).is_err()
    };
    assert!(bad(&[0, 3], &[1], &[0, 1]), "a label of a alone");
    assert!(bad(&[0], &[1, 3], &[0, 1]), "a label of b alone");
    assert!(bad(&[0], &[1], &[0, 1, 5]), "a label of the result alone");
}
