//! The topics `$SYS/broker/…` and `$SYS/cluster/…`: information about the broker and about the tenant, for the tenant's clients.
//!
//! The topic names are those that other brokers use. All counts are the tenant's own.

use std::sync::Arc;
use std::time::Duration;

use barid_core::message::Publication;
use barid_core::time::MonoTime;
use mqtt_proto::{PacketType, QoS};

use crate::context::Context;
use crate::names::DEFAULT_TENANT;
use crate::router::Publisher;
use crate::tenant::Tenant;

/// The schedule of the `$SYS` topics.
#[derive(Debug, Default)]
pub struct Sys {
    due: Option<MonoTime>,
}

impl Sys {
    /// Returns when the topics are due next. `None`: they are switched off, or were never published.
    pub fn due(&self) -> Option<MonoTime> {
        self.due
    }

    /// Publishes the `$SYS` topics of all tenants, if they are due.
    pub fn publish_if_due(&mut self, context: &mut Context) {
        let engine = Arc::clone(&context.engine);
        let interval = engine.sys_interval();
        let now = context.worker.now;
        if interval == 0 {
            self.due = None;
            return;
        }
        if self.due.is_some_and(|due| due > now) {
            return;
        }
        self.due = Some(now.after(Duration::from_secs(u64::from(interval))));
        // A tenant without sessions has no subscribers.
        for tenant in engine.tenants.all().iter().filter(|tenant| !tenant.sessions.is_empty()) {
            publish(context, tenant);
        }
    }
}

/// Publishes the `$SYS` topics of a tenant, unless they are switched off.
pub fn publish(context: &mut Context, tenant: &Arc<Tenant>) {
    let engine = Arc::clone(&context.engine);
    if engine.sys_interval() == 0 {
        return;
    }
    let values = values(tenant, engine.clock.uptime());
    let of_cluster = engine.cluster.as_ref().map_or_else(Vec::new, |_| of_cluster(tenant));
    for (topic, value) in values.into_iter().chain(of_cluster) {
        retain(context, tenant, topic, &value);
    }
}

/// Publishes the state of another broker of the cluster to the default tenant, unless the `$SYS` topics are switched off.
pub fn publish_member(context: &mut Context, name: &str, state: &str) {
    let engine = Arc::clone(&context.engine);
    if engine.sys_interval() == 0 {
        return;
    }
    if let Some(tenant) = engine.tenants.get(DEFAULT_TENANT) {
        retain(context, &tenant, &format!("$SYS/broker/cluster/members/{name}"), state);
    }
}

fn retain(context: &mut Context, tenant: &Arc<Tenant>, topic: &str, value: &str) {
    let publication = Publication {
        topic,
        payload: value.as_bytes(),
        properties: &[],
        qos: QoS::AtMostOnce,
        retain: true,
        expires_at: None,
    };
    let nobody = Publisher { session: 0, client_id: "", holder: None };
    context.publish_message(tenant, nobody, &publication);
}

/// What the tenant uses at all brokers of the cluster together, as far as they have told.
fn of_cluster(tenant: &Tenant) -> Vec<(&'static str, String)> {
    let (used, elsewhere) = (tenant.used(), tenant.quotas.elsewhere());
    let counts = [
        ("$SYS/cluster/connections/count", used.connections, elsewhere.connections()),
        ("$SYS/cluster/clients/total", used.sessions, elsewhere.sessions()),
        ("$SYS/cluster/subscriptions/count", used.subscriptions, elsewhere.subscriptions()),
        ("$SYS/cluster/store/messages/count", used.queued_messages, elsewhere.queued_messages()),
        ("$SYS/cluster/store/messages/bytes", used.queued_bytes, elsewhere.queued_bytes()),
    ];
    let sum = |(topic, here, there): (_, u64, usize)| {
        (topic, here.saturating_add(there as u64).to_string())
    };
    counts.map(sum).into()
}

fn values(tenant: &Tenant, uptime: Duration) -> Vec<(&'static str, String)> {
    let totals = tenant.totals();
    let mut connected = 0_usize;
    let mut sessions = 0_usize;
    let mut queued = 0_usize;
    let mut queued_bytes = 0_usize;
    tenant.sessions.for_each(|session| {
        sessions += 1;
        connected += usize::from(session.is_online());
        session.inspect(|outbound, _| {
            queued += outbound.queue().len();
            queued_bytes += outbound.queue().bytes();
        });
    });
    let sum = |counts: &[u64]| counts.iter().sum::<u64>().to_string();
    let publish = PacketType::Publish;
    vec![
        ("$SYS/broker/version", format!("barid {}", env!("CARGO_PKG_VERSION"))),
        ("$SYS/broker/uptime", format!("{} seconds", uptime.as_secs())),
        ("$SYS/broker/clients/connected", connected.to_string()),
        ("$SYS/broker/clients/disconnected", (sessions - connected).to_string()),
        ("$SYS/broker/clients/total", sessions.to_string()),
        ("$SYS/broker/messages/received", sum(&totals.packets_received)),
        ("$SYS/broker/messages/sent", sum(&totals.packets_sent)),
        ("$SYS/broker/publish/messages/received", totals.received(publish).to_string()),
        ("$SYS/broker/publish/messages/sent", totals.sent(publish).to_string()),
        ("$SYS/broker/publish/messages/dropped", sum(&totals.dropped)),
        ("$SYS/broker/publish/bytes/received", totals.bytes_received[publish as usize].to_string()),
        ("$SYS/broker/publish/bytes/sent", totals.bytes_sent[publish as usize].to_string()),
        ("$SYS/broker/bytes/received", sum(&totals.bytes_received)),
        ("$SYS/broker/bytes/sent", sum(&totals.bytes_sent)),
        ("$SYS/broker/store/messages/count", queued.to_string()),
        ("$SYS/broker/store/messages/bytes", queued_bytes.to_string()),
        ("$SYS/broker/retained messages/count", tenant.retained_by_clients().to_string()),
        ("$SYS/broker/subscriptions/count", tenant.index.subscription_count().to_string()),
    ]
}
