//! JSON Web Tokens: the issuer of a token says who the client is and what it may do.
//!
//! A token is believed only if its signature is verified with a key that the operator has named, with an
//! algorithm that the operator allows for keys of this kind. The header of the token chooses among these keys
//! and algorithms, and has no other effect.

#[cfg(test)]
mod attacks;
mod identity;
mod jwks;
mod key_files;
mod keys;
mod object;
mod ring_provider;
mod settings;
#[cfg(test)]
mod signing_for_tests;
#[cfg(test)]
mod tests;
mod token;
mod trial;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use barid_engine::names::DEFAULT_TENANT;
use jsonwebtoken::{Validation, get_current_timestamp};
use ring::digest;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::backend::{Accepted, Answer, Backend, Renewal};
use crate::credentials::{Credentials, PASSWORD_MAX};
use crate::directory::{Answering, Unavailable};
use crate::hashing::Hashing;
use jwks::{Jwks, Missing};
use keys::KeySet;
use object::Object;
pub use settings::JwtSettings;
use settings::{KeySource, TokenPlace};
use token::{Unusable, Unverified};
use trial::{OTHER_AUDIENCE, Trial, describe_missing};

/// A back end that believes tokens of an issuer.
#[derive(Debug)]
pub struct Jwt {
    name: Box<str>,
    settings: JwtSettings,
    keys: Keys,
    /// The threads that verify signatures.
    hashing: Hashing,
    /// What reads the keys at a URL again. It ends with the back end.
    reading: OnceLock<AbortHandle>,
}

#[derive(Debug)]
enum Keys {
    Fixed(Arc<KeySet>),
    AtUrl(Arc<Jwks>),
}

impl Jwt {
    /// Creates a back end with this name. Reads the files that the settings name; nothing is sent before
    /// [`start`](Self::start).
    ///
    /// # Errors
    /// As [`JwtSettings::check`].
    pub fn new(name: &str, settings: JwtSettings, hashing: Hashing) -> Result<Self, String> {
        settings.check()?;
        ring_provider::install();
        let keys = if let KeySource::Url(url) = settings.key_source()? {
            let (client, timeout) = (settings.client()?, settings.timeout());
            let refresh = Duration::from_secs(settings.refresh);
            let algorithms = settings.algorithms.clone();
            Keys::AtUrl(Arc::new(Jwks::new(client, url, algorithms, refresh, timeout)))
        } else {
            Keys::Fixed(Arc::new(key_files::read(&settings)?))
        };
        Ok(Self { name: name.into(), settings, keys, hashing, reading: OnceLock::new() })
    }

    /// Begins to read the keys at `jwks_url`, until the back end is dropped. Does nothing if the keys are in a
    /// file, or if it was called before.
    pub fn start(&self, runtime: &Handle) {
        let Keys::AtUrl(jwks) = &self.keys else { return };
        self.reading.get_or_init(|| {
            let (jwks, name) = (Arc::clone(jwks), self.name.clone());
            runtime.spawn(async move { jwks.run(&name).await }).abort_handle()
        });
    }

    async fn answer(&self, credentials: &Credentials) -> Answer {
        let Some(shown) = self.token(credentials) else { return Answer::Unknown };
        if shown.len() > PASSWORD_MAX {
            return Answer::Refused("the token is too long");
        }
        let token = match Unverified::parse(shown) {
            Ok(token) => token,
            Err(Unusable::NoToken) => return Answer::Unknown,
            Err(Unusable::Refused(reason)) => return Answer::Refused(reason),
        };
        if self.settings.issuer.is_some() && token.issuer != self.settings.issuer {
            return Answer::Unknown;
        }
        if !self.settings.algorithms.contains(&token.algorithm) {
            return Answer::Refused("the token's algorithm is not in `algorithms`");
        }
        let keys = match self.keys(&token).await {
            Ok(keys) => keys,
            Err(Missing::NoKey(reason)) => return Answer::Refused(describe_missing(reason)),
            Err(Missing::Unavailable(error)) => {
                return Answer::Unavailable(Unavailable(format!("{}: {error}", self.name)));
            }
        };
        let trial = Trial {
            validation: self.validation(&token),
            text: token.text.into(),
            key_id: token.key_id,
            keys,
        };
        // A signature takes up to milliseconds, and a flood of bad ones must not keep other logins waiting.
        let claims = match trial.is_fast() {
            true => Some(trial.verify()),
            false => self.hashing.run(credentials.asker(), move || trial.verify()).await,
        };
        let Some(claims) = claims else { return Answer::Busy };
        let accepted = claims.and_then(|claims| self.accept(&claims, credentials, token.text));
        accepted.map_or_else(Answer::Refused, |accepted| Answer::Accepted(Box::new(accepted)))
    }

    fn token<'a>(&self, credentials: &'a Credentials) -> Option<&'a [u8]> {
        match self.settings.token {
            TokenPlace::Password => credentials.password.as_deref(),
            // A user name without a slash has got the default tenant, and a token contains no slash.
            TokenPlace::Username => {
                let (tenant, token) = credentials.user.as_deref()?.split_once('/')?;
                (tenant == DEFAULT_TENANT).then_some(token.as_bytes())
            }
        }
    }

    async fn keys(&self, token: &Unverified<'_>) -> Result<Arc<KeySet>, Missing> {
        match &self.keys {
            Keys::Fixed(keys) => Ok(Arc::clone(keys)),
            Keys::AtUrl(jwks) => jwks.find(token.key_id.as_deref(), token.algorithm).await,
        }
    }

    fn validation(&self, token: &Unverified<'_>) -> Validation {
        let settings = &self.settings;
        // Only the algorithm that was found to fit the key.
        let mut validation = Validation::new(token.algorithm);
        validation.leeway = settings.leeway;
        validation.validate_nbf = true;
        let mut required = Vec::new();
        if settings.require_expiry {
            required.push("exp");
        }
        if let Some(issuer) = &settings.issuer {
            validation.set_issuer(&[issuer]);
            required.push("iss");
        }
        if !settings.audience.is_empty() {
            validation.set_audience(&settings.audience);
            required.push("aud");
        }
        validation.set_required_spec_claims(&required);
        validation
    }

    fn accept(
        &self,
        claims: &Object,
        credentials: &Credentials,
        token: &str,
    ) -> Result<Accepted, &'static str> {
        if self.settings.audience.is_empty() && claims.has("aud") {
            return Err(OTHER_AUDIENCE);
        }
        let expires = identity::expiry(&self.settings, claims, get_current_timestamp())?;
        let user = identity::user(&self.settings, claims, credentials)?;
        let rights = identity::rights(&self.settings, claims, &user).map_err(|error| {
            tracing::debug!(backend = &*self.name, user = &*user, "rights in a token: {error}");
            "the rights in the token are invalid; the log says more at level `debug`"
        })?;
        Ok(Accepted { user, rights, proof: proof(token), expires })
    }
}

impl Backend for Jwt {
    fn name(&self) -> &str {
        &self.name
    }

    fn decide<'a>(&'a self, credentials: &'a Credentials) -> Answering<'a, Answer> {
        Box::pin(self.answer(credentials))
    }

    /// The token is not kept, and its issuer does not say what has become of it.
    fn renew<'a>(&'a self, _: &'a str, _: u64) -> Answering<'a, Renewal> {
        Box::pin(std::future::ready(Renewal::LogInAgain))
    }
}

impl Drop for Jwt {
    fn drop(&mut self) {
        if let Some(reading) = self.reading.get() {
            reading.abort();
        }
    }
}

/// Returns a digest of a token: another token is another proof, whatever it says.
fn proof(token: &str) -> u64 {
    let hash = digest::digest(&digest::SHA256, token.as_bytes());
    let (first, _) = hash.as_ref().split_first_chunk().expect("a SHA-256 has 32 bytes");
    u64::from_be_bytes(*first)
}
