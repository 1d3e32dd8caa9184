//! The port to sources of users.

use std::fmt;

use barid_core::time::WallTime;
use barid_engine::rights::Rights;

use crate::asker::Asker;
use crate::credentials::Credentials;
use crate::directory::{Answering, Found, Unavailable};

/// A source of users, which decides on their logins.
///
/// What must hold for each back end; `tests/auth/test_every_back_end.py` checks it:
///
/// - [`Answer::Unknown`] is returned only if the back end can tell for certain that it does not have the user.
///   The next back end of the chain is asked then.
/// - [`Answer::Refused`] means that the back end has the user, and that the credentials are wrong or the user
///   is disabled. No other back end is asked.
/// - [`Answer::Unavailable`] means that the back end cannot tell: it is not reached, does not answer in
///   time, or answers something that it should not. No other back end is asked, and nobody is let in.
/// - The answer comes within the back end's timeout.
/// - The time of [`Answer::Unknown`] may differ from that of other answers only by what the caller makes up
///   for: it verifies the [`decoy`](Self::decoy) for a user that no back end knows.
/// - A user is found by its whole name, compared byte by byte, whatever characters it has.
/// - Nothing blocks the thread that polls the future, except for a few microseconds.
pub trait Backend: Send + Sync + fmt::Debug {
    /// Returns the name of the back end in the configuration, in metrics and in the log.
    fn name(&self) -> &str;

    /// Decides on a login.
    fn decide<'a>(&'a self, credentials: &'a Credentials) -> Answering<'a, Answer>;

    /// Looks a user up again who is connected with `proof`, without credentials.
    fn renew<'a>(&'a self, user: &'a str, proof: u64) -> Answering<'a, Renewal>;

    /// Returns a password hash that costs as much as that of a user. `None`: the back end has no password
    /// hashes.
    fn decoy(&self, _user: &str) -> Option<String> {
        None
    }

    /// Returns what the back end stores about a user, for methods in which the client does not send its
    /// password. `None`: the back end does not have the user, or stores no password hashes.
    fn record<'a>(&'a self, _user: &'a str, _asker: Asker<'a>) -> Found<'a> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Whether an accepted login may be accepted again from memory, if user name and password are the same.
    fn may_be_remembered(&self) -> bool {
        false
    }
}

/// The answer of a back end to a login.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The user is known, and the credentials are right.
    Accepted(Box<Accepted>),
    /// The user is known, and the credentials are wrong or the user is disabled. The text is for the log.
    Refused(&'static str),
    /// The back end does not have this user, or is not responsible for this kind of credentials.
    Unknown,
    /// The back end cannot tell.
    Unavailable(Unavailable),
    /// Too many logins wait for the back end, most of them from the same tenant and address.
    Busy,
}

/// A login that a back end has accepted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Accepted {
    /// The user name as `{tenant}/{client}`.
    pub user: Box<str>,
    /// The rights of the user.
    pub rights: Rights,
    /// As [`Principal::proof`](crate::Principal::proof).
    pub proof: u64,
    /// The time at which the connection must end.
    pub expires: Option<WallTime>,
}

/// The answer of a back end to the question whether a connected user may stay.
#[derive(Clone, Debug, PartialEq)]
pub enum Renewal {
    /// The user may stay, with these rights.
    Stays(Rights),
    /// The user has been disabled. The text is for the log.
    Gone(&'static str),
    /// The user has another password now.
    OtherPassword,
    /// The back end does not have this user.
    Unknown,
    /// Only a new login can tell.
    LogInAgain,
    /// The back end cannot tell.
    Unavailable(Unavailable),
    /// Too many wait for the back end: it can be asked again later.
    Busy,
}
