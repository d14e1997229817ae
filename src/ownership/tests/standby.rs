//! Copies of zones that other instances own: when they begin, end, and take over.

use crate::hunt::frames::encode;
use crate::kafka::READ_STALL_MS_MAX;
use crate::kafka::membership::{GroupMember, GroupView, MembershipError, MembershipEvent};
use crate::kafka::quiet_outputs::QuietOutput;
use crate::kafka::topic_error::TopicError;
use crate::kit::update::Update;
use crate::output::fence_id::{FenceIds, is_resignation};
use crate::output::frame::{Format, FrameHeader};
use crate::ownership::acquisition::Remedy;
use crate::ownership::action::{CopyNews, Note, OwnershipAction, TakeoverCause};
use crate::ownership::event::{OutputEvent, OwnershipEvent, ShardNotice};
use crate::ownership::standby::StandbyOptions;
use crate::ownership::start_error::StartError;
use crate::ownership::tests::following::{follows, is_promoted, publish};
use crate::ownership::tests::log::INPUT_ID;
use crate::ownership::tests::owning::{Daemon, PARTITIONS, answer, fence_with};
use crate::testing::frame_maker::FrameMaker;
use std::collections::BTreeMap;
use std::time::Duration;

const SILENCE_MS: u32 = 600;

/// Milliseconds of the first silence, and some more.
const LONG_MS: u64 = SILENCE_MS as u64 + 100;

/// What all instances of the deployment write fences with.
fn fence_ids() -> FenceIds {
    let mut fence_ids = FenceIds::new("huntd", 2);
    fence_ids.read_from(&INPUT_ID);
    fence_ids
}

/// This instance in the group.
const OURS: &str = "ours";

/// A group in which another instance owns partition 0, and this one the others.
fn view() -> GroupView {
    let member = |id: &str, partitions: Vec<i32>| GroupMember {
        id: id.to_owned(),
        host: id.to_owned(),
        partitions,
    };
    let members = vec![member("owner", vec![0]), member(OURS, (1..PARTITIONS).collect())];
    GroupView { members, committed: vec![(0, 3)], ..GroupView::default() }
}

/// A daemon with a copy of partition 0, which has come to what its owner has published.
fn beside_an_owner() -> (Daemon, FrameMaker) {
    beside_an_owner_with(1)
}

/// A daemon with so many copies of each zone, beside the owner of partition 0.
fn beside_an_owner_with(copies: u32) -> (Daemon, FrameMaker) {
    let is_without_group = false;
    let standby = StandbyOptions { copies, silence_ms: SILENCE_MS, is_without_group };
    begin_beside_an_owner(Daemon::with_copies(standby))
}

fn begin_beside_an_owner(mut daemon: Daemon) -> (Daemon, FrameMaker) {
    let mut owner = FrameMaker::new(0);
    append(&mut daemon, FrameHeader { next_offset: -1, ..owner.fence(fence_ids().next()) });
    for _ in 0..9 {
        publish(&mut daemon, &mut owner);
    }
    daemon.group(MembershipEvent::Assigned(Vec::new()));
    daemon.hear(OwnershipEvent::GroupSeen { view: &view(), ours: OURS });
    keep_up(&mut daemon, &owner);
    rest(&mut daemon, 50);
    (daemon, owner)
}

/// The output of partition 0 has fallen quiet.
fn see_quiet(daemon: &mut Daemon) {
    see_quiet_for(daemon, &[0], Duration::from_millis(500));
}

/// The outputs of these partitions have fallen quiet this long ago.
fn see_quiet_for(daemon: &mut Daemon, partitions: &[i32], owed: Duration) {
    let quiet = partitions.iter().map(|partition| (*partition, quiet_for(owed)));
    let view = GroupView { quiet: quiet.collect(), ..view() };
    daemon.hear(OwnershipEvent::GroupSeen { view: &view, ours: OURS });
}

/// An output that has fallen quiet this long ago, and has grown again since.
fn quiet_for(owed: Duration) -> QuietOutput {
    QuietOutput { owed, end: 0 }
}

/// The copy has applied all that its owner has published.
fn keep_up(daemon: &mut Daemon, owner: &FrameMaker) {
    daemon.followed_to = owner.next_offset;
    daemon.decoded = daemon.decoded.max(owner.next_offset);
}

/// Time passes, and the control thread turns all the while.
fn rest(daemon: &mut Daemon, duration_ms: u64) {
    for _ in 0..duration_ms.div_ceil(10) {
        daemon.pass(10, 0, false);
    }
}

/// A frame without updates comes into the output of partition 0, and the daemon reads it.
fn append(daemon: &mut Daemon, header: FrameHeader) -> i64 {
    append_frame(daemon, &header, &[])
}

fn append_frame(daemon: &mut Daemon, header: &FrameHeader, updates: &[Update]) -> i64 {
    let mut payload = Vec::new();
    encode(Format::Binary, header, updates, &mut payload);
    let records = daemon.outputs.entry(0).or_default();
    records.push(payload.clone());
    let (partition, offset) = (0, records.len() as i64 - 1);
    let record = OutputEvent::Record { partition, offset, payload: &payload };
    daemon.hear(OwnershipEvent::Output(record));
    daemon.hear(OwnershipEvent::Output(OutputEvent::End { partition }));
    offset
}

/// The notes that the daemon wants to append, in order.
fn notes(daemon: &Daemon) -> Vec<(i32, FrameHeader)> {
    let note = |done: &OwnershipAction| match done {
        OwnershipAction::Note { partition, header } => Some((*partition, *header)),
        _ => None,
    };
    daemon.done.iter().filter_map(note).collect()
}

/// The last probe is in the output.
fn answer_probe(daemon: &mut Daemon) {
    let (partition, header) = notes(daemon).pop().expect("the owner is silent");
    let offset = Some(append(daemon, header));
    daemon.hear(OwnershipEvent::Output(OutputEvent::Noted { partition, offset }));
}

/// The owner of partition 0 owes something, and says nothing.
fn assert_takes_over_from_silence(daemon: &mut Daemon) {
    rest(daemon, u64::from(SILENCE_MS) * 2 / 3 + 10);
    answer_probe(daemon);
    rest(daemon, LONG_MS);
    assert!(is_promoted(daemon));
    assert!(matches!(causes(daemon)[..], [TakeoverCause::Silence(_)]));
}

fn causes(daemon: &Daemon) -> Vec<TakeoverCause> {
    let cause = |done: &OwnershipAction| match done {
        OwnershipAction::Log(Note::Copy { news: CopyNews::TakesOver(cause), .. }) => Some(*cause),
        _ => None,
    };
    daemon.done.iter().filter_map(cause).collect()
}

#[test]
fn a_copy_follows_without_a_word_of_the_group_and_fences_nothing_while_its_owner_plays() {
    let (mut daemon, mut owner) = beside_an_owner();
    for _ in 0..200 {
        publish(&mut daemon, &mut owner);
        keep_up(&mut daemon, &owner);
        rest(&mut daemon, 50);
    }
    let has_asked = daemon.done.iter().any(|done| matches!(done, OwnershipAction::Ask { .. }));
    assert!(!has_asked && !is_promoted(&daemon));
    assert_eq!((follows(&daemon), notes(&daemon).len()), (1, 0));
    let summary = daemon.ownership.summary();
    assert_eq!((summary.copies, summary.acquiring, summary.open), (1, 0, 0));
    assert_eq!(daemon.ownership.warm_copies(daemon.now), 1);
}

/// They would share one core with them.
#[test]
fn copies_begin_once_the_zones_of_the_instance_are_open_or_take_too_long() {
    let is_copied = |daemon: &Daemon| {
        daemon.done.iter().any(|done| match done {
            OwnershipAction::Follow(opening) => opening.acquired.partition == 0,
            _ => false,
        })
    };
    for is_answered in [true, false] {
        let standby = StandbyOptions { copies: 1, silence_ms: 0, is_without_group: false };
        let mut daemon = Daemon::with_copies(standby);
        daemon.group_answers = false;
        daemon.group(MembershipEvent::Assigned((1..PARTITIONS).collect()));
        daemon.hear(OwnershipEvent::GroupSeen { view: &view(), ours: OURS });
        rest(&mut daemon, 4_000);
        assert!(!is_copied(&daemon));
        if is_answered {
            daemon.group_answers = true;
            daemon.group(answer(1, true));
            rest(&mut daemon, 50);
            assert_eq!(daemon.open(), (1..PARTITIONS).collect::<Vec<i32>>());
        } else {
            rest(&mut daemon, 1_100);
        }
        assert!(is_copied(&daemon), "{is_answered}");
    }
}

/// Reads of outputs that nobody has answered.
fn reads(daemon: &Daemon) -> Vec<i64> {
    let from = |done: &OwnershipAction| match done {
        OwnershipAction::Read { from, .. } => Some(*from),
        _ => None,
    };
    daemon.done.iter().filter_map(from).collect()
}

#[test]
fn a_copy_of_which_nothing_comes_is_not_warm_and_is_read_again() {
    let (mut daemon, _owner) = beside_an_owner();
    daemon.output_answers = false;
    let is_warm = |daemon: &Daemon| daemon.ownership.warm_copies(daemon.now) == 1;
    rest(&mut daemon, 14_000);
    assert!(is_warm(&daemon) && reads(&daemon).is_empty(), "an idle owner repeats its fence");
    daemon.pass(60_000, 0, false);
    rest(&mut daemon, 50);
    assert!(is_warm(&daemon) && reads(&daemon).is_empty(), "this thread has stood still");
    rest(&mut daemon, 4_000);
    assert!(!is_warm(&daemon));
    let [from] = reads(&daemon)[..] else { panic!("{:?}", reads(&daemon)) };
    // Its owner is gone, and the end is where it was.
    daemon.read(0, from);
    rest(&mut daemon, 50);
    assert!(is_warm(&daemon));
}

#[test]
fn a_copy_of_which_nothing_comes_for_long_begins_again() {
    let (mut daemon, _owner) = beside_an_owner();
    daemon.output_answers = false;
    rest(&mut daemon, 15_000 + READ_STALL_MS_MAX + 1_000);
    assert!(daemon.has_done(&OwnershipAction::Forget { partition: 0 }));
    daemon.output_answers = true;
    rest(&mut daemon, READ_STALL_MS_MAX + 1_000);
    assert_eq!((follows(&daemon), daemon.ownership.warm_copies(daemon.now)), (2, 1));
}

#[test]
fn without_copies_one_is_made_of_a_zone_that_falls_quiet_and_takes_it_over() {
    let (mut daemon, owner) = beside_an_owner_with(0);
    assert_eq!((follows(&daemon), daemon.ownership.summary().copies), (0, 0));
    see_quiet(&mut daemon);
    keep_up(&mut daemon, &owner);
    rest(&mut daemon, 50);
    assert_eq!((follows(&daemon), daemon.ownership.summary().copies), (1, 1));
    daemon.decoded += 1;
    assert_takes_over_from_silence(&mut daemon);
}

#[test]
fn a_copy_that_comes_to_the_end_of_a_quiet_output_probes_its_owner_and_takes_over() {
    let (mut daemon, owner) = beside_an_owner_with(0);
    let (owed, end) = (Duration::from_millis(LONG_MS), daemon.outputs[&0].len() as i64);
    let quiet = BTreeMap::from([(0, QuietOutput { owed, end })]);
    let view = GroupView { quiet, ..view() };
    daemon.hear(OwnershipEvent::GroupSeen { view: &view, ours: OURS });
    keep_up(&mut daemon, &owner);
    daemon.decoded += 1;
    rest(&mut daemon, 50);
    assert!(causes(&daemon).is_empty(), "nothing shows that records reach the output");
    answer_probe(&mut daemon);
    rest(&mut daemon, 50);
    assert_eq!(causes(&daemon).len(), 1);
}

#[test]
fn a_copy_that_has_taken_a_zone_over_and_halts_does_not_take_it_over_again_and_again() {
    let (mut daemon, owner) = beside_an_owner_with(0);
    see_quiet(&mut daemon);
    keep_up(&mut daemon, &owner);
    rest(&mut daemon, 50);
    daemon.decoded += 1;
    rest(&mut daemon, u64::from(SILENCE_MS) * 2 / 3 + 10);
    answer_probe(&mut daemon);
    rest(&mut daemon, LONG_MS);
    assert!(is_promoted(&daemon));
    let ownership_id = daemon.openings().last().expect("it has taken it over").ownership_id;
    let sentence = "a dead letter cannot be stored".to_owned();
    let halted = ShardNotice::Halted { partition: 0, ownership_id, sentence };
    daemon.hear(OwnershipEvent::Shard(halted));
    for _ in 0..25 {
        see_quiet(&mut daemon);
        rest(&mut daemon, 1_000);
        daemon.hear(OwnershipEvent::GroupSeen { view: &view(), ours: OURS });
    }
    assert_eq!(follows(&daemon), 1, "its cause is in the zone");
    rest(&mut daemon, 5_000);
    see_quiet(&mut daemon);
    rest(&mut daemon, 10 * LONG_MS);
    assert_eq!((follows(&daemon), causes(&daemon).len()), (2, 1), "it would halt there again");
    let mut next = FrameMaker { owner_epoch: 3, ..owner };
    append(&mut daemon, FrameHeader { next_offset: -1, ..next.fence(fence_ids().next()) });
    publish(&mut daemon, &mut next);
    keep_up(&mut daemon, &next);
    rest(&mut daemon, 50);
    daemon.decoded += 1;
    while notes(&daemon).len() == 1 {
        rest(&mut daemon, 10);
    }
    answer_probe(&mut daemon);
    rest(&mut daemon, 60_000);
    assert_eq!(causes(&daemon).len(), 2, "it has gone on since");
}

#[test]
fn no_copy_reads_the_whole_of_a_long_output_because_its_owner_pauses() {
    for (copies, is_left) in [(0, true), (1, false)] {
        let mut daemon = Daemon::with_copies(StandbyOptions {
            copies,
            silence_ms: SILENCE_MS,
            is_without_group: false,
        });
        daemon.more = 2_000_000;
        daemon.group(MembershipEvent::Assigned(Vec::new()));
        see_quiet(&mut daemon);
        rest(&mut daemon, 50);
        let is_end = |done: &OwnershipAction| {
            matches!(done, OwnershipAction::Log(Note::Copy { news: CopyNews::Ends(_), .. }))
        };
        assert_eq!(daemon.done.iter().any(is_end), is_left);
    }
}

#[test]
fn a_copy_that_loads_for_long_is_kept_as_long_as_its_zone_is_quiet() {
    let (mut daemon, _owner) = beside_an_owner_with(0);
    see_quiet(&mut daemon);
    rest(&mut daemon, 11_000);
    see_quiet(&mut daemon);
    // Its own probe lets the output grow.
    daemon.hear(OwnershipEvent::GroupSeen { view: &view(), ours: OURS });
    assert_eq!((daemon.ownership.summary().copies, follows(&daemon)), (1, 1));
}

#[test]
fn a_copy_of_a_zone_that_goes_on_after_all_ends() {
    let (mut daemon, mut owner) = beside_an_owner_with(0);
    see_quiet(&mut daemon);
    let mut see_it_go_on = |times| {
        for _ in 0..times {
            publish(&mut daemon, &mut owner);
            keep_up(&mut daemon, &owner);
            daemon.hear(OwnershipEvent::GroupSeen { view: &view(), ours: OURS });
            rest(&mut daemon, 100);
        }
        daemon.ownership.summary().copies
    };
    assert_eq!(see_it_go_on(90), 1);
    assert_eq!(see_it_go_on(20), 0);
    assert!(!is_promoted(&daemon));
}

#[test]
fn while_zones_of_several_owners_are_quiet_a_copy_is_made_later() {
    let (mut daemon, _owner) = beside_an_owner_with(0);
    let mut copies_after = |partitions: &[i32], ms: u64| {
        see_quiet_for(&mut daemon, partitions, Duration::from_millis(ms));
        rest(&mut daemon, 50);
        daemon.ownership.summary().copies
    };
    assert_eq!(copies_after(&[0, 1], 500), 0, "the brokers pause");
    assert_eq!(copies_after(&[0, 1], 2_000), 1, "or both owners are dead");
    assert_eq!(copies_after(&[0, 1, 2], 2_100), 1, "one that is there is kept");
}

#[test]
fn an_instance_makes_a_copy_if_those_whose_turn_comes_first_do_not() {
    // A group finds another owner if all copies are dead. A list cannot.
    for (copies, is_without_group) in [(0, false), (0, true), (1, true)] {
        let options = StandbyOptions { copies, silence_ms: SILENCE_MS, is_without_group };
        make_copy_in_turn(Daemon::with_copies(options));
    }
}

fn make_copy_in_turn(mut daemon: Daemon) {
    let mut view = view();
    for number in 0..9 {
        let (id, host) = (format!("dead {number}"), format!("host {number}"));
        view.members.push(GroupMember { id, host, partitions: Vec::new() });
    }
    let ours = |it: &&GroupMember| it.id == OURS;
    let before = view.keepers_of(0, u32::MAX).into_iter().take_while(|it| !ours(it)).count();
    assert!(before > 1, "other members come first");
    let mut copies_after = |turns: usize| {
        let owed = Duration::from_secs(2 * turns as u64);
        view.quiet = BTreeMap::from([(0, quiet_for(owed))]);
        daemon.hear(OwnershipEvent::GroupSeen { view: &view, ours: OURS });
        daemon.ownership.summary().copies
    };
    assert_eq!([before - 1, before].map(&mut copies_after), [0, 1]);
}

#[test]
fn the_zone_of_an_owner_that_pauses_again_and_again_is_copied_ever_more_seldom() {
    let (mut daemon, _owner) = beside_an_owner_with(0);
    let mut begins = |pauses: u64| {
        let pause = |number| {
            let before = daemon.done.len();
            see_quiet(&mut daemon);
            let is_begin = |done: &OwnershipAction| {
                matches!(
                    done,
                    OwnershipAction::Log(Note::Copy { news: CopyNews::Begins { .. }, .. })
                )
            };
            let begins = daemon.done[before..].iter().any(is_begin);
            daemon.pass(16_000, 0, false);
            daemon.hear(OwnershipEvent::GroupSeen { view: &view(), ours: OURS });
            begins.then_some(16 * number)
        };
        (0..pauses).filter_map(pause).collect::<Vec<u64>>()
    };
    assert_eq!(begins(40), [0, 32, 96, 224, 464]);
    daemon.pass(600_000, 0, false);
    see_quiet(&mut daemon);
    assert_eq!(daemon.ownership.summary().copies, 1, "that is forgotten");
}

#[test]
fn a_copy_takes_its_zone_over_at_once_when_the_owner_in_force_resigns() {
    let (mut daemon, owner) = beside_an_owner();
    let note = FrameHeader { owner_epoch: 0, next_offset: -1, ..owner.fence(0) };
    append(&mut daemon, FrameHeader { fence_id: fence_ids().resignation(7), ..note });
    rest(&mut daemon, 50);
    assert!(!is_promoted(&daemon), "somebody has resigned who does not own the zone");
    daemon.hear(OwnershipEvent::GroupSeen { view: &view(), ours: OURS });
    append(&mut daemon, FrameHeader { fence_id: fence_ids().resignation(1), ..note });
    rest(&mut daemon, 10);
    assert_eq!((is_promoted(&daemon), causes(&daemon)), (true, vec![TakeoverCause::Resignation]));
    let opening = daemon.openings()[0];
    assert_eq!((opening.acquired.owner_epoch, opening.settled_offset), (2, 3));
}

/// The owner of partition 0 appends its resignation.
fn resign(daemon: &mut Daemon, owner: &FrameMaker) {
    let fence_id = fence_ids().resignation(owner.owner_epoch);
    append(daemon, FrameHeader { owner_epoch: 0, next_offset: -1, ..owner.fence(fence_id) });
    rest(daemon, 50);
}

/// The copy comes to what its owner has published, and goes on with the same engine once the owner
/// resigns.
fn assert_takes_over_at_resignation(daemon: &mut Daemon, owner: &FrameMaker) {
    keep_up(daemon, owner);
    rest(daemon, 50);
    resign(daemon, owner);
    assert_eq!((is_promoted(daemon), follows(daemon)), (true, 1));
}

#[test]
fn a_copy_takes_over_by_rules_that_were_loaded_after_it_began() {
    let (mut daemon, mut owner) = beside_an_owner();
    daemon.hear(OwnershipEvent::RulesLoaded(vec![7, 8]));
    let frame = owner.frame(1);
    let header = FrameHeader { ruleset: 8, ..frame.header };
    append_frame(&mut daemon, &header, frame.updates.as_slice());
    assert_takes_over_at_resignation(&mut daemon, &owner);
}

#[test]
fn a_copy_takes_over_however_far_the_input_has_grown_since_it_began() {
    let (mut daemon, mut owner) = beside_an_owner();
    owner.next_offset += 1 << 32;
    publish(&mut daemon, &mut owner);
    daemon.input_end = owner.next_offset;
    assert_takes_over_at_resignation(&mut daemon, &owner);
}

#[test]
fn a_copy_follows_up_to_a_record_that_is_passed_over_once_it_owns_the_zone() {
    for is_without_group in [false, true] {
        let standby = StandbyOptions { copies: 1, silence_ms: SILENCE_MS, is_without_group };
        let skipping = Daemon::with_copies_that_skip(standby, vec![(0, 50)]);
        let (mut daemon, owner) = begin_beside_an_owner(skipping);
        assert_eq!(follows(&daemon), 1);
        resign(&mut daemon, &owner);
        let opening = daemon.openings()[0];
        let skips: Vec<i64> = opening.acquired.skips.iter().copied().collect();
        assert_eq!((opening.acquired.owner_epoch, skips), (2, vec![50]));
    }
}

#[test]
fn a_copy_waits_for_its_turn_at_each_resignation() {
    let (mut daemon, mut owner) = beside_an_owner_with(2);
    let with = |name: u32| {
        let mut view = view();
        let id = format!("other {name}");
        view.members.push(GroupMember { host: id.clone(), id, partitions: Vec::new() });
        view
    };
    let is_second = |view: &GroupView| view.keepers_of(0, 2)[1].id == OURS;
    let view = (0..).map(with).find(is_second).expect("some name comes first");
    daemon.hear(OwnershipEvent::GroupSeen { view: &view, ours: OURS });
    resign(&mut daemon, &owner);
    owner.owner_epoch = 2;
    append(&mut daemon, FrameHeader { next_offset: -1, ..owner.fence(fence_ids().next()) });
    publish(&mut daemon, &mut owner);
    keep_up(&mut daemon, &owner);
    rest(&mut daemon, 500);
    resign(&mut daemon, &owner);
    assert!(!is_promoted(&daemon), "it is the turn of the other copy");
    rest(&mut daemon, 150);
    assert!(is_promoted(&daemon));
}

#[test]
fn a_copy_takes_its_zone_over_from_a_silent_owner_once_a_probe_was_answered() {
    let (mut daemon, owner) = beside_an_owner();
    rest(&mut daemon, 10 * LONG_MS);
    assert_eq!(notes(&daemon).len(), 0, "an idle owner is not silent");
    daemon.decoded = owner.next_offset + 1;
    rest(&mut daemon, LONG_MS);
    assert_eq!((notes(&daemon).len(), is_promoted(&daemon)), (1, false), "the output may be away");
    daemon.hear(OwnershipEvent::Output(OutputEvent::Noted { partition: 0, offset: None }));
    assert_takes_over_from_silence(&mut daemon);
}

#[test]
fn a_takeover_whose_fence_is_not_stored_is_tried_again() {
    let (mut daemon, owner) = beside_an_owner();
    daemon.decoded = owner.next_offset + 1;
    daemon.takes_frames = false;
    rest(&mut daemon, u64::from(SILENCE_MS) * 2 / 3 + 10);
    answer_probe(&mut daemon);
    rest(&mut daemon, LONG_MS);
    assert_eq!((causes(&daemon).len(), is_promoted(&daemon)), (1, false));
    let error = TopicError::Unreachable("the leader is away".to_owned());
    daemon.hear(OwnershipEvent::Output(OutputEvent::RequestFailed { partition: 0, error }));
    daemon.takes_frames = true;
    rest(&mut daemon, 10 * LONG_MS);
    assert_eq!((causes(&daemon).len(), is_promoted(&daemon)), (2, true));
}

#[test]
fn an_owner_that_publishes_before_the_probe_is_read_keeps_its_zone() {
    let (mut daemon, mut owner) = beside_an_owner();
    for _ in 0..10 {
        daemon.decoded = owner.next_offset + 1;
        rest(&mut daemon, u64::from(SILENCE_MS) * 2 / 3 + 10);
        publish(&mut daemon, &mut owner);
        answer_probe(&mut daemon);
        keep_up(&mut daemon, &owner);
    }
    assert!(!is_promoted(&daemon));
}

#[test]
fn a_copy_that_has_not_come_to_what_is_published_takes_nothing_over() {
    let (mut daemon, mut owner) = beside_an_owner();
    publish(&mut daemon, &mut owner);
    daemon.decoded = owner.next_offset + 1;
    rest(&mut daemon, u64::from(SILENCE_MS) * 2 / 3 + 10);
    answer_probe(&mut daemon);
    rest(&mut daemon, 10 * LONG_MS);
    assert!(!is_promoted(&daemon));
}

#[test]
fn a_control_thread_that_has_stood_still_blames_no_owner() {
    let (mut daemon, owner) = beside_an_owner();
    daemon.decoded = owner.next_offset + 1;
    for _ in 0..20 {
        rest(&mut daemon, u64::from(SILENCE_MS) / 2);
        daemon.pass(LONG_MS, 0, false);
    }
    assert_eq!(notes(&daemon).len(), 0);
}

#[test]
fn a_copy_whose_zone_the_group_gives_to_this_instance_goes_on_with_its_engine() {
    let (mut daemon, _owner) = beside_an_owner();
    daemon.group(MembershipEvent::Assigned(vec![0]));
    rest(&mut daemon, 20);
    assert_eq!((follows(&daemon), is_promoted(&daemon)), (1, true));
    assert_eq!(causes(&daemon), [], "it was told to own the zone");
}

#[test]
fn a_copy_that_differs_ends_and_begins_again_later_and_halts_nothing() {
    let (mut daemon, _owner) = beside_an_owner();
    let following = daemon.done.iter().rev().find_map(|done| match done {
        OwnershipAction::Follow(opening) => Some(opening.ownership_id),
        _ => None,
    });
    let ownership_id = following.expect("it follows");
    let (partition, error) = (0, StartError::Diverged { update: 5 });
    let diverged = ShardNotice::Diverged { partition, ownership_id, error };
    daemon.hear(OwnershipEvent::Shard(diverged));
    let is_said = Note::Copy { partition, news: CopyNews::Diverged(error) };
    assert!(daemon.has_done(&OwnershipAction::Log(is_said)));
    daemon.hear(OwnershipEvent::GroupSeen { view: &view(), ours: OURS });
    rest(&mut daemon, 20);
    let summary = daemon.ownership.summary();
    assert_eq!((follows(&daemon), summary.halted, summary.copies), (1, 0, 1));
    assert_eq!(daemon.ownership.warm_copies(daemon.now), 0, "one copy is missing");
    daemon.pass(30_000, 0, false);
    daemon.hear(OwnershipEvent::GroupSeen { view: &view(), ours: OURS });
    rest(&mut daemon, 20);
    assert_eq!((follows(&daemon), is_promoted(&daemon)), (2, false));
}

#[test]
fn an_owner_leaves_its_zone_for_a_while_to_a_copy_but_not_to_another_deployment() {
    let [of_copy, of_another] = [fence_ids().next(), 77].map(|fence_id| {
        let standby = StandbyOptions { copies: 0, silence_ms: SILENCE_MS, is_without_group: false };
        let mut daemon = Daemon::with_copies(standby).given(&[0]);
        fence_with(&mut daemon, 0, fence_id);
        rest(&mut daemon, 5_000);
        daemon.openings().len()
    });
    assert_eq!((of_copy, of_another), (1, 2));
}

#[test]
fn an_owner_that_is_stopped_resigns_only_if_there_may_be_copies() {
    for copies in [0, 1] {
        let standby = StandbyOptions { copies, silence_ms: SILENCE_MS, is_without_group: false };
        let mut daemon = Daemon::with_copies(standby).given(&[0, 2]);
        daemon.hear(OwnershipEvent::Stop { has_successors: true });
        let notes = notes(&daemon);
        let resigned: Vec<i32> = notes.iter().map(|(partition, _)| *partition).collect();
        assert_eq!(resigned, if copies > 0 { vec![0, 2] } else { Vec::new() });
        let is_note = |header: &FrameHeader| {
            header.owner_epoch == 0 && header.next_offset == -1 && is_resignation(header.fence_id)
        };
        assert!(notes.iter().all(|(_, header)| is_note(header)));
    }
}

#[test]
fn a_copy_takes_its_zone_over_while_another_zone_reads_a_long_output() {
    let is_without_group = false;
    let standby = StandbyOptions { copies: 1, silence_ms: SILENCE_MS, is_without_group };
    let daemon = Daemon::begin(1, Remedy::Refuse, standby, Vec::new());
    let (mut daemon, owner) = begin_beside_an_owner(daemon);
    (daemon.more, daemon.output_answers) = (1_000_000, false);
    daemon.group(MembershipEvent::Assigned(vec![1]));
    let mut offset = 0;
    let mut read = |daemon: &mut Daemon, duration_ms: u64| {
        for _ in 0..duration_ms.div_ceil(10) {
            let record = OutputEvent::Record { partition: 1, offset, payload: b"no frame" };
            daemon.hear(OwnershipEvent::Output(record));
            daemon.pass(10, 0, false);
            offset += 1;
        }
    };
    daemon.decoded = owner.next_offset + 1;
    read(&mut daemon, u64::from(SILENCE_MS) * 2 / 3 + 10);
    answer_probe(&mut daemon);
    read(&mut daemon, LONG_MS);
    assert!(is_promoted(&daemon));
}

/// While it is no member, it may still be the only one that can play.
#[test]
fn a_copy_is_kept_and_takes_over_while_its_instance_joins_the_group_again() {
    let (mut daemon, owner) = beside_an_owner();
    let taken = MembershipError::InstanceTaken("ours".to_owned());
    daemon.group(MembershipEvent::Error(taken));
    assert!(daemon.has_done(&OwnershipAction::Rejoin));
    assert!(!daemon.has_done(&OwnershipAction::Drop { partition: 0 }));
    daemon.decoded = owner.next_offset + 1;
    assert_takes_over_from_silence(&mut daemon);
}
