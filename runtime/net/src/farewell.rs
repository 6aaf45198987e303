//! Waiting for connections to end in good order.

use std::time::Duration;

use tokio::time::Instant;

use crate::connection::Connection;
use crate::lost::{Lost, code};
use crate::probe::is_refused_now;
use crate::runtime::AtWork;

/// Pause between two looks whether those that have not yet taken their leave still exist.
const LOOK: Duration = Duration::from_millis(10);

/// Waits until all that is `at_work` has ended, `limit` at most. One whose other side exists no
/// more cannot say that it has received everything: it ends when that is seen, not when a timeout
/// is over.
pub(crate) async fn all_ended(
    at_work: &AtWork,
    limit: Duration,
    open: impl Fn() -> Vec<Connection>,
) {
    let deadline = Instant::now() + limit;
    while !at_work.done(LOOK).await && Instant::now() < deadline {
        for connection in open() {
            if connection.close_reason().is_none() && is_refused_now(connection.remote_addr()).await
            {
                connection.close_as(code::CLOSED, "", Lost::Vanished);
            }
        }
    }
}
