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
}

/// Asks things of a run; may be cloned and sent to other threads, and used before the run begins.
#[derive(Clone, Debug)]
pub struct ControlHandle(Sender<Input>);

impl ControlHandle {
    /// Does not wait. False once the run is over.
    pub fn send(&self, request: ControlRequest) -> bool {
        self.0.send(Input::Control(request)).is_ok()
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
