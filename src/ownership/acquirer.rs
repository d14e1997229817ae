//! Acquires shards and hands them to the hot thread: survey, read, load, follow, ask the group,
//! fence, promote. A start, a restart and a rebalance all take this path. If no engine can follow,
//! it is loaded and opened after the fence.

use crate::kafka::READ_STALL_MS_MAX;
use crate::kafka::metadata::MetadataError;
use crate::kafka::topic_error::TopicError;
use crate::ownership::acquired::Acquired;
use crate::ownership::acquisition::{Acquisition, Brief, Candidate, Need, Remedy};
use crate::ownership::action::{Cover, Note, Opening, OwnershipAction, Waiting};
use crate::ownership::event::{ShardFacts, Survey};
use crate::ownership::history::History;
use crate::ownership::log_task::{LogTask, Purpose};
use crate::ownership::panic_counts::PanicCounts;
use crate::ownership::read_slots::ReadPriority;
use crate::ownership::rivals::{OutputState, Rivals};
use crate::ownership::shard_state::{FollowingShard, ShardState};
use crate::ownership::shard_table::ShardTable;
use crate::ownership::standby::Standby;
use crate::ownership::start_error::StartError;
use crate::ownership::{GROUP_ANSWER_MS_MAX, OwnershipOptions, PANICS_MAX};
use std::time::{Duration, Instant};

/// What all acquisitions of a daemon have in common.
#[derive(Debug)]
pub(super) struct Acquirer {
    pub(super) options: OwnershipOptions,
    /// How often records panicked the engine; `None` until it is known which input they are in.
    pub(super) panics: Option<PanicCounts>,
    /// The question that the group has to answer before fences are written.
    question: Option<GroupQuestion>,
    /// Numbers of the last question and the last ownership.
    questions: u64,
    ownerships: u32,
    /// Other deployments that publish to our output.
    pub(super) rivals: Rivals,
    /// The copies of zones that other instances own.
    pub(super) standby: Standby,
}

/// A question to the group: do these partitions still belong to us?
#[derive(Debug)]
struct GroupQuestion {
    number: u64,
    partitions: Vec<i32>,
    asked_at: Instant,
}

impl Acquirer {
    /// Nothing is acquired yet.
    pub(super) fn new(options: OwnershipOptions) -> Acquirer {
        Acquirer {
            standby: Standby::new(options.standby),
            options,
            panics: None,
            question: None,
            questions: 0,
            ownerships: 0,
            rivals: Rivals::default(),
        }
    }

    /// Partitions of the topics.
    pub(super) fn partitions(&self) -> i32 {
        self.options.partitions
    }

    /// The input topic's id is known: shards can be acquired.
    pub(super) fn input_known(&mut self, topic_id: &[u8; 16], panics: PanicCounts) {
        self.options.fence_ids.read_from(topic_id);
        self.panics = Some(panics);
    }

    /// The operator has added rules. A copy that began before may take over by them.
    pub(super) fn rules_loaded(&mut self, table: &mut ShardTable, rulesets: Vec<u32>) {
        for partition in table.partitions() {
            if let Some(task) = table.task(partition) {
                task.know(&rulesets);
            }
        }
        self.options.rulesets = rulesets;
    }

    /// Another number of partitions may send players to other zones, so no shard can go on.
    pub(super) fn counted(&mut self, table: &mut ShardTable, partitions: i32) {
        let (before, now) = (self.partitions() as usize, partitions as usize);
        if now <= before {
            return;
        }
        self.standby.end();
        let sentence = MetadataError::PartitionCount { before, now }.to_string();
        for partition in table.partitions() {
            if !table.is_halted(partition) {
                table.drop_shard(partition);
                table.halt(partition, sentence.clone());
            }
        }
    }

    /// We are no longer a member: the group will not answer.
    pub(super) fn forget_question(&mut self) {
        self.question = None;
    }

    /// Begins with the shards that are due.
    pub(super) fn begin_due(&mut self, table: &mut ShardTable, now: Instant) {
        if self.panics.is_none() {
            return;
        }
        let is_due = |shard: &ShardState| matches!(shard, ShardState::Due { at, .. } if *at <= now);
        let due: Vec<i32> = table
            .iter()
            .filter(|(_, shard)| is_due(shard))
            .map(|(partition, _)| partition)
            .filter(|partition| self.standby.may_acquire(table, *partition, now))
            .collect();
        for partition in &due {
            let history = table.history(*partition);
            table.step(*partition, ShardState::Surveying { history });
        }
        if !due.is_empty() {
            table.actions.push_back(OwnershipAction::Survey(due));
        }
    }

    /// The survey of a shard is done: what it may start from is known.
    pub(super) fn surveyed(
        &mut self,
        table: &mut ShardTable,
        partition: i32,
        survey: Result<Survey, TopicError>,
        now: Instant,
    ) {
        let Some(ShardState::Surveying { history }) = table.get(partition) else { return };
        let history = history.clone();
        let Survey { bounds, candidates } = match survey {
            Ok(survey) => survey,
            Err(error) => return self.fail(table, partition, &error, now),
        };
        let brief = self.brief(partition, candidates, &history);
        let acquisition = Box::new(match table.is_copy(partition) {
            true => Acquisition::begin_as_copy(brief, bounds),
            false => Acquisition::begin(brief, bounds),
        });
        let task = Box::new(LogTask::new(Purpose::Acquire(acquisition)));
        let (why_unknown, follower) = (None, None);
        table.step(partition, ShardState::Acquiring { task, history, why_unknown, follower });
    }

    fn brief(&self, partition: i32, candidates: Vec<Candidate>, history: &History) -> Brief {
        let panics = self.panics.as_ref().expect("nothing is acquired before they are known");
        let mut to_skip = panics.offsets(partition, PANICS_MAX);
        let asked_for = self.options.skips.iter().filter(|(of, _)| *of == partition);
        to_skip.extend(asked_for.map(|(_, offset)| offset));
        Brief {
            partition,
            rulesets: self.options.rulesets.clone(),
            version: self.options.version,
            candidates,
            to_skip,
            remedy: match history.starts_over {
                true => Remedy::StartOver,
                false => Remedy::Refuse,
            },
            diverged: history.has_diverged,
            changed_from: history.changed_from,
            input: self.options.fence_ids.input(),
            updates: self.options.updates,
        }
    }

    /// Other hosts' states are found, or it is not known whether there are any.
    pub(super) fn found(
        &mut self,
        table: &mut ShardTable,
        partition: i32,
        candidates: Vec<Candidate>,
        why: Option<String>,
        now: Instant,
    ) {
        if let Some(ShardState::Acquiring { task, why_unknown, history, .. }) =
            table.get_mut(partition)
        {
            if task.is_surveyed_before(&candidates) {
                let history = history.clone();
                return table.make_due(partition, now, history);
            }
            *why_unknown = why;
            task.offer(candidates);
            table.slots.moved(partition, now);
        }
        self.leave_long_output(table, partition);
    }

    /// Continues every task that reads an output and has a slot, and gives up tasks that have not
    /// moved for long. `turn` is the time since the last call.
    pub(super) fn go_on(&mut self, table: &mut ShardTable, turn: Duration, now: Instant) {
        let stall_max = Duration::from_millis(READ_STALL_MS_MAX);
        let is_fence_on_its_way = table.is_fence_on_its_way(now);
        for partition in table.partitions() {
            if !is_fence_on_its_way {
                self.follow(table, partition, now);
            }
            self.go_on_without_group(table, partition, now);
            self.wait_for_state(table, partition, now);
            let Some(task) = table.task(partition) else { continue };
            // Reading on from the end takes no slot: another owner may publish little.
            if task.reads_on(turn) {
                table.slots.free(partition);
                continue;
            }
            let priority = match task.is_urgent() {
                true => ReadPriority::Urgent,
                false if table.is_copy(partition) => ReadPriority::Copy,
                false => ReadPriority::Assigned,
            };
            if !table.slots.take(partition, priority, now) {
                continue;
            }
            if table.slots.idle(partition, now) >= Some(stall_max) {
                let sentence = format!("nothing came of the output for {} s", stall_max.as_secs());
                self.fail(table, partition, &TopicError::Unreachable(sentence), now);
                continue;
            }
            if table.slots.has_word(partition, now) {
                say_what_it_waits_for(table, partition);
            }
            let task = table.task(partition).expect("just looked at");
            let action = task.next_action(partition);
            let has_ended = task.need() == Need::End;
            table.actions.extend(action);
            if has_ended {
                self.acquired(table, partition, now);
            }
        }
        if !is_fence_on_its_way {
            self.find_states(table);
        }
        self.ask_the_group(table, now);
    }

    /// Lets an engine follow the output, from where that can begin now.
    fn follow(&mut self, table: &mut ShardTable, partition: i32, now: Instant) {
        let Some(ShardState::Acquiring { task, follower, why_unknown, .. }) =
            table.get_mut(partition)
        else {
            return;
        };
        if !matches!(task.need(), Need::Follow { .. }) {
            return;
        }
        let begun = task.followed().expect("it follows something");
        if follower.as_ref().is_some_and(|it| it.begun.begins_like(begun)) {
            return;
        }
        let begun = begun.clone();
        if let Some(why) = why_unknown.clone().filter(|_| begun.begins_late()) {
            return self.fail(table, partition, &TopicError::NotNow(why), now);
        }
        table.stop_following(partition);
        let load = OwnershipAction::load(&begun);
        let Some(ShardState::Acquiring { follower, .. }) = table.get_mut(partition) else {
            unreachable!("just looked at");
        };
        *follower = Some(Box::new(FollowingShard::new(begun, now)));
        table.actions.push_back(load);
    }

    /// Takes where a shard is that follows, and lets it go on to where the output is read.
    pub(super) fn locate_follower(
        &mut self,
        table: &mut ShardTable,
        facts: &ShardFacts,
        now: Instant,
    ) {
        let partition = facts.partition;
        let is_copy = table.is_copy(partition);
        let Some(ShardState::Acquiring { task, follower: Some(follower), history, .. }) =
            table.get_mut(partition)
        else {
            return;
        };
        let Some(ownership_id) = follower.ownership_id else { return };
        // Later covers may be of input that was not there at the last Fetch.
        if (0..follower.begun.acked()).contains(&facts.input_end) {
            let why = "the input ends before what the output covers of it".to_owned();
            return self.fail(table, partition, &TopicError::NotNow(why), now);
        }
        task.see_input_end(facts.input_end);
        let mut cover = None;
        if let Some(mark) = task.cover().filter(|mark| *mark != follower.covered) {
            (follower.covered, follower.covered_at) = (mark, now);
            let settled = task.committed.filter(|offset| *offset <= mark.next_offset);
            let settled_offset = settled.unwrap_or(follower.begun.start.next_offset);
            let cover_to = Cover { partition, ownership_id, mark, settled_offset };
            cover = Some(OwnershipAction::Cover(cover_to));
        }
        if matches!(task.need(), Need::Follow { .. }) && task.cover().is_some() {
            let is_read_to_end = task.was_at_end();
            let may_bid = !is_copy && history.not_before.is_none_or(|at| at <= now);
            let stays_ahead = follower.stays_ahead(facts.next_update, now);
            follower.cannot_promote |= stays_ahead;
            let awaits_quiet = task.may_other_version_publish();
            let is_warm =
                !stays_ahead && follower.is_warm(facts, is_read_to_end, awaits_quiet, now);
            if is_warm {
                follower.warm_at = Some(now);
            }
            if (stays_ahead || is_warm) && may_bid {
                task.bid();
            } else if follower.goal.1 == now {
                task.forget_end();
            }
        }
        table.actions.extend(cover);
        if is_copy {
            self.watch_owner(table, facts, now);
        }
    }

    /// One shard at a time: if brokers do not answer, it takes a while, and the group's events are
    /// handled between two shards.
    fn find_states(&mut self, table: &mut ShardTable) {
        let is_asking =
            |action: &OwnershipAction| matches!(action, OwnershipAction::FindStates { .. });
        if table.actions.iter().any(is_asking) {
            return;
        }
        for partition in table.partitions() {
            if let Some(task) = table.task(partition)
                && task.need() == Need::States
                && task.ask(Need::States)
            {
                table.actions.push_back(OwnershipAction::FindStates { partition });
                return;
            }
        }
    }

    /// Before a fence is written the group has to say that we are still in it. One question is
    /// under way at a time.
    fn ask_the_group(&mut self, table: &mut ShardTable, now: Instant) {
        let answer_max = Duration::from_millis(GROUP_ANSWER_MS_MAX);
        let is_waiting = |question: &GroupQuestion| {
            now.saturating_duration_since(question.asked_at) < answer_max
        };
        if self.question.as_ref().is_some_and(is_waiting) {
            return;
        }
        if let Some(question) = self.question.take() {
            let error = TopicError::Unreachable("the group does not answer a commit".to_owned());
            self.fail_to_confirm(table, &question.partitions, &error, now);
        }
        let mut offsets = Vec::new();
        for partition in table.partitions() {
            if let Some(task) = table.task(partition)
                && let need @ Need::Confirm { input_start } = task.need()
                && task.ask(need)
            {
                offsets.push((partition, input_start));
            }
        }
        if offsets.is_empty() {
            return;
        }
        self.questions += 1;
        let partitions = offsets.iter().map(|(partition, _)| *partition).collect();
        self.question = Some(GroupQuestion { number: self.questions, partitions, asked_at: now });
        table.actions.push_back(OwnershipAction::Ask { question: self.questions, offsets });
    }

    /// The group has answered. Its earlier events were handled before: it may have given shards
    /// away.
    pub(super) fn answered(
        &mut self,
        table: &mut ShardTable,
        number: u64,
        is_member: bool,
        committed: &[(i32, i64)],
        now: Instant,
    ) {
        let is_ours = |question: &mut GroupQuestion| question.number == number;
        let Some(question) = self.question.take_if(is_ours) else { return };
        if !is_member {
            let error = TopicError::NotNow("the group does not count us in now".to_owned());
            return self.fail_to_confirm(table, &question.partitions, &error, now);
        }
        for partition in question.partitions {
            let committed = committed.iter().find(|(of, _)| *of == partition);
            let Some(task) = table.task(partition) else { continue };
            task.committed = committed.map(|(_, offset)| *offset);
            let Some(may_fence) = task.may_fence() else { continue };
            if !may_fence {
                task.follow();
                table.slots.moved(partition, now);
                continue;
            }
            let fence_id = self.options.fence_ids.next();
            let Some(task) = table.task(partition) else { continue };
            let Some((owner_epoch, in_force)) = task.fence_in_force() else { continue };
            let is_foreign = self.options.fence_ids.are_of_another(in_force);
            match self.rivals.check(partition, owner_epoch, is_foreign, now) {
                OutputState::Ours => {}
                OutputState::Taken => table.log(Note::Rival { partition }),
                OutputState::Lost => {
                    table.halt_unstartable(partition, StartError::Contended);
                    continue;
                }
            }
            let Some(ShardState::Acquiring { task, history, .. }) = table.get_mut(partition) else {
                continue;
            };
            task.confirm(fence_id);
            (history.fences, history.silent_at) = (history.fences + 1, None);
            self.rivals.fence(partition, owner_epoch + 1);
            table.slots.moved(partition, now);
        }
    }

    /// The group has not confirmed these. Some may have been given away and back since, and do not
    /// wait for this answer.
    fn fail_to_confirm(
        &mut self,
        table: &mut ShardTable,
        partitions: &[i32],
        error: &TopicError,
        now: Instant,
    ) {
        for partition in partitions {
            if table.task(*partition).is_some_and(|task| task.may_fence().is_some()) {
                self.fail(table, *partition, error, now);
            }
        }
    }

    /// The task of a shard that is being acquired needs nothing more.
    pub(super) fn acquired(&mut self, table: &mut ShardTable, partition: i32, now: Instant) {
        let Some(ShardState::Acquiring { task, why_unknown, .. }) = table.get_mut(partition) else {
            unreachable!("only an acquisition ends so");
        };
        let committed = task.committed;
        let (outcome, why_unknown) = (task.take_outcome(), why_unknown.take());
        table.slots.free(partition);
        table.actions.push_back(OwnershipAction::Forget { partition });
        match outcome {
            Ok(acquired) if self.can_promote(table, &acquired) => {
                self.promote(table, acquired, committed, now);
            }
            Ok(acquired) => self.load(table, acquired, why_unknown, now),
            Err(error) => self.cannot_start(table, partition, error, why_unknown, now),
        }
    }

    /// Returns whether the engine that has followed can continue the output, now that it is ours.
    fn can_promote(&self, table: &mut ShardTable, acquired: &Acquired) -> bool {
        let follower = table.get_mut(acquired.partition).and_then(ShardState::follower_mut);
        follower.is_some_and(|follower| {
            follower.ownership_id.is_some()
                && !follower.cannot_promote
                && follower.begun.begins_like(acquired)
        })
    }

    /// The output is ours, and the engine that has followed it goes on.
    fn promote(
        &mut self,
        table: &mut ShardTable,
        acquired: Acquired,
        committed: Option<i64>,
        now: Instant,
    ) {
        let partition = acquired.partition;
        let follower = table.get_mut(partition).and_then(ShardState::follower_mut);
        let follower = follower.expect("just looked at");
        let (ownership_id, ruleset) =
            (follower.ownership_id.expect("just looked at"), follower.ruleset);
        let settled_offset = acquired.settled_offset(committed);
        let zones = self.options.partitions;
        let opening = Opening { ownership_id, ruleset, zones, acquired, settled_offset };
        self.open(table, opening, now);
    }

    /// A shard goes to the hot thread.
    fn open(&mut self, table: &mut ShardTable, opening: Opening, now: Instant) {
        let partition = opening.acquired.partition;
        self.rivals.opened(partition, now);
        if let Some(position) = table.history(partition).silent_at {
            self.standby.took(partition, position);
        }
        table.open(opening, now);
    }

    /// The output is ours: the state it starts from is loaded.
    fn load(
        &mut self,
        table: &mut ShardTable,
        acquired: Acquired,
        why_unknown: Option<String>,
        now: Instant,
    ) {
        let (partition, load) = (acquired.partition, OwnershipAction::load(&acquired));
        if let Some(why) = why_unknown.filter(|_| acquired.begins_late()) {
            return self.fail(table, partition, &TopicError::NotNow(why), now);
        }
        table.stop_following(partition);
        let history = table.history(partition);
        let acquired = Box::new(acquired);
        table.step(partition, ShardState::Loading { acquired, history });
        table.actions.push_back(load);
    }

    /// The state is loaded: publisher and hot thread take over.
    pub(super) fn loaded(
        &mut self,
        table: &mut ShardTable,
        partition: i32,
        ruleset: u32,
        now: Instant,
    ) {
        let (ownership_id, zones) = (self.ownerships + 1, self.options.partitions);
        match table.get_mut(partition) {
            Some(ShardState::Loading { acquired, .. }) => {
                let acquired = acquired.as_ref().clone();
                let settled_offset = acquired.start.next_offset;
                let opening = Opening { ownership_id, ruleset, zones, acquired, settled_offset };
                self.open(table, opening, now);
            }
            Some(ShardState::Acquiring { task, follower: Some(follower), .. })
                if follower.ownership_id.is_none() =>
            {
                (follower.ownership_id, follower.ruleset) = (Some(ownership_id), ruleset);
                follower.goal.1 = now;
                let acquired = follower.begun.clone();
                let settled_offset = acquired.settled_offset(task.committed);
                let opening = Opening { ownership_id, ruleset, zones, acquired, settled_offset };
                table.actions.push_back(OwnershipAction::Follow(Box::new(opening)));
            }
            _ => return,
        }
        self.ownerships = ownership_id;
    }

    /// Another version publishes. Its owner may leave a state at any moment, and says that it has;
    /// one that cannot say so is looked after again and again.
    fn wait_for_state(&mut self, table: &mut ShardTable, partition: i32, now: Instant) {
        let is_copy = table.is_copy(partition);
        let Some(ShardState::Acquiring { task, history, .. }) = table.get_mut(partition) else {
            return;
        };
        let Some(error) = task.behind() else { return };
        match task.waits_until {
            None if is_copy => task.give_up_waiting(),
            Some(until) if until <= now => task.give_up_waiting(),
            Some(_) => {}
            None => {
                task.waits_until = Some(now + history.wait());
                self.say_who_plays(table, partition, &error, now);
            }
        }
    }

    /// Returns whether another version plays the zone, for which ours waits.
    pub(super) fn awaits_version(
        &self,
        (partition, shard): (i32, &ShardState),
        now: Instant,
    ) -> bool {
        let ShardState::Acquiring { task, .. } = shard else { return false };
        task.behind().is_some() && !self.rivals.are_gone(partition, now)
    }

    /// The state cannot be loaded, because of this. The next attempt takes an older state, or this
    /// one if it can be read by then.
    pub(super) fn not_loaded(
        &mut self,
        table: &mut ShardTable,
        partition: i32,
        sentence: String,
        now: Instant,
    ) {
        let kind = Waiting::Acquiring(partition);
        table.log(Note::Waiting { kind, sentence: format!("partition {partition}: {sentence}") });
        if let Some(ShardState::Loading { history, .. } | ShardState::Acquiring { history, .. }) =
            table.get_mut(partition)
        {
            history.why = Some(sentence);
        }
        self.load_again(table, partition, now);
    }

    /// A state is not loaded so far: the shard is acquired again.
    fn load_again(&mut self, table: &mut ShardTable, partition: i32, now: Instant) {
        let is_loading = match table.get(partition) {
            Some(ShardState::Loading { .. }) => true,
            Some(ShardState::Acquiring { follower: Some(follower), .. }) => {
                follower.ownership_id.is_none()
            }
            _ => false,
        };
        if is_loading {
            let history = table.history(partition);
            table.make_due(partition, now + history.wait(), history);
        }
    }

    /// Finding or loading a state was interrupted by something more urgent.
    pub(super) fn interrupted(&mut self, table: &mut ShardTable, partition: i32, now: Instant) {
        if let Some(task) = table.task(partition) {
            task.unask();
        }
        self.load_again(table, partition, now);
    }
}

/// Says what a shard waits for whose acquisition has not moved for a while.
fn say_what_it_waits_for(table: &mut ShardTable, partition: i32) {
    let Some(ShardState::Acquiring { task, history, .. }) = table.get_mut(partition) else {
        return;
    };
    let sentence = match task.need() {
        Need::Read { from } | Need::Follow { from } | Need::Await { from } => format!(
            "no broker brings the output's records from offset {from} on; see whether its leader \
             hangs"
        ),
        Need::Append(_) => "the output's leader does not acknowledge our fence; see whether it \
                            hangs, and whether min.insync.replicas of its replicas are in sync"
            .to_owned(),
        Need::Confirm { .. } => "the group does not answer a commit; see whether its coordinator \
                                 hangs"
            .to_owned(),
        Need::States | Need::End => return,
    };
    history.why = Some(sentence.clone());
    let kind = Waiting::Acquiring(partition);
    table.log(Note::Waiting { kind, sentence });
}
