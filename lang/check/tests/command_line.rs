//! Params and the command line.

mod common;

use common::{Memory, shown};
use monarch_check::hir::{Origin, Value};
use monarch_check::{Checked, check, params};

const PROGRAM: &str = "## Hidden units.
## More is slower.
param width: int = 128 in 16..4096
param lr: float = 1e-3
param size: dim = 4
param name: string = \"a\"
param fast: bool = false
param budget: tokens = 2B tokens
param wait: time = 10 min
param mode: string = \"plain\" in [\"plain\", \"odd\"]
let twice = 2 * width
let all = [lr, size, name, fast, budget, wait, mode]
";

fn with(overrides: &[(&str, &str)]) -> Checked {
    let world = Memory::with("job.mon", PROGRAM);
    let own: Vec<(String, String)> =
        overrides.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
    check(&world, "job.mon", &own, &["workers", "resume"])
}

fn value(name: &str, text: &str) -> Option<(Value, Origin)> {
    let checked = with(&[(name, text)]);
    let program = checked.program?;
    let found = program.params.into_iter().find(|p| p.name == name)?;
    Some((found.value, found.origin))
}

#[test]
fn values_of_every_type() {
    let of = |name, text| value(name, text).map(|v| v.0);
    assert_eq!(of("width", "1_024"), Some(Value::Int(1024)));
    assert_eq!(of("width", "1e2"), None);
    assert_eq!(of("lr", "3e-4"), Some(Value::Float(3e-4)));
    assert_eq!(of("lr", "2"), Some(Value::Float(2.0)));
    assert_eq!(of("lr", "nan"), None);
    assert_eq!(of("size", "0"), None);
    assert_eq!(of("name", "x y"), Some(Value::Text("x y".into())));
    assert_eq!(of("fast", "true"), Some(Value::Bool(true)));
    assert_eq!(of("fast", "on"), None);
    assert_eq!(of("budget", "2B"), None);
    assert_eq!(of("wait", "5 steps"), None);
    assert_eq!(of("mode", "odd"), Some(Value::Text("odd".into())));
    assert_eq!(of("mode", "even"), None);
    let (budget, _) = value("budget", "5M tokens").expect("a number of tokens");
    assert!(matches!(budget, Value::Quantity(q) if q.amount == 5e6));
}

#[test]
fn values_remember_their_origin() {
    let (_, origin) = value("width", "64").expect("a width");
    assert!(matches!(origin, Origin::CommandLine { text, .. } if text == "64"));
    let program = with(&[]).program.expect("a program");
    assert!(matches!(program.params[0].origin, Origin::Program(_)));
}

#[test]
fn mistakes_on_the_command_line() {
    let said = |overrides: &[(&str, &str)]| {
        let checked = with(overrides);
        assert!(checked.program.is_none());
        let at = |d: &monarch_diagnostic::Diagnostic| {
            d.span().map(|s| checked.sources.place(s)).unwrap_or_default()
        };
        let all = checked.diagnostics.iter().filter(|d| d.is_error());
        all.map(|d| format!("{} {}", d.code, at(d))).collect::<Vec<_>>()
    };
    assert_eq!(said(&[("wdith", "3")]), ["M0113 command line:1:1"]);
    assert_eq!(said(&[("width", "3")]), ["M0112 command line:1:9"]);
    assert_eq!(said(&[("width", "3"), ("lr", "x")]).len(), 2);
    assert_eq!(said(&[("lr", "1"), ("lr", "2")]), ["M0105 command line:1:8"]);
}

#[test]
fn a_param_is_no_option_of_run() {
    let world = Memory::with("job.mon", "param workers: int = 4\nlet n = workers\n");
    let checked = check(&world, "job.mon", &[], &["workers", "resume"]);
    assert!(shown(&checked).contains("M0114 job.mon:1:7"), "{}", shown(&checked));
}

#[test]
fn help_has_docs_defaults_and_ranges() {
    let world = Memory::with("job.mon", PROGRAM);
    let (all, diagnostics, _) = params(&world, "job.mon");
    assert!(diagnostics.is_empty());
    let width = all.first().expect("a param");
    assert_eq!(width.name, "width");
    assert_eq!(width.kind, "int");
    assert_eq!(width.doc, "Hidden units. More is slower.");
    assert_eq!(width.default.as_deref(), Some("128"));
    assert_eq!(width.range.as_deref(), Some("16..4096"));
    assert_eq!(all.len(), 8);
}

#[test]
fn settings_remember_params_and_defaults() {
    let path = format!("{}/../../examples/digits.mon", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("the example is there");
    let checked = Memory::with("digits.mon", &text).check("digits.mon");
    let program = checked.program.expect("a program");
    let find = |path: &str| program.settings.iter().find(|s| s.path == path);
    let lr = find("train.lr").expect("a rate");
    assert_eq!((lr.value.as_str(), lr.params.as_slice()), ("lr", &["lr".to_owned()][..]));
    let shards = find("train.shards").expect("a default");
    assert_eq!((shards.value.as_str(), &shards.origin), ("8", &Origin::Default));
}

#[test]
fn imports_of_files_and_pins() {
    let layers = "layer Scale[D] {\n  w: [D] ~ ones\n  forward(x: [B, D]) -> [B, D] = x * w\n}\n";
    let hash = "07".repeat(32);
    let program = |pin: &str| {
        format!("use \"parts/layers.mon\" sha256 \"{pin}\" as mine\nmodel m = mine.Scale[D = 4]\n")
    };
    let mut world = Memory::with("jobs/job.mon", &program(&hash));
    world.files.insert("jobs/parts/layers.mon".into(), layers.into());
    let checked = world.check("jobs/job.mon");
    assert!(checked.program.is_some(), "{}", shown(&checked));
    world.files.insert("jobs/job.mon".into(), program("00").into_bytes());
    assert!(shown(&world.check("jobs/job.mon")).contains("M0123"));
}

/// A size that is wrong inside the library is mended where the program gives it.
#[test]
fn sizes_of_the_library_are_shown_where_they_are_given() {
    let program = "use std.models.llama.Llama\n\
        model llm = Llama[V = 8, D = 16, H = 4, G = 3, F = 8, T = 4](depth = 1)\n";
    let checked = Memory::with("job.mon", program).check("job.mon");
    let error = checked.diagnostics.iter().find(|d| d.is_error()).expect("3 does not divide 4");
    assert_eq!(error.code, "M0204");
    let places: Vec<String> = error.labels.iter().map(|l| checked.sources.place(l.span)).collect();
    assert!(places.contains(&"job.mon:2:13".to_owned()), "{places:?}");
}
