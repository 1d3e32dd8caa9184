//! A back end over a directory: verifies passwords against the stored hashes.

use subtle::ConstantTimeEq as _;

use crate::asker::Asker;
use crate::backend::{Accepted, Answer, Backend, Renewal};
use crate::credentials::{Credentials, PASSWORD_MAX};
use crate::directory::{Answering, Directory, Found, NoAnswer, Record};
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
        let record = match self.directory.find(user, credentials.asker()).await {
            Ok(Some(record)) => record,
            Ok(None) => return Answer::Unknown,
            Err(NoAnswer::Unavailable(error)) => return Answer::Unavailable(error),
            Err(NoAnswer::Busy) => return Answer::Busy,
        };
        // A password that is too long is verified all the same, so that its length does not tell whether the
        // user exists. Only the beginning is hashed, and the result does not count.
        let password = credentials.password();
        let beginning = &password[..password.len().min(PASSWORD_MAX)];
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
        match self.hashing.verify(credentials.asker(), hash, beginning).await {
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
        match self.directory.find(user, Asker::BROKER).await {
            Ok(Some(record)) if record.disabled => Renewal::Gone(DISABLED),
            Ok(Some(record)) if password::proof(&record.password) != proof => {
                Renewal::OtherPassword
            }
            Ok(Some(Record { rights, .. })) => Renewal::Stays(rights),
            Ok(None) => Renewal::Unknown,
            Err(NoAnswer::Unavailable(error)) => Renewal::Unavailable(error),
            Err(NoAnswer::Busy) => Renewal::Busy,
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

    fn record<'a>(&'a self, user: &'a str, asker: Asker<'a>) -> Found<'a> {
        self.directory.find(user, asker)
    }

    fn decoy(&self, user: &str) -> Option<String> {
        self.directory.decoy(user)
    }

    fn may_be_remembered(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::for_tests::credentials;
    use crate::testing::now;

    /// A directory for which too many wait.
    #[derive(Debug)]
    struct Busy;

    impl Directory for Busy {
        fn name(&self) -> &str {
            "busy"
        }

        fn find<'a>(&'a self, _: &'a str, _: Asker<'a>) -> Found<'a> {
            Box::pin(std::future::ready(Err(NoAnswer::Busy)))
        }

        fn decoy(&self, _: &str) -> Option<String> {
            None
        }
    }

    #[test]
    fn a_directory_that_is_busy_neither_lets_in_nor_refuses() {
        let users = Passwords::new(Busy, Hashing::new(1));
        let login = credentials(Some("acme/ada"), "secret");
        assert_eq!(now(users.decide(&login)), Answer::Busy);
        assert_eq!(now(users.record("acme/ada", login.asker())), Err(NoAnswer::Busy));
        assert_eq!(now(users.renew("acme/ada", 7)), Renewal::Busy);
    }
}
