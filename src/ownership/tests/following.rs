//! Shards that follow another owner, and take its output over once they are warm.

use crate::hunt::frames::encode;
use crate::kafka::membership::MembershipEvent;
use crate::kafka::topic_error::TopicError;
use crate::output::fence_id::FenceIds;
use crate::output::frame::{FENCE_EVERY_MS, Format, FrameHeader};
use crate::ownership::START_ERROR_MS_MAX;
use crate::ownership::action::{Note, OwnershipAction};
use crate::ownership::event::{OutputEvent, OwnershipEvent, ShardNotice};
use crate::ownership::shard_state::WARM_MS_MAX;
use crate::ownership::start_error::StartError;
use crate::ownership::tests::log::{INPUT_ID, RULESET};
use crate::ownership::tests::owning::{Daemon, answer};
use crate::testing::frame_maker::FrameMaker;

/// A daemon that was given a partition whose owner has published some frames.
fn beside_an_owner() -> (Daemon, FrameMaker) {
    begin_beside_an_owner(Daemon::new())
}

fn begin_beside_an_owner(mut daemon: Daemon) -> (Daemon, FrameMaker) {
    let mut owner = FrameMaker::new(0);
    for _ in 0..9 {
        publish(&mut daemon, &mut owner);
    }
    daemon.followed_to = 0;
    daemon.group(MembershipEvent::Assigned(vec![0]));
    daemon.pass(0, 0, false);
    (daemon, owner)
}

/// A daemon whose engine is warm, and its fence, which the broker does not acknowledge.
fn with_fence_on_its_way() -> (Daemon, FrameHeader) {
    let (mut daemon, owner) = beside_an_owner();
    daemon.takes_frames = false;
    daemon.followed_to = owner.next_offset;
    daemon.pass(1, 0, false);
    daemon.pass(1, 0, false);
    let fence = daemon.done.iter().find_map(|done| match done {
        OwnershipAction::Append { header, .. } => Some(*header),
        _ => None,
    });
    (daemon, fence.expect("it fences"))
}

/// The owner publishes a frame, and the daemon reads it.
pub(super) fn publish(daemon: &mut Daemon, owner: &mut FrameMaker) {
    let frame = owner.frame(2);
    let mut payload = Vec::new();
    encode(Format::Binary, &frame.header, frame.updates.as_slice(), &mut payload);
    let records = daemon.outputs.entry(0).or_default();
    records.push(payload.clone());
    let (partition, offset) = (0, records.len() as i64 - 1);
    let record = OutputEvent::Record { partition, offset, payload: &payload };
    daemon.hear(OwnershipEvent::Output(record));
    if !daemon.is_endless {
        daemon.hear(OwnershipEvent::Output(OutputEvent::End { partition }));
    }
}

pub(super) fn follows(daemon: &Daemon) -> usize {
    let is_follow = |done: &&OwnershipAction| matches!(done, OwnershipAction::Follow(_));
    daemon.done.iter().filter(is_follow).count()
}

pub(super) fn is_promoted(daemon: &Daemon) -> bool {
    daemon.done.iter().any(|done| matches!(done, OwnershipAction::Promote(_)))
}

/// Records that are no frames of the owner.
fn fences(daemon: &Daemon) -> usize {
    daemon.outputs[&0].len() - 9
}

#[test]
fn no_other_zone_is_loaded_for_a_moment_after_a_fence_was_written() {
    let (mut daemon, _fence) = with_fence_on_its_way();
    daemon.group(MembershipEvent::Assigned(vec![1]));
    daemon.pass(100, 0, false);
    assert_eq!(follows(&daemon), 1, "the other zone waits");
    // The broker does not answer.
    daemon.pass(200, 0, false);
    assert_eq!(follows(&daemon), 2);
}

#[test]
fn nothing_is_fenced_before_the_engine_has_come_to_what_the_output_covers() {
    let (mut daemon, owner) = beside_an_owner();
    for _ in 0..100 {
        daemon.pass(WARM_MS_MAX, 0, false);
    }
    assert_eq!((follows(&daemon), fences(&daemon)), (1, 0), "it has applied nothing");
    daemon.followed_to = owner.next_offset;
    daemon.pass(1, 0, false);
    daemon.pass(1, 0, false);
    assert_eq!((fences(&daemon), is_promoted(&daemon)), (1, true));
    let opening = daemon.openings()[0];
    assert_eq!(opening.acquired.mark.next_update, owner.next_update);
    assert_eq!(follows(&daemon), 1, "the engine that has followed goes on");
}

#[test]
fn an_output_whose_end_is_never_reported_is_taken_over_once_it_was_read_for_a_while() {
    let mut endless = Daemon::new();
    endless.is_endless = true;
    let (mut daemon, mut owner) = begin_beside_an_owner(endless);
    let mut play = |daemon: &mut Daemon, rounds: u32| {
        for _ in 0..rounds {
            publish(daemon, &mut owner);
            daemon.followed_to = owner.next_offset;
            daemon.pass(50, 0, false);
        }
        is_promoted(daemon)
    };
    assert!(!play(&mut daemon, 35));
    assert!(play(&mut daemon, 10));
}

#[test]
fn an_engine_that_follows_is_told_how_far_the_output_is() {
    let (mut daemon, mut owner) = beside_an_owner();
    publish(&mut daemon, &mut owner);
    daemon.pass(1, 0, false);
    let mut covers = daemon.done.iter().filter_map(|done| match done {
        OwnershipAction::Cover(cover) => Some(cover.mark.next_offset),
        _ => None,
    });
    assert_eq!(covers.next_back(), Some(owner.next_offset));
}

#[test]
fn an_engine_that_makes_other_updates_never_fences() {
    let (mut daemon, _owner) = beside_an_owner();
    for _ in 0..2 {
        let following = daemon.done.iter().rev().find_map(|done| match done {
            OwnershipAction::Follow(opening) => Some(opening.ownership_id),
            _ => None,
        });
        let ownership_id = following.expect("it follows");
        let (partition, error) = (0, StartError::Diverged { update: 5 });
        let diverged = ShardNotice::Diverged { partition, ownership_id, error };
        daemon.hear(OwnershipEvent::Shard(diverged));
        daemon.pass(5_000, 0, false);
    }
    assert_eq!((daemon.ownership.summary().halted, fences(&daemon)), (1, 0));
}

/// It may have come there before it was told how much is published of that input.
#[test]
fn an_engine_that_makes_fewer_updates_never_fences() {
    let (mut daemon, owner) = beside_an_owner();
    (daemon.followed_to, daemon.made) = (owner.next_offset, Some(owner.next_update - 1));
    daemon.pass(1, 0, false);
    daemon.pass(1, 0, false);
    assert_eq!(fences(&daemon), 0);
    daemon.made = Some(owner.next_update);
    daemon.pass(1, 0, false);
    daemon.pass(1, 0, false);
    assert_eq!((fences(&daemon), is_promoted(&daemon)), (1, true));
}

#[test]
fn an_engine_that_cannot_promote_begins_again_once_the_output_is_ours() {
    let (mut daemon, owner) = beside_an_owner();
    let ownership_id = 1;
    daemon.hear(OwnershipEvent::Shard(ShardNotice::CannotTakeOver { partition: 0, ownership_id }));
    daemon.followed_to = owner.next_offset;
    daemon.pass(1, 0, false);
    daemon.pass(1, 0, false);
    assert!(!is_promoted(&daemon) && daemon.has_done(&OwnershipAction::Drop { partition: 0 }));
    assert_eq!((daemon.open(), fences(&daemon)), (vec![0], 1));
}

#[test]
fn what_the_group_says_is_settled_is_not_sent_again_unless_the_output_does_not_cover_it() {
    for (committed, settled) in [(3, 3), (1 << 40, 0)] {
        let (mut daemon, owner) = beside_an_owner();
        daemon.group_answers = false;
        daemon.followed_to = owner.next_offset;
        daemon.pass(1, 0, false);
        daemon.pass(1, 0, false);
        let asked = daemon.done.iter().rev().find_map(|done| match done {
            OwnershipAction::Ask { question, .. } => Some(*question),
            _ => None,
        });
        let question = asked.expect("the group is asked before the fence");
        let MembershipEvent::Answered { is_member, .. } = answer(question, true) else {
            unreachable!("it is an answer");
        };
        let committed = vec![(0, committed)];
        daemon.group(MembershipEvent::Answered { question, is_member, committed });
        daemon.pass(1, 0, false);
        assert_eq!(daemon.openings()[0].settled_offset, settled);
    }
}

/// A daemon that was given a partition whose frames come from rules that it does not have.
struct BesideOtherRules {
    daemon: Daemon,
    owner: FrameMaker,
    fence_id: u128,
}

impl BesideOtherRules {
    fn begin(fence_id: u128) -> BesideOtherRules {
        let mut beside =
            BesideOtherRules { daemon: Daemon::new(), owner: FrameMaker::new(0), fence_id };
        beside.publish(-1);
        beside.daemon.group(MembershipEvent::Assigned(vec![0]));
        beside.daemon.pass(0, 0, false);
        beside
    }

    /// The owner publishes a fence.
    fn publish(&mut self, next_offset: i64) {
        let fence = self.owner.fence(self.fence_id);
        let mut payload = Vec::new();
        let header = FrameHeader { ruleset: 8, next_offset, ..fence };
        encode(Format::Binary, &header, &[], &mut payload);
        self.daemon.outputs.entry(0).or_default().push(payload);
    }

    /// The owner plays on: what it publishes next is not at the offset of the last fence.
    fn play(&mut self) {
        self.owner.frame(0);
        let next_offset = self.owner.fence(self.fence_id).next_offset;
        self.publish(next_offset);
    }

    /// Why the shard has halted.
    fn halted_for(&self) -> Option<StartError> {
        self.daemon.done.iter().find_map(|done| match done {
            OwnershipAction::Log(Note::Halted { start_error, .. }) => *start_error,
            _ => None,
        })
    }
}

const OTHER_RULES: StartError = StartError::RulesetChanged { published: 8, ours: RULESET };

#[test]
fn a_start_that_fails_beside_a_living_rival_blames_the_rival() {
    for (lives, halted_for) in [(true, StartError::Contended), (false, OTHER_RULES)] {
        let mut beside = BesideOtherRules::begin(77);
        beside.daemon.pass(START_ERROR_MS_MAX, 0, false);
        assert_eq!(beside.halted_for(), None, "it is tried again");
        if lives {
            beside.play();
        }
        beside.daemon.pass(FENCE_EVERY_MS, 0, false);
        assert_eq!(beside.halted_for(), Some(halted_for));
    }
}

/// The owner may be of another version: it leaves its state when it stops.
#[test]
fn a_start_that_fails_is_tried_again_for_as_long_as_another_instance_of_the_group_plays() {
    let mut fence_ids = FenceIds::new("huntd", 2);
    fence_ids.read_from(&INPUT_ID);
    let mut beside = BesideOtherRules::begin(fence_ids.next());
    for _ in 0..20 {
        beside.play();
        beside.daemon.pass(FENCE_EVERY_MS, 0, false);
        assert_eq!(beside.halted_for(), None);
    }
    for _ in 0..2 {
        beside.daemon.pass(START_ERROR_MS_MAX + FENCE_EVERY_MS, 0, false);
    }
    assert_eq!(beside.halted_for(), Some(OTHER_RULES), "nobody plays any more");
}

/// It would never learn of that input without a start.
#[test]
fn a_shard_halts_that_another_instance_plays_from_an_input_of_which_this_one_does_not_know() {
    let mut fence_ids = FenceIds::new("huntd", 2);
    fence_ids.read_from(&[9; 16]);
    let mut beside = BesideOtherRules::begin(fence_ids.next());
    for halted_for in [None, None, None, Some(StartError::InputRecreated)] {
        assert_eq!(beside.halted_for(), halted_for);
        let frame = beside.owner.frame(2);
        let mut payload = Vec::new();
        encode(Format::Binary, &frame.header, frame.updates.as_slice(), &mut payload);
        beside.daemon.outputs.entry(0).or_default().push(payload);
        beside.daemon.pass(FENCE_EVERY_MS, 0, false);
    }
}

/// Its fence has ended the owner before.
#[test]
fn a_zone_that_the_group_gives_away_after_its_fence_is_played_until_another_has_fenced_it() {
    for event in [MembershipEvent::Revoked(vec![0]), MembershipEvent::Lost(vec![0])] {
        let (mut daemon, fence) = with_fence_on_its_way();
        daemon.group(event);
        daemon.append(0, &fence);
        daemon.pass(1, 0, false);
        assert!(is_promoted(&daemon));
        assert_eq!(daemon.ownership.summary().open, 1);
    }
}

/// Without copies, nothing else would end it.
#[test]
fn a_zone_whose_fence_fails_after_the_group_gave_it_away_is_not_followed_any_more() {
    let (mut daemon, _fence) = with_fence_on_its_way();
    daemon.group(MembershipEvent::Revoked(vec![0]));
    daemon.pass(1, 0, false);
    assert_eq!(daemon.ownership.summary().copies, 1, "its fence is on its way");
    let error = TopicError::NotNow("the leader is away".to_owned());
    daemon.hear(OwnershipEvent::Output(OutputEvent::RequestFailed { partition: 0, error }));
    daemon.pass(10_000, 0, false);
    let summary = daemon.ownership.summary();
    assert_eq!((summary.acquiring, summary.copies, summary.open), (0, 0, 0));
}
