//! QUIC endpoints, identities, streams.
//!
//! Invariants of this crate, mostly what it must not know:
//!
//! - **Bytes only.** It knows no message, no plan, no step; it depends on no other crate of the
//!   workspace. Frames and payloads go in and come out as they are.
//! - **No strangers.** Every connection is TLS 1.3 with both sides proven: each role of a cluster
//!   has one Ed25519 key derived from the [`ClusterKey`], and both sides pin the key they expect.
//!   There is no way to open an unauthenticated connection.
//! - **Nothing hangs.** Every wait has a limit or ends with its connection, and a connection ends
//!   when the other side closes, falls silent for the idle timeout, or its socket is gone.
//! - **Everything is bounded.** Frames, payloads and queues have limits; a length announced by the
//!   other side never sizes an allocation. Control frames that were handed to the caller's
//!   callback or channel are the caller's to take.
//! - **Every end has a reason.** A lost connection is a [`Lost`], which says what was seen.
//!
//! Two facades serve code that is not asynchronous: [`ControlServer`] and [`ControlClient`]
//! carry small frames with low latency; [`PeerMesh`] carries bulk payloads between workers. Both
//! run one thread with a single-threaded runtime. Below them, [`Endpoint`] and [`Connection`] are
//! the asynchronous parts.

mod addr;
mod bulk;
mod config;
mod connection;
mod control;
mod endpoint;
mod farewell;
mod frame;
mod identity;
mod key;
mod link;
mod lost;
mod mesh;
mod outbox;
mod payload;
mod probe;
mod queue;
mod runtime;
mod socket;

pub use addr::{BindError, ResolveError, lookup};
pub use bulk::{BULK_HEADER_BYTES, BulkDecoder, BulkEvent, BulkReceiver, BulkSender, Header};
pub use config::{Options, PROTOCOL_VERSION, Traffic, Tuning, TuningError};
pub use connection::{Connection, ReadError, WriteError};
pub use control::{ClientEvent, ConnId, ControlClient, ControlServer, ServerEvent};
pub use endpoint::{AcceptError, ConnectError, Endpoint, Incoming};
pub use frame::{FRAME_PREFIX_BYTES, FrameDecoder, FrameError, FrameReader, FrameWriter};
pub use identity::{Identity, Role};
pub use key::{ClusterKey, KeyError};
pub use lost::Lost;
pub use mesh::{MeshError, MeshEvent, PeerMesh, RecvError};
pub use outbox::SendError;
pub use payload::Payload;
