//! Hunts of a zone: those that run, with their treasures, and the last ones, with finishers.

use crate::hunt::hunts::{HUNTS_MAX, TREASURES_MAX};
use crate::hunt::outline::HuntOutline;
use crate::hunt::refusal::HuntEndCause;
use std::collections::VecDeque;

/// Hunts that are remembered after their end.
const PAST_HUNTS_MAX: usize = 16;

/// Finishers of a past hunt that are remembered, the first ones.
const FINISHERS_MAX: usize = 100;

/// A hunt that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunningHunt {
    /// The hunt.
    pub hunt: u32,
    /// Treasures that it began with; some may find no tile.
    pub treasures: u16,
    /// Number of treasures laid so far.
    pub laid: u16,
    /// Number of opened treasures.
    pub opened: u16,
    /// When it began, in milliseconds since the Unix epoch.
    pub started_at_ms: i64,
    /// When its window is over, in milliseconds since the Unix epoch.
    pub ends_at_ms: i64,
    /// Positions of the treasures by number, in cm.
    lying: Vec<Option<(i32, i32)>>,
}

/// A hunt that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PastHunt {
    /// The hunt.
    pub hunt: u32,
    /// The cause of its end.
    pub cause: HuntEndCause,
    /// Treasures that were opened.
    pub opened: u16,
    /// Number of finishers.
    pub finishers: u32,
    /// Time from its start to its end.
    pub elapsed_ms: u32,
    /// The first of them, by rank.
    pub first: Vec<Finished>,
}

/// A finisher of a hunt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Finished {
    /// 1 is first.
    pub rank: u32,
    /// The player.
    pub player_id: u64,
    /// Treasures that it opened.
    pub found: u16,
    /// Time from the hunt's start to its finish.
    pub elapsed_ms: u32,
}

/// The hunts of a zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HuntLog {
    running: Vec<RunningHunt>,
    past: VecDeque<PastHunt>,
}

impl RunningHunt {
    /// Returns the unopened treasures on the map: number and position, in cm.
    pub(crate) fn lying(&self) -> impl Iterator<Item = (u16, i32, i32)> + '_ {
        let numbered = (0..).zip(&self.lying);
        numbered.filter_map(|(number, place)| place.map(|(x, y)| (number, x, y)))
    }
}

impl HuntLog {
    /// Returns the hunts that run, by number.
    pub(crate) fn running(&self) -> &[RunningHunt] {
        &self.running
    }

    /// Returns the last hunts, the one that ended last first.
    pub(crate) fn past(&self) -> impl Iterator<Item = &PastHunt> {
        self.past.iter().rev()
    }

    /// Returns whether a hunt runs.
    pub(crate) fn is_running(&self, hunt: u32) -> bool {
        self.running.iter().any(|running| running.hunt == hunt)
    }

    fn find(&mut self, hunt: u32) -> Option<&mut RunningHunt> {
        self.running.iter_mut().find(|running| running.hunt == hunt)
    }

    pub(super) fn load(&mut self, outline: &HuntOutline) {
        self.start(outline.hunt, outline.treasures, outline.started_at_ms, outline.ends_at_ms);
        outline.lying.iter().for_each(|(number, x, y)| self.lay(outline.hunt, *number, (*x, *y)));
        if let Some(hunt) = self.find(outline.hunt) {
            (hunt.laid, hunt.opened) = (outline.laid, outline.opened);
        }
    }

    pub(super) fn start(&mut self, hunt: u32, treasures: u16, started_at_ms: i64, ends_at_ms: i64) {
        // A shard runs no more hunts than this. If a strange log has more, the oldest goes.
        if self.running.len() == HUNTS_MAX {
            self.running.remove(0);
        }
        let lying = vec![None; usize::from(treasures).min(TREASURES_MAX)];
        let (laid, opened) = (0, 0);
        let begun = RunningHunt { hunt, treasures, laid, opened, started_at_ms, ends_at_ms, lying };
        self.running.push(begun);
        self.running.sort_unstable_by_key(|running| running.hunt);
    }

    pub(super) fn lay(&mut self, hunt: u32, number: u16, place: (i32, i32)) {
        let Some(hunt) = self.find(hunt) else { return };
        if let Some(treasure) = hunt.lying.get_mut(usize::from(number)) {
            *treasure = Some(place);
            hunt.laid = hunt.laid.saturating_add(1);
        }
    }

    pub(super) fn open(&mut self, hunt: u32, number: u16) {
        let Some(hunt) = self.find(hunt) else { return };
        if let Some(treasure) = hunt.lying.get_mut(usize::from(number)) {
            *treasure = None;
            hunt.opened = hunt.opened.saturating_add(1);
        }
    }

    pub(super) fn end(&mut self, past: PastHunt) {
        self.running.retain(|running| running.hunt != past.hunt);
        if self.past.len() == PAST_HUNTS_MAX {
            self.past.pop_front();
        }
        self.past.push_back(past);
    }

    /// Adds a finisher, unless its hunt ended before this view began.
    pub(super) fn finish(&mut self, hunt: u32, finished: Finished) {
        let Some(past) = self.past.iter_mut().rev().find(|past| past.hunt == hunt) else { return };
        if past.first.len() < FINISHERS_MAX {
            past.first.push(finished);
        }
    }

    /// Moves all times of running hunts on by this much.
    pub(super) fn shift(&mut self, by_ms: i64) {
        for hunt in &mut self.running {
            hunt.started_at_ms = hunt.started_at_ms.saturating_add(by_ms);
            hunt.ends_at_ms = hunt.ends_at_ms.saturating_add(by_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(hunt: u32) -> PastHunt {
        let cause = HuntEndCause::AllFound;
        PastHunt { hunt, cause, opened: 1, finishers: 101, elapsed_ms: 5, first: Vec::new() }
    }

    #[test]
    fn the_last_sixteen_hunts_are_remembered_with_their_first_hundred_finishers() {
        let mut hunts = HuntLog::default();
        let finished =
            |rank: u32| Finished { rank, player_id: rank.into(), found: 1, elapsed_ms: 9 };
        for hunt in 1..=20 {
            hunts.start(hunt, 3, 0, 1_000);
            hunts.end(ended(hunt));
            assert!(!hunts.is_running(hunt));
            for rank in 1..=99 + hunt {
                hunts.finish(hunt, finished(rank));
            }
            hunts.finish(hunt + 1, finished(1));
        }
        let numbers: Vec<u32> = hunts.past().map(|past| past.hunt).collect();
        assert_eq!(numbers, (5..=20).rev().collect::<Vec<u32>>());
        for past in hunts.past() {
            let ranks = past.first.iter().map(|finished| finished.rank);
            assert!(ranks.eq(1..=100), "hunt {}", past.hunt);
        }
        // The hunts before are forgotten, with those who finish late.
        let before = hunts.clone();
        hunts.finish(4, finished(1));
        assert_eq!(hunts, before);
    }
}
