//! TFRecord framing: length (u64), its masked CRC, data, their masked CRC; little-endian.

use crate::crc32c::masked;

const HEAD: usize = 12;
const TAIL: usize = 4;

/// Appends a record to `out`.
pub(crate) fn frame(data: &[u8], out: &mut Vec<u8>) {
    let length = (data.len() as u64).to_le_bytes();
    out.extend(length);
    out.extend(masked(&length).to_le_bytes());
    out.extend(data);
    out.extend(masked(data).to_le_bytes());
}

/// Splits off the first whole record: (data, the record with its frame). None at the end, and
/// where a record is cut off or damaged.
pub(crate) fn next(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let (check, rest) = rest.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*check) != masked(length) {
        return None;
    }
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let data = rest.get(..length)?;
    let check = rest.get(length..)?.first_chunk::<TAIL>()?;
    if u32::from_le_bytes(*check) != masked(data) {
        return None;
    }
    Some((data, &bytes[..HEAD + length + TAIL]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn round_trip_and_torn_tails() {
        let mut bytes = Vec::new();
        frame(b"first", &mut bytes);
        let first = bytes.len();
        frame(b"", &mut bytes);
        let (data, record) = next(&bytes).unwrap();
        assert_eq!((data, record.len()), (&b"first"[..], first));
        assert_eq!(next(&bytes[first..]).unwrap().0, b"");
        assert!(next(&[]).is_none());
        for cut in 0..first {
            assert!(next(&bytes[..cut]).is_none());
            let mut changed = bytes[..first].to_vec();
            changed[cut] ^= 4;
            assert!(next(&changed).is_none());
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = next(&bytes);
        }

        #[test]
        fn any_length_never_panics(length: u64, bytes: Vec<u8>) {
            let mut record = length.to_le_bytes().to_vec();
            record.extend(masked(&length.to_le_bytes()).to_le_bytes());
            record.extend(bytes);
            let _ = next(&record);
        }
    }
}
