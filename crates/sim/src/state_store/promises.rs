//! The promises that clients may rely on.

use std::collections::BTreeMap;

use statestore_proto::{Refusal, Version};

use super::key::{KeyRules, Operation};
use crate::linearizability::{Call, Finding, Moment, search};
use crate::network::LinkId;
use crate::packets::state_store::{
    Command, KEYS, Key, LOCK, Request, RequestNumber, Told, VOLATILE, Value,
};
use crate::world::Checker;

/// All requests, and everything that clients were told.
#[derive(Default)]
pub struct Promises {
    asked: Vec<Asked>,
    /// The versions that clients were told, with the time.
    versions: Vec<(Moment, Version)>,
    /// The version in the last notification of each key, by connection.
    notified: BTreeMap<(LinkId, Key), Version>,
    violation: Option<String>,
}

struct Asked {
    request: Request,
    begun: Moment,
    told: Option<(Told, Moment)>,
    /// The version and time of the first notification of it.
    seen: Option<(Version, Moment)>,
}

impl Checker for Promises {
    fn violation(&mut self) -> &mut Option<String> {
        &mut self.violation
    }

    fn messages(&self) -> u32 {
        u32::try_from(self.asked.len()).expect("histories are short")
    }
}

impl Promises {
    /// Returns all requests that were sent.
    pub fn all(&self) -> Vec<Request> {
        self.asked.iter().map(|asked| asked.request).collect()
    }

    /// Returns the number of the next request.
    pub fn next(&self) -> RequestNumber {
        self.messages()
    }

    /// Records that a request is sent for the first time.
    pub fn asked(&mut self, request: Request, begun: Moment) {
        self.asked.push(Asked { request, begun, told: None, seen: None });
    }

    /// Records that a request is answered for the first time.
    pub fn told(&mut self, number: RequestNumber, told: Told, at: Moment) {
        self.asked[number as usize].told = Some((told, at));
        self.versions.extend(told.version().map(|version| (at, version)));
    }

    /// Records that a connection is notified of a change.
    pub fn notified(
        &mut self,
        link: LinkId,
        (key, value, version): (Key, Option<Value>, Version),
        at: Moment,
    ) {
        self.versions.push((at, version));
        if self.notified.insert((link, key), version).is_some_and(|before| before >= version) {
            self.violate(format!("[{link}] is notified of {} out of order", KEYS[key]));
        }
        // The holder of the lock sets it to the same value repeatedly, so the value does not name a request.
        if let Some(number) = value.filter(|_| key != LOCK) {
            self.asked[number as usize].seen.get_or_insert((version, at));
        }
    }

    /// Checks everything, after the world has come to rest.
    pub fn check(&mut self) {
        self.check_versions();
        for key in (0..KEYS.len()).filter(|key| *key != VOLATILE) {
            let calls: Vec<_> = self
                .asked
                .iter()
                .filter(|asked| asked.request.key == key)
                .filter_map(Asked::call)
                .collect();
            let key = KEYS[key];
            match search(&KeyRules, &calls) {
                Finding::Linearizable => {}
                Finding::Contradictory => {
                    self.violate(format!("no order of the requests about {key} fits"));
                }
                Finding::Unknown => self.violate(format!("no order for {key} was found in time")),
            }
        }
    }

    /// Checks that every version is greater than all versions that clients had been told before its request was
    /// sent.
    fn check_versions(&mut self) {
        let mut broken = None;
        let mut given = BTreeMap::new();
        for Asked { request, begun, told, seen } in &self.asked {
            let number = request.number;
            let told = told.and_then(|(told, _)| told.given());
            if let (Some(told), Some((seen, _))) = (told, *seen)
                && told != seen
                && request.key != VOLATILE
            {
                broken = Some(format!("r{number} was done twice: {told:?}, {seen:?}"));
            }
            let Some(version) = told else { continue };
            if let Some(other) = given.insert(version, number) {
                broken = Some(format!("r{other} and r{number} have the same version"));
            }
            let before = self.versions.iter().filter(|(at, _)| at < begun);
            if let Some(before) = before.map(|(_, before)| *before).max()
                && before >= version
            {
                broken = Some(format!("r{number} has version {version:?}, after {before:?}"));
            }
        }
        if let Some(broken) = broken {
            self.violate(broken);
        }
    }
}

impl Asked {
    /// Returns the request as a call, or `None` if it cannot have had an effect and no client was told a
    /// response.
    fn call(&self) -> Option<Call<Operation>> {
        let Self { request: Request { command, token, .. }, begun, told, seen } = *self;
        // A request that was refused because the disk is full may succeed when it is repeated, so its result is
        // not known.
        let told = told.filter(|(told, _)| *told != Told::Refused(Refusal::QuotaExceeded));
        let seen = seen.map(|(version, at)| (Told::Set(version), at));
        let (told, ended) = match (told, seen) {
            (Some((told, at)), Some((_, seen))) => (Some(told), Some(at.min(seen))),
            (Some((told, at)), None) | (None, Some((told, at))) => (Some(told), Some(at)),
            (None, None) => (None, None),
        };
        if command == Command::Get && ended.is_none() {
            return None;
        }
        Some(Call { operation: Operation { command, token, told }, begun, ended })
    }
}
