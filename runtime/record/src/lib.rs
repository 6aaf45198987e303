//! What a run leaves to be looked at: TensorBoard event files, JSONL, Chrome traces.
//! Invariant: a failing writer never stops training.
