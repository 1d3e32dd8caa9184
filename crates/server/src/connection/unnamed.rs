//! Refusals of clients that have not said yet who they are: in the handshakes of TLS and WebSocket.

use std::borrow::Cow;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use barid_engine::denials::Denial;
use barid_engine::denied_action::Action;
use barid_engine::names::DEFAULT_TENANT;

use crate::turn::IoTurn;

/// Notes that a handshake has failed, if the reason is who the client is. Other failures, such as those of port scanners,
/// are not noted.
pub(super) fn note_failure(turn: &IoTurn<'_>, peer: SocketAddr, error: &io::Error) {
    let Some(reason) = reason(error) else { return };
    let context = &turn.turn.context;
    let Some(tenant) = context.engine.tenants.get(DEFAULT_TENANT) else { return };
    let denial = Denial {
        action: Action::Login,
        user: None,
        client: "",
        peer,
        object: None,
        reason: &reason,
    };
    context.deny(&tenant, &denial);
}

fn reason(error: &io::Error) -> Option<Cow<'static, str>> {
    // A page in a browser, from a site that may not connect.
    if error.kind() == ErrorKind::PermissionDenied {
        return Some(error.to_string().into());
    }
    match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(problem) => {
            Some(format!("the certificate of the client is not accepted: {problem}").into())
        }
        rustls::Error::NoCertificatesPresented => Some("the client has no certificate".into()),
        rustls::Error::AlertReceived(alert) => {
            Some(format!("the client does not accept the broker's certificate: {alert:?}").into())
        }
        _ => None,
    }
}
