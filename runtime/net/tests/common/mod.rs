//! What the tests with real sockets share.
#![allow(dead_code)]

use std::time::Duration;

use monarch_net::{ClusterKey, Identity, Options, Role};

/// A limit that only a hang reaches.
pub const LONG: Duration = Duration::from_secs(30);

pub struct Cluster {
    pub controller: Identity,
    pub worker: Identity,
}

pub fn cluster() -> Cluster {
    let key = ClusterKey::generate().unwrap();
    Cluster {
        controller: Identity::new(&key, Role::Controller),
        worker: Identity::new(&key, Role::Worker),
    }
}

pub fn control() -> Options {
    Options::default()
}

/// Whether this machine has an IPv6 loopback.
pub fn has_ipv6() -> bool {
    std::net::UdpSocket::bind("[::1]:0").is_ok()
}

/// Bytes that differ from place to place, so that a swap or a gap shows.
pub fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        bytes.extend_from_slice(&(state >> 16).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
