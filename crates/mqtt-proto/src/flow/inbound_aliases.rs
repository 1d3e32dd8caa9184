use crate::DecodeError;

/// The Topic Aliases that the peer has defined on this connection (section 3.3.2.3.4).
///
/// Nothing is allocated before the first alias. After that there is a slot for each alias up to the
/// highest one in use, and the topics take at most [`InboundAliases::MAX_TOPIC_BYTES`] in total.
#[derive(Debug)]
pub struct InboundAliases {
    max: u16,
    /// The topic of alias n is at index n - 1.
    topics: Vec<Option<Box<str>>>,
    topic_bytes: usize,
}

impl InboundAliases {
    /// Maximum total length of all topics that have an alias, in bytes: enough for two topics of
    /// maximum length, or for 2,048 topics of 64 bytes.
    pub const MAX_TOPIC_BYTES: usize = 128 * 1024;

    /// Creates the table for a connection on which we announced a Topic Alias Maximum of `max`.
    pub fn new(max: u16) -> Self {
        InboundAliases { max, topics: Vec::new(), topic_bytes: 0 }
    }

    /// Returns the topic of a PUBLISH with this `alias` and `topic`, which may be empty. If both
    /// are given, the alias stands for this topic from now on.
    ///
    /// # Errors
    /// The alias is zero or too high, has no topic, or the topics exceed the memory limit.
    #[inline]
    pub fn resolve<'t>(
        &'t mut self,
        alias: Option<u16>,
        topic: &'t str,
    ) -> Result<&'t str, DecodeError> {
        match alias {
            None if topic.is_empty() => Err(DecodeError::NoTopic),
            None => Ok(topic),
            Some(alias) if alias == 0 || alias > self.max => Err(DecodeError::TopicAlias),
            Some(alias) if topic.is_empty() => {
                let known = self.topics.get(usize::from(alias) - 1);
                known.and_then(Option::as_deref).ok_or(DecodeError::UnknownTopicAlias)
            }
            Some(alias) => {
                self.define(usize::from(alias) - 1, topic)?;
                Ok(topic)
            }
        }
    }

    fn define(&mut self, slot: usize, topic: &str) -> Result<(), DecodeError> {
        let before = self.topics.get(slot).and_then(Option::as_deref).unwrap_or_default();
        if before == topic {
            return Ok(());
        }
        let topic_bytes = self.topic_bytes - before.len() + topic.len();
        if topic_bytes > Self::MAX_TOPIC_BYTES {
            return Err(DecodeError::TopicAliasBytes);
        }
        if slot >= self.topics.len() {
            self.topics.resize_with(slot + 1, || None);
        }
        self.topics[slot] = Some(topic.into());
        self.topic_bytes = topic_bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_means_the_topic_it_was_last_given() {
        let mut aliases = InboundAliases::new(2);
        assert_eq!(aliases.resolve(None, "a"), Ok("a"));
        assert_eq!(aliases.resolve(Some(2), ""), Err(DecodeError::UnknownTopicAlias));
        assert_eq!(aliases.resolve(Some(2), "a"), Ok("a"));
        assert_eq!(aliases.resolve(Some(2), ""), Ok("a"));
        assert_eq!(aliases.resolve(Some(1), ""), Err(DecodeError::UnknownTopicAlias));
        assert_eq!(aliases.resolve(Some(2), "b"), Ok("b"));
        assert_eq!(aliases.resolve(Some(2), ""), Ok("b"));
    }

    #[test]
    fn mqtt_3_3_2_8_zero_and_too_high_are_invalid() {
        let mut aliases = InboundAliases::new(2);
        for alias in [0, 3, u16::MAX] {
            assert_eq!(aliases.resolve(Some(alias), "a"), Err(DecodeError::TopicAlias));
        }
        assert_eq!(InboundAliases::new(0).resolve(Some(1), "a"), Err(DecodeError::TopicAlias));
        assert_eq!(aliases.resolve(None, ""), Err(DecodeError::NoTopic));
    }

    #[test]
    fn the_topics_are_bounded_together() {
        let mut aliases = InboundAliases::new(3);
        let long = "a".repeat(65_535);
        assert!(aliases.resolve(Some(1), &long).is_ok());
        assert!(aliases.resolve(Some(2), &long).is_ok());
        assert_eq!(aliases.resolve(Some(3), &long), Err(DecodeError::TopicAliasBytes));
        assert!(aliases.resolve(Some(1), "s").is_ok());
        assert!(aliases.resolve(Some(3), &long).is_ok());
    }
}
