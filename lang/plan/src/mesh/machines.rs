//! What is known of machines: a table of devices with where each figure comes from.
//!
//! Peak rates, memory and links are the vendors' data sheets. What a program reaches is less and
//! is assumed: it is printed with every report.

use monarch_check::hir::Float;

/// A kind of device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    pub name: &'static str,
    /// Bytes.
    pub memory: u64,
    /// Kept from the program by the collective library and the driver's context, in bytes.
    pub reserved: u64,
    pub reserved_for: &'static str,
    /// Of its memory, bytes a second.
    pub bandwidth: f64,
    /// Dense matrix products, FLOP a second.
    pub peak_bf16: f64,
    pub peak_f32: f64,
    /// What large matrix products reach, FLOP a second.
    pub achieved_bf16: f64,
    pub achieved_f32: f64,
    /// Share of those rates that fused attention reaches.
    pub attention_share: f64,
    /// Share of `bandwidth` that elementwise kernels reach.
    pub bandwidth_share: f64,
    /// Between the devices of a node, bytes a second and device, one direction.
    pub intra: f64,
    /// Between nodes, bytes a second and device, one direction.
    pub inter: f64,
    /// Attention keeps no scores in memory (Dao et al. 2022, FlashAttention).
    pub flash: bool,
    /// Where the rates come from.
    pub source: &'static str,
}

const GIB: u64 = 1 << 30;

/// The table. Peaks are without sparsity.
pub const MACHINES: [Machine; 6] = [
    // AMD Instinct MI300X data sheet (2023): 192 GB HBM3 at 5.3 TB/s, 1307.4 TFLOP/s bf16, 163.4
    // TFLOP/s f32 matrix, 7 xGMI links of 64 GB/s in each direction. Achievable bf16: AMD,
    // "Measuring Max-Achievable FLOPs", part 2 (2025): 708 TFLOP/s.
    Machine {
        name: "MI300X",
        memory: 192 * GIB,
        reserved: 9 * GIB,
        reserved_for: "RCCL and the HIP context",
        bandwidth: 5.3e12,
        peak_bf16: 1307.4e12,
        peak_f32: 163.4e12,
        achieved_bf16: 708e12,
        achieved_f32: 110e12,
        attention_share: 0.6,
        bandwidth_share: 0.75,
        intra: 448e9,
        inter: 50e9,
        flash: true,
        source: "AMD's data sheet; bf16 achievable: AMD, Measuring Max-Achievable FLOPs, part 2",
    },
    // AMD Instinct MI325X data sheet (2024): 256 GB HBM3E at 6 TB/s, matrix rates of MI300X. Its
    // achievable rate is assumed: the same share of the peak, raised by the larger power limit.
    Machine {
        name: "MI325X",
        memory: 256 * GIB,
        reserved: 9 * GIB,
        reserved_for: "RCCL and the HIP context",
        bandwidth: 6.0e12,
        peak_bf16: 1307.4e12,
        peak_f32: 163.4e12,
        achieved_bf16: 780e12,
        achieved_f32: 110e12,
        attention_share: 0.6,
        bandwidth_share: 0.75,
        intra: 448e9,
        inter: 50e9,
        flash: true,
        source: "AMD's data sheet; achievable: assumed, 60 % of the peak",
    },
    // AMD Instinct MI355X data sheet (2025): 288 GB HBM3E at 8 TB/s, 2516.6 TFLOP/s bf16, 157.3
    // TFLOP/s f32, 7 links of 76.8 GB/s in each direction. Achievable: assumed.
    Machine {
        name: "MI355X",
        memory: 288 * GIB,
        reserved: 9 * GIB,
        reserved_for: "RCCL and the HIP context",
        bandwidth: 8.0e12,
        peak_bf16: 2516.6e12,
        peak_f32: 157.3e12,
        achieved_bf16: 1500e12,
        achieved_f32: 105e12,
        attention_share: 0.6,
        bandwidth_share: 0.75,
        intra: 537.6e9,
        inter: 50e9,
        flash: true,
        source: "AMD's data sheet; achievable: assumed, 60 % of the peak",
    },
    // NVIDIA H100 SXM5 data sheet (2022): 80 GB HBM3 at 3.35 TB/s, 989.4 TFLOP/s bf16, 66.9
    // TFLOP/s f32, NVLink 4 with 450 GB/s in each direction. Achievable: assumed, 70 %.
    Machine {
        name: "H100",
        memory: 80 * GIB,
        reserved: 4 * GIB,
        reserved_for: "NCCL and the CUDA context",
        bandwidth: 3.35e12,
        peak_bf16: 989.4e12,
        peak_f32: 66.9e12,
        achieved_bf16: 690e12,
        achieved_f32: 50e12,
        attention_share: 0.7,
        bandwidth_share: 0.85,
        intra: 450e9,
        inter: 50e9,
        flash: true,
        source: "NVIDIA's data sheet; achievable: assumed, 70 % of the peak",
    },
    // NVIDIA H200 SXM data sheet (2024): 141 GB HBM3E at 4.8 TB/s, rates and links of H100.
    Machine {
        name: "H200",
        memory: 141 * GIB,
        reserved: 4 * GIB,
        reserved_for: "NCCL and the CUDA context",
        bandwidth: 4.8e12,
        peak_bf16: 989.4e12,
        peak_f32: 66.9e12,
        achieved_bf16: 690e12,
        achieved_f32: 50e12,
        attention_share: 0.7,
        bandwidth_share: 0.85,
        intra: 450e9,
        inter: 50e9,
        flash: true,
        source: "NVIDIA's data sheet; achievable: assumed, 70 % of the peak",
    },
    // A server with 64 cores, as `monarch bench` times them: 50 GFLOP/s a core in f32, which bf16
    // does not change, and shared memory between processes.
    Machine {
        name: "CPU",
        memory: 256 * GIB,
        reserved: 2 * GIB,
        reserved_for: "the operating system",
        bandwidth: 300e9,
        peak_bf16: 6.4e12,
        peak_f32: 6.4e12,
        achieved_bf16: 3.2e12,
        achieved_f32: 3.2e12,
        attention_share: 1.0,
        bandwidth_share: 0.7,
        intra: 20e9,
        inter: 2e9,
        flash: false,
        source: "assumed: 64 cores of 50 GFLOP/s",
    },
];

/// The machine of that name; case does not matter.
pub fn machine(name: &str) -> Option<&'static Machine> {
    MACHINES.iter().find(|m| m.name.eq_ignore_ascii_case(name))
}

impl Machine {
    pub fn peak(&self, precision: Float) -> f64 {
        match precision {
            Float::F32 => self.peak_f32,
            Float::Bf16 | Float::F16 => self.peak_bf16,
        }
    }

    pub fn achieved(&self, precision: Float) -> f64 {
        match precision {
            Float::F32 => self.achieved_f32,
            Float::Bf16 | Float::F16 => self.achieved_bf16,
        }
    }
}

/// Share of a link's rate that collectives of a size reach: RCCL's bus bandwidth on eight MI300X,
/// 67 GB/s at 1 MB, 274 at 64 MB and 306 at 256 MB of 448. Assumed for other machines and links.
const EFFICIENCY: [(f64, f64); 3] = [(1e6, 0.150), (64e6, 0.612), (256e6, 0.683)];

/// Before a collective's first byte, seconds; assumed.
pub const LATENCY: f64 = 12e-6;

/// Share of a link's rate for messages of `bytes`.
pub fn efficiency(bytes: f64) -> f64 {
    let [first, .., last] = EFFICIENCY;
    if bytes <= first.0 {
        return first.1;
    }
    for pair in EFFICIENCY.windows(2) {
        if let [(small, low), (large, high)] = *pair
            && bytes <= large
        {
            let at = (bytes / small).ln() / (large / small).ln();
            return low + (high - low) * at;
        }
    }
    last.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_whole_and_possible() {
        for m in &MACHINES {
            assert_eq!(machine(&m.name.to_lowercase()).map(|m| m.name), Some(m.name));
            assert!(m.achieved_bf16 < m.peak_bf16 && m.achieved_f32 < m.peak_f32, "{}", m.name);
            assert!(m.reserved < m.memory && m.intra >= m.inter, "{}", m.name);
        }
    }

    #[test]
    fn larger_messages_are_never_less_efficient() {
        let sizes = (0..60).map(|i| 1e3 * 1.3f64.powi(i));
        let shares: Vec<f64> = sizes.map(efficiency).collect();
        assert!(shares.windows(2).all(|w| w[0] <= w[1]));
        assert!((448.0 * efficiency(64e6) - 274.0).abs() < 1.0);
        assert!((448.0 * efficiency(256e6) - 306.0).abs() < 1.0);
    }
}
