//! Groups of messages that a part of the broker has taken, and their bodies.

use std::sync::Arc;

use barid_core::entity::Delivery;
use tracing::error;

/// Returns the bodies that are in the store only: for each the sequence number of its message, which is its tag in
/// the request, and its id.
pub fn absent(group: &[Delivery]) -> Vec<(u64, u64)> {
    let absent = group.iter().filter(|delivery| delivery.entry.body.bytes.is_none());
    absent.map(|delivery| (delivery.token.number(), delivery.entry.body.id)).collect()
}

/// Inserts the bodies that were read back. A message whose body is still absent afterwards is lost.
pub fn fill(group: &mut [Delivery], bodies: Vec<(u64, Option<Arc<[u8]>>)>) {
    for (number, bytes) in bodies {
        if bytes.is_none() {
            error!(number, "cannot read a message back to move it to another entity: it is lost");
        }
        if let Some(delivery) = group.iter_mut().find(|one| one.token.number() == number) {
            delivery.entry.body.bytes = bytes;
        }
    }
}
