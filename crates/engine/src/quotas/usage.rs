//! What a tenant, or one of its users, uses of the quotas that limit connections and rates.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use barid_core::time::MonoTime;
use barid_peers::RATES;

use super::bucket::Bucket;
use crate::limits::{Limits, Quota};
use crate::user_limits::UserLimits;

/// What a rate limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Messages from clients.
    Publish,
    /// Bytes from clients.
    Inbound,
    /// Bytes to clients.
    Outbound,
    /// Connections.
    Connect,
}

/// Debt up to which what was used at other brokers is charged.
const ELSEWHERE_MAX: Duration = Duration::from_secs(2);

/// The rates of a tenant or of a user, in tokens a second, by [`Flow`]; 0: no limit.
pub(super) type Rates = [u64; RATES];

/// What a tenant, or one of its users, uses: the number of connections, and a bucket for each [`Flow`].
#[derive(Debug)]
pub struct Usage {
    connections: AtomicUsize,
    buckets: [Bucket; RATES],
    /// Incremented when the own limits of a user change, so that its connected clients get the new ones.
    version: AtomicU32,
}

impl Usage {
    pub(super) fn new(rates: Rates) -> Self {
        Self {
            connections: AtomicUsize::new(0),
            buckets: rates.map(Bucket::new),
            version: AtomicU32::new(0),
        }
    }

    /// Number of connections.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// The bucket of a flow.
    pub fn bucket(&self, flow: Flow) -> &Bucket {
        &self.buckets[flow as usize]
    }

    /// Takes out of the buckets what was used at another broker, and puts into them what was given back there.
    pub(super) fn has_spent_elsewhere(&self, now: MonoTime, spent: [i64; RATES]) {
        for (bucket, count) in self.buckets.iter().zip(spent) {
            match u64::try_from(count) {
                Ok(count) => bucket.charge_elsewhere(now, count, ELSEWHERE_MAX),
                Err(_) => bucket.give_back_elsewhere(count.unsigned_abs()),
            }
        }
    }

    /// Number of tokens that this broker's clients have used and not given back, by [`Flow`].
    pub fn spent(&self) -> [u64; RATES] {
        std::array::from_fn(|flow| self.buckets[flow].spent())
    }

    pub(super) fn set_rates(&self, now: MonoTime, rates: Rates) {
        for (bucket, rate) in self.buckets.iter().zip(rates) {
            bucket.set_rate(now, rate);
        }
    }

    /// A number that changes when the own limits of the user change.
    pub(super) fn version(&self) -> u32 {
        self.version.load(Ordering::Acquire)
    }

    /// Notes that the own limits of the user have changed.
    pub(super) fn has_other_limits(&self) {
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Whether all buckets are full, so that nothing would change if new ones replaced them.
    pub(super) fn is_rested(&self, now: MonoTime) -> bool {
        self.buckets.iter().all(|bucket| bucket.is_full(now))
    }
}

/// The rates that limit a tenant as a whole.
pub(super) fn of_tenant(limits: &Limits) -> Rates {
    [
        limits.publish_rate,
        limits.inbound_bytes_rate,
        limits.outbound_bytes_rate,
        limits.connect_rate,
    ]
}

/// The rates that limit each user of a tenant.
pub(super) fn of_user(limits: &Limits) -> Rates {
    [
        limits.user_publish_rate,
        limits.user_inbound_bytes_rate,
        limits.user_outbound_bytes_rate,
        limits.user_connect_rate,
    ]
}

/// Returns the rates that limit a user with these limits of its own. `rates`: those of a user without.
pub(super) fn with_own(rates: Rates, own: &UserLimits) -> Rates {
    let [publish, inbound, outbound, connect] = rates;
    [
        own.publish_rate.unwrap_or(publish),
        own.inbound_bytes_rate.unwrap_or(inbound),
        own.outbound_bytes_rate.unwrap_or(outbound),
        own.connect_rate.unwrap_or(connect),
    ]
}

/// Returns the quota that limits a flow of a tenant, or of a user.
pub(super) fn quota(flow: Flow, of_user: bool) -> Quota {
    match (flow, of_user) {
        (Flow::Publish, false) => Quota::PublishRate,
        (Flow::Publish, true) => Quota::UserPublishRate,
        (Flow::Inbound, false) => Quota::InboundBytesRate,
        (Flow::Inbound, true) => Quota::UserInboundBytesRate,
        (Flow::Outbound, false) => Quota::OutboundBytesRate,
        (Flow::Outbound, true) => Quota::UserOutboundBytesRate,
        (Flow::Connect, false) => Quota::ConnectRate,
        (Flow::Connect, true) => Quota::UserConnectRate,
    }
}

/// A place among the connections that a tenant, or a user, may have. Given back when dropped.
#[derive(Debug)]
pub(super) struct Place(Arc<Usage>);

impl Place {
    /// Takes a place, whether or not there is one left. Returns the number of those that were taken before.
    pub fn take(usage: &Arc<Usage>) -> (Self, usize) {
        let before = usage.connections.fetch_add(1, Ordering::Relaxed);
        (Self(Arc::clone(usage)), before)
    }

    pub fn usage(&self) -> &Arc<Usage> {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
