//! What a broker has in its data directory although it belongs to other brokers, by the map of slots: from before it was in
//! the cluster, or from before `homes` was changed.

use barid_engine::engine::Engine;
use tracing::warn;

use super::Clustering;

/// Warns of sessions, keys, queues and topics that nobody can use, because others have their slots.
pub fn warn_of_misplaced(clustering: &Clustering, engine: &Engine) {
    if clustering.slots().is_none() {
        return;
    }
    let mut sessions = 0;
    for tenant in engine.tenants.all() {
        tenant.sessions.for_each(|session| {
            let elsewhere = clustering.session_elsewhere(&tenant.name, &session.client_id);
            sessions += u64::from(session.durable().is_some() && elsewhere.is_some());
        });
        let Some(home) = clustering.home_elsewhere(&tenant.name) else { continue };
        let keys = tenant.used_state_store().map_or(0, |store| store.usage().keys());
        let has_entities = tenant.used_entities().is_some_and(|entities| !entities.is_empty());
        if keys > 0 || has_entities {
            warn!(
                tenant = &*tenant.name,
                home = &*home,
                keys,
                has_entities,
                "the keys, queues and topics of this tenant in the data directory cannot be used here: the broker in \
                 `home` has those of the tenant"
            );
        }
    }
    if sessions > 0 {
        warn!(
            sessions,
            "stored sessions in the data directory belong to other brokers, and their clients do not find them: has \
             `homes` been changed?"
        );
    }
}
