//! A connection, as the quotas see it.

use std::sync::Arc;

use barid_core::time::MonoTime;

use super::pace::Pace;
use super::usage::{Flow, Place, Usage};
use super::{DEBT_MAX, Permit, Quotas};
use crate::limits::Limits;
use crate::user_limits::UserLimits;

/// The quotas that one connection is under: its permit, and the pace at which it is read from. Quotas may
/// change while it is connected.
#[derive(Debug)]
pub struct Metered {
    permit: Permit,
    /// The name of the user.
    user: Box<str>,
    version: u32,
    /// The version of the user's own limits.
    user_version: u32,
    /// The pace of the client's messages; `None`: they are not limited.
    pub messages: Option<Box<Pace>>,
    /// The pace of the client's bytes; `None`: they are not limited.
    pub bytes: Option<Box<Pace>>,
    /// The pace of the answers to the client's packets, in bytes; `None`: they are not limited.
    pub answers: Option<Box<Pace>>,
    /// Bytes of the answers in this turn that were counted.
    answered: usize,
}

impl Metered {
    /// Begins to apply the quotas to a connection of a user. [`Self::outbound`] must be called next.
    pub fn new(quotas: &Quotas, permit: Permit, user: &str) -> Self {
        let version = quotas.version();
        let mut new = Self {
            permit,
            user: user.into(),
            version,
            user_version: 0,
            messages: None,
            bytes: None,
            answers: None,
            answered: 0,
        };
        new.set_paces();
        new
    }

    /// Whether the quotas have changed, so that [`Self::refresh`] is due.
    #[inline]
    pub fn is_outdated(&self, quotas: &Quotas) -> bool {
        self.version != quotas.version()
            || self
                .permit
                .user
                .as_ref()
                .is_some_and(|place| self.user_version != place.usage().version())
    }

    /// Gives the user other limits of its own. Returns whether [`Self::refresh`] is due.
    pub fn set_own(&mut self, now: MonoTime, quotas: &Quotas, own: &UserLimits) -> bool {
        if !own.are_of_connections() && self.permit.user.is_none() {
            return false;
        }
        let (usage, _) = quotas.users.of(now, &self.user, Some(own));
        if self.permit.user.is_none() {
            self.user_version = usage.version().wrapping_sub(1);
            self.permit.user = Some(Place::take(&usage).0);
        }
        self.is_outdated(quotas)
    }

    /// Applies the quotas as they are now. `limits` returns the tenant's limits. Waits end, and begin again if
    /// they are still necessary. [`Self::outbound`] must be called next.
    pub fn refresh(
        &mut self,
        now: MonoTime,
        quotas: &Quotas,
        limits: impl FnOnce() -> Arc<Limits>,
    ) {
        // Limits are replaced before the version changes, so they are read after it.
        self.version = quotas.version();
        if limits().are_of_users() && self.permit.user.is_none() {
            let (usage, _) = quotas.users.of(now, &self.user, None);
            self.permit.user = Some(Place::take(&usage).0);
        }
        self.set_paces();
    }

    /// The paces at which the client is read from.
    pub fn paces(&mut self) -> impl Iterator<Item = &mut Pace> {
        let paces = [&mut self.messages, &mut self.bytes, &mut self.answers];
        paces.into_iter().flatten().map(|pace| &mut **pace)
    }

    /// The pace of the bytes that are sent to the client; `None`: they are not limited.
    pub fn outbound(&self) -> Option<Box<Pace>> {
        self.pace(Flow::Outbound)
    }

    /// The time until which the client must not be read from.
    pub fn waits_until(&self) -> Option<MonoTime> {
        let until = |pace: &Option<Box<Pace>>| pace.as_ref().and_then(|pace| pace.until());
        until(&self.messages).max(until(&self.bytes)).max(until(&self.answers))
    }

    /// Whether the client must not be read from because of what it has sent.
    pub fn waits_for_input(&self) -> bool {
        let waits =
            |pace: &Option<Box<Pace>>| pace.as_ref().is_some_and(|pace| pace.until().is_some());
        waits(&self.messages) || waits(&self.bytes)
    }

    /// Whether the client must not be read from now. Waits that are over by now end.
    pub fn waits(&mut self, now: MonoTime) -> bool {
        let paces = [&mut self.messages, &mut self.bytes, &mut self.answers].into_iter().flatten();
        paces.fold(false, |waits, pace| {
            pace.end_wait(now);
            waits || pace.until().is_some()
        })
    }

    /// Whether a quota has slowed the client down lately.
    pub fn is_at_limit(&self, now: MonoTime) -> bool {
        let paces = [&self.messages, &self.bytes, &self.answers].into_iter().flatten();
        paces.into_iter().any(|pace| pace.is_at_limit(now))
    }

    /// Counts bytes that were read from the client, at the end of a read.
    pub fn has_read(&mut self, now: MonoTime, bytes: usize) {
        if let Some(pace) = &mut self.bytes {
            pace.spend(now, bytes as u64);
            pace.rest();
        }
    }

    /// Tells that the client has sent so many bytes that are still to be counted.
    pub fn expect_bytes(&mut self, bytes: usize) {
        if let Some(pace) = &mut self.bytes {
            pace.expect(bytes as u64);
        }
    }

    /// Counts the answers of a turn, which take so many bytes until now.
    pub fn has_answered(&mut self, now: MonoTime, bytes: usize) {
        if let Some(pace) = &mut self.answers {
            let before = std::mem::replace(&mut self.answered, bytes);
            if before > bytes {
                pace.unspend((before - bytes) as u64);
            } else {
                pace.spend(now, (bytes - before) as u64);
            }
        }
    }

    /// Counts the answers of a turn, which has ended. They take so many bytes.
    pub fn end_answers(&mut self, now: MonoTime, bytes: usize) {
        self.has_answered(now, bytes);
        self.answered = 0;
        if let Some(pace) = &mut self.answers {
            pace.rest();
        }
    }

    /// Gives back granted messages that were not used, at the end of a turn.
    pub fn rest(&mut self) {
        if let Some(pace) = &mut self.messages {
            pace.rest();
        }
    }

    fn set_paces(&mut self) {
        // The old ones give back what they have not used, before the new ones ask.
        (self.messages, self.bytes, self.answers) = (None, None, None);
        self.answered = 0;
        // Read before the rates, which change before it.
        self.user_version = self.permit.user.as_ref().map_or(0, |place| place.usage().version());
        self.messages = self.pace(Flow::Publish);
        self.bytes = self.pace(Flow::Inbound);
        self.answers = self.pace(Flow::Outbound).map(|pace| pace.going_ahead(DEBT_MAX));
    }

    fn pace(&self, flow: Flow) -> Option<Box<Pace>> {
        let user: Option<&Arc<Usage>> = self.permit.user.as_ref().map(Place::usage);
        Pace::new(flow, self.permit.tenant.usage(), user)
    }
}
