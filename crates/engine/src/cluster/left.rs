//! Messages of shared subscriptions for a broker that is down: other members get them.

use barid_peers::{Destination, Run};
use mqtt_proto::QoS;

/// A run for a shared subscription that the other broker has not acknowledged. It may have handed it on, so messages of QoS 1
/// may come twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftRun {
    tenant: Box<str>,
    publisher: Box<str>,
    shared: Box<str>,
    is_v5: bool,
    pub(crate) packets: Vec<u8>,
}

impl LeftRun {
    /// Copies a run. Returns `None` for messages of QoS 2: a client may have one of them, and then no other may get it
    /// (MQTT 5 §4.8.2).
    pub(super) fn of(run: &Run<'_>) -> Option<Self> {
        let Destination::Shared(shared) = run.to else { return None };
        let flags = run.packets.first()?;
        (flags >> 1 & 0b11 != QoS::ExactlyOnce as u8).then(|| Self {
            tenant: run.tenant.into(),
            publisher: run.publisher.into(),
            shared: shared.into(),
            is_v5: run.is_v5,
            packets: run.packets.to_vec(),
        })
    }

    /// Returns the run, without its packets.
    pub(crate) fn as_run(&self) -> Run<'_> {
        let Self { tenant, publisher, shared, is_v5, .. } = self;
        Run::unnumbered(tenant, publisher, Destination::Shared(shared), *is_v5, &[])
    }
}
