use super::math::{exp, log, normal, sigmoid, tanh};
use super::*;
use crate::reference::special::{erfc, normal_pdf};
use crate::testing::{Noise, bits, isas};

/// A whole number in -250..=250 from anything.
#[inline(always)]
fn whole<L: Lanes>(y: L) -> L {
    let y = L::select(y.eq(y), y, L::zero());
    L::splat(-250.0).max(L::splat(250.0).min(y.round()))
}

#[inline(always)]
fn mantissa<L: Lanes>(x: L) -> L {
    (x.abs() + L::splat(f32::MIN_POSITIVE)).split2().1
}

macro_rules! kernels {
    ($($name:ident($x:ident, $y:ident, $z:ident) = $body:expr;)*) => {
        /// Applies one function to three slices of one length.
        fn apply(isa: Isa, name: &str, x: &[f32], y: &[f32], z: &[f32]) -> Vec<f32> {
            $(
                struct $name<'a>(&'a [f32], &'a [f32], &'a [f32], &'a mut [f32]);
                impl Kernel for $name<'_> {
                    type Output = ();
                    #[inline(always)]
                    fn run<L: Lanes>(self) {
                        let ins = self.0.chunks(LANES).zip(self.1.chunks(LANES));
                        let ins = ins.zip(self.2.chunks(LANES));
                        for (((x, y), z), out) in ins.zip(self.3.chunks_mut(LANES)) {
                            let $x = L::load_some(x, 0.5);
                            let $y = L::load_some(y, 0.5);
                            let $z = L::load_some(z, 0.5);
                            let _ = (&$y, &$z);
                            let result: L = $body;
                            result.store_some(out);
                        }
                    }
                }
            )*
            let mut out = vec![0.0; x.len()];
            match name {
                $(stringify!($name) => isa.call($name(x, y, z, &mut out)),)*
                _ => panic!("no kernel {name}"),
            }
            out
        }
        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

kernels! {
    Add(x, y, z) = x + y;
    Sub(x, y, z) = x - y;
    Mul(x, y, z) = x * y;
    Div(x, y, z) = x / y;
    Neg(x, y, z) = -x;
    Fma(x, y, z) = x.fma(y, z);
    Sqrt(x, y, z) = x.sqrt();
    Abs(x, y, z) = x.abs();
    Max(x, y, z) = x.max(y);
    Min(x, y, z) = x.min(y);
    MaxOrNan(x, y, z) = x.max_or_nan(y);
    MinOrNan(x, y, z) = x.min_or_nan(y);
    Eq(x, y, z) = L::select(x.eq(y), z, x);
    Lt(x, y, z) = L::select(x.lt(y), z, x);
    Le(x, y, z) = L::select(x.le(y), z, x);
    Scale2(x, y, z) = mantissa(x).scale2(whole(y));
    Exponent(x, y, z) = (x.abs() + L::splat(f32::MIN_POSITIVE)).split2().0;
    Mantissa(x, y, z) = mantissa(x);
    FoldSum(x, y, z) = L::splat(x.fold_sum());
    FoldMax(x, y, z) = L::splat(x.fold_max());
    Exp(x, y, z) = exp(x);
    Log(x, y, z) = log(x);
    Tanh(x, y, z) = tanh(x);
    Sigmoid(x, y, z) = sigmoid(x);
    Below(x, y, z) = normal(x).0;
    Density(x, y, z) = normal(x).1;
}

#[test]
fn every_operation_has_the_same_bits_everywhere() {
    let mut noise = Noise::new(21);
    for length in [1, 2, 7, 8, 9, 15, 16, 17, 31, 500] {
        let (x, y, z) = (noise.wild(length), noise.wild(length), noise.wild(length));
        for name in NAMES {
            let want = bits(&apply(Isa::SCALAR, name, &x, &y, &z));
            for isa in isas() {
                let found = bits(&apply(isa, name, &x, &y, &z));
                assert_eq!(found, want, "{name} of {length} on {}", isa.name());
            }
        }
    }
}

#[test]
fn a_transpose_is_a_transpose() {
    struct Turn<'a>(&'a mut [[f32; LANES]; LANES]);
    impl Kernel for Turn<'_> {
        type Output = ();
        #[inline(always)]
        fn run<L: Lanes>(self) {
            let mut square: [L; LANES] = std::array::from_fn(|i| L::load(&self.0[i]));
            L::transpose(&mut square);
            for (to, vector) in self.0.iter_mut().zip(square) {
                vector.store(to);
            }
        }
    }
    for isa in isas() {
        let number = |i: usize, j: usize| (i * 100 + j) as f32;
        let mut square = std::array::from_fn(|i| std::array::from_fn(|j| number(i, j)));
        isa.call(Turn(&mut square));
        for (i, row) in square.iter().enumerate() {
            for (j, &x) in row.iter().enumerate() {
                assert_eq!(x, number(j, i), "{}", isa.name());
            }
        }
    }
}

/// Distance in units of the last place of the true value.
fn ulps(found: f32, want: f64) -> f64 {
    let unit = f64::from(f32::EPSILON) / 2.0 * want.abs().log2().floor().exp2() * 2.0;
    (f64::from(found) - want).abs() / unit.max(f64::from(f32::from_bits(1)))
}

fn worst(name: &str, from: f32, to: f32, f: impl Fn(f64) -> f64) -> (f64, f32) {
    let n = 200_000;
    let x: Vec<f32> = (0..=n).map(|i| from + (to - from) * (i as f32 / n as f32)).collect();
    let found = apply(Isa::detect().unwrap(), name, &x, &x, &x);
    let errors = x.iter().zip(found).map(|(&x, y)| (ulps(y, f(f64::from(x))), x));
    errors.fold((0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a })
}

#[test]
fn functions_are_accurate() {
    let root = std::f64::consts::FRAC_1_SQRT_2;
    let within = |name: &str, from, to, limit: f64, f: &dyn Fn(f64) -> f64| {
        let (error, at) = worst(name, from, to, f);
        assert!(error <= limit, "{name}: {error} ulp at {at}");
    };
    within("Exp", -87.0, 88.7, 1.0, &f64::exp);
    within("Exp", -103.0, -87.0, 1.0, &f64::exp);
    within("Exp", -1.0, 1.0, 1.0, &f64::exp);
    within("Log", 1e-3, 4.0, 1.0, &f64::ln);
    within("Log", 1.0, 1e9, 1.0, &f64::ln);
    within("Log", 1e-45, 1e-37, 1.0, &f64::ln);
    within("Tanh", -10.0, 10.0, 2.0, &f64::tanh);
    within("Tanh", -0.7, 0.7, 2.0, &f64::tanh);
    within("Sigmoid", -80.0, 80.0, 3.0, &|x| 1.0 / (1.0 + (-x).exp()));
    within("Below", -12.0, 8.0, 6.0, &|x| 0.5 * erfc(-x * root));
    within("Density", -12.0, 12.0, 3.0, &normal_pdf);
}

#[test]
fn functions_at_the_edges() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    for isa in isas() {
        let at = |name, x: f32| apply(isa, name, &[x], &[x], &[x])[0];
        assert_eq!((at("Exp", -inf), at("Exp", inf), at("Exp", 0.0)), (0.0, inf, 1.0));
        assert_eq!((at("Exp", 89.0), at("Exp", -104.5)), (inf, 0.0));
        assert_eq!((at("Log", 0.0), at("Log", inf), at("Log", 1.0)), (-inf, inf, 0.0));
        assert!(at("Log", -1.0).is_nan());
        assert_eq!((at("Tanh", -inf), at("Tanh", inf)), (-1.0, 1.0));
        assert_eq!((at("Sigmoid", -inf), at("Sigmoid", inf)), (0.0, 1.0));
        assert_eq!((at("Below", -inf), at("Below", inf), at("Below", 0.0)), (0.0, 1.0, 0.5));
        for name in ["Exp", "Log", "Tanh", "Sigmoid", "Below", "Density", "MaxOrNan"] {
            assert!(at(name, nan).is_nan(), "{name}");
        }
    }
}

#[test]
fn instruction_sets_by_name() {
    assert_eq!(Isa::named("scalar"), Ok(Isa::SCALAR));
    let unknown = Isa::named("sse9").unwrap_err().to_string();
    assert!(unknown.contains("sse9") && unknown.contains("avx512"), "{unknown}");
    for isa in isas() {
        assert_eq!(Isa::named(isa.name()), Ok(isa));
    }
}
