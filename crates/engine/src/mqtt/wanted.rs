//! The settings that a CONNECT requests, reduced to the tenant's limits.

use std::sync::Arc;

use barid_core::message::{Message, Publication};
use barid_core::session::WindowLimits;
use mqtt_proto::flow::OutboundAliases;
use mqtt_proto::{
    Connect, MAX_PACKET_LEN, PropertiesBuf, Property, PropertyId, QoS, ReasonCode, Version,
};

use crate::durability::{Durability, asks_to_persist};
use crate::limits::Limits;
use crate::random::Random;
use crate::session::Will;

/// The User Property with which a client requests the durability classes in CONNECT, and in which CONNACK
/// tells them.
const DURABILITY: &str = "barid-durability";

/// Maximum number of durability classes in CONNACK: with more, CONNACK would be larger than some clients
/// accept.
const DURABILITY_TOLD_MAX: usize = 32;

/// Why a CONNECT is refused.
#[derive(Debug)]
pub struct Refusal {
    /// The reason code of CONNACK.
    pub code: ReasonCode,
    /// The Reason String of CONNACK. A client without a session must not learn from it which users exist.
    pub text: &'static str,
    /// What operators are told instead; `None`: the same.
    pub reason: Option<Box<str>>,
    /// The name of the user, if it is another than that in CONNECT.
    pub user: Option<Box<str>>,
}

/// The settings of the session that a CONNECT is granted.
pub(super) struct Wanted {
    /// Session Expiry Interval, in seconds.
    pub(super) expiry: u32,
    /// Keep Alive, in seconds.
    pub(super) keep_alive: u16,
    /// The client's Receive Maximum.
    pub(super) receive_maximum: u16,
    /// The client's Maximum Packet Size, in bytes.
    pub(super) max_packet_size: u32,
    /// Topic Aliases for messages to the client, if it allows any.
    pub(super) aliases: Option<Box<OutboundAliases>>,
    /// The Will Message.
    pub(super) will: Option<Box<Will>>,
    /// Whether the client wants its session stored, whatever the durability class of the tenant.
    pub(super) persist: bool,
}

/// An enhanced authentication that was successful (MQTT 5, section 4.12).
#[derive(Clone, Copy, Debug)]
pub struct Enhanced<'a> {
    /// The Authentication Method of the CONNECT.
    pub method: &'a str,
    /// The last Authentication Data for the client.
    pub data: Option<&'a [u8]>,
}

impl Refusal {
    /// Creates a refusal of which operators are told what the client is told.
    pub const fn new(code: ReasonCode, text: &'static str) -> Self {
        Self { code, text, reason: None, user: None }
    }

    /// Sets what operators are told: a part of a sentence, as in [`Denial`](crate::denials::Denial).
    #[must_use]
    pub fn because(self, reason: impl Into<Box<str>>) -> Self {
        Self { reason: Some(reason.into()), ..self }
    }

    /// Sets the user, if the broker knows one that CONNECT does not name.
    #[must_use]
    pub fn of(self, user: Option<&str>) -> Self {
        Self { user: user.map(Into::into), ..self }
    }

    /// Returns what operators are told.
    pub(super) fn reason(&self) -> &str {
        self.reason.as_deref().unwrap_or(self.text)
    }
}

/// Checks the settings that a CONNECT requests, and reduces them to the limits.
pub(super) fn want(
    connect: &Connect<'_>,
    limits: &Limits,
    enhanced: Option<Enhanced<'_>>,
) -> Result<Wanted, Refusal> {
    let properties = &connect.properties;
    if properties.authentication_method() != enhanced.map(|own| own.method) {
        return Err(Refusal::new(
            ReasonCode::BadAuthenticationMethod,
            "this authentication method is not supported",
        ));
    }
    let v5 = connect.version == Version::V5;
    let expiry = if v5 {
        properties.session_expiry_interval().unwrap_or(0)
    } else if connect.clean_start {
        0
    } else {
        u32::MAX
    };
    let keep_alive = match limits.max_keep_alive {
        0 => connect.keep_alive,
        // A 3.x client cannot be told another Keep Alive, so its own value is used.
        most if v5 && (connect.keep_alive == 0 || connect.keep_alive > most) => most,
        _ => connect.keep_alive,
    };
    let aliases = properties.topic_alias_maximum().unwrap_or(0);
    let aliases = aliases.min(limits.max_outbound_topic_aliases);
    Ok(Wanted {
        expiry: expiry.min(limits.max_session_expiry),
        keep_alive,
        receive_maximum: properties.receive_maximum().unwrap_or(u16::MAX),
        max_packet_size: properties.maximum_packet_size().unwrap_or(MAX_PACKET_LEN as u32),
        aliases: (aliases > 0).then(|| Box::new(OutboundAliases::new(aliases))),
        will: will(connect, limits)?,
        persist: asks_to_persist(*properties),
    })
}

/// Limits of the send window of a client with this Receive Maximum: QoS 1 and 2 messages in flight to it.
pub(super) fn window(receive_maximum: u16, limits: &Limits) -> WindowLimits {
    WindowLimits {
        messages: receive_maximum.min(limits.max_inflight),
        kept_bytes: limits.max_queued_bytes.max(1),
    }
}

fn will(connect: &Connect<'_>, limits: &Limits) -> Result<Option<Box<Will>>, Refusal> {
    let Some(will) = &connect.will else { return Ok(None) };
    if will.qos as u8 > limits.max_qos {
        return Err(Refusal::new(ReasonCode::QoSNotSupported, "the will is above the Maximum QoS"));
    }
    if will.retain && !limits.retain_available {
        return Err(Refusal::new(ReasonCode::RetainNotSupported, "the will cannot be retained"));
    }
    let mut kept = PropertiesBuf::default();
    for property in will.properties.raw() {
        if !matches!(property.id, PropertyId::WillDelayInterval | PropertyId::MessageExpiryInterval)
        {
            kept.push_raw(property);
        }
    }
    let publication = Publication {
        topic: will.topic,
        payload: will.payload,
        properties: kept.as_properties().as_bytes(),
        qos: will.qos,
        retain: will.retain,
        expires_at: None,
    };
    Ok(Some(Box::new(Will {
        message: Arc::new(Message::new(&publication)),
        expiry: will.properties.message_expiry_interval(),
        delay: will.properties.will_delay_interval().unwrap_or(0),
    })))
}

/// Assigns a client identifier if the CONNECT has none. Returns `None` if it has one.
///
/// # Errors
/// The client needs an identifier of its own: MQTT 3.1, or MQTT 3.1.1 without Clean Session.
pub fn assigned_client_id(
    connect: &Connect<'_>,
    random: Random,
) -> Result<Option<String>, Refusal> {
    if !connect.client_id.is_empty() {
        return Ok(None);
    }
    match connect.version {
        Version::V3_1 => Err(Refusal::new(
            ReasonCode::ClientIdentifierNotValid,
            "the client identifier is missing",
        )),
        // MQTT-3.1.3-8 of 3.1.1
        Version::V3_1_1 if !connect.clean_start => Err(Refusal::new(
            ReasonCode::ClientIdentifierNotValid,
            "a session with Clean Session 0 needs a client identifier",
        )),
        _ => Ok(Some(format!("auto-{}", random.uuid().simple()))),
    }
}

pub(super) fn connack_properties(
    connect: &Connect<'_>,
    limits: &Limits,
    durability: &Durability,
    wanted: &Wanted,
    assigned: Option<&str>,
    enhanced: Option<Enhanced<'_>>,
) -> PropertiesBuf {
    let mut properties = PropertiesBuf::default();
    if connect.version != Version::V5 {
        return properties;
    }
    let asks = connect.properties.user_properties().any(|(name, _)| name == DURABILITY);
    let told = if asks { DURABILITY_TOLD_MAX } else { 0 };
    let classes: Vec<_> = durability.describe().take(told).collect();
    let mut put = |property| properties.push(property).expect("the broker's own values are valid");
    if connect.properties.session_expiry_interval().unwrap_or(0) != wanted.expiry {
        put(Property::SessionExpiryInterval(wanted.expiry));
    }
    if limits.receive_maximum != u16::MAX {
        put(Property::ReceiveMaximum(limits.receive_maximum));
    }
    match limits.max_qos {
        0 => put(Property::MaximumQoS(QoS::AtMostOnce)),
        1 => put(Property::MaximumQoS(QoS::AtLeastOnce)),
        _ => {}
    }
    if !limits.retain_available {
        put(Property::RetainAvailable(false));
    }
    put(Property::MaximumPacketSize(u32::try_from(limits.max_packet_size).unwrap_or(u32::MAX)));
    if let Some(Enhanced { method, data }) = enhanced {
        put(Property::AuthenticationMethod(method));
        if let Some(data) = data {
            put(Property::AuthenticationData(data));
        }
    }
    if let Some(client_id) = assigned {
        put(Property::AssignedClientIdentifier(client_id));
    }
    if limits.topic_alias_maximum > 0 {
        put(Property::TopicAliasMaximum(limits.topic_alias_maximum));
    }
    if wanted.keep_alive != connect.keep_alive {
        put(Property::ServerKeepAlive(wanted.keep_alive));
    }
    if !limits.wildcard_subscriptions {
        put(Property::WildcardSubscriptionAvailable(false));
    }
    if !limits.shared_subscriptions {
        put(Property::SharedSubscriptionAvailable(false));
    }
    for class in &classes {
        put(Property::UserProperty(DURABILITY, class));
    }
    let client_id = assigned.unwrap_or(connect.client_id);
    if connect.properties.request_response_information() == Some(true)
        && !client_id.contains(['+', '#'])
    {
        let topic = format!("response/{client_id}");
        if topic.len() <= usize::from(u16::MAX) {
            put(Property::ResponseInformation(&topic));
        }
    }
    properties
}
