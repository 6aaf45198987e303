//! The tasks of one link: one sends what is queued, one receives.

use super::*;
use crate::bulk::{BulkEvent, BulkReceiver, BulkSender};
use crate::connection::{Connection, ReadError};
use crate::outbox::Budget;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

/// A connection whose other side is known.
#[derive(Debug)]
pub(super) struct Link {
    pub rank: u32,
    pub connection: Connection,
    pub sender: BulkSender,
    pub receiver: BulkReceiver,
}

/// Unit of what may wait, in bytes: a semaphore counts 32 bits at once.
const PERMIT_BYTES: u64 = 1024;

pub(super) async fn run(
    shared: Arc<Shared>,
    link: Link,
    budget: Arc<Budget>,
    queue: UnboundedReceiver<Out<Message>>,
) {
    let _at_work = shared.at_work.enter();
    let Link { rank, connection, sender, receiver } = link;
    let flush = shared.options.flush_timeout;
    let writing = tokio::spawn(write(sender, connection.clone(), queue, budget.clone(), flush));
    let lost = read(&shared, rank, receiver, &connection).await;
    budget.end(lost.clone());
    // A closing writer still has a packet to send; with the connection gone it ends at once.
    let _ = writing.await;
    shared.received.push((MeshEvent::Lost { peer: rank, lost }, None));
}

async fn write(
    mut sender: BulkSender,
    connection: Connection,
    mut queue: UnboundedReceiver<Out<Message>>,
    budget: Arc<Budget>,
    flush: Duration,
) {
    let mut closed = std::pin::pin!(connection.closed());
    let reason = loop {
        let next = tokio::select! {
            biased;
            next = queue.recv() => next,
            _ = &mut closed => return,
        };
        match next {
            Some(Out::Message((header, payload))) => {
                let bytes = payload.len();
                if sender.send(&header, payload).await.is_err() {
                    // The receiving task sees the end of the connection and says why.
                    return;
                }
                budget.give(bytes);
            }
            Some(Out::Close(reason)) => break reason,
            None => break String::new(),
        }
    };
    budget.end(Lost::ClosedHere { reason: reason.clone() });
    // Whatever was sent before is to arrive before the reason does.
    let _ = timeout(flush, sender.finish()).await;
    connection.close_sent(&reason).await;
}

async fn read(
    shared: &Shared,
    peer: u32,
    mut receiver: BulkReceiver,
    connection: &Connection,
) -> Lost {
    let limit = (shared.options.max_received as u64 / PERMIT_BYTES).clamp(1, 1 << 28);
    let room = Arc::new(Semaphore::new(usize::try_from(limit).unwrap_or(1)));
    let mut header = Header::default();
    let mut permit = None;
    loop {
        match receiver.next().await {
            Ok(Some(BulkEvent::Begin { header: next, length })) => {
                header = next;
                // A payload beyond the limit waits until nothing else does.
                let wanted = length.div_ceil(PERMIT_BYTES).min(limit);
                let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
                // This waits on the taker of events, not on the peer: what has arrived before a
                // peer closed is still delivered. The semaphore is never closed.
                permit = room.clone().acquire_many_owned(wanted).await.ok();
            }
            Ok(Some(BulkEvent::Payload(payload))) => {
                let event = MeshEvent::Message { peer, header, payload };
                shared.received.push((event, permit.take()));
            }
            // The other side has sent its last message and closes once it knows that all arrived.
            Ok(None) => {
                let limit = shared.options.flush_timeout;
                return timeout(limit, connection.closed()).await.unwrap_or_else(|_| {
                    let detail = "the other side ended its stream but not the connection";
                    connection.close(detail);
                    Lost::Transport { detail: detail.to_string() }
                });
            }
            Err(ReadError::Frame(error)) => {
                let lost = Lost::Framing(error.clone());
                connection.close_as(crate::lost::code::FRAMING, &error.to_string(), lost.clone());
                return lost;
            }
            Err(ReadError::Lost(lost)) => return lost,
        }
    }
}
