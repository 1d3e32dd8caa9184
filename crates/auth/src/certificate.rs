//! The back end of client certificates: a name in the certificate is the user.

use barid_core::time::WallTime;
use barid_engine::names::{check_user_name, full_name};
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;
use x509_parser::prelude::FromDer as _;
use x509_parser::revocation_list::CertificateRevocationList;

use crate::backend::{Accepted, Answer, Backend, Renewal};
use crate::credentials::{CertificateNames, Credentials, Revocable};
use crate::directory::Answering;

/// Maximum number of names that are read from a certificate.
const NAMES_MAX: usize = 64;

/// Settings of a back end of client certificates.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub struct CertificateSettings {
    /// The part of the certificate that has the name.
    pub from: NameIn,
    /// How the name becomes the user name: `{name}` stands for it. A result without a slash is a user of the
    /// tenant `default`.
    pub user: String,
    /// Whether the user name in CONNECT is ignored. Otherwise it must be absent, or be the same.
    pub ignore_user_name: bool,
}

/// The part of a certificate that has the name of the user.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum NameIn {
    /// The Common Name of the subject.
    #[default]
    CommonName,
    /// The Subject Alternative Name of type `dNSName`.
    Dns,
    /// The Subject Alternative Name of type `uniformResourceIdentifier`.
    Uri,
    /// The Subject Alternative Name of type `rfc822Name`.
    Email,
}

/// What a certificate revocation list says (RFC 5280, section 5).
#[derive(Debug, PartialEq, Eq)]
pub struct RevocationList {
    /// The revoked certificates.
    pub certificates: Vec<Revocable>,
    /// The time from which the list does not count, `nextUpdate`.
    pub expires: Option<WallTime>,
}

/// Accepts clients whose certificate has the name of a user.
#[derive(Debug)]
pub struct CertificateUsers {
    name: Box<str>,
    settings: CertificateSettings,
}

impl Default for CertificateSettings {
    fn default() -> Self {
        Self { from: NameIn::CommonName, user: "{name}".into(), ignore_user_name: false }
    }
}

impl CertificateSettings {
    /// Checks what the types do not.
    ///
    /// # Errors
    /// A sentence about the first thing that is wrong.
    pub fn check(&self) -> Result<(), String> {
        if self.user.matches("{name}").count() != 1 {
            return Err("`user` contains {name} once, for the name in the certificate".into());
        }
        check_user_name(&full_name(&self.user.replace("{name}", "name")))
            .map_err(|error| format!("`user`: {error}"))
    }
}

impl CertificateUsers {
    /// Creates the back end with the name that it has in the configuration.
    ///
    /// # Errors
    /// A sentence about what is wrong with the settings.
    pub fn new(name: &str, settings: CertificateSettings) -> Result<Self, String> {
        settings.check()?;
        Ok(Self { name: name.into(), settings })
    }

    fn answer(&self, credentials: &Credentials) -> Answer {
        let Some(certificate) = credentials.certificate.as_deref() else { return Answer::Unknown };
        let names: &[String] = match self.settings.from {
            NameIn::CommonName => certificate.common_name.as_slice(),
            NameIn::Dns => &certificate.dns,
            NameIn::Uri => &certificate.uris,
            NameIn::Email => &certificate.emails,
        };
        let mut users = names.iter().filter_map(|name| self.user_of(name));
        let given = credentials.user.as_deref().filter(|_| !self.settings.ignore_user_name);
        let user = match (given, names) {
            (_, []) => return Answer::Unknown,
            (Some(given), _) => users.find(|user| *user == *given),
            (None, [_]) => users.next(),
            (None, _) => return Answer::Refused("the certificate has several names"),
        };
        let Some(user) = user else {
            return Answer::Refused("no name in the certificate is this user, or can be a user");
        };
        Answer::Accepted(Box::new(Accepted {
            user: user.into(),
            proof: certificate.proof(),
            expires: certificate.not_after,
            ..Accepted::default()
        }))
    }

    /// A name with a wildcard is for several hosts, so it is nobody's.
    fn user_of(&self, name: &str) -> Option<String> {
        let user = full_name(&self.settings.user.replace("{name}", name));
        let is_plain = !name.is_empty() && !name.contains(['*', '+', '#']);
        // The name must not change the tenant that the template says.
        let has_tenant =
            self.settings.user.split_once("{name}").is_some_and(|(before, _)| before.contains('/'));
        let is_own = !has_tenant || !name.contains('/');
        (is_plain && is_own && check_user_name(&user).is_ok()).then_some(user)
    }
}

impl Backend for CertificateUsers {
    fn name(&self) -> &str {
        &self.name
    }

    fn decide<'a>(&'a self, credentials: &'a Credentials) -> Answering<'a, Answer> {
        Box::pin(std::future::ready(self.answer(credentials)))
    }

    fn renew<'a>(&'a self, _user: &'a str, _proof: u64) -> Answering<'a, Renewal> {
        Box::pin(std::future::ready(Renewal::LogInAgain))
    }
}

impl CertificateNames {
    /// Reads the names in a certificate that has been verified. `None`: it cannot be parsed.
    pub fn of(der: &[u8]) -> Option<Self> {
        let (_, certificate) = parse_x509_certificate(der).ok()?;
        let common_name = certificate.subject().iter_common_name().next();
        let mut names = Self {
            common_name: common_name.and_then(|name| name.as_str().ok()).map(Into::into),
            not_after: wall_time(certificate.validity().not_after.timestamp()),
            revocable: Some(Revocable::of(certificate.issuer().as_raw(), certificate.raw_serial())),
            ..Self::default()
        };
        let extension = certificate.subject_alternative_name().ok().flatten();
        let general = extension.iter().flat_map(|extension| &extension.value.general_names);
        for name in general.take(NAMES_MAX) {
            match name {
                GeneralName::DNSName(name) => names.dns.push((*name).into()),
                GeneralName::URI(name) => names.uris.push((*name).into()),
                GeneralName::RFC822Name(name) => names.emails.push((*name).into()),
                _ => {}
            }
        }
        Some(names)
    }

    fn proof(&self) -> u64 {
        let Revocable(bytes) = self.revocable.unwrap_or_default();
        u64::from_le_bytes(*bytes.first_chunk().expect("it has 16 bytes"))
    }
}

impl CertificateNames {
    /// When the certificate expires; `None`: at no time that can be read.
    pub fn expires(&self) -> Option<WallTime> {
        self.not_after
    }
}

impl Revocable {
    /// The identity of a certificate: its issuer and serial number.
    fn of(issuer: &[u8], serial: &[u8]) -> Self {
        // A serial number may be written with leading zeros.
        let first = serial.iter().position(|byte| *byte != 0).unwrap_or(serial.len());
        let mut text = issuer.to_vec();
        text.extend_from_slice(&serial[first..]);
        let digest = digest(&SHA256, &text);
        Self(*digest.as_ref().first_chunk().expect("a digest has 32 bytes"))
    }
}

impl RevocationList {
    /// Reads a revocation list. `None`: it cannot be parsed.
    pub fn of(der: &[u8]) -> Option<Self> {
        let (_, list) = CertificateRevocationList::from_der(der).ok()?;
        let issuer = list.issuer().as_raw();
        let revoked = list.iter_revoked_certificates();
        Some(Self {
            certificates: revoked.map(|one| Revocable::of(issuer, one.raw_serial())).collect(),
            expires: list.next_update().and_then(|at| wall_time(at.timestamp())),
        })
    }
}

/// Returns the time of this many seconds since the Unix epoch.
fn wall_time(seconds: i64) -> Option<WallTime> {
    let millis = u64::try_from(seconds).ok()?.checked_mul(1_000)?;
    Some(WallTime::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::for_tests::credentials;

    fn answer(settings: &str, user: Option<&str>, names: CertificateNames) -> Answer {
        let settings: CertificateSettings = serde_json::from_str(settings).unwrap();
        let back_end = CertificateUsers::new("devices", settings).unwrap();
        let mut shown = credentials(user, "");
        shown.certificate = Some(Box::new(names));
        back_end.answer(&shown)
    }

    fn user(settings: &str, user: Option<&str>, names: CertificateNames) -> Option<String> {
        match answer(settings, user, names) {
            Answer::Accepted(accepted) => Some(accepted.user.into()),
            _ => None,
        }
    }

    fn common(name: &str) -> CertificateNames {
        CertificateNames { common_name: Some(name.into()), ..CertificateNames::default() }
    }

    #[test]
    fn the_name_in_the_certificate_is_the_user() {
        assert_eq!(user("{}", None, common("ada")).as_deref(), Some("default/ada"));
        assert_eq!(user("{}", None, common("acme/ada")).as_deref(), Some("acme/ada"));
        let of_acme = r#"{"user":"acme/{name}"}"#;
        assert_eq!(user(of_acme, None, common("ada")).as_deref(), Some("acme/ada"));
        assert_eq!(user(of_acme, Some("acme/ada"), common("ada")).as_deref(), Some("acme/ada"));
        assert_eq!(user(of_acme, Some("acme/bob"), common("ada")), None);
        assert_eq!(user(of_acme, None, common("b/ada")), None, "a name is no path in the tenant");
        let ignoring = r#"{"user":"acme/{name}","ignore_user_name":true}"#;
        assert_eq!(user(ignoring, Some("acme/bob"), common("ada")).as_deref(), Some("acme/ada"));
    }

    #[test]
    fn names_that_are_nobodys_are_refused() {
        for name in ["*", "*.example.com", "a\nb", "", "+", "a/#", "a b/c"] {
            assert_eq!(user("{}", None, common(name)), None, "{name:?}");
        }
        let both = CertificateNames { dns: vec!["a".into(), "b".into()], ..Default::default() };
        let dns = r#"{"from":"dns"}"#;
        assert!(matches!(answer(dns, None, both.clone()), Answer::Refused(_)));
        assert_eq!(user(dns, Some("default/b"), both.clone()).as_deref(), Some("default/b"));
        assert_eq!(answer("{}", None, both), Answer::Unknown, "without a common name");
    }

    #[test]
    fn settings_are_checked() {
        for bad in [r#"{"user":"acme"}"#, r#"{"user":"{name}{name}"}"#, r#"{"user":"a b/{name}"}"#]
        {
            let settings: CertificateSettings = serde_json::from_str(bad).unwrap();
            assert!(settings.check().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_certificate_is_parsed() {
        let mut parameters = rcgen::CertificateParams::new(vec!["a.example".into()]).unwrap();
        parameters.distinguished_name.push(rcgen::DnType::CommonName, "acme/ada");
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        let names = CertificateNames::of(certificate.der()).unwrap();
        assert_eq!(names.common_name.as_deref(), Some("acme/ada"));
        assert_eq!(names.dns, ["a.example"]);
        assert!(names.not_after.is_some() && names.revocable.is_some());
        assert_eq!(CertificateNames::of(b"garbage"), None);
        assert_eq!(RevocationList::of(b"garbage"), None);
        for cut in 0..certificate.der().len() {
            assert_eq!(CertificateNames::of(&certificate.der()[..cut]), None);
        }
    }
}
