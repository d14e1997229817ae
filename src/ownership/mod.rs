//! Which shards are ours, and where each of them starts: one state machine, without I/O.
//!
//! [`Ownership::on`] takes what has happened and when; [`Ownership::next_action`] says what to do.
//! The control thread polls, passes events in and executes actions ([`crate::control`]), and the
//! simulator does the same with brokers of its own.
//!
//! ```text
//!  assigned                    an engine follows until it is warm,  without it, the
//!                                      then the group and the fence   state is loaded
//! ─────────► Due ──► Surveying ─► Acquiring ─────────────────────────┬─► Loading ─┬──► Open
//!             ▲         │             │                              └────────────┘     │
//!             └─────────┴─────────────┴── what may pass is tried again ─────────────────────┤
//!                                                        Halted ◄── what may not ───────────┤
//!                       the group gives it to others: played until they have fenced it ◄────┤
//!                                   the daemon ends: closing, then released in order ◄──────┘
//! ```

pub mod acquired;
mod acquirer;
pub mod acquisition;
pub mod action;
pub mod bounds;
pub mod event;
pub mod foreign_span;
pub(crate) mod group_session;
pub mod history;
pub(crate) mod instance_id;
mod log_task;
pub mod panic_counts;
pub mod placement;
pub(crate) mod read_slots;
pub(crate) mod release;
mod rivals;
mod setback;
mod shard_state;
mod shard_table;
pub(crate) mod silence;
pub mod standby;
pub mod start_error;
pub mod summary;

#[cfg(test)]
mod tests;

use crate::kafka::membership::{MembershipError, MembershipEvent};
use crate::kit::update_json::UpdateTable;
use crate::output::fence_id::FenceIds;
use crate::telemetry::progress::SHARDS_MAX;
use acquirer::Acquirer;
use acquisition::{Need, Remedy};
use action::{Note, OwnershipAction, Waiting};
use event::{DeliveryFailure, OutputEvent, OwnershipEvent, ShardFacts, ShardNotice};
use foreign_span::{ForeignSpan, SpanCheck, SpanResult};
use group_session::GroupSession;
use history::History;
use log_task::{LogTask, Purpose};
use read_slots::ReadSlots;
use release::{PLAY_ON_MS_MAX, Release};
use shard_state::{OpenPhase, OpenShard, ShardState};
use shard_table::ShardTable;
use standby::{StandbyOptions, TAKE_BACK_MS};
use std::time::{Duration, Instant};

/// Milliseconds that the group may take to say whether we are a member.
pub const GROUP_ANSWER_MS_MAX: u64 = 10_000;

/// Milliseconds for which a shard's start is retried before it halts, if a change of leaders may be
/// the cause.
pub const START_ERROR_MS_MAX: u64 = 5_000;

/// Milliseconds of an ownership after which the input's end is not that of an earlier Fetch: a
/// follower's may be answered just after it is promoted.
const FETCH_ANSWERED_MS: u64 = 1_000;

/// Panics of one record after which it is passed over.
pub const PANICS_MAX: u32 = 3;

/// What [`Ownership`] has to know from the start.
#[derive(Clone, Debug)]
pub struct OwnershipOptions {
    /// Partitions of the input topic, and of the output topic.
    pub partitions: i32,
    /// Hashes of the rules that this daemon has; the first is that of a new zone.
    pub rulesets: Vec<u32>,
    /// The version of the game.
    pub version: u32,
    /// What to do with a shard that cannot be started.
    pub remedy: Remedy,
    /// Records to be passed over for good, by partition and offset.
    pub skips: Vec<(i32, i64)>,
    /// Output partitions that are read at once.
    pub read_slots: usize,
    /// The copies of zones that other instances own.
    pub standby: StandbyOptions,
    /// Makes the ids of fences.
    pub fence_ids: FenceIds,
    /// The updates of the game.
    pub updates: &'static UpdateTable,
}

/// All shards of a daemon, from assignment to release.
#[derive(Debug)]
pub struct Ownership {
    session: GroupSession,
    table: ShardTable,
    acquirer: Acquirer,
    /// The daemon ends: until when others may take its shards over.
    plays_until: Option<Instant>,
}

impl Ownership {
    /// No shard is ours, and we are about to join the group.
    pub fn new(options: OwnershipOptions, now: Instant) -> Ownership {
        Ownership {
            session: GroupSession::new(now),
            table: ShardTable::new(options.read_slots),
            acquirer: Acquirer::new(options),
            plays_until: None,
        }
    }

    /// The next thing to do.
    pub fn next_action(&mut self) -> Option<OwnershipAction> {
        self.table.actions.pop_front()
    }

    /// Takes what has happened.
    pub fn on(&mut self, event: OwnershipEvent<'_>, now: Instant) {
        let Ownership { session, table, acquirer, .. } = self;
        table.actions.extend(session.check_clock(now));
        match event {
            OwnershipEvent::InputKnown { topic_id, panics } => {
                acquirer.input_known(&topic_id, panics);
            }
            OwnershipEvent::RulesLoaded(rulesets) => acquirer.rules_loaded(table, rulesets),
            OwnershipEvent::Group(event) => self.hear(event, now),
            OwnershipEvent::Rejoined(result) => table.actions.extend(session.rejoined(result, now)),
            OwnershipEvent::TopicChecked(result) => {
                table.actions.extend(session.topic_checked(result, now));
            }
            OwnershipEvent::Shard(notice) => self.notice(notice, now),
            OwnershipEvent::DeliveryFailed(failure) => self.delivery_failed(failure, now),
            OwnershipEvent::ForeignSpan(span) => self.check_span(span),
            OwnershipEvent::Surveyed { partition, survey } => {
                acquirer.surveyed(table, partition, survey, now);
            }
            OwnershipEvent::Found { partition, candidates, why_unknown } => {
                acquirer.found(table, partition, candidates, why_unknown, now);
            }
            OwnershipEvent::Loaded { partition, ruleset } => {
                acquirer.loaded(table, partition, ruleset, now)
            }
            OwnershipEvent::NotLoaded { partition, why } => {
                acquirer.not_loaded(table, partition, why, now)
            }
            OwnershipEvent::Interrupted { partition } => {
                acquirer.interrupted(table, partition, now)
            }
            OwnershipEvent::Output(event) => self.output(&event, now),
            OwnershipEvent::OutputRecreated => acquirer.output_recreated(table),
            // The count is reported again after the release.
            OwnershipEvent::InputCounted(_) if table.release.is_some() => {}
            OwnershipEvent::InputCounted(partitions) => acquirer.counted(table, partitions),
            OwnershipEvent::GroupSeen { .. } if session.is_rejoining() => {}
            OwnershipEvent::GroupSeen { view, ours } => {
                acquirer.group_seen(table, view, ours, now);
            }
            OwnershipEvent::Tick(facts) => self.tick(facts, now),
            OwnershipEvent::Stop { has_successors } => self.stop(has_successors, now),
        }
    }

    /// The partitions about which a tick must bring facts, in ascending order.
    pub fn watched(&self) -> Vec<i32> {
        let is_on_hot_thread =
            |shard: &ShardState| shard.open().is_some() || shard.followed_for().is_some();
        let open = self.table.iter().filter(|(_, shard)| is_on_hot_thread(shard));
        let mut watched: Vec<i32> = open.map(|(partition, _)| partition).collect();
        watched.extend(self.table.release.iter().flat_map(Release::partitions));
        watched.sort_unstable();
        watched.dedup();
        watched
    }

    /// Returns whether our fence of a shard that is not open yet is in the output or on its way.
    pub(crate) fn has_fenced(&self, partition: i32) -> bool {
        self.table.has_fenced(partition)
    }

    /// Whether something is read or asked for, so that the next event may come at any moment.
    pub fn is_busy(&self) -> bool {
        let is_active = |(_, shard): (i32, &ShardState)| match shard {
            ShardState::Open(open) => open.span.is_some(),
            shard => shard.is_being_acquired(),
        };
        self.is_ending() || self.table.iter().any(is_active)
    }

    /// The slots for reading output partitions, for `testing` to take them away.
    pub(crate) fn read_slots_mut(&mut self) -> &mut ReadSlots {
        &mut self.table.slots
    }

    /// Takes an event of the group. Once the daemon ends, only troubles count.
    fn hear(&mut self, event: MembershipEvent, now: Instant) {
        self.session.on_group_event(&event, now);
        match event {
            // It is meant for our former membership.
            _ if self.session.is_rejoining() => {}
            MembershipEvent::Error(error) => self.group_fails(error, now),
            _ if self.is_ending() => {}
            MembershipEvent::Assigned(partitions) => self.assign(partitions, now),
            MembershipEvent::Revoked(partitions) => {
                self.give_up(&partitions, now);
                self.table.log(Note::GivenUp(partitions));
            }
            MembershipEvent::Lost(partitions) => {
                self.give_up(&partitions, now);
                self.table.log(Note::Lost(partitions));
            }
            MembershipEvent::Answered { question, is_member, committed } => {
                let table = &mut self.table;
                self.acquirer.answered(table, question, is_member, &committed, now);
            }
        }
    }

    fn is_ending(&self) -> bool {
        self.plays_until.is_some() || self.table.release.is_some()
    }

    /// A shard that is played still goes on.
    fn assign(&mut self, mut partitions: Vec<i32>, now: Instant) {
        let Some(highest) = partitions.iter().copied().max() else { return };
        // The input may have grown beyond what a daemon has room for.
        partitions.retain(|partition| (*partition as usize) < SHARDS_MAX);
        for partition in &partitions {
            self.acquirer.rivals.forget(*partition);
            if let Some(open) = self.table.open_mut(*partition) {
                open.is_assigned = true;
                continue;
            }
            // A copy follows already, and needs nothing more than the group's word.
            let was_copy = self.table.copies.remove(partition).is_some();
            let is_on_its_way =
                self.table.get(*partition).is_some_and(ShardState::is_being_acquired);
            if was_copy && is_on_its_way {
                continue;
            }
            self.table.drop_shard(*partition);
            self.table.make_due(*partition, now, History::default());
        }
        self.table.log(Note::Assigned(partitions));
        // The group can know of new partitions before we have counted them.
        self.acquirer.counted(&mut self.table, highest + 1);
        if highest as usize >= SHARDS_MAX {
            let sentence = format!(
                "the group gives partition {highest} to this instance, and huntd supports \
                 {SHARDS_MAX} partitions at most; use a topic with fewer"
            );
            self.table.log(Note::Waiting { kind: Waiting::Group, sentence });
        }
    }

    /// Others will own these shards. What is played is played on: until one of them has fenced it,
    /// nobody else does. So is what we have just fenced, as if a copy had.
    fn give_up(&mut self, partitions: &[i32], now: Instant) {
        for partition in partitions {
            self.acquirer.rivals.forget(*partition);
            let has_fenced = self.table.has_fenced(*partition);
            match self.table.open_mut(*partition) {
                Some(open) => open.is_assigned = false,
                None if has_fenced => {
                    self.table.keep_as_copy(*partition, now);
                    self.acquirer.standby.watch(*partition, now);
                }
                None => {
                    self.table.stop_reading(*partition);
                    self.table.remove(*partition);
                }
            }
        }
    }

    fn group_fails(&mut self, error: MembershipError, now: Instant) {
        let MembershipError::InstanceTaken(instance_id) = &error else {
            let action = self.session.fails(error, now);
            return self.table.actions.push_back(action);
        };
        if self.is_ending() {
            return;
        }
        let Some(loss) = self.session.lose_id(now) else {
            return self.table.actions.push_back(OwnershipAction::Fail(error));
        };
        self.acquirer.forget_question();
        self.table.log(Note::Rejoining { instance_id: instance_id.clone(), loss });
        // Copies ask nobody for a zone, and stay.
        let mut assigned = self.table.partitions();
        assigned.retain(|partition| !self.table.is_copy(*partition));
        self.give_up(&assigned, now);
        self.table.actions.extend(self.session.next_action(now));
    }

    /// The daemon ends. Others in the group may take over what is played; without them, or when
    /// they have had their time, it ends in order.
    fn stop(&mut self, has_successors: bool, now: Instant) {
        if self.table.release.is_some() {
            return;
        }
        if !has_successors {
            return self.begin_release(now);
        }
        if self.plays_until.is_some() {
            return;
        }
        self.plays_until = Some(now + Duration::from_millis(PLAY_ON_MS_MAX));
        if self.acquirer.standby.waits_for_resignations() {
            self.acquirer.resign(&mut self.table);
        }
        self.acquirer.standby.end();
        self.table.drop_copies(|_| false);
        let mut partitions = self.table.partitions();
        partitions.retain(|partition| !self.table.is_halted(*partition));
        self.give_up(&partitions, now);
        self.table.log(Note::GivenUp(partitions));
    }

    /// Ends the daemon's shards once nobody else plays them in time.
    fn go_on_stopping(&mut self, now: Instant) {
        let Some(until) = self.plays_until else { return };
        let is_played = self
            .table
            .iter()
            .any(|(at, shard)| shard.open().is_some() || self.table.has_fenced(at));
        if self.table.release.is_none() && (!is_played || until <= now) {
            self.begin_release(now);
        }
    }

    /// Begins to release all shards. Those on the hot thread end in order.
    fn begin_release(&mut self, now: Instant) {
        let mut release = Release::new(now);
        self.acquirer.standby.end();
        self.table.drop_copies(|_| false);
        // A copy that has just fenced its zone is released with the other shards.
        self.table.copies.clear();
        let partitions = self.table.partitions();
        for partition in &partitions {
            let settled = self.table.open_mut(*partition).map(|open| open.settled_offset);
            match settled {
                Some(_) => {
                    release.add(*partition, settled);
                    self.table.close(*partition);
                }
                None if self.table.is_halted(*partition) => release.add_unopened(*partition),
                None => {
                    release.add_unopened(*partition);
                    self.table.stop_reading(*partition);
                    self.table.remove(*partition);
                }
            }
        }
        self.table.release = Some(release);
        self.table.log(Note::Releasing(partitions));
    }

    /// The owners that have ended in order say so: an owner of another version need not wait to see
    /// whether they publish more.
    fn say_farewells(&mut self) {
        let is_closed = |open: &&OpenShard| open.phase == OpenPhase::Closed;
        let epoch = |shard: &ShardState| Some(shard.open().filter(is_closed)?.owner_epoch);
        let ended = self.table.iter().filter_map(|(at, shard)| Some((at, epoch(shard)?)));
        for (partition, owner_epoch) in ended.collect::<Vec<_>>() {
            if self.table.release.as_mut().is_some_and(|it| it.sends_farewell(partition)) {
                let header = self.acquirer.farewell(owner_epoch);
                self.table.actions.push_back(OwnershipAction::Note { partition, header });
            }
        }
    }

    fn go_on_releasing(&mut self, now: Instant) {
        self.say_farewells();
        let Some(release) = &self.table.release else { return };
        let is_closing = |partition: &i32| {
            let open = self.table.get(*partition).and_then(ShardState::open);
            open.is_some_and(|open| open.phase != OpenPhase::Closed)
        };
        let is_closing = release.partitions().iter().any(is_closing);
        if release.is_late(now) || (!is_closing && !release.is_busy()) {
            self.plays_until = None;
            let (offsets, halted) = (release.offsets(), self.summary().halted);
            let partitions = release.partitions();
            self.table.release = None;
            for partition in partitions {
                self.table.drop_shard(partition);
                self.table.remove(partition);
            }
            self.table.actions.push_back(OwnershipAction::Leave { offsets, halted });
        }
    }

    /// Takes a notice of the hot thread.
    fn notice(&mut self, notice: ShardNotice, now: Instant) {
        let (partition, ownership_id) = notice.ownership();
        let is_open = self.table.is_current(partition, ownership_id);
        let is_current = is_open || self.table.is_following(partition, ownership_id);
        let Ownership { table, acquirer, .. } = self;
        match notice {
            ShardNotice::Closed { .. } => {
                table.log(Note::Released { partition });
                if is_open {
                    table.open_mut(partition).expect("it is open").phase = OpenPhase::Closed;
                }
            }
            // A copy applies published records alone, and nobody can pass over those.
            ShardNotice::Panicked { offset, .. } if table.is_copy(partition) && !is_open => {
                if is_current {
                    let why = format!("its engine fails at offset {offset}, which is published");
                    table.give_copy_up(partition, why);
                }
            }
            // The record panicked the engine, even if the shard has another owner by now.
            ShardNotice::Panicked { offset, .. } => {
                let times = acquirer.count_panic(table, partition, offset);
                if is_current {
                    acquirer.panicked(table, partition, offset, times, now);
                }
            }
            _ if !is_current => {}
            ShardNotice::CannotTakeOver { .. } if is_open => {
                let why = "its engine cannot go on where the output is".to_owned();
                acquirer.acquire_again(table, partition, why, now);
            }
            ShardNotice::CannotTakeOver { .. } => {
                let follower = table.get_mut(partition).and_then(ShardState::follower_mut);
                follower.expect("it follows").cannot_promote = true;
            }
            ShardNotice::Halted { sentence, .. } => table.halt(partition, sentence),
            ShardNotice::Diverged { error, .. } => {
                acquirer.diverged(table, partition, error, now);
            }
        }
    }

    /// A shard that failed to deliver is acquired again, unless that would only fail again.
    fn delivery_failed(&mut self, failure: DeliveryFailure, now: Instant) {
        let DeliveryFailure { partition, ownership_id, sentence, is_final } = failure;
        let Ownership { table, acquirer, .. } = self;
        if !table.is_current(partition, ownership_id) {
            return;
        }
        if !is_final {
            return acquirer.acquire_again(table, partition, sentence, now);
        }
        table.drop_shard(partition);
        let sentence = format!(
            "a frame or dead letter cannot be stored: {sentence}; raise max.message.bytes of the \
             output and dead-letter topics (docs/RUNBOOKS.md#not-stored)"
        );
        table.halt(partition, sentence);
    }

    /// The records between two frames of a shard have to be read.
    fn check_span(&mut self, span: ForeignSpan) {
        let partition = span.partition;
        if self.table.is_current(partition, span.ownership_id) {
            self.table.stop_reading(partition);
            let check =
                Purpose::CheckSpan(Box::new(SpanCheck::new(span, self.acquirer.options.updates)));
            let open = self.table.open_mut(partition).expect("it is current");
            open.span = Some(Box::new(LogTask::new(check)));
        }
    }

    /// Takes an event of the output topic.
    fn output(&mut self, event: &OutputEvent<'_>, now: Instant) {
        let Ownership { table, acquirer, .. } = self;
        match event {
            OutputEvent::Failed(error) => {
                for partition in table.partitions() {
                    if table.task(partition).is_some() {
                        acquirer.fail(table, partition, error, now);
                    }
                }
            }
            OutputEvent::Noted { partition, offset } => {
                if let Some(release) = &mut table.release {
                    release.noted(*partition);
                }
                acquirer.standby.noted(*partition, *offset, now);
            }
            OutputEvent::RequestFailed { partition, error } => {
                acquirer.fail(table, *partition, error, now);
            }
            OutputEvent::Record { partition, .. }
            | OutputEvent::End { partition }
            | OutputEvent::Appended { partition, .. } => {
                let Some(task) = table.task(*partition) else { return };
                let moved = task.take(event);
                let has_ended = task.need() == Need::End;
                if moved {
                    table.slots.moved(*partition, now);
                }
                match table.get(*partition) {
                    Some(ShardState::Open(_)) if has_ended => self.span_checked(*partition, now),
                    _ if has_ended => acquirer.acquired(table, *partition, now),
                    _ => {}
                }
            }
        }
    }

    /// The check of a foreign span has ended.
    fn span_checked(&mut self, partition: i32, now: Instant) {
        let Ownership { table, acquirer, .. } = self;
        table.stop_reading(partition);
        let open = table.open_mut(partition).expect("only an open shard's spans are checked");
        let ownership_id = open.ownership_id;
        let purpose = open.span.take().map(|task| task.into_purpose());
        let Some(Purpose::CheckSpan(check)) = purpose else {
            unreachable!("it has just ended");
        };
        match check.result().expect("it has ended") {
            SpanResult::Passed(mark) => {
                let pass = OwnershipAction::PassSpan { partition, ownership_id, mark };
                table.actions.push_back(pass);
            }
            SpanResult::Fenced { owner_epoch, fence_id } => {
                table.log(Note::Fenced { partition, owner_epoch });
                // If the group gives it to us, it is acquired again, and that asks the group first:
                // it may not have told us yet.
                let may_be_copy = !acquirer.options.fence_ids.are_of_another(fence_id);
                let is_left_for_a_while = acquirer.standby.is_on() && may_be_copy;
                let mut why =
                    format!("another instance has fenced it with owner epoch {owner_epoch}");
                if is_left_for_a_while {
                    let seconds = TAKE_BACK_MS / 1_000;
                    why += &format!(" and plays it: it is taken back {seconds} s later");
                }
                let open = table.open_mut(partition).expect("just looked at");
                let mut history = open.history(why, now);
                if is_left_for_a_while {
                    history.not_before = Some(now + Duration::from_millis(TAKE_BACK_MS));
                }
                table.drop_shard(partition);
                table.make_due(partition, now + history.wait(), history);
            }
            SpanResult::Torn => {
                let why = "readers take frames that this daemon did not write, or cannot read on: \
                           another program, or a clone of this machine, may write to the output"
                    .to_owned();
                acquirer.acquire_again(table, partition, why, now);
            }
        }
    }

    /// Time has passed.
    fn tick(&mut self, facts: &[ShardFacts], now: Instant) {
        let turn = self.acquirer.standby.tick(&self.table, now);
        for facts in facts {
            if let Some(release) = &mut self.table.release {
                release.take(facts);
            }
            self.locate(facts, now);
            self.acquirer.locate_follower(&mut self.table, facts, now);
        }
        if !self.acquirer.standby.is_on() {
            self.table.drop_copies(|_| false);
        }
        self.go_on_stopping(now);
        self.go_on_releasing(now);
        self.acquirer.begin_due(&mut self.table, now);
        self.acquirer.go_on(&mut self.table, turn, now);
        if !self.is_ending() {
            self.table.actions.extend(self.session.next_action(now));
        }
        if self.session.is_commit_due(now) {
            let open = self
                .table
                .iter()
                .filter_map(|(partition, shard)| Some((partition, shard.open()?.settled_offset)));
            let offsets = open.collect();
            self.table.actions.push_back(OwnershipAction::Commit(offsets));
        }
    }

    /// Takes where a shard stands. The first Fetch of an ownership shows where its input ends: not
    /// before the end that it had when the fence was written. The shard is live once it has applied
    /// that much.
    fn locate(&mut self, facts: &ShardFacts, now: Instant) {
        let Ownership { table, acquirer, .. } = self;
        let partition = facts.partition;
        let Some(open) = table.open_mut(partition) else { return };
        open.settled_offset = facts.settled_offset;
        let OpenPhase::Restoring(goal) = open.phase else { return };
        if facts.is_input_short() {
            let open_for = now.saturating_duration_since(open.opened_at);
            if open_for >= Duration::from_millis(FETCH_ANSWERED_MS) {
                let why = "the input ends before what the output covers of it".to_owned();
                acquirer.acquire_again(table, partition, why, now);
            }
            return;
        }
        let known = goal.or((facts.input_end >= 0).then_some(facts.input_end));
        let Some(offset) = known else { return };
        let is_there = facts.applied >= offset;
        open.phase = if is_there { OpenPhase::Live } else { OpenPhase::Restoring(known) };
        if goal.is_none() {
            table.actions.push_back(OwnershipAction::SetGoal { partition, offset });
        }
        if is_there {
            acquirer.rivals.trust(partition);
            table.log(Note::Live { partition, offset });
        }
    }
}
