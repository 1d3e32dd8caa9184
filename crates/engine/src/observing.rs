//! Observing: the messages of a tenant as they pass, for its operators.
//!
//! An observer is a session that is in no table: it has one subscription of QoS 0, counts for no limit of clients, and
//! ends with the observer. Messages that it does not take in time wait and are dropped as those of a slow subscriber.

use std::net::SocketAddr;
use std::sync::Arc;

use barid_core::session::WindowLimits;
use mqtt_proto::{FixedHeader, PacketType, Publish, QoS, ReasonCode, Version, topic};
use thiserror::Error;

use crate::durable::Commits;
use crate::engine::Engine;
use crate::ids::ConnectionId;
use crate::limits::Quota;
use crate::owner::Owner;
use crate::session::{Link, SessionRef, Stint, Subscription};
use crate::tenant::Tenant;
use crate::worker::Worker;

/// The name of the listener that an observer is said to have reached.
const LISTENER: &str = "admin";

/// Number of bytes of the buffer that are kept for later.
const KEPT: usize = 64 * 1024;

/// Receives the messages that match a Topic Filter.
#[derive(Debug)]
pub struct Observer {
    tenant: Arc<Tenant>,
    session: SessionRef,
    filter: Box<str>,
    /// The epoch of the session's outlet.
    epoch: u32,
    worker: Worker,
    /// Bytes that the outlet has written. Between two calls, the beginning of a packet that is not complete.
    buffer: Vec<u8>,
}

/// The reason why a filter cannot be observed.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Unobservable {
    /// Not a Topic Filter.
    #[error("{0}")]
    Malformed(topic::TopicError),
    /// Messages of a shared subscription would be taken from its members.
    #[error("a shared subscription cannot be observed")]
    Shared,
    /// The tenant has reached a limit.
    #[error("the tenant has reached {}", .0.name())]
    Limited(Quota),
}

impl Observer {
    /// Begins to observe. `owner` is told when there are messages, as the owner of `connection`. `worker` is the thread
    /// that takes them.
    ///
    /// # Errors
    /// The filter cannot be observed.
    pub fn start(
        engine: &Engine,
        tenant: &Arc<Tenant>,
        filter: &str,
        (connection, peer): (ConnectionId, SocketAddr),
        owner: Arc<dyn Owner>,
        worker: Worker,
    ) -> Result<Self, Unobservable> {
        topic::validate_filter(filter).map_err(Unobservable::Malformed)?;
        if topic::is_shared(filter) {
            return Err(Unobservable::Shared);
        }
        let limits = tenant.limits();
        if tenant.subscriptions() >= limits.max_tenant_subscriptions {
            return Err(Unobservable::Limited(Quota::MaxTenantSubscriptions));
        }
        if !tenant.index.admits(filter, limits.max_pattern_levels) {
            return Err(Unobservable::Limited(Quota::MaxPatternLevels));
        }
        let name = format!("$observer-{}", connection.0);
        let account = Arc::clone(&tenant.account);
        let session = SessionRef::new(engine.next_session_id(), account, &name, None);
        session.set_owner(&mut session.state(), connection);
        let link = Link {
            version: Version::V5,
            max_packet_size: u32::MAX,
            // What it is sent waits until it is taken.
            wire: None,
            owner,
            connection,
            peer,
            listener: LISTENER,
            keep_alive: 0,
            rights: None,
        };
        let (window, nothing) = (WindowLimits::from(1), (&[][..], Commits::default()));
        let (epoch, _) = session.attach(link, window, false, None, nothing);
        let subscription = Subscription {
            filter: filter.into(),
            qos: QoS::AtMostOnce,
            no_local: false,
            retain_as_published: true,
            identifier: None,
        };
        tenant.subscribe(&session, &subscription);
        let (tenant, filter) = (Arc::clone(tenant), filter.into());
        Ok(Self { tenant, session, filter, epoch, worker, buffer: Vec::new() })
    }

    /// Keeps messages from the observer, or ends that. It costs publishers next to nothing that they pass a muted observer,
    /// and its owner is told how many it [misses](Owner::missed).
    pub fn mute(&self, muted: bool) {
        self.session.mute(muted);
    }

    /// Takes the messages that have come, in order. The owner is told again if more have come meanwhile.
    pub fn take(&mut self, engine: &Engine, mut receive: impl FnMut(&Publish<'_>)) {
        self.worker.now = engine.clock.now();
        let buffer = &mut self.buffer;
        self.session.drain(&self.worker, self.epoch, false, Stint::SHORT, |bytes| {
            buffer.extend_from_slice(bytes);
            Ok(bytes.len())
        });
        let mut handled = 0;
        while let Ok(Some(header)) = FixedHeader::read(&buffer[handled..], usize::MAX)
            && let Some(packet) = buffer[handled..].get(..header.packet_len())
        {
            handled += packet.len();
            if header.packet_type() == PacketType::Publish
                && let Ok(publish) =
                    Publish::decode(Version::V5, header, &packet[header.header_len..])
            {
                receive(&publish);
            }
        }
        buffer.drain(..handled);
        buffer.shrink_to(KEPT);
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.tenant.unsubscribe(&self.filter, self.session.id);
        self.session.end(&mut self.session.state());
        self.session.close_connection(ReasonCode::Success);
        self.session.clear(&self.worker);
    }
}
