//! Keys at a URL.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::header::ACCEPT;
use hyper::{Request, Uri};
use jsonwebtoken::Algorithm;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use super::keys::{KeySet, NoKey};
use crate::asker::Asker;
use crate::http_client::{HttpClient, Options, shown};

/// Time between the end of a request and the next one. So tokens with made-up identifiers cause no more
/// requests, and a URL that fails is asked again soon.
const PAUSE: Duration = Duration::from_secs(10);

/// Maximum length of a key set, in bytes: a hundred keys, each with a chain of certificates.
const BODY_MAX: usize = 1024 * 1024;

/// The keys at a URL. [`run`](Self::run) reads them again and again; everything else only reads memory, and
/// may wait for the next result.
#[derive(Debug)]
pub(super) struct Jwks {
    client: HttpClient,
    url: Uri,
    algorithms: Vec<Algorithm>,
    refresh: Duration,
    timeout: Duration,
    state: watch::Sender<State>,
    /// Notified when a token has an unknown identifier.
    wanted: Notify,
    /// [`PAUSE`], except in tests.
    pub(super) pause: Duration,
}

#[derive(Clone, Debug, Default)]
struct State {
    /// The keys of the last request that succeeded.
    keys: Option<Arc<KeySet>>,
    /// The end of the last request.
    asked: Option<Instant>,
    /// Why the last request failed.
    error: Option<Arc<str>>,
}

/// Reason for which there is no key for a token.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// The issuer has no such key.
    NoKey(NoKey),
    /// It is unknown which keys the issuer has. The text is for the log.
    Unavailable(String),
}

impl Jwks {
    pub(super) fn new(
        client: HttpClient,
        url: Uri,
        algorithms: Vec<Algorithm>,
        refresh: Duration,
        timeout: Duration,
    ) -> Self {
        let (state, wanted) = (watch::Sender::default(), Notify::new());
        Self { client, url, algorithms, refresh, timeout, state, wanted, pause: PAUSE }
    }

    /// Bounds of the client: only [`run`](Self::run) uses it.
    pub(super) fn options(timeout: Duration) -> Options {
        Options { timeout, requests: 1, body_max: BODY_MAX }
    }

    /// Reads the keys again and again. `name`: of the back end, for the log.
    pub(super) async fn run(&self, name: &str) {
        let mut had_failed = false;
        loop {
            let read = self.read().await;
            let has_failed = read.is_err();
            match &read {
                Ok(keys) if keys.len() == 0 => {
                    tracing::warn!(
                        backend = name,
                        "{} has no keys for `algorithms`",
                        shown(&self.url)
                    );
                }
                Ok(keys) if had_failed => {
                    tracing::info!(backend = name, keys = keys.len(), "the keys were read again");
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(
                        backend = name,
                        "cannot read keys from {}: {error}",
                        shown(&self.url)
                    );
                }
            }
            had_failed = has_failed;
            self.state.send_modify(|state| {
                state.asked = Some(Instant::now());
                match read {
                    Ok(keys) => {
                        state.keys = Some(Arc::new(keys));
                        state.error = None;
                    }
                    // The old keys are kept.
                    Err(error) => state.error = Some(error.into()),
                }
            });
            sleep(self.pause).await;
            if !has_failed {
                // An error means that nobody wanted a key.
                let _ =
                    timeout(self.refresh.saturating_sub(self.pause), self.wanted.notified()).await;
            }
        }
    }

    async fn read(&self) -> Result<KeySet, String> {
        let request = Request::get(self.url.clone())
            .header(ACCEPT, "application/json, application/jwk-set+json")
            .body(Full::default())
            .map_err(|error| error.to_string())?;
        let reply = self.client.send(Asker::BROKER, self.client.deadline(), request).await;
        let reply = reply.map_err(|error| error.to_string())?;
        if !reply.status.is_success() {
            return Err(format!("status {}", reply.status));
        }
        KeySet::of_json(&reply.body, &self.algorithms)
    }

    /// Returns a set that has a key for a token. Waits for the first request, and if no key has the identifier for
    /// the next one, unless the last one ended a moment ago.
    pub(super) async fn find(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Arc<KeySet>, Missing> {
        let mut states = self.state.subscribe();
        let state = states.borrow_and_update().clone();
        let found = self.in_state(&state, id, algorithm);
        if let Some(asked) = state.asked {
            if !matches!(found, Err(Missing::NoKey(NoKey::UnknownId))) {
                return found;
            }
            self.wanted.notify_one();
            if asked.elapsed() < self.pause {
                return self.or_unavailable(found, &state);
            }
        }
        if timeout(self.timeout, states.changed()).await.is_err() {
            return Err(self.unavailable("no answer"));
        }
        let state = states.borrow().clone();
        let found = self.in_state(&state, id, algorithm);
        self.or_unavailable(found, &state)
    }

    fn in_state(
        &self,
        state: &State,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Arc<KeySet>, Missing> {
        let Some(keys) = &state.keys else {
            return Err(self.unavailable(state.error.as_deref().unwrap_or("not read so far")));
        };
        keys.find(id, algorithm).map_err(Missing::NoKey)?;
        Ok(Arc::clone(keys))
    }

    /// A key that was unknown when the keys were last read may have been published since.
    fn or_unavailable(
        &self,
        found: Result<Arc<KeySet>, Missing>,
        state: &State,
    ) -> Result<Arc<KeySet>, Missing> {
        match (&found, &state.error) {
            (Err(Missing::NoKey(NoKey::UnknownId)), Some(error)) => Err(self.unavailable(error)),
            _ => found,
        }
    }

    fn unavailable(&self, why: &str) -> Missing {
        Missing::Unavailable(format!("keys of {}: {why}", shown(&self.url)))
    }
}
