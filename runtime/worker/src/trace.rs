//! Clock readings for reports. No result depends on them.

pub(crate) use monarch_collective::shm::monotonic_ns as now_ns;
use monarch_wire::TraceSpan;

/// Spans of one stream in one step; collects nothing unless asked to.
#[derive(Debug)]
pub(crate) struct Spans {
    wanted: bool,
    stream: String,
    list: Vec<TraceSpan>,
}

impl Spans {
    pub(crate) fn new(wanted: bool, stream: impl Into<String>) -> Spans {
        let stream = if wanted { stream.into() } else { String::new() };
        Spans { wanted, stream, list: Vec::new() }
    }

    pub(crate) fn add(&mut self, name: &str, start_ns: u64, end_ns: u64, bytes: u64) {
        if self.wanted {
            let (name, stream) = (name.to_string(), self.stream.clone());
            self.list.push(TraceSpan { name, stream, start_ns, end_ns, bytes });
        }
    }

    pub(crate) fn take(self) -> Vec<TraceSpan> {
        self.list
    }
}
