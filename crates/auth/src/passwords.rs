//! A back end over a directory: verifies passwords against the stored hashes.

use subtle::ConstantTimeEq as _;

use crate::backend::{Accepted, Answer, Backend, Renewal};
use crate::credentials::{Credentials, PASSWORD_MAX};
use crate::directory::{Answering, Directory, Record, Unavailable};
use crate::hashing::Hashing;
use crate::password;

const DISABLED: &str = "the user is disabled";

/// Verifies passwords against the hashes that a directory stores.
#[derive(Debug)]
pub struct Passwords<D> {
    directory: D,
    hashing: Hashing,
}

impl<D: Directory> Passwords<D> {
    /// Verifies passwords of the users in `directory` with `hashing`.
    pub fn new(directory: D, hashing: Hashing) -> Self {
        Self { directory, hashing }
    }

    async fn answer(&self, credentials: &Credentials) -> Answer {
        let Some(user) = credentials.user.as_deref() else { return Answer::Unknown };
        let record = match self.directory.find(user).await {
            Ok(Some(record)) => record,
            Ok(None) => return Answer::Unknown,
            Err(unavailable) => return Answer::Unavailable(unavailable),
        };
        // A password that is too long is verified all the same, so that its length does not tell whether the
        // user exists. Only the beginning is hashed, and the result does not count.
        let password = credentials.password();
        let beginning = &password[..password.len().min(PASSWORD_MAX)];
        let client = (credentials.lane(), credentials.address);
        let Record { password: hash, rights, disabled, fast } = record;
        let proof = password::proof(&hash);
        let accepted = || {
            Answer::Accepted(Box::new(Accepted { user: user.into(), rights, proof, expires: None }))
        };
        let own = self.directory.fast_hash(user, proof, password);
        if let (Some(own), Some(fast)) = (own, fast)
            && !disabled
            && password.len() <= PASSWORD_MAX
            && bool::from(own.ct_eq(&fast))
        {
            return accepted();
        }
        match self.hashing.verify(client, hash, beginning).await {
            None => Answer::Busy,
            Some(verified) if !verified || password.len() > PASSWORD_MAX => {
                Answer::Refused("the password is wrong")
            }
            Some(_) if disabled => Answer::Refused(DISABLED),
            Some(_) => {
                if let Some(own) = own {
                    self.directory.remember(user, own);
                }
                accepted()
            }
        }
    }

    async fn stay(&self, user: &str, proof: u64) -> Renewal {
        match self.directory.find(user).await {
            Ok(Some(record)) if record.disabled => Renewal::Gone(DISABLED),
            Ok(Some(record)) if password::proof(&record.password) != proof => {
                Renewal::OtherPassword
            }
            Ok(Some(Record { rights, .. })) => Renewal::Stays(rights),
            Ok(None) => Renewal::Unknown,
            Err(unavailable) => Renewal::Unavailable(unavailable),
        }
    }
}

impl<D: Directory> Backend for Passwords<D> {
    fn name(&self) -> &str {
        self.directory.name()
    }

    fn decide<'a>(&'a self, credentials: &'a Credentials) -> Answering<'a, Answer> {
        Box::pin(self.answer(credentials))
    }

    fn renew<'a>(&'a self, user: &'a str, proof: u64) -> Answering<'a, Renewal> {
        Box::pin(self.stay(user, proof))
    }

    fn record<'a>(&'a self, user: &'a str) -> Answering<'a, Result<Option<Record>, Unavailable>> {
        self.directory.find(user)
    }

    fn decoy(&self, user: &str) -> Option<String> {
        self.directory.decoy(user)
    }

    fn may_be_remembered(&self) -> bool {
        true
    }
}
