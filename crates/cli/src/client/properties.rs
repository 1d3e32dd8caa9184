//! `-D COMMAND NAME VALUE`: properties of MQTT 5 from the command line.

use anyhow::{Context as _, anyhow, bail};
use mqtt_proto::{PropertiesBuf, Property, PropertyId, PropertySet};

/// Properties given on the command line, by the packet they belong to.
#[derive(Clone, Debug, Default)]
pub struct UserProperties {
    pub connect: PropertiesBuf,
    pub will: PropertiesBuf,
    pub publish: PropertiesBuf,
    pub subscribe: PropertiesBuf,
    pub unsubscribe: PropertiesBuf,
    pub disconnect: PropertiesBuf,
}

impl UserProperties {
    /// Reads the words after all `-D` flags: command, name, value, and a second value for a user
    /// property.
    pub fn parse(words: &[String]) -> anyhow::Result<Self> {
        let mut all = Self::default();
        let mut words = words.iter().map(String::as_str);
        while let Some(command) = words.next() {
            let name = words.next().context("-D takes COMMAND NAME VALUE")?;
            let value = words.next().context("-D takes COMMAND NAME VALUE")?;
            let id = id_of(name)?;
            let property = if id == PropertyId::UserProperty {
                let second = words.next().context("-D … user-property takes NAME and VALUE")?;
                Property::UserProperty(value, second)
            } else {
                property(id, value).with_context(|| format!("-D {command} {name} {value}"))?
            };
            let (buf, allowed) = all.of(command)?;
            if !allowed.contains(id) {
                bail!("-D: {command} has no property {name}");
            }
            if id != PropertyId::UserProperty
                && buf.as_properties().iter().any(|other| other.id() == id)
            {
                bail!("-D: {name} is given twice for {command}");
            }
            buf.push(property).with_context(|| format!("-D {command} {name} {value}"))?;
        }
        Ok(all)
    }

    fn of(&mut self, command: &str) -> anyhow::Result<(&mut PropertiesBuf, PropertySet)> {
        Ok(match command.to_ascii_lowercase().as_str() {
            "connect" => (&mut self.connect, PropertySet::CONNECT),
            "will" => (&mut self.will, PropertySet::WILL),
            "publish" => (&mut self.publish, PropertySet::PUBLISH),
            "subscribe" => (&mut self.subscribe, PropertySet::SUBSCRIBE),
            "unsubscribe" => (&mut self.unsubscribe, PropertySet::UNSUBSCRIBE),
            "disconnect" => (&mut self.disconnect, PropertySet::DISCONNECT),
            other => bail!(
                "-D: `{other}` is not one of connect, will, publish, subscribe, unsubscribe, disconnect"
            ),
        })
    }
}

/// Returns the name of a property on the command line: `message-expiry-interval` for the Message
/// Expiry Interval.
pub fn name_of(id: PropertyId) -> String {
    id.name().to_lowercase().replace(' ', "-")
}

fn id_of(name: &str) -> anyhow::Result<PropertyId> {
    (0..=u8::MAX)
        .filter_map(PropertyId::from_u8)
        .find(|id| name_of(*id) == name.to_ascii_lowercase())
        .ok_or_else(|| anyhow!("-D: there is no property `{name}`"))
}

fn property(id: PropertyId, value: &str) -> anyhow::Result<Property<'_>> {
    use PropertyId as Id;
    let flag = || match value {
        "0" | "false" => Ok(false),
        "1" | "true" => Ok(true),
        _ => Err(anyhow!("the value must be 0 or 1")),
    };
    let small = || value.parse::<u16>().context("the value must be a number from 0 to 65535");
    let large = || value.parse::<u32>().context("the value must be a number from 0 to 4294967295");
    Ok(match id {
        Id::PayloadFormatIndicator => Property::PayloadFormatIndicator(flag()?),
        Id::RequestProblemInformation => Property::RequestProblemInformation(flag()?),
        Id::RequestResponseInformation => Property::RequestResponseInformation(flag()?),
        Id::MessageExpiryInterval => Property::MessageExpiryInterval(large()?),
        Id::SessionExpiryInterval => Property::SessionExpiryInterval(large()?),
        Id::WillDelayInterval => Property::WillDelayInterval(large()?),
        Id::MaximumPacketSize => Property::MaximumPacketSize(large()?),
        Id::SubscriptionIdentifier => Property::SubscriptionIdentifier(large()?),
        Id::ReceiveMaximum => Property::ReceiveMaximum(small()?),
        Id::TopicAliasMaximum => Property::TopicAliasMaximum(small()?),
        Id::TopicAlias => Property::TopicAlias(small()?),
        Id::ContentType => Property::ContentType(value),
        Id::ResponseTopic => Property::ResponseTopic(value),
        Id::AuthenticationMethod => Property::AuthenticationMethod(value),
        Id::ReasonString => Property::ReasonString(value),
        Id::CorrelationData => Property::CorrelationData(value.as_bytes()),
        Id::AuthenticationData => Property::AuthenticationData(value.as_bytes()),
        _ => bail!("only a broker sends this property"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> anyhow::Result<UserProperties> {
        let words: Vec<_> = line.split(' ').map(String::from).collect();
        UserProperties::parse(&words)
    }

    #[test]
    fn properties_go_to_their_packets_in_order() {
        let all = parse(
            "publish user-property b 2 publish content-type text/plain \
             publish user-property a 1 connect receive-maximum 5",
        )
        .unwrap();
        let publish: Vec<_> = all.publish.as_properties().iter().collect();
        assert_eq!(
            publish,
            [
                Property::UserProperty("b", "2"),
                Property::ContentType("text/plain"),
                Property::UserProperty("a", "1"),
            ]
        );
        assert_eq!(all.connect.as_properties().receive_maximum(), Some(5));
    }

    #[test]
    fn mistakes() {
        for (line, expected) in [
            ("publish topic-alias", "-D takes COMMAND NAME VALUE"),
            ("publish user-property a", "-D … user-property takes NAME and VALUE"),
            ("publish colour red", "-D: there is no property `colour`"),
            ("pub content-type x", "-D: `pub` is not one of connect, will"),
            ("connect content-type x", "-D: connect has no property content-type"),
            ("publish topic-alias 70000", "the value must be a number from 0 to 65535"),
            ("publish payload-format-indicator 2", "the value must be 0 or 1"),
            ("connect receive-maximum 0", "Receive Maximum has a forbidden value"),
            ("will content-type a will content-type b", "-D: content-type is given twice for will"),
        ] {
            let error = format!("{:#}", parse(line).unwrap_err());
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
