//! The winners: the players with the highest scores, and their zones.

use crate::kit::kinds::{PayloadPart, UpdateKind, UpdateRole};
use crate::kit::update::Update;
use crate::kit::update_json::UpdateTable;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::Write;

/// Number of players in the table.
const SHOWN: usize = 5;

/// The latest score of every present player with a score, by zone.
pub(super) struct Winners {
    updates: &'static UpdateTable,
    players: BTreeMap<(u16, u64), LatestScore>,
}

/// A score, and the time of the update that published it.
#[derive(Clone, Copy)]
struct LatestScore {
    score: u64,
    ts_us: i64,
}

impl Winners {
    /// Creates the table of a game whose updates these are.
    pub(super) fn new(updates: &'static UpdateTable) -> Winners {
        Winners { updates, players: BTreeMap::new() }
    }

    /// Processes the updates of a zone in order. A player who leaves it loses the points or takes
    /// them along.
    pub(super) fn add(&mut self, zone: u16, updates: &[Update]) {
        for update in updates {
            let player = (zone, update.player_id());
            let kind = &self.updates.kinds[usize::from(update.payload().kind) - 1];
            if kind.role == UpdateRole::Leave {
                self.players.remove(&player);
            } else if let Some(place) = score_in(kind) {
                let latest =
                    LatestScore { score: update.payload().get(place), ts_us: update.ts_us() };
                self.players.insert(player, latest);
            }
        }
    }

    /// Prints the best. Among equal scores, the earlier one comes first.
    pub(super) fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        let mut best: Vec<_> = self.players.iter().collect();
        best.sort_by_key(|((_, player), latest)| (Reverse(latest.score), latest.ts_us, *player));
        for (rank, ((zone, player), latest)) in (1..).zip(best.iter().take(SHOWN)) {
            let score = latest.score;
            writeln!(out, "{rank}. player {player}   {score:>8} points in zone {zone}")?;
        }
        Ok(())
    }
}

/// Returns where updates of this kind have the player's score, if they have it.
fn score_in(kind: &UpdateKind) -> Option<PayloadPart> {
    let is_of_player = [UpdateRole::Enter, UpdateRole::Player].contains(&kind.role);
    let score = kind.fields.iter().find(|field| field.name == "score");
    score.filter(|_| is_of_player).map(|field| field.place)
}

#[cfg(test)]
mod tests {
    use super::Winners;
    use crate::hunt::change::{Change, UPDATES};
    use crate::hunt::refusal::ScoreCause;
    use crate::kit::update::Update;

    #[test]
    fn the_latest_score_counts_and_ties_go_to_the_earlier() {
        let scored = |player, ts_us, score| {
            Update::new(player, ts_us, Change::Scored { cause: ScoreCause::Loot, points: 1, score })
        };
        let mut winners = Winners::new(UPDATES);
        winners.add(0, &[scored(7, 1_000_000, 100), scored(8, 1_500_000, 350)]);
        winners.add(0, &[scored(7, 2_000_000, 350), scored(9, 2_500_000, 20)]);
        // A player who is in another zone by now has no points in this one.
        winners.add(1, &[scored(10, 1_000_000, 900)]);
        winners.add(1, &[Update::new(10, 3_000_000, Change::Left { to_zone: Some(2), seq: 4 })]);
        let mut text = Vec::new();
        winners.write(&mut text).expect("memory takes what is written");
        let text = String::from_utf8(text).expect("the table is text");
        let players: Vec<&str> =
            text.lines().map(|line| line.split_whitespace().nth(2).unwrap_or_default()).collect();
        assert_eq!(players, ["8", "7", "9"]);
        assert!(text.contains("350 points in zone 0"), "{text}");
    }
}
