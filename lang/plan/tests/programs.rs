//! Whole programs: their plans, reports and numbers.

mod support;

use monarch_device::reference::{Tensor, TensorData, eval};
use monarch_graph::{Count, Graph, NodeId, Op, Place, Ratio, TaskKind};
use monarch_plan::{Facts, Link, mesh, plan};
use support::Rng;
use support::jobs::{
    CHARGPT, DIGITS, SMALL_GPT, all_programs, checked, cut, files, planned, random_inputs,
};

/// Codes of all diagnostics of check and plan.
fn codes(text: &str, facts: &Facts) -> Vec<(&'static str, String)> {
    let checked = monarch_check::check(&files(text), "job.mon", &[], &[]);
    let mut all = checked.diagnostics;
    if let Some(program) = &checked.program {
        if mesh::is_declared(program) {
            all.extend(mesh::plan(program, &mesh::Wish::default()).1);
            return all.iter().map(|d| (d.code, d.title.clone())).collect();
        }
        let workers = program.clusters.first().and_then(|c| c.workers).unwrap_or(facts.workers);
        all.extend(plan(program, &Facts { workers, ..*facts }).1);
    }
    all.iter().map(|d| (d.code, d.title.clone())).collect()
}

/// Compares with `tests/golden/NAME.plan.txt`; with `UPDATE_GOLDEN=1` writes it.
fn golden(name: &str, text: &str) {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = root.join(format!("tests/golden/{name}.plan.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let want = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, want, "{} differs: UPDATE_GOLDEN=1 writes it anew", path.display());
}

#[test]
fn golden_reports() {
    let four = Facts { workers: 4, threads: 1, ..Facts::default() };
    golden("digits", &planned(DIGITS, &[], &four).1.text());
    let three = Facts { workers: 3, threads: 2, link: Link::Quic, ..Facts::default() };
    golden("chargpt", &planned(CHARGPT, &[], &three).1.text());
}

#[test]
fn the_first_five_lines_judge() {
    let (_, report) = planned(DIGITS, &[], &Facts::default());
    let text = report.text();
    let heads: Vec<&str> = text.lines().take(5).map(|l| l[..18].trim_end()).collect();
    assert_eq!(heads, ["devices", "peak memory", "step time", "bubble", "samples a day"]);
    let (_, gpt) = planned(CHARGPT, &SMALL_GPT, &Facts::default());
    assert!(gpt.text().lines().nth(4).unwrap().starts_with("tokens a day"));
    let json = gpt.json();
    assert_eq!(json["version"], 1);
    assert_eq!(json["peak_memory_bytes"], gpt.memory.total());
    assert_eq!(json["per_day"]["unit"], "tokens");
}

#[test]
fn a_plan_is_a_function_of_the_program() {
    let bytes = |facts: &Facts| {
        let (plan, _) = planned(CHARGPT, &SMALL_GPT, facts);
        wincode::serialize(&plan).unwrap()
    };
    let one = bytes(&Facts::default());
    assert_eq!(one, bytes(&Facts::default()));
    let other = Facts { workers: 7, threads: 3, link: Link::Quic, ..Facts::default() };
    assert_eq!(one, bytes(&other), "the cluster changes the plan");
}

fn total(values: &[Tensor], node: NodeId) -> f64 {
    values[node.index()].as_f64().unwrap().iter().sum()
}

/// Numerator and denominator of a ratio over `samples`.
fn ratio(values: &[Tensor], ratio: &Ratio, samples: u64) -> (f64, f64) {
    let denominator = match ratio.denominator {
        Count::PerSample(n) => (n * samples) as f64,
        Count::Sum(node) => total(values, node),
    };
    (total(values, ratio.numerator), denominator)
}

#[test]
fn gradients_of_whole_models() {
    for (name, plan) in all_programs() {
        let program = &plan.train.program;
        let (weights, columns) = random_inputs(&plan, &program.columns, 2);
        let run = |weights: &[Tensor]| eval(&program.graph, 2, weights, &columns).unwrap();
        let values = run(&weights);
        let mut rng = Rng::new(23);
        for (w, gradient) in plan.train.gradients.iter().enumerate() {
            let gradient = values[gradient.unwrap().index()].as_f64().unwrap();
            for _ in 0..6 {
                let i = rng.below(0, weights[w].len() as u64) as usize;
                let at = |by: f64| {
                    let mut moved = weights.clone();
                    if let TensorData::F64(v) = &mut moved[w].data {
                        v[i] += by;
                    }
                    total(&run(&moved), plan.train.loss.numerator)
                };
                let want = (at(1e-5) - at(-1e-5)) / 2e-5;
                let weight = &plan.weights[w].name;
                assert!(
                    (gradient[i] - want).abs() < 1e-6 * want.abs().max(1.0),
                    "{name}: {weight}[{i}] has gradient {}, differences say {want}",
                    gradient[i]
                );
            }
        }
    }
}

#[test]
fn shards_add_up_to_the_batch() {
    for (name, plan) in all_programs() {
        let program = &plan.train.program;
        let (weights, columns) = random_inputs(&plan, &program.columns, 5);
        let run = |start: usize, end: usize| {
            let columns = cut(&columns, start, end);
            eval(&program.graph, (end - start) as u64, &weights, &columns).unwrap()
        };
        let (whole, parts) = (run(0, 5), [run(0, 2), run(2, 5), run(5, 5)]);
        let sizes = [2, 3, 0];
        let loss = |v: &[Tensor], n| ratio(v, &plan.train.loss, n);
        let want = loss(&whole, 5);
        let got: Vec<(f64, f64)> = parts.iter().zip(sizes).map(|(v, n)| loss(v, n)).collect();
        let sum = |f: fn(&(f64, f64)) -> f64| got.iter().map(f).sum::<f64>();
        assert!((sum(|r| r.0) - want.0).abs() < 1e-9, "{name}");
        assert!((sum(|r| r.1) - want.1).abs() < 1e-9, "{name}");
        for gradient in plan.train.gradients.iter().flatten() {
            let of = |v: &[Tensor]| v[gradient.index()].as_f64().unwrap().to_vec();
            let whole = of(&whole);
            let parts: Vec<Vec<f64>> = parts.iter().map(|v| of(v)).collect();
            for (i, want) in whole.iter().enumerate() {
                let got: f64 = parts.iter().map(|p| p[i]).sum();
                assert!((got - want).abs() < 1e-9 * want.abs().max(1.0), "{name}");
            }
        }
    }
}

#[test]
fn evaluation_computes_the_same_loss_and_its_metrics() {
    for (name, plan) in all_programs() {
        let Some(evaluation) = plan.evals.first() else {
            assert!(name != "digits" && name != "chargpt");
            continue;
        };
        let columns = &evaluation.program.columns;
        assert_eq!(columns.len(), plan.train.program.columns.len());
        let (weights, columns) = random_inputs(&plan, columns, 4);
        let train = eval(&plan.train.program.graph, 4, &weights, &columns).unwrap();
        let values = eval(&evaluation.program.graph, 4, &weights, &columns).unwrap();
        let want = ratio(&train, &plan.train.loss, 4);
        let got = ratio(&values, &evaluation.metrics[0], 4);
        assert_eq!(evaluation.metrics[0].name, "loss");
        assert!((want.0 - got.0).abs() < 1e-12 && want.1 == got.1, "{name}");
        if let Some(accuracy) = evaluation.metrics.get(1) {
            assert_eq!(
                (accuracy.name.as_str(), accuracy.denominator),
                ("accuracy", Count::PerSample(1))
            );
            let right = total(&values, accuracy.numerator);
            assert!((0.0..=4.0).contains(&right) && right.fract() == 0.0);
        }
    }
}

fn count(graph: &Graph, what: impl Fn(&Op) -> bool) -> usize {
    graph.nodes.iter().filter(|n| what(&n.op)).count()
}

#[test]
fn chargpt_has_no_work_twice() {
    let (plan, _) = planned(CHARGPT, &[("depth", "6")], &Facts::default());
    let graph = &plan.train.program.graph;
    // Six blocks of six products and the head, each with two adjoints.
    assert_eq!(count(graph, |op| matches!(op, Op::Einsum(_))), 3 * (6 * 6 + 1));
    // One mask a block forward, none backward; softmax both ways.
    assert_eq!(count(graph, |op| matches!(op, Op::Causal { .. })), 6);
    assert_eq!(count(graph, |op| matches!(op, Op::SoftmaxGrad { .. })), 6);
    // q, k and v part and join without zeros; nothing is transposed.
    assert_eq!(count(graph, |op| matches!(op, Op::Unslice { .. })), 0);
    assert_eq!(count(graph, |op| matches!(op, Op::Permute(_))), 0);
    assert_eq!(count(graph, |op| matches!(op, Op::Concat { .. })), 6);
    let parameters: u64 = plan.weights.iter().map(monarch_graph::Weight::elements).sum();
    let (d, t, v) = (384, 256, 96);
    assert_eq!(parameters, 6 * (12 * d * d + 2 * d) + v * d + t * d + d);
}

#[test]
fn gradients_complete_from_the_last_layer_to_the_first() {
    let (plan, _) = planned(CHARGPT, &[("depth", "6")], &Facts::default());
    let bucket_of = |weight: usize| {
        let holds = |b: &&monarch_graph::Bucket| b.parts.iter().any(|p| p.weight.index() == weight);
        plan.buckets.iter().find(holds).unwrap().id.0
    };
    let mut last = None;
    for (w, weight) in plan.weights.iter().enumerate() {
        let Some(rest) = weight.name.strip_prefix("blocks.") else { continue };
        let block: u32 = rest.split('.').next().unwrap().parse().unwrap();
        let bucket = bucket_of(w);
        if let Some((before, at)) = last
            && block > before
        {
            assert!(bucket <= at, "block {block} comes after block {before}");
        }
        last = Some((block, bucket));
    }
    // The tied table is used first and last: it completes last.
    let tok = plan.weights.iter().position(|w| w.name == "tok").unwrap();
    assert_eq!(bucket_of(tok) as usize, plan.buckets.len() - 1);
    assert!(plan.buckets.len() > 6);
    // Every gradient is written straight into the slab.
    let places = &plan.train.program.memory.places;
    for part in plan.buckets.iter().flat_map(|b| &b.parts) {
        let node = plan.train.gradients[part.weight.index()].unwrap();
        let place = match places[node.index()] {
            Place::Alias(of) => places[of.index()],
            place => place,
        };
        assert_eq!(place, Place::Gradient(part.start));
    }
    // Reductions can start long before backward ends.
    let computes = plan.tasks.tasks.iter();
    let computes = computes.filter(|t| matches!(t.kind, TaskKind::Compute { .. })).count();
    assert!(computes > 6);
}

/// Every page of a code of this crate: its first program fails with it, its last does not.
#[test]
fn pages_show_what_they_say() {
    let own = |code: &str| ["M03", "M04"].iter().any(|family| code.starts_with(family));
    let mut wrong = Vec::new();
    let mut seen = 0;
    for page in monarch_diagnostic::pages().iter().filter(|page| own(page.code)) {
        let programs = page.programs();
        let (Some(first), Some(last)) = (programs.first(), programs.last()) else { continue };
        let found = codes(first, &Facts::default());
        if !found.iter().any(|(code, _)| *code == page.code) {
            wrong.push(format!("{} fails with {found:?}", page.code));
        }
        let left = codes(last, &Facts::default());
        if !left.is_empty() {
            wrong.push(format!("{}, fixed, has {left:?}", page.code));
        }
        seen += 1;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(seen >= 8, "only {seen} pages have programs");
}

#[test]
fn depth_has_a_limit() {
    let deep = |n: &str| {
        let program = checked(&files(CHARGPT), &[SMALL_GPT[1], SMALL_GPT[2], ("depth", n)]);
        let (made, diagnostics) = plan(&program, &Facts::default());
        (made.is_some(), diagnostics.iter().map(|d| d.code).collect::<Vec<_>>())
    };
    assert_eq!(deep("300"), (true, vec![]));
    assert_eq!(deep("4000"), (false, vec!["M0403"]));
}

#[test]
fn a_worker_must_have_a_shard_and_memory() {
    let program = checked(&files(DIGITS), &[]);
    let all =
        |facts: Facts| -> Vec<&str> { plan(&program, &facts).1.iter().map(|d| d.code).collect() };
    assert_eq!(all(Facts { workers: 8, ..Facts::default() }), [""; 0]);
    assert_eq!(all(Facts { workers: 9, ..Facts::default() }), ["M0302"]);
    assert_eq!(all(Facts { memory_bytes: Some(1 << 10), ..Facts::default() }), ["M0401"]);
    assert_eq!(all(Facts { memory_bytes: Some(1 << 30), ..Facts::default() }), [""; 0]);
}
