//! Frames: a length of four bytes (little-endian), then so many bytes.

use std::collections::VecDeque;
use std::fmt;

use bytes::Bytes;

use crate::connection::{Connection, ReadError, WriteError};

/// Length of the prefix of a frame, in bytes.
pub const FRAME_PREFIX_BYTES: usize = 4;

/// What a frame may allocate before its bytes have arrived.
const FIRST_ALLOCATION_BYTES: usize = 64 << 10;

/// Below this length a frame travels in one buffer with its prefix.
const COPY_BELOW_BYTES: usize = 4 << 10;

/// Most bytes taken from a stream at once.
const READ_BYTES: usize = 256 << 10;

/// What is wrong with the bytes of the other side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// A frame or payload announces more bytes than this side takes. Nothing was allocated for it.
    TooLong { length: u64, limit: u64 },
    /// The stream ended within a frame, after `got` of `wanted` bytes (prefix or header included).
    Truncated { got: u64, wanted: u64 },
    /// The stream began with something else than expected.
    Unexpected { what: String },
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::TooLong { length, limit } => {
                write!(f, "a frame of {length} bytes, the limit is {limit}")
            }
            FrameError::Truncated { got, wanted } => {
                write!(f, "the stream ended within a frame, after {got} of {wanted} bytes")
            }
            FrameError::Unexpected { what } => f.write_str(what),
        }
    }
}

impl std::error::Error for FrameError {}

/// Cuts a stream of bytes into frames. Pure: bytes in, frames out.
#[derive(Clone, Debug)]
pub struct FrameDecoder {
    limit: u32,
    prefix: [u8; FRAME_PREFIX_BYTES],
    prefix_len: usize,
    /// Length of the frame at hand, once its prefix is complete.
    length: Option<usize>,
    body: Vec<u8>,
    failed: Option<FrameError>,
}

impl FrameDecoder {
    /// A decoder that takes frames of up to `limit` bytes, the prefix not counted.
    pub fn new(limit: u32) -> FrameDecoder {
        FrameDecoder {
            limit,
            prefix: [0; FRAME_PREFIX_BYTES],
            prefix_len: 0,
            length: None,
            body: Vec::new(),
            failed: None,
        }
    }

    /// Takes bytes from the front of `input` until a frame is complete or `input` is empty.
    ///
    /// # Errors
    /// [`FrameError::TooLong`] as soon as the prefix is complete; the same error ever after.
    pub fn decode(&mut self, input: &mut &[u8]) -> Result<Option<Vec<u8>>, FrameError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let length = match self.length {
            Some(length) => length,
            None => match self.decode_prefix(input)? {
                Some(length) => length,
                None => return Ok(None),
            },
        };
        let missing = length - self.body.len();
        let (taken, rest) = input.split_at(missing.min(input.len()));
        *input = rest;
        if self.body.capacity() - self.body.len() < taken.len() {
            // Grow with what has arrived, at most to what was announced.
            let step = self.body.len().max(FIRST_ALLOCATION_BYTES).max(taken.len());
            self.body.reserve_exact(step.min(missing));
        }
        self.body.extend_from_slice(taken);
        if self.body.len() < length {
            return Ok(None);
        }
        self.length = None;
        self.prefix_len = 0;
        Ok(Some(std::mem::take(&mut self.body)))
    }

    fn decode_prefix(&mut self, input: &mut &[u8]) -> Result<Option<usize>, FrameError> {
        while self.prefix_len < FRAME_PREFIX_BYTES {
            let Some((first, rest)) = input.split_first() else { return Ok(None) };
            self.prefix[self.prefix_len] = *first;
            self.prefix_len += 1;
            *input = rest;
        }
        let length = u32::from_le_bytes(self.prefix);
        if length > self.limit {
            let error =
                FrameError::TooLong { length: u64::from(length), limit: u64::from(self.limit) };
            self.failed = Some(error.clone());
            return Err(error);
        }
        let length = length as usize;
        self.length = Some(length);
        Ok(Some(length))
    }

    /// Says whether the stream may end here: between frames it may.
    ///
    /// # Errors
    /// [`FrameError::Truncated`], or the error that stopped the decoder before.
    pub fn finish(&self) -> Result<(), FrameError> {
        match (&self.failed, self.prefix_len) {
            (Some(error), _) => Err(error.clone()),
            (None, 0) => Ok(()),
            (None, prefix) => Err(FrameError::Truncated {
                got: (prefix + self.body.len()) as u64,
                wanted: (FRAME_PREFIX_BYTES + self.length.unwrap_or(0)) as u64,
            }),
        }
    }
}

/// Reads frames from a stream.
#[derive(Debug)]
pub struct FrameReader {
    stream: quinn::RecvStream,
    connection: Connection,
    decoder: FrameDecoder,
    /// Bytes received and not yet decoded.
    pending: Bytes,
}

impl FrameReader {
    pub(crate) fn new(stream: quinn::RecvStream, connection: Connection, limit: u32) -> Self {
        FrameReader { stream, connection, decoder: FrameDecoder::new(limit), pending: Bytes::new() }
    }

    /// The next frame, or `None` if the other side finished the stream between frames.
    ///
    /// It may be dropped at any time without losing bytes.
    ///
    /// # Errors
    /// [`ReadError::Frame`] if the bytes are no frames, [`ReadError::Lost`] if the connection
    /// ended, which every wait here ends with.
    pub async fn read_frame(&mut self) -> Result<Option<Vec<u8>>, ReadError> {
        loop {
            let mut input = &self.pending[..];
            let frame = self.decoder.decode(&mut input)?;
            let used = self.pending.len() - input.len();
            let _ = self.pending.split_to(used);
            if frame.is_some() {
                return Ok(frame);
            }
            match self.stream.read_chunk(READ_BYTES, true).await {
                Ok(Some(chunk)) => self.pending = chunk.bytes,
                Ok(None) => {
                    self.decoder.finish()?;
                    return Ok(None);
                }
                Err(error) => return Err(self.connection.read_error(error)),
            }
        }
    }
}

/// Writes frames to a stream.
#[derive(Debug)]
pub struct FrameWriter {
    stream: quinn::SendStream,
    connection: Connection,
    queue: VecDeque<Bytes>,
}

impl FrameWriter {
    pub(crate) fn new(stream: quinn::SendStream, connection: Connection) -> Self {
        FrameWriter { stream, connection, queue: VecDeque::new() }
    }

    /// Queues a frame; [`flush`](Self::flush) sends it.
    ///
    /// # Errors
    /// [`WriteError::TooLong`] beyond what a prefix can say.
    pub fn push(&mut self, frame: Vec<u8>) -> Result<(), WriteError> {
        let length = u32::try_from(frame.len())
            .map_err(|_| WriteError::TooLong { length: frame.len() as u64 })?;
        if frame.len() < COPY_BELOW_BYTES {
            let mut whole = Vec::with_capacity(FRAME_PREFIX_BYTES + frame.len());
            whole.extend_from_slice(&length.to_le_bytes());
            whole.extend_from_slice(&frame);
            self.queue.push_back(whole.into());
        } else {
            self.queue.push_back(Bytes::copy_from_slice(&length.to_le_bytes()));
            self.queue.push_back(frame.into());
        }
        Ok(())
    }

    /// Hands all queued frames to the transport; waits while the other side's window is full.
    ///
    /// It may be dropped at any time: what is not handed over stays queued.
    ///
    /// # Errors
    /// [`WriteError::Lost`] if the connection ended, [`WriteError::Stopped`] if the other side
    /// wants no more.
    pub async fn flush(&mut self) -> Result<(), WriteError> {
        while !self.queue.is_empty() {
            let chunks = self.queue.make_contiguous();
            let written = self
                .stream
                .write_chunks(chunks)
                .await
                .map_err(|error| self.connection.write_error(error))?;
            self.queue.drain(..written.chunks);
        }
        Ok(())
    }

    /// Queues a frame and sends all that is queued. See [`push`](Self::push) and
    /// [`flush`](Self::flush).
    ///
    /// # Errors
    /// Those of both.
    pub async fn write_frame(&mut self, frame: Vec<u8>) -> Result<(), WriteError> {
        self.push(frame)?;
        self.flush().await
    }

    /// Sends what is queued, ends the stream, and waits until the other side has received all.
    ///
    /// # Errors
    /// Those of [`flush`](Self::flush).
    pub async fn finish(&mut self) -> Result<(), WriteError> {
        self.flush().await?;
        finish(&mut self.stream, &self.connection).await
    }
}

/// Ends a stream and waits until the other side's transport has acknowledged all of it.
pub(crate) async fn finish(
    stream: &mut quinn::SendStream,
    connection: &Connection,
) -> Result<(), WriteError> {
    // Fails only if the stream was ended before, and then there is nothing to end.
    let _ = stream.finish();
    match stream.stopped().await {
        Ok(None) => Ok(()),
        Ok(Some(_)) => Err(WriteError::Stopped),
        Err(quinn::StoppedError::ConnectionLost(error)) => {
            Err(WriteError::Lost(connection.lost(&error)))
        }
        Err(quinn::StoppedError::ZeroRttRejected) => Err(WriteError::Stopped),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode_all(decoder: &mut FrameDecoder, mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while let Some(frame) = decoder.decode(&mut bytes).unwrap() {
            frames.push(frame);
        }
        assert!(bytes.is_empty());
        frames
    }

    #[test]
    fn a_long_frame_is_refused_before_any_allocation() {
        let mut decoder = FrameDecoder::new(10);
        let mut input: &[u8] = &[11, 0, 0, 0, 1, 2, 3];
        let error = FrameError::TooLong { length: 11, limit: 10 };
        assert_eq!(decoder.decode(&mut input), Err(error.clone()));
        assert_eq!(decoder.body.capacity(), 0);
        assert_eq!(decoder.decode(&mut &[0u8; 4][..]), Err(error.clone()), "it stays so");
        assert_eq!(decoder.finish(), Err(error));
    }

    #[test]
    fn an_announced_length_allocates_little() {
        let mut decoder = FrameDecoder::new(u32::MAX);
        let mut input: &[u8] = &[0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(decoder.decode(&mut input), Ok(None));
        assert!(decoder.body.capacity() <= FIRST_ALLOCATION_BYTES);
        let wanted = 4 + u64::from(u32::MAX);
        assert_eq!(decoder.finish(), Err(FrameError::Truncated { got: 5, wanted }));
    }

    #[test]
    fn an_end_within_a_prefix_is_told_from_a_clean_one() {
        let mut decoder = FrameDecoder::new(10);
        assert_eq!(decoder.finish(), Ok(()));
        assert_eq!(decode_all(&mut decoder, &[1, 0]), Vec::<Vec<u8>>::new());
        assert_eq!(decoder.finish(), Err(FrameError::Truncated { got: 2, wanted: 4 }));
        assert_eq!(decode_all(&mut decoder, &[0, 0, 9, 0, 0, 0, 0]), [vec![9], vec![]]);
        assert_eq!(decoder.finish(), Ok(()));
    }
}
