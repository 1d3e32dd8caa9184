//! Settings of a broker that belongs to a cluster.

use std::fmt::Debug;
use std::hash::BuildHasher as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use barid_engine::amqp::Secret;
use barid_peers::{CommonSettings, Placement};
use foldhash::quality::FixedState;
use serde::Deserialize;

use super::{Settings, Tls};

/// The cluster that a broker belongs to.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct ClusterSettings {
    /// Name of the cluster, the same in all its brokers.
    pub name: String,
    /// Name of this broker, unique in the cluster.
    pub broker: String,
    /// Address at which other brokers open links.
    pub listen: SocketAddr,
    /// The address by which other brokers reach this one, `host:port`. `None`: [`Self::listen`].
    pub advertise: Option<String>,
    /// The address at which MQTT clients reach this broker, for those that follow a Server Reference. `None`: they are passed on
    /// to it.
    pub server_reference: Option<String>,
    /// Addresses of other brokers, `host:port`. One that can be reached is enough: it names the others. The address of
    /// this broker may be among them.
    #[serde(default)]
    pub peers: Vec<String>,
    /// The brokers that have the sessions that outlive their connections: slot `i` belongs to `homes[i % homes.len()]`. Empty:
    /// such a session is at the broker where it began.
    #[serde(default)]
    pub homes: Vec<String>,
    /// Number of slots, a power of two up to 4,096.
    #[serde(default = "slots")]
    pub slots: u16,
    /// What the broker does when it has lost the quorum.
    #[serde(default)]
    pub without_quorum: WithoutQuorum,
    /// The secret of the cluster. The code that reads the configuration stores the contents of `secret_file` here.
    pub secret: Option<Secret>,
    /// Path of a file that holds the secret. White space around the secret is ignored.
    pub secret_file: Option<PathBuf>,
    /// TLS on the links. `None`: they are in plain text.
    pub tls: Option<ClusterTls>,
}

/// What a broker does that no more than half of its cluster can hear.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum WithoutQuorum {
    /// It does not read from clients, and disconnects them after a while.
    #[default]
    Stop,
    /// It goes on. Messages that it acknowledges may miss subscribers at the other brokers.
    Serve,
}

/// The certificates for the links between the brokers of a cluster.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct ClusterTls {
    /// PEM file with the certificate chain of this broker. It must be for the host by which others reach the broker.
    pub certificate: PathBuf,
    /// PEM file with the private key.
    pub key: PathBuf,
    /// PEM file with the certificate authorities that issue the certificates of brokers.
    pub ca: PathBuf,
}

impl ClusterTls {
    /// The same for the side that accepts links: other brokers must show a certificate.
    pub fn of_listener(&self) -> Tls {
        Tls {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            client_ca: Some(self.ca.clone()),
            crl: Vec::new(),
            require_client_certificate: true,
        }
    }
}

/// Number of slots unless something else is set: eight for each of four brokers.
fn slots() -> u16 {
    32
}

impl ClusterSettings {
    /// The map of slots; `None`: there are no homes, or the map is not valid.
    pub fn placement(&self) -> Option<Placement> {
        Placement::new(self.slots, self.homes.clone())
    }

    /// The secret of the cluster.
    ///
    /// # Panics
    /// Panics if the code that reads the configuration has stored none.
    pub fn secret(&self) -> &[u8] {
        let secret = self.secret.as_ref();
        secret
            .expect("whoever reads the configuration reads the file of the secret")
            .expose()
            .as_bytes()
    }
}

impl Settings {
    /// The settings that all brokers of a cluster should have in common. Brokers of the same version have the same hashes for
    /// the same settings.
    pub fn common(&self) -> CommonSettings {
        // Passwords and keys are hashed, too: the Debug output of `User` and `Key` leaves them out.
        let users: Vec<_> =
            self.users.iter().map(|user| (&user.name, &user.password, user.rights())).collect();
        let keys = self
            .keys
            .iter()
            .map(|key| (&key.name, key.key.as_ref().map(Secret::expose), &key.rights, &key.entity));
        let keys: Vec<_> = keys.collect();
        let without_quorum = self.cluster.as_ref().map(|cluster| cluster.without_quorum);
        CommonSettings::new([
            hash(&self.limits),
            hash(&(&self.tenants, self.max_tenants)),
            hash(&self.durability),
            hash(&(&self.auth, self.strict_user_names)),
            hash(&users),
            hash(&keys),
            hash(&self.bindings),
            hash(&self.queues),
            hash(&self.topics),
            hash(&self.shared_subscriptions),
            hash(&without_quorum),
        ])
    }
}

fn hash(settings: &dyn Debug) -> u64 {
    FixedState::with_seed(0).hash_one(format!("{settings:?}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn common(settings: Value) -> CommonSettings {
        serde_json::from_value::<Settings>(settings).unwrap().common()
    }

    /// Returns the names of the parts in which two configurations differ.
    fn differing(one: Value, other: Value) -> Vec<&'static str> {
        common(one).differing(&common(other)).collect()
    }

    #[test]
    fn what_differs_is_named() {
        let cluster = |without_quorum: &str| {
            let (name, listen) = ("c", "127.0.0.1:1");
            json!({ "cluster": {
                "name": name, "broker": "b", "listen": listen, "without_quorum": without_quorum,
            } })
        };
        let rules = differing(cluster("stop"), cluster("serve"));
        assert_eq!(rules, ["cluster.without_quorum"]);
        assert_eq!(differing(json!({}), json!({ "limits": { "max_qos": 1 } })), ["limits"]);
        assert_eq!(differing(json!({}), json!({ "queues": [{ "name": "q" }] })), ["queues"]);
        assert!(differing(json!({}), json!({})).is_empty());
    }

    #[test]
    fn secrets_count() {
        let user = |password: &str, publish: &str| json!({ "users": [{ "name": "u", "password": password, "publish": [publish] }] });
        let key =
            |secret: &str| json!({ "keys": [{ "name": "k", "key": secret, "rights": ["Send"] }] });
        assert_eq!(differing(user("a", "t"), user("b", "t")), ["users"]);
        assert_eq!(differing(user("a", "t"), user("a", "u")), ["users"]);
        assert_eq!(differing(key("a"), key("b")), ["keys"]);
        assert!(differing(user("a", "t"), user("a", "t")).is_empty());
    }
}
