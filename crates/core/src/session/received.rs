//! Packet identifiers of QoS 2 messages received and not yet released.

use hashbrown::HashSet;

/// The receiver's half of QoS 2 (method B of MQTT 5 §4.3.3): a message is handed on when its PUBLISH
/// arrives, and its identifier is remembered until PUBREL so that a repeated PUBLISH is not.
#[derive(Debug, Default)]
pub struct ReceivedIds {
    ids: HashSet<u16, foldhash::fast::FixedState>,
}

impl ReceivedIds {
    /// Notes a PUBLISH. False: it is a repetition and must not be handed on again.
    pub fn receive(&mut self, id: u16) -> bool {
        self.ids.insert(id)
    }

    /// Notes a PUBREL. False: no such message was held.
    pub fn release(&mut self, id: u16) -> bool {
        self.ids.remove(&id)
    }

    /// Whether a message with this identifier is held.
    pub fn contains(&self, id: u16) -> bool {
        self.ids.contains(&id)
    }

    /// How many messages are held; counts against the broker's Receive Maximum.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_publish_is_not_new_until_released() {
        let mut received = ReceivedIds::default();
        assert!(received.receive(1));
        assert!(!received.receive(1));
        assert!(received.release(1));
        assert!(!received.release(1));
        assert!(received.receive(1));
        assert_eq!(received.len(), 1);
    }
}
