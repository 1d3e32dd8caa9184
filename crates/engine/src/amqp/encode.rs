//! Encoding of messages and lock tokens for receivers.

use barid_amqp::message::{
    Change, Delivered, Malformed, Scope as To, Sections, State as As, ValueRef,
};
use barid_core::entity::{Entry, LockToken, State};
use barid_core::time::WallTime;
use barid_core::value::{Scope, Value};
use smallvec::SmallVec;

use crate::entities::value::encoded;

/// Appends the encoded message to `out`. `lock` is the lock token and the time at which the lock ends.
///
/// # Errors
/// [`Malformed`]: the stored bytes are not a message.
pub fn encode(
    entry: &Entry,
    bytes: &[u8],
    lock: Option<(LockToken, WallTime)>,
    out: &mut Vec<u8>,
) -> Result<(), Malformed> {
    let sections = Sections::of_known(bytes)?;
    let overlay = entry.overlay.as_deref();
    let changes: SmallVec<[Change<'_>; 4]> =
        overlay.into_iter().flat_map(|overlay| overlay.iter()).map(change).collect();
    let source =
        changes.iter().find_map(|change| match (change.scope, change.name, change.value) {
            (To::Annotation, "x-opt-deadletter-source", Some(ValueRef::String(source))) => {
                Some(source)
            }
            _ => None,
        });
    let delivered = Delivered {
        delivery_count: entry.delivery_count,
        ttl: entry
            .expires_at
            .map(|at| u32::try_from(at.since(entry.enqueued_at).as_millis()).unwrap_or(u32::MAX)),
        enqueued_at: millis(entry.enqueued_at),
        expires_at: entry.expires_at.map(millis),
        sequence_number: entry.number,
        enqueued_sequence_number: entry.enqueued_number,
        locked_until: lock.map(|(_, until)| millis(until)),
        state: match entry.state {
            State::Active => As::Active,
            State::Deferred => As::Deferred,
            State::Scheduled { .. } => As::Scheduled,
        },
        scheduled_at: match entry.state {
            State::Scheduled { at } => Some(millis(at)),
            State::Active | State::Deferred => None,
        },
        dead_letter_source: source,
        lock_token: lock.map(|(token, _)| uuid_of(token)),
        changes: &changes,
    };
    delivered.encode(&sections, out);
    Ok(())
}

fn change<'a>((scope, name, value): (Scope, &'a str, &'a Value)) -> Change<'a> {
    let scope = match scope {
        Scope::System => To::System,
        Scope::User => To::User,
        Scope::Annotation => To::Annotation,
    };
    // A property without a value has been removed.
    let value = Some(encoded(value)).filter(|value| !value.is_null());
    Change { scope, name, value }
}

/// Returns a time as an AMQP timestamp: milliseconds since 1970.
pub fn millis(at: WallTime) -> i64 {
    i64::try_from(at.as_millis()).unwrap_or(i64::MAX)
}

/// Returns the delivery tag of a lock token: a GUID in the byte order of .NET.
pub fn tag_of(token: LockToken) -> [u8; 16] {
    swap(uuid_of(token))
}

/// Returns the lock token that a delivery tag stands for; `None` if the tag does not have 16 bytes.
pub fn token_of_tag(tag: &[u8]) -> Option<LockToken> {
    Some(token_of(swap(tag.try_into().ok()?)))
}

/// Returns a lock token as a UUID, in network byte order.
pub fn uuid_of(token: LockToken) -> [u8; 16] {
    token.0.to_be_bytes()
}

/// Returns the lock token that a UUID stands for.
pub fn token_of(uuid: [u8; 16]) -> LockToken {
    LockToken(u128::from_be_bytes(uuid))
}

/// Converts a GUID between network byte order and the byte order of .NET, which has the first three groups in
/// little-endian order.
fn swap(mut guid: [u8; 16]) -> [u8; 16] {
    guid[..4].reverse();
    guid[4..6].reverse();
    guid[6..8].reverse();
    guid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_the_token_in_the_byte_order_of_dotnet() {
        let token = LockToken(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
        let tag = tag_of(token);
        assert_eq!(tag[..8], [0x33, 0x22, 0x11, 0x00, 0x55, 0x44, 0x77, 0x66]);
        assert_eq!(tag[8..], [0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff]);
        assert_eq!(token_of_tag(&tag), Some(token));
        assert_eq!(token_of(uuid_of(token)), token);
        assert_eq!(token_of_tag(&tag[..15]), None);
    }
}
