//! What a client shows to prove who it is.

use std::fmt;
use std::net::IpAddr;

use barid_core::time::WallTime;
use barid_engine::names::{full_name, tenant_of};

use crate::asker::Asker;

/// Maximum length of a password or token, in bytes. Longer ones are denied.
pub const PASSWORD_MAX: usize = 16 * 1024;

/// What a client shows to prove who it is.
#[derive(Clone)]
pub struct Credentials {
    /// The user name as `{tenant}/{client}`; `None`: the client has given none.
    pub user: Option<Box<str>>,
    /// The password, which may be a token. Has at most [`PASSWORD_MAX`] + 1 bytes.
    pub password: Option<Box<[u8]>>,
    /// The MQTT client identifier, or the AMQP container id.
    pub client_id: Box<str>,
    /// The address of the client.
    pub address: IpAddr,
    /// The names in the client's certificate, if it has shown one that the listener's authority has signed.
    pub certificate: Option<Box<CertificateNames>>,
    /// The protocol that the client speaks.
    pub protocol: Protocol,
    /// Whether a client of the tenant has logged in from this address before. Set by the authenticator.
    pub is_known: bool,
}

/// The names in a verified client certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateNames {
    /// The Common Name of the subject.
    pub common_name: Option<String>,
    /// The Subject Alternative Names of type `dNSName`.
    pub dns: Vec<String>,
    /// The Subject Alternative Names of type `uniformResourceIdentifier`.
    pub uris: Vec<String>,
    /// The Subject Alternative Names of type `rfc822Name`.
    pub emails: Vec<String>,
    /// The end of the certificate's validity.
    pub not_after: Option<WallTime>,
    /// The identity of the certificate in revocation lists.
    pub revocable: Option<Revocable>,
}

/// The identity of a certificate in revocation lists: a digest of its issuer and serial number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Revocable(pub(crate) [u8; 16]);

/// A protocol of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// MQTT, in any version.
    Mqtt,
    /// AMQP 1.0.
    Amqp,
}

impl Credentials {
    /// Returns the tenant of the user name, or of a client without a user name. `None`: the part of the user
    /// name before the slash cannot be the name of a tenant.
    pub fn tenant(&self) -> Option<&str> {
        tenant_of(self.user.as_deref())
    }

    /// Returns the client as it takes turns with others. A client has the turns of its tenant only at an address from
    /// which somebody has logged in to the tenant. All others share the turns of one, so that naming many tenants gives
    /// nobody more turns.
    pub(crate) fn asker(&self) -> Asker<'_> {
        let tenant = self.tenant().filter(|_| self.is_known).unwrap_or_default();
        Asker { tenant, address: self.address }
    }

    /// Returns a user name in its full form.
    pub fn full(name: &str) -> Box<str> {
        full_name(name).into()
    }

    /// Returns the password, or an empty one.
    pub fn password(&self) -> &[u8] {
        self.password.as_deref().unwrap_or_default()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .field("client_id", &self.client_id)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
