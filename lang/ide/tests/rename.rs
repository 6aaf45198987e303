//! Renaming keeps what a program means.

mod common;

use common::{Memory, RESERVED, cursor, place, programs};
use monarch_check::hir::Program;
use monarch_ide::index::Kind;
use monarch_ide::rename::apply;
use monarch_ide::{Analysis, rename};

/// The text after a rename, or why it is refused.
fn renamed(text: &str, new: &str) -> Result<String, String> {
    let (text, at) = cursor(text);
    let world = Memory::with("job.mon", &text);
    let analysis = world.analysis("job.mon");
    let edits = rename(&world, &analysis, RESERVED, at, new).map_err(|r| r.0)?;
    Ok(apply(&analysis, &edits).remove("job.mon").unwrap_or(text))
}

const MLP: &str = "use std.nn.softmax
param D: dim = 8
layer Mlp[D, F](n: int) {
  K = F / 2
  up:   [D, F] ~ normal(0.02 / n)
  down: [F, D] ~ normal(0.02)
  forward(x: [B, T, D]) -> [B, T, D] {
    let h = softmax(x @ up, over = F)
    let g = einsum[B T F, F D -> B T D](h, down)
    g + (h @ down) * K
  }
}
layer Two[D] {
  a = Mlp[D, F = 4 * D](2)
  b = Mlp[D = D, F = 2 * D](n = 3)
  forward(x: [B, T, D]) -> [B, T, D] = x |> a |> b
}
";

#[test]
fn an_axis_everywhere_in_its_layer_and_where_it_is_given() {
    let text = MLP.replacen("layer Mlp[D, F]", "layer Mlp[D, $F]", 1);
    let expected = MLP
        .replace("Mlp[D, F](n", "Mlp[D, Hidden](n")
        .replace("K = F / 2", "K = Hidden / 2")
        .replace("up:   [D, F]", "up:   [D, Hidden]")
        .replace("down: [F, D]", "down: [Hidden, D]")
        .replace("over = F)", "over = Hidden)")
        .replace("einsum[B T F, F D ->", "einsum[B T Hidden, Hidden D ->")
        .replace("Mlp[D, F = 4", "Mlp[D, Hidden = 4")
        .replace("Mlp[D = D, F = 2", "Mlp[D = D, Hidden = 2");
    assert_eq!(renamed(&text, "Hidden").as_deref(), Ok(expected.as_str()));
    // From a pattern, it is the same.
    let text = MLP.replacen("einsum[B T F", "einsum[B T $F", 1);
    assert_eq!(renamed(&text, "Hidden").as_deref(), Ok(expected.as_str()));
}

#[test]
fn free_axes_and_sizes_and_values() {
    let text = MLP.replacen("forward(x: [B, T", "forward(x: [B, $T", 1);
    let expected = MLP
        .replacen("(x: [B, T, D]) -> [B, T, D] {", "(x: [B, Time, D]) -> [B, Time, D] {", 1)
        .replace("[B T F, F D -> B T D]", "[B Time F, F D -> B Time D]");
    assert_eq!(renamed(&text, "Time").as_deref(), Ok(expected.as_str()));
    let text = MLP.replacen("  K = F", "  $K = F", 1);
    let out = renamed(&text, "Half").expect("renamed");
    assert!(out.contains("Half = F / 2") && out.contains("* Half"), "{out}");
    let text = MLP.replacen("let h =", "let $h =", 1);
    let out = renamed(&text, "hidden").expect("renamed");
    assert!(out.contains("let hidden = softmax") && out.contains("](hidden, down)"), "{out}");
    let text = MLP.replacen("  down: [F", "  $down: [F", 1);
    let out = renamed(&text, "back").expect("renamed");
    assert!(out.contains("back: [F, D]") && out.contains("(h, back)") && out.contains("h @ back"));
    let text = MLP.replacen("(n: int)", "($n: int)", 1);
    let out = renamed(&text, "copies").expect("renamed");
    assert!(out.contains("(copies: int)") && out.contains("0.02 / copies"), "{out}");
    assert!(out.contains("](copies = 3)"), "{out}");
    let text = MLP.replacen("layer Mlp", "layer $Mlp", 1);
    let out = renamed(&text, "Feed").expect("renamed");
    assert!(!out.contains("Mlp") && out.contains("b = Feed[D = D"), "{out}");
}

#[test]
fn refusals_say_why() {
    let at = |what: &str, new: &str| {
        let n = what.find('$').expect("a cursor");
        let plain = what.replacen('$', "", 1);
        let text = MLP.replacen(&plain, &format!("{}${}", &what[..n], &what[n + 1..]), 1);
        renamed(&text, new).expect_err("refused")
    };
    assert!(at("layer Mlp[D, $F]", "D").contains("taken: axis `D`"));
    assert!(at("layer Mlp[D, $F]", "up").contains("taken"));
    assert!(at("layer Mlp[D, $F]", "B").contains("taken: free axis `B`"));
    assert!(at("layer Mlp[D, $F]", "2x").contains("no name"));
    assert!(at("layer Mlp[D, $F]", "then").contains("word of the language"));
    assert!(at("let $h =", "x").contains("taken"));
    assert!(at("let h = s$oftmax", "soft").contains("standard library"));
    assert!(at("param $D: dim", "workers").contains("M01"));
    assert!(at("layer M$lp", "Two").contains("taken: layer `Two`"));
    let shard = programs()[2].1.replacen("plan p3d", "plan p$3d", 1);
    assert!(renamed(&shard, "layout").is_ok());
}

#[test]
fn other_files_are_renamed_too() {
    let layers = "layer Half[D] {\n  forward(x: [B, D]) -> [B, D] = x / 2\n}\n";
    let text = "use \"layers.mon\" as own\nlayer A[D] {\n  h = own.Half[D]\n  \
                forward(x: [B, D]) -> [B, D] = h(x)\n}\n";
    let world = Memory::with("job.mon", text).and("layers.mon", layers);
    let analysis = world.analysis("job.mon");
    let at = place(text, "own.Half", 0, 5);
    let edits = rename(&world, &analysis, RESERVED, at, "Halve").expect("renamed");
    let out = apply(&analysis, &edits);
    assert!(out["job.mon"].contains("own.Halve[D]"), "{out:?}");
    assert!(out["layers.mon"].contains("layer Halve[D]"), "{out:?}");
}

/// The resolved program in words, without the places and with one name put for another.
fn meaning(program: &Program, new: &str, old: &str) -> String {
    let parts = (&program.params, &program.layers, &program.models, &program.job);
    let text = format!("{parts:?}{:?}", program.clusters);
    let mut out = String::new();
    // Offsets move with the length of the name.
    for (n, part) in text.split("Span {").enumerate() {
        let rest = part.split_once('}').map_or(part, |p| p.1);
        out.push_str(if n == 0 { part } else { rest });
    }
    let words = out.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.map(|w| w.replace(new, old)).collect()
}

/// Each name of each example, in turn: either refused, or the program means the same.
#[test]
fn every_name_of_the_examples() {
    let mut counts = (0, 0);
    for (name, text) in programs() {
        let world = Memory::with(name, text);
        let before = world.analysis(name);
        for def in before.index.defs.iter().filter(|d| d.span.file == 0 && d.kind != Kind::Module) {
            let new = "zq_new";
            let at = def.span.start as usize + 1;
            let found = rename(&world, &before, RESERVED, at.min(def.span.end as usize), new);
            let Ok(edits) = found else {
                counts.1 += 1;
                let why = found.err().map(|r| r.0).unwrap_or_default();
                println!("{name}: {} {}: {why}", def.kind.noun(), def.name);
                // Columns, and axes of columns, are named by the data set; so is an axis of the
                // model that meets one of them in the loss.
                let column = matches!(def.kind, Kind::Argument | Kind::FreeAxis);
                let meets = def.kind == Kind::Axis && why.contains("wrong: M0209");
                let word = def.kind == Kind::MeshAxis;
                assert!(column && def.owner.is_none() || meets || word, "{name} {def:?}: {why}");
                continue;
            };
            counts.0 += 1;
            let changed = world.clone().and(name, &apply(&before, &edits)[name]);
            let after: Analysis = changed.analysis(name);
            let codes = |a: &Analysis| -> Vec<&str> {
                a.inspected.checked.diagnostics.iter().map(|d| d.code).collect()
            };
            assert_eq!(codes(&before), codes(&after), "{name}: {}", def.name);
            let pair = (&before.inspected.checked.program, &after.inspected.checked.program);
            if let (Some(before), Some(after)) = pair {
                let (old, now) = (meaning(before, new, &def.name), meaning(after, new, &def.name));
                assert!(old == now, "{name}: {} means something else", def.name);
            }
        }
    }
    println!("{} renamed, {} refused", counts.0, counts.1);
    assert!(counts.0 > 80, "{counts:?}");
}
