//! What a daemon's control thread does: the decisions of [`Ownership`], executed late, twice or not
//! at all.
//!
//! [`Ownership`]: huntd::ownership::Ownership

use crate::answers::TOPIC;
use crate::chance::{Fault, Sight};
use crate::control::{Begun, Coming, Control, Loaded};
use crate::game::Record;
use crate::mutation::Mutation;
use crate::surroundings::{KeptPanics, Surroundings};
use huntd::control::handover;
use huntd::decoder::{Decoder, RecordPosition};
use huntd::hunt::event::{Action, EVENTS};
use huntd::kafka::membership::{MembershipError, MembershipEvent};
use huntd::output::frame::{FrameHeader, FrameKind};
use huntd::ownership::GROUP_ANSWER_MS_MAX;
use huntd::ownership::action::{Cover, Note, Opening, OwnershipAction};
use huntd::ownership::event::OwnershipEvent;
use huntd::ownership::history::REACQUIRE_MS;
use huntd::ownership::panic_counts::PanicCounts;
use huntd::ownership::start_error::StartError;
use huntd::publisher::ToPublisher;
use huntd::shards::ToHot;
use huntd::shards::framer::Grant;
use huntd::snapshot::format::Header;
use huntd::testing::canary::read_slots;
use std::time::Duration;

/// Microseconds of quiet after which nothing holds up a release any more.
const QUIET_US: u64 = 1_000_000;

impl Control {
    pub(crate) fn execute(&mut self, around: &mut Surroundings<'_>, action: OwnershipAction) {
        if !matches!(action, OwnershipAction::Read { .. } | OwnershipAction::Commit(_)) {
            around.trace(|| format!("member {} does {action:?}", self.member));
        }
        let at = around.now + around.chance.delay_us();
        match action {
            OwnershipAction::Survey(partitions) => {
                partitions.into_iter().for_each(|partition| self.survey(around, partition));
            }
            OwnershipAction::FindStates { partition } => {
                self.blocked_until = at;
                self.find(around, partition);
            }
            OwnershipAction::Load { partition, candidate, begun_by, migrates_to } => {
                self.blocked_until = at;
                self.check_start(around, partition, candidate);
                match (candidate, migrates_to) {
                    (Some(candidate), Some(ruleset)) => {
                        self.convert(around, partition, candidate, ruleset);
                    }
                    _ => self.load(around, partition, candidate, begun_by),
                }
            }
            OwnershipAction::Rejoin => self.coming.push((at, Coming::Rejoined)),
            OwnershipAction::Ask { question, offsets } => self.ask(around, at, question, &offsets),
            OwnershipAction::Read { partition, from } => {
                let is_forgotten = self.mutation == Mutation::SpanCheckForgotten
                    && self.closing.contains(&partition);
                if !is_forgotten {
                    self.output.read(partition, from);
                }
            }
            OwnershipAction::Append { partition, header } => {
                self.append(around, partition, &header)
            }
            OwnershipAction::Note { partition, header } => {
                self.output.append_note(around, partition, &header);
            }
            OwnershipAction::Forget { partition } => self.forget(around, partition),
            OwnershipAction::Open(opening) => self.open(around, *opening),
            OwnershipAction::Follow(opening) => self.follow(around, *opening),
            OwnershipAction::Cover(cover) => self.cover(around, cover),
            OwnershipAction::Promote(opening) => self.promote(around, *opening),
            OwnershipAction::Close { partition } => self.close(partition),
            OwnershipAction::Drop { partition } => self.tell_hot(ToHot::Drop { partition }),
            OwnershipAction::Disown { partition } => {
                self.closing.remove(&partition);
                self.loaded.remove(&partition);
                self.begun.remove(&partition);
                self.ends.progress.shard(partition).ownership_id.set(0);
            }
            OwnershipAction::SetGoal { partition, offset } => {
                self.ends.progress.shard(partition).goal.set(offset);
            }
            OwnershipAction::PassSpan { partition, ownership_id, mark } => {
                around.chance.see(Sight::ForeignSpanPassed);
                self.tell_publisher(ToPublisher::SpanChecked { partition, ownership_id, mark });
            }
            OwnershipAction::KeepPanicCounts(counts) => self.keep_panics(around, counts),
            OwnershipAction::Commit(offsets) => self.commit(around, &offsets),
            OwnershipAction::CheckTopic => self.check_topic(around),
            OwnershipAction::Leave { offsets, .. } => {
                self.commit(around, &offsets);
                self.check_release(around, &offsets);
                around.group.leave(self.member);
                self.has_left = true;
            }
            OwnershipAction::Fail(error) => self.fail(&error),
            OwnershipAction::Log(note) => self.look_at_note(around, &note),
        }
    }

    fn close(&mut self, partition: i32) {
        self.closing.insert(partition);
        if self.mutation == Mutation::SpanCheckForgotten {
            self.output.forget(partition);
        }
        self.tell_hot(ToHot::Close { partition });
    }

    fn keep_panics(&self, around: &mut Surroundings<'_>, counts: PanicCounts) {
        if self.mutation != Mutation::PanicsForgotten {
            let topic_id = *self.ends.progress.input_topic_id.get().expect("it was read");
            *around.panics = KeptPanics { topic_id, counts };
        }
    }

    fn check_topic(&mut self, around: &mut Surroundings<'_>) {
        let missing = MembershipError::TopicMissing(TOPIC.to_owned());
        let checked = if around.chance.one_in(2) {
            around.chance.see(Sight::TopicCheckFailed);
            Err(MembershipError::Unreachable("kafka1".to_owned()))
        } else if around.broker.has_input() {
            Ok(())
        } else {
            Err(missing.clone())
        };
        match &checked {
            Ok(()) => self.topic_missed = 0,
            Err(error) => self.topic_missed += u32::from(*error == missing),
        }
        if checked.is_ok() && self.has_check_failed {
            around.chance.see(Sight::TopicFoundAgain);
        }
        if self.topic_missed == 2 {
            around.chance.see(Sight::TopicGone);
        }
        self.has_check_failed = checked.is_err();
        let heard = match self.mutation {
            Mutation::TopicCheckMisread => checked.map_err(|_| missing),
            _ => checked,
        };
        self.on(around, OwnershipEvent::TopicChecked(heard));
    }

    fn fail(&mut self, error: &MembershipError) {
        self.has_left = true;
        if let MembershipError::TopicMissing(_) = error
            && self.topic_missed < 2
        {
            self.wrong = Some("the daemon ends, and nobody has missed its input topic".to_owned());
        }
    }

    fn append(&mut self, around: &mut Surroundings<'_>, partition: i32, header: &FrameHeader) {
        self.note_other_engine(partition, false);
        if header.kind == FrameKind::Fence && !self.confirmed.contains(&partition) {
            self.wrong = Some(format!(
                "partition {partition} is fenced, and the group has not counted the daemon in"
            ));
        }
        if header.kind == FrameKind::Updates {
            self.see_edition(around);
        }
        self.output.append(around, partition, header);
    }

    fn forget(&mut self, around: &Surroundings<'_>, partition: i32) {
        self.output.forget(partition);
        if self.mutation == Mutation::SlotKept {
            let for_ever = around.instant() + Duration::from_secs(3_600);
            read_slots(&mut self.ownership).hold(partition, for_ever);
        }
    }

    fn ask(
        &mut self,
        around: &mut Surroundings<'_>,
        at: u64,
        question: u64,
        offsets: &[(i32, i64)],
    ) {
        offsets.iter().for_each(|(partition, _)| self.note_other_engine(*partition, true));
        let partitions = offsets.iter().map(|(partition, _)| *partition).collect();
        if self.mutation == Mutation::OpenedUnanswered {
            let committed = Vec::new();
            let event = MembershipEvent::Answered { question, is_member: true, committed };
            return self.on(around, OwnershipEvent::Group(event));
        }
        if around.chance.strikes_of(Fault::AnswerLost, 5) {
            // The machine waits for its answer as long as it does.
            let at = around.now + 2 * GROUP_ANSWER_MS_MAX * 1000;
            return self
                .coming
                .push((at, Coming::Answered { question, partitions, is_lost: true }));
        }
        let is_lost = around.chance.strikes_of(Fault::NotCounted, 5);
        self.coming.push((at, Coming::Answered { question, partitions, is_lost }));
    }

    fn open(&mut self, around: &mut Surroundings<'_>, mut opening: Opening) {
        around.chance.see(Sight::OpenedCold);
        self.begin_edition(&mut opening.acquired);
        self.begin_ownership(around, &opening);
        let Loaded { engine, header } = self.take_loaded(around, &opening);
        let start = opening.acquired.start;
        let (begin, mut open) = handover::open(&self.ends.progress, opening, engine);
        if let ToHot::Open { grant, .. } = &mut open {
            match self.mutation {
                Mutation::Unsuppressed => {
                    (grant.published, grant.published_chain) = (start.next_update, start.chain);
                }
                _ => self.falsify(grant, header.as_ref()),
            }
        }
        self.tell_publisher(begin);
        self.tell_hot(open);
    }

    /// An engine follows the output until it is warm.
    fn follow(&mut self, around: &mut Surroundings<'_>, mut opening: Opening) {
        around.chance.see(Sight::Followed);
        self.begin_edition(&mut opening.acquired);
        // The fence needs an answer of its own.
        let (partition, mark) = (opening.acquired.partition, opening.acquired.mark);
        self.confirmed.remove(&partition);
        let start = opening.acquired.start.next_offset;
        let covered = (mark.next_offset.max(start), opening.acquired.skips.clone());
        self.covered.insert(partition, covered);
        let Loaded { engine, header } = self.take_loaded(around, &opening);
        let engine = self.following_engine(partition, engine, mark.next_update);
        let mut open = handover::follow(&self.ends.progress, opening, engine);
        if let ToHot::Open { grant, .. } = &mut open {
            self.falsify(grant, header.as_ref());
            self.uncheck_start(grant);
        }
        self.tell_hot(open);
    }

    /// What the mutation makes of a grant.
    fn falsify(&self, grant: &mut Grant, header: Option<&Header>) {
        if let (Mutation::UngatedAndUnfiltered, Some(header)) = (self.mutation, header) {
            (grant.start_update, grant.start_chain) = (header.next_update, header.chain);
        }
    }

    /// A follower has applied no event that the output does not cover. It may pass over what is no
    /// event.
    fn check_follower(&mut self, around: &Surroundings<'_>, partition: i32) {
        let applied = self.ends.progress.shard(partition).applied.get();
        let (covered, skips) = &self.covered[&partition];
        let log = &around.broker.inputs[partition as usize];
        let is_replaced = log.truncated_to.is_some() || around.broker.logs(partition).count() > 1;
        if applied <= *covered || is_replaced {
            return;
        }
        let mut decoder = Decoder::new(&EVENTS);
        let mut is_event = |(offset, record): (&i64, &Record)| {
            let position = RecordPosition { offset: *offset, time_ms: record.time_ms };
            let event = decoder.decode::<Action>(position, record.value.as_deref());
            event.is_ok() && !skips.contains(offset)
        };
        if log.records.range(covered..&applied).any(&mut is_event) {
            let wrong = format!("partition {partition} is applied to {applied}, beyond {covered}");
            self.wrong = Some(wrong);
        }
    }

    fn cover(&mut self, around: &Surroundings<'_>, mut cover: Cover) {
        self.check_follower(around, cover.partition);
        let (covered, _) = self.covered.get_mut(&cover.partition).expect("it follows");
        *covered = cover.mark.next_offset.max(*covered);
        if self.mutation == Mutation::FollowerAppliesAhead {
            cover.mark.next_offset = i64::MAX;
        }
        self.uncheck_cover(cover.partition, &mut cover.mark);
        self.tell_hot(handover::cover(&self.ends.progress, cover));
    }

    /// The engine that has followed owns the output.
    fn promote(&mut self, around: &mut Surroundings<'_>, mut opening: Opening) {
        around.chance.see(Sight::Promoted);
        self.check_follower(around, opening.acquired.partition);
        self.check_promoted_engine(opening.acquired.partition);
        self.begin_ownership(around, &opening);
        if self.mutation == Mutation::BesideForgotten {
            opening.settled_offset = i64::MAX;
        }
        let (begin, promote) = handover::promote(&self.ends.progress, opening);
        self.tell_publisher(begin);
        self.tell_hot(promote);
    }

    fn begin_ownership(&mut self, around: &mut Surroundings<'_>, opening: &Opening) {
        around.chance.see(Sight::Acquired);
        let (partition, mark) = (opening.acquired.partition, opening.acquired.mark);
        self.acquired.push((partition, Ok(mark)));
        self.fenced.remove(&partition);
        self.output.opened(partition);
        around.line.borrow_mut().begin(partition, mark.output_offset);
    }

    /// The state that was loaded for a shard that begins on the hot thread.
    fn take_loaded(&mut self, around: &Surroundings<'_>, opening: &Opening) -> Loaded {
        let (partition, ownership_id) = (opening.acquired.partition, opening.ownership_id);
        let loaded = self.loaded.remove(&partition).expect("it was loaded");
        let header = loaded.header.as_ref();
        let is_of_another_log =
            header.is_some_and(|header| around.broker.tells_another_log(header));
        let offset = opening.acquired.start.next_offset;
        self.begun.insert(partition, Begun { ownership_id, offset, is_of_another_log });
        loaded
    }

    /// At its end a daemon waits for what its shards have on their way.
    fn check_release(&mut self, around: &Surroundings<'_>, released: &[(i32, i64)]) {
        let is_busy = |(partition, _): &&(i32, i64)| {
            let facts = handover::facts(&self.ends.progress, *partition);
            facts.is_busy && !self.fenced.contains(partition)
        };
        if let Some((partition, _)) = released.iter().find(is_busy)
            && around.now > self.unquiet_at + QUIET_US
        {
            self.wrong = Some(format!(
                "partition {partition} ends unfinished, and nothing was on its way any more"
            ));
        }
    }

    fn look_at_note(&mut self, around: &mut Surroundings<'_>, note: &Note) {
        match note {
            // A process that is killed before the genesis is in the log has to find out again.
            Note::StartsOver { partition, .. } => {
                around.chance.see(Sight::StartedOver);
                if around.broker.was_input_deleted() {
                    around.chance.see(Sight::StartedOverWithNewInput);
                }
                around.seen_panics.retain(|(of, _), _| of != partition);
            }
            Note::AcquiresAgain { wait, .. } if wait.as_millis() > REACQUIRE_MS.into() => {
                around.chance.see(Sight::ReacquisitionPaced);
            }
            Note::Fenced { partition, .. } => {
                around.chance.see(Sight::ForeignSpanFenced);
                self.fenced.insert(*partition);
                if self.given_up.contains(partition) {
                    around.chance.see(Sight::FencedWhilePlayed);
                }
            }
            Note::Released { partition } => {
                self.closing.remove(partition);
                if !self.is_stopping() {
                    self.wrong =
                        Some(format!("partition {partition} is closed, and nobody has fenced it"));
                }
            }
            Note::Copy { partition, news } => self.look_at_copy(around, *partition, news),
            Note::Waiting { sentence, .. } if sentence.contains("another version of the game") => {
                around.chance.see(Sight::EditionAwaited);
            }
            Note::CannotStart { partition, error } => {
                around.chance.see(Sight::CannotStart);
                if *error == StartError::InputRecreated {
                    around.chance.see(Sight::NewInputAtStart);
                }
                self.acquired.push((*partition, Err(*error)));
            }
            Note::Halted { partition, start_error, sentence } => {
                around.chance.see(match start_error {
                    Some(StartError::OutputRecreated) => Sight::HaltedByNewOutput,
                    None if sentence.contains("not authorised") => Sight::HaltedByRights,
                    _ => Sight::Halted,
                });
                around.seen_panics.retain(|(of, _), _| of != partition);
                let refused = start_error.map(|error| (*partition, Err(error)));
                self.acquired.extend(refused);
            }
            _ => {}
        }
    }

    pub(crate) fn tell_hot(&self, message: ToHot) {
        let sent = self.ends.hot.try_send(message);
        assert!(sent.is_ok(), "the queue has room for several messages a shard");
    }

    fn tell_publisher(&self, message: ToPublisher) {
        let sent = self.ends.publisher.try_send(message);
        assert!(sent.is_ok(), "the queue has room for several messages a shard");
    }
}
