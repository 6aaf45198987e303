//! Addresses as people write them, and what can be wrong with them.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::config::TuningError;

/// Why a text gives no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResolveError {
    /// The text has no port, or the port is no number below 65,536.
    NoPort { addr: String },
    /// The name is unknown, in the resolver's words.
    Unknown { addr: String, detail: String },
    /// The resolver did not answer in time.
    TimedOut { addr: String, after: Duration },
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResolveError::NoPort { addr } => write!(
                f,
                "`{addr}` is no address: write HOST:PORT, as in 127.0.0.1:4000, [::1]:4000 or \
                 node7:4000"
            ),
            ResolveError::Unknown { addr, detail } => write!(
                f,
                "`{addr}` does not resolve ({detail}): check the spelling, or give the number"
            ),
            ResolveError::TimedOut { addr, after } => write!(
                f,
                "`{addr}` did not resolve within {after:?}: the name server does not answer; give \
                 the number instead"
            ),
        }
    }
}

impl std::error::Error for ResolveError {}

/// Why an endpoint cannot listen.
#[derive(Debug)]
pub enum BindError {
    /// The text gives no address.
    Resolve(ResolveError),
    /// Another socket has the port.
    InUse { addr: SocketAddr },
    /// The system does not let this user have the port.
    Denied { addr: SocketAddr },
    /// No interface of this machine has the address.
    NotHere { addr: SocketAddr },
    /// A setting is out of bounds.
    Setting(TuningError),
    /// Anything else the operating system reports.
    Io { addr: String, source: io::Error },
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BindError::Resolve(error) => write!(f, "cannot listen: {error}"),
            BindError::InUse { addr } => write!(
                f,
                "cannot listen on {addr}: another process has port {} (UDP); stop it (see \
                 `ss -ulpn`), or choose another port; port 0 takes a free one",
                addr.port()
            ),
            BindError::Denied { addr } => write!(
                f,
                "cannot listen on {addr}: not permitted; ports below 1024 are for root, choose \
                 one above, or port 0 for a free one"
            ),
            BindError::NotHere { addr } => write!(
                f,
                "cannot listen on {addr}: no interface of this machine has the address {}; see \
                 `ip address`",
                addr.ip()
            ),
            BindError::Setting(error) => write!(f, "cannot listen: {error}"),
            BindError::Io { addr, source } => write!(f, "cannot listen on {addr}: {source}"),
        }
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BindError::Resolve(error) => Some(error),
            BindError::Setting(error) => Some(error),
            BindError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<ResolveError> for BindError {
    fn from(error: ResolveError) -> BindError {
        BindError::Resolve(error)
    }
}

impl From<TuningError> for BindError {
    fn from(error: TuningError) -> BindError {
        BindError::Setting(error)
    }
}

impl BindError {
    pub(crate) fn from_io(addr: SocketAddr, source: io::Error) -> BindError {
        match source.kind() {
            io::ErrorKind::AddrInUse => BindError::InUse { addr },
            io::ErrorKind::PermissionDenied => BindError::Denied { addr },
            io::ErrorKind::AddrNotAvailable => BindError::NotHere { addr },
            _ => BindError::Io { addr: addr.to_string(), source },
        }
    }
}

/// The addresses of `HOST:PORT`, at least one. Numbers are not looked up.
pub(crate) async fn resolve(
    addr: &str,
    timeout: Duration,
) -> Result<Vec<SocketAddr>, ResolveError> {
    if let Ok(number) = addr.parse::<SocketAddr>() {
        return Ok(vec![number]);
    }
    let no_port = || ResolveError::NoPort { addr: addr.to_string() };
    let (host, port) = addr.rsplit_once(':').ok_or_else(no_port)?;
    if host.is_empty() || host.contains(':') || port.parse::<u16>().is_err() {
        return Err(no_port());
    }
    let unknown = |detail: String| ResolveError::Unknown { addr: addr.to_string(), detail };
    let found = tokio::time::timeout(timeout, tokio::net::lookup_host(addr))
        .await
        .map_err(|_| ResolveError::TimedOut { addr: addr.to_string(), after: timeout })?
        .map_err(|error| unknown(error.to_string()))?
        .collect::<Vec<_>>();
    if found.is_empty() {
        return Err(unknown("no address".to_string()));
    }
    Ok(found)
}

/// The addresses of `HOST:PORT`, at least one, for code that is not asynchronous. Numbers are not
/// looked up.
///
/// # Errors
/// [`ResolveError`], within `limit`.
pub fn lookup(addr: &str, limit: Duration) -> Result<Vec<SocketAddr>, ResolveError> {
    let failed = |error: io::Error| ResolveError::Unknown {
        addr: addr.to_string(),
        detail: error.to_string(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(failed)?;
    let found = runtime.block_on(resolve(addr, limit));
    // A name server that does not answer must not hold the caller up.
    runtime.shutdown_background();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_system_are_named() {
        let addr: SocketAddr = "127.0.0.1:80".parse().unwrap();
        let says = |kind: io::ErrorKind| BindError::from_io(addr, kind.into()).to_string();
        assert!(says(io::ErrorKind::AddrInUse).contains("another process has port 80"));
        assert!(says(io::ErrorKind::PermissionDenied).contains("below 1024"));
        assert!(says(io::ErrorKind::AddrNotAvailable).contains("no interface"));
        assert!(says(io::ErrorKind::OutOfMemory).contains("127.0.0.1:80"));
    }
}
