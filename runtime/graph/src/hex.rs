/// Hexadecimal digits of bytes, lower case: how hashes are shown and stored.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
