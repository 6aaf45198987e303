//! The few protocol buffers of an event file, written by hand.
//!
//! Field numbers from TensorFlow's event.proto, summary.proto, tensor.proto and
//! tensor_shape.proto, which TensorBoard reads.

mod field {
    pub const EVENT_WALL_TIME: u64 = 1;
    pub const EVENT_STEP: u64 = 2;
    pub const EVENT_FILE_VERSION: u64 = 3;
    pub const EVENT_SUMMARY: u64 = 5;
    pub const SUMMARY_VALUE: u64 = 1;
    pub const VALUE_TAG: u64 = 1;
    pub const VALUE_SIMPLE: u64 = 2;
    pub const VALUE_TENSOR: u64 = 8;
    pub const VALUE_METADATA: u64 = 9;
    pub const METADATA_PLUGIN: u64 = 1;
    pub const PLUGIN_NAME: u64 = 1;
    pub const TENSOR_DTYPE: u64 = 1;
    pub const TENSOR_SHAPE: u64 = 2;
    pub const TENSOR_STRING: u64 = 8;
    pub const SHAPE_DIM: u64 = 2;
    pub const DIM_SIZE: u64 = 1;
}

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;
const FIXED32: u64 = 5;
const DT_STRING: u64 = 7;

/// `wall_time` in seconds since 1970.
pub(crate) fn file_version(wall_time: f64) -> Vec<u8> {
    let mut event = event(wall_time, 0);
    bytes(field::EVENT_FILE_VERSION, b"brain.Event:2", &mut event);
    event
}

/// An event of scalars, single precision as TensorBoard keeps them.
pub(crate) fn scalars(wall_time: f64, step: u64, values: &[(&str, f64)]) -> Vec<u8> {
    let mut summary = Vec::new();
    for (tag, value) in values {
        let mut out = Vec::new();
        bytes(field::VALUE_TAG, tag.as_bytes(), &mut out);
        varint(field::VALUE_SIMPLE << 3 | FIXED32, &mut out);
        out.extend((*value as f32).to_le_bytes());
        bytes(field::SUMMARY_VALUE, &out, &mut summary);
    }
    let mut event = event(wall_time, step);
    bytes(field::EVENT_SUMMARY, &summary, &mut event);
    event
}

/// An event of a text (Markdown): a tensor of one string for the plugin `text`.
pub(crate) fn text(wall_time: f64, step: u64, tag: &str, text: &str) -> Vec<u8> {
    let mut dim = Vec::new();
    number(field::DIM_SIZE, 1, &mut dim);
    let mut shape = Vec::new();
    bytes(field::SHAPE_DIM, &dim, &mut shape);
    let mut tensor = Vec::new();
    number(field::TENSOR_DTYPE, DT_STRING, &mut tensor);
    bytes(field::TENSOR_SHAPE, &shape, &mut tensor);
    bytes(field::TENSOR_STRING, text.as_bytes(), &mut tensor);
    let mut plugin = Vec::new();
    bytes(field::PLUGIN_NAME, b"text", &mut plugin);
    let mut metadata = Vec::new();
    bytes(field::METADATA_PLUGIN, &plugin, &mut metadata);
    let mut value = Vec::new();
    bytes(field::VALUE_TAG, tag.as_bytes(), &mut value);
    bytes(field::VALUE_TENSOR, &tensor, &mut value);
    bytes(field::VALUE_METADATA, &metadata, &mut value);
    let mut summary = Vec::new();
    bytes(field::SUMMARY_VALUE, &value, &mut summary);
    let mut event = event(wall_time, step);
    bytes(field::EVENT_SUMMARY, &summary, &mut event);
    event
}

fn event(wall_time: f64, step: u64) -> Vec<u8> {
    let mut event = Vec::new();
    varint(field::EVENT_WALL_TIME << 3 | FIXED64, &mut event);
    event.extend(wall_time.to_le_bytes());
    if step != 0 {
        number(field::EVENT_STEP, step, &mut event);
    }
    event
}

fn number(field: u64, value: u64, out: &mut Vec<u8>) {
    varint(field << 3 | VARINT, out);
    varint(value, out);
}

fn bytes(field: u64, value: &[u8], out: &mut Vec<u8>) {
    varint(field << 3 | BYTES, out);
    varint(value.len() as u64, out);
    out.extend(value);
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Of an event that holds a summary: its step, and the tag of its first value. None for other
/// events and what is none.
pub(crate) fn summary_of(event: &[u8]) -> Option<(u64, &str)> {
    let mut step = 0;
    let mut summary = None;
    let mut rest = event;
    while !rest.is_empty() {
        match take_field(&mut rest)? {
            (field::EVENT_STEP, Field::Number(value)) => step = value,
            (field::EVENT_SUMMARY, Field::Bytes(bytes)) => summary = Some(bytes),
            _ => {}
        }
    }
    let tag = first(summary?, field::SUMMARY_VALUE).and_then(|v| first(v, field::VALUE_TAG));
    Some((step, tag.and_then(|tag| std::str::from_utf8(tag).ok()).unwrap_or_default()))
}

/// The first field of this number that holds bytes.
fn first(mut message: &[u8], wanted: u64) -> Option<&[u8]> {
    while !message.is_empty() {
        match take_field(&mut message)? {
            (number, Field::Bytes(bytes)) if number == wanted => return Some(bytes),
            _ => {}
        }
    }
    None
}

enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Other,
}

fn take_field<'a>(rest: &mut &'a [u8]) -> Option<(u64, Field<'a>)> {
    let key = take_varint(rest)?;
    let value = match key & 7 {
        VARINT => Field::Number(take_varint(rest)?),
        FIXED64 => take(rest, 8).map(|_| Field::Other)?,
        FIXED32 => take(rest, 4).map(|_| Field::Other)?,
        BYTES => {
            let length = take_varint(rest)?;
            Field::Bytes(take(rest, usize::try_from(length).ok()?)?)
        }
        _ => return None,
    };
    Some((key >> 3, value))
}

fn take<'a>(rest: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (taken, tail) = rest.split_at_checked(n)?;
    *rest = tail;
    Some(taken)
}

fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, tail) = rest.split_first()?;
        *rest = tail;
        value |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    /// As protobuf's own encoder writes them.
    #[test]
    fn golden() {
        assert_eq!(hex(&file_version(1.5)), "09000000000000f83f1a0d627261696e2e4576656e743a32");
        assert_eq!(
            hex(&scalars(1.5, 300, &[("loss", 0.25)])),
            "09000000000000f83f10ac022a0d0a0b0a046c6f7373150000803e"
        );
        assert_eq!(
            hex(&text(1.5, 0, "job", "hi")),
            "09000000000000f83f2a1f0a1d0a036a6f62420c0807120412020801420268694a080a060a0474657874"
        );
    }

    #[test]
    fn steps_are_found() {
        let event = scalars(1.0, u64::MAX, &[("a/b", 1.0), ("c", 2.0)]);
        assert_eq!(summary_of(&event), Some((u64::MAX, "a/b")));
        assert_eq!(summary_of(&text(1.0, 7, "t", "x")), Some((7, "t")));
        assert_eq!(summary_of(&scalars(1.0, 3, &[])), Some((3, "")));
        assert_eq!(summary_of(&file_version(1.0)), None);
        assert_eq!(summary_of(&[]), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = summary_of(&bytes);
        }
    }
}
