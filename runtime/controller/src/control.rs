use crate::link::Input;
use std::sync::mpsc::{Receiver, Sender, channel};

/// What may be asked of a run from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlRequest {
    /// Ctrl-C or SIGTERM. The first saves a checkpoint and stops within the grace time; the second
    /// stops now.
    Interrupt,
    /// Save, then end in good order.
    Stop,
    /// Save at the next edge of a window.
    Checkpoint,
    /// Send the worker of this rank away: [`ControlHandle::drain`].
    Drain { rank: u32 },
}

/// Asks things of a run; may be cloned and sent to other threads, and used before the run begins.
#[derive(Clone, Debug)]
pub struct ControlHandle(Sender<Input>);

impl ControlHandle {
    /// Does not wait. False once the run is over.
    pub fn send(&self, request: ControlRequest) -> bool {
        self.0.send(Input::Control(request)).is_ok()
    }

    /// Sends the worker of this rank away: the others do its part from the next edge between two
    /// steps on, with the same bits, and it is not started again. [`crate::RunEvent::WorkerLeft`]
    /// follows, or a warning that says why it has to stay: it is the last one, or the job wants as
    /// many.
    ///
    /// Does not wait. False once the run is over.
    pub fn drain(&self, rank: u32) -> bool {
        self.send(ControlRequest::Drain { rank })
    }
}

/// The run's side of a [`ControlHandle`].
#[derive(Debug)]
pub struct ControlInbox {
    pub(crate) sender: Sender<Input>,
    pub(crate) receiver: Receiver<Input>,
}

/// A handle, and the inbox that [`crate::run`] takes.
pub fn control() -> (ControlHandle, ControlInbox) {
    let (sender, receiver) = channel();
    (ControlHandle(sender.clone()), ControlInbox { sender, receiver })
}
