use monarch_wire::{FromWorker, ToWorker};
use std::sync::Arc;
use std::time::Duration;

/// What came over a control link.
#[derive(Debug)]
pub enum Received {
    Message(Box<ToWorker>),
    /// Nothing within the limit.
    Nothing,
    /// The controller is gone, and why.
    Closed(String),
}

type Send_ = dyn Fn(FromWorker) -> Result<(), String> + Send + Sync;
type Receive = dyn FnMut(Duration) -> Received + Send;

/// Both directions of a worker's link to its controller, in a process of its own or in this one.
pub struct ControlLink {
    send: Arc<Send_>,
    receive: Box<Receive>,
}

impl ControlLink {
    /// `send` does not wait, and says why when the other side is gone. `receive` waits up to the
    /// limit for the next message.
    pub fn new(
        send: impl Fn(FromWorker) -> Result<(), String> + Send + Sync + 'static,
        receive: impl FnMut(Duration) -> Received + Send + 'static,
    ) -> ControlLink {
        ControlLink { send: Arc::new(send), receive: Box::new(receive) }
    }

    pub(crate) fn split(self) -> (Outlet, Box<Receive>) {
        (Outlet(self.send), self.receive)
    }
}

/// The sending half, for any thread.
#[derive(Clone)]
pub(crate) struct Outlet(Arc<Send_>);

impl Outlet {
    /// Sends; a link that is gone is noticed by the thread that receives.
    pub(crate) fn send(&self, message: FromWorker) {
        let _ = (self.0)(message);
    }
}
