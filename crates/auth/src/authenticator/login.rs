//! Decisions on logins.

use std::sync::Arc;

use barid_core::time::MonoTime;
use barid_engine::access::Policy;
use barid_engine::names::{DEFAULT_TENANT, tenant_of};

use super::{ATTEMPTS, Shared};
use crate::backend::{Accepted, Answer, Backend, Renewal};
use crate::chain::Chain;
use crate::counts::Verdict;
use crate::credentials::{Credentials, PASSWORD_MAX};
use crate::directory::{NoAnswer, Unavailable};
use crate::enhanced::{Exchange, Step};
use crate::password::{self, hmac_sha256};
use crate::principal::{Outcome, Principal};
use crate::remembered::Age;
use crate::scram::{ClientFirst, Keys};
use crate::turns::network_of;
use crate::versions::Version;

impl Shared {
    /// Decides without a back end, if possible. Takes microseconds.
    pub(super) fn decide_at_once(&self, credentials: &Credentials) -> Option<Outcome> {
        let version = self.versions.now();
        let times = (self.now(), self.clock.wall());
        let known = self.remembered.find(credentials, Age::Fresh, times, &self.versions);
        if let Some(principal) = known {
            self.counts.add(&principal.backend, Verdict::Remembered);
            return Some(Outcome::Accepted(principal, version));
        }
        match self.chain_for(credentials) {
            Err(outcome) => Some(outcome),
            Ok(chain) if chain.backends.is_empty() => Some(Outcome::Anybody),
            Ok(_) => None,
        }
    }

    fn now(&self) -> MonoTime {
        self.clock.now()
    }

    /// Returns the back ends that decide on these credentials.
    fn chain_for(&self, credentials: &Credentials) -> Result<Chain, Outcome> {
        let Some(tenant) = credentials.tenant() else {
            return Err(denied("the part before the slash cannot be a tenant"));
        };
        let is_nameless = credentials.user.is_none();
        let chain = if is_nameless { self.nameless() } else { self.chain_of(tenant) };
        chain.map_err(|error| unavailable(&error))
    }

    /// Decides on a login. A user that changes meanwhile is decided on again.
    pub(super) async fn decide(&self, credentials: &Credentials) -> Outcome {
        let mut attempt = 1;
        loop {
            let outcome = self.decide_once(credentials).await;
            let Outcome::Accepted(principal, version) = &outcome else { return outcome };
            if self.versions.changed_since(*version, &principal.user).is_none() {
                return outcome;
            }
            if attempt == ATTEMPTS {
                return Outcome::Unavailable("the user changes all the time".into());
            }
            attempt += 1;
        }
    }

    async fn decide_once(&self, credentials: &Credentials) -> Outcome {
        let version = self.versions.now();
        let chain = match self.chain_for(credentials) {
            Ok(chain) => chain,
            Err(outcome) => return outcome,
        };
        for backend in chain.backends.iter() {
            let answer = backend.decide(credentials).await;
            self.counts.add(backend.name(), Verdict::of(&answer));
            match answer {
                Answer::Unknown => {}
                Answer::Accepted(accepted) => {
                    let outcome = self.accept(credentials, version, &**backend, *accepted).await;
                    if let Outcome::Accepted(principal, _) = &outcome {
                        self.note(credentials, principal, version, backend.may_be_remembered());
                    }
                    return outcome;
                }
                Answer::Refused(reason) => {
                    self.remembered.forget_login(credentials);
                    return denied(&format!("{}: {reason}", backend.name()));
                }
                Answer::Unavailable(error) => {
                    let times = (self.now(), self.clock.wall());
                    let known =
                        self.remembered.find(credentials, Age::InGrace, times, &self.versions);
                    let Some(principal) = known else { return unavailable(&error) };
                    self.counts.add(backend.name(), Verdict::InGrace);
                    return Outcome::Accepted(principal, version);
                }
                // There is no grace: who floods the back end would get in with an old password.
                Answer::Busy => return Outcome::Busy,
            }
        }
        match credentials.user.as_deref() {
            Some(user) => self.remembered.forget(user),
            None if self.chain_of(DEFAULT_TENANT).is_ok_and(|own| own.backends.is_empty()) => {
                return Outcome::Anybody;
            }
            None => {}
        }
        self.take_as_long_as_for_a_user(credentials, &chain).await
    }

    /// Accepts a login that began at `version`.
    async fn accept(
        &self,
        credentials: &Credentials,
        version: Version,
        backend: &dyn Backend,
        accepted: Accepted,
    ) -> Outcome {
        let Accepted { user, rights, proof, expires } = accepted;
        let name = backend.name();
        let tenant = tenant_of(Some(&user)).filter(|_| user.contains('/'));
        let Some(tenant) = tenant else {
            return denied(&format!("{name}: the user has no valid tenant"));
        };
        // The tenant may be another one than that whose chain was asked. Its own chain says which back ends may let
        // clients into it.
        let chain = match self.chain_of(tenant) {
            Ok(chain) => chain,
            Err(error) => return unavailable(&error),
        };
        let Some(place) = chain.backends.iter().position(|other| other.name() == name) else {
            return denied(&format!("{name}: the tenant of the user does not have this back end"));
        };
        // Back ends in front were asked about another name, if any.
        if credentials.user.as_ref() != Some(&user)
            && let Err(outcome) = self.check_unknown(&chain.backends[..place], &user, proof).await
        {
            return outcome;
        }
        if let Err(error) = rights.check(&user) {
            let reason =
                format!("back end `{name}`: the `rights` of the user are invalid: {error}");
            return unavailable(&Unavailable(reason));
        }
        let principal = Arc::new(Principal {
            policy: Arc::new(Policy::new(&rights, chain.rules)),
            user,
            backend: name.into(),
            proof,
            expires,
        });
        Outcome::Accepted(principal, version)
    }

    /// Checks that none of these back ends has a user.
    async fn check_unknown(
        &self,
        backends: &[Arc<dyn Backend>],
        user: &str,
        proof: u64,
    ) -> Result<(), Outcome> {
        for backend in backends {
            match backend.renew(user, proof).await {
                Renewal::Unknown | Renewal::LogInAgain => {}
                Renewal::Stays(_) | Renewal::Gone(_) | Renewal::OtherPassword => {
                    let name = backend.name();
                    return Err(denied(&format!(
                        "{name}: this back end has the user, and decides"
                    )));
                }
                Renewal::Unavailable(error) => return Err(unavailable(&error)),
                Renewal::Busy => return Err(Outcome::Busy),
            }
        }
        Ok(())
    }

    /// Notes a login that was accepted.
    fn note(
        &self,
        credentials: &Credentials,
        principal: &Arc<Principal>,
        version: Version,
        may_be_remembered: bool,
    ) {
        if let Some(tenant) = tenant_of(Some(&principal.user)) {
            self.known.insert((tenant.into(), network_of(credentials.address)), ());
        }
        if may_be_remembered {
            self.remembered.put(credentials, principal, self.now(), version);
        }
    }

    /// Answers the first message of SCRAM. For a user that no back end has, and for one who has no keys, the
    /// answer looks like that for a user, and no proof will be right.
    pub(super) async fn challenge(&self, credentials: Credentials, message: &[u8]) -> Step {
        let first = match ClientFirst::read(message) {
            Ok(first) => first,
            Err(failure) => {
                let outcome = denied(&failure.to_string());
                return Step::Ended { outcome, user: credentials.user };
            }
        };
        let user = Credentials::full(first.user());
        match self.challenge_user(credentials, user.clone(), first).await {
            Ok(step) => step,
            Err(outcome) => Step::Ended { outcome, user: Some(user) },
        }
    }

    async fn challenge_user(
        &self,
        mut credentials: Credentials,
        user: Box<str>,
        first: ClientFirst,
    ) -> Result<Step, Outcome> {
        if credentials.user.as_ref().is_some_and(|named| *named != user) {
            return Err(denied("SCRAM names another user than CONNECT"));
        }
        credentials.user = Some(user.clone());
        credentials.is_known = self.knows(&credentials);
        let version = self.versions.now();
        let chain = self.chain_for(&credentials)?;
        let mut found = None;
        for backend in chain.backends.iter() {
            match backend.record(&user, credentials.asker()).await {
                Ok(None) => {}
                Ok(Some(record)) => {
                    found = Some((backend, record));
                    break;
                }
                Err(NoAnswer::Unavailable(error)) => {
                    self.counts.add(backend.name(), Verdict::Unavailable);
                    return Err(unavailable(&error));
                }
                Err(NoAnswer::Busy) => {
                    self.counts.add(backend.name(), Verdict::Busy);
                    return Err(Outcome::Busy);
                }
            }
        }
        let keys = found
            .as_ref()
            .and_then(|(_, record)| Keys::of(&record.password).filter(|_| !record.disabled));
        let decoy = || chain.backends.iter().find_map(|backend| backend.decoy(&user));
        let (keys, is_user) = match keys {
            Some(keys) => (keys, true),
            None => (Keys::mock(&self.secret, &user, decoy().as_deref()), false),
        };
        let accepted = match found {
            None => Err("no back end has this user, or none that stores password hashes".into()),
            Some((backend, record)) if !is_user => {
                self.counts.add(backend.name(), Verdict::Refused);
                let reason = match record.disabled {
                    true => "the user is disabled",
                    false => "the password hash of the user has no keys for SCRAM-SHA-256",
                };
                Err(format!("{}: {reason}", backend.name()).into())
            }
            Some((backend, record)) => {
                let (user, proof) = (user.clone(), password::proof(&record.password));
                let accepted = Accepted { user, rights: record.rights, proof, expires: None };
                match self.accept(&credentials, version, &**backend, accepted).await {
                    Outcome::Accepted(principal, version) => Ok((principal, version)),
                    other => return Err(other),
                }
            }
        };
        let (challenged, message) = first.challenge(keys, self.random.bytes());
        let counts = Arc::clone(&self.counts);
        let exchange = Exchange { challenged, user, accepted, counts };
        Ok(Step::Challenge(Box::new(exchange), message.into_bytes().into()))
    }

    /// Denies a login of a user that no back end knows. A password hash is verified first, which costs as much
    /// as that of a user, always the same one for a name. So the time does not tell whether a user exists, and
    /// unknown names cost no more than users.
    async fn take_as_long_as_for_a_user(
        &self,
        credentials: &Credentials,
        chain: &Chain,
    ) -> Outcome {
        let user = credentials.user.as_deref().unwrap_or_default();
        let decoys: Vec<_> =
            chain.backends.iter().filter_map(|backend| backend.decoy(user)).collect();
        // The same one after a restart.
        let [first, ..] = hmac_sha256(&self.secret, format!("back end {user}").as_bytes());
        let chosen = usize::from(first).checked_rem(decoys.len());
        if let Some(decoy) = chosen.and_then(|chosen| decoys.get(chosen)) {
            let password = credentials.password();
            let beginning = &password[..password.len().min(PASSWORD_MAX)];
            if self.hashing.verify(credentials.asker(), decoy.clone(), beginning).await.is_none() {
                return Outcome::Busy;
            }
        }
        denied("no back end has this user")
    }
}

fn denied(reason: &str) -> Outcome {
    Outcome::Denied(reason.into())
}

fn unavailable(error: &Unavailable) -> Outcome {
    Outcome::Unavailable(error.to_string().into())
}
