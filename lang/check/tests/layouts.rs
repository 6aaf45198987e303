//! Declared machines and layouts, as the resolved program has them.

mod common;

use common::{Memory, shown};
use monarch_check::hir::{
    Float, Key, MeshAxis, MeshLength, Offload, Overlap, PipelineSchedule, Precision, Program,
};

/// `cluster lab` and `plan p3d` of an example, as they stand there.
fn declared(example: &str) -> String {
    let path = format!("{}/../../examples/{example}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("the example is there");
    let part = |from: &str| {
        let rest = &text[text.find(from).expect("the block is there")..];
        rest[..rest.find("\n}").expect("it ends") + 3].to_owned()
    };
    part("cluster lab {") + &part("plan p3d on lab {")
}

/// A job that trains a small Llama on the layout of `llama3d.mon`.
fn llama() -> String {
    let head = "use std.models.llama.Llama\nuse std.loss.cross_entropy\nuse std.optim.AdamW\n\
        model llm = Llama[V = 64, D = 32, H = 4, G = 4, F = 64, T = 16](depth = 4)\n";
    let job = "train pretrain on p3d {\n  model = llm\n  \
        data = tensors(\"columns.safetensors\")\n  \
        loss(ids: i32[B, T], next: i32[B, T]) = \
        cross_entropy(llm(ids), next)\n  \
        optim = AdamW(1e-3)\n  batch = 32\n  until = 2 epochs\n}\n";
    format!("{head}{}{job}", declared("llama3d.mon"))
}

fn checked(program: &str) -> Program {
    let checked = Memory::with("job.mon", program).check("job.mon");
    let text = shown(&checked);
    checked.program.unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn machines() {
    let program = checked(&llama());
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
    let program = checked(&llama());
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
