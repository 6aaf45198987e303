use super::*;
use monarch_graph::Windows;

#[test]
fn dropout() {
    let mut noise = Noise::new(61);
    for (samples, width, per) in [(1, 1, 1), (3, 5, 1), (2, 64, 3), (5, 67, 2), (7, 130, 1)] {
        for p in [0.1, 0.5, 0.99] {
            let mut b = Build::new();
            let x = b.column(&[width, per], None);
            b.f32(Op::Dropout { p, number: 1 }, &[x], &per_sample(&[width, per]));
            // Samples on a middle axis, several elements of each on it.
            let mixed = Shape(vec![Dim::fixed(width), Dim { per, batch: true }]);
            let turned = Shape(vec![Dim::fixed(width), Dim::samples(), Dim::fixed(per)]);
            let y = b.f32(Op::Permute(vec![1, 0, 2]), &[x], &turned);
            b.f32(Op::Dropout { p, number: 2 }, &[y], &turned);
            let z = b.f32(Op::Reshape, &[y], &mixed);
            b.f32(Op::Dropout { p, number: 2 }, &[z], &mixed);
            let w = b.weight(&[width, 3]);
            b.f32(Op::Dropout { p, number: 3 }, &[w], &Shape::fixed(&[width, 3]));
            check(b, samples, 1e-6, &mut noise);
        }
    }
}

#[test]
fn logs_of_sums() {
    let mut noise = Noise::new(62);
    for lengths in [vec![1], vec![7], vec![130], vec![3, 5], vec![17, 33]] {
        let mut b = Build::new();
        let x = b.column(&lengths, None);
        for axis in 1..=lengths.len() {
            let mut kept = lengths.clone();
            kept.remove(axis - 1);
            b.f32(Op::LogSumExp { axis: axis as u8 }, &[x], &per_sample(&kept));
        }
        check(b, 3, 2e-6, &mut noise);
    }
}

/// Image, channels, window, stride, before, count.
type Case = ([u64; 2], u64, [u64; 2], [u64; 2], [u64; 2], [u64; 2]);

const CASES: [Case; 8] = [
    ([1, 1], 1, [1, 1], [1, 1], [0, 0], [1, 1]),
    ([4, 5], 3, [3, 2], [1, 1], [0, 0], [2, 4]),
    ([8, 8], 16, [3, 3], [1, 1], [1, 1], [8, 8]),
    ([9, 7], 17, [3, 3], [2, 2], [1, 1], [5, 4]),
    ([5, 6], 1, [2, 2], [2, 3], [0, 1], [2, 2]),
    // A window larger than the image, and windows that leave gaps.
    ([2, 3], 5, [5, 5], [1, 1], [2, 2], [2, 3]),
    ([7, 9], 33, [1, 2], [3, 4], [0, 0], [3, 2]),
    // Windows that lie outside altogether.
    ([2, 2], 2, [1, 1], [1, 1], [2, 3], [4, 5]),
];

#[test]
fn windows() {
    let mut noise = Noise::new(63);
    for (image, c, size, stride, before, count) in CASES {
        let windows = Windows { size, stride, before };
        let folded = per_sample(&[count[0], count[1], size[0], size[1], c]);
        let mut b = Build::new();
        let x = b.column(&[image[0], image[1], c], None);
        let y = b.f32(Op::Unfold { windows, fill: 0.5 }, &[x], &folded);
        b.f32(Op::Unfold { windows, fill: f64::NEG_INFINITY }, &[x], &folded);
        b.f32(Op::Fold(windows), &[y], &per_sample(&[image[0], image[1], c]));
        check(b, 3, 1e-6, &mut noise);
    }
}
