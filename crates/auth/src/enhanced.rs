//! Enhanced authentication of MQTT 5: methods in which client and broker exchange messages (section 4.12).

use std::fmt;
use std::sync::Arc;

use crate::counts::{Counts, Verdict};
use crate::principal::{Outcome, Principal};
use crate::scram::{self, Challenged};
use crate::versions::Version;

/// An authentication method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// SCRAM-SHA-256: the client proves that it knows its password without sending it.
    Scram,
    /// The Authentication Data is a token, which is decided on like a password.
    Token,
}

/// What follows the first message of a client.
#[derive(Debug)]
pub enum Step {
    /// The client has to answer the message, and [`Exchange::finish`] decides on its answer.
    Challenge(Box<Exchange>, Box<[u8]>),
    /// The authentication has ended.
    Ended {
        /// Its outcome.
        outcome: Outcome,
        /// The user that the client has named in its message.
        user: Option<Box<str>>,
    },
}

/// An exchange in which the client has to prove next that it knows its password.
pub struct Exchange {
    pub(crate) challenged: Challenged,
    /// The user that the client has named.
    pub(crate) user: Box<str>,
    /// The identity that a right proof gives the client; an error: the reason for which no proof is accepted.
    pub(crate) accepted: Result<(Arc<Principal>, Version), Box<str>>,
    /// Where the outcome is counted.
    pub(crate) counts: Arc<Counts>,
}

/// The end of an exchange that was successful.
#[derive(Debug)]
pub struct Proved {
    /// The identity that the client has proved.
    pub principal: Arc<Principal>,
    /// As in [`Outcome::Accepted`].
    pub version: Version,
    /// The last message to the client, by which it sees that the broker knows its keys.
    pub message: String,
}

impl Method {
    /// Returns the method of this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Scram, Self::Token].into_iter().find(|method| method.name() == name)
    }

    /// Returns the name of the method.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scram => scram::METHOD,
            Self::Token => "JWT",
        }
    }
}

impl Exchange {
    /// Verifies the last message of the client. Takes microseconds.
    ///
    /// # Errors
    /// Fails if the client has not proved that it knows the password, with a text for the log.
    pub fn finish(self, message: &[u8]) -> Result<Proved, Box<str>> {
        let Self { challenged, accepted, counts, .. } = self;
        let finished = challenged.finish(message);
        let (principal, version) = accepted?;
        let verdict = if finished.is_ok() { Verdict::Accepted } else { Verdict::Refused };
        counts.add(&principal.backend, verdict);
        match finished {
            Ok(message) => Ok(Proved { principal, version, message }),
            Err(failure) => Err(format!("{}: {failure}", principal.backend).into()),
        }
    }

    /// Returns the user that the client has named.
    pub fn user(&self) -> &str {
        &self.user
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").finish_non_exhaustive()
    }
}
