//! A connection to a server, logged in.

use std::fmt;
use std::sync::Arc;

use tokio::io::{AsyncWriteExt as _, BufReader};

use super::login::{self, Greeting, Login};
use super::packet::{self, Packets};
use super::statement::{self, Row, Statement};
use super::{Error, packet::PACKET_MAX};
use crate::remote::look_up::LookUp;
use crate::remote::stream::{self, Tls};
use crate::remote::url::ServerUrl;

/// Number of bytes that a server may send for the definitions of columns and parameters.
const DEFINITIONS_MAX: usize = 64 * 1024;

/// Number of bytes that a server may send for a row on the average, when it sends many.
const ROW_MAX: usize = 4 * 1024;

/// Maximum number of statements that a connection keeps prepared.
const STATEMENTS_MAX: usize = 8;

/// Command: execute a text.
const QUERY: u8 = 0x03;

/// Texts come as UTF-8, times as UTC, and each query sees what is committed when it begins. A query that takes
/// longer than anybody waits for it ends. MariaDB and MySQL call this limit by different names, and read only the
/// comment that is meant for them.
const SESSION: &str = "SET NAMES utf8mb4, time_zone = '+00:00', autocommit = 1 \
    /*M!100100 , max_statement_time = 10 */ /*!50708 , max_execution_time = 10000 */";

/// A server, and how to log in.
#[derive(Clone)]
pub(in super::super) struct Target {
    pub(in super::super) url: ServerUrl,
    pub(in super::super) tls: Option<Tls>,
    pub(in super::super) names: LookUp,
}

/// Shows nothing of the URL.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("with_tls", &self.tls.is_some()).finish_non_exhaustive()
    }
}

/// A connection to a server, logged in. It has to be dropped after an error that is no
/// [answer](Error::is_answer), and when a future of one of its methods was dropped.
pub(in super::super) struct Connection {
    packets: Packets,
    statements: Vec<Statement>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl Connection {
    /// Connects and logs in.
    pub(in super::super) async fn open(target: &Target) -> Result<Self, Error> {
        let url = &target.url;
        let mut stream = BufReader::new(stream::connect(&target.names, &url.host, url.port).await?);
        let (mut sequence, mut budget) = (0, login::ANSWER_MAX);
        let first = packet::receive(&mut stream, &mut sequence, &mut budget).await?;
        if first.first() == Some(&0xff) {
            return Err(packet::server_error(&first));
        }
        let greeting = Greeting::parse(&first)?;
        if !stream.buffer().is_empty() {
            return Err(Error::Malformed("the server speaks before it is asked"));
        }
        let login = Login {
            user: url.user.as_deref().unwrap_or_default(),
            password: url.password.as_ref().map_or(b"", |password| password.expose().as_bytes()),
            database: &url.path,
            with_tls: target.tls.is_some(),
        };
        let mut stream = stream.into_inner();
        let mut packets = match &target.tls {
            Some(tls) => {
                if !greeting.offers_tls() {
                    return Err(Error::Refused(
                        "the server offers no TLS, and `tls` is set".into(),
                    ));
                }
                let request = packet::frame(&login.tls_request(), sequence)?;
                stream.write_all(&request).await?;
                Packets::new(tls.begin(stream).await?, sequence.wrapping_add(1))
            }
            None => Packets::new(Box::new(stream), sequence),
        };
        packets.allow(login::ANSWER_MAX);
        login.run(&mut packets, &greeting).await?;
        let mut connection = Self { packets, statements: Vec::new() };
        connection.run(SESSION).await?;
        Ok(connection)
    }

    /// Executes a statement without parameters and without a result.
    pub(in super::super) async fn run(&mut self, sql: &str) -> Result<(), Error> {
        let mut command = vec![QUERY];
        command.extend_from_slice(sql.as_bytes());
        self.packets.command(&command, DEFINITIONS_MAX).await?;
        self.packets.receive_ok().await
    }

    /// Executes a query, whose parameters are bound. Returns its rows, and whether these are all: if there are
    /// more than `rows_max`, the connection cannot be used any more.
    pub(in super::super) async fn query(
        &mut self,
        sql: &Arc<str>,
        parameters: &[&str],
        rows_max: usize,
    ) -> Result<(Vec<Row>, bool), Error> {
        let statement = self.prepared(sql).await?;
        let answer_max = DEFINITIONS_MAX + PACKET_MAX + rows_max * ROW_MAX;
        statement::execute(&mut self.packets, &statement, parameters, rows_max, answer_max).await
    }

    async fn prepared(&mut self, sql: &Arc<str>) -> Result<Statement, Error> {
        let known = self.statements.iter().find(|statement| statement.sql == *sql);
        if let Some(statement) = known {
            return Ok(statement.clone());
        }
        if self.statements.len() == STATEMENTS_MAX {
            return Err(Error::TooLarge("the statements of a connection"));
        }
        let statement = statement::prepare(&mut self.packets, sql, DEFINITIONS_MAX).await?;
        self.statements.push(statement.clone());
        Ok(statement)
    }
}
