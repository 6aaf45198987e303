//! Arrows point down only: the table below is the drawing in README.md.

use std::collections::BTreeMap;
use std::process::Command;

/// What each crate may depend on (besides crates from outside).
const ALLOWED: &[(&str, &[&str])] = &[
    ("graph", &[]),
    ("diagnostic", &["graph"]),
    ("syntax", &["diagnostic", "graph"]),
    ("check", &["syntax", "diagnostic", "graph"]),
    ("plan", &["check", "diagnostic", "graph"]),
    ("ide", &["plan", "check", "syntax", "diagnostic", "graph"]),
    ("pulse", &[]),
    ("wire", &["graph"]),
    ("sched", &["graph"]),
    ("net", &[]),
    ("device", &["graph", "pulse"]),
    ("collective", &["graph"]),
    ("data", &["graph"]),
    ("checkpoint", &["graph"]),
    ("record", &[]),
    ("worker", &["graph", "pulse", "wire", "net", "device", "collective", "data", "checkpoint"]),
    (
        "controller",
        &["graph", "pulse", "wire", "sched", "net", "collective", "checkpoint", "record"],
    ),
    ("sim", &["graph", "wire", "sched", "worker"]),
    (
        "monarch",
        &[
            "graph",
            "diagnostic",
            "syntax",
            "check",
            "plan",
            "ide",
            "wire",
            "net",
            "data",
            "checkpoint",
            "device",
            "collective",
            "worker",
            "controller",
            "record",
        ],
    ),
];

fn metadata() -> serde_json::Value {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let out = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(super::root())
        .output()
        .expect("cargo metadata runs");
    serde_json::from_slice(&out.stdout).expect("cargo metadata prints JSON")
}

/// Dependencies within the workspace that end up in the product, by crate.
fn edges() -> BTreeMap<String, Vec<String>> {
    let data = metadata();
    let mut edges = BTreeMap::new();
    for package in data["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("a name");
        let mut uses = Vec::new();
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let other = dependency["name"].as_str().unwrap_or_default();
            if dependency["kind"].is_null() && other.starts_with("monarch") {
                uses.push(other.trim_start_matches("monarch-").to_string());
            }
        }
        edges.insert(name.trim_start_matches("monarch-").to_string(), uses);
    }
    edges
}

#[test]
fn arrows_point_down() {
    let mut wrong = Vec::new();
    for (name, uses) in edges() {
        let Some((_, allowed)) = ALLOWED.iter().find(|(n, _)| *n == name) else {
            wrong.push(format!("crate `{name}` is not in the drawing"));
            continue;
        };
        for other in uses {
            if !allowed.contains(&other.as_str()) {
                wrong.push(format!("{name} -> {other}"));
            }
        }
    }
    assert!(wrong.is_empty(), "edges that the drawing does not have: {wrong:#?}");
}

#[test]
fn the_drawing_has_no_crate_too_many() {
    let edges = edges();
    for (name, _) in ALLOWED {
        assert!(edges.contains_key(*name), "`{name}` is drawn but does not exist");
    }
}
