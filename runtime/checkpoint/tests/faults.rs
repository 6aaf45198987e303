//! Checkpoints written, damaged in every way, found and loaded.

use monarch_checkpoint::{
    About, Best, Checkpoint, Damage, DataPosition, FileError, Fingerprint, Keep, Latest, LoadError,
    Staging, Tensor, WriteError, best_so_far, compare, last_finite, latest_whole, list,
    load_file_tensors, points, prune, remove_stale, shard_file, tensor_heads, write_shard,
};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn about(step: u64) -> About {
    About {
        step,
        data: DataPosition { epoch: step / 10, sample: step % 10 },
        seed: 7,
        schedule_step: step,
        job: "images".into(),
        program: "ab12".into(),
        world: 2,
        shards: 8,
        fingerprint: Fingerprint(step),
        loss: Some(1.0 / step as f64),
        metrics: BTreeMap::new(),
        evaluated: None,
        answered: None,
        optimizer: "sgd".into(),
        slots: vec!["momentum".into()],
    }
}

fn values(step: u64, n: usize) -> Vec<f32> {
    (0..n).map(|i| (step as f32) + i as f32 / 8.0).collect()
}

/// Two ranks, two tensors.
fn save(root: &Path, about: &About) -> Result<PathBuf, WriteError> {
    let (a, b) = (values(about.step, 6), values(about.step, 40_000));
    let staging = Staging::create(root, about.step)?;
    let first = [Tensor { name: "up.w", shape: &[2, 3], values: &a }];
    let second = [Tensor { name: "optim.momentum.up.w", shape: &[200, 200], values: &b }];
    let shards =
        [write_shard(staging.path(), 0, 2, &first)?, write_shard(staging.path(), 1, 2, &second)?];
    let axes = |names: [&str; 2]| names.map(str::to_string).to_vec();
    let axes = BTreeMap::from([
        ("up.w".to_string(), axes(["D", "F"])),
        ("optim.momentum.up.w".to_string(), axes(["D", "F"])),
    ]);
    staging.commit(about, &shards, &axes)
}

fn latest(root: &Path) -> Latest {
    latest_whole(root).unwrap()
}

fn step(latest: &Latest) -> Option<u64> {
    latest.checkpoint.as_ref().map(|c| c.manifest.step)
}

fn entries(root: &Path) -> Vec<String> {
    let names = fs::read_dir(root).unwrap().map(|e| e.unwrap().file_name());
    let mut names: Vec<_> = names.map(|n| n.into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn round_trip() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("runs/a");
    assert!(latest(&root).checkpoint.is_none());
    let path = save(&root, &about(100)).unwrap();
    assert_eq!(path, root.join("step-000000100"));
    let files = ["manifest.json".to_string(), shard_file(0, 2), shard_file(1, 2)];
    assert_eq!(entries(&path), files);
    let found = latest(&root);
    assert!(found.skipped.is_empty());
    let checkpoint = found.checkpoint.unwrap();
    let manifest = &checkpoint.manifest;
    assert_eq!((manifest.step, manifest.seed, manifest.world), (100, 7, 2));
    assert_eq!(manifest.data, DataPosition { epoch: 10, sample: 0 });
    assert_eq!(manifest.tensors[1].axes, ["D", "F"]);
    let tensors = checkpoint.load(&["up.w", "optim.momentum.up.w"]).unwrap();
    assert_eq!(tensors[0].shape, [2, 3]);
    assert_eq!(tensors[0].values, values(100, 6));
    assert_eq!(tensors[1].values, values(100, 40_000));
    let error = checkpoint.load(&["down.w"]).unwrap_err();
    assert!(matches!(error, LoadError::NoTensor { .. }), "{error}");
    let found = manifest.tensors.iter().map(|t| (t.name.as_str(), &t.shape[..]));
    let difference = compare([("up.w", &[3, 2][..])], found);
    assert_eq!(difference.unexpected, ["optim.momentum.up.w"]);
    assert_eq!(difference.misshapen.len(), 1);
}

#[test]
fn numbers_sort_as_numbers() {
    let dir = tempfile::tempdir().unwrap();
    for n in [10_000, 9_999, 1_000_000_000, 999_999_999] {
        save(dir.path(), &about(n)).unwrap();
    }
    let steps: Vec<u64> = list(dir.path()).unwrap().into_iter().map(|(s, _)| s).collect();
    assert_eq!(steps, [9_999, 10_000, 999_999_999, 1_000_000_000]);
    assert_eq!(step(&latest(dir.path())), Some(1_000_000_000));
}

/// Does something to the newer of two checkpoints; the older must be found, and the reason told.
fn damaged(harm: impl Fn(&Path)) -> String {
    let dir = tempfile::tempdir().unwrap();
    save(dir.path(), &about(100)).unwrap();
    let newer = save(dir.path(), &about(200)).unwrap();
    harm(&newer);
    let found = latest(dir.path());
    assert_eq!(step(&found), Some(100));
    assert_eq!(found.skipped.len(), 1);
    assert_eq!(found.skipped[0].path, newer);
    found.skipped[0].to_string()
}

#[test]
fn every_damage_is_found_and_told() {
    let shard = shard_file(1, 2);
    let text = damaged(|d| {
        let file = fs::File::options().write(true).open(d.join(&shard)).unwrap();
        file.set_len(1000).unwrap();
    });
    assert!(text.contains("has 1000 bytes, not 160"), "{text}");
    let text = damaged(|d| {
        let mut bytes = fs::read(d.join(&shard)).unwrap();
        bytes[100_000] ^= 1;
        fs::write(d.join(&shard), bytes).unwrap();
    });
    assert!(text.contains("its hash differs"), "{text}");
    let text = damaged(|d| fs::remove_file(d.join(&shard)).unwrap());
    assert!(text.contains("is missing"), "{text}");
    let text = damaged(|d| fs::remove_file(d.join("manifest.json")).unwrap());
    assert!(text.contains("never finished"), "{text}");
    let text = damaged(|d| fs::write(d.join("manifest.json"), "garbage").unwrap());
    assert!(text.contains("cannot be read"), "{text}");
    let text = damaged(|d| fs::write(d.join("manifest.json"), "").unwrap());
    assert!(text.contains("cannot be read"), "{text}");
    let text = damaged(|d| {
        let manifest = fs::read_to_string(d.join("manifest.json")).unwrap();
        let changed = manifest.replace("\"seed\": 7", "\"seed\": 8");
        assert_ne!(manifest, changed);
        fs::write(d.join("manifest.json"), changed).unwrap();
    });
    assert!(text.contains("changed or damaged"), "{text}");
    let text = damaged(|d| {
        let older = d.parent().unwrap().join("step-000000100");
        fs::remove_dir_all(d).unwrap();
        fs::create_dir(d).unwrap();
        for entry in fs::read_dir(older).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, d.join(path.file_name().unwrap())).unwrap();
        }
    });
    assert!(text.contains("is of step 100"), "{text}");
    let text = damaged(|d| {
        fs::remove_file(d.join(&shard)).unwrap();
        fs::create_dir(d.join(&shard)).unwrap();
    });
    assert!(text.contains("bytes, not"), "{text}");
    damaged(|d| {
        fs::remove_dir_all(d).unwrap();
        fs::write(d, "a file").unwrap();
    });
}

#[test]
fn damage_after_verification_is_found_when_loading() {
    let dir = tempfile::tempdir().unwrap();
    let path = save(dir.path(), &about(100)).unwrap();
    let checkpoint: Checkpoint = latest(dir.path()).checkpoint.unwrap();
    let shard = path.join(shard_file(1, 2));
    let mut bytes = fs::read(&shard).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&shard, bytes).unwrap();
    assert!(checkpoint.load(&["up.w"]).is_ok());
    let error = checkpoint.load(&["optim.momentum.up.w"]).unwrap_err();
    assert!(matches!(error, LoadError::Damage { why: Damage::Hash { .. }, .. }), "{error}");
}

#[test]
fn unfinished_directories_are_removed_or_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    save(dir.path(), &about(100)).unwrap();
    {
        let staging = Staging::create(dir.path(), 200).unwrap();
        write_shard(staging.path(), 0, 1, &[]).unwrap();
        assert_eq!(entries(dir.path()).len(), 2);
        assert_eq!(step(&latest(dir.path())), Some(100));
    }
    assert_eq!(entries(dir.path()), ["step-000000100"]);
    // A killed process leaves its directory; the next run removes it, but no stranger's.
    let staging = Staging::create(dir.path(), 300).unwrap();
    let name = staging.path().to_str().unwrap().to_string();
    let front = name.rsplitn(3, '-').last().unwrap();
    let dead = format!("{front}-{}-7", u32::MAX);
    let alive = format!("{front}-1-7");
    drop(staging);
    let other = dir.path().join("step-000000300.tmp-otherhost.example-4294967295");
    for path in [&dead, &alive, &other.display().to_string()] {
        fs::create_dir(path).unwrap();
        fs::write(Path::new(path).join("x"), "x").unwrap();
    }
    assert_eq!(remove_stale(dir.path()).unwrap(), [PathBuf::from(dead)]);
    assert_eq!(entries(dir.path()).len(), 3);
}

/// Ranks that still write a part of an attempt that was given up spoil nothing of the next one.
#[test]
fn attempts_at_one_step_are_apart() {
    let dir = tempfile::tempdir().unwrap();
    let first = Staging::create(dir.path(), 100).unwrap();
    let late = first.path().to_path_buf();
    drop(first);
    let second = Staging::create(dir.path(), 100).unwrap();
    assert!(write_shard(&late, 0, 1, &[]).is_err());
    assert!(write_shard(second.path(), 0, 1, &[]).is_ok());
    assert_eq!(entries(second.path()).len(), 1);
}

#[test]
fn the_same_step_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = save(dir.path(), &about(100)).unwrap();
    let written = |p: &Path| fs::metadata(p.join("manifest.json")).unwrap().modified().unwrap();
    let before = written(&path);
    // The same weights: what is there stays.
    save(dir.path(), &about(100)).unwrap();
    assert_eq!(written(&path), before);
    // Damaged: replaced.
    fs::remove_file(path.join(shard_file(0, 2))).unwrap();
    save(dir.path(), &about(100)).unwrap();
    assert_eq!(step(&latest(dir.path())), Some(100));
    // Other weights: replaced.
    let mut other = about(100);
    other.fingerprint = Fingerprint(1);
    save(dir.path(), &other).unwrap();
    let found = latest(dir.path()).checkpoint.unwrap();
    assert_eq!(found.manifest.fingerprint, Fingerprint(1).to_string());
    assert_eq!(entries(dir.path()), ["step-000000100"]);
}

#[test]
fn incomplete_shards_are_not_committed() {
    let dir = tempfile::tempdir().unwrap();
    let value = [1.0, 2.0];
    let tensor = |name| Tensor { name, shape: &[2], values: &value };
    let stage = || Staging::create(dir.path(), 5).unwrap();
    let commit = |staging: Staging, shards: &[_], names: &[&str]| {
        let axes = names.iter().map(|n| (n.to_string(), Vec::new())).collect();
        staging.commit(&about(5), shards, &axes).unwrap_err().to_string()
    };
    let staging = stage();
    let shard = write_shard(staging.path(), 0, 2, &[tensor("a")]).unwrap();
    let text = commit(staging, std::slice::from_ref(&shard), &["a", "b"]);
    assert!(text.contains("lack tensor `b`"), "{text}");
    let staging = stage();
    let text = commit(staging, &[shard], &["a"]);
    assert!(text.contains("is missing"), "{text}");
    let staging = stage();
    let first = write_shard(staging.path(), 0, 2, &[tensor("a")]).unwrap();
    let second = write_shard(staging.path(), 1, 2, &[tensor("a")]).unwrap();
    let text = commit(staging, &[first, second], &["a"]);
    assert!(text.contains("both hold tensor `a`"), "{text}");
    assert!(entries(dir.path()).is_empty());
    let staging = stage();
    let wrong = Tensor { name: "a", shape: &[3], values: &value };
    let error = write_shard(staging.path(), 0, 1, &[wrong]).unwrap_err();
    assert!(matches!(error, WriteError::Tensors { .. }));
    let error = write_shard(staging.path(), 0, 1, &[tensor("a"), tensor("a")]).unwrap_err();
    assert!(matches!(error, WriteError::Tensors { .. }));
}

fn kept(root: &Path, keep: u64, best: Option<&Best>) -> Vec<u64> {
    kept_also(root, keep, best, None)
}

fn kept_also(root: &Path, keep: u64, best: Option<&Best>, also: Option<u64>) -> Vec<u64> {
    prune(root, Keep { newest: keep, best, also, point: None }).unwrap();
    list(root).unwrap().into_iter().map(|(s, _)| s).collect()
}

#[test]
fn retention_keeps_what_matters() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    for n in [9_000, 9_999, 10_000, 10_001, 10_002, 10_003] {
        let mut about = about(n);
        about.loss = match n {
            9_000 => Some(0.001),
            10_002 | 10_003 => Some(f64::NAN),
            _ => Some(1.0),
        };
        save(root, &about).unwrap();
    }
    let best = Best { metric: "loss".into(), smallest: true };
    // Newest two, the last finite (10,001) and the best (9,000).
    assert_eq!(kept(root, 2, Some(&best)), [9_000, 10_001, 10_002, 10_003]);
    assert_eq!(kept(root, 0, None), [10_001, 10_003]);
    // A damaged newest one does not count and does not go.
    fs::remove_file(root.join("step-000010003").join(shard_file(0, 2))).unwrap();
    assert_eq!(kept(root, 1, None), [10_001, 10_003]);
    assert_eq!(step(&latest(root)), Some(10_001));
}

/// The first of equals is the best, since a later one may carry the evaluation of an earlier step;
/// multiples of `also` stay for good.
#[test]
fn retention_keeps_the_best_and_the_milestones() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    for (step, loss) in [(100, 0.5), (150, 0.3), (200, 0.3), (250, 0.4), (300, 0.6), (350, 0.7)] {
        let mut about = about(step);
        about.metrics.insert("eval.loss".into(), loss);
        save(root, &about).unwrap();
    }
    let best = Best { metric: "eval.loss".into(), smallest: true };
    assert_eq!(best_so_far(root, &best, 350), Some(0.3));
    assert_eq!(best_so_far(root, &best, 100), Some(0.5));
    assert_eq!(best_so_far(root, &best, 99), None);
    let most = Best { smallest: false, ..best.clone() };
    assert_eq!(best_so_far(root, &most, 300), Some(0.6));
    assert_eq!(kept_also(root, 1, Some(&best), Some(100)), [100, 150, 200, 300, 350]);
    assert_eq!(kept_also(root, 1, Some(&best), None), [150, 350]);
}

/// What a run may have to go back to is neither the newest nor the last finite one.
#[test]
fn retention_keeps_the_way_back() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    for step in [90, 100, 110, 125, 200] {
        let mut about = about(step);
        // The weights after 200 steps are not finite: nobody goes back to them.
        about.loss = Some(if step == 200 { f64::NAN } else { 1.0 });
        save(root, &about).unwrap();
    }
    let found: Vec<_> = points(root, 125).into_iter().collect();
    assert_eq!(found, [(90, true), (100, true), (110, true), (125, true)]);
    assert_eq!(points(root, 200).get(&200), Some(&false));
    let point = |step: u64| step.is_multiple_of(100);
    prune(root, Keep { newest: 0, point: Some(&point), ..Keep::default() }).unwrap();
    assert_eq!(list(root).unwrap().into_iter().map(|l| l.0).collect::<Vec<_>>(), [100, 125, 200]);
    assert_eq!(last_finite(root).map(|f| f.0), Some(125));
}

/// A checkpoint between two evaluations carries the numbers of weights that are not its own.
#[test]
fn only_weights_that_were_evaluated_are_the_best() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    // The evaluation of step 20 was the best; no checkpoint holds its weights.
    for (step, evaluated, accuracy) in [(10, 10, 0.8), (25, 20, 0.9), (40, 40, 0.7), (50, 40, 0.7)]
    {
        let mut about = about(step);
        about.metrics.insert("eval.accuracy".into(), accuracy);
        about.evaluated = Some(evaluated);
        save(root, &about).unwrap();
    }
    let best = Best { metric: "eval.accuracy".into(), smallest: false };
    assert_eq!(best_so_far(root, &best, 50), Some(0.8));
    assert_eq!(kept(root, 1, Some(&best)), [10, 50]);
}

#[test]
fn places_that_cannot_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    let error = save(&file.join("runs"), &about(1)).unwrap_err();
    assert!(matches!(error, WriteError::Io { doing: "create", .. }), "{error}");
    assert!(save(Path::new("/proc/nowhere"), &about(1)).is_err());
    let staging = Staging::create(dir.path(), 1).unwrap();
    fs::remove_dir(staging.path()).unwrap();
    let error = write_shard(staging.path(), 0, 1, &[]).unwrap_err();
    assert!(error.to_string().contains("there is no earlier one"), "{error}");
}

/// The second save runs in a child on a disk of 256 KiB, or where that cannot be mounted, with a
/// limit on file sizes: the write of the second shard fails half way.
#[test]
fn a_full_disk_leaves_the_old_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let mount = "mount -t tmpfs -o size=256k none \"$MONARCH_TEST_ROOT\"";
    let run = "exec \"$0\" --exact limited_child --nocapture";
    let child = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        command.args(args).arg(std::env::current_exe().unwrap());
        command.env("MONARCH_TEST_ROOT", dir.path()).output()
    };
    let on_disk = child("unshare", &["-rm", "sh", "-c", &format!("{mount} || exit 77; {run}")]);
    let output = match on_disk {
        // 77: not mounted; 1 without a word of the test's: no namespaces here.
        Ok(output) if output.stdout.starts_with(b"\nrunning 1 test") => {
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains("the disk is full"), "{text}");
            output
        }
        _ => child("sh", &["-c", &format!("trap '' XFSZ; ulimit -f 128; {run}")]).unwrap(),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("checkpoint not saved: cannot write"), "{text}");
    assert!(text.contains("` is still whole"), "{text}");
}

#[test]
/// The work of the test above, in a process of its own; nothing to do without one.
fn limited_child() {
    let Some(root) = std::env::var_os("MONARCH_TEST_ROOT").map(PathBuf::from) else { return };
    let tiny = Staging::create(&root, 100).unwrap();
    let shard = write_shard(tiny.path(), 0, 1, &[]).unwrap();
    tiny.commit(&about(100), &[shard], &BTreeMap::new()).unwrap();
    let error = save(&root, &about(200)).and_then(|_| save(&root, &about(300))).unwrap_err();
    assert!(matches!(error, WriteError::Io { doing: "write", .. }));
    println!("{error}");
    let whole = latest(&root);
    assert!(whole.skipped.is_empty());
    assert!(entries(&root).iter().all(|name| !name.contains("tmp")), "{:?}", entries(&root));
}

#[test]
fn tensors_of_any_file() {
    let dir = tempfile::tempdir().unwrap();
    let value = values(3, 20_000);
    let tensor = Tensor { name: "w", shape: &[100, 200], values: &value };
    write_shard(dir.path(), 0, 1, &[tensor]).unwrap();
    let path = dir.path().join(shard_file(0, 1));
    let heads = tensor_heads(&path).unwrap();
    assert_eq!((heads.len(), heads[0].dtype.as_str()), (1, "F32"));
    assert_eq!(load_file_tensors(&path, &["w"]).unwrap()[0].values, value);
    assert!(matches!(load_file_tensors(&path, &["v"]), Err(FileError::NoTensor { .. })));
    let header = r#"{"h":{"dtype":"I16","shape":[1],"data_offsets":[0,2]}}"#;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend([0, 0]);
    fs::write(&path, &bytes).unwrap();
    let error = load_file_tensors(&path, &["h"]).unwrap_err();
    assert!(error.to_string().contains("I16"), "{error}");
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    assert!(matches!(tensor_heads(&path), Err(FileError::Damaged { .. })));
    assert!(matches!(tensor_heads(&dir.path().join("no")), Err(FileError::Io { .. })));
}
