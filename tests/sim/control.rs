//! One daemon's control thread: it polls the simulated group and brokers, and passes their events
//! to the real [`Ownership`]. `actions.rs` executes its actions.

use crate::answers::TOPIC;
use crate::chance::{Chance, Fault, Sight};
use crate::copies::CopyWatch;
use crate::game::fewer_rules;
use crate::group::GroupEvent;
use crate::line::Late;
use crate::mutation::Mutation;
use crate::node::Common;
use crate::other_engine::OtherEngine;
use crate::output::Output;
use crate::surroundings::{Surroundings, origin};
use huntd::control::handover;
use huntd::hunt::change::UPDATES;
use huntd::kafka::membership::{MembershipError, MembershipEvent};
use huntd::kafka::topic_error::TopicError;
use huntd::kit::engine::{AnyRulebook, Engine};
use huntd::output::fence_id::FenceIds;
use huntd::output::mark::Mark;
use huntd::ownership::bounds::Bounds;
use huntd::ownership::event::{InputTrouble, OwnershipEvent, ShardFacts, ShardNotice, ToControl};
use huntd::ownership::foreign_span::{ForeignSpan, SpanCheck, SpanResult};
use huntd::ownership::start_error::StartError;
use huntd::ownership::{Ownership, OwnershipOptions, PANICS_MAX};
use huntd::publisher::ToPublisher;
use huntd::queue::{Receiver, Sender};
use huntd::shards::ToHot;
use huntd::snapshot::format::Header;
use huntd::snapshot::stored_states::StoredStates;
use huntd::telemetry::progress::Progress;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Microseconds between two questions whether anybody is left to take shards over.
const SUCCESSORS_EVERY_US: u64 = 1_000_000;

/// The control thread's ends.
pub(crate) struct Ends {
    pub(crate) messages: Receiver<ToControl>,
    pub(crate) hot: Sender<ToHot>,
    pub(crate) publisher: Sender<ToPublisher>,
    pub(crate) progress: Arc<Progress>,
}

/// The control thread's state.
pub(crate) struct Control {
    pub(crate) ends: Ends,
    /// The daemon's name in the group: another one each time it joins.
    pub(crate) member: u64,
    pub(crate) host: usize,
    pub(crate) ownership: Ownership,
    /// The rules that the daemon has.
    pub(crate) rulebook: AnyRulebook,
    /// The daemon has seen that the output is another topic by now. An operator brings the right
    /// one back before the daemon is restarted.
    pub(crate) is_output_recreated: bool,
    /// When the partitions of the input are counted again.
    pub(crate) counted_at: u64,
    /// What will happen, each at its time.
    pub(crate) coming: Vec<(u64, Coming)>,
    pub(crate) output: Output,
    /// The states that the shards may start from.
    pub(crate) states: StoredStates,
    pub(crate) loaded: BTreeMap<i32, Loaded>,
    pub(crate) begun: BTreeMap<i32, Begun>,
    /// Up to where each follower may apply its input, and which records it passes over.
    pub(crate) covered: BTreeMap<i32, (i64, BTreeSet<i64>)>,
    /// Shards that are closing.
    pub(crate) closing: BTreeSet<i32>,
    /// Partitions that the group has given to others.
    pub(crate) given_up: BTreeSet<i32>,
    /// Those of which it was told when it was no member any more.
    pub(crate) lost: BTreeSet<i32>,
    /// Shards that another owner has fenced: what they had on their way may never arrive.
    pub(crate) fenced: BTreeSet<i32>,
    /// Whether it is known which topic the input is.
    pub(crate) is_input_known: bool,
    /// Whether the last check for the input topic has not found it.
    pub(crate) has_check_failed: bool,
    /// How often it was heard that the input topic is gone, since it was found last.
    pub(crate) topic_missed: u32,
    /// Shards that the group counts us in for, since they were last surveyed.
    pub(crate) confirmed: BTreeSet<i32>,
    /// Where outputs ended when they were last surveyed, and the replicas that were found since, by
    /// partition.
    pub(crate) surveyed_ends: BTreeMap<i32, i64>,
    pub(crate) found: BTreeMap<i32, Header>,
    /// The first ones, for the daemon that looks for no others.
    pub(crate) first_found: BTreeMap<i32, Header>,
    /// When something was last on its way, and when the last turn was.
    pub(crate) unquiet_at: u64,
    pub(crate) turned_at: u64,
    /// Until then the thread waits for a broker or the disk.
    pub(crate) blocked_until: u64,
    /// When it last asked who can take its shards over, once it ends.
    pub(crate) asked_for_successors_at: Option<u64>,
    pub(crate) has_left: bool,
    /// Partitions with the input offsets that were committed of them.
    pub(crate) committed: Vec<(i32, i64)>,
    /// The results of acquisitions: why shards were refused, or where they began.
    pub(crate) acquired: Vec<(i32, Result<Mark, StartError>)>,
    /// Errors in decisions.
    pub(crate) wrong: Option<String>,
    pub(crate) mutation: Mutation,
    pub(crate) watch: CopyWatch,
    /// Whether what it follows with is an engine that differs, and those that follow or have
    /// followed, by partition.
    pub(crate) has_other_engine: bool,
    pub(crate) other_engines: BTreeMap<i32, Arc<OtherEngine>>,
}

/// A state that was loaded, with what its snapshot says if it is of one.
pub(crate) struct Loaded {
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) header: Option<Header>,
}

/// Where a shard that is open began.
pub(crate) struct Begun {
    pub(crate) ownership_id: u32,
    pub(crate) offset: i64,
    /// The state has seen records that the log has lost, and a Fetch tells that.
    pub(crate) is_of_another_log: bool,
}

/// Something that happens later.
pub(crate) enum Coming {
    /// The operator adds the rules that the daemon lacks.
    RulesAdded,
    Answered {
        question: u64,
        partitions: Vec<i32>,
        is_lost: bool,
    },
    Rejoined,
    /// Leaders have said where the logs of a partition begin and end.
    Surveyed {
        partition: i32,
        bounds: Result<Bounds, TopicError>,
    },
}

impl Control {
    pub(crate) fn new(
        (member, host): (u64, usize),
        ends: Ends,
        chance: &mut Chance,
        options: OwnershipOptions,
        common: &Common,
        now: u64,
        mutation: Mutation,
    ) -> Control {
        let mut options = options;
        let mut coming = Vec::new();
        let mut rulebook = common.rulebook.clone();
        if chance.strikes_of(Fault::RulesLacking, 10) {
            rulebook = fewer_rules();
            coming.push((now + chance.pick(&[1_000, 300_000, 3_000_000]), Coming::RulesAdded));
        } else if chance.one_in(2) {
            // Hosts may have the same rules in another order.
            let last = rulebook.rulesets().last().expect("there are rules");
            rulebook = rulebook.beginning_by(last).expect("just looked");
        }
        let rulebook = match options.version == common.later.version() {
            true => common.later.clone(),
            false => rulebook.into(),
        };
        (options.rulesets, options.version) = (rulebook.rulesets(), rulebook.version());
        options.read_slots = chance.between(1, 2) as usize;
        options.fence_ids = FenceIds::new("huntd", chance.next());
        let watch = CopyWatch::new(options.standby, now);
        let has_other_engine = common.other_host == Some(host);
        Control {
            member,
            host,
            ownership: Ownership::new(options, common.base + Duration::from_micros(now)),
            rulebook,
            coming,
            output: Output::new(mutation),
            closing: BTreeSet::new(),
            given_up: BTreeSet::new(),
            lost: BTreeSet::new(),
            fenced: BTreeSet::new(),
            states: StoredStates::new(origin(&ends.progress.input_topic_id)),
            loaded: BTreeMap::new(),
            begun: BTreeMap::new(),
            covered: BTreeMap::new(),
            is_input_known: false,
            has_check_failed: false,
            topic_missed: 0,
            confirmed: BTreeSet::new(),
            surveyed_ends: BTreeMap::new(),
            found: BTreeMap::new(),
            first_found: BTreeMap::new(),
            unquiet_at: now,
            turned_at: now,
            blocked_until: now,
            is_output_recreated: false,
            counted_at: 0,
            asked_for_successors_at: None,
            has_left: false,
            ends,
            committed: Vec::new(),
            acquired: Vec::new(),
            wrong: None,
            mutation,
            watch,
            has_other_engine,
            other_engines: BTreeMap::new(),
        }
    }

    /// Asks the daemon to end in order.
    pub(crate) fn stop(&mut self, around: &mut Surroundings<'_>) {
        if !self.is_stopping() {
            self.unquiet_at = around.now;
            self.asked_for_successors_at = Some(around.now);
            let has_successors =
                around.group.resign(self.member, self.watch.waits_for_resignations());
            self.on(around, OwnershipEvent::Stop { has_successors });
        }
    }

    /// It plays on only as long as there is anybody who can take its shards over.
    fn go_on_stopping(&mut self, around: &mut Surroundings<'_>) {
        if let Some(asked_at) = &mut self.asked_for_successors_at
            && *asked_at + SUCCESSORS_EVERY_US <= around.now
        {
            *asked_at = around.now;
            let has_successors = around.group.has_members();
            self.on(around, OwnershipEvent::Stop { has_successors });
        }
    }

    /// Whether it has been asked to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.asked_for_successors_at.is_some()
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_left
    }

    /// Whether only an operator can help: a shard has halted.
    pub(crate) fn needs_operator(&self) -> bool {
        self.ownership.summary().halted > 0
    }

    /// The process is gone. What was about to be appended may still be appended.
    pub(crate) fn die(self, late: &mut Vec<Late>) {
        self.output.die(late);
    }

    /// Whether something under way needs more turns soon.
    pub(crate) fn is_busy(&self) -> bool {
        self.ownership.is_busy() || !self.ends.messages.is_empty()
    }

    /// Microseconds that a busy thread waits at most for something to come.
    pub(crate) fn rest_us_max(&self) -> u64 {
        if self.watch.keeps_copies() { 9_000 } else { 2_000 }
    }

    pub(crate) fn turn(&mut self, around: &mut Surroundings<'_>) {
        if self.has_left {
            return;
        }
        self.note_quiet(around);
        self.check_starts();
        self.go_on_stopping(around);
        self.hear_group(around);
        self.hear_threads(around);
        self.hear_which_input(around);
        self.hear_what_comes(around);
        self.hear_topics(around);
        self.hear_output(around);
        self.see_group(around);
        let watched = self.ownership.watched().into_iter();
        let facts = |partition| handover::facts(&self.ends.progress, partition);
        let mut facts: Vec<ShardFacts> = watched.map(facts).collect();
        facts.iter_mut().for_each(|facts| self.uncheck_facts(facts));
        self.note_standstill(around, &facts);
        self.on(around, OwnershipEvent::Tick(&facts));
        while let Some(action) = self.ownership.next_action() {
            self.execute(around, action);
        }
        self.check_failures();
    }

    /// A client that has failed for good must have been given up.
    fn check_failures(&mut self) {
        if let Some(partition) = self.output.failed.first() {
            self.wrong = Some(format!("partition {partition} waits for an output that has failed"));
        }
        if self.topic_missed >= 2 && !self.has_left {
            self.wrong = Some("the daemon goes on, and its input topic is gone".to_owned());
        }
    }

    /// A shard whose state has seen other records than its log has must not go on.
    fn check_starts(&mut self) {
        for (partition, Begun { ownership_id, offset, is_of_another_log }) in &self.begun {
            let progress = self.ends.progress.shard(*partition);
            let has_moved =
                progress.ownership_id.get() == *ownership_id && *offset < progress.applied.get();
            if *is_of_another_log && has_moved {
                self.wrong = Some(format!(
                    "partition {partition} goes on at {offset}, and its log is not the one that \
                     was read before that"
                ));
            }
        }
    }

    pub(crate) fn on(&mut self, around: &Surroundings<'_>, event: OwnershipEvent<'_>) {
        if !matches!(event, OwnershipEvent::Tick(_) | OwnershipEvent::Output(_)) {
            around.trace(|| format!("member {} hears {event:?}", self.member));
        }
        self.ownership.on(event, around.instant());
    }

    fn is_played(&self, partition: i32) -> bool {
        self.ends.progress.shard(partition).ownership_id.get() != 0
    }

    /// Notes whether anything is on its way that may hold up a release.
    fn note_quiet(&mut self, around: &Surroundings<'_>) {
        let was_paused = around.now - self.turned_at > 200_000;
        if self.output.is_behind(around) || was_paused || around.is_disturbed {
            self.unquiet_at = around.now;
        }
    }

    fn hear_group(&mut self, around: &mut Surroundings<'_>) {
        if self.is_stopping() {
            return;
        }
        let Some(event) = around.group.poll((self.member, self.host), around.now) else { return };
        let event = match event {
            GroupEvent::Assigned(partitions) => {
                if partitions.iter().any(|partition| self.is_played(*partition)) {
                    around.chance.see(Sight::AssignedWhilePlayed);
                }
                self.given_up.retain(|partition| !partitions.contains(partition));
                if partitions.iter().any(|partition| self.lost.remove(partition)) {
                    around.chance.see(Sight::AssignedAfterLoss);
                }
                MembershipEvent::Assigned(partitions)
            }
            GroupEvent::Revoked(partitions) => {
                around.group.release(self.member, &partitions);
                self.given_up.extend(&partitions);
                if self.mutation == Mutation::PlaysOnNever {
                    let played = partitions.iter().filter(|partition| self.is_played(**partition));
                    played.for_each(|of| self.tell_hot(ToHot::Close { partition: *of }));
                }
                MembershipEvent::Revoked(partitions)
            }
            GroupEvent::Lost(partitions) => {
                self.given_up.extend(&partitions);
                self.lost.extend(&partitions);
                MembershipEvent::Lost(partitions)
            }
            GroupEvent::InstanceTaken => {
                MembershipEvent::Error(MembershipError::InstanceTaken("host".to_owned()))
            }
            GroupEvent::TopicMissing => {
                MembershipEvent::Error(MembershipError::TopicMissing(TOPIC.to_owned()))
            }
        };
        self.on(around, OwnershipEvent::Group(event));
    }

    fn hear_threads(&mut self, around: &mut Surroundings<'_>) {
        while let Some(message) = self.ends.messages.try_receive() {
            match message {
                ToControl::InputTrouble { trouble: InputTrouble::RecordsGone(_), .. } => {
                    around.chance.see(Sight::GapConfirmed);
                }
                ToControl::Trouble { .. }
                | ToControl::NoOps(_)
                | ToControl::InputTrouble { .. } => {}
                ToControl::ForeignSpan(span) => match self.passed_over(around, &span) {
                    Some(mark) => {
                        let ForeignSpan { partition, ownership_id, .. } = span;
                        let passed = ToPublisher::SpanChecked { partition, ownership_id, mark };
                        assert!(self.ends.publisher.try_send(passed).is_ok(), "there is room");
                    }
                    None => self.on(around, OwnershipEvent::ForeignSpan(span)),
                },
                ToControl::DeliveryFailed(failure) => {
                    around.chance.see(Sight::DeliveryFailed);
                    if self.mutation != Mutation::FailureIgnored {
                        self.on(around, OwnershipEvent::DeliveryFailed(failure));
                    }
                }
                ToControl::Shard(notice) => {
                    self.look_at(around, &notice);
                    self.on(around, OwnershipEvent::Shard(notice));
                }
            }
        }
    }

    /// Where a daemon goes on that passes over what readers take from foreign frames.
    fn passed_over(&self, around: &Surroundings<'_>, span: &ForeignSpan) -> Option<Mark> {
        if self.mutation != Mutation::MovedSpanPassed {
            return None;
        }
        let mut check = SpanCheck::new(*span, UPDATES);
        let log = &around.broker.outputs[span.partition as usize];
        for (offset, bytes) in (0..).zip(&log.records) {
            if check.result().is_none() {
                check.take(offset, bytes);
            }
        }
        let is_torn = check.result() == Some(SpanResult::Torn);
        is_torn.then_some(Mark { output_offset: span.to, ..span.from })
    }

    fn look_at(&mut self, around: &mut Surroundings<'_>, notice: &ShardNotice) {
        match notice {
            ShardNotice::Closed { .. } => around.chance.see(Sight::Closed),
            ShardNotice::Halted { sentence, .. } if sentence.contains("was checkpointed") => {
                around.chance.see(Sight::CheckpointFailed);
            }
            ShardNotice::Halted { sentence, .. } if sentence.contains("created again") => {
                around.chance.see(Sight::HaltedByNewInput);
            }
            ShardNotice::Halted { .. } | ShardNotice::CannotTakeOver { .. } => {}
            ShardNotice::Diverged { partition, error, .. } => {
                around.chance.see(Sight::Diverged);
                self.see_divergence(around, *partition);
                let begun = self.begun.get(partition).map(|begun| begun.offset);
                if let StartError::InputDiverged { applied, .. } = error
                    && begun == Some(*applied)
                {
                    around.chance.see(Sight::StartDiverged);
                }
                self.acquired.push((*partition, Err(*error)));
            }
            ShardNotice::Panicked { partition, offset, .. } => {
                around.chance.see(Sight::EnginePanicked);
                // Once more than that, if what it made is published: then the shard halts. And once
                // more, if the group takes the shard in the very moment in which it would halt.
                // That of a copy is not counted: it applies what is published.
                let is_copy = self.watch.is_copy(*partition);
                let seen = around.seen_panics.entry((*partition, *offset)).or_default();
                *seen += u32::from(!is_copy);
                let is_same_input = !around.broker.was_input_deleted()
                    && around.broker.inputs[*partition as usize].truncated_to.is_none();
                if *seen > PANICS_MAX + 2 && is_same_input {
                    self.wrong = Some(format!(
                        "the record at {offset} of partition {partition} takes down the host's \
                         engine again and again"
                    ));
                }
            }
        }
    }

    fn hear_what_comes(&mut self, around: &mut Surroundings<'_>) {
        while let Some(at) = self.coming.iter().position(|(at, _)| *at <= around.now) {
            match self.coming.remove(at).1 {
                Coming::Answered { question, partitions, is_lost } => {
                    self.answered(around, question, &partitions, is_lost);
                }
                Coming::Rejoined => self.rejoined(around),
                Coming::RulesAdded => self.rules_added(around),
                Coming::Surveyed { partition, bounds } => {
                    self.surveyed(around, partition, bounds);
                }
            }
        }
    }

    fn rules_added(&mut self, around: &mut Surroundings<'_>) {
        around.chance.see(Sight::RulesAdded);
        let rulebook = around.rulebook.clone();
        self.on(around, OwnershipEvent::RulesLoaded(rulebook.rulesets()));
        self.loaded.values_mut().for_each(|loaded| loaded.engine.know(&rulebook));
        self.tell_hot(ToHot::Rulebook(rulebook.clone()));
        self.rulebook = rulebook;
    }

    fn answered(
        &mut self,
        around: &mut Surroundings<'_>,
        question: u64,
        partitions: &[i32],
        is_lost: bool,
    ) {
        let counts = |partition: &i32| around.group.counts_in(self.member, *partition);
        let is_member = !is_lost && partitions.iter().all(counts);
        if is_member {
            self.confirmed.extend(partitions);
        }
        let known = |partition: &i32| Some((*partition, around.group.committed(*partition)?));
        let committed = partitions.iter().filter_map(known).collect();
        let event = MembershipEvent::Answered { question, is_member, committed };
        self.on(around, OwnershipEvent::Group(event));
    }

    fn rejoined(&mut self, around: &mut Surroundings<'_>) {
        if around.chance.strikes_of(Fault::RejoinFails, 20) {
            let error = MembershipError::Unreachable("kafka1".to_owned());
            return self.on(around, OwnershipEvent::Rejoined(Err(error)));
        }
        around.chance.see(Sight::Rejoined);
        around.group.leave(self.member);
        self.member = around.group.next_name();
        self.on(around, OwnershipEvent::Rejoined(Ok(())));
    }

    fn hear_output(&mut self, around: &mut Surroundings<'_>) {
        for happened in self.output.turn(around) {
            let is_ignored =
                self.mutation == Mutation::OutputFailureIgnored && happened.is_failure();
            if !is_ignored {
                self.on(around, OwnershipEvent::Output(happened.event()));
            }
        }
    }
}
