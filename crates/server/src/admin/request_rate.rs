//! How many requests each requester may send in a second: each token, and each address whose requests show no valid one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Maximum number of requesters that are remembered. If there are more, those that have sent nothing lately are forgotten.
const REQUESTERS_MAX: usize = 4_096;

/// Time in which a requester may send at once what it did not send before.
const BURST: Duration = Duration::from_secs(2);

/// Requests without a valid token that an address may send in a second, beyond which nobody guesses.
const REFUSED_RATE: u32 = 10;

/// Whose requests are counted together.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Requester {
    /// Those with the token of this id.
    Token(Box<str>),
    /// Those without a valid token from this address.
    Refused(IpAddr),
}

/// The requests of all requesters.
#[derive(Debug, Default)]
pub struct RequestRate(Mutex<HashMap<Requester, Instant>>);

impl RequestRate {
    /// Counts a request, of which `rate` are allowed in a second.
    ///
    /// # Errors
    /// There were too many. The next one is allowed after the returned time.
    pub fn count(&self, requester: Requester, rate: u32, now: Instant) -> Result<(), Duration> {
        let rate = match requester {
            Requester::Token(_) => rate,
            Requester::Refused(_) => rate.min(REFUSED_RATE),
        };
        if rate == 0 {
            return Ok(());
        }
        let price = Duration::from_secs(1) / rate;
        let mut paid_until = self.0.lock();
        if paid_until.len() >= REQUESTERS_MAX {
            paid_until.retain(|_, until| *until > now);
        }
        // With so many that are in debt, a new one pays for its first request as if it had sent others.
        let known = paid_until.get(&requester).copied();
        let from = known.unwrap_or(now).max(now);
        if from - now + price > BURST.max(price) {
            return Err(from + price - now - BURST);
        }
        if known.is_some() || paid_until.len() < REQUESTERS_MAX {
            paid_until.insert(requester, from + price);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(id: &str) -> Requester {
        Requester::Token(id.into())
    }

    #[test]
    fn each_requester_has_its_own_burst_and_rate() {
        let (rates, start) = (RequestRate::default(), Instant::now());
        let allowed =
            |who: &str, at| (0..1_000).filter(|_| rates.count(token(who), 100, at).is_ok()).count();
        assert_eq!((allowed("a", start), allowed("b", start)), (200, 200));
        let wait = rates.count(token("a"), 100, start).expect_err("it has used its burst");
        assert_eq!(wait, Duration::from_millis(10));
        assert_eq!(allowed("a", start + Duration::from_millis(505)), 50);
        assert_eq!(allowed("a", start + Duration::from_secs(60)), 200);
    }

    #[test]
    fn guessing_is_slow() {
        let (rates, start) = (RequestRate::default(), Instant::now());
        let address = Requester::Refused([10, 0, 0, 7].into());
        let guesses = (0..1_000).filter(|_| rates.count(address.clone(), 5_000, start).is_ok());
        assert_eq!(guesses.count(), 20);
    }

    #[test]
    fn a_rate_of_zero_sets_no_limit_and_a_rate_of_one_admits_two() {
        let (rates, start) = (RequestRate::default(), Instant::now());
        assert!((0..1_000).all(|_| rates.count(token("a"), 0, start).is_ok()));
        assert_eq!((0..9).filter(|_| rates.count(token("b"), 1, start).is_ok()).count(), 2);
    }

    #[test]
    fn memory_is_bounded() {
        let (rates, start) = (RequestRate::default(), Instant::now());
        for number in 0..10_000u32 {
            let _ = rates.count(Requester::Refused(number.to_be_bytes().into()), 100, start);
        }
        assert!(rates.0.lock().len() <= REQUESTERS_MAX);
    }
}
