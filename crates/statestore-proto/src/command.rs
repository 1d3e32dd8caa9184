//! Commands: the requests to the state store.

use std::fmt;
use std::num::NonZeroU64;

use crate::Refusal;
use crate::resp::{Reader, parse_decimal, push_array, push_bulk, push_bulk_decimal};

/// A request. It borrows everything from its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command<'a> {
    /// Sets the value of a key, whether or not the key exists.
    Set {
        /// Any bytes, at least one.
        key: &'a [u8],
        /// Any bytes; an empty value counts as a value.
        value: &'a [u8],
        /// The condition under which the value is set.
        condition: Condition,
        /// Time to live of the key in milliseconds, unless it is set again. `None`: until it is
        /// deleted.
        ttl: Option<NonZeroU64>,
    },
    /// Reads the value of a key.
    Get {
        /// At least one byte.
        key: &'a [u8],
    },
    /// Deletes a key.
    Del {
        /// At least one byte.
        key: &'a [u8],
    },
    /// Deletes a key if it has the given value.
    VDel {
        /// At least one byte.
        key: &'a [u8],
        /// The value that the key must have.
        value: &'a [u8],
    },
    /// Watches a key, whether or not it exists: the client is notified of each change.
    KeyNotify {
        /// At least one byte. Wildcards are not supported.
        key: &'a [u8],
        /// Stops watching the key.
        stop: bool,
    },
    /// Lists the names of keys, page by page.
    Scan {
        /// The pattern of the keys, see [`Glob`](crate::Glob). At most [`PATTERN_MAX`] bytes.
        pattern: &'a [u8],
        /// The token of the previous page, to continue from there.
        token: Option<&'a [u8]>,
    },
}

/// The condition under which a SET is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Condition {
    /// The SET is always applied.
    Always,
    /// `NX`: the SET is applied if the key does not exist.
    IfAbsent,
    /// `NEX`: the SET is applied if the key does not exist, or already has the value that is to be
    /// set.
    IfAbsentOrEqual,
}

/// The verb of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// [`Command::Set`].
    Set,
    /// [`Command::Get`].
    Get,
    /// [`Command::Del`].
    Del,
    /// [`Command::VDel`].
    VDel,
    /// [`Command::KeyNotify`].
    KeyNotify,
    /// [`Command::Scan`].
    Scan,
}

/// Maximum length of a pattern, in bytes. The protocol has no such limit; longer patterns could
/// cost more time than they are useful for. A longer pattern is a syntax error.
pub const PATTERN_MAX: usize = 1_024;

/// Maximum number of elements of a command: the verb, and the arguments of a SET with a condition
/// and a time to live.
const MAX_ELEMENTS: usize = 6;

impl<'a> Command<'a> {
    /// Decodes the payload of a request. It is checked in this order, and the first error is
    /// returned: the array, the verb, the number of arguments, the length of the key, the options.
    pub fn decode(payload: &'a [u8]) -> Result<Self, Refusal> {
        let (elements, len) = elements(payload).ok_or(Refusal::Syntax)?;
        let [verb, key, value, ..] = elements;
        let verb = Verb::decode(verb).ok_or(Refusal::UnknownCommand)?;
        let (min, max) = verb.arguments();
        if !(min..=max).contains(&(len - 1)) {
            return Err(Refusal::WrongNumberOfArguments);
        }
        if key.is_empty() && verb != Verb::Scan {
            return Err(Refusal::EmptyKey);
        }
        Ok(match verb {
            Verb::Set => {
                let (condition, ttl) = options(&elements[3..len]).ok_or(Refusal::Syntax)?;
                Command::Set { key, value, condition, ttl }
            }
            Verb::Get => Command::Get { key },
            Verb::Del => Command::Del { key },
            Verb::VDel => Command::VDel { key, value },
            Verb::KeyNotify => match &elements[2..len] {
                // Older clients send GET to be told the value. Notifications always have the value,
                // so GET has no effect.
                [] | [b"GET"] => Command::KeyNotify { key, stop: false },
                [b"STOP"] => Command::KeyNotify { key, stop: true },
                _ => return Err(Refusal::Syntax),
            },
            Verb::Scan if key.len() > PATTERN_MAX => return Err(Refusal::Syntax),
            Verb::Scan => Command::Scan { pattern: key, token: (len == 3).then_some(value) },
        })
    }

    /// Appends the payload of the request. A condition comes before the time to live.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let verb = self.verb().as_str().as_bytes();
        let mut push = |arguments: &[&[u8]], more: usize| {
            let len: usize = arguments.iter().map(|argument| argument.len() + 16).sum();
            out.reserve(len + 64);
            push_array(out, 1 + arguments.len() + more);
            push_bulk(out, verb);
            arguments.iter().for_each(|argument| push_bulk(out, argument));
        };
        match *self {
            Command::Get { key } | Command::Del { key } => push(&[key], 0),
            Command::VDel { key, value } => push(&[key, value], 0),
            Command::KeyNotify { key, stop: false } => push(&[key], 0),
            Command::KeyNotify { key, stop: true } => push(&[key, b"STOP"], 0),
            Command::Scan { pattern, token: None } => push(&[pattern], 0),
            Command::Scan { pattern, token: Some(token) } => push(&[pattern, token], 0),
            Command::Set { key, value, condition, ttl } => {
                let more = if ttl.is_some() { 2 } else { 0 };
                match condition {
                    Condition::Always => push(&[key, value], more),
                    Condition::IfAbsent => push(&[key, value, b"NX"], more),
                    Condition::IfAbsentOrEqual => push(&[key, value, b"NEX"], more),
                }
                if let Some(ttl) = ttl {
                    push_bulk(out, b"PX");
                    push_bulk_decimal(out, ttl.get());
                }
            }
        }
    }

    /// The verb of the command.
    pub fn verb(&self) -> Verb {
        match self {
            Command::Set { .. } => Verb::Set,
            Command::Get { .. } => Verb::Get,
            Command::Del { .. } => Verb::Del,
            Command::VDel { .. } => Verb::VDel,
            Command::KeyNotify { .. } => Verb::KeyNotify,
            Command::Scan { .. } => Verb::Scan,
        }
    }

    /// The key that the command is about. SCAN has none.
    pub fn key(&self) -> Option<&'a [u8]> {
        match *self {
            Command::Set { key, .. }
            | Command::Get { key }
            | Command::Del { key }
            | Command::VDel { key, .. }
            | Command::KeyNotify { key, .. } => Some(key),
            Command::Scan { .. } => None,
        }
    }
}

impl Verb {
    /// All verbs.
    pub const ALL: [Self; 6] =
        [Self::Set, Self::Get, Self::Del, Self::VDel, Self::KeyNotify, Self::Scan];

    /// The verb on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Set => "SET",
            Self::Get => "GET",
            Self::Del => "DEL",
            Self::VDel => "VDEL",
            Self::KeyNotify => "KEYNOTIFY",
            Self::Scan => "SCAN",
        }
    }

    #[inline]
    fn decode(word: &[u8]) -> Option<Self> {
        Some(match word {
            b"SET" => Self::Set,
            b"GET" => Self::Get,
            b"DEL" => Self::Del,
            b"VDEL" => Self::VDel,
            b"KEYNOTIFY" => Self::KeyNotify,
            b"SCAN" => Self::Scan,
            _ => return None,
        })
    }

    /// Minimum and maximum number of arguments.
    #[inline]
    fn arguments(self) -> (usize, usize) {
        match self {
            Self::Get | Self::Del => (1, 1),
            Self::VDel => (2, 2),
            Self::KeyNotify | Self::Scan => (1, 2),
            Self::Set => (2, MAX_ELEMENTS - 1),
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Reads `payload` as one array. Returns its first elements and their total number, which is at
/// least one.
#[inline]
fn elements(payload: &[u8]) -> Option<([&[u8]; MAX_ELEMENTS], usize)> {
    let mut reader = Reader::new(payload);
    let len = reader.array()?;
    let mut elements: [&[u8]; MAX_ELEMENTS] = [&[]; MAX_ELEMENTS];
    for i in 0..len {
        let element = reader.bulk()?;
        // Commands have at most `MAX_ELEMENTS` elements; further ones are only counted.
        if let Some(slot) = elements.get_mut(i) {
            *slot = element;
        }
    }
    reader.finish()?;
    (len > 0).then_some((elements, len))
}

/// Reads the options behind the value of a SET, in either order.
#[inline]
fn options(mut options: &[&[u8]]) -> Option<(Condition, Option<NonZeroU64>)> {
    let mut condition = Condition::Always;
    let mut ttl = None;
    while let [option, rest @ ..] = options {
        options = rest;
        match *option {
            b"NX" if condition == Condition::Always => condition = Condition::IfAbsent,
            b"NEX" if condition == Condition::Always => condition = Condition::IfAbsentOrEqual,
            b"PX" if ttl.is_none() => {
                let (milliseconds, rest) = options.split_first()?;
                ttl = Some(parse_decimal(milliseconds).and_then(NonZeroU64::new)?);
                options = rest;
            }
            _ => return None,
        }
    }
    Some((condition, ttl))
}
