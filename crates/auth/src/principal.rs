//! The identity that a client has proved, and other outcomes of a login.

use std::sync::Arc;

use barid_core::time::WallTime;
use barid_engine::access::Policy;

use crate::versions::Version;

/// The identity that a client has proved.
#[derive(Debug)]
pub struct Principal {
    /// The user name as `{tenant}/{client}`.
    pub user: Box<str>,
    /// The rights of the user.
    pub policy: Arc<Policy>,
    /// The name of the back end that has decided.
    pub backend: Arc<str>,
    /// A digest of what the user has proved, such as the stored password hash. The connection ends if it
    /// changes.
    pub proof: u64,
    /// The time at which the connection must end, unless the client authenticates again.
    pub expires: Option<WallTime>,
}

/// The outcome of a login.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The client may connect, unless its user [has changed](crate::Authenticator::changed_since) meanwhile.
    Accepted(Arc<Principal>, Version),
    /// The tenant has no back ends: any client may connect.
    Anybody,
    /// The user is unknown, or the credentials are wrong. The text is for the log.
    Denied(Box<str>),
    /// A back end that may know the user cannot say. The text is for the log.
    Unavailable(Box<str>),
    /// Too many logins wait, most of them from the same tenant and address.
    Busy,
}
