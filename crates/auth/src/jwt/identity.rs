//! From the claims of a verified token to a user and its rights.

use barid_core::time::WallTime;
use barid_engine::names::{check_tenant_name, tenant_of};
use barid_engine::rights::Rights;

use super::object::Object;
use super::settings::{JwtSettings, TokenPlace};
use crate::credentials::Credentials;
use crate::foreign_rights::{rights_of_acl, rights_of_json};

/// A result whose error is the reason for the log.
type Checked<T> = Result<T, &'static str>;

/// Returns the full name of the user of a token that a client has shown.
pub(super) fn user(
    settings: &JwtSettings,
    claims: &Object,
    credentials: &Credentials,
) -> Checked<Box<str>> {
    check_client_id(settings, claims, &credentials.client_id)?;
    let name = text(claims, &settings.user_claim, "the user claim is not a text")?;
    if name.as_deref().is_some_and(|name| name.is_empty() || name.contains(char::is_control)) {
        return Err("the user claim cannot be a user name");
    }
    let (tenant, full_name) = if settings.full_names {
        let full_name = name.ok_or("the token has no user claim")?;
        if !full_name.contains('/') {
            return Err("the user claim has no tenant");
        }
        let tenant = tenant_of(Some(&full_name)).ok_or("the user claim has no valid tenant")?;
        (tenant.to_owned(), Some(full_name))
    } else {
        let tenant = tenant(settings, claims)?;
        let full_name = name.map(|name| format!("{tenant}/{name}"));
        (tenant, full_name)
    };
    let given = match settings.token {
        TokenPlace::Password => credentials.user.as_deref(),
        // The user name is the token itself.
        TokenPlace::Username => None,
    };
    match (given, full_name) {
        (Some(given), _) if tenant_of(Some(given)) != Some(&*tenant) => {
            Err("the token is for another tenant than the user name")
        }
        (Some(given), Some(name)) if settings.verify_user && *given != *name => {
            Err("the token is for another user than the user name")
        }
        (Some(given), _) => Ok(given.into()),
        (None, Some(name)) => Ok(name.into()),
        (None, None) => Err("neither the client nor the token names a user"),
    }
}

fn tenant(settings: &JwtSettings, claims: &Object) -> Checked<String> {
    let Some(claim) = &settings.tenant_claim else { return Ok(settings.tenant.clone()) };
    let tenant = text(claims, claim, "the tenant claim is not a text")?
        .ok_or("the token has no tenant claim")?;
    check_tenant_name(&tenant).map_err(|_| "the tenant claim cannot be the name of a tenant")?;
    Ok(tenant)
}

fn check_client_id(settings: &JwtSettings, claims: &Object, client_id: &str) -> Checked<()> {
    let Some(claim) = &settings.client_id_claim else { return Ok(()) };
    match text(claims, claim, "the client identifier claim is not a text")? {
        Some(only) if only != client_id => Err("the token is for another client identifier"),
        _ => Ok(()),
    }
}

fn text(claims: &Object, name: &str, wrong: &'static str) -> Checked<Option<String>> {
    claims.get(name).map_err(|_| wrong)
}

/// Returns the rights in a token.
///
/// # Errors
/// A sentence for an operator. It may contain parts of the rights, and nothing else of the token.
pub(super) fn rights(
    settings: &JwtSettings,
    claims: &Object,
    user: &str,
) -> Result<Rights, String> {
    let claim = |name: &str| if name.is_empty() { None } else { claims.json(name) };
    let rights = match (claim(&settings.rights_claim), claim(&settings.acl_claim)) {
        (Some(rights), _) => rights_of_json(rights)?,
        (None, Some(acl)) => rights_of_acl(acl)?,
        (None, None) => Rights::default(),
    };
    rights.check(user)?;
    Ok(rights)
}

/// Returns the time at which the connection must end, and checks that the token was not issued in the future.
/// `exp` and `nbf` have been checked.
pub(super) fn expiry(
    settings: &JwtSettings,
    claims: &Object,
    now_seconds: u64,
) -> Checked<Option<WallTime>> {
    let time = |name| claims.get::<f64>(name).map_err(|_| "a time in the token is not a number");
    let latest = now_seconds.saturating_add(settings.leeway) as f64;
    if time("iat")?.is_some_and(|issued| issued > latest) {
        return Err("the token was issued in the future");
    }
    // The conversion saturates.
    let millis = |seconds: f64| ((seconds + settings.leeway as f64) * 1_000.0) as u64;
    Ok(time("exp")?.map(|expiry| WallTime::from_millis(millis(expiry))))
}
