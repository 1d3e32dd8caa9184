//! Enhanced authentication of MQTT 5: methods in which client and broker exchange messages (section 4.12).

use std::fmt;
use std::sync::Arc;

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
    Ended(Outcome),
}

/// An exchange in which the client has to prove next that it knows its password.
pub struct Exchange {
    pub(crate) challenged: Challenged,
    /// Who the client is, if the proof is right; `None`: no proof is right.
    pub(crate) accepted: Option<(Arc<Principal>, Version)>,
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
        let message = self.challenged.finish(message).map_err(|failure| failure.to_string())?;
        let (principal, version) = self.accepted.ok_or("the user is disabled")?;
        Ok(Proved { principal, version, message })
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").finish_non_exhaustive()
    }
}
