//! The operations and facts that the admin address needs from the rest of the broker.

use std::io::{self, Write};
use std::sync::Arc;

use barid_core::durable::keys;
use barid_core::session::Waiting;
use barid_core::time::MonoTime;
use barid_engine::agenda::{Task, Tell};
use barid_engine::drops::DropLog;
use barid_engine::durability::DurabilityClass;
use barid_engine::session::SessionRef;
use barid_engine::tenant::Tenant;
use mqtt_proto::ReasonCode;
use tokio::sync::oneshot;

use crate::shared::Shared;

/// Returns the name of the durability class of a session's messages.
pub fn durability(session: &SessionRef) -> &'static str {
    let class =
        if session.durable().is_some() { DurabilityClass::Local } else { DurabilityClass::Memory };
    class.name()
}

/// Time since which the session has had no client.
pub fn away_since(session: &SessionRef) -> Option<MonoTime> {
    session.state().away_since
}

/// Time since which the first message in the session's queue waits.
pub fn oldest_queued_at(session: &SessionRef) -> Option<MonoTime> {
    session.inspect(|outbound, _| outbound.queue().front().map(Waiting::queued_at))
}

/// Returns the recent drops of a tenant, with one log for each thread.
pub fn drop_logs(tenant: &Tenant) -> impl Iterator<Item = &DropLog> {
    tenant.drop_logs()
}

/// Creates a [`Tell`] and the receiver that it notifies. It has no effect if the request that waits has been
/// abandoned.
pub fn told() -> (Tell, oneshot::Receiver<()>) {
    let (tell, told) = oneshot::channel();
    let tell = move || {
        let _ = tell.send(());
    };
    (Tell(Box::new(tell)), told)
}

/// Ends a session. Its client is told 0x98 (Administrative action). The receiver is notified when the session
/// has ended.
pub fn end_session(shared: &Arc<Shared>, session: &SessionRef) -> oneshot::Receiver<()> {
    let (done, ended) = told();
    let reason = ReasonCode::AdministrativeAction;
    let task = Task::End { session: session.clone(), reason, done };
    shared.engine.agenda.schedule(shared.engine.clock.now(), task);
    ended
}

/// Writes all that is durable, as it is at one moment.
pub fn backup(shared: &Shared, out: &mut dyn Write) -> io::Result<()> {
    let mut export = || {
        let snapshots = shared.engine.shards.snapshots()?;
        barid_store::backup::export(&snapshots, &keys::NAMES, out, &mut |_, _| {})
    };
    export().map(drop).map_err(io::Error::other)
}
