//! Checkpoints: a directory `step-000000100/` of safetensors shards and a `manifest.json` written
//! last.
//!
//! Invariants: a directory without a manifest that verifies is no checkpoint, whatever it holds;
//! what is written goes to a temporary name, is synced and renamed, so a crash at any point leaves
//! the old state or the new one; nothing is loaded that has not been verified; the newest whole
//! checkpoint is never deleted. No knowledge of the language, of devices, of who asks; no clock.
//!
//! The layout is one that PyTorch's `HuggingFaceStorageReader` reads: files named
//! `shard-00001-model-00001-of-00002.safetensors` whose header's `__metadata__` carries
//! `DCP_SHARDING_INFO`, the offset of each piece in its tensor (all zero here: tensors are whole).
//!
//! Weights have the names of the model, state of the optimizer `optim.<slot>.<weight>`; all f32.
//!
//! One checkpoint: the controller makes a [`Staging`]; each rank writes the tensors that
//! [`layout`] assigns to it with [`write_shard`]; [`Staging::commit`] makes it whole. To resume:
//! [`latest_whole`], [`compare`], [`Checkpoint::load`]. To tidy up: [`prune`].

mod compare;
mod file;
mod fingerprint;
mod layout;
mod manifest;
mod read;
mod retain;
mod write;

pub use compare::{Difference, Misshapen, compare};
pub use file::{FileError, OwnedTensor, TensorHead, load_file_tensors, tensor_heads};
pub use fingerprint::{Fingerprint, Fingerprinter, fingerprint};
pub use layout::{Content, Stored, axes, layout};
pub use manifest::{Answered, DataPosition, FileEntry, Manifest, ManifestError, TensorEntry};
pub use read::{
    Checkpoint, Damage, Latest, LoadError, Skipped, directory, glance, latest_whole, list, open,
};
pub use retain::{Best, Keep, Pruned, best_so_far, last_finite, points, prune, remove_stale};
pub use write::{About, ShardInfo, Staging, Tensor, WriteError, shard_file, write_shard};
