//! A few lines about the game while the demo runs, for people who watch.

use crate::kit::update::Update;
use std::time::{Duration, Instant};

/// Minimum time between two lines, so that they can be read.
const LINE_EVERY: Duration = Duration::from_millis(350);

/// Chooses the lines.
pub(super) struct Story {
    /// Describes an update in words, with its rarity.
    describe: fn(&Update) -> Option<(u8, String)>,
    last_line_at: Option<Instant>,
}

impl Story {
    /// Creates the story of a game that describes its updates.
    pub(super) fn new(describe: fn(&Update) -> Option<(u8, String)>) -> Story {
        Story { describe, last_line_at: None }
    }

    /// Returns a line about one of a zone's updates, if it is time for one and one is interesting.
    pub(super) fn line(&mut self, zone: u16, updates: &[Update], now: Instant) -> Option<String> {
        if self.last_line_at.is_some_and(|last| now.saturating_duration_since(last) < LINE_EVERY) {
            return None;
        }
        let rarest = updates.iter().filter_map(self.describe).max_by_key(|(rarity, _)| *rarity);
        let (_, sentence) = rarest?;
        self.last_line_at = Some(now);
        Some(format!("zone {zone}: {sentence}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edition::edition;
    use crate::hunt::change::Change;
    use crate::hunt::state::TreasureHunt;

    fn of_the_hunt() -> Story {
        Story::new(edition::<TreasureHunt>().describe)
    }

    #[test]
    fn the_rarest_update_is_printed_and_then_nothing_for_a_while() {
        let looted =
            Change::Looted { doubled: false, treasure: 1, hunt: 2, points: 50, elapsed_ms: 9 };
        let downed = Change::Downed { weapon: 0, respawn_ms: 5_000, by: 8 };
        let updates = [Update::new(7, 0, looted), Update::new(9, 0, downed)];
        let (mut story, start) = (of_the_hunt(), Instant::now());
        let first = story.line(3, &updates, start);
        assert_eq!(first.as_deref(), Some("zone 3: player 8 takes player 9 down"));
        assert_eq!(story.line(3, &updates, start + LINE_EVERY / 2), None);
        let second = story.line(3, &updates[..1], start + LINE_EVERY);
        assert_eq!(second.as_deref(), Some("zone 3: player 7 opens a treasure, 50 points"));
        assert_eq!(of_the_hunt().line(3, &[], start), None);
    }
}
