//! Control links: heartbeats, the topic filters of the speaker's clients, and wills that the hearer keeps.

use std::sync::Arc;

use barid_core::durable::records::decode_message;
use barid_peers::{Change, Frame, FrameError, Heartbeat, Identity, Part};

use super::{Membership, Watcher};
use crate::cluster::{Cluster, KeptWill, MemberRef, UsagesTold, WillsTold};
use crate::engine::Engine;

/// What a broker says on a control link that it has opened.
#[derive(Debug, Default)]
pub struct Speaker {
    /// What it has told of its subscriptions.
    told: Part,
    /// The last version that it has told as a whole.
    last_told: Option<u64>,
    wills: WillsTold,
    usages: UsagesTold,
    heartbeat: Option<Heartbeat>,
}

impl Speaker {
    /// Has a heartbeat sent, behind everything that there was to tell when it was made: it may let the other broker
    /// acknowledge messages.
    pub fn beat(&mut self, heartbeat: Heartbeat) {
        self.heartbeat = Some(heartbeat);
    }

    /// Appends the next frames for another broker to `out`. Returns whether more are to follow at once.
    pub fn speak(&mut self, cluster: &Cluster, to: MemberRef, out: &mut Vec<u8>) -> bool {
        if self.told == Part::Nothing {
            Frame::SnapshotBegins.encode(out);
        }
        let has_more = cluster.tell(&mut self.told, |is_added, tenant, filter| {
            Frame::Filter(Change { is_added, tenant, filter }).encode(out);
        });
        if has_more {
            return true;
        }
        if let Part::Changes(version) = self.told
            && self.last_told != Some(version)
        {
            Frame::Told(version).encode(out);
            self.last_told = Some(version);
        }
        if let Some(heartbeat) = self.heartbeat.take() {
            Frame::Heartbeat(heartbeat).encode(out);
        }
        let has_more = cluster.tell_wills(to, &mut self.wills, |frame| frame.encode(out));
        cluster.tell_usages(&mut self.usages, |frame| frame.encode(out)) || has_more
    }
}

impl Membership {
    /// Handles a frame of a control link that another broker has opened. Appends what it is answered to `out`.
    ///
    /// # Errors
    /// The frame is not one of a control link.
    pub fn hear(
        &self,
        engine: &Engine,
        (peer, place): (&Identity, MemberRef),
        frame: Frame<'_>,
        watcher: &dyn Watcher,
        out: &mut Vec<u8>,
    ) -> Result<(), FrameError> {
        match frame {
            Frame::Heartbeat(heartbeat) => {
                let wall = engine.clock.wall();
                self.change(engine, watcher, |members, now, events| {
                    let from = (peer.name.as_str(), peer.incarnation);
                    members.on_heartbeat((now, wall), from, heartbeat, events);
                });
            }
            Frame::SnapshotBegins => self.cluster().on_snapshot(place),
            Frame::Filter(change) => self.cluster().on_change(place, change),
            Frame::Told(version) => {
                engine.forget_filters(self.cluster().on_told(place));
                self.members().on_told(&peer.name, peer.incarnation);
                Frame::Heard(version).encode(out);
            }
            Frame::Connected { tenant, client, at, begins_anew } => {
                let wins = peer.name > self.members().me().name;
                self.cluster().has_connected(at, engine.clock.wall_micros());
                self.cluster().is_back(tenant, client, at);
                engine.connected_elsewhere((tenant, client), at, begins_anew, wins);
            }
            Frame::WillsBegin { first } => self.cluster().on_wills(place, first),
            Frame::Will(will) => {
                let message = decode_message(will.message).map_err(|_| FrameError::Value)?;
                let kept = KeptWill {
                    connected_at: will.at,
                    user: will.user.into(),
                    message: Arc::new(message),
                    expiry: will.expiry,
                };
                self.cluster().on_will(place, will.tenant, will.client, kept);
            }
            Frame::NoWill { tenant, client } => self.cluster().on_no_will(place, tenant, client),
            Frame::WillsTold => self.cluster().on_wills_told(place),
            Frame::UsagesBegin => {
                self.cluster().on_usages(place);
                engine.look_for_room();
            }
            Frame::Used { tenant, used } => {
                let spent = self.cluster().on_used(place, tenant, used);
                if let Some(tenant) = engine.tenants.get(tenant) {
                    tenant.quotas.has_spent_elsewhere(engine.clock.now(), spent);
                    tenant.queued.look_for_room(None);
                }
            }
            Frame::Leaving => self.change(engine, watcher, |members, now, events| {
                members.on_leaving(now, (&peer.name, peer.incarnation), events);
            }),
            _ => return Err(FrameError::Unexpected),
        }
        Ok(())
    }

    /// Another broker has heard of all subscriptions that there were here, up to a version.
    pub fn is_heard(&self, (peer, place): (&Identity, MemberRef), version: u64) {
        self.cluster().heard_of_us(place, version);
        self.members().on_heard(&peer.name, peer.incarnation);
    }
}
