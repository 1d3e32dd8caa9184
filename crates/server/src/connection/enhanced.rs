//! Enhanced authentication of MQTT 5 (section 4.12): AUTH packets before the client has a session, and of a
//! client that authenticates again.

use std::borrow::Cow;
use std::sync::Arc;

use barid_auth::{
    Credentials, Exchange, Method, Outcome, PASSWORD_MAX, Pending, Principal, Protocol, Proved,
    Step,
};
use barid_engine::mqtt::{AuthReceived, End, encode_auth};
use mqtt_proto::{Auth, Connect, DecodeError, FixedHeader, PacketType, ReasonCode, Version};

use super::login::{WRONG_LOGIN, permissions_of};
use super::mqtt::{CONNECT_MAX, Connection, Stage};
use crate::turn::{IoTurn, Next};

/// How far a client is that authenticates again.
#[derive(Debug)]
pub(super) enum Again {
    /// Its login is being decided. The login is given up when this is dropped.
    Deciding { _pending: Pending },
    /// It has to answer an AUTH.
    Challenged(Exchange),
}

const NOT_PROVED: End =
    End::Refused(ReasonCode::NotAuthorized, "the client has not proved its identity again");

impl Connection {
    /// Handles what follows the first message of an exchange.
    pub fn on_step(&mut self, turn: &mut IoTurn<'_>, step: Step, buffer: &mut [u8]) -> Next {
        let (exchange, message) = match step {
            Step::Ended { outcome, user } => {
                return self.conclude(turn, outcome, user.as_deref(), buffer);
            }
            Step::Challenge(exchange, message) => (*exchange, message),
        };
        if let Stage::Active(client) = &mut self.stage {
            if self.again.is_some() {
                self.again = Some(Box::new(Again::Challenged(exchange)));
                let (out, reason) = (&mut self.transport, ReasonCode::ContinueAuthentication);
                client.send_auth(&mut turn.turn, out, reason, Some(&message));
            }
            return Next::Wait;
        }
        let Some(mut waiting) = self.take_waiting(turn) else { return Next::Wait };
        waiting.pending = None;
        let reason = ReasonCode::ContinueAuthentication;
        let packet = encode_auth(Method::Scram.name(), reason, Some(&message));
        self.stage = Stage::Challenged(Box::new((*waiting, exchange)));
        // A failed write is reported by the next read.
        let _ = std::io::Write::write(&mut self.transport, &packet);
        let result = self.handle_partial(turn).and_then(|()| self.read(turn, buffer));
        result.unwrap_or_else(|end| self.end(turn, &end))
    }

    /// Handles the answer to an AUTH of the broker. Returns the length of the packet, or `None` if it is not
    /// complete.
    pub(super) fn auth_packet(
        &mut self,
        turn: &mut IoTurn<'_>,
        bytes: &[u8],
    ) -> Result<Option<usize>, End> {
        let Some(header) = FixedHeader::read(bytes, CONNECT_MAX)? else { return Ok(None) };
        let Some(packet) = bytes.get(..header.packet_len()) else { return Ok(None) };
        if header.packet_type() == PacketType::Disconnect {
            return Err(End::Lost(std::io::ErrorKind::ConnectionAborted));
        }
        if header.packet_type() != PacketType::Auth {
            return Err(End::Malformed(DecodeError::UnknownPacketType));
        }
        let auth = Auth::decode(Version::V5, &packet[header.header_len..])?;
        let until = turn.turn.context.worker.now;
        let stage = Stage::Connect { until, collected: None };
        let Stage::Challenged(challenged) = std::mem::replace(&mut self.stage, stage) else {
            return Ok(None);
        };
        let (waiting, exchange) = *challenged;
        let connect = Connect::decode(waiting.header, &waiting.body)?;
        let is_answer = auth.reason == ReasonCode::ContinueAuthentication
            && auth.properties.authentication_method() == Some(Method::Scram.name());
        let data = auth.properties.authentication_data().unwrap_or_default();
        let named = exchange.user().to_owned();
        let proved = match is_answer {
            true => exchange.finish(data),
            false => Err("the client has not answered the AUTH of the broker".into()),
        };
        let Proved { principal, version, message } = match proved {
            Ok(proved) => proved,
            Err(reason) => {
                let refusal = WRONG_LOGIN.because(reason).of(Some(&named));
                return Err(self.refuse(turn, &connect, &refusal));
            }
        };
        let (len, assigned) = (waiting.body.len(), waiting.assigned);
        let outcome = Outcome::Accepted(principal, version);
        let about = (Some(&*named), Some(message.as_bytes()));
        self.admit(turn, &connect, len, outcome, assigned, about)?;
        self.has_read(turn, packet.len());
        Ok(Some(packet.len()))
    }

    /// Handles an AUTH of a client that has a session.
    pub(super) fn on_auth_again(
        &mut self,
        turn: &mut IoTurn<'_>,
        auth: &AuthReceived,
    ) -> Result<(), End> {
        let protocol_error = End::Refused(ReasonCode::ProtocolError, "AUTH out of order");
        let (Stage::Active(client), Some(principal)) = (&self.stage, &self.identity.principal)
        else {
            return Err(protocol_error);
        };
        match (auth.is_again, self.again.take().map(|again| *again)) {
            (true, None) => {}
            (false, Some(Again::Challenged(exchange))) => {
                let proved = exchange.finish(&auth.data);
                let proved = proved.map_err(|reason| self.not_proved(turn, &reason))?;
                let message = proved.message.into_bytes();
                let proved = (proved.principal, proved.version);
                return self.authenticated_again(turn, proved, Some(&message));
            }
            _ => return Err(protocol_error),
        }
        let method = client.auth_method().and_then(Method::named).ok_or(protocol_error)?;
        let mut credentials = Credentials {
            user: Some(principal.user.clone()),
            password: None,
            client_id: client.client_id().into(),
            address: self.peer.ip(),
            certificate: self.certificate.clone(),
            protocol: Protocol::Mqtt,
            is_known: false,
        };
        let (owner, id) = (Arc::clone(turn.owner), self.id);
        let authenticator = &turn.shared.logins.authenticator;
        let pending = match method {
            Method::Scram => {
                let reply = move |step| owner.stepped(id, step);
                authenticator.begin_exchange(credentials, auth.data.clone(), reply)
            }
            Method::Token => {
                let most = auth.data.len().min(PASSWORD_MAX + 1);
                credentials.password = Some(auth.data[..most].into());
                let reply = move |outcome| owner.authenticated(id, outcome);
                match authenticator.begin(credentials, reply) {
                    Err(pending) => pending,
                    Ok(Outcome::Accepted(principal, version)) => {
                        return self.authenticated_again(turn, (principal, version), None);
                    }
                    Ok(other) => return Err(self.not_proved(turn, &why(&other))),
                }
            }
        };
        self.again = Some(Box::new(Again::Deciding { _pending: pending }));
        Ok(())
    }

    /// Handles the outcome of the login of a client that authenticates again.
    pub(super) fn on_outcome_again(&mut self, turn: &mut IoTurn<'_>, outcome: Outcome) -> Next {
        let Some(Again::Deciding { .. }) = self.again.as_deref() else { return Next::Wait };
        self.again = None;
        let result = match outcome {
            Outcome::Accepted(principal, version) => {
                self.authenticated_again(turn, (principal, version), None)
            }
            other => Err(self.not_proved(turn, &why(&other))),
        };
        match result {
            Ok(()) => Next::Wait,
            Err(end) => self.end(turn, &end),
        }
    }

    /// Notes that a client has not proved its identity again. Returns why its connection ends.
    fn not_proved(&self, turn: &IoTurn<'_>, reason: &str) -> End {
        if let Stage::Active(client) = &self.stage {
            client.deny_connection(&turn.turn, reason);
        }
        NOT_PROVED
    }

    /// The client has proved an identity again, which must be the same. Its rights, and the time at which it
    /// must authenticate the next time, are those of the new login.
    fn authenticated_again(
        &mut self,
        turn: &mut IoTurn<'_>,
        (principal, version): (Arc<Principal>, barid_auth::Version),
        data: Option<&[u8]>,
    ) -> Result<(), End> {
        let Stage::Active(client) = &mut self.stage else { return Ok(()) };
        let is_same = self.identity.user() == Some(&*principal.user);
        if !is_same {
            let reason = format!("it has proved to be {}, another user", principal.user);
            return Err(self.not_proved(turn, &reason));
        }
        let permissions = permissions_of(&principal, client.client_id());
        client.change_permissions(&mut turn.turn, &permissions);
        client.send_auth(&mut turn.turn, &mut self.transport, ReasonCode::Success, data);
        self.identity.prove(turn, self.id, principal, version);
        Ok(())
    }
}

/// Returns why a login was not accepted, for operators.
fn why(outcome: &Outcome) -> Cow<'_, str> {
    match outcome {
        Outcome::Denied(reason) | Outcome::Unavailable(reason) => (&**reason).into(),
        Outcome::Busy => "too many logins are waiting".into(),
        Outcome::Accepted(..) | Outcome::Anybody => "the tenant has no back ends any more".into(),
    }
}
