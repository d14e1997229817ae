//! Acquiring a shard as decisions alone: what an owner makes of a log.

use crate::hunt::change::UPDATES;
use crate::output::fence_id::InputTag;
use crate::output::fold::{SKIPS_MAX, Start};
use crate::output::frame::{Chain, FrameHeader, FrameKind};
use crate::output::mark::Mark;
use crate::output::verified::{Ack, Verified};
use crate::ownership::acquisition::*;
use crate::ownership::foreign_span::{ForeignSpan, SpanCheck, SpanResult};
use crate::ownership::start_error::StartError;
use crate::ownership::tests::log::{Log, RULESET, brief, owned_log, snapshot};
use crate::testing::frame_maker::FrameMaker;

#[test]
fn the_newest_snapshot_of_this_log_is_the_start() {
    let (mut log, mut shard) = owned_log(9);
    let old = snapshot(&log, &shard);
    log.publish(&mut shard, 9);
    let new = snapshot(&log, &shard);
    log.publish(&mut shard, 9);
    let acquired = log.acquire(brief(vec![new.clone(), old])).expect("acquired");
    assert_eq!((acquired.candidate, acquired.start, acquired.owner_epoch), (Some(0), new.start, 2));
    assert_eq!(acquired.mark.next_update, shard.next_update);
    assert_eq!(acquired.mark.chain, shard.chain);
    assert_eq!(acquired.mark.output_offset, log.end);
}

/// It reads from a broker that is cut off, and the leader has said where the log ends.
#[test]
fn what_a_reader_that_is_behind_lacks_is_read_before_the_fence_counts() {
    let (mut log, mut shard) = owned_log(9);
    let start = snapshot(&log, &shard);
    log.publish(&mut shard, 9);
    let mut acquisition = Acquisition::begin(brief(vec![start.clone()]), log.bounds());
    let Need::Read { from } = acquisition.need() else { panic!("{acquisition:?}") };
    let (offset, bytes) = log.records.iter().find(|(at, _)| *at == from).expect("it is there");
    acquisition.take(*offset, bytes);
    acquisition.reach_end();
    // Somebody may have owned the shard in what is lacking.
    assert_eq!(acquisition.need(), Need::States);
    acquisition.offer(vec![start]);
    acquisition.follow();
    acquisition.bid();
    acquisition.confirm(1);
    let Need::Append(fence) = acquisition.need() else { panic!("{acquisition:?}") };
    acquisition.appended(log.append_empty(&fence));
    assert_eq!(acquisition.need(), Need::Read { from: from + 1 });
    for (offset, bytes) in log.records.iter().filter(|(at, _)| *at > from) {
        acquisition.take(*offset, bytes);
    }
    let acquired = acquisition.into_outcome().expect("acquired");
    assert_eq!(acquired.mark.next_update, shard.next_update);
    assert_eq!(acquired.mark.chain, shard.chain);
}

#[test]
fn states_elsewhere_are_asked_for_only_if_somebody_else_has_owned_the_shard() {
    let (mut log, mut shard) = owned_log(9);
    let here = snapshot(&log, &shard);
    log.publish(&mut shard, 3);
    // Nobody has: states on other hosts are not even looked for.
    let bogus = Candidate { ruleset: 99, ..here.clone() };
    log.elsewhere = vec![bogus];
    assert_eq!(log.acquire(brief(vec![here.clone()])).expect("acquired").start, here.start);

    let mut other = FrameMaker { owner_epoch: 2, ..shard };
    log.publish(&mut other, 9);
    let there = snapshot(&log, &other);
    log.publish(&mut other, 3);
    log.elsewhere = vec![there.clone(), here.clone()];
    let acquired = log.acquire(brief(vec![here])).expect("acquired");
    assert_eq!((acquired.start, acquired.candidate), (there.start, Some(0)));
    assert_eq!(acquired.mark.next_update, other.next_update);
    let acquired = log.acquire(brief(Vec::new())).expect("acquired");
    assert_eq!((acquired.start, acquired.candidate), (there.start, Some(0)));
}

/// Its owner stores further states in the same epoch.
#[test]
fn beside_a_replica_that_is_known_a_newer_one_is_looked_for() {
    let (mut log, mut shard) = owned_log(9);
    let known = Candidate { is_here: false, ..snapshot(&log, &shard) };
    log.publish(&mut shard, 9);
    let newer = Candidate { is_here: false, ..snapshot(&log, &shard) };
    log.publish(&mut shard, 3);
    log.elsewhere = vec![newer.clone()];
    let acquired = log.acquire(brief(vec![known])).expect("acquired");
    assert_eq!(acquired.start, newer.start);
}

#[test]
fn a_snapshot_ahead_of_the_log_or_of_another_log_is_passed_over() {
    let (mut log, mut shard) = owned_log(9);
    let old = snapshot(&log, &shard);
    let (kept, kept_shard) = (log.records.len(), FrameMaker { ..shard });
    log.publish(&mut shard, 9);
    let lost = snapshot(&log, &shard);
    // The log loses its end and another owner writes on.
    log.records.truncate(kept);
    log.end = kept as i64;
    let briefed = brief(vec![lost.clone(), old.clone()]);
    let acquired = log.acquire(briefed.clone()).expect("acquired");
    assert_eq!((acquired.candidate, acquired.start), (Some(1), old.start));
    let mut other = FrameMaker { owner_epoch: acquired.owner_epoch, ..kept_shard };
    other.next_offset += 100;
    log.publish(&mut other, 20);
    let acquired = log.acquire(briefed).expect("acquired");
    assert_eq!((acquired.candidate, acquired.start), (Some(1), old.start));
    assert_eq!(acquired.mark.next_update, other.next_update);
}

#[test]
fn a_state_that_was_stored_after_the_survey_needs_another_one_and_no_second_one() {
    let (mut log, mut shard) = owned_log(9);
    let here = snapshot(&log, &shard);
    let surveyed = log.bounds();
    let begin = |bounds, candidates| Acquisition::begin(brief(candidates), bounds);
    assert!(!begin(surveyed, Vec::new()).is_surveyed_before(std::slice::from_ref(&here)));
    log.publish(&mut shard, 9);
    let newer = snapshot(&log, &shard);
    let states = vec![newer.clone(), here.clone()];
    assert!(begin(surveyed, vec![here.clone()]).is_surveyed_before(&states));
    // Nothing was published since, and more of the input was applied.
    let mut applied = here.clone();
    applied.start.next_offset = surveyed.input_end + 1;
    assert!(begin(surveyed, vec![here]).is_surveyed_before(&[applied]));
    assert!(!begin(log.bounds(), states.clone()).is_surveyed_before(&states));
    // The output is shorter: the state belongs to another one.
    assert!(!begin(surveyed, vec![newer.clone()]).is_surveyed_before(&[newer]));
}

#[test]
fn without_a_snapshot_the_start_of_the_input_will_do_and_nothing_later() {
    let (mut log, shard) = owned_log(9);
    let acquired = log.acquire(brief(Vec::new())).expect("acquired");
    assert_eq!((acquired.candidate, acquired.start), (None, Start::default()));
    log.input.0 = 1;
    let gone = StartError::InputGone { wanted: 0, input_start: 1 };
    assert_eq!(log.acquire(brief(Vec::new())), Err(gone));
    let kept = snapshot(&log, &shard);
    log.input.0 = kept.start.next_offset;
    assert!(log.acquire(brief(vec![kept.clone()])).is_ok());
    log.input.0 += 1;
    let wanted = kept.start.next_offset;
    let gone = StartError::InputGone { wanted, input_start: wanted + 1 };
    assert_eq!(log.acquire(brief(vec![kept])), Err(gone));
}

#[test]
fn an_input_that_is_shorter_than_what_was_applied_is_refused() {
    let (mut log, shard) = owned_log(9);
    log.input = (0, shard.next_offset - 1);
    let wanted = shard.next_offset;
    let lost = StartError::InputLost { wanted, input_end: wanted - 1 };
    assert_eq!(log.acquire(brief(Vec::new())), Err(lost));
}

/// What it publishes covers input that came after the survey.
#[test]
fn an_owner_that_plays_on_is_fenced_at_the_first_attempt() {
    for remedy in [Remedy::Refuse, Remedy::StartOver] {
        let (mut log, mut shard) = owned_log(9);
        log.input = (0, shard.next_offset);
        let mut fences = 0;
        let briefed = Brief { remedy, ..brief(vec![snapshot(&log, &shard)]) };
        let acquired = log.acquire_beside(briefed, |log| {
            fences += 1;
            log.publish(&mut shard, 9);
        });
        let acquired = acquired.expect("acquired");
        assert_eq!((acquired.mark.next_offset, fences), (shard.next_offset, 1));
        assert_eq!(acquired.candidate, Some(0), "it goes on where it was");
    }
}

#[test]
fn an_output_whose_start_is_gone_is_acquired_by_a_snapshot_or_a_repeated_fence() {
    let (mut log, mut shard) = owned_log(9);
    let kept = snapshot(&log, &shard);
    log.publish(&mut shard, 9);
    log.records.drain(..5);
    assert_eq!(log.acquire(brief(Vec::new())), Err(StartError::StartGone));
    let owner = log.acquire(brief(vec![kept.clone()])).expect("acquired");
    // The mark itself is gone: only a fence that says where it stands will do.
    log.records.drain(..8);
    assert_eq!(log.acquire(brief(Vec::new())), Err(StartError::StartGone));
    assert_eq!(log.acquire(brief(vec![kept.clone()])), Err(StartError::StartGone));
    // An owner that was overtaken does not know where the shard stands now.
    log.append_empty(&shard.fence(77));
    assert_eq!(log.acquire(brief(vec![kept.clone()])), Err(StartError::StartGone));
    shard.owner_epoch = owner.owner_epoch;
    log.append_empty(&shard.fence(owner.fence_id));
    let acquired = log.acquire(brief(vec![kept.clone()])).expect("acquired");
    assert_eq!((acquired.start, acquired.candidate), (kept.start, Some(0)));
    let acquired = log.acquire(brief(Vec::new())).expect("acquired");
    assert_eq!(acquired.mark.next_update, shard.next_update);
}

#[test]
fn an_output_that_is_gone_is_refused_if_snapshots_tell_of_it() {
    let (log, shard) = owned_log(9);
    let kept = snapshot(&log, &shard);
    let lost = StartError::OutputGone { made: kept.start.next_update };
    let told = || brief(vec![kept.clone()]);
    let allowed = || Brief { remedy: Remedy::StartOver, ..told() };
    let mut fresh = Log::new();
    assert_eq!(fresh.acquire(told()), Err(lost));
    // Once the operator has allowed it, the whole input is played again.
    for brief in [allowed(), told()] {
        assert_eq!(fresh.acquire(brief).expect("acquired").start, Start::default());
    }
    let mut fresh = Log::new();
    fresh.input.0 = 5;
    assert_eq!(fresh.acquire(told()), Err(lost));
    // A host without files asks others.
    let mut asking = Log { input: fresh.input, elsewhere: vec![kept.clone()], ..Log::new() };
    assert_eq!(asking.acquire(brief(Vec::new())), Err(lost));
    // Without them it is a topic that nobody has read before.
    assert_eq!(fresh.acquire(brief(Vec::new())).expect("acquired").start.next_offset, 5);
    assert_eq!(fresh.acquire(allowed()).expect("acquired").start.next_offset, 5);
}

#[test]
fn other_rules_are_refused_whether_the_log_or_the_snapshot_tells() {
    let (mut log, shard) = owned_log(9);
    let changed = StartError::RulesetChanged { published: RULESET, ours: 8 };
    let other = |candidates| Brief { rulesets: vec![8], ..brief(candidates) };
    assert_eq!(log.acquire(other(Vec::new())), Err(changed));
    let kept = snapshot(&log, &shard);
    assert_eq!(log.acquire(other(vec![kept])), Err(changed));
}

#[test]
fn a_zone_begins_by_the_first_rules_and_the_order_of_the_list_never_matters_again() {
    let listed = |rulesets: &[u32]| Brief { rulesets: rulesets.to_vec(), ..brief(Vec::new()) };
    let acquired = Log::new().acquire(listed(&[8, RULESET])).expect("acquired");
    assert_eq!(acquired.begun_by, 8);
    // An owner that was fenced before it published anything has begun nothing.
    let mut log = Log::new();
    assert_eq!(log.acquire(listed(&[8, RULESET])).expect("acquired").begun_by, 8);
    assert_eq!(log.acquire(listed(&[RULESET, 8])).expect("acquired").begun_by, RULESET);

    let (mut log, mut shard) = owned_log(9);
    assert_eq!(log.acquire(listed(&[8, RULESET])).expect("acquired").begun_by, RULESET);
    // The current rules are other ones, and a late copy of an early frame changes nothing.
    let first = log.records[1].1.clone();
    shard.owner_epoch = log.mark().owner_epoch;
    let frame = shard.frame(2);
    log.append(&FrameHeader { ruleset: 8, ..frame.header }, &frame.updates);
    log.records.push((log.end, first));
    log.end += 1;
    let acquired = log.acquire(listed(&[8, RULESET])).expect("acquired");
    assert_eq!(acquired.begun_by, RULESET);
    let missing = StartError::RulesetChanged { published: RULESET, ours: 8 };
    assert_eq!(log.acquire(listed(&[8])), Err(missing), "a replay begins by them");

    // A zone that starts over begins by the current rules.
    log.input = (1, 1_000);
    let fresh = Brief { remedy: Remedy::StartOver, ..listed(&[RULESET, 8]) };
    assert_eq!(log.acquire(fresh).expect("acquired").begun_by, 8);
    assert_eq!(log.acquire(listed(&[RULESET, 8])).expect("acquired").begun_by, 8);
}

#[test]
fn a_shard_that_starts_over_is_numbered_on_and_has_started_over_for_good() {
    let (mut log, mut shard) = owned_log(9);
    let kept = snapshot(&log, &shard);
    log.publish(&mut shard, 2);
    let fresh = Brief { rulesets: vec![8], remedy: Remedy::StartOver, ..brief(vec![kept.clone()]) };
    let acquired = log.acquire(fresh).expect("acquired");
    let start = Start { leader_epoch: None, ..snapshot(&log, &shard).start };
    assert_eq!((acquired.start, acquired.candidate), (start, None));
    let mut shard = FrameMaker { owner_epoch: acquired.owner_epoch, ..shard };
    for number in 0..3 {
        let frame = shard.frame(number);
        log.append(&FrameHeader { ruleset: 8, ..frame.header }, &frame.updates);
    }
    // The next owner starts there too, whatever older snapshots there are.
    let next = Brief { rulesets: vec![8], ..brief(vec![kept.clone()]) };
    let acquired = log.acquire(next).expect("acquired");
    assert_eq!((acquired.start, acquired.candidate), (start, None));
    assert_eq!(acquired.mark.next_update, shard.next_update);
    // And a shard that can be started does not start over, even if that would be allowed.
    let allowed = Brief { rulesets: vec![8], remedy: Remedy::StartOver, ..brief(vec![kept]) };
    assert_eq!(log.acquire(allowed).expect("acquired").start, start);
    let geneses = log.records.iter().filter(|(_, bytes)| bytes[5] == FrameKind::Genesis as u8);
    assert_eq!(geneses.count(), 1);
}

#[test]
fn a_snapshot_of_an_input_that_was_created_again_halts_until_the_zone_starts_over() {
    let (mut log, mut shard) = owned_log(9);
    log.publish(&mut shard, 9);
    let known = |candidates| Brief { rulesets: vec![RULESET, 8], ..brief(candidates) };
    // By its offsets alone it could be the start. Nothing after it names the rules.
    let old = Candidate { is_of_deleted_input: true, ruleset: 8, ..snapshot(&log, &shard) };
    assert_eq!(log.acquire(known(vec![old.clone()])), Err(StartError::InputRecreated));
    let fresh = Brief { remedy: Remedy::StartOver, ..known(vec![old.clone()]) };
    let acquired = log.acquire(fresh).expect("acquired");
    assert_eq!((acquired.candidate, acquired.start.next_offset), (None, log.bounds().input_start));
    assert_eq!((acquired.start.next_update, acquired.begun_by), (shard.next_update, 8));

    // From then on the old one is no more than a place in the output.
    shard = FrameMaker { owner_epoch: acquired.owner_epoch, next_offset: 0, ..shard };
    let acquired = log.acquire(known(vec![old.clone()])).expect("acquired");
    assert_eq!((acquired.candidate, acquired.start.next_update), (None, shard.next_update));
    shard.owner_epoch = acquired.owner_epoch;
    log.publish(&mut shard, 3);
    let new = snapshot(&log, &shard);
    let acquired = log.acquire(known(vec![new.clone(), old])).expect("acquired");
    assert_eq!((acquired.candidate, acquired.start), (Some(0), new.start));
}

#[test]
fn without_a_state_the_fences_tell_that_the_input_was_created_again() {
    let (mut log, shard) = owned_log(9);
    // The new input is longer than what was read of the old one, so its offsets show nothing.
    assert!(shard.next_offset < log.input.1);
    let recreated = [2; 16];
    log.fence_ids.read_from(&recreated);
    let told = Brief { input: InputTag::of_topic(&recreated), ..brief(Vec::new()) };
    // A fence alone has played nothing, so it does not make the new input the one that was played.
    for _ in 0..2 {
        assert_eq!(log.acquire(told.clone()), Err(StartError::InputRecreated));
    }
    let fresh = Brief { remedy: Remedy::StartOver, ..told.clone() };
    let acquired = log.acquire(fresh).expect("acquired");
    assert_eq!((acquired.start.next_offset, acquired.start.next_update), (0, shard.next_update));
    assert_eq!(log.acquire(told).expect("acquired").start, acquired.start);
}

#[test]
fn an_owner_whose_fences_do_not_tell_its_input_is_followed_by_offsets() {
    let (mut log, mut shard) = owned_log(3);
    let random = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef;
    shard.owner_epoch += 1;
    log.append_empty(&FrameHeader { next_offset: -1, ..shard.fence(random) });
    log.publish(&mut shard, 3);
    let other = Brief { input: InputTag::of_topic(&[2; 16]), ..brief(Vec::new()) };
    assert!(log.acquire(other).is_ok());
}

#[test]
fn a_zone_that_starts_over_after_its_input_lost_records_publishes_none_of_them_twice() {
    let (mut log, shard) = owned_log(9);
    let kept = snapshot(&log, &shard);
    let (start, covered) = (kept.start.next_offset - 3, kept.start.next_offset);
    for (input, begins_at) in [
        ((0, covered - 2), covered - 2),
        ((0, covered), covered),
        ((0, covered + 5), covered),
        ((covered + 3, covered + 5), covered + 3),
        ((start, start), start),
    ] {
        log.input = input;
        let fresh = Brief { diverged: true, ..brief(vec![kept.clone()]) };
        let fresh = Brief { remedy: Remedy::StartOver, ..fresh };
        // Each on a log of its own: a genesis is where the next one begins.
        let before = (log.records.clone(), log.end);
        assert_eq!(log.acquire(fresh).expect("acquired").start.next_offset, begins_at, "{input:?}");
        (log.records, log.end) = before;
    }
}

#[test]
fn a_zone_that_starts_over_applies_the_records_that_took_the_place_of_applied_ones() {
    let (mut log, shard) = owned_log(9);
    let covered = shard.next_offset;
    for (changed_from, input_start, begins_at) in [
        (covered - 2, 0, covered - 2),
        (covered + 2, 0, covered),
        (covered - 2, covered - 1, covered - 1),
        (covered - 2, covered + 1, covered + 1),
    ] {
        // The log has grown since its end was lost.
        log.input = (input_start, covered + 5);
        let fresh = Brief { changed_from: Some(changed_from), ..brief(Vec::new()) };
        let fresh = Brief { remedy: Remedy::StartOver, diverged: true, ..fresh };
        let before = (log.records.clone(), log.end);
        let start = log.acquire(fresh).expect("acquired").start;
        assert_eq!(start.next_offset, begins_at, "{changed_from} {input_start}");
        assert_eq!(start.next_update, shard.next_update);
        (log.records, log.end) = before;
    }
}

#[test]
fn a_fence_of_an_absurd_epoch_hinders_no_owner() {
    let (mut log, mut shard) = owned_log(3);
    for owner_epoch in [u64::MAX, u64::MAX - 1, 1 << 63, (1 << 32) + 99] {
        let forged = FrameMaker { owner_epoch, ..FrameMaker::new(0) };
        log.append_empty(&forged.fence(5));
        log.append_empty(&FrameHeader { next_offset: -1, ..forged.fence(6) });
        log.publish(&mut FrameMaker { owner_epoch, ..FrameMaker::new(0) }, 2);
        let acquired = log.acquire(brief(Vec::new())).expect("acquired");
        assert_eq!(acquired.owner_epoch, shard.owner_epoch + 1);
        shard.owner_epoch = acquired.owner_epoch;
        log.publish(&mut shard, 3);
    }
    assert_eq!(log.mark().next_update, shard.next_update);
}

#[test]
fn what_replays_differently_starts_over_if_that_is_the_remedy() {
    let (mut log, shard) = owned_log(9);
    let fresh = Brief { remedy: Remedy::StartOver, diverged: true, ..brief(Vec::new()) };
    let acquired = log.acquire(fresh).expect("acquired");
    assert_eq!(acquired.start.next_offset, shard.next_offset);
    let again = Brief { remedy: Remedy::StartOver, diverged: true, ..brief(Vec::new()) };
    assert!(log.acquire(again).is_ok());
}

#[test]
fn a_record_to_skip_is_skipped_in_the_output_once_and_by_every_owner() {
    let (mut log, mut shard) = owned_log(9);
    // What is published was made with the first of these, so that no replay passes it over.
    let asked = [shard.next_offset - 1, shard.next_offset, shard.next_offset + 29];
    // The record after the input's end does not exist yet.
    let to_skip = [&asked[..], &[log.input.1, i64::MAX]].concat();
    let skipping = Brief { to_skip, ..brief(Vec::new()) };
    let acquired = log.acquire(skipping.clone()).expect("acquired");
    assert_eq!(acquired.skips.iter().copied().collect::<Vec<_>>(), asked[1..]);
    let end = log.end;
    assert_eq!(acquired.mark.output_offset, end);
    let acquired = log.acquire(skipping).expect("acquired");
    assert_eq!((acquired.skips.len(), log.end), (2, end + 1), "only a fence is new");
    let acquired = log.acquire(brief(Vec::new())).expect("acquired");
    assert_eq!(acquired.skips.len(), 2);
    shard.owner_epoch = acquired.owner_epoch;
    log.publish(&mut shard, 3);
    // A snapshot carries what its replay still has to pass over.
    let skips = vec![40];
    let kept = Candidate { skips, ..snapshot(&log, &shard) };
    let acquired = log.acquire(brief(vec![kept])).expect("acquired");
    assert_eq!(acquired.skips.into_iter().collect::<Vec<_>>(), [40]);
}

/// It would meet the record before the output says that it is skipped.
#[test]
fn no_engine_follows_where_a_record_is_to_be_skipped() {
    let (log, shard) = owned_log(9);
    for (to_skip, may_fence) in [(vec![shard.next_offset], true), (Vec::new(), false)] {
        let skipping = Brief { to_skip, ..brief(Vec::new()) };
        let mut acquisition = Acquisition::begin(skipping, log.bounds());
        while let Need::Read { from } = acquisition.need() {
            log.read(from, &mut acquisition);
        }
        if let Need::States = acquisition.need() {
            acquisition.offer(Vec::new());
        }
        assert!(matches!(acquisition.need(), Need::Confirm { .. }));
        assert_eq!(acquisition.may_fence(), may_fence);
    }
}

/// Neither the next epoch nor the next update's number would fit.
#[test]
fn no_shard_is_acquired_where_only_a_fence_that_no_owner_wrote_says_where_it_stands() {
    let (log, shard) = owned_log(9);
    let fence = shard.fence(77);
    for forged in [
        FrameHeader { owner_epoch: u64::MAX, ..fence },
        FrameHeader { first_update: u64::MAX, ..fence },
    ] {
        let mut log = Log { records: Vec::new(), end: log.end, ..Log::new() };
        log.append_empty(&forged);
        let fresh = Brief { remedy: Remedy::StartOver, ..brief(Vec::new()) };
        assert_eq!(log.acquire(fresh.clone()), Err(StartError::StartGone), "{forged:?}");
        log.append_empty(&fence);
        assert!(log.acquire(fresh).is_ok(), "an owner's fence comes after {forged:?}");
    }
}

/// Only another program writes so many.
#[test]
fn more_skips_than_a_snapshot_has_room_for_halt_the_shard_until_it_starts_over() {
    let (mut log, shard) = owned_log(9);
    let acquired = log.acquire(brief(Vec::new())).expect("acquired");
    let skip = FrameHeader { kind: FrameKind::Skip, fence_id: 0, ..shard.fence(0) };
    let owner_epoch = acquired.owner_epoch;
    for next_offset in (i64::MAX - SKIPS_MAX as i64 + 1)..=i64::MAX {
        log.append_empty(&FrameHeader { owner_epoch, next_offset, ..skip });
    }
    let acquired = log.acquire(brief(Vec::new())).expect("a snapshot has room for these");
    let owner_epoch = acquired.owner_epoch;
    log.append_empty(&FrameHeader { owner_epoch, next_offset: 1, ..skip });
    let too_many = StartError::SkipsTooMany { skips: SKIPS_MAX + 1 };
    assert_eq!(log.acquire(brief(Vec::new())), Err(too_many));
    let fresh = Brief { remedy: Remedy::StartOver, ..brief(Vec::new()) };
    assert!(log.acquire(fresh).expect("acquired").skips.is_empty());
    assert!(log.acquire(brief(Vec::new())).expect("acquired").skips.is_empty());
}

#[test]
fn a_skip_of_a_fenced_owner_counts_for_nobody() {
    let (mut log, _) = owned_log(9);
    let stale = FrameHeader {
        kind: FrameKind::Skip,
        owner_epoch: 1,
        first_update: 0,
        count: 0,
        next_offset: 12,
        ruleset: RULESET,
        chain: Chain::default(),
        fence_id: 0,
    };
    log.acquire(brief(Vec::new())).expect("acquired");
    log.append_empty(&stale);
    assert!(log.acquire(brief(Vec::new())).expect("acquired").skips.is_empty());
}

#[test]
fn a_lost_fence_is_raised_after_another_question_and_not_for_ever() {
    let (mut log, _) = owned_log(3);
    let mut questions = 0;
    let acquired = log
        .acquire_beside(brief(Vec::new()), |log| {
            questions += 1;
            if questions <= 2 {
                let owner_epoch = log.mark().owner_epoch + 1;
                let rival = FrameMaker { owner_epoch, ..FrameMaker::new(0) };
                log.append_empty(&rival.fence(9_000 + u128::from(owner_epoch)));
            }
        })
        .expect("acquired");
    assert_eq!((questions, acquired.owner_epoch), (3, 4));
    let contended = log.acquire_beside(brief(Vec::new()), |log| {
        let owner_epoch = log.mark().owner_epoch + 1;
        let rival = FrameMaker { owner_epoch, ..FrameMaker::new(0) };
        log.append_empty(&rival.fence(9_000 + u128::from(owner_epoch)));
    });
    assert_eq!(contended, Err(StartError::Contended));
}

#[test]
fn late_frames_between_ours_are_passed_over_and_a_fence_is_not() {
    let (mut log, mut shard) = owned_log(6);
    let acquired = log.acquire(brief(Vec::new())).expect("acquired");
    let mut zombie = FrameMaker { ..shard };
    shard.owner_epoch = acquired.owner_epoch;
    let mut verified = Verified::new(acquired.mark);
    let frame = shard.frame(2);
    let offset = log.append(&frame.header, &frame.updates);
    assert_eq!(verified.ack(offset, &frame.header), Ack::Counts);

    log.publish(&mut zombie, 2);
    let frame = shard.frame(1);
    let to = log.append(&frame.header, &frame.updates);
    assert_eq!(verified.ack(to, &frame.header), Ack::AfterForeign);
    let cross = |log: &Log, from: Mark, to: i64| {
        let mut check =
            SpanCheck::new(ForeignSpan { partition: 0, ownership_id: 1, from, to }, UPDATES);
        for (offset, bytes) in log.records.iter().filter(|(at, _)| *at >= from.output_offset) {
            assert!(check.result().is_none() || *offset >= to);
            check.take(*offset, bytes);
        }
        check.result().expect("everything was read")
    };
    let SpanResult::Passed(mark) = cross(&log, verified.mark(), to) else { panic!("no fence") };
    verified.pass_foreign(mark);
    assert_eq!(verified.ack(to, &frame.header), Ack::Counts);
    assert_eq!(verified.mark(), log.mark());
    assert_eq!(verified.ack(to, &frame.header), Ack::Misplaced);

    let rival = FrameMaker { owner_epoch: shard.owner_epoch + 1, ..FrameMaker::new(0) };
    log.append_empty(&rival.fence(5));
    let frame = shard.frame(1);
    let to = log.append(&frame.header, &frame.updates);
    assert_eq!(verified.ack(to, &frame.header), Ack::AfterForeign);
    let (owner_epoch, fence_id) = (shard.owner_epoch + 1, 5);
    let fenced = SpanResult::Fenced { owner_epoch, fence_id };
    assert_eq!(cross(&log, verified.mark(), to), fenced);
}

#[test]
fn a_copy_asks_for_newer_states_before_it_reads_the_output() {
    let (mut log, mut shard) = owned_log(6);
    let here = snapshot(&log, &shard);
    log.publish(&mut shard, 100);
    let newer = snapshot(&log, &shard);
    let mut copy = Acquisition::begin_as_copy(brief(vec![here.clone()]), log.bounds());
    assert_eq!(copy.need(), Need::States);
    copy.offer(vec![newer, here.clone()]);
    let Need::Read { from } = copy.need() else { panic!("the output is read then") };
    assert!(here.mark.output_offset < from);
    let new_zone = Acquisition::begin_as_copy(brief(Vec::new()), Log::new().bounds());
    assert_eq!(new_zone.need(), Acquisition::begin(brief(Vec::new()), Log::new().bounds()).need());
}

/// A clone of the host goes on with the same owner epoch.
#[test]
fn whatever_a_reader_takes_from_a_foreign_frame_of_our_own_epoch_is_noticed() {
    let (mut log, mut shard) = owned_log(6);
    let acquired = log.acquire(brief(Vec::new())).expect("acquired");
    shard.owner_epoch = acquired.owner_epoch;
    let from = log.mark();
    let empty = FrameMaker { ..shard }.frame(0).header;
    let update = FrameMaker { ..shard }.frame(1);
    let forged = [
        (FrameHeader { next_offset: 1 << 62, ..empty }, None),
        (FrameHeader { next_offset: i64::MAX, ..empty }, None),
        (FrameHeader { kind: FrameKind::Genesis, ..empty }, None),
        (FrameHeader { kind: FrameKind::Skip, ..empty }, None),
        (update.header, Some(&update.updates)),
        // The chain is wrong, so a reader halts.
        (FrameHeader { chain: Chain(1), ..update.header }, Some(&update.updates)),
    ];
    for (header, updates) in forged {
        let mut check = SpanCheck::new(
            ForeignSpan { partition: 0, ownership_id: 1, from, to: log.end + 2 },
            UPDATES,
        );
        let mut beside = Log { records: Vec::new(), ..Log::new() };
        match updates {
            Some(updates) => beside.append(&header, updates),
            None => beside.append_empty(&header),
        };
        for (offset, bytes) in (from.output_offset..).zip(beside.records.iter().map(|(_, b)| b)) {
            check.take(offset, bytes);
        }
        check.take(log.end + 2, &log.records[0].1);
        assert_eq!(check.result(), Some(SpanResult::Torn), "{header:?}");
    }
    // A repeated fence and a frame that readers drop change nothing.
    let mut check = SpanCheck::new(
        ForeignSpan { partition: 0, ownership_id: 1, from, to: log.end + 2 },
        UPDATES,
    );
    let (fence, last) =
        (shard.fence(acquired.fence_id), log.records.last().expect("frames").clone());
    log.append_empty(&fence);
    log.records.push((log.end, last.1));
    for (offset, bytes) in log.records.iter().filter(|(at, _)| *at >= from.output_offset) {
        check.take(*offset, bytes);
    }
    check.take(log.end + 1, &log.records[0].1);
    assert!(matches!(check.result(), Some(SpanResult::Passed(_))), "{check:?}");
}

#[test]
fn own_fences_and_empty_frames_are_verified_like_any_frame() {
    let (mut log, mut shard) = owned_log(6);
    let acquired = log.acquire(brief(Vec::new())).expect("acquired");
    shard.owner_epoch = acquired.owner_epoch;
    let mut verified = Verified::new(acquired.mark);
    for frame in [shard.frame(0).header, shard.fence(acquired.fence_id), shard.frame(0).header] {
        let offset = log.append_empty(&frame);
        assert_eq!(verified.ack(offset, &frame), Ack::Counts);
    }
    assert_eq!(verified.mark(), log.mark());
    // A frame that leaves a gap is in the log, and counts for no reader.
    shard.frame(1);
    let beyond = shard.frame(1);
    let offset = log.append(&beyond.header, &beyond.updates);
    assert_eq!(verified.ack(offset, &beyond.header), Ack::NotAccepted);
}
