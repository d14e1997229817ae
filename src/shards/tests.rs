//! The framer: updates are numbered and chained without a gap, and what is published is held back.

use crate::hunt::change::Change;
use crate::kit::update::Update;
use crate::output::frame::{Chain, FENCE_EVERY_MS, Frame, FrameKind};
use crate::output::mark::Mark;
use crate::output::reader::{Reader, Verdict};
use crate::shards::framer::{FRAME_SILENCE_MS_MAX, Framer, Grant, Sealed, ShardRole};
use std::time::{Duration, Instant};

fn update(number: i32) -> Update {
    Update::new(7, i64::from(number), Change::Moved { x: number, y: -number, tile: 0 })
}

fn chain_of(updates: std::ops::Range<i32>) -> Chain {
    updates.fold(Chain::default(), |chain, number| chain.with(&update(number)))
}

fn framer(published: u64, published_chain: Chain, now: Instant) -> Framer {
    Framer::new(grant(published, published_chain), ShardRole::Owner, now)
}

fn grant(published: u64, published_chain: Chain) -> Grant {
    Grant {
        start_update: 0,
        start_chain: Chain::default(),
        partition: 3,
        ownership_id: 1,
        owner_epoch: 5,
        fence_id: 99,
        ruleset: 1,
        published,
        published_chain,
        published_offset: 100 + published as i64,
        start_offset: 100,
        start_leader_epoch: None,
        input_leader_epoch: -1,
        settled_offset: 100,
    }
}

/// Where a reader stands that has accepted this many of the updates.
fn mark(published: i32) -> Mark {
    Mark {
        next_update: published as u64,
        next_offset: 100 + i64::from(published),
        chain: chain_of(0..published),
        ..Mark::default()
    }
}

/// Adds updates, each from an event of its own.
fn add(framer: &mut Framer, numbers: std::ops::Range<i32>) {
    if !framer.has_frame() {
        framer.supply(Frame::new());
    }
    for number in numbers {
        framer.updates().expect("a frame has room").push(update(number));
        framer.advance(framer.next_offset() + 1);
    }
}

fn sealed(framer: &mut Framer, now: Instant) -> Option<Box<Frame>> {
    match framer.seal(now) {
        Sealed::Nothing => None,
        Sealed::Frame(frame) => Some(frame),
        Sealed::Diverged { at } => panic!("diverged at {at}"),
    }
}

#[test]
fn a_reader_accepts_every_frame_whole() {
    let now = Instant::now();
    let mut framer = framer(0, Chain::default(), now);
    let mut reader = Reader::new();
    for round in 0..10 {
        add(&mut framer, round * 50..(round + 1) * 50);
        let frame = sealed(&mut framer, now).expect("updates wait");
        assert_eq!(frame.header.first_update, round as u64 * 50);
        let verdict = reader.fold(&frame.header, frame.updates.as_slice());
        assert!(matches!(verdict, Verdict::Accepted { from: 0 }), "{verdict:?}");
    }
    assert_eq!(reader.position().next_update, 500);
    assert_eq!(reader.position().next_offset, 600);
    assert_eq!(reader.position().chain, chain_of(0..500));
}

#[test]
fn a_frame_tells_when_the_input_of_its_oldest_update_arrived() {
    let now = Instant::now();
    let mut framer = framer(0, Chain::default(), now);
    let later = now + Duration::from_millis(3);
    add(&mut framer, 0..0);
    framer.received(Some(now));
    add(&mut framer, 0..5);
    framer.received(Some(later));
    add(&mut framer, 5..9);
    let frame = sealed(&mut framer, later).expect("updates wait");
    assert_eq!(frame.received_at, Some(now));
}

#[test]
fn a_replay_publishes_from_the_first_update_that_is_not_published_yet() {
    let now = Instant::now();
    // Before, at and behind a frame's end.
    for published in [1, 29, 30, 31, 59, 60, 75] {
        let mut framer = framer(published, chain_of(0..published as i32), now);
        let mut next = published;
        for round in 0..4 {
            add(&mut framer, round * 30..(round + 1) * 30);
            let Some(frame) = sealed(&mut framer, now) else {
                assert!((round as u64 + 1) * 30 <= published);
                continue;
            };
            assert_eq!(frame.header.first_update, next, "published {published}");
            assert_eq!(frame.updates.as_slice()[0], update(next as i32));
            next += u64::from(frame.header.count);
            assert_eq!(frame.header.chain, chain_of(0..next as i32));
        }
        assert_eq!(next, 120);
    }
}

#[test]
fn a_replay_that_makes_other_updates_is_stopped_before_it_publishes_any() {
    let now = Instant::now();
    for published in [10, 30, 45] {
        let other = chain_of(1..published + 1);
        let mut framer = framer(published as u64, other, now);
        let diverged = (0..2).any(|round| {
            add(&mut framer, round * 30..(round + 1) * 30);
            match framer.seal(now) {
                Sealed::Diverged { at } => {
                    assert_eq!(at, published as u64);
                    true
                }
                Sealed::Frame(_) => panic!("published although the chains differ"),
                Sealed::Nothing => false,
            }
        });
        assert!(diverged, "published {published}");
    }
}

#[test]
fn a_replay_that_makes_fewer_updates_than_are_published_is_noticed_when_its_input_is_passed() {
    let now = Instant::now();
    let mut framer = framer(30, chain_of(0..30), now);
    add(&mut framer, 0..20);
    assert!(sealed(&mut framer, now).is_none());
    framer.advance(129);
    assert!(!framer.has_fallen_short(), "one event is left that may make the rest");
    framer.advance(130);
    assert!(framer.has_fallen_short());
}

#[test]
fn a_replay_that_makes_fewer_updates_is_noticed_with_its_last_ones() {
    let now = Instant::now();
    for (next_offset, falls_short) in [(129, false), (130, true)] {
        let mut framer = framer(30, chain_of(0..30), now);
        add(&mut framer, 0..20);
        framer.advance(next_offset);
        assert!(!framer.has_fallen_short(), "updates wait that may be the rest");
        let sealed = framer.seal_position(now);
        assert_eq!(matches!(sealed, Sealed::Diverged { at: 20 }), falls_short, "{next_offset}");
    }
}

#[test]
fn a_shard_without_updates_tells_how_far_its_input_is_and_only_when_it_moved() {
    let now = Instant::now();
    let later = now + Duration::from_millis(FRAME_SILENCE_MS_MAX);
    let mut framer = framer(0, Chain::default(), now);
    framer.supply(Frame::new());
    assert_eq!(framer.silence_ends_at(), None);
    assert!(matches!(framer.seal_position(later), Sealed::Nothing));
    framer.advance(130);
    assert_eq!(framer.silence_ends_at(), Some(later));
    let Sealed::Frame(frame) = framer.seal_position(later) else { panic!("the input moved") };
    assert_eq!((frame.header.count, frame.header.next_offset), (0, 130));
    assert_eq!(framer.silence_ends_at(), None);
}

#[test]
fn the_fence_is_repeated_where_the_shard_stands_but_not_during_a_replay() {
    let now = Instant::now();
    let later = now + Duration::from_millis(FENCE_EVERY_MS);
    let mut framer = framer(20, chain_of(0..20), now);
    add(&mut framer, 0..10);
    assert!(sealed(&mut framer, now).is_none());
    assert!(!framer.is_fence_due(later), "a replay is not yet where its output is");
    add(&mut framer, 10..40);
    assert!(!framer.is_fence_due(later), "updates wait");
    assert!(sealed(&mut framer, now).is_some());
    assert!(!framer.is_fence_due(now), "it is too early");
    assert!(framer.is_fence_due(later));
    assert!(framer.fence(later).is_none(), "there is no frame to write to");
    framer.supply(Frame::new());
    let fence = framer.fence(later).expect("a frame is there");
    assert_eq!(fence.header.kind, FrameKind::Fence);
    assert_eq!((fence.header.owner_epoch, fence.header.fence_id), (5, 99));
    let mut reader = Reader::joining();
    assert_eq!(reader.fold(&fence.header, &[]), Verdict::Joined);
    assert_eq!(reader.position().next_update, 40);
    assert_eq!(reader.position().next_offset, 140);
    assert_eq!(reader.position().chain, chain_of(0..40));
    assert!(!framer.is_fence_due(later));
}

#[test]
fn a_follower_publishes_nothing_until_it_is_promoted_and_then_what_is_not_published() {
    let now = Instant::now();
    let later = now + Duration::from_millis(FENCE_EVERY_MS);
    let mut framer = Framer::new(grant(0, Chain::default()), ShardRole::Follower, now);
    for published in [10, 25, 40] {
        framer.cover(mark(published));
        assert_eq!(framer.gate(), Some(100 + i64::from(published)));
        let made = framer.next_update() as i32;
        add(&mut framer, made..published);
        assert!(matches!(framer.seal_position(later), Sealed::Nothing));
        assert!(!framer.is_fence_due(later) && framer.silence_ends_at().is_none());
    }
    let owner = Grant { owner_epoch: 6, fence_id: 100, ..grant(45, chain_of(0..45)) };
    framer.promote(owner, now);
    assert_eq!(framer.gate(), None);
    add(&mut framer, 40..60);
    let frame = sealed(&mut framer, now).expect("updates wait");
    assert_eq!((frame.header.owner_epoch, frame.header.first_update), (6, 45));
    assert_eq!((frame.header.count, frame.header.chain), (15, chain_of(0..60)));
}

#[test]
fn a_promoted_shard_without_updates_says_where_it_stands() {
    let now = Instant::now();
    let mut framer = Framer::new(grant(0, Chain::default()), ShardRole::Follower, now);
    framer.cover(mark(10));
    add(&mut framer, 0..10);
    assert!(sealed(&mut framer, now).is_none());
    framer.promote(grant(10, chain_of(0..10)), now);
    let Sealed::Frame(frame) = framer.seal_position(now) else { panic!("it says nothing") };
    assert_eq!((frame.header.count, frame.header.next_offset), (0, 110));
}

#[test]
fn a_follower_that_makes_fewer_or_other_updates_than_are_published_is_stopped() {
    let now = Instant::now();
    for made in [0..9, 1..11] {
        let mut framer = Framer::new(grant(0, Chain::default()), ShardRole::Follower, now);
        framer.cover(mark(10));
        add(&mut framer, made.clone());
        framer.advance(111);
        assert!(matches!(framer.seal(now), Sealed::Diverged { .. }), "{made:?}");
    }
}

/// A program that is no owner may have published that more input is covered.
#[test]
fn what_a_follower_makes_beyond_the_published_updates_is_compared_once_they_are_published() {
    let now = Instant::now();
    for (published, is_right) in [(mark(15), true), (Mark { chain: Chain(1), ..mark(15) }, false)] {
        let mut framer = Framer::new(grant(0, Chain::default()), ShardRole::Follower, now);
        framer.cover(Mark { next_offset: 112, ..mark(10) });
        add(&mut framer, 0..12);
        assert!(matches!(framer.seal_position(now), Sealed::Nothing));
        assert_eq!(framer.next_update(), 12);
        framer.cover(published);
        add(&mut framer, 12..15);
        let sealed = framer.seal_position(now);
        assert_eq!(matches!(sealed, Sealed::Nothing), is_right);
        assert_eq!(matches!(sealed, Sealed::Diverged { at: 15 }), !is_right);
    }
}
