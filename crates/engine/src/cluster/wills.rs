//! Wills that brokers keep for each other.
//!
//! A session that is not stored is in the memory of one broker, and its will would be lost with that broker. So two others
//! keep the will, the *keepers*: the first one publishes it when the broker is down or has left, the second one if the first
//! one is down as well. Nobody waits until a will is kept.
//!
//! A client that has connected again, anywhere, is not gone: its kept will is forgotten.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use barid_core::durable::records::encode_message;
use barid_core::message::Message;
use barid_core::time::MonoTime;
use barid_peers::{Announced, Frame, Part, Will};

use super::{Cluster, MemberRef};
use crate::sync::Mutex;

/// Maximum length of a will that is kept, in bytes, with its topic and properties.
const LENGTH_MAX: usize = 4 * 1024;

/// Maximum memory for the wills of one other broker, in bytes.
const MEMORY_MAX: usize = 64 * 1024 * 1024;

/// What a kept will needs beside its message and the name of its client, in bytes, about.
const OVERHEAD: usize = 200;

/// Time for which the second keeper keeps the wills of a broker that is down: the first one has published them by then.
const ORPHANED: Duration = Duration::from_secs(60);

/// A will that does not need its session to be published.
#[derive(Clone, Debug)]
pub struct KeptWill {
    /// The user to whom the message belongs if it is retained; empty: none.
    pub user: Box<str>,
    /// The message. Its expiry starts to run when it is published.
    pub message: Arc<Message>,
    /// Message Expiry Interval, in seconds.
    pub expiry: Option<u32>,
}

/// The will of a client whose broker is down.
#[derive(Debug)]
pub struct Orphan {
    /// The tenant of the client.
    pub tenant: Box<str>,
    /// The client identifier.
    pub client_id: Box<str>,
    /// The will.
    pub will: KeptWill,
}

/// The wills of this broker's clients.
#[derive(Default)]
pub(super) struct Wills {
    own: Mutex<Announced<KeptWill>>,
    /// The brokers that keep them, the first one first.
    keepers: Mutex<Vec<MemberRef>>,
    /// Number of wills that were too large, or for which there was no room, here and of other brokers.
    refused: AtomicU64,
    /// Number of wills that are kept for other brokers.
    kept: AtomicU64,
}

/// How far one other broker has been told of the wills.
#[derive(Debug, Default)]
pub struct WillsTold {
    /// The name of the first keeper, empty if that is the other broker; `None`: it keeps no wills.
    first: Option<String>,
    told: Part,
}

/// The wills of clients of one tenant, each with the number of the snapshot in which it was told.
type OfTenant = HashMap<Box<str>, (u32, KeptWill)>;

/// The wills of another broker.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// By tenant.
    wills: HashMap<Box<str>, OfTenant>,
    snapshot: u32,
    /// The name of the first keeper; empty: this broker.
    first: Box<str>,
    /// When the broker was held down, if the first keeper was not.
    orphaned_at: Option<MonoTime>,
    memory: usize,
    count: usize,
}

impl Cluster {
    /// A client has connected whose session is not stored: other brokers keep its will, in place of an earlier one.
    pub(super) fn keep_will(&self, tenant: &Arc<str>, client_id: &str, will: KeptWill) {
        if will.message.size() > LENGTH_MAX {
            self.wills.refused.fetch_add(1, Ordering::Relaxed);
            self.wills.own.lock().remove(tenant, client_id, |_| true);
        } else {
            self.wills.own.lock().set(tenant, client_id, |_| will);
        }
        self.teller.news_to_tell();
    }

    /// A will has been published or discarded.
    pub(super) fn will_is_over(&self, tenant: &Arc<str>, client_id: &str, message: &Arc<Message>) {
        let is_it = |will: &mut KeptWill| Arc::ptr_eq(&will.message, message);
        if self.wills.own.lock().remove(tenant, client_id, is_it) {
            self.teller.news_to_tell();
        }
    }

    /// Sets which brokers keep the wills of this one's clients, the first one first.
    pub fn set_keepers(&self, keepers: impl Iterator<Item = MemberRef>) {
        let mut known = self.wills.keepers.lock();
        known.clear();
        known.extend(keepers);
    }

    /// Gives the next part of the wills to another broker, if it keeps them. Returns whether something is left.
    pub fn tell_wills(
        &self,
        member: MemberRef,
        told: &mut WillsTold,
        mut tell: impl FnMut(&Frame<'_>),
    ) -> bool {
        let first = self.first_keeper_for(member);
        if told.first != first {
            told.told = Part::Nothing;
            let had_any = std::mem::replace(&mut told.first, first).is_some();
            if told.first.is_none() && had_any {
                // An empty snapshot: it forgets them.
                tell(&Frame::WillsBegin { first: "" });
                tell(&Frame::WillsTold);
            }
        }
        let Some(first) = &told.first else { return false };
        if told.told == Part::Nothing {
            tell(&Frame::WillsBegin { first });
        }
        let was_whole = matches!(told.told, Part::Changes(_));
        let mut message = Vec::new();
        let has_more = self.wills.own.lock().tell(&mut told.told, |tenant, client, will| {
            let Some(will) = will else {
                tell(&Frame::NoWill { tenant, client });
                return;
            };
            message.clear();
            encode_message(&will.message, &mut message);
            let (user, expiry) = (&*will.user, will.expiry);
            tell(&Frame::Will(Will { tenant, client, user, expiry, message: &message }));
        });
        if !was_whole && matches!(told.told, Part::Changes(_)) {
            tell(&Frame::WillsTold);
        }
        has_more
    }

    /// The name of the first keeper, empty if it is this broker; `None`: the broker keeps no wills.
    fn first_keeper_for(&self, member: MemberRef) -> Option<String> {
        let keepers = self.wills.keepers.lock();
        match keepers.iter().position(|keeper| *keeper == member)? {
            0 => Some(String::new()),
            _ => self.name_of(keepers[0]),
        }
    }

    /// Another broker begins to tell the wills that this one keeps. `first`: the name of the first keeper; empty: this broker.
    pub fn on_wills(&self, member: MemberRef, first: &str) {
        let mut kept = self.at(member).kept.lock();
        kept.snapshot = kept.snapshot.wrapping_add(1);
        kept.first = first.into();
        kept.orphaned_at = None;
    }

    /// Another broker has told the will of a client.
    pub fn on_will(&self, member: MemberRef, tenant: &str, client_id: &str, will: KeptWill) {
        let mut kept = self.at(member).kept.lock();
        let memory = memory(tenant, client_id, &will);
        self.forget_kept(&mut kept, tenant, client_id);
        if will.message.size() > LENGTH_MAX || kept.memory + memory > MEMORY_MAX {
            self.wills.refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
        kept.memory += memory;
        kept.count += 1;
        self.wills.kept.fetch_add(1, Ordering::SeqCst);
        let entry = (kept.snapshot, will);
        match kept.wills.get_mut(tenant) {
            Some(of_tenant) => of_tenant.insert(client_id.into(), entry),
            None => kept.wills.entry(tenant.into()).or_default().insert(client_id.into(), entry),
        };
    }

    /// A client of another broker has no will any more.
    pub fn on_no_will(&self, member: MemberRef, tenant: &str, client_id: &str) {
        self.forget_kept(&mut self.at(member).kept.lock(), tenant, client_id);
    }

    /// Another broker has told all wills that this one keeps.
    pub fn on_wills_told(&self, member: MemberRef) {
        let mut kept = self.at(member).kept.lock();
        let snapshot = kept.snapshot;
        let is_old = |told: u32| told != snapshot;
        drop(self.take_kept(&mut kept, is_old));
    }

    /// A client has connected, to another broker or to this one (`None`): it is not gone, whatever becomes of the broker to
    /// which it was connected before.
    pub(crate) fn is_back(&self, tenant: &str, client_id: &str, at: Option<MemberRef>) {
        if self.wills.kept.load(Ordering::SeqCst) == 0 {
            return;
        }
        for (index, place) in (0..).zip(&self.members) {
            if at != Some(MemberRef(index)) {
                self.forget_kept(&mut place.kept.lock(), tenant, client_id);
            }
        }
    }

    /// A broker is down or has left. Returns the wills that this broker is to publish. `is_in_cluster` tells whether another
    /// broker, given by its name, can do it.
    pub(crate) fn orphans(
        &self,
        member: MemberRef,
        now: MonoTime,
        is_in_cluster: impl Fn(&str) -> bool,
    ) -> Vec<Orphan> {
        let mut orphans = Vec::new();
        let mut kept = self.at(member).kept.lock();
        match kept.first.is_empty() || !is_in_cluster(&kept.first) {
            true => orphans.extend(self.take_kept(&mut kept, |_| true)),
            false => kept.orphaned_at = Some(now),
        }
        drop(kept);
        // Those that this broker was to publish in place of the one that is down now.
        let name = self.name_of(member).unwrap_or_default();
        for place in &self.members {
            let mut kept = place.kept.lock();
            let Some(orphaned_at) = kept.orphaned_at.filter(|_| *kept.first == *name) else {
                continue;
            };
            kept.orphaned_at = None;
            let taken = self.take_kept(&mut kept, |_| true);
            if now < orphaned_at.after(ORPHANED) {
                orphans.extend(taken);
            }
        }
        orphans
    }

    /// Number of wills that this broker keeps for another one.
    pub fn wills_of(&self, member: MemberRef) -> usize {
        self.at(member).kept.lock().count
    }

    /// Number of wills of this broker's clients that others keep, or are about to.
    pub fn wills(&self) -> usize {
        self.wills.own.lock().len()
    }

    /// Number of wills that were too large to be kept, or for which there was no room, here and of other brokers.
    pub fn wills_refused(&self) -> u64 {
        self.wills.refused.load(Ordering::Relaxed)
    }

    fn forget_kept(&self, kept: &mut Kept, tenant: &str, client_id: &str) {
        let Some(of_tenant) = kept.wills.get_mut(tenant) else { return };
        let Some((_, will)) = of_tenant.remove(client_id) else { return };
        if of_tenant.is_empty() {
            kept.wills.remove(tenant);
        }
        kept.memory -= memory(tenant, client_id, &will);
        kept.count -= 1;
        self.wills.kept.fetch_sub(1, Ordering::SeqCst);
    }

    /// Takes the wills for whose snapshot `is_taken` returns true.
    fn take_kept(&self, kept: &mut Kept, is_taken: impl Fn(u32) -> bool) -> Vec<Orphan> {
        let mut taken = Vec::new();
        kept.wills.retain(|tenant, of_tenant| {
            for (client_id, (_, will)) in of_tenant.extract_if(|_, (told, _)| is_taken(*told)) {
                taken.push(Orphan { tenant: tenant.clone(), client_id, will });
            }
            !of_tenant.is_empty()
        });
        for Orphan { tenant, client_id, will } in &taken {
            kept.memory -= memory(tenant, client_id, will);
        }
        kept.count -= taken.len();
        self.wills.kept.fetch_sub(taken.len() as u64, Ordering::SeqCst);
        taken
    }
}

/// What a kept will needs, in bytes, about.
fn memory(tenant: &str, client_id: &str, will: &KeptWill) -> usize {
    OVERHEAD + tenant.len() + client_id.len() + will.user.len() + will.message.size()
}
