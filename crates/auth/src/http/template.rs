//! Texts with placeholders for what is known of a client.

use std::net::IpAddr;

use barid_engine::names::DEFAULT_TENANT;

use crate::credentials::Credentials;

/// Placeholders by name.
const PLACEHOLDERS: [(&str, Placeholder); 6] = [
    ("username", Placeholder::UserName),
    ("password", Placeholder::Password),
    ("clientid", Placeholder::ClientId),
    ("peerhost", Placeholder::PeerHost),
    ("cert_common_name", Placeholder::CommonName),
    ("tenant", Placeholder::Tenant),
];

/// A text with placeholders.
#[derive(Debug)]
pub(super) struct Template(Vec<Part>);

#[derive(Debug)]
enum Part {
    Text(String),
    Value(Placeholder),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placeholder {
    UserName,
    Password,
    ClientId,
    PeerHost,
    CommonName,
    Tenant,
}

/// What is known of a client.
#[derive(Clone, Copy)]
pub(super) struct Values<'a> {
    pub(super) user_name: &'a str,
    pub(super) password: &'a [u8],
    pub(super) client_id: &'a str,
    address: IpAddr,
    common_name: &'a str,
    tenant: &'a str,
}

impl<'a> Values<'a> {
    /// Returns the values for a client that has given a user name.
    pub(super) fn new(user: &'a str, credentials: &'a Credentials, strip_tenant: bool) -> Self {
        let (tenant, without_tenant) = user.split_once('/').unwrap_or((DEFAULT_TENANT, user));
        let certificate = credentials.certificate.as_deref();
        Self {
            user_name: if strip_tenant { without_tenant } else { user },
            password: credentials.password(),
            client_id: &credentials.client_id,
            address: credentials.address.to_canonical(),
            common_name: certificate.and_then(|names| names.common_name.as_deref()).unwrap_or(""),
            tenant,
        }
    }

    fn write(&self, placeholder: Placeholder, output: &mut Vec<u8>) {
        let address;
        output.extend_from_slice(match placeholder {
            Placeholder::UserName => self.user_name.as_bytes(),
            Placeholder::Password => self.password,
            Placeholder::ClientId => self.client_id.as_bytes(),
            Placeholder::PeerHost => {
                address = self.address.to_string();
                address.as_bytes()
            }
            Placeholder::CommonName => self.common_name.as_bytes(),
            Placeholder::Tenant => self.tenant.as_bytes(),
        });
    }
}

impl Template {
    /// Parses a text with placeholders.
    ///
    /// # Errors
    /// A sentence about the first placeholder that is unknown.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once("${") {
            let Some((name, behind)) = behind.split_once('}') else {
                return Err("a placeholder has no }".into());
            };
            let Some((_, placeholder)) = PLACEHOLDERS.into_iter().find(|(own, _)| *own == name)
            else {
                let names = PLACEHOLDERS.map(|(name, _)| format!("${{{name}}}")).join(", ");
                return Err(format!("${{{name}}} is not one of {names}"));
            };
            if !before.is_empty() {
                parts.push(Part::Text(before.into()));
            }
            parts.push(Part::Value(placeholder));
            rest = behind;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.into()));
        }
        Ok(Self(parts))
    }

    /// Whether the text says which user it is about.
    pub(super) fn has_user(&self) -> bool {
        self.0.iter().any(|part| matches!(part, Part::Value(Placeholder::UserName)))
    }

    pub(super) fn has_placeholders(&self) -> bool {
        self.0.iter().any(|part| matches!(part, Part::Value(_)))
    }

    /// Fills in the values as they are.
    pub(super) fn fill_in(&self, values: &Values<'_>) -> Vec<u8> {
        self.fill_in_with(values, |value, output| output.extend_from_slice(value))
    }

    /// Fills in the values in one pass, each as `encode` writes it. So a value that looks like a placeholder
    /// stays as it is.
    pub(super) fn fill_in_with(
        &self,
        values: &Values<'_>,
        encode: impl Fn(&[u8], &mut Vec<u8>),
    ) -> Vec<u8> {
        let mut output = Vec::new();
        let mut value = Vec::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => output.extend_from_slice(text.as_bytes()),
                Part::Value(placeholder) => {
                    value.clear();
                    values.write(*placeholder, &mut value);
                    encode(&value, &mut output);
                }
            }
        }
        output
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::CertificateNames;
    use crate::for_tests::credentials;

    #[test]
    fn values_are_filled_in_once() {
        let mut client = credentials(Some("acme/${password}/x"), "${username}");
        let certificate = CertificateNames { common_name: Some("cn".into()), ..Default::default() };
        client.certificate = Some(Box::new(certificate));
        client.address = "::ffff:192.0.2.7".parse().unwrap();
        let text =
            "$ {${username}|${password}|${clientid}|${peerhost}|${cert_common_name}|${tenant}}";
        let template = Template::parse(text).unwrap();
        let fill_in = |strip_tenant| {
            let values = Values::new("acme/${password}/x", &client, strip_tenant);
            String::from_utf8(template.fill_in(&values)).unwrap()
        };
        assert_eq!(fill_in(false), "$ {acme/${password}/x|${username}|c1|192.0.2.7|cn|acme}");
        assert_eq!(fill_in(true), "$ {${password}/x|${username}|c1|192.0.2.7|cn|acme}");
    }

    #[test]
    fn unknown_placeholders_are_told() {
        for (text, expected) in [
            ("${user}", "${user} is not one of ${username}, ${password}, ${clientid}"),
            ("a${username", "has no }"),
            ("${}", "${} is not one of"),
        ] {
            let error = Template::parse(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
