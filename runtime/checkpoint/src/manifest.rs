//! `manifest.json`: what makes a directory of files a checkpoint.

use monarch_graph::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt;

/// Version that this code writes, and the only one it reads.
pub(crate) const VERSION: u32 = 1;
pub(crate) const FILE_NAME: &str = "manifest.json";
/// A manifest of a million tensors has about 200 MB; anything larger is not one.
pub(crate) const MAX_BYTES: u64 = 1 << 28;

const KEY: &str = "\"checksum\": \"";
const BLANK: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Everything that a run must know to go on to the same bits, on any number of workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// SHA-256 of this file with 64 zeros in this place.
    checksum: String,
    pub version: u32,
    /// Optimizer steps done; the next step has this number, counted from 0.
    pub step: u64,
    pub data: DataPosition,
    pub seed: u64,
    /// Step of the learning-rate schedule.
    pub schedule_step: u64,
    /// Name of the `train` block.
    pub job: String,
    /// Hash of the program, as the planner writes it.
    pub program: String,
    /// Workers that wrote it. It can be loaded on any number.
    pub world: u32,
    /// Pieces of a batch: with another number, other bits follow.
    pub shards: u32,
    /// Of the weights in the plan's order.
    pub fingerprint: String,
    /// Of the last step; null when not finite or unknown.
    pub loss: Option<f64>,
    /// Whether the loss and all tensors are finite.
    pub finite: bool,
    /// Last evaluation: `eval.loss`, `eval.accuracy`; null when not finite.
    pub metrics: BTreeMap<String, Option<f64>>,
    /// Step of the weights that the last evaluation is of: the checkpoint's, or an earlier one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluated: Option<u64>,
    /// How far the answers to steps that are not finite have been tried, once one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<Answered>,
    pub optimizer: String,
    /// State kept per weight, stored as `optim.<slot>.<weight>`.
    pub slots: Vec<String>,
    pub files: Vec<FileEntry>,
    pub tensors: Vec<TensorEntry>,
}

/// How far the answers to steps that are not finite have been tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answered {
    /// Place of the answer at hand.
    pub answer: u32,
    /// Times that it was given without having helped yet.
    pub times: u64,
    /// The step at which it has helped; null: the next that is finite.
    pub until: Option<u64>,
}

/// The next sample to train on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataPosition {
    pub epoch: u64,
    /// Position in that epoch's order.
    pub sample: u64,
}

impl DataPosition {
    /// Where a run of `plan` stands when `step` optimizer steps are done.
    pub fn after(plan: &monarch_graph::Plan, step: u64) -> DataPosition {
        let per_epoch = plan.steps_per_epoch().max(1);
        let sample = (step % per_epoch).saturating_mul(plan.batch);
        DataPosition { epoch: step / per_epoch, sample }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    pub name: String,
    pub bytes: u64,
    /// 64 hexadecimal digits.
    pub sha256: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorEntry {
    pub name: String,
    pub shape: Vec<u64>,
    /// Symbolic: `["D", "4 * D"]`.
    pub axes: Vec<String>,
    /// A place in `files`.
    pub file: usize,
}

/// Why a text is not a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManifestError {
    NotJson {
        what: String,
    },
    /// Changed after it was written.
    Checksum,
    Version {
        found: u32,
    },
    /// A file name that leads elsewhere, or a number that points nowhere.
    Inconsistent {
        what: String,
    },
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ManifestError::NotJson { what } => write!(f, "its manifest cannot be read: {what}"),
            ManifestError::Checksum => write!(f, "its manifest was changed or damaged"),
            ManifestError::Version { found } => {
                write!(f, "its manifest has version {found}; this program reads {VERSION}")
            }
            ManifestError::Inconsistent { what } => write!(f, "its manifest is wrong: {what}"),
        }
    }
}

impl std::error::Error for ManifestError {}

impl Manifest {
    /// From what a writer knows, without its files and tensors.
    pub(crate) fn new(about: &crate::About) -> Manifest {
        Manifest {
            checksum: BLANK.to_string(),
            version: VERSION,
            step: about.step,
            data: about.data,
            seed: about.seed,
            schedule_step: about.schedule_step,
            job: about.job.clone(),
            program: about.program.clone(),
            world: about.world,
            shards: about.shards,
            fingerprint: about.fingerprint.to_string(),
            loss: about.loss.filter(|l| l.is_finite()),
            finite: about.loss.is_none_or(f64::is_finite),
            metrics: about
                .metrics
                .iter()
                .map(|(name, &v)| (name.clone(), Some(v).filter(|v| v.is_finite())))
                .collect(),
            evaluated: about.evaluated.filter(|_| !about.metrics.is_empty()),
            answered: about.answered,
            optimizer: about.optimizer.clone(),
            slots: about.slots.clone(),
            files: Vec::new(),
            tensors: Vec::new(),
        }
    }

    /// The text of the file, its checksum filled in.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, ManifestError> {
        let mut blank = self.clone();
        blank.checksum = BLANK.to_string();
        let wrong = |e: serde_json::Error| ManifestError::NotJson { what: e.to_string() };
        let mut text = serde_json::to_vec_pretty(&blank).map_err(wrong)?;
        text.push(b'\n');
        let sum = hex(&Sha256::digest(&text));
        let place = place(&text).ok_or(ManifestError::Checksum)?;
        text[place..place + BLANK.len()].copy_from_slice(sum.as_bytes());
        Ok(text)
    }

    /// Reads and verifies the text of the file.
    pub fn decode(text: &[u8]) -> Result<Manifest, ManifestError> {
        let manifest: Manifest = serde_json::from_slice(text).map_err(|error| {
            // A newer version may have other fields: say so rather than which field.
            match serde_json::from_slice::<VersionOnly>(text) {
                Ok(VersionOnly { version }) if version != VERSION => {
                    ManifestError::Version { found: version }
                }
                _ => ManifestError::NotJson { what: error.to_string() },
            }
        })?;
        if manifest.version != VERSION {
            return Err(ManifestError::Version { found: manifest.version });
        }
        let place = place(text).ok_or(ManifestError::Checksum)?;
        let mut blank = text.to_vec();
        blank[place..place + BLANK.len()].copy_from_slice(BLANK.as_bytes());
        if hex(&Sha256::digest(&blank)) != manifest.checksum {
            return Err(ManifestError::Checksum);
        }
        manifest.check()?;
        Ok(manifest)
    }

    fn check(&self) -> Result<(), ManifestError> {
        let wrong = |what: String| Err(ManifestError::Inconsistent { what });
        for file in &self.files {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            if file.name.starts_with('.') || !file.name.chars().all(plain) || file.name.is_empty() {
                return wrong(format!("{:?} is no name of a file beside it", file.name));
            }
        }
        for tensor in &self.tensors {
            if tensor.file >= self.files.len() {
                return wrong(format!("`{}` lies in file {}", tensor.name, tensor.file));
            }
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct VersionOnly {
    version: u32,
}

/// Where the 64 digits of the checksum stand.
fn place(text: &[u8]) -> Option<usize> {
    let start = text.windows(KEY.len()).position(|w| w == KEY.as_bytes())? + KEY.len();
    (text.get(start + BLANK.len()) == Some(&b'"')).then_some(start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::tests::about;
    use proptest::prelude::*;

    fn manifest() -> Manifest {
        let mut manifest = Manifest::new(&about(100));
        let file = FileEntry { name: "a.safetensors".into(), bytes: 7, sha256: "0".repeat(64) };
        manifest.files.push(file);
        let axes = vec!["D".into(), "4 * D".into()];
        let tensor = TensorEntry { name: "w \"é\"".into(), shape: vec![2, 8], axes, file: 0 };
        manifest.tensors.push(tensor);
        manifest
    }

    #[test]
    fn round_trip() {
        let manifest = manifest();
        let mut got = Manifest::decode(&manifest.encode().unwrap()).unwrap();
        assert_ne!(got.checksum, BLANK);
        got.checksum = BLANK.into();
        assert_eq!(got, manifest);
    }

    #[test]
    fn any_changed_byte_is_found() {
        let text = manifest().encode().unwrap();
        for at in 0..text.len() {
            let mut changed = text.clone();
            changed[at] ^= 1;
            assert!(Manifest::decode(&changed).is_err(), "byte {at}");
            assert!(Manifest::decode(&text[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn other_versions_are_named() {
        let mut newer = manifest();
        newer.version = 2;
        let text = newer.encode().unwrap();
        assert_eq!(Manifest::decode(&text), Err(ManifestError::Version { found: 2 }));
        let unknown = br#"{"checksum": "", "version": 3, "new": 1}"#;
        assert_eq!(Manifest::decode(unknown), Err(ManifestError::Version { found: 3 }));
    }

    #[test]
    fn names_stay_in_the_directory() {
        for name in ["../x", "/etc/passwd", "", ".", "..", "a/b", "a\0"] {
            let mut bad = manifest();
            bad.files[0].name = name.into();
            let error = Manifest::decode(&bad.encode().unwrap()).unwrap_err();
            assert!(matches!(error, ManifestError::Inconsistent { .. }), "{name:?}");
        }
        let mut bad = manifest();
        bad.tensors[0].file = 1;
        assert!(Manifest::decode(&bad.encode().unwrap()).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(bytes: Vec<u8>, text in "[{}\\[\\]\",:a-z0-9]{0,200}") {
            let _ = Manifest::decode(&bytes);
            let _ = Manifest::decode(text.as_bytes());
        }
    }
}
