//! All shards of a daemon from assignment to release, beside a group and logs that answer at once.

use crate::hunt::frames::encode;
use crate::kafka::READ_STALL_MS_MAX;
use crate::kafka::membership::{MembershipError, MembershipEvent};
use crate::output::fence_id::{FenceIds, ended_epoch};
use crate::output::frame::{Format, FrameHeader};
use crate::ownership::acquisition::{Candidate, Remedy};
use crate::ownership::action::{Note, Opening, OwnershipAction};
use crate::ownership::bounds::Bounds;
use crate::ownership::event::{
    DeliveryFailure, OutputEvent, OwnershipEvent, ShardFacts, ShardNotice, Survey,
};
use crate::ownership::foreign_span::ForeignSpan;
use crate::ownership::history::{REACQUIRE_MS, REACQUIRE_MS_MAX, SETTLED_MS};
use crate::ownership::instance_id::IdLoss;
use crate::ownership::panic_counts::PanicCounts;
use crate::ownership::release::{PLAY_ON_MS_MAX, RELEASE_MS_MAX};
use crate::ownership::standby::StandbyOptions;
use crate::ownership::start_error::StartError;
use crate::ownership::tests::log::{RULESET, VERSION, owned_log, snapshot};
use crate::ownership::{
    GROUP_ANSWER_MS_MAX, Ownership, OwnershipOptions, PANICS_MAX, START_ERROR_MS_MAX,
};
use crate::telemetry::long_wait::WORDLESS_MS_MAX;
use crate::telemetry::progress::SHARDS_MAX;
use crate::testing::frame_maker::FrameMaker;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

pub(super) const PARTITIONS: i32 = 8;

/// A daemon's ownership, and what it asked for.
pub(super) struct Daemon {
    pub(super) ownership: Ownership,
    pub(super) now: Instant,
    /// Whether the group answers questions; it says yes.
    pub(super) group_answers: bool,
    /// Whether the output topic gives records.
    pub(super) output_answers: bool,
    /// The output acknowledges frames.
    pub(super) takes_frames: bool,
    /// What was done, except what was answered here.
    pub(super) done: Vec<OwnershipAction>,
    /// What ended owners have appended last.
    farewells: Vec<(i32, FrameHeader)>,
    /// Values of the output's records, by partition and offset.
    pub(super) outputs: BTreeMap<i32, Vec<Vec<u8>>>,
    /// Records that outputs have beyond those. If negative, so many come after the first survey.
    pub(super) more: i64,
    /// Partitions whose shards follow another owner, and how far they have come.
    following: BTreeSet<i32>,
    pub(super) followed_to: i64,
    /// How many updates they have made: as many as they know to be published, if `None`.
    pub(super) made: Option<u64>,
    /// How far their input is read.
    pub(super) decoded: i64,
    /// Where the input ends, as the hot thread sees it.
    pub(super) input_end: i64,
    /// The states that this host has of each shard.
    pub(super) candidates: Vec<Candidate>,
    /// The states of other hosts that are found first.
    replicas: Vec<Candidate>,
    /// Why no state can be loaded.
    pub(super) load_fails: Option<&'static str>,
    /// The outputs are so busy that their ends are never reported.
    pub(super) is_endless: bool,
}

impl Daemon {
    pub(super) fn with(read_slots: usize, remedy: Remedy) -> Daemon {
        Daemon::begin(read_slots, remedy, StandbyOptions::default(), Vec::new())
    }

    /// A daemon that keeps copies.
    pub(super) fn with_copies(standby: StandbyOptions) -> Daemon {
        Daemon::with_copies_that_skip(standby, Vec::new())
    }

    /// The same daemon if its operator passes over these records.
    pub(super) fn with_copies_that_skip(standby: StandbyOptions, skips: Vec<(i32, i64)>) -> Daemon {
        Daemon::begin(PARTITIONS as usize, Remedy::Refuse, standby, skips)
    }

    pub(super) fn begin(
        read_slots: usize,
        remedy: Remedy,
        standby: StandbyOptions,
        skips: Vec<(i32, i64)>,
    ) -> Daemon {
        let now = Instant::now();
        let options = OwnershipOptions {
            updates: crate::hunt::change::UPDATES,
            partitions: PARTITIONS,
            rulesets: vec![RULESET],
            version: VERSION,
            remedy,
            skips,
            read_slots,
            standby,
            fence_ids: FenceIds::new("huntd", 1),
        };
        let mut ownership = Ownership::new(options, now);
        let (topic_id, panics) = ([1; 16], PanicCounts::default());
        ownership.on(OwnershipEvent::InputKnown { topic_id, panics }, now);
        Daemon {
            ownership,
            now,
            group_answers: true,
            output_answers: true,
            takes_frames: true,
            done: Vec::new(),
            farewells: Vec::new(),
            outputs: BTreeMap::new(),
            more: 0,
            following: BTreeSet::new(),
            followed_to: i64::MAX,
            made: None,
            decoded: 0,
            input_end: 100,
            candidates: Vec::new(),
            replicas: Vec::new(),
            load_fails: None,
            is_endless: false,
        }
    }

    pub(super) fn new() -> Daemon {
        Daemon::with(PARTITIONS as usize, Remedy::Refuse)
    }

    pub(super) fn hear(&mut self, event: OwnershipEvent<'_>) {
        self.ownership.on(event, self.now);
        self.obey();
    }

    pub(super) fn group(&mut self, event: MembershipEvent) {
        self.hear(OwnershipEvent::Group(event));
    }

    /// Executes all there is to do; empty logs and an obliging group answer.
    fn obey(&mut self) {
        while let Some(action) = self.ownership.next_action() {
            match action {
                OwnershipAction::Survey(partitions) => {
                    partitions.into_iter().for_each(|partition| self.survey(partition));
                }
                OwnershipAction::FindStates { partition } => {
                    self.candidates.append(&mut self.replicas);
                    self.more = self.more.max(0);
                    let (candidates, why_unknown) = (self.candidates.clone(), None);
                    self.tell(OwnershipEvent::Found { partition, candidates, why_unknown });
                }
                OwnershipAction::Read { partition, from } if self.output_answers => {
                    self.read(partition, from);
                }
                OwnershipAction::Append { partition, header } if self.takes_frames => {
                    self.append(partition, &header);
                }
                OwnershipAction::Ask { question, .. } if self.group_answers => {
                    let event = answer(question, true);
                    self.tell(OwnershipEvent::Group(event));
                }
                OwnershipAction::Note { partition, header }
                    if ended_epoch(header.fence_id).is_some() =>
                {
                    self.farewells.push((partition, header));
                    let noted = OutputEvent::Noted { partition, offset: None };
                    self.tell(OwnershipEvent::Output(noted));
                }
                OwnershipAction::Load { partition, .. } => {
                    self.tell(match self.load_fails {
                        None => OwnershipEvent::Loaded { partition, ruleset: RULESET },
                        Some(why) => OwnershipEvent::NotLoaded { partition, why: why.to_owned() },
                    });
                }
                action => {
                    match &action {
                        OwnershipAction::Follow(opening) => {
                            self.following.insert(opening.acquired.partition);
                        }
                        OwnershipAction::Promote(opening) => {
                            self.following.remove(&opening.acquired.partition);
                        }
                        OwnershipAction::Disown { partition } => {
                            self.following.remove(partition);
                        }
                        _ => {}
                    }
                    self.done.push(action);
                }
            }
        }
    }

    /// A frame that was to be appended is in the output.
    pub(super) fn append(&mut self, partition: i32, header: &FrameHeader) {
        let records = self.outputs.entry(partition).or_default();
        let mut payload = Vec::new();
        encode(Format::Binary, header, &[], &mut payload);
        records.push(payload);
        let offset = records.len() as i64 - 1;
        let payload = &records[offset as usize].clone();
        self.tell(OwnershipEvent::Output(OutputEvent::Appended { partition, offset }));
        let record = OutputEvent::Record { partition, offset, payload };
        self.tell(OwnershipEvent::Output(record));
    }

    pub(super) fn tell(&mut self, event: OwnershipEvent<'_>) {
        self.ownership.on(event, self.now);
    }

    pub(super) fn read(&mut self, partition: i32, from: i64) {
        let records = self.outputs.get(&partition).cloned().unwrap_or_default();
        for (offset, payload) in (0..).zip(&records).filter(|(offset, _)| *offset >= from) {
            let record = OutputEvent::Record { partition, offset, payload };
            self.tell(OwnershipEvent::Output(record));
        }
        if !self.is_endless {
            self.tell(OwnershipEvent::Output(OutputEvent::End { partition }));
        }
    }

    pub(super) fn survey(&mut self, partition: i32) {
        let output_end = self.more + self.outputs.get(&partition).map_or(0, Vec::len) as i64;
        let (input_start, input_end, input_leader_epoch, output_start) = (0, 100, 0, 0);
        let bounds =
            Bounds { input_start, input_end, input_leader_epoch, output_start, output_end };
        let survey = Ok(Survey { bounds, candidates: self.candidates.clone() });
        self.tell(OwnershipEvent::Surveyed { partition, survey });
    }

    /// Lets time pass, with shards that have acknowledged so much of their input.
    pub(super) fn pass(&mut self, duration_ms: u64, acked: i64, is_busy: bool) {
        self.now += Duration::from_millis(duration_ms);
        // An answer may be what another shard was waiting for.
        for _ in 0..=4 * PARTITIONS {
            let facts = self.facts(acked, is_busy);
            self.hear(OwnershipEvent::Tick(&facts));
        }
    }

    /// Shards that have acknowledged so much; those that follow have applied what they may.
    fn facts(&self, acked: i64, is_busy: bool) -> Vec<ShardFacts> {
        let facts = |partition: &i32| ShardFacts {
            partition: *partition,
            input_end: self.input_end,
            decoded: self.decoded,
            applied: if self.following.contains(partition) { self.followed_to } else { acked },
            acked,
            settled_offset: acked,
            next_update: self.made.unwrap_or_else(|| self.covered(*partition)),
            is_busy,
        };
        self.ownership.watched().iter().map(facts).collect()
    }

    /// How many updates a shard that follows was told to be published.
    fn covered(&self, partition: i32) -> u64 {
        let covered = self.done.iter().rev().find_map(|done| match done {
            OwnershipAction::Cover(cover) if cover.partition == partition => Some(cover.mark),
            OwnershipAction::Follow(opening) if opening.acquired.partition == partition => {
                Some(opening.acquired.mark)
            }
            _ => None,
        });
        covered.map_or(0, |mark| mark.next_update)
    }

    /// A daemon whose shards of these partitions are open.
    pub(super) fn owning(partitions: &[i32]) -> Daemon {
        Daemon::new().given(partitions)
    }

    /// The same daemon once the group has given it these partitions, and their shards are open.
    pub(super) fn given(mut self, partitions: &[i32]) -> Daemon {
        self.group(MembershipEvent::Assigned(partitions.to_vec()));
        self.pass(0, 0, false);
        assert_eq!(self.open(), partitions);
        self
    }

    /// The last shard that was opened has stopped, because it cannot make what is published.
    fn diverge(&mut self, partition: i32, error: StartError) {
        let ownership_id = self.ownership_id();
        let notice = ShardNotice::Diverged { partition, ownership_id, error };
        self.hear(OwnershipEvent::Shard(notice));
    }

    /// Partitions in the order in which they were opened.
    pub(super) fn open(&self) -> Vec<i32> {
        self.openings().iter().map(|opening| opening.acquired.partition).collect()
    }

    pub(super) fn openings(&self) -> Vec<&Opening> {
        let actions = self.done.iter();
        let openings = actions.filter_map(|action| match action {
            OwnershipAction::Open(opening) | OwnershipAction::Promote(opening) => {
                Some(opening.as_ref())
            }
            _ => None,
        });
        openings.collect()
    }

    /// The number of the last ownership.
    pub(super) fn ownership_id(&self) -> u32 {
        self.openings().last().expect("a shard is open").ownership_id
    }

    pub(super) fn has_done(&self, action: &OwnershipAction) -> bool {
        self.done.contains(action)
    }

    pub(super) fn has_said(&self, note: impl Fn(&Note) -> bool) -> bool {
        self.done.iter().any(|action| matches!(action, OwnershipAction::Log(said) if note(said)))
    }
}

pub(super) fn answer(question: u64, is_member: bool) -> MembershipEvent {
    MembershipEvent::Answered { question, is_member, committed: Vec::new() }
}

#[test]
fn nothing_is_opened_before_the_group_has_answered() {
    let mut daemon = Daemon::new();
    daemon.group_answers = false;
    daemon.group(MembershipEvent::Assigned(vec![0, 1]));
    daemon.pass(0, 0, false);
    assert!(daemon.open().is_empty());
    let asked = daemon.done.iter().find_map(|action| match action {
        OwnershipAction::Ask { question, offsets } => Some((*question, offsets.clone())),
        _ => None,
    });
    let (question, offsets) = asked.expect("the group is asked before a fence");
    assert_eq!(offsets.iter().map(|(partition, _)| *partition).collect::<Vec<_>>(), [0, 1]);

    let stale = answer(question + 1, true);
    daemon.group(stale);
    daemon.pass(1, 0, false);
    assert!(daemon.open().is_empty(), "another question's answer is none");
    daemon.group(answer(question, true));
    daemon.pass(1, 0, false);
    assert!(daemon.open().is_empty(), "an engine follows, and the group is asked again");
    daemon.group(answer(question + 1, true));
    daemon.pass(1, 0, false);
    assert_eq!(daemon.open(), [0, 1]);
}

/// A replica is stored between the survey and the search for states, as by an owner that plays on.
#[test]
fn a_replica_that_is_newer_than_the_survey_is_where_its_zone_begins() {
    let (log, shard) = owned_log(9);
    let mut daemon = Daemon::new();
    let records = log.records.iter().map(|(_, payload)| payload.clone());
    daemon.outputs.insert(0, records.collect());
    daemon.replicas = vec![snapshot(&log, &shard)];
    daemon.more = -3;
    daemon.group(MembershipEvent::Assigned(vec![0]));
    daemon.pass(0, 0, false);
    let openings = daemon.openings();
    assert_eq!(openings.len(), 1);
    assert_eq!(openings[0].acquired.candidate, Some(0));
}

#[test]
fn a_group_that_does_not_answer_or_does_not_count_us_in_is_asked_again() {
    let mut daemon = Daemon::new();
    daemon.group_answers = false;
    daemon.group(MembershipEvent::Assigned(vec![3]));
    daemon.pass(0, 0, false);
    daemon.group(answer(1, false));
    let why = [(3, "the group does not count us in now; that may pass by itself")];
    assert_eq!(daemon.ownership.setbacks().collect::<Vec<_>>(), why);
    daemon.pass(REACQUIRE_MS, 0, false);
    assert!(daemon.open().is_empty());
    daemon.pass(GROUP_ANSWER_MS_MAX, 0, false);
    daemon.group_answers = true;
    daemon.pass(REACQUIRE_MS, 0, false);
    assert_eq!(daemon.open(), [3]);
    let asked = daemon.done.iter().filter(|done| matches!(done, OwnershipAction::Ask { .. }));
    assert_eq!(asked.count(), 2, "before it answered");
}

/// The group may give a partition away and back while it does not answer. It may also be a copy by
/// then, which asks the group nothing.
#[test]
fn a_question_that_fails_fails_only_what_still_waits_for_it() {
    let mut daemon = Daemon::new();
    daemon.group_answers = false;
    daemon.group(MembershipEvent::Assigned(vec![3]));
    daemon.pass(0, 0, false);
    daemon.group(MembershipEvent::Revoked(vec![3]));
    daemon.group(MembershipEvent::Assigned(vec![3]));
    daemon.pass(0, 0, false);
    daemon.group(answer(1, false));
    assert_eq!(daemon.ownership.setbacks().count(), 0, "it has not asked yet");
    daemon.group_answers = true;
    daemon.pass(0, 0, false);
    assert_eq!(daemon.open(), [3]);
}

#[test]
fn an_acquisition_that_does_not_move_says_what_it_waits_for_and_says_it_once() {
    type Silence = fn(&mut Daemon);
    let silences: [(Silence, &str); 2] = [
        (|daemon| daemon.output_answers = false, "no broker brings the output's records"),
        (|daemon| daemon.group_answers = false, "the group does not answer a commit"),
    ];
    for (silence, words) in silences {
        let mut daemon = Daemon::new();
        silence(&mut daemon);
        daemon.group(MembershipEvent::Assigned(vec![0]));
        daemon.pass(0, 0, false);
        daemon.pass(WORDLESS_MS_MAX - 1, 0, false);
        let said = |daemon: &Daemon| {
            let is_it = |action: &&OwnershipAction| match action {
                OwnershipAction::Log(Note::Waiting { sentence, .. }) => sentence.starts_with(words),
                _ => false,
            };
            daemon.done.iter().filter(is_it).count()
        };
        assert_eq!((said(&daemon), daemon.ownership.setbacks().count()), (0, 0), "{words}");
        for _ in 0..3 {
            daemon.pass(1, 0, false);
            assert_eq!(said(&daemon), 1, "{words}");
        }
        let why = daemon.ownership.setbacks().next().expect("it is served, too");
        assert!(why.0 == 0 && why.1.starts_with(words), "{why:?}");
    }
}

/// The daemon has to end, and nobody else is in the group.
fn stop(daemon: &mut Daemon) {
    daemon.hear(OwnershipEvent::Stop { has_successors: false });
}

/// Another instance fences a shard: its owner reads that between two of its frames.
fn fence(daemon: &mut Daemon, partition: i32) {
    fence_with(daemon, partition, 77);
}

/// The same with a fence of this id.
pub(super) fn fence_with(daemon: &mut Daemon, partition: i32, fence_id: u128) {
    let opening = daemon.openings();
    let of_it = |opening: &&&Opening| opening.acquired.partition == partition;
    let opening = opening.iter().rfind(of_it).expect("opened");
    let (ownership_id, from) = (opening.ownership_id, opening.acquired.mark);
    let owner_epoch = from.owner_epoch + 1;
    let fence = FrameMaker { owner_epoch, ..FrameMaker::new(partition) }.fence(fence_id);
    let (header, mut payload) = (FrameHeader { next_offset: -1, ..fence }, Vec::new());
    encode(Format::Binary, &header, &[], &mut payload);
    let records = daemon.outputs.get_mut(&partition).expect("there is our fence");
    records.push(payload);
    let to = records.len() as i64;
    let span = ForeignSpan { partition, ownership_id, from, to };
    daemon.hear(OwnershipEvent::ForeignSpan(span));
    daemon.pass(1, 0, false);
}

#[test]
fn what_the_group_gives_to_others_is_played_until_they_have_fenced_it() {
    for gives_away in [MembershipEvent::Revoked, MembershipEvent::Lost] {
        let mut daemon = Daemon::owning(&[0, 1]);
        daemon.group(gives_away(vec![0]));
        daemon.pass(60_000, 40, false);
        let dropped = OwnershipAction::Drop { partition: 0 };
        assert!(!daemon.has_done(&dropped) && daemon.ownership.summary().open == 2);
        fence(&mut daemon, 0);
        daemon.pass(60_000, 40, false);
        assert!(daemon.has_done(&dropped), "it has another owner");
        assert_eq!((daemon.open(), daemon.ownership.summary().open), (vec![0, 1], 1));
    }
}

#[test]
fn what_the_group_gives_back_while_it_is_played_goes_on_as_it_is() {
    let mut daemon = Daemon::owning(&[0]);
    daemon.group(MembershipEvent::Revoked(vec![0]));
    daemon.group(MembershipEvent::Assigned(vec![0]));
    daemon.pass(1, 0, false);
    assert_eq!((daemon.open(), daemon.ownership.summary().open), (vec![0], 1));
    fence(&mut daemon, 0);
    daemon.pass(REACQUIRE_MS, 0, false);
    assert_eq!(daemon.open(), [0, 0], "it is ours, so it is acquired again");
}

#[test]
fn what_fails_while_it_is_played_for_others_is_not_taken_back_and_does_not_halt() {
    for is_final in [false, true] {
        let mut daemon = Daemon::owning(&[0]);
        let (partition, ownership_id) = (0, daemon.ownership_id());
        daemon.group(MembershipEvent::Revoked(vec![0]));
        let sentence = "the broker has another leader".to_owned();
        let failure = DeliveryFailure { partition, ownership_id, sentence, is_final };
        daemon.hear(OwnershipEvent::DeliveryFailed(failure));
        daemon.pass(60_000, 0, false);
        let summary = daemon.ownership.summary();
        assert_eq!((daemon.open().len(), summary.open, summary.halted), (1, 0, 0));
    }
}

#[test]
fn a_daemon_that_ends_plays_on_until_others_have_fenced_all_of_its_shards() {
    let mut daemon = Daemon::owning(&[0, 1]);
    let has_left = |daemon: &Daemon| {
        daemon.done.iter().any(|done| matches!(done, OwnershipAction::Leave { .. }))
    };
    daemon.hear(OwnershipEvent::Stop { has_successors: true });
    daemon.pass(1, 40, false);
    fence(&mut daemon, 0);
    assert_eq!((has_left(&daemon), daemon.ownership.summary().open), (false, 1));
    assert!(!daemon.has_done(&OwnershipAction::Close { partition: 1 }));
    fence(&mut daemon, 1);
    assert!(has_left(&daemon));
}

#[test]
fn a_daemon_that_ends_closes_what_nobody_takes_over_in_time() {
    let ends: [fn(&mut Daemon); 2] = [
        |daemon| daemon.pass(PLAY_ON_MS_MAX, 40, false),
        // The others have left the group, too.
        stop,
    ];
    for end in ends {
        let mut daemon = Daemon::owning(&[0]);
        let ownership_id = daemon.ownership_id();
        daemon.hear(OwnershipEvent::Stop { has_successors: true });
        daemon.pass(PLAY_ON_MS_MAX - 1, 40, false);
        let closes = OwnershipAction::Close { partition: 0 };
        assert!(!daemon.has_done(&closes));
        end(&mut daemon);
        assert!(daemon.has_done(&closes));
        daemon.hear(OwnershipEvent::Shard(ShardNotice::Closed { partition: 0, ownership_id }));
        daemon.pass(1, 40, false);
        assert!(daemon.has_done(&OwnershipAction::Leave { offsets: vec![(0, 40)], halted: 0 }));
    }
}

#[test]
fn the_end_waits_until_nothing_is_on_its_way() {
    let mut daemon = Daemon::owning(&[0]);
    let ownership_id = daemon.ownership_id();
    stop(&mut daemon);
    assert!(daemon.has_done(&OwnershipAction::Close { partition: 0 }));
    let left = OwnershipAction::Leave { offsets: vec![(0, 40)], halted: 0 };
    daemon.pass(1, 40, false);
    assert!(!daemon.has_done(&left), "the hot thread has not closed it yet");
    daemon.hear(OwnershipEvent::Shard(ShardNotice::Closed { partition: 0, ownership_id }));
    daemon.pass(1, 40, true);
    assert!(!daemon.has_done(&left), "a frame is on its way");
    assert!(daemon.farewells.is_empty());
    daemon.pass(1, 40, false);
    assert!(daemon.has_done(&left));
    let [(0, farewell)] = daemon.farewells[..] else { panic!("{:?}", daemon.farewells) };
    assert_eq!((farewell.owner_epoch, ended_epoch(farewell.fence_id)), (0, Some(1)));
}

#[test]
fn an_end_that_takes_too_long_comes_without_what_is_on_its_way() {
    let mut daemon = Daemon::owning(&[0]);
    stop(&mut daemon);
    daemon.pass(RELEASE_MS_MAX, 12, true);
    assert!(daemon.has_done(&OwnershipAction::Leave { offsets: vec![(0, 12)], halted: 0 }));
    assert!(daemon.farewells.is_empty());
    assert!(daemon.has_done(&OwnershipAction::Disown { partition: 0 }));
}

#[test]
fn the_end_does_not_wait_for_a_shard_that_fails_meanwhile() {
    let mut daemon = Daemon::owning(&[0]);
    let ownership_id = daemon.ownership_id();
    stop(&mut daemon);
    daemon.hear(OwnershipEvent::Shard(ShardNotice::Closed { partition: 0, ownership_id }));
    daemon.pass(1, 12, true);
    let left = OwnershipAction::Leave { offsets: vec![(0, 12)], halted: 0 };
    assert!(!daemon.has_done(&left), "a frame is on its way");
    let (sentence, is_final) = ("the broker has another leader".to_owned(), false);
    let failure = DeliveryFailure { partition: 0, ownership_id, sentence, is_final };
    daemon.hear(OwnershipEvent::DeliveryFailed(failure));
    daemon.pass(1, 12, true);
    assert!(daemon.has_done(&left), "it never arrives");
}

#[test]
fn the_end_does_not_wait_for_a_shard_that_has_halted_or_was_not_open() {
    let mut daemon = Daemon::owning(&[0]);
    let ownership_id = daemon.ownership_id();
    daemon.group_answers = false;
    daemon.group(MembershipEvent::Assigned(vec![1]));
    daemon.pass(1, 0, false);
    let sentence = "only an operator can help".to_owned();
    let halted = ShardNotice::Halted { partition: 0, ownership_id, sentence };
    daemon.hear(OwnershipEvent::Shard(halted));
    stop(&mut daemon);
    daemon.pass(1, 12, true);
    let left = OwnershipAction::Leave { offsets: Vec::new(), halted: 1 };
    assert!(daemon.has_done(&left), "what it has left may never be settled");
}

/// Each fence is a record of the output, and each attempt a question to the group.
#[test]
fn a_shard_that_fails_soon_each_time_is_fenced_seldom_until_it_has_stayed_open() {
    let mut daemon = Daemon::owning(&[0, 1]);
    let fences = |daemon: &Daemon| daemon.outputs[&0].len() as u64;
    let fail = |daemon: &mut Daemon| {
        let of_it = |opening: &&&Opening| opening.acquired.partition == 0;
        let ownership_id = daemon.openings().iter().rfind(of_it).expect("opened").ownership_id;
        let (partition, is_final) = (0, false);
        let sentence = "the dead-letter topic is gone".to_owned();
        let failure = DeliveryFailure { partition, ownership_id, sentence, is_final };
        daemon.hear(OwnershipEvent::DeliveryFailed(failure));
    };
    fail(&mut daemon);
    let why = [(0, "the dead-letter topic is gone")];
    assert_eq!(daemon.ownership.setbacks().collect::<Vec<_>>(), why);
    for _ in 0..600 {
        daemon.pass(100, 0, false);
        fail(&mut daemon);
    }
    let paced = fences(&daemon);
    assert!((12..=15).contains(&paced), "{paced} fences in a minute");
    assert_eq!(daemon.outputs[&1].len(), 1, "the other shard goes on");

    daemon.pass(REACQUIRE_MS_MAX, 0, false);
    assert_eq!(fences(&daemon), paced + 1, "the wait has a bound");
    assert_eq!(daemon.ownership.setbacks().count(), 0, "it is open");
    daemon.pass(SETTLED_MS, 0, false);
    fail(&mut daemon);
    daemon.pass(REACQUIRE_MS, 0, false);
    assert_eq!(fences(&daemon), paced + 2, "it had stayed open");
}

#[test]
fn where_the_input_has_other_records_is_known_to_the_attempt_that_starts_over() {
    let mut daemon = Daemon::with(1, Remedy::StartOver).given(&[0]);
    let mut shard = FrameMaker::new(0);
    while shard.next_offset < 40 {
        let (frame, mut payload) = (shard.frame(2), Vec::new());
        encode(Format::Binary, &frame.header, frame.updates.as_slice(), &mut payload);
        daemon.outputs.get_mut(&0).expect("its fence is there").push(payload);
    }
    daemon.diverge(0, StartError::InputDiverged { applied: 40, input_end: 30 });
    daemon.pass(START_ERROR_MS_MAX, 0, false);
    let last = |daemon: &Daemon| daemon.openings().last().expect("opened").acquired.start;
    assert_eq!(last(&daemon).next_offset, 0, "it is tried once more");
    // Without a state to start from, nothing tells which records are new.
    daemon.diverge(0, StartError::Diverged { update: 5 });
    daemon.pass(0, 0, false);
    assert_eq!((last(&daemon).next_offset, last(&daemon).next_update), (30, shard.next_update));
}

#[test]
fn the_late_notices_of_an_ownership_that_has_ended_change_nothing() {
    let mut daemon = Daemon::owning(&[5]);
    let ownership_id = daemon.ownership_id();
    daemon.group(MembershipEvent::Lost(vec![5]));
    fence(&mut daemon, 5);
    assert!(daemon.has_done(&OwnershipAction::Drop { partition: 5 }));
    let sentence = "of an ownership before".to_owned();
    daemon.group(MembershipEvent::Assigned(vec![5]));
    daemon.pass(0, 0, false);
    let halted = ShardNotice::Halted { partition: 5, ownership_id, sentence: sentence.clone() };
    daemon.hear(OwnershipEvent::Shard(halted));
    let is_final = true;
    let failure = DeliveryFailure { partition: 5, ownership_id, sentence, is_final };
    daemon.hear(OwnershipEvent::DeliveryFailed(failure));
    let summary = daemon.ownership.summary();
    assert_eq!((summary.open, summary.halted), (1, 0));
    assert_ne!(daemon.ownership_id(), ownership_id);
}

#[test]
fn a_partition_that_is_revoked_while_it_is_read_gives_its_slot_to_the_next() {
    let mut daemon = Daemon::with(1, Remedy::Refuse);
    daemon.outputs = Daemon::owning(&[0, 1]).outputs;
    daemon.output_answers = false;
    daemon.group(MembershipEvent::Assigned(vec![0, 1]));
    daemon.pass(0, 0, false);
    let is_read = |daemon: &Daemon, wanted: i32| {
        let is_read = |done: &OwnershipAction| match done {
            OwnershipAction::Read { partition, .. } => *partition == wanted,
            _ => false,
        };
        daemon.done.iter().any(is_read)
    };
    assert!(is_read(&daemon, 0) && !is_read(&daemon, 1), "one is read at once");
    daemon.group(MembershipEvent::Revoked(vec![0]));
    daemon.output_answers = true;
    daemon.pass(1, 0, false);
    assert!(daemon.has_done(&OwnershipAction::Forget { partition: 0 }));
    assert_eq!(daemon.open(), [1]);
}

#[test]
fn a_stop_commits_what_is_acknowledged_and_counts_the_halted() {
    let mut daemon = Daemon::owning(&[0, 1]);
    let [first, second] = [0, 1].map(|at: usize| daemon.openings()[at].ownership_id);
    let sentence = "only an operator can help".to_owned();
    let halted = ShardNotice::Halted { partition: 1, ownership_id: second, sentence };
    daemon.hear(OwnershipEvent::Shard(halted));
    stop(&mut daemon);
    daemon.hear(OwnershipEvent::Shard(ShardNotice::Closed { partition: 0, ownership_id: first }));
    daemon.pass(1, 77, false);
    assert!(daemon.has_done(&OwnershipAction::Leave { offsets: vec![(0, 77)], halted: 1 }));
}

#[test]
fn a_record_that_fails_the_engine_is_counted_each_time_and_the_count_is_kept() {
    let mut daemon = Daemon::owning(&[4]);
    for times in 1..=PANICS_MAX {
        let ownership_id = daemon.ownership_id();
        let panicked = ShardNotice::Panicked { partition: 4, ownership_id, offset: 9 };
        daemon.hear(OwnershipEvent::Shard(panicked));
        let mut counts = PanicCounts::default();
        (0..times).for_each(|_| {
            counts.add(4, 9);
        });
        assert!(daemon.has_done(&OwnershipAction::KeepPanicCounts(counts)), "{times}");
        daemon.pass(REACQUIRE_MS, 0, false);
        assert_eq!(daemon.open().len(), times as usize + 1, "it is acquired again");
    }
    let skipped = &daemon.openings().last().expect("it is open").acquired.skips;
    assert!(skipped.contains(&9), "{skipped:?}");
}

#[test]
fn a_member_whose_instance_id_is_taken_plays_on_and_joins_again() {
    let mut daemon = Daemon::owning(&[0, 1]);
    let instance_id = "zone-a".to_owned();
    daemon.group(MembershipEvent::Error(MembershipError::InstanceTaken(instance_id.clone())));
    for partition in [0, 1] {
        assert!(!daemon.has_done(&OwnershipAction::Drop { partition }));
    }
    let said = Note::Rejoining { instance_id, loss: IdLoss::Unexplained };
    assert!(daemon.has_said(|note| *note == said));
    assert!(daemon.has_done(&OwnershipAction::Rejoin));
    [0, 1].into_iter().for_each(|partition| fence(&mut daemon, partition));
    daemon.group(MembershipEvent::Assigned(vec![0]));
    daemon.pass(0, 0, false);
    assert_eq!(daemon.open(), [0, 1], "that was meant for the member that we were");
    daemon.hear(OwnershipEvent::Rejoined(Ok(())));
    daemon.group(MembershipEvent::Assigned(vec![1]));
    daemon.pass(0, 0, false);
    assert_eq!(daemon.open(), [0, 1, 1]);
}

#[test]
fn a_member_that_ends_while_it_waits_to_join_again_does_not_join() {
    let mut daemon = Daemon::owning(&[0]);
    let taken = || MembershipEvent::Error(MembershipError::InstanceTaken("zone-a".to_owned()));
    daemon.group(taken());
    daemon.hear(OwnershipEvent::Rejoined(Ok(())));
    daemon.group(taken());
    let rejoins = |daemon: &Daemon| {
        daemon.done.iter().filter(|done| **done == OwnershipAction::Rejoin).count()
    };
    assert_eq!(rejoins(&daemon), 1, "the second attempt waits");
    daemon.hear(OwnershipEvent::Stop { has_successors: true });
    daemon.pass(5_000, 0, false);
    assert_eq!(rejoins(&daemon), 1);
}

#[test]
fn after_the_loss_of_its_partitions_a_process_is_no_member_until_the_group_lets_it_in() {
    let mut daemon = Daemon::owning(&[0, 1]);
    assert!(daemon.ownership.summary().is_member);
    daemon.group(MembershipEvent::Lost(vec![0, 1]));
    let summary = daemon.ownership.summary();
    assert_eq!((summary.is_member, summary.open), (false, 2), "it is no standby: nobody answers");
    daemon.group(MembershipEvent::Assigned(Vec::new()));
    assert!(daemon.ownership.summary().is_member);
}

#[test]
fn an_input_that_has_grown_halts_every_shard() {
    let mut daemon = Daemon::owning(&[0, 1]);
    daemon.hear(OwnershipEvent::InputCounted(PARTITIONS));
    assert_eq!(daemon.ownership.summary().halted, 0);
    daemon.hear(OwnershipEvent::InputCounted(PARTITIONS + 1));
    assert_eq!(daemon.ownership.summary().halted, 2);
}

#[test]
fn a_partition_that_the_input_did_not_have_halts_every_shard() {
    let mut daemon = Daemon::owning(&[0, 1]);
    daemon.group(MembershipEvent::Assigned(vec![PARTITIONS]));
    let summary = daemon.ownership.summary();
    assert_eq!((summary.halted, summary.open, summary.acquiring), (3, 0, 0));
}

#[test]
fn partitions_beyond_the_limit_halt_the_others_and_are_not_touched() {
    let mut daemon = Daemon::owning(&[0, 1]);
    let beyond = SHARDS_MAX as i32;
    daemon.group(MembershipEvent::Assigned(vec![2, beyond]));
    daemon.group(MembershipEvent::Revoked(vec![beyond]));
    let summary = daemon.ownership.summary();
    assert_eq!((summary.halted, summary.open, summary.acquiring), (3, 0, 0));
    assert!(!daemon.has_done(&OwnershipAction::Disown { partition: beyond }));
    assert!(daemon.has_said(|note| match note {
        Note::Waiting { sentence, .. } => sentence.contains("supports 1024 partitions at most"),
        _ => false,
    }));
}

#[test]
fn a_span_that_goes_beyond_the_log_is_not_waited_for_however_the_log_grows() {
    let mut daemon = Daemon::owning(&[0]);
    let ownership_id = daemon.ownership_id();
    let from = daemon.openings()[0].acquired.mark;
    let span = ForeignSpan { partition: 0, ownership_id, from, to: 1 << 40 };
    daemon.hear(OwnershipEvent::ForeignSpan(span));
    for _ in 0..=READ_STALL_MS_MAX / 1_000 {
        // The fence is repeated for ever.
        let records = daemon.outputs.get_mut(&0).expect("there is a fence");
        let (offset, payload) = (records.len() as i64, records[0].clone());
        records.push(payload.clone());
        let record = OutputEvent::Record { partition: 0, offset, payload: &payload };
        daemon.hear(OwnershipEvent::Output(record));
        daemon.pass(1_000, 0, false);
    }
    daemon.pass(REACQUIRE_MS, 0, false);
    assert_eq!(daemon.open(), [0, 0], "it was acquired again");
    assert!(daemon.ownership_id() > ownership_id);
}
