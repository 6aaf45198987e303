//! Tasks of traced steps.

use super::{SPANS, Writer};
use monarch_record::Track;
use monarch_wire::TraceSpan;

impl Writer {
    pub(super) fn keep_spans(&mut self, step: u64, by_rank: Vec<Vec<TraceSpan>>) {
        if self.spans.len() > SPANS {
            return self.lose();
        }
        for (rank, spans) in (0..).zip(by_rank) {
            self.spans.extend(spans.into_iter().map(|span| monarch_record::TraceSpan {
                rank,
                track: track(&span.stream),
                name: span.name,
                start_ns: span.start_ns,
                end_ns: span.end_ns,
                step: Some(step),
                bucket: None,
                shard: None,
                bytes: (span.bytes > 0).then_some(span.bytes),
            }));
        }
    }
}

/// The row in which a stream of a worker is drawn.
fn track(stream: &str) -> Track {
    if let Ok(lane) = stream.parse() {
        return Track::Compute(lane);
    }
    if stream == "communication" { Track::Communication(0) } else { Track::Host }
}
