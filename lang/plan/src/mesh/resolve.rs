//! From a program's cluster and layout to a [`Setup`]: devices counted, `_` filled, every length
//! settled, and what cannot be said so.

use super::machines::{MACHINES, Machine, machine};
use super::setup::Setup;
use super::shard::{Lengths, index};
use super::words::Words;
use monarch_check::hir::{self, Float, MeshAxis, Overlap, PipelineSchedule, Precision};
use monarch_diagnostic::{Diagnostic, suggest};
use monarch_graph as graph;
use monarch_graph::Span;

/// What is asked for instead of what the program says: `plan(pretrain, pp = 64)`, or
/// `monarch plan job.mon --device H100`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wish {
    /// Other lengths of the mesh's axes.
    pub axes: Vec<(MeshAxis, u32)>,
    /// One node with so many devices of this kind, in place of the program's cluster.
    pub device: Option<(String, u32)>,
}

/// A setup and the places in the program that its numbers come from.
pub(crate) struct Resolved<'a> {
    pub setup: Setup,
    pub layout: Option<&'a hir::Layout>,
    pub cluster: Option<&'a hir::Cluster>,
    pub words: Words<'a>,
    /// Of the `inter` or `intra` rates, those that nobody gave.
    pub assumed: Vec<&'static str>,
}

/// Whether a job's plan is made for declared machines rather than for workers of this machine.
pub fn is_declared(program: &hir::Program) -> bool {
    let Some(job) = &program.job else { return false };
    job.layout.is_some() || cluster_of(program, job).is_some_and(|c| c.device.is_some())
}

fn cluster_of<'a>(program: &'a hir::Program, job: &hir::Job) -> Option<&'a hir::Cluster> {
    let layout = job.layout.and_then(|l| program.layouts.get(l));
    let number = layout.and_then(|l| l.cluster).or(job.cluster);
    number.and_then(|c| program.clusters.get(c))
}

/// The devices of a cluster.
struct Devices {
    machine: Machine,
    memory: u64,
    nodes: u32,
    per_node: u32,
}

/// Settles a job's layout.
pub(crate) fn resolve<'a>(
    program: &'a hir::Program,
    job: &'a hir::Job,
    wish: &Wish,
    out: &mut Vec<Diagnostic>,
) -> Option<Resolved<'a>> {
    let layout = job.layout.and_then(|l| program.layouts.get(l));
    let cluster = cluster_of(program, job).filter(|_| wish.device.is_none());
    let words = Words { program, job, layout, cluster };
    let devices = devices(&words, wish, out)?;
    let blocks = layout.and_then(|l| l.pipeline.as_ref()).map(|p| blocks(program, job, &p.split));
    let lengths = lengths(&words, wish, &devices, blocks, out)?;
    let links = cluster.and_then(|c| c.links);
    let (intra, inter) = (links.and_then(|l| l.intra), links.and_then(|l| l.inter));
    let mut assumed = Vec::new();
    if intra.is_none() && devices.per_node > 1 {
        assumed.push("intra");
    }
    if inter.is_none() && devices.nodes > 1 {
        assumed.push("inter");
    }
    let default_shard = vec![("B".to_owned(), MeshAxis::Dp)];
    let mut setup = Setup {
        memory: devices.memory,
        nodes: devices.nodes,
        per_node: devices.per_node,
        intra: intra.unwrap_or(devices.machine.intra),
        inter: inter.unwrap_or(devices.machine.inter),
        machine: devices.machine,
        lengths,
        shard: default_shard,
        sequence: None,
        split: None,
        schedule: PipelineSchedule::OneFOneB,
        microbatches: 1,
        zero: 0,
        recompute: Vec::new(),
        offload: Default::default(),
        precision: precision(program, job),
        overlap: Overlap::default(),
        batch: job.batch,
        tokens_per_sample: job.tokens_per_sample.max(1),
        steps: job.steps,
        slots: job.optimizer.kind.slots().len() as u64,
    };
    if let Some(layout) = layout {
        lay_out(&mut setup, layout, blocks.unwrap_or(0));
    }
    setup.microbatches = microbatches(&words, &setup);
    Some(Resolved { setup, layout, cluster, words, assumed })
}

fn lay_out(setup: &mut Setup, layout: &hir::Layout, blocks: u64) {
    setup.shard = layout.shard.iter().map(|s| (s.axis.clone(), s.over)).collect();
    setup.sequence = layout.sequence.map(|(axis, _)| axis);
    if let Some(pipeline) = &layout.pipeline {
        setup.split = Some((pipeline.split.clone(), blocks));
        setup.schedule = pipeline.schedule;
    }
    setup.zero = layout.zero.map_or(0, |z| z.stage);
    setup.recompute = layout.recompute.iter().flat_map(|r| r.paths.clone()).collect();
    setup.recompute.sort();
    setup.recompute.dedup();
    setup.offload = layout.offload;
    setup.precision = layout.precision;
    setup.overlap = layout.overlap;
}

/// Without a layout: computed in the type that most of the model's weights are stored in.
fn precision(program: &hir::Program, job: &hir::Job) -> Precision {
    let weights = program.model(job.model).map_or(&[][..], |m| &m.weights);
    let stored = |as_: graph::Float| {
        let same = weights.iter().filter(|w| w.stored == as_);
        same.map(graph::Weight::elements).sum::<u64>()
    };
    let (bf16, f16) = (stored(graph::Float::Bf16), stored(graph::Float::F16));
    let full = stored(graph::Float::F32);
    let weights = match () {
        () if bf16 > full && bf16 >= f16 => Float::Bf16,
        () if f16 > full => Float::F16,
        () => Float::F32,
    };
    Precision { weights, ..Precision::default() }
}

/// The pipeline's; else what samples of a micro-batch leave of a replica's; else as many as
/// `accumulate` says; else one for each stage.
fn microbatches(words: &Words, setup: &Setup) -> u64 {
    let asked = words.layout.and_then(|l| l.pipeline.as_ref()).and_then(|p| p.microbatches);
    let each = setup.batch / setup.replicas().max(1);
    let of_micro = words.job.micro.filter(|m| *m > 0 && each.is_multiple_of(*m));
    let given = asked.or(of_micro.map(|m| each / m)).or(words.job.accumulate);
    given.unwrap_or(setup.stages().min(each)).max(1)
}

fn devices(words: &Words, wish: &Wish, out: &mut Vec<Diagnostic>) -> Option<Devices> {
    if let Some((kind, count)) = &wish.device {
        let Some(machine) = machine(kind) else {
            out.push(unknown(kind, None));
            return None;
        };
        let (machine, per_node) = (*machine, (*count).max(1));
        return Some(Devices { memory: machine.memory, machine, nodes: 1, per_node });
    }
    let cluster = words.cluster;
    let Some(device) = cluster.and_then(|c| c.device.as_ref()) else {
        // Workers of one machine.
        let machine = *machine("CPU")?;
        let per_node = cluster.and_then(|c| c.workers).unwrap_or(1).max(1);
        return Some(Devices { memory: machine.memory, machine, nodes: 1, per_node });
    };
    let Some(machine) = machine(&device.kind) else {
        out.push(unknown(&device.kind, Some(device.span)));
        return None;
    };
    let nodes = cluster.map_or(1, |c| c.nodes.len().max(1)) as u32;
    let per_node = device.count.max(1);
    let memory = device.memory_bytes.unwrap_or(machine.memory);
    Some(Devices { machine: *machine, memory, nodes, per_node })
}

fn unknown(kind: &str, span: Option<Span>) -> Diagnostic {
    let names = || MACHINES.iter().map(|m| m.name);
    let d = Diagnostic::error("M0319", format!("nothing is known of the device `{kind}`"));
    let d = match span {
        Some(span) => d.label(span, "no figures for its memory and rates"),
        None => d,
    };
    match suggest(kind, names()) {
        Some(near) => d.help(format!("did you mean `{near}`?")),
        None => d.help(format!("there are: {}", names().collect::<Vec<_>>().join(", "))),
    }
}

/// How often the split sublayer is repeated.
fn blocks(program: &hir::Program, job: &hir::Job, path: &str) -> u64 {
    let Some(model) = program.model(job.model) else { return 0 };
    let (mut instance, mut copies) = (&model.root, 0);
    for name in path.split('.') {
        let Some(layer) = program.layer(instance.layer) else { return 0 };
        let Some(at) = layer.subs.iter().position(|s| s.name == name) else { return 0 };
        let Some(found) = instance.subs.get(at) else { return 0 };
        copies = found.len() as u64;
        match found.first() {
            Some(first) => instance = first,
            None => return 0,
        }
    }
    copies
}

/// Lengths of all axes; `_` is what makes the product the number of devices.
fn lengths(
    words: &Words,
    wish: &Wish,
    devices: &Devices,
    blocks: Option<u64>,
    out: &mut Vec<Diagnostic>,
) -> Option<Lengths> {
    let all = devices.nodes.saturating_mul(devices.per_node);
    let Some(layout) = words.layout else {
        let mut lengths = [1; 5];
        lengths[index(MeshAxis::Dp)] = all;
        for (axis, n) in &wish.axes {
            lengths[index(*axis)] = (*n).max(1);
        }
        return Some(lengths);
    };
    let mut lengths: [Option<u32>; 5] = [Some(1); 5];
    for axis in &layout.mesh.axes {
        lengths[index(axis.axis)] = axis.length;
    }
    for (axis, n) in &wish.axes {
        lengths[index(*axis)] = Some((*n).max(1));
    }
    let stages = lengths[index(MeshAxis::Pp)].unwrap_or(1);
    if let Some(error) = too_many_stages(words, layout, stages, blocks) {
        out.push(error);
        return None;
    }
    let known: u64 = lengths.iter().flatten().map(|n| u64::from(*n)).product();
    let total = u64::from(all);
    let open: Vec<usize> = (0..5).filter(|&i| lengths[i].is_none()).collect();
    let fits = match open.as_slice() {
        [] => known == total,
        [_] => known > 0 && total.is_multiple_of(known),
        _ => false,
    };
    if !fits {
        out.push(words.product(layout, &lengths, total, (devices.nodes, devices.per_node)));
        return None;
    }
    let filled = (total / known.max(1)) as u32;
    Some(lengths.map(|n| n.unwrap_or(filled)))
}

fn too_many_stages(
    words: &Words,
    layout: &hir::Layout,
    stages: u32,
    blocks: Option<u64>,
) -> Option<Diagnostic> {
    let (pipeline, blocks) = (layout.pipeline.as_ref()?, blocks?);
    let chunks = super::pipeline::chunks(pipeline.schedule);
    let wanted = u64::from(stages) * u64::from(chunks);
    if wanted <= blocks {
        return None;
    }
    let what = if chunks > 1 { "chunks of pipeline stages" } else { "pipeline stages" };
    let title = format!("{} cannot fill {wanted} {what}", words.plural(blocks, "block"));
    let at = words.axis_span(layout, MeshAxis::Pp);
    let mine = match chunks {
        1 => format!("{stages} stages"),
        _ => format!("{stages} stages x {chunks} chunks"),
    };
    let (first, last) = (blocks + 1, wanted);
    let empty = match last - first {
        0 => format!("stage {last} would be empty"),
        1 => format!("stages {first} and {last} would be empty"),
        _ => format!("stages {first} to {last} would be empty"),
    };
    let why = format!("{}; {empty}", words.plural(blocks, "block"));
    let most = blocks / u64::from(chunks);
    Some(
        Diagnostic::error("M0312", title)
            .label(at, mine)
            .label(words.depth_span(pipeline), why)
            .help(format!(
                "use pp <= {most} or raise `{}`. Monarch never drops or rounds layers to make a \
                 split fit",
                words.depth_name(pipeline)
            )),
    )
}
