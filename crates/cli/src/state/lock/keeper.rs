//! Acquires a lock, keeps it, and releases it.

use std::num::NonZeroU64;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use statestore_proto::{Command, Condition, Hlc, Reply};

use super::Args;
use super::lease::Lease;
use super::signals::Signals;
use crate::client::{Failure, Target};
use crate::state::key::shown;
use crate::state::reconnect::Pauses;
use crate::state::store::{Change, Extras, Store, unexpected};

/// Talks to the broker about one lock.
pub struct Keeper<'a> {
    args: &'a Args,
    signals: &'a Signals,
    target: Target,
    name: &'a [u8],
    /// `None` while the connection is lost.
    store: Option<Store>,
    pauses: Pauses,
}

/// Result of waiting for the lock.
pub enum Acquired {
    /// The lock was acquired.
    Held(Held),
    /// The lock was not acquired, and the program ends with this status.
    Not(ExitCode),
}

/// A lock held by this process.
pub struct Held {
    /// Version of the key, greater than those of all earlier holders.
    pub token: String,
    /// Earliest end of the lease by the clock of this process; by the broker's clock it ends a
    /// little later.
    pub until: Instant,
    /// Value that the key was set to.
    holder: Vec<u8>,
}

/// Longest wait; a signal, or the end of the command, is noticed after it.
const WAIT: Duration = Duration::from_millis(50);

impl<'a> Keeper<'a> {
    /// Creates a keeper. `target` must answer within a third of the lease.
    pub fn new(args: &'a Args, signals: &'a Signals, mut target: Target, name: &'a [u8]) -> Self {
        target.timeout = target.timeout.min((args.lease / 3).max(Duration::from_millis(500)));
        let pauses = Pauses::up_to((args.lease / 10).min(Duration::from_secs(1)));
        Self { args, signals, target, name, store: None, pauses }
    }

    /// Waits for the lock.
    pub fn acquire(&mut self) -> anyhow::Result<Acquired> {
        let deadline = self.args.timeout.map(|timeout| Instant::now() + timeout);
        let mut has_connected = false;
        loop {
            let outcome = self.try_acquire();
            has_connected |= self.store.is_some();
            match outcome {
                Ok(Some(held)) => {
                    self.pauses.reset();
                    return Ok(Acquired::Held(held));
                }
                Ok(None) if self.args.no_wait => {
                    eprintln!("barid: {}", self.who_has_it());
                    return Ok(Acquired::Not(ExitCode::FAILURE));
                }
                Ok(None) => {}
                Err(error) => self.recover(error, has_connected, deadline)?,
            }
            if let Some(end) = self.wait_until_free(deadline)? {
                return Ok(Acquired::Not(end));
            }
        }
    }

    /// Tries once to acquire the lock. Watching it comes first, so that no release is missed.
    fn try_acquire(&mut self) -> anyhow::Result<Option<Held>> {
        let (args, name) = (self.args, self.name);
        let store = self.store()?;
        let holder = match &args.holder {
            Some(holder) => holder.as_bytes().to_vec(),
            None => store.client_id().as_bytes().to_vec(),
        };
        // If the answer is lost, this process holds the lock without knowing it, and waits until
        // its own lease ends. Taking the lock over at once because the holder has the name of this
        // process would also take it from another process with that name.
        let start = Instant::now();
        let command = set(name, &holder, Condition::IfAbsent, args.lease);
        let answer = store.request(&command, Extras::default())?;
        match answer.reply() {
            Reply::Ok => {
                let token = answer.version.clone().unwrap_or_default();
                Ok(Some(Held { token, until: start + args.lease, holder }))
            }
            Reply::NotApplied => Ok(None),
            other => Err(unexpected(&other)),
        }
    }

    /// Returns the connection, with the lock watched; connects again if the connection was lost.
    fn store(&mut self) -> anyhow::Result<&mut Store> {
        if self.store.is_none() {
            let mut store = Store::connect_to_watch(&self.target)?;
            // The holder is the client identifier, so the next connection must have the same one.
            store.client_id().clone_into(&mut self.target.client_id);
            let command = Command::KeyNotify { key: self.name, stop: false };
            match store.request(&command, Extras::default())?.reply() {
                Reply::Ok => self.store = Some(store),
                other => return Err(unexpected(&other)),
            }
        }
        Ok(self.store.as_mut().expect("it was just made"))
    }

    /// Pauses before the next attempt to connect, or returns the error if another attempt is
    /// useless.
    fn recover(
        &mut self,
        error: anyhow::Error,
        has_connected: bool,
        deadline: Option<Instant>,
    ) -> anyhow::Result<()> {
        self.store = None;
        // A connection that never worked will hardly work in a second.
        let pause = self.pauses.after(&error).filter(|_| has_connected);
        let Some(pause) = pause else { return Err(error) };
        eprintln!("barid: {error:#}\nbarid: connecting again in {} ms", pause.as_millis());
        let rest = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        thread::sleep(rest.map_or(pause, |rest| rest.min(pause)));
        Ok(())
    }

    /// Waits until the lock is released, but no longer than the lease, in case the notification is
    /// lost.
    fn wait_until_free(&mut self, deadline: Option<Instant>) -> anyhow::Result<Option<ExitCode>> {
        let again = Instant::now() + self.args.lease;
        loop {
            let now = Instant::now();
            if let Some(end) = self.signals.end() {
                return Ok(Some(end));
            }
            if deadline.is_some_and(|deadline| now >= deadline) {
                eprintln!("barid: {}", self.who_has_it());
                anyhow::bail!(Failure::Timeout("the lock was not released in time"));
            }
            let Some(store) = self.store.as_mut().filter(|_| now < again) else { return Ok(None) };
            match store.change((now + WAIT).min(again)) {
                Ok(Some(Change { value: None, .. })) => return Ok(None),
                Ok(_) => {}
                // The next attempt reports what happened to the connection.
                Err(_) => self.store = None,
            }
        }
    }

    /// Describes the holder in a sentence.
    fn who_has_it(&mut self) -> String {
        let name = shown(self.name);
        let command = Command::Get { key: self.name };
        let answer = self.store.as_mut().map(|store| store.request(&command, Extras::default()));
        match answer.and_then(Result::ok).as_ref().map(|answer| answer.reply()) {
            Some(Reply::Value(holder)) => format!("{} has the lock {name}", shown(holder)),
            _ => format!("another client has the lock {name}"),
        }
    }

    /// Renews the lease until it is lost or no longer needed.
    pub fn keep(&mut self, held: &Held, lease: &Lease) {
        let mut renew_at = Instant::now() + self.args.lease / 3;
        let mut is_reachable = true;
        while lease.is_kept() {
            let step = match self.step(held, renew_at) {
                Ok(step) => step,
                Err(error) => {
                    self.store = None;
                    // Reported only once: most attempts fail for the same reason as the one before.
                    if is_reachable {
                        eprintln!("barid: {error:#}");
                    }
                    is_reachable = false;
                    match self.pauses.after(&error) {
                        Some(pause) => lease.sleep(pause),
                        // Nothing remains but to wait for the end of the lease.
                        None => lease.sleep(self.args.lease),
                    }
                    Step::Renew
                }
            };
            match step {
                Step::Wait => {}
                Step::Renew => renew_at = Instant::now(),
                Step::Renewed(at) => {
                    is_reachable = true;
                    self.pauses.reset();
                    renew_at = at + self.args.lease / 3;
                    lease.extend(at + self.args.lease);
                }
                Step::Lost(why) => lease.lose(why),
            }
        }
    }

    fn step(&mut self, held: &Held, renew_at: Instant) -> anyhow::Result<Step> {
        let (args, name) = (self.args, self.name);
        let store = self.store()?;
        let now = Instant::now();
        if let Some(change) = store.change(renew_at.min(now + WAIT))? {
            return Ok(held.lost_by(&change).map_or(Step::Wait, Step::Lost));
        }
        let now = Instant::now();
        if now < renew_at {
            return Ok(Step::Wait);
        }
        let command = set(name, &held.holder, Condition::IfAbsentOrEqual, args.lease);
        match store.request(&command, Extras::default())?.reply() {
            Reply::Ok => Ok(Step::Renewed(now)),
            Reply::NotApplied => Ok(Step::Lost("another client has it".into())),
            other => Err(unexpected(&other)),
        }
    }

    /// Releases the lock. If that fails, the lock is released by the end of its lease.
    pub fn release(&mut self, held: &Held) {
        let name = self.name;
        let command = Command::VDel { key: name, value: &held.holder };
        let released = self.store().and_then(|store| store.request(&command, Extras::default()));
        match released {
            Ok(_) => {
                if let Some(store) = self.store.take() {
                    store.disconnect();
                }
            }
            Err(error) => eprintln!(
                "barid: {error:#}\nbarid: the lock {} could not be released; it ends with its lease",
                shown(name)
            ),
        }
    }
}

/// Result of a short wait while the lock is held.
enum Step {
    Wait,
    /// The connection must be made again and the lease renewed.
    Renew,
    /// The lease was renewed by a request sent at this instant.
    Renewed(Instant),
    Lost(String),
}

impl Held {
    /// Returns the reason why a change of the key means that the lock is lost. Notifications also
    /// report our own renewals, and, late, changes from before the lock was acquired.
    fn lost_by(&self, change: &Change) -> Option<String> {
        let version = |text| Hlc::parse(text).ok().map(|hlc| (hlc.wall, hlc.counter));
        let since_we_have_it = match (version(&self.token), change.version.as_deref()) {
            (Some(ours), Some(theirs)) => version(theirs).is_none_or(|theirs| theirs >= ours),
            _ => true,
        };
        if !since_we_have_it {
            return None;
        }
        match &change.value {
            None => Some("its key was deleted, or the lease expired".into()),
            Some(value) if *value != self.holder => Some(format!("{} has it", shown(value))),
            Some(_) => None,
        }
    }
}

fn set<'a>(key: &'a [u8], value: &'a [u8], condition: Condition, lease: Duration) -> Command<'a> {
    let ttl = u64::try_from(lease.as_millis()).ok().and_then(NonZeroU64::new);
    Command::Set { key, value, condition, ttl }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held() -> Held {
        let token = "000000000005000:00001:StateStore".into();
        Held { token, until: Instant::now(), holder: b"me".to_vec() }
    }

    #[track_caller]
    fn check(value: Option<&str>, version: Option<&str>, expected: Option<&str>) {
        let change = Change {
            key: b"lock".to_vec(),
            value: value.map(|value| value.as_bytes().to_vec()),
            version: version.map(String::from),
        };
        assert_eq!(held().lost_by(&change).as_deref(), expected, "{change:?}");
    }

    #[test]
    fn what_loses_a_lock() {
        let deleted = Some("its key was deleted, or the lease expired");
        check(None, Some("5000:1:StateStore"), deleted);
        check(None, Some("5000:2:StateStore"), deleted);
        check(None, Some("5001:0:StateStore"), deleted);
        check(None, None, deleted);
        check(Some("you"), Some("5000:2:StateStore"), Some("`you` has it"));
    }

    #[test]
    fn what_does_not() {
        // The previous holder has released it, and the notification is late.
        check(None, Some("5000:0:StateStore"), None);
        check(None, Some("4999:7:StateStore"), None);
        check(Some("you"), Some("4999:7:StateStore"), None);
        // This process has set it.
        check(Some("me"), Some("5000:1:StateStore"), None);
        check(Some("me"), Some("6000:0:StateStore"), None);
    }
}
