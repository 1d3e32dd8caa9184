//! Expiry times of keys, and the timer for the next one.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::time::WallTime;

/// The keys that have an expiry time, and the timer that was requested last.
#[derive(Debug, Default)]
pub(super) struct Expiries {
    due: BTreeSet<(WallTime, Arc<[u8]>)>,
    /// The timer that was requested last, until it has fired. Later timers may still be pending; they are ignored.
    alarm: Option<WallTime>,
}

impl Expiries {
    pub fn insert(&mut self, at: WallTime, key: &Arc<[u8]>) {
        self.due.insert((at, Arc::clone(key)));
    }

    pub fn remove(&mut self, at: WallTime, key: &Arc<[u8]>) {
        self.due.remove(&(at, Arc::clone(key)));
    }

    /// Time at which the next key expires.
    pub fn next(&self) -> Option<WallTime> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The next key that has expired by `now`.
    pub fn next_due(&self, now: WallTime) -> Option<&Arc<[u8]>> {
        self.due.first().filter(|(at, _)| *at <= now).map(|(_, key)| key)
    }

    /// The timer that was requested last, until it has fired.
    pub fn alarm(&self) -> Option<WallTime> {
        self.alarm
    }

    /// Notes that a timer has fired. It may have fired early, as when the wall clock was set back; then another timer
    /// is requested for the same key.
    pub fn fire(&mut self) {
        self.alarm = None;
    }

    /// Returns the time at which a timer has to fire, if that is earlier than the timer that was requested last.
    pub fn take_alarm(&mut self) -> Option<WallTime> {
        let (next, _) = self.due.first()?;
        if self.alarm.is_some_and(|alarm| alarm <= *next) {
            return None;
        }
        self.alarm = Some(*next);
        self.alarm
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> WallTime {
        WallTime::from_millis(millis)
    }

    #[test]
    fn a_timer_is_asked_for_when_a_key_goes_earlier() {
        let (mut expiries, key) = (Expiries::default(), Arc::from(&b"k"[..]));
        assert_eq!(expiries.take_alarm(), None);
        expiries.insert(at(20), &key);
        assert_eq!(expiries.take_alarm(), Some(at(20)));
        expiries.insert(at(30), &key);
        assert_eq!(expiries.take_alarm(), None);
        expiries.insert(at(10), &key);
        assert_eq!(expiries.take_alarm(), Some(at(10)));
        assert_eq!(expiries.next_due(at(9)), None);
        assert_eq!(expiries.next_due(at(10)), Some(&key));
    }

    /// Fires the timers in their order; only the one that was requested last has an effect. The first one fires `early`
    /// milliseconds early, each further one a millisecond less. Returns how many keys were removed, and how many timers
    /// were requested.
    fn run(expiries: &mut Expiries, mut timers: Vec<WallTime>, early: u64) -> (usize, usize) {
        let (mut gone, mut asked, mut early) = (0, timers.len(), early);
        while let Some(next) = timers.iter().min().copied() {
            timers.remove(timers.iter().position(|at| *at == next).unwrap());
            if expiries.alarm() != Some(next) {
                continue;
            }
            expiries.fire();
            let now = at(next.as_millis() - early);
            early = early.saturating_sub(1);
            while let Some(key) = expiries.next_due(now).cloned() {
                let due = expiries.next().unwrap();
                expiries.remove(due, &key);
                gone += 1;
            }
            if let Some(next) = expiries.take_alarm() {
                timers.push(next);
                asked += 1;
            }
        }
        (gone, asked)
    }

    #[test]
    fn timers_do_not_multiply() {
        let (mut expiries, key) = (Expiries::default(), Arc::from(&b"k"[..]));
        let mut timers = Vec::new();
        for due in [50, 40, 30, 20, 10, 60] {
            expiries.insert(at(due), &key);
            timers.extend(expiries.take_alarm());
        }
        assert_eq!(timers.len(), 5);
        // Five timers were requested for the keys, and one after each that fired except the last.
        assert_eq!(run(&mut expiries, timers, 0), (6, 10));
    }

    #[test]
    fn a_timer_that_comes_early_is_asked_for_again() {
        let (mut expiries, key) = (Expiries::default(), Arc::from(&b"k"[..]));
        expiries.insert(at(10), &key);
        let timers: Vec<_> = expiries.take_alarm().into_iter().collect();
        assert_eq!(run(&mut expiries, timers, 3), (1, 4));
        // The same holds with two timers for one time.
        expiries.insert(at(10), &key);
        let timer = expiries.take_alarm().unwrap();
        assert_eq!(run(&mut expiries, vec![timer, timer], 3), (1, 5));
    }

    #[test]
    fn a_timer_is_asked_for_again_when_it_has_fired_for_nothing() {
        let (mut expiries, key) = (Expiries::default(), Arc::from(&b"k"[..]));
        expiries.insert(at(10), &key);
        assert_eq!(expiries.take_alarm(), Some(at(10)));
        expiries.remove(at(10), &key);
        expiries.insert(at(20), &key);
        assert_eq!(expiries.take_alarm(), None, "the first one comes before it");
        expiries.fire();
        assert_eq!(expiries.take_alarm(), Some(at(20)));
    }
}
