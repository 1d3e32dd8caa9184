//! Counters without contention: each thread has its own for each tenant.
//!
//! A [`Counters`] has one writing thread, so an increment is a plain load and store. A reader adds up the
//! counters of all threads. It may see a value that is slightly old, but never one that goes back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use barid_core::drop_reason::DropReason;
use mqtt_proto::PacketType;
use statestore_proto::{Refusal, Reply, Verb};

use crate::denied_action::Action;
use crate::limits::{ByQuota, Quota, THROTTLES};

/// A counter that one thread increments and any thread reads.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only the thread that owns the [`Counters`] may call this.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Packets and bytes of one direction, by packet type.
#[derive(Debug, Default)]
pub struct Traffic {
    packets: [Counter; 16],
    bytes: [Counter; 16],
}

impl Traffic {
    /// Counts `packets` packets of a type with `bytes` bytes in total.
    #[inline]
    pub fn add(&self, kind: PacketType, packets: u64, bytes: u64) {
        self.packets[kind as usize].add(packets);
        self.bytes[kind as usize].add(bytes);
    }
}

/// Messages of AMQP clients in one direction, and their bytes.
#[derive(Debug, Default)]
pub struct AmqpMessages([Counter; 2]);

impl AmqpMessages {
    /// Counts messages with so many bytes together.
    pub fn add(&self, messages: u64, bytes: u64) {
        self.0[0].add(messages);
        self.0[1].add(bytes);
    }
}

/// The counters of one thread for one tenant.
#[derive(Debug, Default)]
pub struct Counters {
    /// Packets received from clients.
    pub received: Traffic,
    /// Packets sent to clients.
    pub sent: Traffic,
    /// Messages that clients of AMQP have sent to queues and topics.
    pub amqp_received: AmqpMessages,
    /// Messages of queues and subscriptions that clients of AMQP were sent.
    pub amqp_sent: AmqpMessages,
    dropped: [Counter; DropReason::ALL.len()],
    denied: [Counter; Action::ALL.len()],
    refused: ByQuota<Counter>,
    throttled_ms: [Counter; THROTTLES],
    /// PUBLISH packets from clients that no subscription matched.
    pub unmatched: Counter,
    /// PUBLISH packets and SUBSCRIBE filters refused by the user's rules.
    pub unauthorised: Counter,
    /// Connections that reached CONNACK with success.
    pub connects: Counter,
    /// Connections refused with a CONNACK.
    pub refused_connects: Counter,
    /// Connections that ended without DISCONNECT, or because the client broke the protocol.
    pub abnormal_disconnects: Counter,
    /// Sessions taken over by another connection of the same client.
    pub take_overs: Counter,
    /// Requests to the state store.
    pub requests: Requests,
}

/// Requests to the state store by [verb](VERBS) and [outcome](OUTCOMES).
#[derive(Debug, Default)]
pub struct Requests([[Counter; OUTCOMES.len()]; VERBS.len()]);

/// The verbs of requests. The last one stands for requests that cannot be parsed.
pub const VERBS: [&str; 7] = ["set", "get", "del", "vdel", "keynotify", "scan", "none"];

/// The outcomes of requests. The fourth and later ones are the reasons for refusals.
pub const OUTCOMES: [&str; 3 + Refusal::ALL.len()] = [
    "ok",
    "not-applied",
    "absent",
    "syntax",
    "unknown-command",
    "wrong-number-of-arguments",
    "empty-key",
    "not-authorized",
    "missing-timestamp",
    "malformed-timestamp",
    "timestamp-in-future",
    "fencing-token-in-future",
    "fencing-token-required",
    "fencing-token-too-old",
    "quota-exceeded",
];

impl Requests {
    /// Counts a request.
    #[inline]
    pub fn add(&self, verb: Option<Verb>, reply: &Reply<'_>) {
        let verb = verb.map_or(VERBS.len() - 1, |verb| verb as usize);
        let outcome = match reply {
            Reply::Ok | Reply::Value(_) | Reply::Deleted | Reply::Page { .. } => 0,
            Reply::NotApplied => 1,
            Reply::Absent | Reply::Nothing => 2,
            Reply::Refused(refusal) => 3 + *refusal as usize,
        };
        self.0[verb][outcome].add(1);
    }
}

impl Counters {
    /// Counts messages that did not reach a session.
    #[inline]
    pub fn dropped(&self, reason: DropReason, count: u64) {
        self.dropped[reason as usize].add(count);
    }

    /// Counts a denial.
    pub fn denied(&self, action: Action) {
        self.denied[action as usize].add(1);
    }

    /// Counts refusals because of a quota.
    pub fn refused(&self, quota: Quota, count: u64) {
        self.refused[quota].add(count);
    }

    /// Counts the time that a connection had to wait because of a quota.
    pub fn throttled(&self, quota: Quota, time: Duration) {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.throttled_ms[quota as usize].add(millis);
    }
}

/// Sums of the counters of several threads at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets received, by type.
    pub packets_received: [u64; 16],
    /// Bytes received, by type.
    pub bytes_received: [u64; 16],
    /// Packets sent, by type.
    pub packets_sent: [u64; 16],
    /// Bytes sent, by type.
    pub bytes_sent: [u64; 16],
    /// Messages from clients of AMQP, and their bytes.
    pub amqp_received: [u64; 2],
    /// Messages to clients of AMQP, and their bytes.
    pub amqp_sent: [u64; 2],
    /// Messages dropped, by [`DropReason`].
    pub dropped: [u64; DropReason::ALL.len()],
    /// Denials, by [`Action`].
    pub denied: [u64; Action::ALL.len()],
    /// Refusals.
    pub refused: ByQuota<u64>,
    /// Time that connections had to wait, in milliseconds, by [`Quota`].
    pub throttled_ms: [u64; THROTTLES],
    /// See [`Counters::unmatched`].
    pub unmatched: u64,
    /// See [`Counters::unauthorised`].
    pub unauthorised: u64,
    /// See [`Counters::connects`].
    pub connects: u64,
    /// See [`Counters::refused_connects`].
    pub refused_connects: u64,
    /// See [`Counters::abnormal_disconnects`].
    pub abnormal_disconnects: u64,
    /// See [`Counters::take_overs`].
    pub take_overs: u64,
    /// Requests to the state store, by [verb](VERBS) and [outcome](OUTCOMES).
    pub requests: [[u64; OUTCOMES.len()]; VERBS.len()],
    /// Keys of the state store that have expired.
    pub expired_keys: u64,
}

impl Totals {
    /// Adds the counters of one thread.
    pub fn add(&mut self, counters: &Counters) {
        let add = |sums: &mut [u64], counters: &[Counter]| {
            for (sum, counter) in sums.iter_mut().zip(counters) {
                *sum += counter.get();
            }
        };
        add(&mut self.packets_received, &counters.received.packets);
        add(&mut self.bytes_received, &counters.received.bytes);
        add(&mut self.packets_sent, &counters.sent.packets);
        add(&mut self.bytes_sent, &counters.sent.bytes);
        add(&mut self.amqp_received, &counters.amqp_received.0);
        add(&mut self.amqp_sent, &counters.amqp_sent.0);
        add(&mut self.dropped, &counters.dropped);
        add(&mut self.denied, &counters.denied);
        add(self.refused.as_mut_slice(), counters.refused.as_slice());
        add(&mut self.throttled_ms, &counters.throttled_ms);
        self.unmatched += counters.unmatched.get();
        self.unauthorised += counters.unauthorised.get();
        self.connects += counters.connects.get();
        self.refused_connects += counters.refused_connects.get();
        self.abnormal_disconnects += counters.abnormal_disconnects.get();
        self.take_overs += counters.take_overs.get();
        for (sums, counters) in self.requests.iter_mut().zip(&counters.requests.0) {
            add(sums, counters);
        }
    }

    /// Adds other sums.
    pub fn join(&mut self, other: &Self) {
        let add = |sums: &mut [u64], more: &[u64]| {
            for (sum, more) in sums.iter_mut().zip(more) {
                *sum += more;
            }
        };
        add(&mut self.packets_received, &other.packets_received);
        add(&mut self.bytes_received, &other.bytes_received);
        add(&mut self.packets_sent, &other.packets_sent);
        add(&mut self.bytes_sent, &other.bytes_sent);
        add(&mut self.amqp_received, &other.amqp_received);
        add(&mut self.amqp_sent, &other.amqp_sent);
        add(&mut self.dropped, &other.dropped);
        add(&mut self.denied, &other.denied);
        add(self.refused.as_mut_slice(), other.refused.as_slice());
        add(&mut self.throttled_ms, &other.throttled_ms);
        add(self.requests.as_flattened_mut(), other.requests.as_flattened());
        self.unmatched += other.unmatched;
        self.unauthorised += other.unauthorised;
        self.connects += other.connects;
        self.refused_connects += other.refused_connects;
        self.abnormal_disconnects += other.abnormal_disconnects;
        self.take_overs += other.take_overs;
        self.expired_keys += other.expired_keys;
    }

    /// Packets received of one type.
    pub fn received(&self, kind: PacketType) -> u64 {
        self.packets_received[kind as usize]
    }

    /// Packets sent of one type.
    pub fn sent(&self, kind: PacketType) -> u64 {
        self.packets_sent[kind as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_those_of_the_protocol() {
        for verb in Verb::ALL {
            assert_eq!(VERBS[verb as usize], verb.as_str().to_lowercase());
        }
        for refusal in Refusal::ALL {
            let name = OUTCOMES[3 + refusal as usize].replace('-', "");
            assert_eq!(name, format!("{refusal:?}").to_lowercase());
        }
    }
}
