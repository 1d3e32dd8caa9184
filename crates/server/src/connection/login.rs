//! CONNECT, and the verification of the login in it, before the client is admitted.

use std::sync::Arc;
use std::time::Duration;

use barid_core::time::MonoTime;
use barid_engine::mqtt::{Arrival, End, Refusal, admit, assigned_client_id, refuse, say_refusal};
use mqtt_proto::{Connect, DecodeError, FixedHeader, MAX_PACKET_LEN, ReasonCode, Version};

use super::mqtt::{Connection, Stage};
use crate::auth::{PASSWORD_MAX, Verdict};
use crate::strangers::{Collected, Delayed};
use crate::turn::IoTurn;
use crate::verifier::Login;

const WRONG_LOGIN: Refusal =
    Refusal(ReasonCode::BadUserNameOrPassword, "user name or password is wrong");

/// Refusal of a client whose login is not verified, because most of the waiting logins come from its address.
const TOO_MANY_LOGINS: Refusal = Refusal(ReasonCode::ServerBusy, "too many logins are waiting");

/// A CONNECT whose login is being verified.
#[derive(Debug)]
pub(super) struct Waiting {
    /// The packet, which is decoded again after the verdict.
    header: FixedHeader,
    body: Box<[u8]>,
    /// The client identifier that was assigned to a client without one.
    assigned: Option<String>,
    /// Keeps [`Login::waits`] alive, by which the verifier sees that the verdict still matters.
    _waits: Arc<()>,
    /// Counts `body`, the login, which has copies of parts of it, and the bytes that the client has sent
    /// after its CONNECT.
    collected: Collected,
    pub(super) until: MonoTime,
}

impl Waiting {
    /// Sets the number of bytes that the client has sent after its CONNECT.
    pub(super) fn count_unread(&mut self, bytes: usize) -> std::io::Result<()> {
        self.collected.set(2 * self.body.len() + bytes)
    }
}

impl Connection {
    /// Handles CONNECT, the first packet.
    pub(super) fn on_connect(
        &mut self,
        turn: &mut IoTurn<'_>,
        header: FixedHeader,
        body: &[u8],
    ) -> Result<(), End> {
        let connect = match Connect::decode(header, body) {
            Ok(connect) => connect,
            Err(error) => {
                let version = Connect::refusal_version(body);
                // A 3.x client is answered only if a return code fits (MQTT-3.1.4-1 of 3.1.1).
                if version == Version::V5 || error == DecodeError::UnsupportedVersion {
                    let refusal = Refusal(error.reason_code(), "");
                    say_refusal(&mut self.transport, version, &refusal, MAX_PACKET_LEN);
                }
                return Err(error.into());
            }
        };
        let shared = turn.shared;
        let users = shared.users();
        if users.allow_anybody() {
            return self.admit(turn, &connect, body.len(), Verdict::Allowed(None), None);
        }
        // The rules of the user may contain the client identifier, so it has to be known first.
        let assigned = match assigned_client_id(&connect, turn.turn.context.engine.random) {
            Ok(assigned) => assigned,
            Err(refusal) => return Err(self.refuse(turn, &connect, &refusal)),
        };
        let mut collected = Collected::new(&self.listener.strangers);
        if collected.set(2 * body.len()).is_err() {
            let refusal = Refusal(
                ReasonCode::ServerBusy,
                "too many bytes of logins are waiting for verification",
            );
            return Err(self.refuse(turn, &connect, &refusal));
        }
        let waits = Arc::new(());
        // One byte more than the maximum is kept, so that the verifier denies a password that is too long.
        let password = connect.password.unwrap_or_default();
        let password = &password[..password.len().min(PASSWORD_MAX + 1)];
        let login = Login {
            waits: Arc::downgrade(&waits),
            users,
            address: self.peer.ip(),
            name: connect.username.unwrap_or_default().to_owned(),
            password: password.to_vec(),
            client_id: assigned.clone().unwrap_or_else(|| connect.client_id.to_owned()),
            connection: self.id,
            reply: {
                let (owner, id) = (Arc::clone(turn.owner), self.id);
                Box::new(move |verdict| owner.authenticated(id, verdict))
            },
        };
        if !shared.verifier.submit(login) {
            return Err(self.refuse(turn, &connect, &TOO_MANY_LOGINS));
        }
        let timeout = shared.settings().limits.connect_timeout;
        let until = turn.turn.context.worker.now.after(Duration::from_secs(u64::from(timeout)));
        self.stage = Stage::Authenticating(Box::new(Waiting {
            header,
            body: body.into(),
            assigned,
            _waits: waits,
            collected,
            until,
        }));
        Ok(())
    }

    /// Handles the verdict on a login.
    pub(super) fn accept(
        &mut self,
        turn: &mut IoTurn<'_>,
        waiting: &Waiting,
        verdict: Verdict,
    ) -> Result<(), End> {
        let connect = Connect::decode(waiting.header, &waiting.body)?;
        self.admit(turn, &connect, waiting.body.len(), verdict, waiting.assigned.clone())
    }

    fn admit(
        &mut self,
        turn: &mut IoTurn<'_>,
        connect: &Connect<'_>,
        len: usize,
        verdict: Verdict,
        assigned: Option<String>,
    ) -> Result<(), End> {
        let permissions = match verdict {
            Verdict::Allowed(permissions) => permissions,
            Verdict::Denied => return Err(self.refuse(turn, connect, &WRONG_LOGIN)),
            Verdict::Busy => return Err(self.refuse(turn, connect, &TOO_MANY_LOGINS)),
        };
        let arrival = Arrival {
            id: self.id,
            peer: self.peer,
            listener: self.listener.name,
            owner: turn.owner.clone(),
            wire: self.transport.wire(),
            permissions,
            assigned,
        };
        match admit(&mut turn.turn, &mut self.transport, arrival, connect, len) {
            Ok(client) => {
                self.stage = Stage::Active(Box::new(client));
                Ok(())
            }
            Err(refusal) => Err(self.refuse(turn, connect, &refusal)),
        }
    }

    fn refuse(&mut self, turn: &IoTurn<'_>, connect: &Connect<'_>, refusal: &Refusal) -> End {
        let is_configured = |tenant: &str| turn.shared.users().are_in(tenant);
        let context = &turn.turn.context;
        if refusal.0 == ReasonCode::ConnectionRateExceeded
            && let Some(place) = Delayed::new(&self.listener.strangers)
        {
            let mut answer = Vec::new();
            let end = refuse(context, &mut answer, self.peer, connect, refusal, is_configured);
            self.delayed = Some(Box::new((answer, place)));
            return end;
        }
        refuse(context, &mut self.transport, self.peer, connect, refusal, is_configured)
    }
}
