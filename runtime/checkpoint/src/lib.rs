//! Snapshots, shards, manifest, retention. Invariant: a directory without a valid manifest is
//! never taken for a checkpoint.
