//! A received payload: the pieces in which it arrived.

use bytes::Bytes;

/// Bytes in several pieces, in order. Reading it into place costs the only copy on this side.
#[derive(Clone, Debug, Default)]
pub struct Payload {
    chunks: Vec<Bytes>,
    len: usize,
}

impl Payload {
    pub(crate) fn push(&mut self, chunk: Bytes) {
        if !chunk.is_empty() {
            self.len += chunk.len();
            self.chunks.push(chunk);
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pieces, in order, none empty.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        self.chunks.iter().map(|chunk| &chunk[..])
    }

    /// Copies all bytes to `target`, if its length is exactly [`len`](Self::len); says whether.
    #[must_use]
    pub fn copy_to(&self, target: &mut [u8]) -> bool {
        if target.len() != self.len {
            return false;
        }
        let mut rest = target;
        for chunk in &self.chunks {
            let (place, after) = rest.split_at_mut(chunk.len());
            place.copy_from_slice(chunk);
            rest = after;
        }
        true
    }

    /// All bytes in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut whole = Vec::with_capacity(self.len);
        for chunk in &self.chunks {
            whole.extend_from_slice(chunk);
        }
        whole
    }
}

impl PartialEq<[u8]> for Payload {
    fn eq(&self, other: &[u8]) -> bool {
        if self.len != other.len() {
            return false;
        }
        let mut rest = other;
        self.chunks.iter().all(|chunk| {
            let (head, after) = rest.split_at(chunk.len());
            rest = after;
            head == &chunk[..]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_make_the_whole() {
        let mut payload = Payload::default();
        assert!(payload.is_empty() && payload.to_vec().is_empty());
        for piece in [&b"ab"[..], b"", b"c", b"defg"] {
            payload.push(Bytes::copy_from_slice(piece));
        }
        assert_eq!(payload.len(), 7);
        assert_eq!(payload.chunks().count(), 3);
        assert_eq!(payload.to_vec(), b"abcdefg");
        let mut place = [0; 7];
        assert!(payload.copy_to(&mut place));
        assert_eq!(&place, b"abcdefg");
        assert!(!payload.copy_to(&mut [0; 8]));
        assert!(payload == b"abcdefg"[..]);
        assert!(payload != b"abcdefx"[..]);
        assert!(payload != b"abcdef"[..]);
    }
}
