//! The control link of a worker in a process of its own: QUIC.

use crate::link::{ControlLink, Received};
use monarch_net::{ClientEvent, ConnectError, ControlClient, Identity, Lost, Options};
use monarch_wire::{FromWorker, ToWorker, decode, encode};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Connects to the controller at `address` within `limit`.
///
/// Pings are answered on the network's own thread, so that a round trip wakes no other.
///
/// # Errors
/// Those of [`ControlClient::connect`].
pub fn connect(
    address: &str,
    identity: &Identity,
    options: &Options,
    limit: Duration,
) -> Result<ControlLink, ConnectError> {
    connect_cut(address, identity, options, limit).map(|(link, _)| link)
}

/// Ends a link from this side: there is a sign that the controller is gone.
#[derive(Clone, Debug)]
pub struct Cut(Sender<Received>);

impl Cut {
    pub fn cut(&self, why: &str) {
        // A link that nobody reads any more needs no end.
        let _ = self.0.send(Received::Gone(why.to_string()));
    }
}

/// As [`connect`], with something to end the link by.
///
/// # Errors
/// Those of [`ControlClient::connect`].
pub fn connect_cut(
    address: &str,
    identity: &Identity,
    options: &Options,
    limit: Duration,
) -> Result<(ControlLink, Cut), ConnectError> {
    let (events, came) = channel();
    let cut = Cut(events.clone());
    let client: Arc<OnceLock<ControlClient>> = Arc::default();
    let pongs = Arc::downgrade(&client);
    let connected = ControlClient::connect_with(address, identity, options, limit, move |event| {
        let received = match event {
            ClientEvent::Closed(lost) => match lost {
                // Nobody said goodbye: it may be back.
                Lost::Silent { .. } | Lost::Vanished | Lost::Restarted => {
                    Received::Gone(lost.to_string())
                }
                lost => Received::Closed(lost.to_string()),
            },
            ClientEvent::Frame(bytes) => match decode::<ToWorker>(&bytes) {
                Ok(ToWorker::Ping(number)) => {
                    let answered = pongs.upgrade().is_some_and(|client| {
                        client.get().is_some_and(|c| send(c, &FromWorker::Pong(number)).is_ok())
                    });
                    if answered {
                        return;
                    }
                    Received::Message(Box::new(ToWorker::Ping(number)))
                }
                Ok(message) => Received::Message(Box::new(message)),
                Err(error) => Received::Closed(error.to_string()),
            },
        };
        // A run that is over wants no more messages.
        let _ = events.send(received);
    })?;
    // Set once, here: nobody else has it yet.
    let _ = client.set(connected);
    let outgoing = move |message: FromWorker| match client.get() {
        Some(client) => send(client, &message),
        None => Err("not connected".into()),
    };
    let incoming = move |limit| match came.recv_timeout(limit) {
        Ok(received) => received,
        Err(RecvTimeoutError::Timeout) => Received::Nothing,
        Err(RecvTimeoutError::Disconnected) => Received::Closed("the connection ended".into()),
    };
    Ok((ControlLink::new(outgoing, incoming), cut))
}

fn send(client: &ControlClient, message: &FromWorker) -> Result<(), String> {
    let frame = encode(message).map_err(|e| e.to_string())?;
    client.send(frame).map_err(|e| e.to_string())
}
