//! Watching over a connection: a peer that has vanished, and one of which nothing is heard.
//!
//! A killed process sends nothing, but the operating system that still runs there answers a packet
//! to a closed port with "port unreachable". An unconnected socket, as QUIC uses it, is not told;
//! a connected one is. So while a peer is silent, a connected socket sends it a single byte, which
//! every QUIC implementation drops unread, and looks for a refusal.
//!
//! Where the machine or the way to it is gone, nothing answers. QUIC's own idle timeout ends such a
//! connection without a word; here the side that hears nothing says so first. If only one
//! direction is broken, the other side learns at once that it is not heard, and which way it is.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use quinn::VarInt;
use tokio::net::UdpSocket;

use crate::config::Options;
use crate::connection::Verdict;
use crate::lost::{Lost, code};

/// Refusals in a row, without a packet from the peer, after which it counts as gone. One alone
/// may answer a packet that crossed a restart, or be forged blindly.
const REFUSALS: u32 = 2;

/// How often a connection is looked at that is not probed.
const LOOK: Duration = Duration::from_millis(200);

/// How often an address that is being connected to is asked whether its port is closed.
const ASK: Duration = Duration::from_millis(100);

/// What a connection is watched for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    interval: Duration,
    /// Silence after which the peer's system is asked: where a question costs more than the time
    /// it saves, that is longer than a living peer is ever silent. None: never.
    grace: Option<Duration>,
    /// Silence after which the connection is given up.
    limit: Duration,
}

impl Watch {
    pub(crate) fn new(options: &Options, near: bool) -> Watch {
        // A thousand peers of other machines must not be asked five times a second each.
        let grace = if near { Duration::ZERO } else { options.keep_alive * 5 / 4 };
        let interval = options.probe.unwrap_or(LOOK).min(options.idle_timeout / 4);
        Watch { interval, grace: options.probe.map(|_| grace), limit: options.idle_timeout }
    }
}

/// Frames received: of packets that have proven to be the peer's.
fn heard(connection: &quinn::Connection) -> u64 {
    let rx = connection.stats().frame_rx;
    rx.acks
        + rx.ping
        + rx.stream
        + rx.crypto
        + rx.max_data
        + rx.max_stream_data
        + rx.data_blocked
        + rx.stream_data_blocked
        + rx.new_connection_id
        + rx.path_challenge
        + rx.path_response
}

/// Closes `connection` as [`Lost::Vanished`] once the peer's socket is gone, and as
/// [`Lost::Silent`] once nothing was heard for the limit. Runs until the connection has ended.
///
/// Silence counts only while this side looks: a process that was stopped, or a machine that slept,
/// has not listened.
pub(crate) async fn watch(connection: quinn::Connection, verdict: Verdict, watch: Watch) {
    let Watch { interval, grace, limit } = watch;
    let (mut before, mut silent, mut refusals) = (heard(&connection), Duration::ZERO, 0);
    let mut looked = Instant::now();
    let mut socket = None;
    while connection.close_reason().is_none() {
        tokio::select! {
            _ = connection.closed() => return,
            () = tokio::time::sleep(interval) => {}
        }
        let passed = looked.elapsed().min(interval * 2);
        looked = Instant::now();
        let now = heard(&connection);
        if now != before {
            (before, silent, refusals, socket) = (now, Duration::ZERO, 0, None);
            continue;
        }
        silent += passed;
        if silent >= limit {
            verdict.set(Lost::Silent { idle: limit });
            let told = limit.as_millis().to_string();
            connection.close(VarInt::from_u32(code::SILENT), told.as_bytes());
            return;
        }
        if grace.is_none_or(|grace| silent < grace) {
            continue;
        }
        // The answer to the packet of the last round has had one interval to arrive.
        if socket.as_ref().is_some_and(is_refused) {
            refusals += 1;
        }
        if refusals >= REFUSALS {
            verdict.set(Lost::Vanished);
            connection.close(VarInt::from_u32(0), b"");
            return;
        }
        socket = knock(connection.remote_address()).await.ok();
    }
}

/// Why an address cannot be reached.
#[derive(Debug)]
pub(crate) enum Deaf {
    /// The machine is there, and nothing listens on the port.
    Refused,
    /// This machine knows no way there.
    NoWay(io::Error),
}

/// Waits until it is known that `addr` cannot be reached; for ever, if nothing says so.
pub(crate) async fn unreachable(addr: SocketAddr) -> Deaf {
    let mut refusals = 0;
    loop {
        let knocked = knock(addr).await;
        tokio::time::sleep(ASK).await;
        let told = knocked.map_or_else(Some, |socket| socket.take_error().ok().flatten());
        refusals = match told {
            None => 0,
            Some(error) if error.kind() == io::ErrorKind::ConnectionRefused => refusals + 1,
            Some(error) => return Deaf::NoWay(error),
        };
        if refusals >= REFUSALS {
            return Deaf::Refused;
        }
    }
}

/// Whether nothing listens at `addr`, as far as that is known at once: on this machine the answer
/// is there before the call returns, elsewhere it says no.
pub(crate) async fn is_refused_now(addr: SocketAddr) -> bool {
    match knock(addr).await {
        Ok(socket) => is_refused(&socket),
        Err(error) => error.kind() == io::ErrorKind::ConnectionRefused,
    }
}

async fn knock(addr: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match addr {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(addr).await?;
    socket.send(&[0]).await?;
    Ok(socket)
}

fn is_refused(socket: &UdpSocket) -> bool {
    // `take_error` asks the socket itself; `try_recv` would ask the runtime, which learns of the
    // error only when it next polls.
    matches!(socket.take_error(), Ok(Some(error))
        if error.kind() == io::ErrorKind::ConnectionRefused)
}
