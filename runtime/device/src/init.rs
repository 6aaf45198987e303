//! Initial values of weights: functions of (seed, name, element) alone.

use crate::math64::{log, sin_cos_turns};
use monarch_graph::Init;
use monarch_graph::philox::{Purpose, name_hash, random4, unit};

/// The values are not made here but read from a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FromFile;

/// Fills a weight with its initial values. Element 4 b + i comes from word i of random block b
/// of the stream that the name picks.
pub fn fill(init: &Init, seed: u64, name: &str, out: &mut [f32]) -> Result<(), FromFile> {
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
        fill(init, seed, name, &mut out).unwrap();
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
        assert_eq!(fill(&file, 1, "w", &mut [0.0]), Err(FromFile));
    }
}
