//! Initial values of weights: functions of (seed, name, element) alone.

use monarch_graph::Init;
use monarch_graph::math::{log, sin_cos_turns};
use monarch_graph::philox::{Purpose, name_hash, random4, unit};

/// The values are not made here but read from a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FromFile;

/// Fills a weight with its initial values. Element 4 b + i comes from word i of random block b
/// of the stream that the name picks.
pub fn fill(
    init: &Init,
    seed: u64,
    name: &str,
    shape: &[u64],
    out: &mut [f32],
) -> Result<(), FromFile> {
    match init {
        Init::Zeros => out.fill(0.0),
        Init::Ones => out.fill(1.0),
        Init::Constant(value) => out.fill(*value as f32),
        Init::Normal(deviation) => {
            blocks(seed, name, out, |words| normal4(words).map(|x| (x * deviation) as f32));
        }
        Init::Uniform(bound) => blocks(seed, name, out, |words| {
            words.map(|word| ((2.0 * f64::from(unit(word)) - 1.0) * bound) as f32)
        }),
        Init::TruncatedNormal(deviation) => truncated(seed, name, *deviation, out),
        Init::Orthogonal(gain) => orthogonal(seed, name, *gain, shape, out),
        Init::Eye => {
            let columns = shape.last().map_or(1, |n| *n as usize).max(1);
            for (row, out) in out.chunks_mut(columns).enumerate() {
                out.fill(0.0);
                if let Some(diagonal) = out.get_mut(row) {
                    *diagonal = 1.0;
                }
            }
        }
        Init::File { .. } => return Err(FromFile),
    }
    Ok(())
}

fn blocks(seed: u64, name: &str, out: &mut [f32], f: impl Fn([u32; 4]) -> [f32; 4]) {
    let stream = name_hash(name);
    for (block, out) in out.chunks_mut(4).enumerate() {
        let values = f(random4(seed, Purpose::Init, stream, block as u64));
        for (out, value) in out.iter_mut().zip(values) {
            *out = value;
        }
    }
}

/// Normals are drawn again beyond this many deviations.
const TRUNCATED_AT: f64 = 2.0;
/// Draws of an element at most: one in twenty is drawn again.
const DRAWS: u64 = 48;

/// Draw `k` of an element comes from block b + k 2^48, in the place of draw 0.
fn truncated(seed: u64, name: &str, deviation: f64, out: &mut [f32]) {
    let stream = name_hash(name);
    for (block, out) in out.chunks_mut(4).enumerate() {
        let mut left = [true; 4];
        for draw in 0..DRAWS {
            let words = random4(seed, Purpose::Init, stream, draw << 48 | block as u64);
            for ((out, left), x) in out.iter_mut().zip(&mut left).zip(normal4(words)) {
                if *left && x.abs() <= TRUNCATED_AT {
                    *out = (x * deviation) as f32;
                    *left = false;
                }
            }
            if !left.iter().take(out.len()).any(|l| *l) {
                break;
            }
        }
    }
}

/// A matrix of normals, its shorter side made orthonormal by Gram-Schmidt, each vector twice
/// ("twice is enough": Giraud et al. 2005). The upper factor's diagonal is positive, so every
/// orthogonal matrix is as likely as any other (Stewart 1980).
fn orthogonal(seed: u64, name: &str, gain: f64, shape: &[u64], out: &mut [f32]) {
    let columns = shape.last().map_or(1, |n| *n as usize).max(1);
    let rows = out.len() / columns;
    let mut normal = vec![0.0; out.len()];
    let stream = name_hash(name);
    for (block, out) in normal.chunks_mut(4).enumerate() {
        let values = normal4(random4(seed, Purpose::Init, stream, block as u64));
        out.iter_mut().zip(values).for_each(|(out, x)| *out = x);
    }
    // Vectors of the shorter side.
    let (count, length) = (rows.min(columns), rows.max(columns));
    let place =
        |i: usize, k: usize| if rows <= columns { i * columns + k } else { k * columns + i };
    let mut vectors: Vec<Vec<f64>> = Vec::with_capacity(count);
    for i in 0..count {
        let mut v: Vec<f64> =
            (0..length).map(|k| normal.get(place(i, k)).copied().unwrap_or(0.0)).collect();
        for _ in 0..2 {
            for u in &vectors {
                let along = dot(u, &v);
                v.iter_mut().zip(u).for_each(|(v, u)| *v -= along * u);
            }
        }
        let norm = dot(&v, &v).sqrt().max(f64::MIN_POSITIVE);
        v.iter_mut().for_each(|v| *v /= norm);
        vectors.push(v);
    }
    for (i, v) in vectors.iter().enumerate() {
        for (k, x) in v.iter().enumerate() {
            if let Some(out) = out.get_mut(place(i, k)) {
                *out = (gain * x) as f32;
            }
        }
    }
}

/// Eight columns, added in order.
fn dot(x: &[f64], y: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    for (x, y) in x.chunks(8).zip(y.chunks(8)) {
        for ((sum, x), y) in sums.iter_mut().zip(x).zip(y) {
            *sum += x * y;
        }
    }
    sums.iter().sum()
}

/// Four independent standard normals (Box & Muller 1958): words 0 and 1 give the first two,
/// words 2 and 3 the others.
fn normal4(words: [u32; 4]) -> [f64; 4] {
    let pair = |radius: u32, angle: u32| {
        let scale = 1.0 / 4_294_967_296.0;
        let r = (-2.0 * log((f64::from(radius) + 1.0) * scale)).sqrt();
        let (sin, cos) = sin_cos_turns(f64::from(angle) * scale);
        (r * cos, r * sin)
    };
    let ((a, b), (c, d)) = (pair(words[0], words[1]), pair(words[2], words[3]));
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(init: &Init, seed: u64, name: &str, n: usize) -> Vec<f32> {
        let mut out = vec![f32::NAN; n];
        fill(init, seed, name, &[n as u64], &mut out).unwrap();
        out
    }

    #[test]
    fn normals_are_normal() {
        let x = filled(&Init::Normal(0.5), 7, "w", 100_003);
        let n = x.len() as f64;
        let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
        let moment = |p: i32| x.iter().map(|&x| (f64::from(x) / 0.5).powi(p)).sum::<f64>() / n;
        assert!(mean.abs() < 0.006 && (moment(2) - 1.0).abs() < 0.02, "{mean} {}", moment(2));
        assert!((moment(4) - 3.0).abs() < 0.12, "{}", moment(4));
        let beyond = x.iter().filter(|x| x.abs() > 0.98).count() as f64 / n;
        assert!((beyond - 0.05).abs() < 0.003, "{beyond}");
    }

    #[test]
    fn uniforms_stay_within_their_bound() {
        let x = filled(&Init::Uniform(0.25), 7, "w", 50_000);
        assert!(x.iter().all(|x| (-0.25..0.25).contains(x)));
        let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / 5e4;
        let square = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>() / 5e4;
        assert!(mean.abs() < 0.003 && (square - 0.25 * 0.25 / 3.0).abs() < 4e-4);
    }

    #[test]
    fn a_value_depends_on_seed_name_and_element_alone() {
        let init = Init::Normal(1.0);
        let x = filled(&init, 1, "a.w", 10);
        assert_eq!(x, filled(&init, 1, "a.w", 13)[..10]);
        assert_ne!(x, filled(&init, 2, "a.w", 10));
        assert_ne!(x, filled(&init, 1, "a.v", 10));
    }

    /// Pinned: the same on every machine and in every version.
    #[test]
    fn known_values() {
        let x = filled(&Init::Normal(1.0), 42, "blocks.0.attn.qkv", 5);
        let want = [3_221_658_578, 1_040_871_322, 3_213_892_038, 1_055_129_775, 3_218_826_246];
        assert_eq!(x.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), want);
    }

    #[test]
    fn constants() {
        assert_eq!(filled(&Init::Zeros, 1, "w", 3), [0.0; 3]);
        assert_eq!(filled(&Init::Ones, 1, "w", 3), [1.0; 3]);
        assert_eq!(filled(&Init::Constant(0.5), 1, "w", 3), [0.5; 3]);
        let file = Init::File { path: "x".into(), name: "y".into(), transpose: false };
        assert_eq!(fill(&file, 1, "w", &[1], &mut [0.0]), Err(FromFile));
    }

    #[test]
    fn the_tails_of_a_truncated_normal_are_drawn_again() {
        let x = filled(&Init::TruncatedNormal(0.5), 7, "w", 50_001);
        assert!(x.iter().all(|x| x.abs() <= 1.0));
        let n = x.len() as f64;
        let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
        let square = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>() / n;
        // The variance of a normal within two deviations: 0.7737.
        assert!(mean.abs() < 0.006 && (square / 0.25 - 0.7737).abs() < 0.015, "{}", square / 0.25);
        assert_eq!(x[..10], filled(&Init::TruncatedNormal(0.5), 7, "w", 10));
        // Those within are the same as without truncation.
        let normal = filled(&Init::Normal(0.5), 7, "w", 100);
        let same = normal.iter().zip(&x).filter(|(a, b)| a == b).count();
        assert_eq!(same, normal.iter().filter(|x| x.abs() <= 1.0).count());
    }

    #[test]
    fn orthogonal_matrices_are_orthogonal() {
        for shape in [[1, 1], [5, 3], [3, 5], [16, 16], [2, 40], [33, 20]] {
            let mut x = vec![0.0; shape[0] * shape[1]];
            let lengths = [shape[0] as u64, shape[1] as u64];
            fill(&Init::Orthogonal(2.0), 3, "w", &lengths, &mut x).unwrap();
            let [rows, columns] = shape;
            let at = |i: usize, k: usize| match rows <= columns {
                true => f64::from(x[i * columns + k]),
                false => f64::from(x[k * columns + i]),
            };
            for (i, j) in (0..rows.min(columns)).flat_map(|i| (0..=i).map(move |j| (i, j))) {
                let dot: f64 = (0..rows.max(columns)).map(|k| at(i, k) * at(j, k)).sum();
                let want = if i == j { 4.0 } else { 0.0 };
                assert!((dot - want).abs() < 2e-6, "{shape:?}: {i} {j} {dot}");
            }
        }
        let mut eye = vec![9.0; 6];
        fill(&Init::Eye, 3, "w", &[2, 3], &mut eye).unwrap();
        assert_eq!(eye, [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
    }
}
