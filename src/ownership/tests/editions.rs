//! Another version of the game takes a zone over, where the one before has left it.

use crate::hunt::frames::decode_frame;
use crate::output::frame::{FrameHeader, FrameKind};
use crate::output::reader::{Reader, Verdict};
use crate::ownership::acquisition::*;
use crate::ownership::start_error::StartError;
use crate::ownership::tests::log::{Log, RULESET, VERSION, brief, owned_log, snapshot};
use crate::testing::frame_maker::FrameMaker;

/// The rules of the later version.
const LATER: u32 = 8;

/// What a later version begins with.
fn later(candidates: Vec<Candidate>) -> Brief {
    Brief { version: VERSION + 1, rulesets: vec![LATER], ..brief(candidates) }
}

/// A snapshot that the later version has taken.
fn later_snapshot(log: &Log, shard: &FrameMaker) -> Candidate {
    Candidate { version: VERSION + 1, ruleset: LATER, ..snapshot(log, shard) }
}

/// Publishes frames by these rules.
fn publish(log: &mut Log, shard: &mut FrameMaker, ruleset: u32, frames: u32) {
    // Rules change in a frame with updates.
    for number in 1..=frames {
        let frame = shard.frame(number % 3);
        log.append(&FrameHeader { ruleset, ..frame.header }, &frame.updates);
    }
}

fn last_frame(log: &Log) -> FrameHeader {
    let (_, bytes) = log.records.last().expect("there is a frame");
    decode_frame(bytes).expect("frames are readable").0
}

fn behind(version: u32, kept: &Candidate, shard: &FrameMaker) -> StartError {
    let (made, published) = (kept.start.next_update, shard.next_update);
    StartError::EditionBehind { version, made, published }
}

/// The later version's acquisition by this state, until it reads on from the log's end.
fn begun(log: &Log, kept: &Candidate) -> Acquisition {
    let mut acquisition = Acquisition::begin(later(vec![kept.clone()]), log.bounds());
    loop {
        match acquisition.need() {
            Need::Read { from } => log.read(from, &mut acquisition),
            Need::States => acquisition.offer(vec![kept.clone()]),
            Need::Confirm { .. } => acquisition.follow(),
            _ => return acquisition,
        }
    }
}

#[test]
fn another_version_takes_over_at_the_end_of_what_is_published_and_says_so() {
    let (mut log, shard) = owned_log(9);
    let kept = snapshot(&log, &shard);
    let end = log.end;
    let acquired = log.acquire(later(vec![kept.clone()])).expect("acquired");
    assert_eq!((acquired.candidate, acquired.start), (Some(0), kept.start));
    assert_eq!(acquired.migrates_to, Some(LATER));
    let edition = last_frame(&log);
    assert_eq!((edition.kind, edition.count, edition.ruleset), (FrameKind::Updates, 0, LATER));
    assert_eq!((edition.first_update, edition.chain), (shard.next_update, shard.chain));
    assert_eq!((edition.owner_epoch, edition.next_offset), (2, kept.start.next_offset));
    assert_eq!(log.end, end + 2, "a fence and the edition");
    assert_eq!(acquired.mark.output_offset, log.end);
}

#[test]
fn the_edition_is_no_news_for_a_reader() {
    let (mut log, mut shard) = owned_log(9);
    let kept = snapshot(&log, &shard);
    let acquired = log.acquire(later(vec![kept])).expect("acquired");
    shard.owner_epoch = acquired.owner_epoch;
    publish(&mut log, &mut shard, LATER, 9);
    let (mut reader, mut accepted) = (Reader::new(), 0);
    for (_, bytes) in &log.records {
        let (header, updates) = decode_frame(bytes).expect("frames are readable");
        match reader.fold(&header, &updates) {
            Verdict::Accepted { from: 0 } => accepted += updates.len() as u64,
            Verdict::Fence | Verdict::Progress { is_at_next: true } => {}
            verdict => panic!("{verdict:?} of {header:?}"),
        }
    }
    assert_eq!((accepted, reader.position().chain), (shard.next_update, shard.chain));
}

#[test]
fn a_version_that_has_taken_over_starts_from_the_same_state_again() {
    let (mut log, mut shard) = owned_log(9);
    let kept = snapshot(&log, &shard);
    let first = log.acquire(later(vec![kept.clone()])).expect("acquired");
    for owner_epoch in 2..5 {
        let end = log.end;
        // Its own rules may change meanwhile.
        let rulesets = vec![9, LATER];
        let again = Brief { rulesets, ..later(vec![kept.clone()]) };
        shard.owner_epoch = owner_epoch;
        publish(&mut log, &mut shard, if owner_epoch < 4 { LATER } else { 9 }, 5);
        let acquired = log.acquire(again).expect("acquired");
        assert_eq!((acquired.start, acquired.migrates_to), (first.start, Some(LATER)));
        assert_eq!(log.end, end + 6, "five frames and a fence");
        assert_eq!(acquired.mark.next_update, shard.next_update);
    }
}

#[test]
fn a_version_does_not_take_over_in_the_middle_of_what_another_has_published() {
    let (mut log, mut shard) = owned_log(9);
    let kept = snapshot(&log, &shard);
    log.publish(&mut shard, 2);
    let end = log.end;
    let refused = log.acquire(later(vec![kept.clone()]));
    assert_eq!(refused, Err(behind(VERSION, &kept, &shard)));
    assert_eq!(log.end, end, "the owner is not disturbed");
    // An event without updates counts as well: it may have changed the state.
    let kept = snapshot(&log, &shard);
    shard.next_offset += 1;
    let frame = shard.frame(0);
    log.append(&frame.header, &frame.updates);
    let refused = log.acquire(later(vec![kept.clone()]));
    assert_eq!(refused, Err(behind(VERSION, &kept, &shard)));
    // The owner stops in order.
    let kept = snapshot(&log, &shard);
    assert!(log.acquire(later(vec![kept])).is_ok());
}

#[test]
fn what_an_owner_publishes_before_the_fence_prevents_the_take_over() {
    let (mut log, mut shard) = owned_log(9);
    let kept = snapshot(&log, &shard);
    log.elsewhere = vec![kept.clone()];
    let refused = log.acquire_beside(later(vec![kept.clone()]), |log| log.publish(&mut shard, 3));
    assert_eq!(refused, Err(behind(VERSION, &kept, &shard)));
    assert_eq!(last_frame(&log).kind, FrameKind::Fence);
    // The version before goes on, and stops in order.
    let acquired = log.acquire(brief(vec![kept])).expect("acquired");
    assert_eq!(acquired.migrates_to, None);
    shard.owner_epoch = acquired.owner_epoch;
    log.publish(&mut shard, 3);
    let kept = snapshot(&log, &shard);
    assert!(log.acquire(later(vec![kept])).is_ok());
}

/// The owner has left a state by then, and the next attempt finds it.
#[test]
fn a_version_that_waits_for_a_state_looks_again_once_the_owner_says_that_it_has_ended() {
    let (mut log, mut shard) = owned_log(9);
    let kept = snapshot(&log, &shard);
    log.publish(&mut shard, 2);
    let left = snapshot(&log, &shard);
    let mut acquisition = begun(&log, &kept);
    let from = log.end;
    assert_eq!(acquisition.need(), Need::Await { from });
    let (_, fence) = log.records.first().expect("the owner's");
    let (fence, _) = decode_frame(fence).expect("fences are readable");
    let mut say = |log: &mut Log, owner_epoch| {
        let fence_id = log.fence_ids.farewell(owner_epoch);
        let note = FrameHeader { owner_epoch: 0, fence_id, ..fence };
        let offset = log.append_empty(&note);
        acquisition.take(offset, &log.records.last().expect("just appended").1);
        acquisition.need()
    };
    assert_eq!(say(&mut log, 0), Need::Await { from: from + 1 }, "an earlier owner");
    assert_eq!(say(&mut log, 1), Need::End);
    assert_eq!(acquisition.into_outcome(), Err(behind(VERSION, &kept, &shard)));
    assert!(log.acquire(later(vec![left])).expect("acquired").migrates_to.is_some());
}

/// Its ticks are not the updates of another version, which would have to be quiet.
#[test]
fn an_owner_of_our_version_that_has_taken_over_meanwhile_does_not_have_to_be_quiet() {
    let (mut log, shard) = owned_log(9);
    let kept = snapshot(&log, &shard);
    let mut acquisition = begun(&log, &kept);
    let from = log.end;
    assert_eq!(acquisition.need(), Need::Follow { from });
    assert!(acquisition.may_other_version_publish());
    log.acquire(later(vec![kept])).expect("acquired by another instance");
    log.read(from, &mut acquisition);
    assert_eq!(acquisition.need(), Need::Follow { from: log.end });
    assert!(!acquisition.may_other_version_publish());
}

#[test]
fn other_rules_of_the_same_version_take_nothing_over() {
    let (mut log, shard) = owned_log(9);
    let kept = snapshot(&log, &shard);
    let refused = log.acquire(Brief { version: VERSION, ..later(vec![kept]) });
    assert_eq!(refused, Err(StartError::RulesetChanged { published: RULESET, ours: LATER }));
}

#[test]
fn the_version_before_comes_back_until_the_later_one_has_published() {
    let (mut log, mut shard) = owned_log(9);
    let kept = snapshot(&log, &shard);
    let first = log.acquire(later(vec![kept.clone()])).expect("acquired");
    let back = log.acquire(brief(vec![kept.clone()])).expect("acquired");
    assert_eq!((back.start, back.migrates_to), (kept.start, None));
    assert_eq!((last_frame(&log).ruleset, last_frame(&log).count), (RULESET, 0));
    let again = log.acquire(later(vec![kept.clone()])).expect("acquired");
    assert_eq!((again.start, again.migrates_to), (first.start, Some(LATER)));
    shard.owner_epoch = again.owner_epoch;
    publish(&mut log, &mut shard, LATER, 3);
    let refused = log.acquire(brief(vec![kept.clone()]));
    assert_eq!(refused, Err(behind(VERSION, &kept, &shard)));
    // The later one stops in order.
    let left = later_snapshot(&log, &shard);
    let back = log.acquire(brief(vec![left.clone(), kept.clone()])).expect("acquired");
    assert_eq!((back.start, back.migrates_to), (left.start, Some(RULESET)));
    shard.owner_epoch = back.owner_epoch;
    log.publish(&mut shard, 3);
    // A state of before both is of no use, whichever version it is of.
    let refused = log.acquire(brief(vec![kept.clone()]));
    assert_eq!(refused, Err(behind(VERSION, &kept, &shard)));
    let acquired = log.acquire(brief(vec![left.clone(), kept])).expect("acquired");
    assert_eq!((acquired.start, acquired.migrates_to), (left.start, Some(RULESET)));
}

#[test]
fn a_zone_that_starts_over_does_so_by_our_version() {
    let (mut log, mut shard) = owned_log(9);
    let kept = snapshot(&log, &shard);
    log.publish(&mut shard, 2);
    let fresh = Brief { remedy: Remedy::StartOver, ..later(vec![kept]) };
    let acquired = log.acquire(fresh).expect("acquired");
    assert_eq!((acquired.candidate, acquired.migrates_to), (None, None));
    assert_eq!((last_frame(&log).kind, last_frame(&log).ruleset), (FrameKind::Genesis, LATER));
}
