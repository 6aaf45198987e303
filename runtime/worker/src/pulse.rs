//! Signs of life: a page for a controller on this machine, messages for one elsewhere.

use crate::link::Outlet;
use crate::run::Config;
use monarch_pulse::{Options, Pulse, Sample};
use monarch_wire::{FromWorker, PulseStream};

/// Shows what this worker does. A worker without works as well; its end is noticed by other signs.
pub(crate) fn show(config: &Config, outlet: &Outlet) -> Option<Pulse> {
    let outlet = outlet.clone();
    let report = move |sample: Sample| outlet.send(FromWorker::Pulse(message(&sample)));
    // Whoever was started here is seen without a word.
    let report: Option<Box<dyn Fn(Sample) + Send>> = match config.slot {
        Some(_) => None,
        None => Some(Box::new(report)),
    };
    Pulse::start(Options { report }).ok()
}

fn message(sample: &Sample) -> monarch_wire::Pulse {
    let stream = |s: &monarch_pulse::StreamSample| PulseStream {
        role: s.role.code(),
        phase: s.phase as u8,
        count: s.count,
        thread: s.thread,
    };
    monarch_wire::Pulse {
        beats: sample.beats,
        step: sample.step,
        streams: sample.streams.iter().map(stream).collect(),
    }
}
