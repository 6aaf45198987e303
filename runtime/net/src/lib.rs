//! QUIC endpoints, identities, streams. Invariant: bytes only, it knows no message.
