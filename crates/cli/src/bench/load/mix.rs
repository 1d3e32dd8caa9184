//! Choice of the next request.

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub verb: Verb,
    /// Number of the key.
    pub key: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Set,
    Get,
}

/// Sequence of requests. First every key is set, one after the other. Then keys are chosen at random, and
/// verbs so that after each request the ratio is as near as possible to the requested one.
pub struct Mix {
    keys: u32,
    sets_percent: u32,
    /// Number of keys that have been set.
    set: u32,
    /// Shortfall of SETs against their share so far, in hundredths of a request.
    owed: u32,
    random: u64,
}

impl Mix {
    pub fn new(keys: u32, sets_percent: u32) -> Self {
        Self { keys, sets_percent, set: 0, owed: 0, random: 0x9E37_79B9_7F4A_7C15 }
    }

    /// Returns the SET of the next key that has not been set; `None` once all have.
    pub fn fill(&mut self) -> Option<Request> {
        let key = self.set;
        (key < self.keys).then(|| {
            self.set += 1;
            Request { verb: Verb::Set, key }
        })
    }

    /// Returns the next request of the measurement.
    pub fn next(&mut self) -> Request {
        self.owed += self.sets_percent;
        let verb = if self.owed >= 100 {
            self.owed -= 100;
            Verb::Set
        } else {
            Verb::Get
        };
        let key = (u64::from(self.random()) * u64::from(self.keys)) >> 32;
        Request { verb, key: key as u32 }
    }

    /// Returns a random number by Marsaglia's xorshift64*: the same sequence in each run.
    fn random(&mut self) -> u32 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_set_once_before() {
        let mut mix = Mix::new(3, 50);
        let keys: Vec<_> = std::iter::from_fn(|| mix.fill()).map(|request| request.key).collect();
        assert_eq!(keys, [0, 1, 2]);
    }

    #[test]
    fn verbs_keep_to_their_ratio_all_the_time() {
        for percent in [0, 1, 33, 50, 99, 100] {
            let mut mix = Mix::new(10, percent);
            let mut sets = 0;
            for asked in 1..=1_000 {
                sets += u32::from(mix.next().verb == Verb::Set);
                assert_eq!(sets, asked * percent / 100, "{percent} % after {asked}");
            }
        }
    }

    #[test]
    fn all_keys_are_asked_for_alike() {
        let mut mix = Mix::new(10, 50);
        let mut counts = [0; 10];
        (0..10_000).for_each(|_| counts[mix.next().key as usize] += 1);
        assert!(counts.iter().all(|count| (900..1_100).contains(count)), "{counts:?}");
    }
}
