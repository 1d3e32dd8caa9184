/// The longest silence of a client that a server tolerates: one and a half times the Keep Alive
/// (MQTT-3.1.2-22). Times are milliseconds of a clock that never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// 0: no limit.
    tolerance_ms: u64,
    last_packet_ms: u64,
}

impl KeepAlive {
    /// Starts the timer at `now_ms` with a Keep Alive of `seconds`; 0 turns it off.
    pub fn new(seconds: u16, now_ms: u64) -> Self {
        KeepAlive { tolerance_ms: u64::from(seconds) * 1_500, last_packet_ms: now_ms }
    }

    /// Restarts the timer, because a packet of any kind has arrived from the client.
    #[inline]
    pub fn packet_received(&mut self, now_ms: u64) {
        self.last_packet_ms = now_ms;
    }

    /// The time at which the connection is to be closed unless a packet arrives; `None` if there is
    /// no limit.
    #[inline]
    pub fn deadline_ms(&self) -> Option<u64> {
        match self.tolerance_ms {
            0 => None,
            tolerance => Some(self.last_packet_ms.saturating_add(tolerance)),
        }
    }

    /// Returns whether the client has been silent for too long.
    #[inline]
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.deadline_ms().is_some_and(|deadline| now_ms >= deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mqtt_3_1_2_22_one_and_a_half_times() {
        let mut keep_alive = KeepAlive::new(10, 1_000);
        assert_eq!(keep_alive.deadline_ms(), Some(16_000));
        assert!(!keep_alive.is_expired(15_999));
        assert!(keep_alive.is_expired(16_000));
        keep_alive.packet_received(15_000);
        assert!(!keep_alive.is_expired(29_999));
        assert!(keep_alive.is_expired(30_000));
    }

    #[test]
    fn zero_turns_it_off() {
        let keep_alive = KeepAlive::new(0, 0);
        assert_eq!(keep_alive.deadline_ms(), None);
        assert!(!keep_alive.is_expired(u64::MAX));
    }
}
