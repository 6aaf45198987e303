//! Plans for declared machines: against published figures, by their laws, and what they say.

mod support;

use monarch_check::hir::{MeshAxis, Value};
use monarch_diagnostic::Diagnostic;
use monarch_graph::Span;
use monarch_plan::mesh::{FIGURES, MeshReport, Wish, is_declared, plan, search, what};
use support::jobs::{CHARGPT, DIGITS, checked};
use support::mesh::{LLAMA3D, planned, program, report, shown, with};

const SHARD: &str = "shard     { B -> dp, H -> tp, G -> tp, F -> tp, V -> tp }";
const PIPELINE: &str =
    "  pipeline  { split = llm.blocks, over = pp, schedule = \"1f1b\", microbatches = 16 }\n";
const RECOMPUTE: &str = "  recompute = [llm.blocks.*.attn]\n";
const MESH: &str = "mesh      = { pp = 2, dp = 2, tp = 4 }";

/// Elements of the model's weights: Meta's Llama 3 8B (Dubey et al. 2024) has 8,030,261,248.
const PARAMETERS: u64 = 8_030_261_248;
const EMBEDDING: u64 = 128_256 * 4096;
const NORMS: u64 = 65 * 4096;

fn near(found: f64, right: f64, share: f64) {
    let error = (found - right).abs() / right.abs();
    assert!(error <= share, "{found} is not {right}, off by {error}");
}

fn mesh(text: &str, mesh: &str) -> String {
    with(text, &[(MESH, &format!("mesh      = {{ {mesh} }}"))])
}

/// One stage, no pipeline.
fn flat(axes: &str) -> String {
    with(&mesh(LLAMA3D, axes), &[(PIPELINE, ""), (RECOMPUTE, "")])
}

#[test]
fn parameters_and_operations_of_llama_3_8b() {
    let report = report(LLAMA3D);
    assert_eq!(report.parameters, PARAMETERS);
    assert_eq!(report.trainable, PARAMETERS);
    // 6 per weight and token, without the table that is only looked up and the gains that are
    // not contracted; attention 12 L h s, of which a causal mask hides half.
    let tokens = report.batch as f64 * 8192.0;
    let weights = 6.0 * (PARAMETERS - EMBEDDING - NORMS) as f64;
    let attention = 6.0 * 32.0 * 4096.0 * 8192.0;
    near(report.estimate.model_flops / tokens, weights + attention, 1e-9);
    near(report.estimate.attention_flops / tokens, attention, 1e-9);
}

/// Korthikanti et al. 2022: s b h / t * 34 bytes for each layer with sequence parallelism and
/// without scores. Grouped queries and SwiGLU happen to need the same 17 tensors of width h.
#[test]
fn activations_are_those_of_the_literature() {
    let report =
        report(&with(LLAMA3D, &[(RECOMPUTE, ""), ("microbatches = 16", "microbatches = 32")]));
    let tokens = 512.0 / 2.0 / 32.0 * 8192.0;
    let layer = 34.0 * 4096.0 / 4.0 * tokens;
    let first = &report.estimate.stages[0];
    near(first.memory.activations as f64, layer * 16.0 * 2.0, 0.005);
    // With every block computed again only its input is kept: 2 s b h / t.
    let all =
        with(LLAMA3D, &[("blocks.*.attn", "blocks.*"), ("microbatches = 16", "microbatches = 32")]);
    let first = support::mesh::report(&all).estimate.stages[0].clone();
    near(first.memory.activations as f64, 2.0 * 4096.0 / 4.0 * tokens * 16.0 * 2.0, 0.07);
}

/// Megatron-LM's table with gradients in f32: 18 bytes per weight, 6 + 12 / d with a distributed
/// optimizer; ZeRO (Rajbhandari et al. 2019) for the stages above.
#[test]
fn state_per_weight() {
    for (zero, bytes) in [(1, 6.0 + 12.0 / 2.0), (2, 2.0 + 16.0 / 2.0), (3, 18.0 / 2.0)] {
        let report = report(&with(LLAMA3D, &[("stage = 1", &format!("stage = {zero}"))]));
        for stage in &report.estimate.stages {
            near(stage.memory.state() as f64 / stage.weights as f64, bytes, 1e-6);
        }
    }
    let without = report(&with(LLAMA3D, &[("  zero      { stage = 1, over = dp }\n", "")]));
    let first = &without.estimate.stages[0];
    near(first.memory.state() as f64 / first.weights as f64, 18.0, 1e-6);
    let narrow = with(
        LLAMA3D,
        &[("weights = bf16", "weights = f32"), ("microbatches = 16", "microbatches = 64")],
    );
    let first = report(&narrow).estimate.stages[0].clone();
    near(first.memory.state() as f64 / first.weights as f64, 8.0 + 8.0 / 2.0, 1e-6);
}

/// Megatron-LM: two all-reduces of s b h per layer and direction, without recomputation; beside
/// them one behind the table and one before the head.
#[test]
fn collectives_within_layers_are_those_of_megatron() {
    let text = with(&flat("dp = 2, tp = 8"), &[("  sequence  = tp\n", "")]);
    let text = with(&text, &[("batch = 512", "batch = { micro = 2, accumulate = 128 }")]);
    let report = support::mesh::planned(&text).0;
    let report = report.unwrap_or_else(|| panic!("{}", shown(&text, &planned(&text).1)));
    let row = report.estimate.traffic.iter().find(|t| t.axis == MeshAxis::Tp).expect("a row");
    let samples = report.estimate.micro_samples as f64 * report.microbatches as f64;
    let one = 2.0 * 7.0 / 8.0 * samples * 8192.0 * 4096.0 * 2.0;
    near(row.bytes, one * (4.0 * 32.0 + 2.0), 0.01);
}

/// Weights over all devices: what is divided once per replica, what is not on every part.
#[test]
fn no_weight_is_lost_or_doubled() {
    let sum = |r: &MeshReport| r.estimate.stages.iter().map(|s| s.weights).sum::<u64>();
    for (axes, tp, stages) in [
        ("pp = 16, dp = 1, tp = 1", 1, 16),
        ("pp = 8, dp = 2, tp = 1", 1, 8),
        ("pp = 5, dp = _, tp = 1", 1, 5),
        ("pp = 2, dp = 1, tp = 8", 8, 2),
        ("pp = 4, dp = 1, tp = 4", 4, 4),
    ] {
        let text = mesh(LLAMA3D, axes);
        let text = if stages == 5 {
            with(
                &text,
                &[("nodes  = [\"gpu01:7000\", \"gpu02:7000\"]\n", ""), ("count = 8", "count = 10")],
            )
        } else {
            text
        };
        let text = with(&text, &[("microbatches = 16", "microbatches = 64")]);
        let text = with(&text, &[("blocks.*.attn", "blocks.*")]);
        let found = report(&text);
        assert_eq!(sum(&found) * tp, PARAMETERS + NORMS * (tp - 1), "{axes}");
        assert_eq!(found.estimate.stages.len(), stages);
        assert_eq!(found.estimate.stages.iter().map(|s| s.blocks).sum::<u64>(), 32);
        assert!(found.estimate.stages.iter().all(|s| s.blocks > 0), "{axes}");
    }
}

#[test]
fn more_tensor_parallel_is_less_memory() {
    let at = |tp: u32| {
        let dp = 16 / tp;
        report(&with(
            &mesh(LLAMA3D, &format!("pp = 1, dp = {dp}, tp = {tp}")),
            &[
                ("blocks.*.attn", "blocks.*"),
                ("batch = 512", "batch = 256"),
                (", overlap", ", overlap"),
            ][..2],
        ))
    };
    let all: Vec<MeshReport> = [2, 4, 8].into_iter().map(at).collect();
    for pair in all.windows(2) {
        let [less, more] = pair else { unreachable!() };
        let of = |r: &MeshReport| r.estimate.stages[0].memory;
        assert!(of(more).weights < of(less).weights);
        assert!(of(more).gradients < of(less).gradients);
    }
}

#[test]
fn more_microbatches_are_less_bubble_and_less_memory() {
    let at =
        |m: u64| report(&with(LLAMA3D, &[("microbatches = 16", &format!("microbatches = {m}"))]));
    let all: Vec<MeshReport> = [16, 32, 64, 128].into_iter().map(at).collect();
    for pair in all.windows(2) {
        let [few, many] = pair else { unreachable!() };
        assert!(many.estimate.bubble < few.estimate.bubble);
        assert!(many.peak_memory() < few.peak_memory());
    }
}

#[test]
fn schedules_differ_as_they_should() {
    let at = |schedule: &str| {
        let text = mesh(LLAMA3D, "pp = 4, dp = 1, tp = 4");
        report(&with(&text, &[("\"1f1b\"", schedule), ("microbatches = 16", "microbatches = 32")]))
    };
    let (plain, zero) = (at("\"1f1b\""), at("\"zb-h1\""));
    let chunked = at("\"interleaved\", chunks = 2");
    assert!(zero.estimate.bubble < plain.estimate.bubble);
    assert!(chunked.estimate.bubble < plain.estimate.bubble);
    let first = |r: &MeshReport| r.estimate.stages[0].in_flight;
    assert_eq!((first(&plain), first(&zero)), (4.0, 4.0));
    assert!(first(&chunked) > first(&plain), "interleaving holds more");
    let sent = |r: &MeshReport| {
        let row = r.estimate.traffic.iter().find(|t| t.axis == MeshAxis::Pp);
        row.expect("a row").bytes
    };
    assert_eq!(sent(&chunked), sent(&plain) * 2.0);
}

#[test]
fn a_plan_is_a_function_of_the_program() {
    let (one, two) = (report(LLAMA3D), report(LLAMA3D));
    assert_eq!(one, two);
    assert_eq!(one.text(), two.text());
    assert_eq!(one.json(), two.json());
    let heads: Vec<String> =
        one.text().lines().take(5).map(|l| l[..18].trim_end().to_owned()).collect();
    assert_eq!(heads, ["devices", "peak memory", "step time", "bubble", "tokens a day"]);
}

/// Nothing is known of any architecture: other programs are planned for the same machines.
#[test]
fn other_models() {
    let gpt = checked(&support::jobs::files(CHARGPT), &[]);
    assert!(!is_declared(&gpt));
    let wish = Wish { device: Some(("H100".into(), 4)), ..Wish::default() };
    let report = plan(&gpt, &wish).0.expect("a plan");
    let tokens = report.batch * 256;
    // 6 per contracted weight (the tied table is the head) and the causal half of attention.
    let weights = 6 * (384 * 96 + 6 * 12 * 384 * 384);
    let right = (weights + 6 * 6 * 384 * 256) as f64;
    near(report.estimate.model_flops / tokens as f64, right, 1e-9);
    assert_eq!(report.mesh, [1, 4, 1, 1, 1]);
    let digits = checked(&support::jobs::files(DIGITS), &[]);
    let report = plan(&digits, &wish).0.expect("a plan");
    let right = 6.0 * (64.0 * 128.0 + 128.0 * 10.0) - 2.0 * 64.0 * 128.0;
    near(report.estimate.model_flops / report.batch as f64, right, 1e-9);
}

#[test]
fn figures_for_tests() {
    let found = report(LLAMA3D);
    for name in FIGURES {
        assert!(what(&found, name).is_some(), "{name}");
    }
    assert_eq!(what(&found, "memory"), None);
    match what(&found, "memory.peak") {
        Some(Value::Quantity(q)) => assert_eq!(q.amount, found.peak_memory() as f64),
        other => panic!("{other:?}"),
    }
    assert_eq!(what(&found, "devices"), Some(Value::Int(16)));
    // As the tests of the example ask.
    assert!((found.peak_memory() as f64) < 0.9 * found.memory as f64);
    assert!(found.estimate.bubble < 0.1);
    let wish = Wish { axes: vec![(MeshAxis::Pp, 64)], ..Wish::default() };
    let (none, diagnostics) = plan(&program(LLAMA3D), &wish);
    assert!(none.is_none());
    assert_eq!(codes(&diagnostics), ["M0312"]);
}

fn codes(diagnostics: &[Diagnostic]) -> Vec<&'static str> {
    diagnostics.iter().map(|d| d.code).collect()
}

fn text_at(text: &str, span: Span) -> String {
    text[span.start as usize..span.end as usize].to_owned()
}

/// What is said of one planted mistake: code, and the places of its labels.
#[test]
fn each_mistake_is_found_where_it_is() {
    const ZERO: (&str, &str) = ("  zero      { stage = 1, over = dp }\n", "");
    let no_sequence = ("  sequence  = tp\n", "");
    /// Changes of the program, the code that follows, and what its message says.
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a [&'a str]);
    let cases: &[Case<'_>] = &[
        (&[("dp = 2", "dp = 4")], "M0306", &["{ pp = 2, dp = 4, tp = 4 }", "device = MI300X"]),
        (&[("dp = 2, tp = 4", "dp = _, tp = 3")], "M0306", &["{ pp = 2, dp = _, tp = 3 }"]),
        (&[(SHARD, "shard     { B -> dp }"), no_sequence], "M0305", &["tp = 4", "{ B -> dp }"]),
        (&[("B -> dp, ", "")], "M0305", &["dp = 2", "{ H -> tp, G -> tp, F -> tp, V -> tp }"]),
        (
            &[("pp = 2, dp = 2, tp = 4", "dp = 1, tp = 16"), (PIPELINE, ""), ZERO],
            "M0307",
            &["G -> tp", "tp = 16"],
        ),
        (&[("depth = 32", "depth = 1")], "M0312", &["pp = 2", "depth = 1"]),
        (
            &[
                ("microbatches = 16", "microbatches = 1"),
                ("blocks.*.attn", "blocks.*"),
                ("batch = 512", "batch = 16"),
            ],
            "M0310",
            &["microbatches = 1", "pp = 2"],
        ),
        (
            &[("pp = 2, dp = 2", "pp = 4, dp = 1"), ("microbatches = 16", "microbatches = 64")],
            "M0311",
            &["zero"],
        ),
        (
            &[("link   = { intra = 448 GB/s, inter = 50 GB/s }", "link   = { intra = 448 GB/s }")],
            "M0315",
            &["device = MI300X"],
        ),
        (
            &[("microbatches = 16", "microbatches = 8"), (RECOMPUTE, "")],
            "M0401",
            &["microbatches = 8", "zero", "memory = 192 GiB"],
        ),
    ];
    for (changes, code, places) in cases {
        let text = with(LLAMA3D, changes);
        let (_, diagnostics) = planned(&text);
        let shown = shown(&text, &diagnostics);
        assert_eq!(codes(&diagnostics), [*code], "{changes:?}\n{shown}");
        let labels = &diagnostics[0].labels;
        for (label, place) in labels.iter().zip(*places) {
            let found = text_at(&text, label.span);
            assert!(found.starts_with(place), "{code}: `{found}` is not `{place}`\n{shown}");
        }
        assert!(labels.len() >= places.len(), "{shown}");
    }
}

/// A `help` with an edit takes the mistake away and leads to a plan.
#[test]
fn edits_mend() {
    let cases: &[(&[(&str, &str)], &str)] = &[
        (&[("dp = 2, tp = 4", "dp = 4, tp = 4")], "M0306"),
        (
            &[
                (SHARD, "shard     { B -> dp }"),
                ("  sequence  = tp\n", ""),
                ("microbatches = 16", "microbatches = 64"),
            ],
            "M0305",
        ),
        (&[("microbatches = 16", "microbatches = 8"), (RECOMPUTE, "")], "M0401"),
    ];
    for (changes, code) in cases {
        let text = with(LLAMA3D, changes);
        let (_, diagnostics) = planned(&text);
        let help = diagnostics.iter().find(|d| d.code == *code).and_then(|d| d.help.first());
        let mut edits = help.expect("a help").edits.clone();
        assert!(!edits.is_empty(), "{code}: {}", shown(&text, &diagnostics));
        edits.sort_by_key(|e| std::cmp::Reverse(e.span.start));
        let mut mended = text.clone();
        for edit in edits {
            let range = edit.span.start as usize..edit.span.end as usize;
            mended.replace_range(range, &edit.replacement);
        }
        let (report, left) = planned(&mended);
        assert!(report.is_some(), "{code}\n{mended}\n{}", shown(&mended, &left));
    }
}

/// The three samples of the language's description, with the figures of this model.
#[test]
fn samples_of_the_language() {
    let text = with(LLAMA3D, &[("microbatches = 16", "microbatches = 8"), (RECOMPUTE, "")]);
    let found = shown(&text, &planned(&text).1);
    for part in [
        "an MI300X offers 183",
        "less 9 GiB for RCCL and the HIP context",
        "262 144 tokens x 16 blocks x 2 in flight",
        "weights 1.9 + grads 3.7 + optimizer 5.6 GiB",
        "each of these fits: microbatches = 16 (",
        " | recompute = [llm.blocks.*] (",
    ] {
        assert!(found.contains(part), "`{part}` is missing:\n{found}");
    }
}

/// A search gives the layouts that fit in one order, and its block can be pasted.
#[test]
fn a_search_can_be_pasted() {
    let program = program(LLAMA3D);
    let wish = Wish::default();
    let (found, diagnostics) = search(&program, &wish);
    let found = found.unwrap_or_else(|| panic!("{diagnostics:?}"));
    assert_eq!(Some(&found), search(&program, &wish).0.as_ref(), "it is the same every time");
    assert!(found.best.len() == 10 && found.fitting > 20, "{}", found.text());
    let sorted = found.best.windows(2).all(|w| w[0].step_seconds <= w[1].step_seconds);
    assert!(sorted && found.best.iter().all(|c| c.peak_memory <= found.offered));
    for candidate in &found.best {
        assert_eq!(candidate.mesh.iter().product::<u32>(), 16);
        let start = LLAMA3D.find("plan p3d").expect("the block");
        let end = start + LLAMA3D[start..].find("\n}").expect("its end") + 2;
        let text = format!("{}{}{}", &LLAMA3D[..start], candidate.block, &LLAMA3D[end..]);
        let (report, said) = planned(&text);
        let report =
            report.unwrap_or_else(|| panic!("{}\n{}", candidate.block, shown(&text, &said)));
        near(report.step_seconds(), candidate.step_seconds, 1e-9);
        assert_eq!(report.peak_memory(), candidate.peak_memory);
    }
    assert!(found.own_seconds.is_some_and(|own| found.best[0].step_seconds <= own));
    // One device, none declared: the block brings its own cluster.
    let gpt = checked(&support::jobs::files(CHARGPT), &[]);
    let wish = Wish { device: Some(("H100".into(), 2)), ..Wish::default() };
    let found = search(&gpt, &wish).0.expect("a layout");
    let block = &found.best[0].block;
    let text =
        CHARGPT.replace("train shakespeare {", &format!("{block}\ntrain shakespeare on found {{"));
    let pasted = checked(&support::jobs::files(&text), &[]);
    assert!(is_declared(&pasted));
    let report = plan(&pasted, &Wish::default()).0.expect("a plan");
    near(report.step_seconds(), found.best[0].step_seconds, 1e-9);
}

#[test]
fn a_search_without_a_way_says_so() {
    let text = with(
        LLAMA3D,
        &[("MI300X { count = 8, memory = 192 GiB }", "H100 { count = 1, memory = 12 GiB }")],
    );
    let (found, diagnostics) = search(&program(&text), &Wish::default());
    assert!(found.is_none());
    assert_eq!(codes(&diagnostics), ["M0402"]);
}

/// A file of the examples.
fn example(name: &str) -> String {
    let path = format!("{}/../../examples/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).expect("the example")
}

fn golden(name: &str, report: &MeshReport) {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = root.join(format!("tests/golden/{name}.plan.txt"));
    let text = report.text();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).expect("written");
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, want, "{} differs: UPDATE_GOLDEN=1 writes it anew", path.display());
}

/// `monarch plan examples/llama3d.mon`, and `monarch plan examples/lora.mon --device MI300X` with
/// the facts of Llama 3.2 1B: no machine, no file of weights, no corpus is needed.
#[test]
fn examples_are_planned_from_declared_facts() {
    let text = example("llama3d.mon");
    let world = monarch_check::Declared::new().text("llama3d.mon", text.as_str());
    let checked = monarch_check::check(&world, "llama3d.mon", &[], &[]);
    let program = checked.program.unwrap_or_else(|| panic!("{:#?}", checked.diagnostics));
    let (found, said) = plan(&program, &Wish::default());
    golden("llama3d", &found.unwrap_or_else(|| panic!("{said:#?}")));
    assert_eq!(said, []);
    let text = example("lora.mon");
    let world = support::llama::world(&text);
    let world = world.text("hooks/alerts.rhai", example("hooks/alerts.rhai"));
    let pinned = text.split("alerts.rhai\" sha256 \"").nth(1).expect("a pinned file of hooks");
    let mut sha256 = [0; 32];
    for (i, byte) in sha256.iter_mut().enumerate().take(8) {
        *byte = u8::from_str_radix(&pinned[2 * i..2 * i + 2], 16).expect("a hash");
    }
    let world = world.sha256("hooks/alerts.rhai", sha256);
    let checked = monarch_check::check(&world, "lora.mon", &[], &[]);
    let program = checked.program.unwrap_or_else(|| panic!("{:#?}", checked.diagnostics));
    let wish = Wish { device: Some(("MI300X".into(), 1)), ..Wish::default() };
    let (found, said) = plan(&program, &wish);
    let found = found.unwrap_or_else(|| panic!("{said:#?}"));
    golden("lora", &found);
    assert_eq!((found.microbatches, found.estimate.micro_samples), (8, 2));
    let adapters = 16 * 16 * (2048 + 2048 + 2048 + 512);
    assert_eq!((found.parameters, found.trainable), (1_235_814_400 + adapters, adapters));
    // Frozen weights keep no gradient, and have no gradient computed: forward, the gradients of
    // inputs, and what the adapters add.
    let memory = found.estimate.stages[0].memory;
    assert_eq!(memory.gradients, adapters * 4);
    assert_eq!(memory.weights, (1_235_814_400 + adapters) * 2);
    let tokens = found.tokens_per_step() as f64;
    let contracted = (1_235_814_400u64 - 33 * 2048) as f64;
    let attention = 4.0 * 16.0 * 2048.0 * 2048.0;
    near(found.estimate.model_flops / tokens, 4.0 * contracted + attention, 0.1);
}

/// Another mesh may not divide the batch: tokens are brought to the nearest that does, with a
/// note; samples are an error.
#[test]
fn a_batch_for_another_mesh() {
    let wish = Wish { axes: vec![(MeshAxis::Pp, 1), (MeshAxis::Dp, 4)], ..Wish::default() };
    let text = with(LLAMA3D, &[("batch = 512", "batch = 96")]);
    assert_eq!(codes(&plan(&program(&text), &wish).1), ["M0507"]);
    let text = with(LLAMA3D, &[("batch = 512", "batch = 786_432 tokens")]);
    let text = with(&text, &[("blocks.*.attn", "blocks.*")]);
    let (report, said) = plan(&program(&text), &wish);
    assert_eq!(codes(&said), ["M0508"], "{}", shown(&text, &said));
    assert_eq!(report.expect("a plan").batch % 64, 0);
}
