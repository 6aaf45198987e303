//! What a worker has been told and has not carried out yet: no thread, no clock, no socket, so that
//! simulated workers obey by the same rules as real ones.

use monarch_wire::{Due, Form, Window};
use std::collections::VecDeque;

/// What is to be done next.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Do this; the stated number of steps is done.
    Due(Due),
    /// Run the next step.
    Step,
    /// Leave the update of the step at hand out.
    Skip,
    Finish,
}

/// Why a run ends early for this worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The link to the controller is gone.
    Closed(String),
    Aborted(String),
    Refused(String),
    /// The controller said what makes no sense.
    Nonsense(String),
    /// The others go on without it.
    Released,
}

/// The work at hand is to be dropped: members change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Halting;

/// Trouble of a generation as it matters to what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It follows from the order to drop the work at hand.
    Echo,
    /// A peer is gone, or does not answer.
    LostPeer,
    /// While connecting to the peers or reducing with them.
    WithPeers,
    /// The worker's or the job's own.
    Own,
}

/// What a worker does about trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Waits for the order to drop the work at hand, which comes or has come.
    Wait,
    /// Tells of it and waits: it is for the controller to say whether the others go on.
    Complain,
    /// Tells of it and leaves.
    Leave,
}

/// A worker's orders. `J` is the job that comes with `Start`.
#[derive(Debug)]
pub struct Protocol<J> {
    job: Option<J>,
    form: Option<Box<Form>>,
    /// A generation for which the work at hand is to be dropped.
    halt: Option<u64>,
    until: u64,
    dues: VecDeque<Due>,
    /// A step whose update cannot be made: what follows is for the controller to say.
    held: Option<u64>,
    skip: Option<u64>,
    finish: bool,
    started: bool,
    end: Option<End>,
}

impl<J> Default for Protocol<J> {
    fn default() -> Protocol<J> {
        Protocol {
            job: None,
            form: None,
            halt: None,
            until: 0,
            dues: VecDeque::new(),
            held: None,
            skip: None,
            finish: false,
            started: false,
            end: None,
        }
    }
}

impl<J> Protocol<J> {
    /// The job, once.
    pub fn begin(&mut self, job: J) {
        if std::mem::replace(&mut self.started, true) {
            return self.close(End::Nonsense("a second `Start`".into()));
        }
        self.job = Some(job);
    }

    /// What was asked of the generation before is asked again of the next one.
    pub fn halt(&mut self, generation: u64) {
        self.form = None;
        self.until = 0;
        self.dues.clear();
        (self.held, self.skip) = (None, None);
        self.halt = Some(generation);
    }

    pub fn place(&mut self, form: Form) {
        self.form = Some(Box::new(form));
    }

    pub fn window(&mut self, window: Window) {
        self.until = self.until.max(window.until);
        self.dues.extend(window.due);
    }

    /// The update of this step cannot be made.
    pub fn hold(&mut self, step: u64) {
        self.held = Some(step);
    }

    pub fn skip(&mut self, step: u64) {
        self.skip = Some(step);
    }

    pub fn finish(&mut self) {
        self.finish = true;
    }

    /// The run ends here; the first reason counts.
    pub fn close(&mut self, end: End) {
        self.end.get_or_insert(end);
    }

    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Waits within the generation at hand are to end now.
    pub fn stops(&self) -> bool {
        self.end.is_some() || self.halt.is_some()
    }

    /// The generation that follows on the one at hand, once there is to be one.
    pub fn halted(&self) -> Option<u64> {
        self.halt
    }

    /// All of the generation before is gone: what comes is about `generation` from now on. False
    /// when that is to be dropped already.
    pub fn renew(&mut self, generation: u64) -> bool {
        let current = self.halt == Some(generation);
        if current && self.end.is_none() {
            self.halt = None;
        }
        current
    }

    /// The job, when it has come. Members may have changed again since: then it is good for all
    /// but the place in it.
    pub fn take_job(&mut self) -> Option<J> {
        self.job.take()
    }

    /// A place in the next generation, when it has come.
    ///
    /// # Errors
    /// That generation is to be dropped already.
    pub fn take_place(&mut self) -> Result<Option<Box<Form>>, Halting> {
        if self.halt.is_some() { Err(Halting) } else { Ok(self.form.take()) }
    }

    /// What is to be done after `done` steps; None: nothing yet.
    ///
    /// # Errors
    /// The generation is to be dropped.
    pub fn next(&mut self, done: u64) -> Result<Option<Order>, Halting> {
        if self.halt.is_some() {
            return Err(Halting);
        }
        if self.dues.front().is_some_and(|due| due.step <= done) {
            return Ok(self.dues.pop_front().map(Order::Due));
        }
        if self.held == Some(done) {
            if self.skip == Some(done) {
                (self.held, self.skip) = (None, None);
                return Ok(Some(Order::Skip));
            }
        } else if self.until > done {
            return Ok(Some(Order::Step));
        }
        Ok(self.finish.then_some(Order::Finish))
    }

    /// What follows from trouble in the generation at hand.
    pub fn after(&self, trouble: Trouble) -> Next {
        match trouble {
            // Those who are gone, and what they shared, cannot be found any more.
            Trouble::LostPeer | Trouble::WithPeers if self.halt.is_some() => Next::Wait,
            Trouble::Echo => Next::Wait,
            Trouble::LostPeer => Next::Complain,
            Trouble::WithPeers | Trouble::Own => Next::Leave,
        }
    }
}
