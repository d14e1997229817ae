//! From due to owned, and back: what happens to a shard between the group and the hot thread.

use super::acquiring::Outcome;
use super::{Control, ControlEnds};
use crate::control::CONTROL_POLL_MS;
use crate::kafka::group::{Membership, MembershipEvent};
use crate::kafka::topic_error::TopicError;
use crate::ownership::acquisition::{Acquired, Brief, Remedy};
use crate::ownership::gap_check::{Gap, GapResult};
use crate::ownership::shard_state::ShardState;
use crate::ownership::start_error::StartError;
use crate::ownership::{ANSWER_MS_MAX, PANICS_MAX, REACQUIRE_MS, START_ERROR_MS_MAX, YIELD_MS};
use crate::publisher::{DeliveryFailure, ToPublisher};
use crate::shards::framer::Ownership;
use crate::shards::{Command, Notice};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

impl Control {
    /// Begins to acquire what is due, once it is known which input that is, and goes on with what
    /// was begun.
    pub(super) fn acquire(&mut self) {
        let is_input_known = self.options.origin.input_topic_id.get().is_some();
        let due = match is_input_known && self.events.is_empty() {
            true => self.shards.take_due(Instant::now()),
            false => Vec::new(),
        };
        if !due.is_empty() {
            let briefs = due.iter().map(|partition| self.brief(*partition)).collect();
            match self.acquiring.begin(briefs) {
                Ok(leaderless) => leaderless.into_iter().for_each(|partition| {
                    let sentence = format!("partition {partition} has no leader now");
                    self.fail_to_acquire(partition, &TopicError::Unreachable(sentence));
                }),
                Err(error) => {
                    due.iter().for_each(|partition| self.fail_to_acquire(*partition, &error));
                }
            }
        }
        self.go_on_acquiring(Duration::from_millis(CONTROL_POLL_MS));
    }

    fn brief(&mut self, partition: i32) -> Brief {
        let candidates = self.states.here(partition);
        let mut poison = self.poison().offsets(partition, PANICS_MAX);
        let asked = self.options.skips.iter().filter(|(of, _)| *of == partition);
        poison.extend(asked.map(|(_, offset)| offset));
        Brief {
            partition,
            rulesets: self.ends.rulebook.rulesets().collect(),
            candidates,
            poison,
            remedy: match self.anew.contains(&partition) {
                true => Remedy::BeginAnew,
                false => Remedy::Refuse,
            },
            diverged: self.diverged.contains(&partition),
        }
    }

    pub(super) fn go_on_acquiring(&mut self, wait_max: Duration) {
        if self.acquiring.is_idle() {
            return;
        }
        // One at a time: where brokers do not answer it takes a while, and the group is heard
        // between two of them.
        if let Some(partition) = self.acquiring.wants_states() {
            let Control { states, ends, events, membership, .. } = self;
            let mut watch = || keep_watch(ends, membership, events);
            let Some(candidates) = states.everywhere(partition, &mut watch) else { return };
            self.acquiring.offer(partition, candidates);
        }
        self.ask_the_group();
        for outcome in self.acquiring.go_on(wait_max) {
            match outcome {
                Outcome::Acquired(acquired) => self.open(acquired),
                Outcome::Refused { partition, refusal } => self.refuse(partition, refusal),
                Outcome::Failed { partition, error } => self.fail_to_acquire(partition, &error),
                Outcome::Crossed { jump, crossed } => self.cross(jump, crossed),
            }
        }
        self.ask_the_group();
    }

    /// Before a fence is written the group has to say that we are still in it. One question is
    /// under way at a time.
    fn ask_the_group(&mut self) {
        let answer_max = Duration::from_millis(ANSWER_MS_MAX);
        if let Some((_, _, asked_at)) = &self.question {
            if asked_at.elapsed() < answer_max {
                return;
            }
            let (_, partitions, _) = self.question.take().expect("it was there");
            let error = TopicError::Unreachable("the group does not answer a commit".to_owned());
            partitions.iter().for_each(|partition| self.fail_to_acquire(*partition, &error));
        }
        let questions = self.acquiring.questions();
        if questions.is_empty() {
            return;
        }
        let partitions = questions.iter().map(|(partition, _)| *partition).collect::<Vec<i32>>();
        let number = self.membership.ask(&questions);
        self.question = Some((number, partitions, Instant::now()));
    }

    /// Whatever the group said before its answer comes first: it may have given shards away.
    pub(super) fn answered(&mut self, question: u64, is_member: bool) {
        let Some((_, partitions, _)) = self.question.take_if(|(number, ..)| *number == question)
        else {
            return;
        };
        if is_member {
            self.acquiring.confirm(&partitions);
            return;
        }
        let error = TopicError::Unreachable("the group does not count us in now".to_owned());
        partitions.iter().for_each(|partition| self.fail_to_acquire(*partition, &error));
    }

    fn fail_to_acquire(&mut self, partition: i32, error: &TopicError) {
        self.acquiring.give_up(partition);
        match self.shards.get(partition) {
            Some(ShardState::Acquiring) if error.may_pass() => {
                // Time without an answer does not count as time in which it was refused.
                self.refused.remove(&partition);
                self.warn(&error.to_string());
                self.shards.make_due(partition, Instant::now() + REACQUIRE);
            }
            Some(ShardState::Acquiring) => self.halt(partition, &error.to_string()),
            // What failed was a look at a jump: without it nothing more can be verified.
            Some(ShardState::Restoring(_) | ShardState::Live(_)) => {
                self.acquire_again(partition, &error.to_string());
            }
            Some(ShardState::Due(_) | ShardState::Closing(_) | ShardState::Halted) | None => {}
        }
    }

    /// The shard is ours and cannot be started. What may pass is tried again for a while.
    fn refuse(&mut self, partition: i32, refusal: StartError) {
        if self.shards.get(partition) != Some(ShardState::Acquiring) {
            // What was truncated was a look at a jump.
            let error = TopicError::Unreachable(refusal.to_string());
            return self.fail_to_acquire(partition, &error);
        }
        if let Some(error) = self.states.why_unanswered(partition) {
            let error = TopicError::Unreachable(format!("{refusal}; and {error}"));
            return self.fail_to_acquire(partition, &error);
        }
        let since = *self.refused.entry(partition).or_insert_with(Instant::now);
        let persists = since.elapsed() >= Duration::from_millis(START_ERROR_MS_MAX);
        if refusal.may_pass() && !persists {
            self.warn(&format!("partition {partition}: {refusal}"));
            return self.shards.make_due(partition, Instant::now() + REACQUIRE);
        }
        match self.options.remedy {
            Remedy::BeginAnew if self.anew.insert(partition) => {
                tracing::warn!(partition, "beginning anew: {refusal}");
                self.shards.make_due(partition, Instant::now());
            }
            Remedy::BeginAnew | Remedy::Refuse => self.halt(partition, &refusal.to_string()),
        }
    }

    /// The output is ours: publisher and hot thread take over.
    fn open(&mut self, acquired: Acquired) {
        let Acquired {
            partition,
            owner_epoch: epoch,
            fence_id,
            mark,
            start,
            candidate,
            begun_by,
            skips,
        } = acquired;
        // An empty world must not pass for one of which there may be a copy.
        let begins_late = start.next_offset > 0 && mark.next_update == 0 && candidate.is_none();
        if let Some(error) = self.states.why_unanswered(partition).filter(|_| begins_late) {
            let error = TopicError::Unreachable(error.to_string());
            return self.fail_to_acquire(partition, &error);
        }
        let Control { states, ends, events, membership, .. } = self;
        let mut watch = || keep_watch(ends, membership, events);
        let rulebook = &ends.rulebook;
        let Some(engine) = states.load(partition, candidate, begun_by, rulebook, &mut watch) else {
            // An older state takes its place, or the same one once it can be read.
            return self.shards.make_due(partition, Instant::now() + REACQUIRE);
        };
        self.diverged.remove(&partition);
        self.anew.remove(&partition);
        self.refused.remove(&partition);
        let ownership_id = self.shards.open(partition);
        tracing::info!(
            partition,
            epoch,
            published = mark.next_update,
            start_offset = start.next_offset,
            start_update = start.next_update,
            from_snapshot = candidate.is_some(),
            ruleset = engine.ruleset(),
            "acquired"
        );
        let progress = self.ends.progress.shard(partition);
        progress.acked.set(mark.next_offset.max(start.next_offset));
        progress.high_watermark.set(-1);
        progress.goal.set(-1);
        progress.applied.set(start.next_offset);
        progress.ownership_id.set(ownership_id);
        let ownership = Ownership {
            partition,
            ownership_id,
            owner_epoch: epoch,
            fence_id,
            ruleset: engine.ruleset(),
            published: mark.next_update,
            published_chain: mark.chain,
            published_offset: mark.next_offset,
            start_offset: start.next_offset,
            start_update: start.next_update,
            start_chain: start.chain,
        };
        let zones = self.acquiring.partitions();
        self.order(ToPublisher::Begin { partition, ownership_id, mark, zones });
        let skips = skips.into_iter().filter(|offset| *offset >= start.next_offset).collect();
        self.command(Command::Open { ownership, engine, skips });
    }

    /// What lies between two of our frames is known.
    fn cross(&mut self, jump: Gap, crossed: GapResult) {
        let Gap { partition, ownership_id, .. } = jump;
        if !self.shards.is_current(partition, ownership_id) {
            return;
        }
        match crossed {
            GapResult::Bridged(mark) => {
                self.order(ToPublisher::GapChecked { partition, ownership_id, mark })
            }
            GapResult::Fenced { owner_epoch: epoch } => {
                tracing::warn!(partition, epoch, "another instance has fenced the shard: let go");
                self.drop_shard(partition);
                // The group will say whose it is. If it stays ours, so be it: acquiring asks first.
                self.shards.make_due(partition, Instant::now() + Duration::from_millis(YIELD_MS));
            }
            GapResult::Torn => self.acquire_again(partition, "the output is not what was written"),
        }
    }

    /// Handles what the other threads have to say.
    pub(super) fn take_notices(&mut self) {
        while let Some(notice) = self.ends.notices.try_receive() {
            self.take_notice(notice);
        }
        while let Some(jump) = self.ends.jumps.try_receive() {
            if self.shards.is_current(jump.partition, jump.ownership_id) {
                self.acquiring.check_gap(jump);
            }
        }
        while let Some(failure) = self.ends.failures.try_receive() {
            self.fail(failure);
        }
        self.take_reports();
    }

    fn take_notice(&mut self, notice: Notice) {
        let (partition, ownership_id) = notice.ownership();
        let is_current = self.shards.is_current(partition, ownership_id);
        match notice {
            Notice::Closed { .. } => self.closed(partition, is_current),
            _ if !is_current => {}
            Notice::Halted { sentence, .. } => self.halt(partition, &sentence),
            Notice::Diverged { refusal, .. } => self.diverge(partition, &refusal.to_string()),
            Notice::Panicked { offset, .. } => self.panicked(partition, offset),
        }
    }

    /// What is published cannot be made again.
    fn diverge(&mut self, partition: i32, sentence: &str) {
        match self.options.remedy {
            Remedy::Refuse => self.halt(partition, sentence),
            Remedy::BeginAnew => {
                self.anew.insert(partition);
                self.diverged.insert(partition);
                self.shards.make_due(partition, Instant::now());
            }
        }
    }

    /// The engine could not take a record. It may be able to another time; if it never is, the
    /// record is passed over, by this owner and all that come.
    fn panicked(&mut self, partition: i32, offset: i64) {
        let times = self.poison().count(partition, offset);
        if times > PANICS_MAX {
            // It was to be passed over, but what it caused is published already.
            self.forget_ownership(partition);
            let sentence = format!(
                "the engine fails at offset {offset}, whose updates are published: run the version \
                 that published them, or `huntd run --genesis`"
            );
            return self.diverge(partition, &sentence);
        }
        if times < PANICS_MAX {
            tracing::error!(partition, offset, times, "the engine failed: acquiring again");
        } else {
            tracing::error!(
                partition,
                offset,
                times,
                "the engine failed once more: the record is passed over and becomes a dead letter; \
                 keep it and report it"
            );
        }
        self.forget_ownership(partition);
        self.shards.make_due(partition, Instant::now() + REACQUIRE);
    }

    /// A shard that failed to deliver is acquired again, unless that would only fail again.
    fn fail(&mut self, failure: DeliveryFailure) {
        let DeliveryFailure { partition, ownership_id, sentence, is_final } = failure;
        if !self.shards.is_current(partition, ownership_id) {
            return;
        }
        if is_final {
            self.drop_shard(partition);
            let sentence = format!(
                "a frame or dead letter cannot be stored: {sentence}; raise max.message.bytes of \
                 the output and dead-letter topics, or publish.queue_kbytes_max"
            );
            self.halt(partition, &sentence);
        } else {
            self.acquire_again(partition, &sentence);
        }
    }

    pub(super) fn acquire_again(&mut self, partition: i32, sentence: &str) {
        tracing::warn!(partition, "acquiring the shard again: {sentence}");
        self.drop_shard(partition);
        self.shards.make_due(partition, Instant::now() + REACQUIRE);
    }

    pub(super) fn drop_shard(&mut self, partition: i32) {
        self.command(Command::Drop { partition });
        self.forget_ownership(partition);
    }

    fn forget_ownership(&mut self, partition: i32) {
        self.acquiring.give_up(partition);
        self.ends.progress.shard(partition).ownership_id.set(0);
    }

    pub(super) fn halt(&mut self, partition: i32, sentence: &str) {
        tracing::error!(partition, "the shard has halted: {sentence}");
        self.forget_ownership(partition);
        self.shards.halt(partition);
        self.ends.status.set_halted_shards(self.shards.halted());
    }

    fn closed(&mut self, partition: i32, is_current: bool) {
        let progress = self.ends.progress.shard(partition);
        tracing::info!(
            partition,
            offset = progress.published.get(),
            updates = progress.next_update.get(),
            digest = format_args!("{:016x}", progress.digest.get()),
            "released"
        );
        if is_current {
            self.shards.remove(partition);
        }
    }

    fn order(&mut self, order: ToPublisher) {
        // The queue has room for several orders a shard; a publisher that is gone needs none.
        let _gone = self.ends.orders.try_send(order);
    }
}

/// While other hosts' snapshots are read, the group is heard; what it says comes first, but for an
/// answer to our own question.
fn keep_watch(
    ends: &ControlEnds,
    membership: &mut Membership,
    events: &mut VecDeque<MembershipEvent>,
) -> ControlFlow<()> {
    events.extend(membership.poll(Duration::ZERO));
    let is_answer = |event: &MembershipEvent| matches!(event, MembershipEvent::Answered { .. });
    match ends.stop.load(Ordering::Acquire) || !events.iter().all(is_answer) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    }
}

const REACQUIRE: Duration = Duration::from_millis(REACQUIRE_MS);
