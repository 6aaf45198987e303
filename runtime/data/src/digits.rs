//! The bundled images of handwritten digits.

use flate2::read::GzDecoder;
use std::fmt;
use std::io::Read;

/// Pixels of an image.
pub const PIXELS: usize = 64;

/// The file has 1,797 lines of 147 bytes on average; anything much larger is not it.
const MAX_CSV_BYTES: u64 = 1 << 20;

const BUNDLED: &[u8] = include_bytes!("../../../stdlib/data/digits.csv.gz");

/// Images and labels, in file order.
#[derive(Clone, Debug, PartialEq)]
pub struct Digits {
    /// f32[n, 64], row-major: pixels / 8 - 1, so -1..=1: networks learn faster from centred inputs
    /// (LeCun et al. 1998, "Efficient BackProp").
    pub x: Vec<f32>,
    /// i32[n]: 0..=9.
    pub y: Vec<i32>,
}

/// What is wrong with a line of the CSV file (lines count from 1; 0 is the compression).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvError {
    pub line: usize,
    pub what: &'static str,
}

impl fmt::Display for CsvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "digits, line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for CsvError {}

impl Digits {
    /// The 1,797 images that come with the standard library.
    pub fn bundled() -> Result<Digits, CsvError> {
        Digits::parse_gzip(BUNDLED)
    }

    /// Decompresses, at most 1 MiB, and parses.
    pub fn parse_gzip(bytes: &[u8]) -> Result<Digits, CsvError> {
        let mut csv = Vec::new();
        GzDecoder::new(bytes)
            .take(MAX_CSV_BYTES + 1)
            .read_to_end(&mut csv)
            .map_err(|_| CsvError { line: 0, what: "not a gzip file, or a damaged one" })?;
        if csv.len() as u64 > MAX_CSV_BYTES {
            return Err(CsvError { line: 0, what: "larger than 1 MiB" });
        }
        Digits::parse_csv(&csv)
    }

    /// Lines of 64 pixels (0..=16) and a digit (0..=9), separated by commas.
    pub fn parse_csv(csv: &[u8]) -> Result<Digits, CsvError> {
        let mut digits = Digits { x: Vec::new(), y: Vec::new() };
        let csv = csv.strip_suffix(b"\n").unwrap_or(csv);
        for (i, row) in csv.split(|&b| b == b'\n').enumerate() {
            let row = row.strip_suffix(b"\r").unwrap_or(row);
            digits.push(row).map_err(|what| CsvError { line: i + 1, what })?;
        }
        Ok(digits)
    }

    fn push(&mut self, row: &[u8]) -> Result<(), &'static str> {
        let mut fields = row.split(|&b| b == b',');
        for _ in 0..PIXELS {
            let pixel = number(fields.next().ok_or("fewer than 65 numbers")?)?;
            if pixel > 16 {
                return Err("a pixel above 16");
            }
            self.x.push(f32::from(pixel) / 8.0 - 1.0);
        }
        let label = number(fields.next().ok_or("fewer than 65 numbers")?)?;
        if label > 9 {
            return Err("a digit above 9");
        }
        if fields.next().is_some() {
            return Err("more than 65 numbers");
        }
        self.y.push(i32::from(label));
        Ok(())
    }

    pub fn samples(&self) -> u64 {
        self.y.len() as u64
    }
}

fn number(field: &[u8]) -> Result<u8, &'static str> {
    let text = std::str::from_utf8(field).map_err(|_| "not a number")?;
    if text.is_empty() || text.len() > 2 || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err("not a number of one or two digits");
    }
    text.parse().map_err(|_| "not a number")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bundled_set_is_whole() {
        let digits = Digits::bundled().unwrap();
        assert_eq!(digits.samples(), 1797);
        assert_eq!(digits.x.len(), 1797 * 64);
        assert_eq!(digits.y[..4], [0, 1, 2, 3]);
        assert_eq!(digits.x[2..5], [-0.375, 0.625, 0.125]);
        // Images per digit, as `sklearn.datasets.load_digits` documents the test part of the set.
        let count = |d| digits.y.iter().filter(|&&y| y == d).count();
        let counts: Vec<usize> = (0..10).map(count).collect();
        assert_eq!(counts, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
    }

    #[test]
    fn mistakes_name_the_line() {
        let row = ["0"; 65].join(",");
        let parse = |text: String| Digits::parse_csv(text.as_bytes());
        assert_eq!(parse(format!("{row}\n{row}\n")).unwrap().samples(), 2);
        assert_eq!(parse(format!("{row}\r\n{row}")).unwrap().samples(), 2);
        assert_eq!(parse(format!("{row}\n\n{row}\n")).unwrap_err().line, 2);
        assert_eq!(parse(format!("{row},0\n")).unwrap_err().what, "more than 65 numbers");
        assert_eq!(parse("17,".repeat(64) + "0").unwrap_err().what, "a pixel above 16");
        assert_eq!(parse("+1,".repeat(64) + "0").unwrap_err().line, 1);
        assert!(Digits::parse_gzip(b"no").is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, text in "[0-9,\n\r]{0,400}") {
            let _ = Digits::parse_gzip(&bytes);
            let _ = Digits::parse_csv(&bytes);
            let _ = Digits::parse_csv(text.as_bytes());
        }
    }
}
