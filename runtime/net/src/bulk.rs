//! Bulk messages: a header of 32 bytes that belongs to the caller, a length, a payload.
//!
//! All messages of one sender travel over one unidirectional stream, so they arrive in order, and
//! the stream's window holds the sender back while the receiver does not take them.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::connection::{Connection, ReadError, WriteError};
use crate::frame::{FrameError, finish};
use crate::payload::Payload;

/// Length of the caller's header of a message, in bytes.
pub const BULK_HEADER_BYTES: usize = 32;

/// The caller's header of a message.
pub type Header = [u8; BULK_HEADER_BYTES];

/// The caller's header, then the payload's length as a little-endian u64.
const HEAD_BYTES: usize = BULK_HEADER_BYTES + 8;

/// Most pieces taken from a stream at once; with packets of 6,500 bytes this is 400 KiB.
const READ_CHUNKS: usize = 64;

/// What a [`BulkDecoder`] found.
#[derive(Debug)]
pub enum BulkEvent {
    /// A message begins; its payload will have so many bytes.
    Begin { header: Header, length: u64 },
    /// The payload of the message that began last, complete.
    Payload(Payload),
}

/// Cuts a stream of chunks into messages without copying payloads. Pure: chunks in, events out.
#[derive(Debug)]
pub struct BulkDecoder {
    limit: u64,
    input: VecDeque<Bytes>,
    head: [u8; HEAD_BYTES],
    head_len: usize,
    /// Bytes of the payload at hand that are missing, once its head is complete.
    missing: Option<u64>,
    length: u64,
    payload: Payload,
    failed: Option<FrameError>,
}

impl BulkDecoder {
    /// A decoder that takes payloads of up to `limit` bytes.
    pub fn new(limit: u64) -> BulkDecoder {
        BulkDecoder {
            limit,
            input: VecDeque::new(),
            head: [0; HEAD_BYTES],
            head_len: 0,
            missing: None,
            length: 0,
            payload: Payload::default(),
            failed: None,
        }
    }

    /// Adds bytes at the end of what is to be decoded.
    pub fn push(&mut self, chunk: Bytes) {
        if !chunk.is_empty() {
            self.input.push_back(chunk);
        }
    }

    /// The next event, or `None` if more bytes are needed.
    ///
    /// # Errors
    /// [`FrameError::TooLong`] as soon as the head is complete; the same error ever after.
    pub fn decode(&mut self) -> Result<Option<BulkEvent>, FrameError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let Some(mut missing) = self.missing else { return self.decode_head() };
        while missing > 0 {
            let Some(mut chunk) = self.input.pop_front() else { break };
            let taken = usize::try_from(missing).unwrap_or(usize::MAX).min(chunk.len());
            let piece = chunk.split_to(taken);
            missing -= taken as u64;
            self.payload.push(piece);
            if !chunk.is_empty() {
                self.input.push_front(chunk);
            }
        }
        if missing > 0 {
            self.missing = Some(missing);
            return Ok(None);
        }
        self.missing = None;
        self.head_len = 0;
        Ok(Some(BulkEvent::Payload(std::mem::take(&mut self.payload))))
    }

    fn decode_head(&mut self) -> Result<Option<BulkEvent>, FrameError> {
        while self.head_len < HEAD_BYTES {
            let Some(mut chunk) = self.input.pop_front() else { return Ok(None) };
            let room = &mut self.head[self.head_len..];
            let piece = chunk.split_to(room.len().min(chunk.len()));
            room[..piece.len()].copy_from_slice(&piece);
            self.head_len += piece.len();
            if !chunk.is_empty() {
                self.input.push_front(chunk);
            }
        }
        let mut header = [0; BULK_HEADER_BYTES];
        let mut length = [0; 8];
        header.copy_from_slice(&self.head[..BULK_HEADER_BYTES]);
        length.copy_from_slice(&self.head[BULK_HEADER_BYTES..]);
        let length = u64::from_le_bytes(length);
        if length > self.limit {
            let error = FrameError::TooLong { length, limit: self.limit };
            self.failed = Some(error.clone());
            return Err(error);
        }
        self.length = length;
        self.missing = Some(length);
        Ok(Some(BulkEvent::Begin { header, length }))
    }

    /// Says whether the stream may end here: between messages it may.
    ///
    /// # Errors
    /// [`FrameError::Truncated`], or the error that stopped the decoder before.
    pub fn finish(&self) -> Result<(), FrameError> {
        match (&self.failed, self.head_len) {
            (Some(error), _) => Err(error.clone()),
            (None, 0) => Ok(()),
            (None, head) => Err(FrameError::Truncated {
                got: (head + self.payload.len()) as u64,
                wanted: (HEAD_BYTES as u64).saturating_add(self.missing.map_or(0, |_| self.length)),
            }),
        }
    }
}

/// Sends bulk messages over one stream. One task owns it.
#[derive(Debug)]
pub struct BulkSender {
    stream: quinn::SendStream,
    connection: Connection,
}

impl BulkSender {
    pub(crate) fn new(stream: quinn::SendStream, connection: Connection) -> Self {
        BulkSender { stream, connection }
    }

    /// Sends a message; the payload is not copied on its way to the packets. Waits while the
    /// other side's window is full. Not to be dropped before it is done: a part may be sent.
    ///
    /// # Errors
    /// [`WriteError::Lost`] if the connection ended, [`WriteError::Stopped`] if the other side
    /// wants no more.
    pub async fn send(&mut self, header: &Header, payload: Bytes) -> Result<(), WriteError> {
        let mut head = Vec::with_capacity(HEAD_BYTES);
        head.extend_from_slice(header);
        head.extend_from_slice(&(payload.len() as u64).to_le_bytes());
        self.stream
            .write_all_chunks(&mut [Bytes::from(head), payload])
            .await
            .map_err(|error| self.connection.write_error(error))
    }

    /// Ends the stream and waits until the other side has received all.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    pub async fn finish(&mut self) -> Result<(), WriteError> {
        finish(&mut self.stream, &self.connection).await
    }
}

/// Receives bulk messages from one stream.
#[derive(Debug)]
pub struct BulkReceiver {
    stream: quinn::RecvStream,
    connection: Connection,
    decoder: BulkDecoder,
}

impl BulkReceiver {
    pub(crate) fn new(stream: quinn::RecvStream, connection: Connection, limit: u64) -> Self {
        BulkReceiver { stream, connection, decoder: BulkDecoder::new(limit) }
    }

    /// The next event, or `None` if the other side finished the stream between messages.
    ///
    /// It may be dropped at any time without losing bytes. A caller that waits between
    /// [`BulkEvent::Begin`] and the next call holds the sender back.
    ///
    /// # Errors
    /// [`ReadError::Frame`] if the bytes are no messages, [`ReadError::Lost`] if the connection
    /// ended, which every wait here ends with.
    pub async fn next(&mut self) -> Result<Option<BulkEvent>, ReadError> {
        loop {
            if let Some(event) = self.decoder.decode()? {
                return Ok(Some(event));
            }
            let mut chunks = [const { Bytes::new() }; READ_CHUNKS];
            match self.stream.read_chunks(&mut chunks).await {
                Ok(Some(count)) => {
                    for chunk in chunks.into_iter().take(count) {
                        self.decoder.push(chunk);
                    }
                }
                Ok(None) => {
                    self.decoder.finish()?;
                    return Ok(None);
                }
                Err(error) => return Err(self.connection.read_error(error)),
            }
        }
    }
}
