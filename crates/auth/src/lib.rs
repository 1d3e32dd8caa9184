//! Who may connect, and with which rights.
//!
//! A client shows [`Credentials`]. The [`Authenticator`] asks the back ends of the client's tenant, one after
//! the other, and the first that knows the user decides. The result is an [`Outcome`]: a [`Principal`] with
//! its policy, or the reason why there is none.

mod asker;
mod authenticator;
mod backend;
pub mod ban;
pub mod bans;
mod certificate;
mod chain;
mod configured;
mod counts;
mod credentials;
mod decoys;
mod directory;
mod enhanced;
#[cfg(test)]
mod for_tests;
mod foreign_rights;
mod gate;
mod hashing;
mod http;
mod http_client;
mod jwt;
pub mod mysql;
pub mod password;
mod passwords;
mod principal;
pub mod redis;
mod remembered;
mod remote;
mod scope;
mod scram;
pub mod store;
pub mod stored;
#[cfg(test)]
mod testing;
pub mod token;
mod turns;
mod versions;

pub use asker::Asker;
pub use authenticator::{Authenticator, Inquiry, Pending, Settings, Standing};
pub use backend::{Accepted, Answer, Backend, Renewal};
pub use certificate::{CertificateSettings, CertificateUsers, NameIn, RevocationList};
pub use chain::{Chain, Chains};
pub use configured::ConfiguredUsers;
pub use counts::{Counts, Verdict};
pub use credentials::{CertificateNames, Credentials, PASSWORD_MAX, Protocol, Revocable};
pub use directory::{Answering, Directory, Found, NoAnswer, Record, Unavailable};
pub use enhanced::{Exchange, Method, Proved, Step};
pub use hashing::Hashing;
pub use http::{Http, HttpSettings};
pub use jwt::{Jwt, JwtSettings};
pub use passwords::Passwords;
pub use principal::{Outcome, Principal};
pub use scope::Scope;
pub use versions::Version;
