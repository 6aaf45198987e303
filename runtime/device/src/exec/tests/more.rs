use super::*;

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
