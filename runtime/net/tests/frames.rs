//! The decoders: however the bytes are cut, the same frames; whatever the bytes, no panic.

use monarch_net::{BulkDecoder, BulkEvent, FrameDecoder, FrameError, Header};
use proptest::prelude::*;

fn encode(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for frame in frames {
        bytes.extend_from_slice(&u32::try_from(frame.len()).unwrap().to_le_bytes());
        bytes.extend_from_slice(frame);
    }
    bytes
}

fn encode_bulk(messages: &[(Header, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (header, payload) in messages {
        bytes.extend_from_slice(header);
        bytes.extend_from_slice(&(payload.len() as u64).to_le_bytes());
        bytes.extend_from_slice(payload);
    }
    bytes
}

/// Cuts `bytes` into pieces whose lengths repeat `cuts`.
fn pieces(bytes: &[u8], cuts: &[usize]) -> Vec<Vec<u8>> {
    let mut rest = bytes;
    let mut cuts = cuts.iter().cycle();
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let (piece, after) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
        pieces.push(piece.to_vec());
        rest = after;
    }
    pieces
}

fn decode(pieces: &[Vec<u8>], limit: u32) -> (Vec<Vec<u8>>, Result<(), FrameError>) {
    let mut decoder = FrameDecoder::new(limit);
    let mut frames = Vec::new();
    for piece in pieces {
        let mut input = &piece[..];
        loop {
            match decoder.decode(&mut input) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break assert!(input.is_empty()),
                Err(error) => return (frames, Err(error)),
            }
        }
    }
    (frames, decoder.finish())
}

type Messages = Vec<(Header, Vec<u8>)>;

/// Messages with their headers, as the decoder of bulk streams gives them.
fn decode_bulk(pieces: Vec<Vec<u8>>, limit: u64) -> (Messages, Result<(), FrameError>) {
    let mut decoder = BulkDecoder::new(limit);
    let mut messages = Vec::new();
    let mut begun = None;
    for piece in pieces {
        decoder.push(piece.into());
        loop {
            match decoder.decode() {
                Ok(Some(BulkEvent::Begin { header, length })) => begun = Some((header, length)),
                Ok(Some(BulkEvent::Payload(payload))) => {
                    let (header, length) = begun.take().unwrap();
                    assert_eq!(payload.len() as u64, length);
                    messages.push((header, payload.to_vec()));
                }
                Ok(None) => break,
                Err(error) => return (messages, Err(error)),
            }
        }
    }
    (messages, decoder.finish())
}

fn frames() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8)
}

fn messages() -> impl Strategy<Value = Messages> {
    prop::collection::vec((any::<Header>(), prop::collection::vec(any::<u8>(), 0..90)), 0..5)
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(1usize..50, 1..6)
}

proptest! {
    #[test]
    fn any_cut_gives_the_same_frames(frames in frames(), cuts in cuts()) {
        let bytes = encode(&frames);
        prop_assert_eq!(decode(&pieces(&bytes, &cuts), 40), (frames, Ok(())));
    }

    #[test]
    fn any_cut_gives_the_same_messages(messages in messages(), cuts in cuts()) {
        let bytes = encode_bulk(&messages);
        prop_assert_eq!(decode_bulk(pieces(&bytes, &cuts), 90), (messages, Ok(())));
    }

    #[test]
    fn a_cut_stream_is_truncated_unless_it_ends_between_frames(
        frames in frames(), keep in 0.0f64..1.0
    ) {
        let bytes = encode(&frames);
        let kept = (bytes.len() as f64 * keep) as usize;
        let (found, end) = decode(&pieces(&bytes[..kept], &[7]), 40);
        let whole = encode(&found).len();
        prop_assert_eq!(&found[..], &frames[..found.len()]);
        match end {
            Ok(()) => prop_assert_eq!(whole, kept),
            Err(FrameError::Truncated { got, wanted }) => {
                prop_assert_eq!(got, (kept - whole) as u64);
                prop_assert!(got < wanted || (got < 4 && wanted == 4));
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..300), cuts in cuts(), limit in 0u32..200
    ) {
        let one_by_one = decode(&pieces(&bytes, &[1]), limit);
        prop_assert_eq!(decode(&pieces(&bytes, &cuts), limit), one_by_one);
        let bulk = decode_bulk(pieces(&bytes, &[1]), u64::from(limit));
        prop_assert_eq!(decode_bulk(pieces(&bytes, &cuts), u64::from(limit)), bulk);
    }
}
