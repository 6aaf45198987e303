//! Messages on a stream: `Content-Length: N`, an empty line, N bytes of JSON.

use serde_json::Value;
use std::io::{self, BufRead, Read as _};

/// Longest message that is read; eight times the longest program.
pub const MAX_BYTES: u64 = 32 << 20;
/// Longest line of a head.
const MAX_HEAD: u64 = 4096;
/// Most lines of a head.
const MAX_LINES: usize = 32;

/// What was read.
#[derive(Debug, PartialEq)]
pub enum Read {
    Message(Value),
    /// No message, but the next one can be read.
    Malformed(String),
    /// The end of the stream, or something after which no beginning can be found.
    End,
}

/// Reads one message.
pub fn read(input: &mut impl BufRead) -> io::Result<Read> {
    let length = match head(input)? {
        Some(length) => length,
        None => return Ok(Read::End),
    };
    if length > MAX_BYTES {
        let skipped = io::copy(&mut input.take(length), &mut io::sink())?;
        return Ok(match skipped == length {
            true => Read::Malformed(format!("{length} bytes; at most {MAX_BYTES} are read")),
            false => Read::End,
        });
    }
    let mut body = Vec::new();
    input.take(length).read_to_end(&mut body)?;
    if (body.len() as u64) < length {
        return Ok(Read::End);
    }
    match serde_json::from_slice(&body) {
        Ok(message) => Ok(Read::Message(message)),
        Err(error) => Ok(Read::Malformed(format!("this is no JSON: {error}"))),
    }
}

/// The length of the body; None at the end of the stream or without a length.
fn head(input: &mut impl BufRead) -> io::Result<Option<u64>> {
    let mut length = None;
    for _ in 0..MAX_LINES {
        let mut line = Vec::new();
        input.take(MAX_HEAD).read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            return Ok(None);
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim();
        if line.is_empty() {
            return Ok(length);
        }
        if let Some((name, value)) = line.split_once(':')
            && name.trim().eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok();
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn all(text: &[u8]) -> Vec<Read> {
        let mut input = io::BufReader::new(text);
        let mut out = Vec::new();
        loop {
            match read(&mut input) {
                Ok(Read::End) | Err(_) => return out,
                Ok(other) => out.push(other),
            }
        }
    }

    #[test]
    fn messages_and_noise() {
        let text =
            b"Content-Length: 2\r\n\r\n{}content-length:7\r\nContent-Type: x\r\n\r\n{\"a\":1}";
        assert_eq!(all(text), [Read::Message(json!({})), Read::Message(json!({"a": 1}))]);
        let noise = all(b"Content-Length: 3\r\n\r\n{]}Content-Length: 2\r\n\r\n[]");
        assert!(matches!(noise[..], [Read::Malformed(_), Read::Message(_)]), "{noise:?}");
        assert!(all(b"Content-Length: 30\r\n\r\n{}").is_empty());
        assert!(all(b"hello\r\n\r\n{}").is_empty());
        assert!(all(&vec![b'x'; 1 << 20]).is_empty());
        assert!(all(b"Content-Length: 99999999999999999999999\r\n\r\n{}").is_empty());
    }

    #[test]
    fn what_is_too_long_is_skipped() {
        let long = MAX_BYTES + 1;
        let mut text = format!("Content-Length: {long}\r\n\r\n").into_bytes();
        text.resize(text.len() + long as usize, b' ');
        text.extend(b"Content-Length: 2\r\n\r\n{}");
        let read = all(&text);
        assert!(matches!(read[..], [Read::Malformed(_), Read::Message(_)]));
        let deep = "[".repeat(100_000);
        let read = all(format!("Content-Length: {}\r\n\r\n{deep}", deep.len()).as_bytes());
        assert!(matches!(read[..], [Read::Malformed(_)]));
    }
}
