//! A checkpoint as PyTorch's own reader sees it, where Python has it.

use monarch_checkpoint::{
    About, DataPosition, Fingerprint, Staging, Tensor, shard_file, write_shard,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Two ranks; also a scalar, an empty tensor and a name that JSON must escape.
fn save(root: &Path) -> PathBuf {
    let matrix: Vec<f32> = (0..6).map(|i| 1.5 + i as f32).collect();
    let staging = Staging::create(root, 3).unwrap();
    let first = [
        Tensor { name: "up.w", shape: &[2, 3], values: &matrix },
        Tensor { name: "scale", shape: &[], values: &[4.25] },
    ];
    let second = [
        Tensor { name: "optim.momentum.up.w", shape: &[3, 2], values: &matrix },
        Tensor { name: "none", shape: &[0, 4], values: &[] },
        Tensor { name: "a \"é\"", shape: &[1], values: &[-1.0] },
    ];
    let shards = [
        write_shard(staging.path(), 0, 2, &first).unwrap(),
        write_shard(staging.path(), 1, 2, &second).unwrap(),
    ];
    let about = About {
        step: 3,
        data: DataPosition { epoch: 0, sample: 3 },
        seed: 0,
        schedule_step: 3,
        job: "t".into(),
        program: String::new(),
        world: 2,
        shards: 8,
        fingerprint: Fingerprint(0),
        loss: None,
        metrics: BTreeMap::new(),
        evaluated: None,
        answered: None,
        optimizer: "sgd".into(),
        slots: vec!["momentum".into()],
    };
    staging.commit(&about, &shards, &BTreeMap::new()).unwrap()
}

/// `PYTHON` names another interpreter; with `MONARCH_NEED_PYTORCH` set, its absence is a failure.
#[test]
fn pytorch_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = save(dir.path());
    assert!(path.join(shard_file(1, 2)).is_file());
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/tools/check_checkpoint.py");
    let output = Command::new(python).arg(tool).arg(&path).output();
    let there = output.as_ref().is_ok_and(|o| o.status.code() != Some(77));
    let needed = std::env::var_os("MONARCH_NEED_PYTORCH").is_some();
    assert!(there || !needed, "PyTorch is not installed");
    if !there {
        return;
    }
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let want = json!({
        "up.w": [[2, 3], 1.5, 24.0],
        "scale": [[], 4.25, 4.25],
        "optim.momentum.up.w": [[3, 2], 1.5, 24.0],
        "none": [[0, 4], null, 0.0],
        "a \"é\"": [[1], -1.0, -1.0],
    });
    assert_eq!(found, want);
}
