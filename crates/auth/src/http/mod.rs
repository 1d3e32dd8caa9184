//! A service that decides on logins, asked over HTTP. Services that were written for EMQX 5 or for
//! mosquitto-go-auth can be used as they are.

mod answer;
mod request;
mod settings;
mod template;
#[cfg(test)]
mod tests;

use std::time::SystemTime;

use barid_core::time::WallTime;
use barid_engine::rights::Rights;
use hyper::header::HeaderMap;
use ring::digest;
use tokio::time::Instant;

use crate::asker::Asker;
use crate::backend::{Accepted, Answer, Backend, Renewal};
use crate::credentials::{Credentials, PASSWORD_MAX};
use crate::directory::{Answering, Unavailable};
use crate::foreign_rights::unrestricted;
use crate::http_client::{HttpClient, NoReply, Reply};
use answer::Verdict;
use request::{Endpoint, Field, NotAsked};
pub use settings::HttpSettings;
use settings::Requests;
use template::Values;

/// A back end that asks a service.
#[derive(Debug)]
pub struct Http {
    name: Box<str>,
    client: HttpClient,
    requests: Requests,
    headers: HeaderMap,
    strip_tenant: bool,
    next_after_denial: bool,
    remember: bool,
}

/// Reason for which there is no verdict.
#[derive(Debug)]
enum NoVerdict {
    /// Nothing was sent.
    NotAsked(NotAsked),
    /// The service cannot tell. The text is for the log.
    Unavailable(String),
    /// Too many logins wait for the service.
    Busy,
}

impl Http {
    /// Creates a back end with this name. Reads the files that the settings name; nothing is sent before the
    /// first login.
    ///
    /// # Errors
    /// As [`HttpSettings::check`].
    pub fn new(name: &str, settings: &HttpSettings) -> Result<Self, String> {
        settings.check()?;
        Ok(Self {
            name: name.into(),
            client: settings.client()?,
            requests: settings.requests()?,
            headers: settings.headers()?,
            strip_tenant: settings.strip_tenant,
            next_after_denial: settings.next_after_denial,
            remember: settings.remember,
        })
    }

    async fn answer(&self, credentials: &Credentials) -> Answer {
        let Some(user) = credentials.user.as_deref() else { return Answer::Unknown };
        if credentials.password().len() > PASSWORD_MAX {
            return Answer::Refused("the password is too long");
        }
        let values = Values::new(user, credentials, self.strip_tenant);
        let (rights, expires) = match self.ask(credentials.asker(), &values).await {
            Ok(Verdict::Allowed { rights, expires }) => (rights, expires),
            Ok(Verdict::Denied) if !self.next_after_denial => {
                return Answer::Refused("the service denies the login");
            }
            Ok(Verdict::Denied | Verdict::Ignored) => return Answer::Unknown,
            Err(NoVerdict::NotAsked(NotAsked(reason))) => return Answer::Refused(reason),
            Err(NoVerdict::Unavailable(error)) => return self.unavailable(&error),
            Err(NoVerdict::Busy) => return Answer::Busy,
        };
        if let Err(error) = rights.check(user) {
            return self.unavailable(&format!("invalid rights: {}", answer::shown(&error)));
        }
        if expires.is_some_and(|expires| expires <= now()) {
            return Answer::Refused("the service lets the user in until a time in the past");
        }
        let proof = proof(user, &rights);
        Answer::Accepted(Box::new(Accepted { user: user.into(), rights, proof, expires }))
    }

    async fn ask(&self, asker: Asker<'_>, values: &Values<'_>) -> Result<Verdict, NoVerdict> {
        // One timeout for all requests of a login.
        let turn = (asker, self.client.deadline());
        match &self.requests {
            Requests::Emqx { endpoint, fields } => {
                let fields: Vec<_> = fields
                    .iter()
                    .map(|(name, value)| (name.as_str(), value.fill_in(values)))
                    .collect();
                let reply = self.send(turn, endpoint, values, &fields).await?;
                answer::of_emqx(&reply).map_err(|error| unclear(endpoint, &error))
            }
            Requests::MosquittoGoAuth { user, superuser, response } => {
                let user_name = || ("username", Vec::from(values.user_name));
                let fields = [
                    user_name(),
                    ("password", values.password.into()),
                    ("clientid", values.client_id.into()),
                ];
                let ask = async |endpoint: &Endpoint, fields: &[Field<'_>]| {
                    let reply = self.send(turn, endpoint, values, fields).await?;
                    answer::of_mosquitto_go_auth(&reply, *response)
                        .map_err(|error| unclear(endpoint, &error))
                };
                let verdict = ask(user, &fields).await?;
                let (Verdict::Allowed { expires, .. }, Some(superuser)) = (&verdict, superuser)
                else {
                    return Ok(verdict);
                };
                match ask(superuser, &[user_name()]).await? {
                    Verdict::Allowed { .. } => {
                        Ok(Verdict::Allowed { rights: unrestricted(), expires: *expires })
                    }
                    Verdict::Denied | Verdict::Ignored => Ok(verdict),
                }
            }
        }
    }

    async fn send(
        &self,
        (asker, deadline): (Asker<'_>, Instant),
        endpoint: &Endpoint,
        values: &Values<'_>,
        fields: &[Field<'_>],
    ) -> Result<Reply, NoVerdict> {
        let request =
            endpoint.request(&self.headers, values, fields).map_err(NoVerdict::NotAsked)?;
        self.client.send(asker, deadline, request).await.map_err(|error| match error {
            NoReply::Busy => NoVerdict::Busy,
            NoReply::Failed(error) => unclear(endpoint, &error),
        })
    }

    fn unavailable(&self, error: &str) -> Answer {
        Answer::Unavailable(Unavailable(format!("{}: {error}", self.name)))
    }
}

impl Backend for Http {
    fn name(&self) -> &str {
        &self.name
    }

    fn decide<'a>(&'a self, credentials: &'a Credentials) -> Answering<'a, Answer> {
        Box::pin(self.answer(credentials))
    }

    /// The services know no request without a password.
    fn renew<'a>(&'a self, _: &'a str, _: u64) -> Answering<'a, Renewal> {
        Box::pin(std::future::ready(Renewal::LogInAgain))
    }

    fn may_be_remembered(&self) -> bool {
        self.remember
    }
}

fn unclear(endpoint: &Endpoint, error: &str) -> NoVerdict {
    NoVerdict::Unavailable(format!("{}: {error}", endpoint.shown()))
}

fn now() -> WallTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    WallTime::default().after(since)
}

/// Returns a digest of what the service has said: another answer is another proof. The password is not part of
/// it, because the service may accept several.
fn proof(user: &str, rights: &Rights) -> u64 {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(user.as_bytes());
    context.update(&[0]);
    context.update(&serde_json::to_vec(rights).unwrap_or_default());
    let hash = context.finish();
    let (first, _) = hash.as_ref().split_first_chunk().expect("a SHA-256 has 32 bytes");
    u64::from_be_bytes(*first)
}
