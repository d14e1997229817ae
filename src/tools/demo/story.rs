//! A few lines about the game while the demo runs, for people who watch.

use crate::hunt::change::Change;
use crate::kit::update::Update;
use std::time::{Duration, Instant};

/// Minimum time between two lines, so that they can be read.
const LINE_EVERY: Duration = Duration::from_millis(350);

/// Chooses the lines.
#[derive(Default)]
pub(super) struct Story {
    last_line_at: Option<Instant>,
}

impl Story {
    /// Returns a line about one of a zone's updates, if it is time for one and one is interesting.
    pub(super) fn line(&mut self, zone: u16, updates: &[Update], now: Instant) -> Option<String> {
        if self.last_line_at.is_some_and(|last| now.saturating_duration_since(last) < LINE_EVERY) {
            return None;
        }
        // Treasures are opened all the time; rarer changes take precedence.
        let rarest = updates.iter().filter_map(sentence).max_by_key(|(rarity, _)| *rarity);
        let (_, sentence) = rarest?;
        self.last_line_at = Some(now);
        Some(format!("zone {zone}: {sentence}"))
    }
}

/// Describes an update in words, with its rarity.
fn sentence(update: &Update) -> Option<(u8, String)> {
    let player = update.player_id();
    match update.change() {
        Change::HuntStarted { treasures, hunt, .. } => {
            Some((4, format!("hunt {hunt} begins, {treasures} treasures")))
        }
        Change::Finished { rank, found, hunt, .. } => {
            Some((3, format!("player {player} is number {rank} of hunt {hunt}, {found} found")))
        }
        Change::Downed { by, .. } => Some((2, format!("player {by} takes player {player} down"))),
        Change::Looted { points, .. } => {
            Some((1, format!("player {player} opens a treasure, {points} points")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rarest_update_is_printed_and_then_nothing_for_a_while() {
        let looted =
            Change::Looted { doubled: false, treasure: 1, hunt: 2, points: 50, elapsed_ms: 9 };
        let downed = Change::Downed { weapon: 0, respawn_ms: 5_000, by: 8 };
        let updates = [Update::new(7, 0, looted), Update::new(9, 0, downed)];
        let (mut story, start) = (Story::default(), Instant::now());
        let first = story.line(3, &updates, start);
        assert_eq!(first.as_deref(), Some("zone 3: player 8 takes player 9 down"));
        assert_eq!(story.line(3, &updates, start + LINE_EVERY / 2), None);
        let second = story.line(3, &updates[..1], start + LINE_EVERY);
        assert_eq!(second.as_deref(), Some("zone 3: player 7 opens a treasure, 50 points"));
        assert_eq!(Story::default().line(3, &[], start), None);
    }
}
