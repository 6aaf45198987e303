//! The secret of a cluster: 32 random bytes, kept in a file as 64 hex digits.

use std::fmt;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ring::rand::{SecureRandom, SystemRandom};

/// Length of a cluster key in bytes.
const KEY_BYTES: usize = 32;

/// A key file longer than this is not a key file; it is not read to its end.
const MAX_FILE_BYTES: u64 = 4096;

/// The secret that makes processes members of one cluster.
///
/// It is never sent. The keys of both roles are derived from it (see
/// [`Identity`](crate::Identity)). `Debug` does not print it.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKey([u8; KEY_BYTES]);

/// Why there is no cluster key.
#[derive(Debug)]
pub enum KeyError {
    /// The text has another length than 64 digits.
    Length { found: usize },
    /// A character is not a hex digit; `position` counts characters from 0.
    NotHex { found: char, position: usize },
    /// The bytes repeat: nobody drew them at random.
    NotRandom,
    /// The operating system gave no random bytes.
    NoRandomness,
    /// The file holds no key.
    InFile { path: PathBuf, why: Box<KeyError> },
    /// The file could not be read.
    Read { path: PathBuf, source: io::Error },
    /// The file exists; a key is never overwritten.
    Exists { path: PathBuf },
    /// The file could not be written.
    Write { path: PathBuf, source: io::Error },
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MAKE: &str = "a random key is made by `openssl rand -hex 32`";
        match self {
            KeyError::Length { found } => write!(
                f,
                "a cluster key is 64 hex digits (32 random bytes), this has {found} characters; \
                 a passphrase can be guessed and is not taken: {MAKE}"
            ),
            KeyError::NotHex { found, position } => write!(
                f,
                "a cluster key is 64 hex digits, but character {} is {found:?}; {MAKE}",
                position + 1
            ),
            KeyError::NotRandom => {
                write!(f, "this cluster key is not random, it can be guessed; {MAKE}")
            }
            KeyError::NoRandomness => {
                write!(f, "the operating system gave no random bytes for a cluster key")
            }
            KeyError::InFile { path, why } => write!(f, "{}: {why}", path.display()),
            KeyError::Read { path, source } => {
                write!(f, "cannot read the cluster key {}: {source}", path.display())
            }
            KeyError::Exists { path } => write!(
                f,
                "{} exists, a cluster key is never overwritten; remove the file first, or name \
                 another one",
                path.display()
            ),
            KeyError::Write { path, source } => {
                write!(f, "cannot write the cluster key {}: {source}", path.display())
            }
        }
    }
}

impl std::error::Error for KeyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            KeyError::Read { source, .. } | KeyError::Write { source, .. } => Some(source),
            KeyError::InFile { why, .. } => Some(why.as_ref()),
            _ => None,
        }
    }
}

impl ClusterKey {
    /// Draws a new key from the operating system's random numbers.
    ///
    /// # Errors
    /// [`KeyError::NoRandomness`].
    pub fn generate() -> Result<ClusterKey, KeyError> {
        let mut bytes = [0; KEY_BYTES];
        SystemRandom::new().fill(&mut bytes).map_err(|_| KeyError::NoRandomness)?;
        Ok(ClusterKey(bytes))
    }

    /// Reads a key from 64 hex digits; white space around them does not count.
    ///
    /// # Errors
    /// [`KeyError::Length`], [`KeyError::NotHex`] or [`KeyError::NotRandom`].
    pub fn parse(text: &str) -> Result<ClusterKey, KeyError> {
        let text = text.trim();
        let found = text.chars().count();
        if found != 2 * KEY_BYTES {
            return Err(KeyError::Length { found });
        }
        let mut bytes = [0u8; KEY_BYTES];
        for (position, digit) in text.chars().enumerate() {
            let value = digit.to_digit(16).ok_or(KeyError::NotHex { found: digit, position })?;
            let slot = bytes.get_mut(position / 2).ok_or(KeyError::Length { found })?;
            // The digit is below 16, so nothing is lost.
            *slot = (*slot << 4) | value as u8;
        }
        let key = ClusterKey(bytes);
        if key.repeats() { Err(KeyError::NotRandom) } else { Ok(key) }
    }

    /// 32 random bytes have fewer than 12 different values once in 10^16 draws.
    fn repeats(&self) -> bool {
        let mut seen = [false; 256];
        for byte in self.0 {
            seen[usize::from(byte)] = true;
        }
        seen.iter().filter(|seen| **seen).count() < 12
    }

    /// The key as 64 lower-case hex digits. It is the secret itself: do not log it.
    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }

    /// Reads a key from a file that holds its hex digits.
    ///
    /// # Errors
    /// [`KeyError::Read`], or [`KeyError::InFile`] with the reason.
    pub fn from_file(path: impl AsRef<Path>) -> Result<ClusterKey, KeyError> {
        use std::io::Read;
        let path = path.as_ref();
        let read = |source| KeyError::Read { path: path.to_path_buf(), source };
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(read)?;
        file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).map_err(read)?;
        ClusterKey::parse(&String::from_utf8_lossy(&bytes))
            .map_err(|why| KeyError::InFile { path: path.to_path_buf(), why: Box::new(why) })
    }

    /// Writes the key to a new file that only its owner can read (mode 0600).
    ///
    /// # Errors
    /// [`KeyError::Exists`] if there is a file, which stays as it is, or [`KeyError::Write`].
    pub fn to_file(&self, path: impl AsRef<Path>) -> Result<(), KeyError> {
        let path = path.as_ref();
        let write = |source: io::Error| match source.kind() {
            io::ErrorKind::AlreadyExists => KeyError::Exists { path: path.to_path_buf() },
            _ => KeyError::Write { path: path.to_path_buf(), source },
        };
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(path).map_err(write)?;
        file.write_all(self.to_hex().as_bytes()).map_err(write)?;
        file.write_all(b"\n").map_err(write)?;
        file.sync_all().map_err(write)
    }

    pub(crate) fn secret(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl std::str::FromStr for ClusterKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<ClusterKey, KeyError> {
        ClusterKey::parse(text)
    }
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey(secret)")
    }
}

/// Lower-case hex digits of `bytes`.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn hex_text_round_trips() {
        let key = ClusterKey::generate().unwrap();
        let text = key.to_hex();
        assert_eq!(text.len(), 64);
        assert_eq!(ClusterKey::parse(&format!("  {text}\n")).unwrap(), key);
        assert_eq!(ClusterKey::parse(&text.to_uppercase()).unwrap(), key);
        assert_ne!(ClusterKey::generate().unwrap(), key);
    }

    #[test]
    fn a_passphrase_is_refused_with_the_way_out() {
        let error = ClusterKey::parse("correct horse").unwrap_err().to_string();
        assert!(error.contains("13 characters"), "{error}");
        assert!(error.contains("openssl rand -hex 32"), "{error}");
        let text = "correct horse battery staple correct horse battery staple 012345";
        assert_eq!(text.len(), 64);
        let error = ClusterKey::parse(text).unwrap_err();
        assert!(matches!(error, KeyError::NotHex { found: 'o', position: 1 }), "{error:?}");
        assert!(matches!(ClusterKey::parse(&"0".repeat(64)), Err(KeyError::NotRandom)));
        assert!(matches!(ClusterKey::parse(&"deadbeef".repeat(8)), Err(KeyError::NotRandom)));
        assert!(matches!(ClusterKey::parse(""), Err(KeyError::Length { found: 0 })));
        assert!(ClusterKey::parse(&"é".repeat(64)).is_err());
    }

    #[test]
    fn a_key_file_is_private_and_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cluster.key");
        let key = ClusterKey::generate().unwrap();
        key.to_file(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(ClusterKey::from_file(&path).unwrap(), key);
        let error = ClusterKey::generate().unwrap().to_file(&path).unwrap_err();
        assert!(matches!(error, KeyError::Exists { .. }), "{error:?}");
        assert_eq!(ClusterKey::from_file(&path).unwrap(), key);

        let missing = ClusterKey::from_file(dir.path().join("none")).unwrap_err();
        assert!(missing.to_string().contains("none"), "{missing}");
        std::fs::write(&path, "hunter2").unwrap();
        let short = ClusterKey::from_file(&path).unwrap_err().to_string();
        assert!(short.contains("cluster.key") && short.contains("7 characters"), "{short}");
    }

    #[test]
    fn debug_does_not_show_the_secret() {
        let key = ClusterKey::generate().unwrap();
        assert!(!format!("{key:?}").contains(&key.to_hex()[..8]));
    }
}
