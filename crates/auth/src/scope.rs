//! The users that a change concerns.

/// The users that a change concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One user, by its full name. There may be no such user. A user with a token has to log in again.
    User(Box<str>),
    /// All users of a tenant.
    Tenant(Box<str>),
    /// All users, also because changes may have been missed.
    Everybody,
}
