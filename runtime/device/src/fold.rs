//! Adding gradients: what the reduction tree is made of.

use crate::kernels::map::{Plus, binary};
use crate::kernels::reduce::merge;
use crate::simd::{Isa, Kernel, Lanes};
use monarch_graph::BinaryOp;

/// dst = a + b, over the elements that all three have.
pub fn add_into(isa: Isa, dst: &mut [f32], a: &[f32], b: &[f32]) {
    let n = dst.len().min(a.len()).min(b.len());
    binary(isa, BinaryOp::Add, &a[..n], &b[..n], &mut dst[..n]);
}

/// left = left + right, over the elements that both have.
pub fn add_assign(isa: Isa, left: &mut [f32], right: &[f32]) {
    let n = left.len().min(right.len());
    isa.call(Add { left: &mut left[..n], right: &right[..n] });
}

struct Add<'a> {
    left: &'a mut [f32],
    right: &'a [f32],
}

impl Kernel for Add<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        merge::<L>(Plus, self.right, self.left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Noise, isas};

    #[test]
    fn sums_are_sums() {
        let mut noise = Noise::new(41);
        for n in [0, 1, 16, 33] {
            let (a, b) = (noise.floats(n), noise.floats(n));
            let want: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
            for isa in isas() {
                let mut out = vec![0.0; n];
                add_into(isa, &mut out, &a, &b);
                assert_eq!(out, want);
                let mut left = a.clone();
                add_assign(isa, &mut left, &b);
                assert_eq!(left, want);
            }
        }
    }
}
