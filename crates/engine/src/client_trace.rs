//! Traces of clients: everything that passes between the broker and one client, over all its connections.

use std::sync::Arc;

use crate::session::SessionRef;
use crate::tapping::Tracer;
use crate::tenant::Tenant;

/// Number of AMQP connections that are looked at together.
const PAGE: usize = 256;

/// A trace of a client.
#[derive(Debug)]
pub struct ClientTrace {
    tenant: Arc<Tenant>,
    client: Box<str>,
}

impl ClientTrace {
    /// Begins to trace the client with this client identifier or container id, which need not be connected. Returns
    /// `None` if it is traced already.
    pub fn begin(tenant: &Arc<Tenant>, client: &str, tracer: Arc<dyn Tracer>) -> Option<Self> {
        if !tenant.account.traced.add(client, tracer) {
            return None;
        }
        let trace = Self { tenant: Arc::clone(tenant), client: client.into() };
        trace.tell_connections();
        Some(trace)
    }

    /// Begins or ends the taps of the client's present connections. A connection that begins later asks the list of traced
    /// clients itself.
    fn tell_connections(&self) {
        let Self { tenant, client, .. } = self;
        let session: Option<SessionRef> = tenant.sessions.entry(client).get().cloned();
        if let Some(session) = session {
            session.follow_trace();
        }
        let mut after = 0;
        loop {
            let page = tenant.amqp_clients.page(after, PAGE);
            let Some(last) = page.last() else { return };
            after = last.id.0;
            page.iter()
                .filter(|one| *one.container == **client)
                .for_each(|one| one.connection.wake());
        }
    }

    /// Ends the trace.
    pub fn end(self) {
        self.tenant.account.traced.remove(&self.client);
        self.tell_connections();
    }
}
