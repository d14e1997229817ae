//! Broker quotas (KIP-219): a broker that throttles a client answers at once with a throttle time,
//! during which it reads no further request of the connection.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Upper limit, in milliseconds, of the pause between requests that a throttle causes. A wrong
/// value must not stop a shard for days.
const QUIET_MS_MAX: u32 = 10_000;

/// Upper limit of a throttle time, in milliseconds: ten times the span of a broker's quota samples,
/// 11 s by default. For that time an answer is not overdue. A wrong value must not hide an
/// unresponsive broker for days.
const MUTED_MS_MAX: u32 = 110_000;

/// The throttle of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Throttle {
    quiet_until: Instant,
    muted_until: Instant,
}

impl Throttle {
    /// No throttle so far.
    pub(crate) fn none(now: Instant) -> Throttle {
        Throttle::asked(0, now)
    }

    /// Applies the throttle time of an answer. 0 means that the broker reads, whatever it asked for
    /// before.
    pub(crate) fn asked(throttle_ms: u32, now: Instant) -> Throttle {
        let after = |ms_max| now + Duration::from_millis(throttle_ms.min(ms_max).into());
        Throttle { quiet_until: after(QUIET_MS_MAX), muted_until: after(MUTED_MS_MAX) }
    }

    /// Milliseconds for which the broker reads nothing, up to the limit.
    pub(crate) fn muted_ms(throttle_ms: u32) -> u64 {
        throttle_ms.min(MUTED_MS_MAX).into()
    }

    /// The sentence for the log; `quota` is one that may be the cause.
    pub(crate) fn sentence(address: SocketAddr, throttle_ms: u32, quota: &str) -> String {
        format!(
            "broker {address} throttles this client for {throttle_ms} ms: raise this client's \
             quotas, such as {quota}"
        )
    }

    /// When the next request may be sent.
    pub(crate) fn quiet_until(self) -> Instant {
        self.quiet_until
    }

    /// When the broker will read a request sent at this time.
    pub(crate) fn reads_at(self, sent_at: Instant) -> Instant {
        sent_at.max(self.muted_until)
    }
}

#[cfg(test)]
mod tests {
    use super::Throttle;
    use std::time::{Duration, Instant};

    #[test]
    fn a_throttled_request_is_read_when_the_broker_reads_again() {
        let now = Instant::now();
        let second = |number| now + Duration::from_secs(number);
        assert_eq!(Throttle::none(now).reads_at(second(1)), second(1));
        let throttle = Throttle::asked(40_000, now);
        assert_eq!(throttle.quiet_until(), second(10));
        assert_eq!(throttle.reads_at(second(10)), second(40));
        assert_eq!(throttle.reads_at(second(41)), second(41));
    }

    #[test]
    fn a_throttle_of_days_holds_up_a_connection_for_minutes_at_most() {
        let now = Instant::now();
        let throttle = Throttle::asked(u32::MAX, now);
        assert_eq!(throttle.quiet_until(), now + Duration::from_secs(10));
        assert_eq!(throttle.reads_at(now), now + Duration::from_secs(110));
    }
}
