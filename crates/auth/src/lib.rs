//! Who may connect, and with which rights.
//!
//! A client shows [`Credentials`]. The [`Authenticator`] asks the back ends of the client's tenant, one after
//! the other, and the first that knows the user decides. The result is an [`Outcome`]: a [`Principal`] with
//! its policy, or the reason why there is none.

pub mod backend;
pub mod credentials;
pub mod directory;
pub mod mysql;
pub mod principal;
pub mod redis;
mod remote;

pub use backend::{Accepted, Answer, Backend};
pub use credentials::Credentials;
pub use directory::{Changed, Directory, Record, Unavailable};
pub use principal::{Outcome, Principal};
