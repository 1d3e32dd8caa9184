//! Connections to one server, opened when they are needed.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::time::timeout_at;
use tracing::{info, warn};

use super::protocol::{Connection, Error, Row, Target};
use crate::asker::Asker;
use crate::gate::Gate;
use crate::remote::breaker::Breaker;

/// Time after which a connection is not used again, so that a server that has moved is followed.
const AGE_MAX: Duration = Duration::from_secs(600);

/// Maximum number of askers that wait for one connection. A database that answers within 2 ms serves so many in the
/// default timeout; more would wait in vain. Beyond it, a client is told that the server is busy.
pub(super) const WAITING_PER_CONNECTION: usize = 1_024;

/// Connections to one server. None is opened before it is needed, and each use finds out for itself whether
/// the server is there.
#[derive(Debug)]
pub(super) struct Pool {
    target: Target,
    timeout: Duration,
    health: Arc<Health>,
    gate: Arc<Gate>,
    idle: Mutex<Vec<Idle>>,
}

/// Whether the server answers.
#[derive(Debug)]
pub(super) struct Health {
    /// The name of the back end, for the log.
    pub(super) name: Box<str>,
    pub(super) breaker: Breaker,
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    opened: Instant,
}

/// A query with the values of its parameters.
#[derive(Debug)]
pub(super) struct Query {
    pub(super) sql: Arc<str>,
    pub(super) parameters: Vec<Box<str>>,
    pub(super) rows_max: usize,
}

/// The rows of a query, and whether these are all.
pub(super) type Rows = (Vec<Row>, bool);

impl Pool {
    /// `timeout`: for each query, with waiting for a connection and opening it.
    pub(super) fn new(
        target: Target,
        size: usize,
        timeout: Duration,
        health: &Arc<Health>,
    ) -> Self {
        let gate = Gate::new(size, WAITING_PER_CONNECTION * size);
        Self { target, timeout, health: Arc::clone(health), gate, idle: Mutex::default() }
    }

    /// Executes a query when it is the turn of the asker to use a connection, and notes whether the server
    /// answers. This is done on a task of its own. So a client that goes away in the middle of its login does not
    /// cost a connection, which would have to be opened again. There are at most as many tasks as connections.
    pub(super) async fn query(
        self: &Arc<Self>,
        asker: Asker<'_>,
        query: Query,
    ) -> Result<Rows, Error> {
        let asked = Instant::now();
        let deadline = asked + self.timeout;
        let permit = timeout_at(deadline.into(), self.gate.enter(asker)).await;
        let Some(permit) = permit.ok().flatten() else {
            return Err(self.no_turn());
        };
        let pool = Arc::clone(self);
        let task = tokio::spawn(async move {
            let waited = asked.elapsed();
            let answer = match timeout_at(deadline.into(), pool.ask(&query)).await {
                Ok(answer) => answer,
                // The server has had little time, because the query has waited so long for its turn.
                Err(_) if waited > pool.timeout / 2 => return Err(pool.no_turn()),
                Err(_) => Err(io::Error::from(ErrorKind::TimedOut).into()),
            };
            pool.health.note(&answer);
            drop(permit);
            answer
        });
        task.await.unwrap_or_else(|_| Err(Error::Refused("the back end is closed".into())))
    }

    /// Returns why a query was not sent in time. A client can bring that about with many logins. It is a failure only
    /// if the server has failed.
    fn no_turn(&self) -> Error {
        self.health.breaker.failure().map_or(Error::Busy, Error::Refused)
    }

    async fn ask(&self, query: &Query) -> Result<Rows, Error> {
        if let Some(idle) = self.take() {
            match self.ask_over(idle, query).await {
                // The server may have closed it long ago, and others that are idle as well.
                Err(Error::Connection(_)) => self.idle.lock().clear(),
                answer => return answer,
            }
        }
        let connection = Connection::open(&self.target).await?;
        self.ask_over(Idle { connection, opened: Instant::now() }, query).await
    }

    async fn ask_over(&self, mut idle: Idle, query: &Query) -> Result<Rows, Error> {
        let parameters: Vec<&str> = query.parameters.iter().map(|text| &**text).collect();
        let answer = idle.connection.query(&query.sql, &parameters, query.rows_max).await;
        let is_usable = match &answer {
            Ok((_, are_all)) => *are_all,
            Err(error) => error.is_answer(),
        };
        if is_usable {
            self.idle.lock().push(idle);
        }
        answer
    }

    fn take(&self) -> Option<Idle> {
        let mut all = self.idle.lock();
        while let Some(idle) = all.pop() {
            if idle.opened.elapsed() < AGE_MAX {
                return Some(idle);
            }
        }
        None
    }
}

impl Health {
    fn note(&self, answer: &Result<Rows, Error>) {
        match answer {
            Err(error) if error.concerns_all() => {
                let reason = error.to_string();
                if self.breaker.fails(&reason, Instant::now()) {
                    warn!(backend = &*self.name, "the database of users fails: {reason}");
                }
            }
            _ => {
                if self.breaker.answers() {
                    info!(backend = &*self.name, "the database of users answers again");
                }
            }
        }
    }
}
