//! The members of the group that can take over the shards of a daemon that ends. Another thread
//! asks the group's coordinator; the control thread only looks for answers, so it plays on.

use crate::ownership::release::PLAY_ON_MS_MAX;
use std::time::{Duration, Instant};

/// Time between two questions.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Time without an answer after which nobody is waited for: a group that cannot be asked cannot
/// move shards either.
const FIRST_ANSWER_MAX: Duration = Duration::from_secs(2);

/// The others in the group, from the moment in which the daemon is asked to end.
#[derive(Debug)]
pub(super) struct Successors {
    began_at: Instant,
    asked_at: Option<Instant>,
    /// A question is under way.
    is_asking: bool,
    /// The group counts this instance among its members.
    pub(super) is_counted: bool,
    /// The last answer of the group; `None`: there is none yet.
    are_there: Option<bool>,
}

impl Successors {
    /// The daemon is asked to end now, and nothing is known of others.
    pub(super) fn begin(now: Instant) -> Successors {
        Successors {
            began_at: now,
            asked_at: None,
            is_asking: false,
            is_counted: true,
            are_there: None,
        }
    }

    /// The daemon is asked to end now, and nobody takes its shards over.
    pub(super) fn none(now: Instant) -> Successors {
        Successors { are_there: Some(false), ..Successors::begin(now) }
    }

    /// Returns whether it is time to ask how many members the group has. One question is under way
    /// at a time.
    pub(super) fn ask(&mut self, now: Instant) -> bool {
        let is_early = self.asked_at.is_some_and(|at| now < at + ASK_EVERY);
        if self.is_asking || is_early || self.are_there(now) == Some(false) {
            return false;
        }
        (self.is_asking, self.asked_at) = (true, Some(now));
        true
    }

    /// Takes the number of members; `None`: nobody says it now, so what was said before counts.
    pub(super) fn take(&mut self, members: Option<usize>) {
        self.is_asking = false;
        let are_there = members.map(|members| members > usize::from(self.is_counted));
        self.are_there = are_there.or(self.are_there);
    }

    /// Returns whether others can take the shards over; `None`: it is not known yet.
    pub(super) fn are_there(&self, now: Instant) -> Option<bool> {
        let lasts = now.saturating_duration_since(self.began_at);
        match self.are_there {
            None if lasts < FIRST_ANSWER_MAX => None,
            Some(true) => Some(lasts < Duration::from_millis(PLAY_ON_MS_MAX)),
            Some(false) | None => Some(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A daemon that was asked to end, and has asked for the members.
    fn asking() -> (Successors, Instant) {
        let now = Instant::now();
        let mut successors = Successors::begin(now);
        assert!(successors.ask(now) && !successors.ask(now + ASK_EVERY), "one at a time");
        (successors, now)
    }

    #[test]
    fn a_question_without_an_answer_changes_nothing_while_others_are_known_to_be_there() {
        let (mut successors, now) = asking();
        assert_eq!(successors.are_there(now), None);
        successors.take(Some(2));
        for second in 1..9 {
            let now = now + ASK_EVERY * second;
            assert!(successors.ask(now));
            successors.take(None);
            assert_eq!(successors.are_there(now), Some(true));
        }
        successors.take(Some(1));
        assert_eq!(successors.are_there(now), Some(false), "it counts itself");
    }

    #[test]
    fn an_instance_counts_itself_until_it_has_left_the_group() {
        for (has_left, are_there) in [(false, false), (true, true)] {
            let (mut successors, now) = asking();
            successors.take(Some(2));
            successors.is_counted = !has_left;
            successors.take(Some(1));
            assert_eq!(successors.are_there(now), Some(are_there));
        }
    }

    #[test]
    fn a_group_that_does_not_answer_is_waited_for_less_long_than_successors() {
        let (mut successors, now) = asking();
        assert_eq!(successors.are_there(now + FIRST_ANSWER_MAX / 2), None);
        assert_eq!(successors.are_there(now + FIRST_ANSWER_MAX), Some(false));
        successors.take(Some(2));
        let end = now + Duration::from_millis(PLAY_ON_MS_MAX);
        assert_eq!(successors.are_there(end - Duration::from_millis(1)), Some(true));
        assert_eq!(successors.are_there(end), Some(false), "the time counts from the signal");
    }

    #[test]
    fn a_group_whose_members_take_nothing_over_is_not_asked() {
        let now = Instant::now();
        let mut successors = Successors::none(now);
        assert_eq!((successors.ask(now), successors.are_there(now)), (false, Some(false)));
    }
}
