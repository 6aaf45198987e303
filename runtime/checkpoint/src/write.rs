//! Writing: a temporary directory, shards by each rank, then a manifest and a rename.

use crate::file::{HashingFile, TensorFile, each_block, header};
use crate::manifest::{self, Answered, DataPosition, FileEntry, Manifest, TensorEntry};
use crate::{Fingerprint, read, retain};
use monarch_graph::Plan;
use monarch_graph::hex;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A tensor to be written whole.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    pub name: &'a str,
    pub shape: &'a [u64],
    /// Row-major; as many as the shape says.
    pub values: &'a [f32],
}

/// A shard on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardInfo {
    /// Its name in the directory.
    pub file: String,
    pub bytes: u64,
    pub sha256: [u8; 32],
    /// Whether all its values are.
    pub finite: bool,
}

/// What a checkpoint says of the run.
#[derive(Clone, Debug)]
pub struct About {
    /// Optimizer steps done.
    pub step: u64,
    /// The next sample to train on.
    pub data: DataPosition,
    pub seed: u64,
    pub schedule_step: u64,
    pub job: String,
    pub program: String,
    pub world: u32,
    pub shards: u32,
    pub fingerprint: Fingerprint,
    pub loss: Option<f64>,
    pub metrics: BTreeMap<String, f64>,
    /// Step of the weights that `metrics` are of.
    pub evaluated: Option<u64>,
    pub answered: Option<Answered>,
    pub optimizer: String,
    pub slots: Vec<String>,
}

impl About {
    /// What the plan itself says, when `step` optimizer steps are done on `world` workers; without
    /// loss and metrics.
    pub fn of(
        plan: &Plan,
        step: u64,
        program: &str,
        world: u32,
        fingerprint: Fingerprint,
    ) -> About {
        let kind = &plan.optimizer.kind;
        let optimizer = kind.name();
        About {
            step,
            data: DataPosition::after(plan, step),
            seed: plan.seed,
            schedule_step: step,
            job: plan.name.clone(),
            program: program.to_string(),
            world,
            shards: plan.shards,
            fingerprint,
            loss: None,
            metrics: BTreeMap::new(),
            evaluated: None,
            answered: None,
            optimizer: optimizer.to_string(),
            slots: kind.slots().iter().map(|s| s.to_string()).collect(),
        }
    }
}

/// Why a checkpoint was not written. Whatever was there before is still there.
#[derive(Debug)]
pub enum WriteError {
    /// The disk is full, read-only, gone, ...
    Io {
        doing: &'static str,
        path: PathBuf,
        error: io::Error,
        /// The newest checkpoint that stays valid.
        remains: Option<PathBuf>,
    },
    /// A tensor's values are not as many as its shape says, a name repeats, a size overflows.
    Tensors {
        path: PathBuf,
    },
    /// A shard is not what its writer reported.
    Shard {
        path: PathBuf,
        what: String,
    },
    Manifest(manifest::ManifestError),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WriteError::Io { doing, path, error, remains } => {
                let why = match error.kind() {
                    io::ErrorKind::StorageFull => "the disk is full".to_string(),
                    io::ErrorKind::QuotaExceeded => "the disk quota is used up".to_string(),
                    io::ErrorKind::ReadOnlyFilesystem => "the disk is read-only".to_string(),
                    _ => error.to_string(),
                };
                write!(f, "checkpoint not saved: cannot {doing} `{}`: {why}; ", path.display())?;
                match remains {
                    Some(dir) => write!(f, "`{}` is still whole", dir.display()),
                    None => write!(f, "there is no earlier one"),
                }
            }
            WriteError::Tensors { path } => write!(
                f,
                "checkpoint not saved: the tensors for `{}` repeat a name or do not have the \
                 sizes of their shapes",
                path.display()
            ),
            WriteError::Shard { path, what } => {
                write!(f, "checkpoint not saved: shard `{}` {what}", path.display())
            }
            WriteError::Manifest(error) => write!(f, "checkpoint not saved: {error}"),
        }
    }
}

impl std::error::Error for WriteError {}

/// Name of a rank's file: `shard-00001-model-00001-of-00002.safetensors` for rank 0 of 2.
pub fn shard_file(rank: u32, world: u32) -> String {
    let n = rank.saturating_add(1);
    format!("shard-{n:05}-model-{n:05}-of-{world:05}.safetensors")
}

/// Writes a rank's tensors to its file in a staging directory, and waits until the disk has them.
/// On failure no file is left.
pub fn write_shard(
    dir: &Path,
    rank: u32,
    world: u32,
    tensors: &[Tensor],
) -> Result<ShardInfo, WriteError> {
    let name = shard_file(rank, world);
    let path = dir.join(&name);
    let heads: Vec<_> = tensors.iter().map(|t| (t.name, t.shape)).collect();
    let fits = |t: &Tensor| t.shape.iter().product::<u64>() == t.values.len() as u64;
    let header = header(&heads)
        .filter(|_| tensors.iter().all(fits))
        .ok_or_else(|| WriteError::Tensors { path: path.clone() })?;
    match write_file(&path, &header, tensors) {
        Ok((bytes, sha256)) => {
            let finite = tensors.iter().all(|t| t.values.iter().all(|v| v.is_finite()));
            Ok(ShardInfo { file: name, bytes, sha256, finite })
        }
        Err(error) => {
            // It may not exist, or belong to somebody else if creating it failed.
            if error.kind() != io::ErrorKind::AlreadyExists {
                let _ = fs::remove_file(&path);
            }
            Err(failed("write", &path, error, dir.parent()))
        }
    }
}

fn write_file(path: &Path, header: &[u8], tensors: &[Tensor]) -> io::Result<(u64, [u8; 32])> {
    let mut file = HashingFile::create(path)?;
    file.write(header)?;
    for tensor in tensors {
        each_block(tensor.values, |bytes| file.write(bytes))?;
    }
    file.finish()
}

/// A checkpoint in the making: a directory that no reader takes for one. Dropped without
/// [`Staging::commit`], it is removed.
#[derive(Debug)]
pub struct Staging {
    root: PathBuf,
    step: u64,
    path: PathBuf,
    done: bool,
}

impl Staging {
    /// Makes `root` and the temporary directory `step-000000100.tmp-<host>-<pid>` in it.
    pub fn create(root: &Path, step: u64) -> Result<Staging, WriteError> {
        // A rank may still be writing its part of an attempt that was given up: no two share a
        // directory.
        static ATTEMPTS: AtomicU64 = AtomicU64::new(0);
        let attempt = ATTEMPTS.fetch_add(1, Ordering::Relaxed);
        let suffix = format!("{}-{attempt}", retain::temporary_suffix());
        let path = root.join(format!("{}{suffix}", read::dir_name(step)));
        let make = || {
            fs::create_dir_all(root)?;
            // Left by a process that had our number.
            match fs::remove_dir_all(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
            fs::create_dir(&path)
        };
        make().map_err(|error| failed("create", &path, error, Some(root)))?;
        Ok(Staging { root: root.to_path_buf(), step, path, done: false })
    }

    /// Where ranks write their shards.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that all shards are there, writes the manifest, and gives the directory its name.
    /// `axes` are the tensors' symbolic axes by name ([`crate::axes`]).
    ///
    /// A checkpoint of the same step that is there already is kept when it holds the same weights
    /// and is whole, and replaced otherwise.
    pub fn commit(
        mut self,
        about: &About,
        shards: &[ShardInfo],
        axes: &BTreeMap<String, Vec<String>>,
    ) -> Result<PathBuf, WriteError> {
        let target = self.root.join(read::dir_name(self.step));
        let manifest = self.manifest(about, shards, axes)?;
        let text = manifest.encode().map_err(WriteError::Manifest)?;
        let path = self.path.join(manifest::FILE_NAME);
        let write = || {
            let mut file = HashingFile::create(&path)?;
            file.write(&text)?;
            file.finish()
        };
        write().map_err(|e| failed("write", &path, e, Some(&self.root)))?;
        let failed = |error| failed("rename", &self.path, error, Some(&self.root));
        sync_dir(&self.path).map_err(failed)?;
        if target.exists() {
            let same = |c: &crate::Checkpoint| c.manifest.fingerprint == manifest.fingerprint;
            if read::open(&target).is_ok_and(|c| same(&c) && c.manifest.program == about.program) {
                return Ok(target);
            }
            retain::replace_checkpoint(&target, &self.path).map_err(failed)?;
        } else {
            fs::rename(&self.path, &target).map_err(failed)?;
        }
        sync_dir(&self.root).map_err(failed)?;
        self.done = true;
        Ok(target)
    }

    fn manifest(
        &self,
        about: &About,
        shards: &[ShardInfo],
        axes: &BTreeMap<String, Vec<String>>,
    ) -> Result<Manifest, WriteError> {
        let mut manifest = Manifest::new(about);
        manifest.step = self.step;
        for (i, shard) in shards.iter().enumerate() {
            let path = self.path.join(&shard.file);
            let wrong = |what: String| WriteError::Shard { path: path.clone(), what };
            let file = TensorFile::open(&path).map_err(|e| wrong(format!("is missing: {e}")))?;
            let bytes = fs::metadata(&path).map_err(|e| wrong(e.to_string()))?.len();
            if bytes != shard.bytes {
                return Err(wrong(format!("has {bytes} bytes, not {}", shard.bytes)));
            }
            manifest.finite &= shard.finite;
            manifest.files.push(FileEntry {
                name: shard.file.clone(),
                bytes,
                sha256: hex(&shard.sha256),
            });
            for head in &file.heads {
                manifest.tensors.push(TensorEntry {
                    name: head.name.clone(),
                    shape: head.shape.clone(),
                    axes: axes.get(&head.name).cloned().unwrap_or_default(),
                    file: i,
                });
            }
        }
        manifest.tensors.sort_by(|a, b| a.name.cmp(&b.name));
        let twice = manifest.tensors.windows(2).find(|w| w[0].name == w[1].name);
        if let Some([tensor, ..]) = twice {
            let what = format!("and another both hold tensor `{}`", tensor.name);
            let file = shards.get(tensor.file).map_or("", |s| &s.file);
            return Err(WriteError::Shard { path: self.path.join(file), what });
        }
        if let Some(name) = axes.keys().find(|n| !manifest.tensors.iter().any(|t| t.name == **n)) {
            let what = format!("and its siblings lack tensor `{name}`");
            return Err(WriteError::Shard { path: self.path.clone(), what });
        }
        Ok(manifest)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.done {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

fn failed(doing: &'static str, path: &Path, error: io::Error, root: Option<&Path>) -> WriteError {
    let remains = root.and_then(read::newest_committed);
    WriteError::Io { doing, path: path.to_path_buf(), error, remains }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn about(step: u64) -> About {
        About {
            step,
            data: DataPosition { epoch: 4, sample: 640 },
            seed: u64::MAX,
            schedule_step: step,
            job: "images".into(),
            program: "ab12".into(),
            world: 2,
            shards: 8,
            fingerprint: Fingerprint(0x1234_5678_9abc_def0),
            loss: Some(0.1 + 0.2),
            metrics: BTreeMap::from([("eval.loss".into(), 0.7), ("eval.bad".into(), f64::NAN)]),
            evaluated: Some(step),
            answered: None,
            optimizer: "adamw".into(),
            slots: vec!["exp_avg".into(), "exp_avg_sq".into()],
        }
    }

    #[test]
    fn shards_are_named_as_pytorch_names_them() {
        assert_eq!(shard_file(0, 2), "shard-00001-model-00001-of-00002.safetensors");
    }

    #[test]
    fn failures_say_what_remains() {
        let error = io::Error::from(io::ErrorKind::StorageFull);
        let error = failed("write", Path::new("runs/x"), error, None);
        assert_eq!(
            error.to_string(),
            "checkpoint not saved: cannot write `runs/x`: the disk is full; there is no earlier one"
        );
    }
}
