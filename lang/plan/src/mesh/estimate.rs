//! From a divided graph and a schedule to the figures of a plan.

use super::facts::Facts;
use super::memory::{self, Held, StageMemory, held, memory};
use super::pipeline::{self, Pace, ScheduleError, Timeline};
use super::profile::{Cost, Profile, Segment, profile};
use super::setup::{Group, Setup};
use super::shard::{Division, Kind, Sharded, shard};
use super::traced::Traced;
use monarch_check::hir::MeshAxis;
use monarch_graph::Weight;
use std::collections::BTreeMap;
use std::ops::Range;

/// A stage of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// Blocks of the split that it holds, with its chunks one after another.
    pub blocks: u64,
    pub memory: StageMemory,
    /// Elements of its weights on one device.
    pub weights: u64,
    /// Most micro-batches whose activations it holds at once.
    pub in_flight: f64,
    /// Seconds of a micro-batch.
    pub forward: f64,
    pub backward: f64,
    /// Share of the pipeline's time in which it waits.
    pub idle: f64,
}

/// Where a step's time goes, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepTime {
    /// All micro-batches through all stages.
    pub pipeline: f64,
    /// Of the busiest stage: kernels.
    pub compute: f64,
    /// Of the busiest stage: collectives within layers that nothing hides.
    pub layers: f64,
    /// Of the busiest stage: waiting for other stages.
    pub waiting: f64,
    /// Gradients: all of it, and what backward does not hide.
    pub gradients: f64,
    pub gradients_exposed: f64,
    /// Weights to and from their owners under ZeRO.
    pub weights_exposed: f64,
    pub update: f64,
}

impl StepTime {
    pub fn step(&self) -> f64 {
        self.pipeline + self.gradients_exposed + self.weights_exposed + self.update
    }
}

/// Bytes that one device sends in a step.
#[derive(Clone, Debug, PartialEq)]
pub struct TrafficRow {
    pub what: &'static str,
    pub axis: MeshAxis,
    pub bytes: f64,
    pub crosses: bool,
}

/// The figures of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    pub stages: Vec<Stage>,
    pub time: StepTime,
    pub traffic: Vec<TrafficRow>,
    /// Share of the pipeline's time in which its busiest stage waits.
    pub bubble: f64,
    /// Bytes of a bucket of gradients.
    pub bucket: u64,
    pub micro_samples: u64,
    /// Operations of a step, all devices: what the model asks for, and what is done.
    pub model_flops: f64,
    pub attention_flops: f64,
    pub hardware_flops: f64,
    /// Mesh axes that divide no tensor.
    pub divides: [bool; 5],
}

impl Estimate {
    /// Of the stage that needs most.
    pub fn peak(&self) -> u64 {
        self.stages.iter().map(|s| s.memory.total()).max().unwrap_or(0)
    }

    /// The stage that needs most.
    pub fn fullest(&self) -> usize {
        let all = self.stages.iter().enumerate();
        // The first of equals.
        all.rev().max_by_key(|(_, s)| s.memory.total()).map_or(0, |(i, _)| i)
    }
}

/// A job's graph with all that does not depend on a layout.
pub(crate) struct Source<'a> {
    pub traced: Traced,
    pub facts: Facts,
    pub weights: &'a [Weight],
    pub trained: Vec<bool>,
}

/// Blocks of each stage: as even as can be, the earlier ones longer.
pub(crate) fn blocks_of(blocks: u64, stages: u64) -> Vec<u64> {
    let stages = stages.max(1);
    (0..stages).map(|s| blocks / stages + u64::from(s < blocks % stages)).collect()
}

/// Segments of each virtual stage (stage and chunk), in the order of the model.
fn ranges(setup: &Setup, segments: usize) -> Vec<Range<usize>> {
    let virtual_stages = setup.stages() * u64::from(pipeline::chunks(setup.schedule));
    let Some((_, blocks)) = &setup.split else {
        return std::iter::once(0..segments).collect();
    };
    let mut out = Vec::new();
    let mut start = 0;
    for (i, blocks) in blocks_of(*blocks, virtual_stages).into_iter().enumerate() {
        let first = if i == 0 { 1 } else { 0 };
        let last = if i as u64 + 1 == virtual_stages { 1 } else { 0 };
        let end = (start + first + blocks as usize + last).min(segments);
        out.push(start..end);
        start = end;
    }
    out
}

/// The figures of a setup whose batch multiplies out.
pub(crate) fn estimate(source: &Source, setup: &Setup) -> Result<Estimate, ScheduleError> {
    let division =
        Division { lengths: setup.lengths, shard: &setup.shard, sequence: setup.sequence };
    let sharded = shard(&source.traced, &division);
    estimate_divided(source, setup, &sharded)
}

/// The same with a division at hand.
pub(crate) fn estimate_divided(
    source: &Source,
    setup: &Setup,
    sharded: &Sharded,
) -> Result<Estimate, ScheduleError> {
    let samples = setup.micro_samples().unwrap_or(1);
    let graph = (&source.traced, &source.facts);
    let profile = profile(graph, sharded, setup, samples);
    let ranges = ranges(setup, profile.segments.len());
    let stages = setup.stages() as usize;
    let chunks = pipeline::chunks(setup.schedule) as usize;
    let parts = memory::weight_parts(&source.traced, sharded, source.weights.len());
    let paces = paces(&profile, &ranges, stages, setup);
    let lists = pipeline::tasks(setup.schedule, setup.stages(), setup.microbatches);
    let line = pipeline::simulate(&lists, setup.schedule, &paces, setup.microbatches)?;
    let mut helds = Vec::new();
    for stage in 0..stages {
        let mut sum = Held::default();
        for chunk in 0..chunks {
            let segments = segments(&profile, &ranges, chunk * stages + stage);
            let held = held(segments, source.weights, &parts, &source.trained, setup.width());
            sum.all += held.all;
            sum.bytes += held.bytes;
            sum.trained += held.trained;
            sum.largest = sum.largest.max(held.largest);
        }
        helds.push(sum);
    }
    let (bucket, gradients) = gradients(setup, &line, &helds, &paces);
    let time = time(setup, &profile, &ranges, &line, &helds, gradients);
    let rows = (0..stages).map(|s| {
        let (pace, run) = (paces[s], line.stages[s]);
        Stage {
            blocks: (0..chunks).map(|c| blocks(setup, &ranges, c * stages + s, &profile)).sum(),
            memory: stage_memory(
                setup,
                &profile,
                &ranges,
                (s, stages, chunks),
                helds[s],
                run.in_flight,
                bucket,
            ),
            weights: helds[s].all,
            in_flight: run.in_flight,
            forward: pace.forward,
            backward: pace.backward + pace.weights,
            idle: 1.0 - run.busy / line.end.max(1e-30),
        }
    });
    let rows: Vec<Stage> = rows.collect();
    let busiest = line.stages.iter().map(|s| s.busy).fold(0.0, f64::max);
    let samples_all = setup.batch as f64;
    let hardware = hardware_flops(&profile, setup);
    Ok(Estimate {
        bubble: 1.0 - busiest / line.end.max(1e-30),
        traffic: traffic(setup, &profile, &ranges, &helds),
        stages: rows,
        time,
        bucket,
        micro_samples: samples,
        model_flops: profile.model_flops * samples_all,
        attention_flops: profile.attention_flops * samples_all,
        hardware_flops: hardware,
        divides: sharded.divides,
    })
}

fn segments<'p>(profile: &'p Profile, ranges: &[Range<usize>], at: usize) -> &'p [Segment] {
    let range = ranges.get(at).cloned().unwrap_or(0..0);
    profile.segments.get(range).unwrap_or(&[])
}

fn blocks(setup: &Setup, ranges: &[Range<usize>], at: usize, profile: &Profile) -> u64 {
    let Some(range) = ranges.get(at).filter(|_| setup.split.is_some()) else { return 0 };
    let last = profile.segments.len() - 1;
    range.clone().filter(|&s| s != 0 && s != last).count() as u64
}

fn stage_memory(
    setup: &Setup,
    profile: &Profile,
    ranges: &[Range<usize>],
    (stage, stages, chunks): (usize, usize, usize),
    held: Held,
    in_flight: f64,
    bucket: u64,
) -> StageMemory {
    let mut out = StageMemory::default();
    for chunk in 0..chunks {
        let range = ranges.get(chunk * stages + stage).cloned().unwrap_or(0..0);
        // `in_flight` counts a chunk's micro-batch as its share of the stage.
        let one = memory(profile, range, held, in_flight, bucket, setup);
        out = StageMemory {
            activations: out.activations + one.activations,
            logits: out.logits + one.logits,
            workspace: out.workspace.max(one.workspace),
            buffers: out.buffers.max(one.buffers),
            ..one
        };
    }
    out
}

/// What collectives within layers cost beside the kernels of the same piece. Under `overlap.tp`
/// they run in eight parts under the matrix products: one part stays visible.
fn exposed(cost: &Cost, setup: &Setup) -> f64 {
    if !setup.overlap.tp {
        return cost.collectives;
    }
    f64::max(cost.collectives / 8.0, cost.collectives - cost.seconds)
}

fn sum(segments: &[Segment], of: fn(&Segment) -> &Cost, setup: &Setup) -> f64 {
    segments.iter().map(|s| of(s).seconds + exposed(of(s), setup)).sum()
}

fn paces(profile: &Profile, ranges: &[Range<usize>], stages: usize, setup: &Setup) -> Vec<Pace> {
    let group = setup.group(MeshAxis::Pp);
    let mut out = vec![Pace::default(); stages];
    for (at, range) in ranges.iter().enumerate() {
        let segments = profile.segments.get(range.clone()).unwrap_or(&[]);
        let Some(pace) = out.get_mut(at % stages.max(1)) else { continue };
        pace.forward += sum(segments, |s| &s.forward, setup);
        pace.backward += sum(segments, |s| &s.input_grad, setup);
        pace.backward += sum(segments, |s| &s.again, setup);
        pace.weights += sum(segments, |s| &s.weight_grad, setup);
        let crossing = range.end.checked_sub(1).and_then(|c| profile.boundaries.get(c));
        let bytes = crossing.copied().unwrap_or(0) as f64;
        pace.send = pace.send.max(group.send_seconds(bytes));
        if setup.zero >= 3 {
            zero_three(pace, segments, setup);
        }
    }
    out
}

/// ZeRO 3 gathers a layer's weights before forward and before backward and scatters its gradients
/// after; each hides under the layer before it.
fn zero_three(pace: &mut Pace, segments: &[Segment], setup: &Setup) {
    let group = setup.group(MeshAxis::Dp);
    for segment in segments {
        let bytes = segment.weight_bytes as f64;
        let gather = group.seconds(Kind::AllGather, bytes);
        pace.forward += f64::max(0.0, gather - segment.forward.seconds);
        let backward = segment.input_grad.seconds + segment.weight_grad.seconds;
        pace.backward += f64::max(0.0, gather - backward);
    }
}

/// Sizes of buckets among which a plan chooses.
const BUCKETS: [u64; 7] = [4 << 20, 8 << 20, 16 << 20, 32 << 20, 64 << 20, 128 << 20, 256 << 20];

/// Seconds of gradients: all, and after the last backward.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Gradients {
    all: f64,
    exposed: f64,
}

/// The size of buckets, the layout's or the best, and what it costs: a bucket is reduced when
/// backward of the last micro-batch has filled it, one at a time.
fn gradients(setup: &Setup, line: &Timeline, helds: &[Held], paces: &[Pace]) -> (u64, Gradients) {
    let sizes: Vec<u64> = match setup.overlap.bucket_bytes {
        Some(bytes) => vec![bytes.max(1)],
        None => BUCKETS.to_vec(),
    };
    let mut best: Option<(u64, Gradients)> = None;
    for size in sizes {
        let found = with_buckets(setup, line, helds, paces, size);
        if best.is_none_or(|(_, b)| (found.exposed, found.all) < (b.exposed, b.all)) {
            best = Some((size, found));
        }
    }
    best.unwrap_or_default()
}

fn with_buckets(
    setup: &Setup,
    line: &Timeline,
    helds: &[Held],
    paces: &[Pace],
    size: u64,
) -> Gradients {
    let group = setup.gradient_group();
    let kind = if setup.zero >= 1 { Kind::ReduceScatter } else { Kind::AllReduce };
    let mut out = Gradients::default();
    let mut finish = line.end;
    // ZeRO 2 and 3 keep no whole gradient: it is reduced for every micro-batch.
    let rounds = if setup.zero >= 2 { setup.microbatches.max(1) } else { 1 } as f64;
    for ((held, run), pace) in helds.iter().zip(&line.stages).zip(paces) {
        let bytes = held.trained * setup.precision.grads.bytes();
        if group.ranks < 2 || bytes == 0 {
            continue;
        }
        let buckets = bytes.div_ceil(size);
        let each = group.seconds(kind, (bytes / buckets) as f64);
        let all = each * buckets as f64;
        let (begin, end) = (run.last_backward, run.end);
        let mut wire: f64 = if setup.overlap.grads { begin } else { line.end };
        for i in 0..buckets {
            let filled = begin + (end - begin) * (i + 1) as f64 / buckets as f64;
            let ready = if setup.overlap.grads { filled } else { line.end };
            wire = wire.max(ready) + each;
        }
        // Earlier rounds hide under the backward of their own micro-batch.
        let hidden = if setup.overlap.grads { pace.backward + pace.weights } else { 0.0 };
        let more = (rounds - 1.0) * f64::max(0.0, all - hidden);
        finish = finish.max(wire + more);
        out.all = out.all.max(all * rounds);
    }
    out.exposed = finish - line.end;
    out
}

fn time(
    setup: &Setup,
    profile: &Profile,
    ranges: &[Range<usize>],
    line: &Timeline,
    helds: &[Held],
    gradients: Gradients,
) -> StepTime {
    let busiest = line.stages.iter().enumerate();
    let busiest = busiest.max_by(|a, b| a.1.busy.total_cmp(&b.1.busy)).map_or(0, |(i, _)| i);
    let stages = setup.stages() as usize;
    let mut layers = 0.0;
    for at in (0..ranges.len()).filter(|at| at % stages.max(1) == busiest) {
        for s in segments(profile, ranges, at) {
            let costs = [&s.forward, &s.input_grad, &s.weight_grad, &s.again];
            layers += costs.iter().map(|c| exposed(c, setup)).sum::<f64>();
        }
    }
    layers *= setup.microbatches as f64;
    let busy = line.stages.get(busiest).map_or(0.0, |s| s.busy);
    let trained = helds.iter().map(|h| h.trained).max().unwrap_or(0);
    let owners = if setup.zero >= 1 { setup.replicas().max(1) } else { 1 };
    let back = Kind::AllGather;
    let weights = match setup.zero {
        1 | 2 => setup.group(MeshAxis::Dp).seconds(back, (trained * setup.width()) as f64),
        _ => 0.0,
    };
    StepTime {
        pipeline: line.end,
        compute: busy - layers,
        layers,
        waiting: line.end - busy,
        gradients: gradients.all,
        gradients_exposed: gradients.exposed,
        weights_exposed: weights,
        update: update_seconds(setup, trained.div_ceil(owners)),
    }
}

/// Rates of a host beside one device, assumed: PCIe 5 with 16 lanes, and its share of the host's
/// memory.
pub(crate) const HOST_LINK: f64 = 50e9;
pub(crate) const HOST_MEMORY: f64 = 50e9;

/// Every state tensor and the weight are read and written once, the gradient is read.
fn update_seconds(setup: &Setup, elements: u64) -> f64 {
    let state = 2 * memory::state_width(setup) + 2 * setup.width();
    let grads = setup.precision.grads.bytes();
    let bytes = (elements * (state + grads)) as f64;
    if setup.offload.optimizer {
        let moved = (elements * (grads + setup.width())) as f64;
        return moved / HOST_LINK + bytes / HOST_MEMORY;
    }
    bytes / (setup.machine.bandwidth * setup.machine.bandwidth_share)
}

fn hardware_flops(profile: &Profile, setup: &Setup) -> f64 {
    let mut one = 0.0;
    for s in &profile.segments {
        one += s.forward.flops + s.input_grad.flops + s.weight_grad.flops + s.again.flops;
    }
    // Each segment is on one stage; its copies are all devices of that stage.
    let copies = setup.lengths.iter().map(|n| f64::from(*n)).product::<f64>();
    one * setup.microbatches as f64 * copies / setup.stages() as f64
}

fn traffic(
    setup: &Setup,
    profile: &Profile,
    ranges: &[Range<usize>],
    helds: &[Held],
) -> Vec<TrafficRow> {
    let micro = setup.microbatches as f64;
    let stages = setup.stages() as usize;
    let mut most: BTreeMap<MeshAxis, f64> = BTreeMap::new();
    for stage in 0..stages {
        let mut sent: BTreeMap<MeshAxis, f64> = BTreeMap::new();
        for at in (stage..ranges.len()).step_by(stages.max(1)) {
            for segment in segments(profile, ranges, at) {
                for (axis, bytes) in &segment.sent {
                    *sent.entry(*axis).or_default() += bytes * micro;
                }
            }
        }
        for (axis, bytes) in sent {
            let entry = most.entry(axis).or_default();
            *entry = entry.max(bytes);
        }
    }
    let mut rows = Vec::new();
    let mut push = |what, axis, group: Group, bytes: f64| {
        if group.ranks > 1 && bytes > 0.0 {
            rows.push(TrafficRow { what, axis, bytes, crosses: group.crosses });
        }
    };
    for (axis, bytes) in most {
        let what = match (axis, setup.sequence) {
            (MeshAxis::Cp, _) => "keys and values of other parts of the sequence",
            (MeshAxis::Ep, _) => "partial sums of experts",
            (axis, Some(over)) if axis == over => "reduce-scatter and all-gather within layers",
            _ => "all-reduce within layers",
        };
        push(what, axis, setup.group(axis), bytes);
    }
    let crossing = ranges.iter().filter_map(|r| profile.boundaries.get(r.end.checked_sub(1)?));
    let crossing = crossing.max().copied().unwrap_or(0) as f64;
    let chunks = f64::from(pipeline::chunks(setup.schedule));
    let both_ways = if setup.stages() > 1 { 2.0 * crossing * micro * chunks } else { 0.0 };
    push("activations and their gradients", MeshAxis::Pp, setup.group(MeshAxis::Pp), both_ways);
    let trained = helds.iter().map(|h| h.trained).max().unwrap_or(0);
    let grads = (trained * setup.precision.grads.bytes()) as f64;
    let group = setup.gradient_group();
    let kind = if setup.zero >= 1 { Kind::ReduceScatter } else { Kind::AllReduce };
    let rounds = if setup.zero >= 2 { micro } else { 1.0 };
    push("gradients", MeshAxis::Dp, group, group.sent(kind, grads) * rounds);
    let all = helds.iter().map(|h| h.all).max().unwrap_or(0);
    let replicas = setup.group(MeshAxis::Dp);
    let gathers = match setup.zero {
        0 => 0.0,
        3.. => 2.0 * micro,
        _ => 1.0,
    };
    let elements = if setup.zero >= 3 { all } else { trained };
    let weights = replicas.sent(Kind::AllGather, (elements * setup.width()) as f64);
    push("weights to every replica", MeshAxis::Dp, replicas, weights * gathers);
    rows
}
