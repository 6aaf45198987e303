use crate::Cause;

/// Collects what is said about a failure until its first cause is clear.
///
/// The first thing heard is often a survivor's complaint; the dead worker's own story (its exit
/// status) comes a little later. A story outranks a complaint; among equals the first heard wins.
#[derive(Debug)]
pub(crate) struct Fault {
    since_ns: u64,
    best: Cause,
}

/// How much a cause explains; less is better.
fn rank(cause: &Cause) -> u32 {
    match cause {
        Cause::Exited { exit, .. } if exit.by_signal => 0,
        Cause::Worker { failure, .. } if failure.lost_peer.is_none() => 1,
        Cause::Exited { .. } => 2,
        Cause::Lost { .. } => 3,
        Cause::Worker { .. } => 4,
        _ => 1,
    }
}

impl Fault {
    pub fn new(now_ns: u64, cause: Cause) -> Fault {
        Fault { since_ns: now_ns, best: cause }
    }

    pub fn hear(&mut self, cause: Cause) {
        if rank(&cause) < rank(&self.best) && !self.explains(&cause) {
            self.best = cause;
        }
    }

    /// A worker's exit after its own report only says that it left, as it should.
    fn explains(&self, cause: &Cause) -> bool {
        match (&self.best, cause) {
            (Cause::Worker { rank: a, failure, .. }, Cause::Exited { rank: b, .. }) => {
                a == b && failure.lost_peer.is_none()
            }
            _ => false,
        }
    }

    /// True when waiting any longer would not make the cause clearer.
    pub fn settled(&self, now_ns: u64, settle_ns: u64) -> bool {
        let waited = now_ns.saturating_sub(self.since_ns);
        match rank(&self.best) {
            0 => true,
            1 => waited >= settle_ns / 10,
            _ => waited >= settle_ns,
        }
    }

    pub fn into_cause(self) -> Cause {
        self.best
    }
}
