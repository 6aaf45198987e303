//! The two tasks of a control connection: one writes what is queued, one reads frames.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

use crate::connection::{Connection, ReadError};
use crate::frame::{FrameReader, FrameWriter};
use crate::lost::{Lost, code};
use crate::outbox::{Budget, Out};

/// Frames handed to the transport at once.
const BATCH: usize = 64;

/// Writes what is queued until told to close, or until the connection ends.
pub(crate) async fn write(
    mut writer: FrameWriter,
    connection: Connection,
    mut queue: UnboundedReceiver<Out<Vec<u8>>>,
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
        // All senders gone means that the facade was dropped without a word.
        let Some(mut next) = next else { break String::new() };
        let (mut bytes, mut close) = (0, None);
        for count in 1.. {
            match next {
                Out::Message(frame) => {
                    bytes += frame.len();
                    if writer.push(frame).is_err() {
                        close = Some("a frame of 4 GiB or more".to_string());
                    }
                }
                Out::Close(reason) => close = Some(reason),
            }
            if close.is_some() || count == BATCH {
                break;
            }
            match queue.try_recv() {
                Ok(more) => next = more,
                Err(_) => break,
            }
        }
        let written = writer.flush();
        if let Some(reason) = close {
            let _ = timeout(flush, written).await;
            break reason;
        }
        if written.await.is_err() {
            // The reading task sees the end of the connection and says why.
            return;
        }
        budget.give(bytes);
    };
    budget.end(Lost::ClosedHere { reason: reason.clone() });
    // Whatever was sent before is to arrive before the reason does.
    let _ = timeout(flush, writer.finish()).await;
    connection.close_sent(&reason).await;
}

/// Reads frames until the connection ends; says why it did.
pub(crate) async fn read(
    mut reader: FrameReader,
    connection: &Connection,
    flush: Duration,
    mut take: impl FnMut(Vec<u8>),
) -> Lost {
    loop {
        match reader.read_frame().await {
            Ok(Some(frame)) => take(frame),
            // The other side has sent its last frame and closes once it knows that all arrived.
            Ok(None) => {
                return match timeout(flush, connection.closed()).await {
                    Ok(lost) => lost,
                    Err(_) => {
                        let detail = "the other side ended its stream but not the connection";
                        connection.close(detail);
                        Lost::Transport { detail: detail.to_string() }
                    }
                };
            }
            Err(ReadError::Frame(error)) => {
                let lost = Lost::Framing(error.clone());
                connection.close_as(code::FRAMING, &error.to_string(), lost.clone());
                return lost;
            }
            Err(ReadError::Lost(lost)) => return lost,
        }
    }
}
