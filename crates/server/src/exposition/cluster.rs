//! Metrics of the cluster.

use std::fmt::Write as _;

use super::{expiry, header};
use crate::cluster::{Direction, MemberView, View};
use crate::shared::Shared;

/// The states in which another broker can be.
const STATES: [&str; 5] = ["joining", "up", "unreachable", "down", "left"];

/// Appends the metrics, if the broker belongs to a cluster.
pub fn cluster(text: &mut String, shared: &Shared) {
    let Some(cluster) = &shared.cluster else { return };
    let view = cluster.view(shared.engine.clock.now(), shared.watchdogs.len());
    let View { certificate_expires, takes_clients, has_quorum, filters, members, .. } = view;
    let name = "barid_cluster_certificate_expires_timestamp_seconds";
    let help = "When the certificate for links to other brokers expires, in seconds since 1970.";
    expiry(text, name, help, certificate_expires);
    let name = "barid_cluster_members";
    header(text, name, "gauge", "Other brokers of the cluster, by state as this broker sees them.");
    for state in STATES {
        let count = members.iter().filter(|member| member.state == state).count();
        let _ = writeln!(text, "{name}{{state=\"{state}\"}} {count}");
    }
    for (name, help, value) in [
        (
            "barid_cluster_takes_clients",
            "Whether the broker has joined the cluster, and takes clients.",
            u64::from(takes_clients),
        ),
        (
            "barid_cluster_has_quorum",
            "Whether more than half of the brokers hear this one. Otherwise it does not read from clients.",
            u64::from(has_quorum),
        ),
        (
            "barid_cluster_filters",
            "Distinct topic filters that the sessions of this broker have.",
            filters as u64,
        ),
        (
            "barid_cluster_slots",
            "Slots that this broker has.",
            cluster.slots().map_or(0, |slots| slots.here() as u64),
        ),
        (
            "barid_cluster_held",
            "Whether the broker reads no messages from clients, because a slot is being moved.",
            u64::from(shared.engine.is_held()),
        ),
        (
            "barid_cluster_relayed_clients",
            "Clients of this broker that belong to another one.",
            cluster.relays.count(Direction::ToOther),
        ),
        (
            "barid_cluster_hosted_clients",
            "Clients and operators of other brokers that belong to this one.",
            cluster.relays.count(Direction::FromOther),
        ),
    ] {
        header(text, name, "gauge", help);
        let _ = writeln!(text, "{name} {value}");
    }
    let name = "barid_cluster_refused_relays_total";
    let help = "Clients refused because the broker that they belong to could not be reached.";
    header(text, name, "counter", help);
    let _ = writeln!(text, "{name} {}", cluster.relays.refused());
    let name = "barid_cluster_wills_not_kept_total";
    let help =
        "Wills that other brokers, or this one for another, do not keep: too large, or too many.";
    header(text, name, "counter", help);
    let _ = writeln!(text, "{name} {}", cluster.engine().wills_refused());
    let name = "barid_cluster_slots_moved_total";
    header(text, name, "counter", "Slots that came from other brokers, or went to others.");
    for (direction, count) in [("in", cluster.moves.come()), ("out", cluster.moves.gone())] {
        let _ = writeln!(text, "{name}{{direction=\"{direction}\"}} {count}");
    }
    type Read = fn(&MemberView) -> i128;
    let of_members: [(&str, &str, &str, Read); 10] = [
        (
            "barid_cluster_member_up",
            "gauge",
            "Whether heartbeats of the broker arrive.",
            |member| i128::from(member.state == "up"),
        ),
        (
            "barid_cluster_member_filters",
            "gauge",
            "Distinct topic filters that the broker has told.",
            |member| member.filters as i128,
        ),
        (
            "barid_cluster_member_wills",
            "gauge",
            "Wills of clients of the broker that this one keeps.",
            |member| member.wills as i128,
        ),
        (
            "barid_cluster_clock_ahead_milliseconds",
            "gauge",
            "How far the clock of the broker is ahead of that of this one.",
            |member| i128::from(member.clock_ahead),
        ),
        (
            "barid_cluster_link_messages_total",
            "counter",
            "Messages put on the way to the broker.",
            |member| i128::from(member.link.messages),
        ),
        (
            "barid_cluster_link_lost_total",
            "counter",
            "Messages of QoS 0 for which the links to the broker had no room.",
            |member| i128::from(member.link.lost),
        ),
        (
            "barid_cluster_link_waiting_bytes",
            "gauge",
            "Bytes of messages that wait to be sent to the broker or to be acknowledged by it.",
            |member| i128::from(member.link.waiting),
        ),
        (
            "barid_cluster_differing_parts",
            "gauge",
            "Parts, of 1,024, of the replicated objects that differed from those of the broker when last compared.",
            |member| member.replicas.differing_parts as i128,
        ),
        (
            "barid_cluster_objects_sent_total",
            "counter",
            "Replicated objects that were sent to the broker.",
            |member| i128::from(member.replicas.sent),
        ),
        (
            "barid_cluster_objects_received_total",
            "counter",
            "Replicated objects that came from the broker and were later than those of this one.",
            |member| i128::from(member.replicas.received),
        ),
    ];
    for (name, kind, help, read) in of_members {
        header(text, name, kind, help);
        for member in &members {
            let _ = writeln!(text, "{name}{{member=\"{}\"}} {}", member.name, read(member));
        }
    }
}
