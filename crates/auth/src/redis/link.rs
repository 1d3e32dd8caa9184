//! The connection to Redis: one for all requests and for the news of changes.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Pipeline, ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo,
    RedisError, Value,
};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::guard::Guard;
use crate::remote::look_up::LookUp;
use crate::remote::printable;
use crate::remote::stream::{self, Stream, Tls};
use crate::remote::url::ServerUrl;

/// Time between two attempts to connect, and between two questions whether the server is there.
const PAUSE: Duration = Duration::from_secs(1);

/// Maximum time between two attempts to connect to a server that closes its connections soon. After each
/// connection everybody may have changed, so an enemy must not have many of them.
const PAUSE_MAX: Duration = Duration::from_secs(16);

/// A server, and how to log in.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) url: ServerUrl,
    pub(super) database: u16,
    pub(super) tls: Option<Tls>,
    pub(super) names: LookUp,
    pub(super) timeout: Duration,
}

/// The connection to Redis, if there is one at the moment. Without one, nobody waits.
pub(super) struct Link {
    /// The name of the back end, for the log.
    name: Box<str>,
    target: Target,
    channel: Box<str>,
    state: Mutex<State>,
    failure: Notify,
}

#[derive(Default)]
struct State {
    connection: Option<MultiplexedConnection>,
    /// The number of the connection.
    number: u64,
    /// Reason for which it has to be replaced.
    failed: Option<Box<str>>,
}

/// Shows nothing of the URL.
impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What the owner of a link does with it.
pub(super) trait Events: Send + Sync + 'static {
    /// A message has come over the channel.
    fn message(&self, message: &[u8]);

    /// The connection is there again. Messages may have been missed since `lost`.
    fn again(&self, lost: Instant);

    /// Sends what has to be sent, until the connection fails.
    fn work(&self) -> impl Future<Output = ()> + Send;
}

impl Link {
    pub(super) fn new(name: &str, target: Target, channel: &str) -> Self {
        Self {
            name: name.into(),
            target,
            channel: channel.into(),
            state: Mutex::default(),
            failure: Notify::new(),
        }
    }

    /// Whether there is a connection at the moment.
    pub(super) fn is_up(&self) -> bool {
        self.state.lock().connection.is_some()
    }

    /// Sends commands, and returns a reply to each. `None`: there is no connection, or no answer in time; then
    /// the connection is replaced.
    pub(super) async fn ask(&self, commands: &Pipeline) -> Option<Vec<Value>> {
        let (mut connection, number) = {
            let state = self.state.lock();
            (state.connection.clone()?, state.number)
        };
        let count = commands.len();
        let reason = match connection.send_packed_commands(commands, 0, count).await {
            Ok(replies) if replies.len() != count => "the number of replies is wrong".into(),
            Ok(replies) => match replies.iter().find_map(refusal) {
                Some(reason) => reason,
                None => return Some(replies),
            },
            Err(error) => reason(&error),
        };
        self.fail(number, reason);
        None
    }

    /// Gives a connection up, unless it was replaced already.
    fn fail(&self, number: u64, reason: Box<str>) {
        let mut state = self.state.lock();
        if state.number == number && state.connection.take().is_some() {
            state.failed = Some(reason);
            self.failure.notify_one();
        }
    }

    /// Keeps a connection, until the future is dropped.
    pub(super) async fn run<E: Events>(&self, events: &Arc<E>) {
        let (mut lost, mut is_told, mut pause) = (None, false, PAUSE);
        loop {
            let began = Instant::now();
            let reason = match timeout(self.target.timeout * 2, self.open(events)).await {
                Ok(Ok((connection, driver))) => {
                    let last = Mutex::new(began);
                    let serving = async {
                        self.subscribe(&connection).await?;
                        if let Some(lost) = lost.take() {
                            events.again(lost);
                            info!(backend = &*self.name, "the cache in Redis is used again");
                        }
                        is_told = false;
                        Err(self.serve(connection, &**events, &last).await)
                    };
                    let ended: Result<(), Box<str>> = tokio::select! {
                        () = driver => Err("the connection ended, or something else than replies came".into()),
                        ended = serving => ended,
                    };
                    self.state.lock().connection = None;
                    lost.get_or_insert(last.into_inner());
                    let was_short = began.elapsed() < PAUSE * 5;
                    pause = if was_short { PAUSE_MAX.min(pause * 2) } else { PAUSE };
                    ended.err().unwrap_or_default()
                }
                failed => {
                    lost.get_or_insert(began);
                    pause = PAUSE;
                    failed.map_or_else(
                        |_| "no answer in time".into(),
                        |failed| failed.err().unwrap_or_default(),
                    )
                }
            };
            if !std::mem::replace(&mut is_told, true) {
                warn!(
                    backend = &*self.name,
                    "the cache in Redis fails, and the next directory is asked directly: {reason}"
                );
            }
            sleep(pause).await;
        }
    }

    async fn open<E: Events>(
        &self,
        events: &Arc<E>,
    ) -> Result<(MultiplexedConnection, Driver), Box<str>> {
        let Target { url, database, tls, names, timeout } = &self.target;
        let failed = |error: std::io::Error| error.to_string().into_boxed_str();
        let stream = stream::connect(names, &url.host, url.port).await.map_err(failed)?;
        let stream: Stream = match tls {
            Some(tls) => tls.begin(stream).await.map_err(failed)?,
            None => Box::new(stream),
        };
        let mut info = RedisConnectionInfo::default()
            .set_protocol(ProtocolVersion::RESP3)
            .set_skip_set_lib_name()
            .set_db((*database).into());
        if let Some(password) = &url.password {
            info = info.set_password(password.expose());
        }
        if let Some(user) = &url.user {
            info = info.set_username(user);
        }
        let (events, channel) = (Arc::clone(events), self.channel.clone());
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(Some(*timeout))
            .set_push_sender(move |push: PushInfo| {
                if let Some(message) = message_of(&push, &channel) {
                    events.message(message);
                }
                Ok::<_, Infallible>(())
            });
        let opened =
            MultiplexedConnection::new_with_config(&info, Guard::new(stream), config).await;
        let (connection, driver) = opened.map_err(|error| reason(&error))?;
        Ok((connection, Box::pin(driver)))
    }

    async fn subscribe(&self, connection: &MultiplexedConnection) -> Result<(), Box<str>> {
        connection.clone().subscribe(&*self.channel).await.map_err(|error| reason(&error))
    }

    /// Lets requests use a connection until it fails; returns the reason. `last`: when the server was last known
    /// to answer.
    async fn serve<E: Events>(
        &self,
        connection: MultiplexedConnection,
        events: &E,
        last: &Mutex<Instant>,
    ) -> Box<str> {
        {
            let mut state = self.state.lock();
            state.connection = Some(connection);
            state.number += 1;
            state.failed = None;
        }
        let watching = async {
            loop {
                sleep(PAUSE).await;
                let asked = Instant::now();
                if self.ask(redis::pipe().cmd("PING")).await.is_some() {
                    *last.lock() = asked;
                }
            }
        };
        tokio::select! {
                    reason = self.failed() => reason,
                    reason = watching => reason,
        reason = async { loop { events.work().await } } => reason,
                }
    }

    async fn failed(&self) -> Box<str> {
        loop {
            self.failure.notified().await;
            if let Some(reason) = self.state.lock().failed.take() {
                return reason;
            }
        }
    }
}

/// The future that sends and receives.
type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Returns the contents of a message over the channel.
fn message_of<'a>(push: &'a PushInfo, channel: &str) -> Option<&'a [u8]> {
    match (&push.kind, &push.data[..]) {
        (PushKind::Message, [Value::BulkString(from), Value::BulkString(message)]) => {
            (from == channel.as_bytes()).then_some(message)
        }
        _ => None,
    }
}

/// Returns the reason if a server refuses all commands at the moment: a replica, or a server that is loading,
/// or that wants a password.
fn refusal(reply: &Value) -> Option<Box<str>> {
    let Value::ServerError(error) = reply else { return None };
    let refuses_all = matches!(error.code(), "LOADING" | "MASTERDOWN" | "READONLY" | "NOAUTH");
    refuses_all.then(|| printable(error.to_string().as_bytes()))
}

fn reason(error: &RedisError) -> Box<str> {
    printable(error.to_string().as_bytes())
}
