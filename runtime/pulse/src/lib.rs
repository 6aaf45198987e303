//! Signs of life: which worker is dead, frozen or stuck, and since when.
//!
//! Invariants: knows no plan, no message and no other crate of this workspace. A worker shows a
//! page of counters ([`Pulse`]); whoever watches it maps that page for reading only ([`Page`]), so
//! that neither can harm the other. What follows from the counters is said by [`Judge`], which has
//! no clock: time comes in as *healthy* nanoseconds, that is time in which every processor of the
//! watching machine was seen to run threads ([`HealthyClock`]). Nobody is accused who waits for
//! others. All unsafe code lies in `page`, `heart` and `sys`.

mod canary;
mod heart;
mod judge;
mod page;
mod sys;
mod watch;

pub use canary::{Canaries, HealthyClock};
pub use heart::{Options, Pulse, Stream, current, enter, step, tick};
pub use judge::{Hang, Judge, Limits, What};
pub use judge::{Sample, StreamSample, Verdict};
pub use page::{Life, Page, Phase, Role};
pub use sys::domain;
pub use watch::{Monitor, Sign};
