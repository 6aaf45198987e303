//! The binary as a person runs it: real processes over loopback, in folders of their own.
//!
//! No test sleeps for luck: each waits for something that it can see, within a bound. Every
//! [`support::Place`] checks at its end that no process, no temporary file and no half-written
//! checkpoint is left.

mod bad_input;
mod bits;
mod chaos;
mod deaths;
mod digits;
mod disk;
mod drain;
mod embedded;
mod fixtures;
mod formatting;
mod halfway;
mod hangs;
mod images;
mod kept;
mod lora;
mod machines;
mod nan;
mod network;
mod plans;
mod recover;
mod restart;
mod resume;
mod saved_plans;
mod seen;
mod signals;
mod straggle;
mod support;
mod verbs;
