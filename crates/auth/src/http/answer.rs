//! Answers of services.

use barid_core::time::WallTime;
use barid_engine::rights::Rights;
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::settings::ResponseMode;
use crate::foreign_rights::{is_object, rights_of_acl, rights_of_json, unrestricted};
use crate::http_client::Reply;

/// Statuses of 4xx that say something about the service and nothing about the user.
const BUSY: [StatusCode; 3] =
    [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS];

/// Maximum length of a part of an answer in the log, in characters.
const SHOWN_MAX: usize = 200;

/// What a service says about a user.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    Allowed {
        rights: Rights,
        expires: Option<WallTime>,
    },
    Denied,
    /// The service does not decide on this user.
    Ignored,
}

/// The answer of a service for EMQX. Members that are not here, such as `client_attrs`, have no effect.
#[derive(Deserialize)]
struct EmqxAnswer<'a> {
    result: EmqxResult,
    #[serde(default)]
    is_superuser: Option<bool>,
    #[serde(borrow, default)]
    acl: Option<&'a RawValue>,
    #[serde(default)]
    expire_at: Option<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum EmqxResult {
    Allow,
    Deny,
    Ignore,
}

/// The JSON answer of a service for mosquitto-go-auth, whose decoder does not distinguish capital letters.
#[derive(Deserialize)]
struct GoAuthAnswer<'a> {
    #[serde(alias = "Ok", alias = "OK")]
    ok: bool,
    /// An addition of Barid.
    #[serde(borrow, default)]
    rights: Option<&'a RawValue>,
}

/// Reads the answer of a service for EMQX 5.
///
/// # Errors
/// A phrase that says why the answer means nothing.
pub(super) fn of_emqx(reply: &Reply) -> Result<Verdict, String> {
    match reply.status {
        StatusCode::NO_CONTENT => Ok(Verdict::Allowed { rights: Rights::default(), expires: None }),
        StatusCode::OK => of_emqx_json(&reply.body),
        // EMQX asks its next authenticator then.
        status if status.is_client_error() && !BUSY.contains(&status) => Ok(Verdict::Ignored),
        status => Err(format!("status {status}")),
    }
}

fn of_emqx_json(body: &[u8]) -> Result<Verdict, String> {
    let answer: EmqxAnswer<'_> = parse(body)?;
    match answer.result {
        EmqxResult::Deny => return Ok(Verdict::Denied),
        EmqxResult::Ignore => return Ok(Verdict::Ignored),
        EmqxResult::Allow => {}
    }
    let rights = match answer.acl {
        _ if answer.is_superuser == Some(true) => unrestricted(),
        None => Rights::default(),
        Some(acl) => {
            rights_of_acl(acl.get()).map_err(|error| format!("`acl`: {}", shown(&error)))?
        }
    };
    // The conversion saturates, and makes nothing of what is not a number.
    let expires = answer.expire_at.map(|seconds| WallTime::from_millis((seconds * 1_000.0) as u64));
    Ok(Verdict::Allowed { rights, expires })
}

/// Reads the answer of a service for mosquitto-go-auth.
///
/// # Errors
/// A phrase that says why the answer means nothing.
pub(super) fn of_mosquitto_go_auth(reply: &Reply, mode: ResponseMode) -> Result<Verdict, String> {
    let allowed = |rights| Ok(Verdict::Allowed { rights, expires: None });
    match reply.status {
        status if status.is_client_error() && !BUSY.contains(&status) => Ok(Verdict::Denied),
        status if !status.is_success() => Err(format!("status {status}")),
        _ => match mode {
            ResponseMode::Status => allowed(Rights::default()),
            ResponseMode::Text if *reply.body == *b"ok" => allowed(Rights::default()),
            ResponseMode::Text => Ok(Verdict::Denied),
            ResponseMode::Json => {
                let answer: GoAuthAnswer<'_> = parse(&reply.body)?;
                match answer.rights {
                    _ if !answer.ok => Ok(Verdict::Denied),
                    None => allowed(Rights::default()),
                    Some(rights) => rights_of_json(rights.get())
                        .map_err(|error| format!("`rights`: {}", shown(&error)))
                        .and_then(allowed),
                }
            }
        },
    }
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, String> {
    let text = str::from_utf8(body).map_err(|_| "an answer that is not UTF-8".to_owned())?;
    if !is_object(text) {
        return Err("an answer that is not a JSON object".into());
    }
    serde_json::from_str(text)
        .map_err(|error| format!("an unexpected answer: {}", shown(&error.to_string())))
}

/// Returns an error as it may be written to the log. It may quote the answer.
pub(super) fn shown(error: &str) -> String {
    let mut shown: String = error.escape_debug().take(SHOWN_MAX).collect();
    if error.len() > SHOWN_MAX {
        shown.push('…');
    }
    shown
}
