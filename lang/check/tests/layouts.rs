//! Declared machines and layouts, as the resolved program has them.

mod common;

use common::{Memory, llama3d, shown};
use monarch_check::hir::{
    Float, Key, MeshAxis, MeshLength, Offload, Overlap, PipelineSchedule, Precision, Program,
};

fn checked(program: &str) -> Program {
    let checked = Memory::with("job.mon", program).check("job.mon");
    let text = shown(&checked);
    checked.program.unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn machines() {
    let program = checked(&llama3d());
    let lab = &program.clusters[0];
    assert_eq!(lab.nodes, ["gpu01:7000", "gpu02:7000"]);
    let device = lab.device.as_ref().expect("a device");
    assert_eq!((device.kind.as_str(), device.count), ("MI300X", 8));
    assert_eq!(device.memory_bytes, Some(192 << 30));
    let slice = |span| program.sources.slice(span);
    assert_eq!(device.memory_span.map(slice), Some("memory = 192 GiB"));
    let links = lab.links.expect("links");
    assert_eq!((links.intra, links.inter), (Some(448e9), Some(50e9)));
    assert!(matches!(&lab.key, Some(Key::Env { name, .. }) if name == "MONARCH_KEY"));
    assert_eq!(lab.devices(), Some(16));
}

#[test]
fn a_layout() {
    let program = checked(&llama3d());
    let job = program.job.as_ref().expect("a job");
    assert_eq!((job.cluster, job.layout), (Some(0), Some(0)));
    let p = &program.layouts[0];
    assert_eq!((p.name.as_str(), p.cluster), ("p3d", Some(0)));
    let slice = |span| program.sources.slice(span);
    let row = |a: &MeshLength| (a.axis, a.length, slice(a.span));
    let mesh: Vec<_> = p.mesh.axes.iter().map(row).collect();
    let wanted = [
        (MeshAxis::Pp, Some(2), "pp = 2"),
        (MeshAxis::Dp, Some(2), "dp = 2"),
        (MeshAxis::Tp, Some(4), "tp = 4"),
    ];
    assert_eq!(mesh, wanted);
    let shard: Vec<_> = p.shard.iter().map(|s| (s.axis.as_str(), s.over)).collect();
    let tp = MeshAxis::Tp;
    assert_eq!(shard, [("B", MeshAxis::Dp), ("H", tp), ("G", tp), ("F", tp), ("V", tp)]);
    assert_eq!(p.sequence.map(|s| s.0), Some(tp));
    let pipeline = p.pipeline.as_ref().expect("a pipeline");
    assert_eq!((pipeline.split.as_str(), pipeline.over), ("blocks", MeshAxis::Pp));
    assert_eq!(pipeline.schedule, PipelineSchedule::OneFOneB);
    assert_eq!(pipeline.microbatches, Some(16));
    assert_eq!(pipeline.microbatches_span.map(slice), Some("microbatches = 16"));
    let zero = p.zero.expect("zero");
    assert_eq!((zero.stage, zero.over), (1, MeshAxis::Dp));
    assert_eq!(slice(zero.span), "zero      { stage = 1");
    assert_eq!(p.recompute[0].pattern, "llm.blocks.*.attn");
    let attn = |i| format!("blocks.{i}.attn");
    assert_eq!(p.recompute[0].paths, (0..4).map(attn).collect::<Vec<_>>());
    assert_eq!(p.offload, Offload { optimizer: false });
    let (bf16, f32) = (Float::Bf16, Float::F32);
    assert_eq!(p.precision, Precision { weights: bf16, grads: f32, optimizer: f32 });
    let overlap = Overlap { grads: true, bucket_bytes: Some(64 << 20), tp: true, exact: true };
    assert_eq!(p.overlap, overlap);
}

/// A job of 8 devices on this mesh, with this batch: samples, micro, accumulate, shards; and the
/// codes of what is said about it.
fn batch(plan: &str, batch: &str) -> (Option<[u64; 4]>, Vec<&'static str>) {
    let head = "use std.models.llama.Llama\nuse std.loss.cross_entropy\nuse std.optim.AdamW\n\
        data ids = tensors(\"columns.safetensors\")\n\
        model llm = Llama[V = 64, D = 32, H = 4, G = 4, F = 64, T = 16](depth = 4)\n\
        cluster lab { device = H100 { count = 8 } }\n";
    let job = "train job on p {\n  model = llm, data = ids\n  \
        loss(ids: i32[B, T], next: i32[B, T]) = cross_entropy(llm(ids), next)\n  \
        optim = AdamW(1e-3)\n  until = 100 steps\n";
    let program = format!("{head}plan p on lab {{ {plan} }}\n{job}  batch = {batch}\n}}\n");
    let checked = Memory::with("job.mon", &program).check("job.mon");
    let codes = checked.diagnostics.iter().map(|d| d.code).filter(|c| *c != "M0604").collect();
    let job = checked.program.and_then(|p| p.job);
    let numbers = job.map(|j| {
        let (micro, accumulate) = (j.micro.unwrap_or(0), j.accumulate.unwrap_or(0));
        [j.batch, micro, accumulate, u64::from(j.shards)]
    });
    (numbers, codes)
}

#[test]
fn a_batch_multiplies_out() {
    const FLAT: &str = "mesh = { dp = 4, tp = 2 }, shard { B -> dp, F -> tp }";
    const FILLED: &str = "mesh = { dp = _, tp = 2 }, shard { B -> dp, F -> tp }";
    const PIPED: &str = "mesh = { pp = 4, dp = 2 }, shard { B -> dp }, \
        pipeline { split = llm.blocks, microbatches = 8 }";
    for plan in [FLAT, FILLED] {
        let clean = |b: &str| batch(plan, b);
        assert_eq!(clean("32"), (Some([32, 0, 0, 8]), vec![]));
        assert_eq!(clean("{ micro = 2, accumulate = 4 }"), (Some([32, 2, 4, 16]), vec![]));
        assert_eq!(clean("{ global = 32, micro = 2 }"), (Some([32, 2, 4, 16]), vec![]));
        assert_eq!(clean("{ global = 32, accumulate = 8 }"), (Some([32, 1, 8, 32]), vec![]));
        let all = "{ global = 32, micro = 2, accumulate = 4 }";
        assert_eq!(clean(all), (Some([32, 2, 4, 16]), vec![]));
        assert_eq!(clean("30").1, ["M0507"]);
        assert_eq!(clean("{ global = 32, micro = 3 }").1, ["M0507"]);
    }
    assert_eq!(batch(PIPED, "32"), (Some([32, 2, 8, 8]), vec![]));
    assert_eq!(batch(PIPED, "{ micro = 3 }"), (Some([48, 3, 8, 16]), vec![]));
    assert_eq!(batch(PIPED, "{ global = 48 }"), (Some([48, 3, 8, 8]), vec![]));
    assert_eq!(batch(PIPED, "{ micro = 3, accumulate = 4 }").1, ["M0507"]);
    // Samples have 16 tokens, and 16 of them are one for each micro-batch of each replica.
    assert_eq!(batch(PIPED, "512 tokens"), (Some([32, 2, 8, 8]), vec![]));
    assert_eq!(batch(PIPED, "500 tokens"), (Some([32, 2, 8, 8]), vec!["M0508"]));
    assert_eq!(batch(PIPED, "400 tokens").1, ["M0507"]);
}
