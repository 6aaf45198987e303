//! Settings of endpoints, and the transport parameters that are known to work.
//!
//! Some settings hang or panic the QUIC implementation instead of failing: a packet payload above
//! 6,553 bytes with segmentation offload (ten packets then exceed one 64 KiB datagram and the
//! kernel's error is swallowed), a first packet larger than the congestion window, a payload of
//! 16 KiB and more. [`Tuning::validate`] refuses them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use quinn::congestion::CubicConfig;
use quinn::{IdleTimeout, TransportConfig, VarInt};

/// Version of the protocol spoken by default: ALPN `monarch/1`.
pub const PROTOCOL_VERSION: u16 = 1;

const MIB: u64 = 1 << 20;

/// QUIC's own idle timeout: beyond all of ours. The watch over each connection knows better, and
/// tells the other side; this one would count time in which a process was stopped.
const QUIC_IDLE: Duration = Duration::from_secs(2 * 3600);

/// What an endpoint carries: it decides the windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Small frames, many connections.
    Control,
    /// Large payloads, few connections.
    Bulk,
}

/// Settings of an endpoint and its connections.
#[derive(Clone, Debug)]
pub struct Options {
    /// Protocol version: both sides must have the same.
    pub version: u16,
    pub traffic: Traffic,
    /// A connection on which nothing was heard for so long is lost. Only time in which this side
    /// listened counts; five signs of life must be lost for it, and their repetitions.
    pub idle_timeout: Duration,
    /// A silent connection sends a sign of life so often.
    pub keep_alive: Duration,
    /// While nothing is heard, how often to ask the other side's operating system whether the
    /// socket still exists. A killed process is found after two refusals: on this machine within
    /// three intervals, elsewhere (if "port unreachable" passes the firewalls) a keep-alive
    /// later. `None`: only the idle timeout finds it.
    pub probe: Option<Duration>,
    /// The longest a newcomer may take to prove itself, and a side that has answered at all may
    /// take to let this one in.
    pub handshake_timeout: Duration,
    /// The longest that nothing at all may be heard from a peer that a mesh connects to.
    pub answer_timeout: Duration,
    /// The longest a close waits until the other side has received what was sent before.
    pub flush_timeout: Duration,
    /// Longest control frame taken from the other side, in bytes.
    pub max_frame: u32,
    /// Longest bulk payload taken from the other side, in bytes.
    pub max_payload: u64,
    /// Bytes that may wait to be sent to one peer.
    pub max_queued: usize,
    /// Bytes received from one peer that may wait to be taken; more stay with the sender.
    pub max_received: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            version: PROTOCOL_VERSION,
            traffic: Traffic::Control,
            idle_timeout: Duration::from_secs(2),
            keep_alive: Duration::from_millis(400),
            probe: Some(Duration::from_millis(200)),
            handshake_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(2),
            flush_timeout: Duration::from_secs(2),
            max_frame: 64 << 20,
            max_payload: 4 << 30,
            max_queued: 256 << 20,
            max_received: 256 << 20,
        }
    }
}

impl Options {
    /// The defaults for bulk payloads.
    pub fn bulk() -> Options {
        Options { traffic: Traffic::Bulk, ..Options::default() }
    }

    /// Refuses settings under which connections would end by themselves or never.
    pub(crate) fn validate(&self) -> Result<(), TuningError> {
        let says = |text: &str| Err(TuningError(text.to_string()));
        if self.idle_timeout < Duration::from_millis(10) {
            return says("the idle timeout must be at least 10 ms");
        }
        if self.idle_timeout > Duration::from_secs(3600) {
            return says("the idle timeout must be at most an hour");
        }
        if self.keep_alive.is_zero() || self.keep_alive * 2 > self.idle_timeout {
            return says("keep-alive must be above zero and at most half the idle timeout");
        }
        if self.probe.is_some_and(|probe| probe < Duration::from_millis(1)) {
            return says("the probe interval must be at least 1 ms");
        }
        let waits = [self.handshake_timeout, self.answer_timeout, self.flush_timeout];
        if waits.iter().any(Duration::is_zero) {
            return says("timeouts must be above zero");
        }
        if self.max_frame == 0 || self.max_payload == 0 {
            return says("frames and payloads must be allowed at least one byte");
        }
        if self.max_queued == 0 || self.max_received < 1024 {
            return says("queues must be allowed at least 1 KiB");
        }
        Ok(())
    }

    /// The protocol names offered: this version, then the name all versions share. Two sides that
    /// have only the latter in common finish the handshake, tell each other their versions, and
    /// part.
    pub(crate) fn alpn(&self) -> Vec<Vec<u8>> {
        vec![self.alpn_own(), b"monarch".to_vec()]
    }

    pub(crate) fn alpn_own(&self) -> Vec<u8> {
        format!("monarch/{}", self.version).into_bytes()
    }

    /// The server name a client sends: it tells the version, which TLS has no other place for.
    pub(crate) fn server_name(&self) -> String {
        format!("v{}.monarch", self.version)
    }
}

/// The version in a server name made by [`Options::server_name`].
pub(crate) fn version_of(server_name: &str) -> Option<u16> {
    server_name.strip_prefix('v')?.strip_suffix(".monarch")?.parse().ok()
}

/// A setting that would hang, panic or cut connections, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TuningError(String);

impl fmt::Display for TuningError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TuningError {}

/// Largest packet payload with which ten packets fit into one offloaded datagram, rounded down.
pub(crate) const MAX_PAYLOAD_BYTES: u16 = 6500;

/// Size of the socket buffers asked for, in bytes.
const SOCKET_BUFFER_BYTES: u64 = 4 * MIB;

/// Transport parameters of one kind of path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// UDP payload of the first packets, in bytes; without `discover` of all.
    pub payload: u16,
    /// Whether to look for a larger payload (up to the usual Ethernet's 1,452 bytes).
    pub discover: bool,
    /// Congestion window at the start, in bytes.
    pub initial_window: u64,
    /// Unread bytes of one stream, in bytes.
    pub stream_window: u32,
    /// Unread bytes of one connection, in bytes.
    pub connection_window: u32,
    /// Unacknowledged bytes of one connection, in bytes.
    pub send_window: u64,
    /// The round trip assumed before one is measured.
    pub initial_rtt: Duration,
}

impl Tuning {
    /// For peers on this machine. `socket_buffer` is what the kernel granted: a first burst that
    /// does not fit would only be lost.
    pub fn loopback(traffic: Traffic, socket_buffer: u64) -> Tuning {
        Tuning {
            payload: MAX_PAYLOAD_BYTES,
            discover: false,
            initial_window: (socket_buffer / 2).clamp(64 << 10, 4 * MIB),
            initial_rtt: Duration::from_millis(5),
            ..Tuning::network(traffic)
        }
    }

    /// For peers across a network.
    pub fn network(traffic: Traffic) -> Tuning {
        let (stream, connection) = match traffic {
            Traffic::Control => (2 << 20, 4 << 20),
            Traffic::Bulk => (64 << 20, 64 << 20),
        };
        Tuning {
            payload: 1200,
            discover: true,
            initial_window: 14_720,
            stream_window: stream,
            connection_window: connection,
            send_window: u64::from(connection),
            initial_rtt: Duration::from_millis(50),
        }
    }

    /// Refuses what is known to hang or panic.
    ///
    /// # Errors
    /// [`TuningError`], which names the setting and its limit.
    pub fn validate(&self) -> Result<(), TuningError> {
        if !(1200..=MAX_PAYLOAD_BYTES).contains(&self.payload) {
            return Err(TuningError(format!(
                "a packet payload of {} bytes: it must be 1200 to {MAX_PAYLOAD_BYTES}, or \
                 segmentation offload stalls",
                self.payload
            )));
        }
        if self.initial_window < 2 * u64::from(self.payload) {
            return Err(TuningError(format!(
                "an initial window of {} bytes: it must hold two packets of {} bytes, or nothing \
                 is ever sent",
                self.initial_window, self.payload
            )));
        }
        if self.stream_window == 0 || self.connection_window < self.stream_window {
            return Err(TuningError(format!(
                "a connection window of {} bytes: it must hold a stream's {} bytes",
                self.connection_window, self.stream_window
            )));
        }
        if self.send_window < u64::from(self.payload) {
            return Err(TuningError(format!(
                "a send window of {} bytes: it must hold a packet of {} bytes",
                self.send_window, self.payload
            )));
        }
        if self.initial_rtt.is_zero() || self.initial_rtt > Duration::from_secs(10) {
            return Err(TuningError(
                "the initial round trip must be above 0 and below 10 s".into(),
            ));
        }
        Ok(())
    }

    /// The transport configuration, validated.
    pub(crate) fn transport(&self, options: &Options) -> Result<Arc<TransportConfig>, TuningError> {
        self.validate()?;
        let idle = IdleTimeout::try_from(QUIC_IDLE)
            .map_err(|_| TuningError("the idle timeout is too long".into()))?;
        let mut cubic = CubicConfig::default();
        cubic.initial_window(self.initial_window);
        let mut config = TransportConfig::default();
        config
            .max_idle_timeout(Some(idle))
            .keep_alive_interval(Some(options.keep_alive))
            .initial_rtt(self.initial_rtt)
            .initial_mtu(self.payload)
            .stream_receive_window(VarInt::from_u32(self.stream_window))
            .receive_window(VarInt::from_u32(self.connection_window))
            .send_window(self.send_window)
            .max_concurrent_bidi_streams(VarInt::from_u32(4))
            .max_concurrent_uni_streams(VarInt::from_u32(4))
            .datagram_receive_buffer_size(None)
            .congestion_controller_factory(Arc::new(cubic));
        if !self.discover {
            config.mtu_discovery_config(None);
        }
        Ok(Arc::new(config))
    }
}

/// Whether packets to or from this address stay on this machine's loopback interface.
pub(crate) fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// Binds a UDP socket and asks for large buffers; returns what was granted, in bytes.
pub(crate) fn bind_socket(addr: SocketAddr) -> std::io::Result<(std::net::UdpSocket, u64)> {
    let socket = std::net::UdpSocket::bind(addr)?;
    let wanted = libc::c_int::try_from(SOCKET_BUFFER_BYTES).unwrap_or(libc::c_int::MAX);
    // The forced variants need a privilege and pass the system's limit; without it the plain ones
    // are cut to the limit, silently. Neither failing is an error: transfers are slower.
    for (forced, plain) in
        [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
    {
        if !set_option(&socket, forced, wanted) {
            set_option(&socket, plain, wanted);
        }
    }
    // The kernel doubles what it is asked for, to pay for its own bookkeeping.
    let granted = get_option(&socket, libc::SO_RCVBUF).unwrap_or(0) / 2;
    Ok((socket, u64::try_from(granted).unwrap_or(0)))
}

fn set_option(socket: &std::net::UdpSocket, option: libc::c_int, value: libc::c_int) -> bool {
    let length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the descriptor is open while `socket` lives; `value` is a C int of that length.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const value).cast(),
            length,
        ) == 0
    }
}

fn get_option(socket: &std::net::UdpSocket, option: libc::c_int) -> Option<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the descriptor is open while `socket` lives; `value` has room for a C int, and
    // `length` says so.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    (result == 0).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_tunings_hold() {
        for traffic in [Traffic::Control, Traffic::Bulk] {
            Tuning::network(traffic).validate().unwrap();
            for buffer in [0, 100_000, 4 << 20, u64::MAX] {
                Tuning::loopback(traffic, buffer).validate().unwrap();
            }
        }
        assert_eq!(Tuning::loopback(Traffic::Bulk, 8 << 20).initial_window, 4 << 20);
    }

    #[test]
    fn settings_that_hang_or_panic_are_refused() {
        let good = Tuning::loopback(Traffic::Bulk, 8 << 20);
        for bad in [
            Tuning { payload: 6554, ..good.clone() },
            Tuning { payload: 16_384, ..good.clone() },
            Tuning { payload: 1199, ..good.clone() },
            Tuning { initial_window: 12_000, ..good.clone() },
            Tuning { connection_window: 1, ..good.clone() },
            Tuning { send_window: 1, ..good.clone() },
            Tuning { initial_rtt: Duration::ZERO, ..good.clone() },
        ] {
            let error = bad.validate().unwrap_err();
            assert!(bad.transport(&Options::default()).is_err(), "{error}");
        }
    }

    #[test]
    fn options_that_cut_connections_are_refused() {
        let good = Options::default();
        good.validate().unwrap();
        Options::bulk().validate().unwrap();
        let second = Duration::from_secs(1);
        for bad in [
            Options { idle_timeout: second * 7 / 10, ..good.clone() },
            Options { keep_alive: Duration::ZERO, ..good.clone() },
            Options { probe: Some(Duration::ZERO), ..good.clone() },
            Options { max_frame: 0, ..good.clone() },
            Options { max_received: 0, ..good.clone() },
        ] {
            assert!(bad.validate().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_server_name_tells_the_version() {
        let options = Options { version: 7, ..Options::default() };
        assert_eq!(version_of(&options.server_name()), Some(7));
        assert_eq!(version_of("example.org"), None);
        assert_eq!(version_of("v70000.monarch"), None);
    }
}
