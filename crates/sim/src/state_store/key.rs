//! The sequential specification of one key: the effects and responses of the protocol's commands, in minimal
//! form.

use statestore_proto::{Condition, Refusal, Version};

use crate::linearizability::{Specification, Window};
use crate::packets::state_store::{Command, Told, Value};

/// The specification of a key.
pub struct KeyRules;

/// A command, with its response if that is known.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    pub command: Command,
    pub token: Option<Version>,
    pub told: Option<Told>,
}

/// The state of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    entry: Option<Entry>,
    /// The greatest version that is known to have been given to the key.
    latest: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Entry {
    value: Value,
    /// The version; `None` if no client was told it.
    version: Option<Version>,
    token: Option<Version>,
    /// The earliest and the latest time at which it expires, in milliseconds.
    expires: Option<(u64, u64)>,
}

impl Specification for KeyRules {
    type State = State;
    type Operation = Operation;

    fn initial(&self) -> State {
        State::default()
    }

    fn next(&self, state: &State, operation: &Operation, window: Window) -> Vec<State> {
        let mut next = Vec::new();
        let expires = state.entry.and_then(|entry| entry.expires);
        // The key may have expired, or may still exist.
        if expires.is_none_or(|(_, latest)| window.from < latest) {
            next.extend(state.apply(operation, window));
        }
        if expires.is_some_and(|(earliest, _)| window.to >= earliest) {
            let expired = State { entry: None, ..*state };
            next.extend(expired.apply(operation, window));
        }
        next
    }
}

impl State {
    /// Returns the state of the key after a command, or `None` if the response does not fit this state.
    fn apply(&self, operation: &Operation, window: Window) -> Option<State> {
        let Operation { command, token, told } = *operation;
        let Some(told) = told else {
            // The response is not known, so any response fits.
            let change = self.outcome(command, token);
            return Some(self.change(change, operation, None, window));
        };
        let change = self.outcome(command, token);
        let fits = match (change, told) {
            (Change::Put, Told::Set(_)) | (Change::Remove, Told::Deleted(_)) => {
                told.given() > Some(self.latest)
            }
            (Change::Tell, Told::Value(value, version)) => {
                let entry = self.entry?;
                entry.value == value && entry.version.is_none_or(|known| known == version)
            }
            (Change::NotApplied, Told::NotApplied(version)) => {
                self.entry?.version.is_none_or(|known| known == version)
            }
            (Change::Absent, Told::Absent) | (Change::Nothing, Told::Nothing) => true,
            (Change::Refuse(expected), Told::Refused(refusal)) => expected == refusal,
            _ => false,
        };
        fits.then(|| self.change(change, operation, told.version(), window))
    }

    /// Returns the effect of a command in this state.
    fn outcome(&self, command: Command, token: Option<Version>) -> Change {
        if let (Command::Get, entry) = (command, &self.entry) {
            return if entry.is_some() { Change::Tell } else { Change::Absent };
        }
        let Some(entry) = &self.entry else {
            return match command {
                Command::Set(..) => Change::Put,
                _ => Change::Nothing,
            };
        };
        match (token, entry.token) {
            (None, Some(_)) => return Change::Refuse(Refusal::FencingTokenRequired),
            (Some(token), Some(protects)) if token < protects => {
                return Change::Refuse(Refusal::FencingTokenTooOld);
            }
            _ => {}
        }
        match command {
            Command::Set(value, condition, _) => {
                let equal = condition == Condition::IfAbsentOrEqual && value == entry.value;
                let applies = condition == Condition::Always || equal;
                if applies { Change::Put } else { Change::NotApplied }
            }
            Command::VDel(value) if value != entry.value => Change::NotApplied,
            _ => Change::Remove,
        }
    }

    fn change(
        &self,
        change: Change,
        operation: &Operation,
        version: Option<Version>,
        window: Window,
    ) -> State {
        let latest = version.map_or(self.latest, |version| version.max(self.latest));
        let entry = match (change, operation.command) {
            (Change::Put, Command::Set(value, _, ttl)) => Some(Entry {
                value,
                version,
                token: operation.token,
                expires: ttl.map(|ttl| (window.from + ttl, window.to.saturating_add(ttl))),
            }),
            (Change::Remove, _) => None,
            _ => self.entry.map(|entry| Entry { version: entry.version.or(version), ..entry }),
        };
        State { entry, latest }
    }
}

/// The effect of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Put,
    Remove,
    NotApplied,
    Nothing,
    Tell,
    Absent,
    Refuse(Refusal),
}
