//! From one controller to the next: a worker whose controller is gone keeps what it has, finishes
//! the window at hand, and looks for a controller that goes on with the run, within a bound.

use crate::control::Orders;
use crate::link::{NoWay, Outlet, Receive, Way};
use crate::protocol::End;
use monarch_wire::{Adopted, ToWorker};
use std::time::{Duration, Instant};

/// One attempt to reach a controller; between two, it is seen whether this worker is still needed.
const ATTEMPT: Duration = Duration::from_millis(250);
/// Pause after an attempt that failed at once.
const PAUSE: Duration = Duration::from_millis(5);
/// How long a controller that was reached may take to say that it goes on with the run.
const ADOPTION: Duration = Duration::from_secs(2);

/// The search for another controller, if there is a way to one.
pub(crate) struct Again {
    way: Option<Box<dyn Way>>,
    /// When the search ends, and what was lost.
    search: Option<(Instant, String)>,
    /// By when the one that was reached must have said that it goes on.
    until: Option<Instant>,
}

impl Again {
    pub(crate) fn new(way: Option<Box<dyn Way>>) -> Again {
        Again { way, search: None, until: None }
    }

    /// The controller is gone; what is to be looked for another one after.
    pub(crate) fn lost(&mut self, why: String) -> Result<Option<String>, End> {
        match &mut self.way {
            Some(way) if !way.patience().is_zero() => {
                if self.search.is_none() {
                    way.lost();
                    self.search = Some((Instant::now() + way.patience(), why.clone()));
                }
                Ok(Some(why))
            }
            _ => Err(End::Closed(why)),
        }
    }

    /// The one that was reached must say in time that it goes on.
    pub(crate) fn check(&mut self) -> Result<Option<String>, End> {
        match self.until.take_if(|until| Instant::now() >= *until) {
            Some(_) => self.lost("a controller was reached, and did not answer".to_string()),
            None => Ok(None),
        }
    }

    /// A controller that was reached says that it goes on with the run.
    pub(crate) fn hear(&mut self, message: &ToWorker) -> Result<Option<String>, End> {
        let ToWorker::Adopted(Adopted { lifeline, .. }) = message else { return Ok(None) };
        (self.search, self.until) = (None, None);
        match &mut self.way {
            Some(way) => way.found(lifeline.as_deref()).map(|()| None).map_err(End::Closed),
            None => Ok(None),
        }
    }

    /// Looks for another controller until one is reached, the time is over, or the run is.
    pub(crate) fn look(
        &mut self,
        why: String,
        orders: &Orders,
        outlet: &Outlet,
    ) -> Result<Box<Receive>, End> {
        let (Some(way), Some((deadline, lost))) = (&mut self.way, &self.search) else {
            return Err(End::Closed(why));
        };
        while orders.listens() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let waited = way.patience();
                return Err(End::Closed(format!("{lost}; no other came within {waited:?}")));
            }
            match way.connect(left.min(ATTEMPT)) {
                Ok(link) => {
                    let hello = orders.back();
                    let hello = hello.ok_or_else(|| End::Closed(lost.clone()))?;
                    self.until = Some(Instant::now() + ADOPTION);
                    return Ok(outlet.turn_to(link, hello));
                }
                Err(NoWay::Nobody(_)) => std::thread::sleep(PAUSE),
                Err(NoWay::Never(why)) => return Err(End::Closed(format!("{lost}; {why}"))),
            }
        }
        Err(End::Closed(lost.clone()))
    }
}
