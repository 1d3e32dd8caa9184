//! Retained messages that new subscriptions have asked for: fetched a few at a time, as the client takes them.

use std::ops::ControlFlow;
use std::sync::Arc;

use barid_core::retained::Walked;
use barid_core::session::{Delivery, Journal};

use super::Session;
use super::outlet::Outlet;
use crate::durable::SessionJournal;
use crate::retained;
use crate::worker::Worker;

/// Maximum number of retained messages looked at in one fetch.
const FETCHED: usize = 64;

impl Session {
    /// Fetches the next retained messages that subscriptions have asked for. Takes the steps that this needs
    /// from `steps`. If the session is stored, the messages are stored from then on. Returns false if no
    /// message has been found with these steps, and the search must go on later.
    pub(super) fn fetch_retained(
        &self,
        worker: &Worker,
        outlet: &mut Outlet,
        journal: &mut SessionJournal<'_>,
        steps: &mut usize,
    ) -> bool {
        while let Some(replays) = &mut outlet.replays {
            let Some(replay) = replays.front_mut() else {
                outlet.replays = None;
                return true;
            };
            if *steps == 0 {
                return false;
            }
            // A filter that needs no walk takes a step, too. The number of steps under one lock is bounded.
            let granted = (*steps).min(retained::STEPS);
            let mut left = granted - 1;
            let mut found = Vec::new();
            let mut seen = 0;
            let retained = self.account.retained.read();
            let after = replay.after.as_deref();
            let walked = retained.walk(&replay.filter, after, &mut left, |_, message| {
                seen += 1;
                if !message.is_expired(worker.now) {
                    found.push(Delivery {
                        message: Arc::clone(message),
                        qos: message.qos().min(replay.qos),
                        retain: true,
                        identifiers: replay.identifier.into_iter().collect(),
                        shared: None,
                        stored: None,
                        queued_at: worker.now,
                        after: None,
                    });
                }
                if seen < FETCHED { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            drop(retained);
            *steps -= granted - left;
            match walked {
                Walked::To(topic) => replay.after = Some(topic),
                Walked::All => replays.pop_front(),
            }
            if !found.is_empty() {
                for delivery in &mut found {
                    delivery.stored = outlet.newly_stored(delivery.qos, journal);
                    journal.put(delivery, None);
                }
                outlet.outbound.replay(found);
                return true;
            }
        }
        true
    }
}
