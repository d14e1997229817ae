//! Which outputs have fallen quiet: they grew, and have stopped, although their input goes on.
//! Either the owner is gone, or it is slow; a copy finds out which.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time for which an output with input owes frames before it is quiet. An owner publishes every
/// 100 ms.
const QUIET: Duration = Duration::from_millis(500);

/// Time after its owner was seen to play in which an output may count as quiet. Later the group has
/// found another owner, who may still be loading the state. Without a group, an output that owes
/// frames for so long is quiet whether an owner was seen or not.
const QUIET_MAX: Duration = Duration::from_secs(30);

/// An output that grows twice within this time has an owner who plays. A single record may be a
/// fence after which a state is loaded, or the probe of a copy.
pub(crate) const PLAYS: Duration = Duration::from_secs(5);

/// An output that has fallen quiet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuietOutput {
    /// For how long it has owed frames.
    pub owed: Duration,
    /// The offset after its last record.
    pub end: i64,
}

/// How all outputs have grown so far.
#[derive(Debug)]
pub struct QuietOutputs {
    seen: BTreeMap<i32, SeenOutput>,
    is_without_group: bool,
}

#[derive(Debug)]
struct SeenOutput {
    output_end: i64,
    /// The end of the input when the output grew last.
    input_end: i64,
    /// `None`: it has not grown since it was first seen.
    grown_at: Option<Instant>,
    /// When its owner was seen to play last.
    played_at: Option<Instant>,
    /// Since when there is more input.
    owes_since: Option<Instant>,
}

impl QuietOutputs {
    /// Nothing is known yet. Without a group, nobody else finds another owner for a zone.
    pub fn new(is_without_group: bool) -> QuietOutputs {
        QuietOutputs { seen: BTreeMap::new(), is_without_group }
    }

    /// Takes the ends of all inputs and outputs by partition; `None` where no broker says it.
    /// Returns the outputs that are quiet, by partition. Without a group, the first 30 s for which
    /// one owes frames do not count if nobody was seen to play it.
    pub fn look(
        &mut self,
        inputs: &[Option<i64>],
        outputs: &[Option<i64>],
        now: Instant,
    ) -> BTreeMap<i32, QuietOutput> {
        let mut quiet = BTreeMap::new();
        for (partition, ends) in (0..).zip(inputs.iter().zip(outputs)) {
            let (Some(input_end), Some(output_end)) = (*ends.0, *ends.1) else { continue };
            let lasts = |since: Option<Instant>| since.map(|at| now.saturating_duration_since(at));
            let seen = self.seen.entry(partition).or_insert(SeenOutput {
                output_end,
                input_end,
                grown_at: None,
                played_at: None,
                owes_since: None,
            });
            if seen.output_end != output_end {
                if lasts(seen.grown_at).is_some_and(|age| age < PLAYS) {
                    seen.played_at = Some(now);
                }
                (seen.output_end, seen.input_end) = (output_end, input_end);
                (seen.grown_at, seen.owes_since) = (Some(now), None);
            } else if seen.input_end < input_end {
                seen.owes_since.get_or_insert(now);
            }
            let was_just_played = lasts(seen.played_at).is_some_and(|age| age < QUIET_MAX);
            let owed = lasts(seen.owes_since);
            let owed = match was_just_played {
                true => owed.filter(|owed| *owed >= QUIET),
                false if self.is_without_group => owed.and_then(|it| it.checked_sub(QUIET_MAX)),
                false => None,
            };
            quiet.extend(owed.map(|owed| (partition, QuietOutput { owed, end: output_end })));
        }
        quiet
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at one zone every 500 ms: at which looks it is quiet.
    fn quiet_at(ends: impl IntoIterator<Item = (i64, i64)>) -> Vec<usize> {
        let (start, mut outputs) = (Instant::now(), QuietOutputs::new(false));
        let looks = ends.into_iter().enumerate().filter(|(look, (input, output))| {
            let now = start + Duration::from_millis(500 * *look as u64);
            outputs.look(&[Some(*input)], &[Some(*output)], now).contains_key(&0)
        });
        looks.map(|(look, _)| look).collect()
    }

    #[test]
    fn an_output_that_stops_although_its_input_grows_is_quiet_for_a_while() {
        let stops = |look: i64| (100 * look, 10 * look.min(3));
        let quiet = quiet_at((0..100).map(stops));
        assert_eq!((quiet.first(), quiet.last()), (Some(&5), Some(&62)), "{quiet:?}");
    }

    #[test]
    fn without_a_group_an_output_is_quiet_as_long_as_it_owes_frames() {
        let (start, mut outputs) = (Instant::now(), QuietOutputs::new(true));
        let mut look = |s: u64, input| {
            let now = start + Duration::from_secs(s);
            outputs.look(&[Some(input)], &[Some(7)], now).get(&0).map(|quiet| quiet.owed)
        };
        assert_eq!(look(0, 100), None);
        assert_eq!(look(3_000, 100), None, "there is no input");
        assert_eq!((look(3_001, 101), look(3_030, 101)), (None, None), "an owner may begin");
        let first_turn = look(3_031, 101);
        assert_eq!(first_turn, Some(Duration::ZERO));
        assert_eq!(look(9_001, 200), Some(Duration::from_secs(5_970)));
    }

    #[test]
    fn who_owes_nothing_or_goes_on_or_never_began_is_not_quiet() {
        assert_eq!(quiet_at((0..20).map(|look| (100, 10 + look.min(3)))), [0; 0], "no input");
        assert_eq!(quiet_at((0..20).map(|look| (100 * look, 10 + look / 2))), [0; 0], "slow");
        assert_eq!(quiet_at((0..20).map(|look| (100 * look, 10))), [0; 0], "no owner yet");
    }

    #[test]
    fn an_owner_that_fences_and_then_loads_its_state_is_not_quiet() {
        let fences = |look: i64| (100 * look, if look < 10 { 10 } else { 11 });
        assert_eq!(quiet_at((0..40).map(fences)), [0; 0]);
        let (start, mut outputs) = (Instant::now(), QuietOutputs::new(false));
        let mut look = |ms: u64, output| {
            let now = start + Duration::from_millis(ms);
            !outputs.look(&[Some(ms as i64)], &[Some(output)], now).is_empty()
        };
        assert!(!look(0, 1) && !look(500, 2) && !look(1_000, 3), "it plays");
        assert!(look(9_500, 3) || look(10_500, 3), "it is killed");
        assert!(!look(40_000, 3) && !look(40_500, 4), "another one fences it");
        assert!(!look(41_000, 4) && !look(42_000, 4), "and loads");
    }

    #[test]
    fn an_output_that_grows_again_is_quiet_no_more() {
        let pauses = |look: i64| (100 * look, if look < 9 { look.min(3) } else { look });
        assert_eq!(quiet_at((0..30).map(pauses)), [5, 6, 7, 8]);
    }

    #[test]
    fn an_output_whose_end_nobody_tells_is_as_it_was() {
        let (start, mut outputs) = (Instant::now(), QuietOutputs::new(false));
        let mut look = |ms, output| {
            let now = start + Duration::from_millis(ms);
            !outputs.look(&[Some(ms as i64)], &[output], now).is_empty()
        };
        assert!(!look(0, Some(1)) && !look(500, Some(2)) && !look(1_000, Some(3)));
        assert!(!look(1_500, None) && !look(2_000, Some(3)));
        assert!(!look(2_500, None) && look(3_000, Some(3)));
    }
}
