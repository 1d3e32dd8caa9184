//! From the stores to entities.

use std::collections::BTreeMap;
use std::sync::Arc;

use barid_core::durable::{
    EntityRecord, Recovery, SessionRecord, SessionStateRecord, SubscriptionRecord,
};
use barid_core::entity::{Entity, Entry, Part, SequenceNumber};
use barid_core::ids::{EntryNumber, QueueNumber, SessionNumber, TenantNumber};
use barid_core::message::Message;
use barid_core::session::EntryRecord;
use barid_core::state_store::StateRecord;
use barid_core::time::WallTime;
use statestore_proto::Version;

use super::broker::{Settings, new_entity};
use crate::durable::TENANT_NUMBER;
use crate::packets::entities::{ENTITIES, EntityId};
use crate::rules::Rule;

/// Hears what the stores have.
pub struct Reader {
    settings: Settings,
    life: u32,
    /// Those that were found.
    pub entities: BTreeMap<EntityId, (QueueNumber, Entity)>,
}

impl Reader {
    pub fn new(settings: Settings, life: u32) -> Self {
        Self { settings, life, entities: BTreeMap::new() }
    }

    fn entity_of(&mut self, queue: QueueNumber) -> &mut Entity {
        let mut entities = self.entities.values_mut();
        &mut entities.find(|(of, _)| *of == queue).expect("entities come first").1
    }
}

impl Recovery for Reader {
    fn tenant(&mut self, _: &str) -> TenantNumber {
        TENANT_NUMBER
    }

    fn entity(&mut self, _: TenantNumber, path: &str, record: EntityRecord) {
        let id = ENTITIES.iter().position(|known| *known == path).expect("one of ours");
        self.entities.insert(id, (record.queue, new_entity(id, self.settings, self.life)));
    }

    fn queue_numbers(
        &mut self,
        _: TenantNumber,
        queue: QueueNumber,
        part: Part,
        reserved: SequenceNumber,
    ) {
        if self.settings.rules.hold(Rule::RestoreNumbers) {
            self.entity_of(queue).recover_numbers(part, reserved);
        }
    }

    fn queue_state(
        &mut self,
        _: TenantNumber,
        queue: QueueNumber,
        session: Arc<str>,
        record: SessionStateRecord,
    ) {
        if self.settings.rules.hold(Rule::RestoreStates) {
            self.entity_of(queue).recover_state(&session, record.state, record.updated_at);
        }
    }

    fn queue_entry(&mut self, _: TenantNumber, queue: QueueNumber, part: Part, entry: Entry) {
        self.entity_of(queue).recover_entry(part, entry);
    }

    fn queue_seen(&mut self, _: TenantNumber, queue: QueueNumber, id: Arc<str>, until: WallTime) {
        if self.settings.rules.hold(Rule::RestoreSeen) {
            self.entity_of(queue).recover_seen(&id, until);
        }
    }

    // These histories have no MQTT.
    fn session(&mut self, _: TenantNumber, _: &str, _: SessionRecord) {}
    fn subscription(&mut self, _: TenantNumber, _: SessionNumber, _: &str, _: SubscriptionRecord) {}
    fn entry(&mut self, _: TenantNumber, _: SessionNumber, _: EntryNumber, _: EntryRecord) {}
    fn retained(&mut self, _: TenantNumber, _: Message) {}
    fn state_clock(&mut self, _: TenantNumber, _: Version) {}
    fn state(&mut self, _: TenantNumber, _: &[u8], _: StateRecord) {}
}
