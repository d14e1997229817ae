//! The group has given our instance id to another member: is that a mistake of the group's or of
//! the operator's?
//!
//! A coordinator that was killed may come back without its newest members, and fence those that it
//! has forgotten. Two instances that share an id fence one another again and again, while no broker
//! is away.

use std::time::{Duration, Instant};

/// How often within [`INSTANCE_ID_TAKEN_S`] a member joins again under its instance id after the
/// group has given it to another one, while no broker was away: two instances that share an id do
/// so without end.
const INSTANCE_ID_TAKEN_MAX: u32 = 3;

/// Seconds after which such an event is forgotten.
const INSTANCE_ID_TAKEN_S: u64 = 300;

/// The times at which our instance id was given away.
#[derive(Debug, Default)]
pub(crate) struct InstanceIdLosses {
    /// Those that no broker's absence explains.
    unexplained: Vec<Instant>,
    was_broker_away: bool,
}

impl InstanceIdLosses {
    /// A broker does not answer: what it says once it is back may be a mistake.
    pub(crate) fn broker_is_away(&mut self) {
        self.was_broker_away = true;
    }

    /// Our id was given away: whether to join again. One absence explains it once.
    pub(crate) fn is_bearable(&mut self, now: Instant) -> bool {
        if std::mem::take(&mut self.was_broker_away) {
            return true;
        }
        let window = Duration::from_secs(INSTANCE_ID_TAKEN_S);
        self.unexplained.retain(|at| now.saturating_duration_since(*at) < window);
        self.unexplained.push(now);
        self.unexplained.len() <= INSTANCE_ID_TAKEN_MAX as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_that_shares_its_id_gives_up_and_one_whose_broker_was_away_does_not() {
        let now = Instant::now();
        let mut losses = InstanceIdLosses::default();
        for _ in 0..100 {
            losses.broker_is_away();
            assert!(losses.is_bearable(now));
        }
        for _ in 0..INSTANCE_ID_TAKEN_MAX {
            assert!(losses.is_bearable(now));
        }
        assert!(!losses.is_bearable(now));
        losses.broker_is_away();
        assert!(losses.is_bearable(now));
        assert!(!losses.is_bearable(now), "an absence explains one loss");
        assert!(
            losses.is_bearable(now + Duration::from_secs(INSTANCE_ID_TAKEN_S)),
            "the others are long ago"
        );
    }
}
