/// The Topic Aliases that we have defined on this connection (section 3.3.2.3.4).
///
/// Defining an alias costs the receiver memory, and costs the sender one PUBLISH with the topic
/// plus three bytes. So a topic gets an alias only when it is seen a second time within a while.
/// When all aliases are in use, the one that was used least recently gets the new topic. Nothing is
/// allocated before the first topic, and at most [`OutboundAliases::MAX_ALIASES`] topics of
/// [`OutboundAliases::MAX_TOPIC_LEN`] bytes are kept.
#[derive(Debug)]
pub struct OutboundAliases {
    max: u16,
    /// Alias n is at index n - 1.
    slots: Vec<Slot>,
    /// Fingerprints of topics seen once, each at an index that the fingerprint determines: a newer
    /// topic displaces an older one with the same index.
    seen_once: Vec<u32>,
    /// The slot that was used last, which is tried first: many subscribers get only one topic.
    latest: usize,
    /// Number of alias uses so far, which serves as the time in [`Slot::used_at`].
    clock: u64,
}

#[derive(Debug)]
struct Slot {
    fingerprint: u32,
    used_at: u64,
    topic: Box<str>,
}

/// The way in which the topic of a PUBLISH is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AliasUse {
    /// Write the topic alone.
    None,
    /// Write the topic and this alias, which stands for the topic from now on.
    Define(u16),
    /// Write this alias alone, with an empty topic.
    Use(u16),
}

impl OutboundAliases {
    /// Maximum number of aliases, even if the peer allows more: searching them must stay cheaper
    /// than the bytes that they save.
    pub const MAX_ALIASES: u16 = 64;
    /// Maximum length of a topic that gets an alias, in bytes.
    pub const MAX_TOPIC_LEN: usize = 1024;
    /// Minimum length of a topic that gets an alias, in bytes. The alias itself takes three bytes.
    pub const MIN_TOPIC_LEN: usize = 4;

    /// Number of slots for fingerprints; a power of two.
    const SEEN_ONCE: usize = 64;

    /// Creates the table for a connection on which the peer announced a Topic Alias Maximum of
    /// `max`.
    pub fn new(max: u16) -> Self {
        OutboundAliases {
            max: max.min(Self::MAX_ALIASES),
            slots: Vec::new(),
            seen_once: Vec::new(),
            latest: 0,
            clock: 0,
        }
    }

    /// Returns how to write `topic` in the next PUBLISH on this connection. The caller must follow
    /// the answer: after [`AliasUse::Define`] the alias counts as known to the peer.
    #[inline]
    pub fn assign(&mut self, topic: &str) -> AliasUse {
        let worth_it = (Self::MIN_TOPIC_LEN..=Self::MAX_TOPIC_LEN).contains(&topic.len());
        if self.max == 0 || !worth_it {
            return AliasUse::None;
        }
        self.clock += 1;
        match self.slots.get_mut(self.latest) {
            Some(slot) if *slot.topic == *topic => {
                slot.used_at = self.clock;
                AliasUse::Use(alias_of(self.latest))
            }
            _ => self.search(topic),
        }
    }

    fn search(&mut self, topic: &str) -> AliasUse {
        let fingerprint = fingerprint(topic);
        let is_topic = |slot: &Slot| slot.fingerprint == fingerprint && *slot.topic == *topic;
        if let Some(found) = self.slots.iter().position(is_topic) {
            self.slots[found].used_at = self.clock;
            self.latest = found;
            return AliasUse::Use(alias_of(found));
        }
        if !self.seen_before(fingerprint) {
            return AliasUse::None;
        }
        let slot = Slot { fingerprint, used_at: self.clock, topic: topic.into() };
        self.latest = self.place(slot);
        AliasUse::Define(alias_of(self.latest))
    }

    /// Returns whether the fingerprint was noted already, and notes it.
    fn seen_before(&mut self, fingerprint: u32) -> bool {
        if self.seen_once.is_empty() {
            self.seen_once = vec![0; Self::SEEN_ONCE];
        }
        let place = &mut self.seen_once[fingerprint as usize % Self::SEEN_ONCE];
        std::mem::replace(place, fingerprint) == fingerprint
    }

    /// Stores `slot` at a free index, or replaces the least recently used one. Returns the index.
    fn place(&mut self, slot: Slot) -> usize {
        if self.slots.len() < usize::from(self.max) {
            self.slots.push(slot);
            return self.slots.len() - 1;
        }
        let oldest = (0..self.slots.len())
            .min_by_key(|&i| self.slots[i].used_at)
            .expect("max is not 0, so there is a slot");
        self.slots[oldest] = slot;
        oldest
    }
}

fn alias_of(slot: usize) -> u16 {
    u16::try_from(slot + 1).expect("there are at most MAX_ALIASES slots")
}

/// Returns a hash of `topic`, never 0. A collision costs only a comparison or an alias that is
/// defined too early, so the hash need not resist an attacker.
fn fingerprint(topic: &str) -> u32 {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut hash = topic.len() as u64;
    for chunk in topic.as_bytes().chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = (hash.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(ODD);
    }
    // The last bytes have affected only the upper bits so far.
    hash = (hash ^ hash >> 32).wrapping_mul(ODD);
    (hash >> 32) as u32 | 1 << 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_gets_an_alias_the_second_time() {
        let mut aliases = OutboundAliases::new(10);
        assert_eq!(aliases.assign("topic/a"), AliasUse::None);
        assert_eq!(aliases.assign("topic/b"), AliasUse::None);
        assert_eq!(aliases.assign("topic/a"), AliasUse::Define(1));
        assert_eq!(aliases.assign("topic/a"), AliasUse::Use(1));
        assert_eq!(aliases.assign("topic/b"), AliasUse::Define(2));
        assert_eq!(aliases.assign("topic/a"), AliasUse::Use(1));
        assert_eq!(aliases.assign("topic/b"), AliasUse::Use(2));
    }

    #[test]
    fn the_least_recently_used_alias_is_given_away() {
        let mut aliases = OutboundAliases::new(2);
        for topic in ["topic/a", "topic/a", "topic/b", "topic/b", "topic/a", "topic/c"] {
            aliases.assign(topic);
        }
        assert_eq!(aliases.assign("topic/c"), AliasUse::Define(2));
        assert_eq!(aliases.assign("topic/a"), AliasUse::Use(1));
        assert_ne!(aliases.assign("topic/b"), AliasUse::Use(2));
    }

    #[test]
    fn none_where_the_peer_allows_none_or_it_does_not_pay() {
        let long = "a".repeat(OutboundAliases::MAX_TOPIC_LEN + 1);
        for (max, topic) in [(0, "topic/a"), (10, "abc"), (10, &*long)] {
            let mut aliases = OutboundAliases::new(max);
            for _ in 0..3 {
                assert_eq!(aliases.assign(topic), AliasUse::None);
            }
        }
    }

    /// The table of a peer that follows our answers always resolves to the intended topic.
    #[test]
    fn the_peer_understands() {
        let mut ours = OutboundAliases::new(u16::MAX);
        let mut theirs = crate::flow::InboundAliases::new(OutboundAliases::MAX_ALIASES);
        let mut used = 0;
        let mut state = 1_u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let random = (state >> 33) as u32;
            // A few topics are frequent, many are rare.
            let n = if random.is_multiple_of(4) { random >> 8 & 0x3FF } else { random >> 8 & 0xF };
            let topic = format!("site/{n}/temperature");
            let (alias, sent) = match ours.assign(&topic) {
                AliasUse::None => (None, &*topic),
                AliasUse::Define(alias) => (Some(alias), &*topic),
                AliasUse::Use(alias) => {
                    used += 1;
                    (Some(alias), "")
                }
            };
            assert_eq!(theirs.resolve(alias, sent), Ok(&*topic));
        }
        assert!(used > 10_000, "hot topics go by their alias: {used}");
    }
}
