//! Settings of the JWT back end: plain data.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use barid_engine::names::{check_tenant_name, default_tenant_name};
use hyper::Uri;
use jsonwebtoken::{Algorithm, AlgorithmFamily};
use serde::Deserialize;

use super::jwks::Jwks;
use super::key_files;
use crate::http_client::{HttpClient, REQUEST_TIMEOUTS_MS, parse_url};

/// Range of the interval at which keys are read again, in seconds. It is not less than the pause after a request.
const REFRESH: RangeInclusive<u64> = 10..=86_400;

/// Maximum tolerance for clocks, in seconds. Clocks that differ by more are wrong.
const LEEWAY_MAX: u64 = 600;

/// Settings of the JWT back end.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct JwtSettings {
    /// Where the client puts the token.
    pub token: TokenPlace,
    /// File with the secret with which tokens are signed (HS256, HS384, HS512).
    pub secret_file: Option<PathBuf>,
    /// How `secret_file` writes the secret.
    pub secret_encoding: SecretEncoding,
    /// PEM file with one or more public keys.
    pub public_key_file: Option<PathBuf>,
    /// URL of a JSON Web Key Set with public keys.
    pub jwks_url: Option<String>,
    /// PEM file with the authorities that the server of `jwks_url` is trusted by; absent: those of the
    /// operating system.
    pub ca_file: Option<PathBuf>,
    /// Interval at which `jwks_url` is read again, in seconds.
    pub refresh: u64,
    /// Timeout for a request to `jwks_url`, in milliseconds.
    pub timeout_ms: u64,
    /// The algorithms with which tokens may be signed.
    pub algorithms: Vec<Algorithm>,
    /// The issuer (`iss`). Tokens of other issuers are left to the next back end.
    pub issuer: Option<String>,
    /// The audiences (`aud`) of which a token must have one. Empty: tokens must be for no audience.
    pub audience: Vec<String>,
    /// Whether a token must have an expiry (`exp`).
    pub require_expiry: bool,
    /// Tolerance for differences between the clocks of issuer and broker, in seconds.
    pub leeway: u64,
    /// The tenant of all users, if `tenant_claim` is absent.
    pub tenant: String,
    /// The claim with the tenant.
    pub tenant_claim: Option<String>,
    /// The claim with the user, without the tenant.
    pub user_claim: String,
    /// Whether `user_claim` has the full name, `{tenant}/{client}`.
    pub full_names: bool,
    /// Whether a client that gives a user name must give that of the token.
    pub verify_user: bool,
    /// The claim with the client identifier that the client must have, if the token has the claim.
    pub client_id_claim: Option<String>,
    /// The claim with the rights of the user; empty: none.
    pub rights_claim: String,
    /// The claim with an access control list of EMQX, if the token has no `rights_claim`; empty: none.
    pub acl_claim: String,
}

/// Where a client puts its token.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum TokenPlace {
    /// The password.
    #[default]
    Password,
    /// The user name.
    Username,
}

/// How a file writes a secret.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum SecretEncoding {
    /// As it is. White space at both ends does not count.
    #[default]
    Text,
    /// In Base64, with padding.
    Base64,
}

impl Default for JwtSettings {
    fn default() -> Self {
        Self {
            token: TokenPlace::default(),
            secret_file: None,
            secret_encoding: SecretEncoding::default(),
            public_key_file: None,
            jwks_url: None,
            ca_file: None,
            refresh: 300,
            timeout_ms: 5_000,
            algorithms: Vec::new(),
            issuer: None,
            audience: Vec::new(),
            require_expiry: true,
            leeway: 60,
            tenant: default_tenant_name(),
            tenant_claim: None,
            user_claim: "sub".into(),
            full_names: false,
            verify_user: true,
            client_id_claim: None,
            rights_claim: "barid".into(),
            acl_claim: "acl".into(),
        }
    }
}

/// Where the keys come from.
#[derive(Debug, PartialEq)]
pub(super) enum KeySource<'a> {
    Secret(&'a Path),
    PublicKeys(&'a Path),
    Url(Uri),
}

impl JwtSettings {
    /// Returns the files that the settings name.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        [&self.secret_file, &self.public_key_file, &self.ca_file]
            .into_iter()
            .flatten()
            .map(|file| &**file)
    }

    /// Checks what the types do not, and that the files are there and contain keys.
    ///
    /// # Errors
    /// A sentence about the first thing that is wrong.
    pub fn check(&self) -> Result<(), String> {
        let source = self.key_source()?;
        self.check_algorithms(&source)?;
        self.check_names()?;
        if !REFRESH.contains(&self.refresh) {
            return Err(format!("`refresh` is from {} to {}", REFRESH.start(), REFRESH.end()));
        }
        if !REQUEST_TIMEOUTS_MS.contains(&self.timeout_ms) {
            let (least, most) = REQUEST_TIMEOUTS_MS.into_inner();
            return Err(format!("`timeout_ms` is from {least} to {most}"));
        }
        if self.leeway > LEEWAY_MAX {
            return Err(format!("`leeway` is from 0 to {LEEWAY_MAX}"));
        }
        if self.ca_file.is_some() && !matches!(source, KeySource::Url(_)) {
            return Err("`ca_file` is for `jwks_url`".into());
        }
        match source {
            KeySource::Url(_) if self.ca_file.is_none() => Ok(()),
            KeySource::Url(_) => self.client().map(drop),
            KeySource::Secret(_) | KeySource::PublicKeys(_) => key_files::read(self).map(drop),
        }
    }

    pub(super) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    /// Returns the client for `jwks_url`.
    pub(super) fn client(&self) -> Result<HttpClient, String> {
        HttpClient::new(self.ca_file.as_deref(), Jwks::options(self.timeout()))
            .map_err(|error| format!("`ca_file`: {error}"))
    }

    pub(super) fn key_source(&self) -> Result<KeySource<'_>, String> {
        match (&self.secret_file, &self.public_key_file, &self.jwks_url) {
            (Some(file), None, None) => Ok(KeySource::Secret(file)),
            (None, Some(file), None) => Ok(KeySource::PublicKeys(file)),
            (None, None, Some(url)) => {
                parse_url(url).map(KeySource::Url).map_err(|error| format!("`jwks_url`: {error}"))
            }
            _ => {
                Err("exactly one of `secret_file`, `public_key_file` and `jwks_url` is needed"
                    .into())
            }
        }
    }

    fn check_algorithms(&self, source: &KeySource<'_>) -> Result<(), String> {
        if self.algorithms.is_empty() {
            return Err(
                "`algorithms` is missing: name those with which tokens may be signed, such as \
                        [\"RS256\"], or [\"HS256\"] with `secret_file`"
                    .into(),
            );
        }
        let is_secret = matches!(source, KeySource::Secret(_));
        let unfit =
            |algorithm: &&Algorithm| (algorithm.family() == AlgorithmFamily::Hmac) != is_secret;
        match self.algorithms.iter().find(unfit) {
            // With a public key as the secret of an HMAC anybody could sign.
            Some(algorithm) if !is_secret => Err(format!(
                "`algorithms`: {algorithm:?} is for a secret (`secret_file`), not for public keys"
            )),
            Some(algorithm) => {
                Err(format!("`algorithms`: {algorithm:?} is for public keys, not for a secret"))
            }
            None => Ok(()),
        }
    }

    fn check_names(&self) -> Result<(), String> {
        check_tenant_name(&self.tenant).map_err(|error| format!("`tenant`: {error}"))?;
        let is_default = self.tenant == default_tenant_name();
        if self.tenant_claim.is_some() && !is_default {
            return Err("`tenant` and `tenant_claim` exclude each other".into());
        }
        if self.full_names && (self.tenant_claim.is_some() || !is_default) {
            return Err("with `full_names` the user claim has the tenant, so `tenant` and \
                        `tenant_claim` have no effect"
                .into());
        }
        let claims = [
            ("user_claim", Some(&self.user_claim)),
            ("tenant_claim", self.tenant_claim.as_ref()),
            ("client_id_claim", self.client_id_claim.as_ref()),
        ];
        match claims.into_iter().find(|(_, name)| name.is_some_and(String::is_empty)) {
            Some((key, _)) => Err(format!("`{key}` is empty")),
            None => Ok(()),
        }
    }
}
