//! One output partition that is read: to acquire its shard, or to check a foreign span between its
//! frames.

use crate::output::frame::FENCE_EVERY_MS;
use crate::output::mark::Mark;
use crate::ownership::acquired::Acquired;
use crate::ownership::acquisition::{Acquisition, Candidate, Need};
use crate::ownership::action::OwnershipAction;
use crate::ownership::event::OutputEvent;
use crate::ownership::foreign_span::SpanCheck;
use crate::ownership::start_error::StartError;
use std::time::{Duration, Instant};

/// Milliseconds without a record after which an output is read again that is read on from its end:
/// its owner repeats its fence, and 5 s is longer than a broker usually pauses. If there is no
/// owner, the end is reported again; if the client brings nothing more, it is not.
const QUIET_OUTPUT_MS_MAX: u64 = FENCE_EVERY_MS + 5_000;

/// Milliseconds between two turns that count as a time in which nothing came: records may wait for
/// a thread that has stood still.
const TURN_COUNTED_MS_MAX: u64 = 100;

/// Milliseconds for which records come after the end that an output had when it was surveyed, after
/// which it counts as read to its end. A busy output may never bring one: clients report it only if
/// an answer has no record. Reading is much faster than publishing, so within that time it has come
/// there, unless it has read for a minute. Then readers wait longer after the fence.
const END_UNSAID_MS: u64 = 2_000;

/// What a task is for.
#[derive(Debug)]
pub(super) enum Purpose {
    /// Acquire the shard.
    Acquire(Box<Acquisition>),
    /// Check what stands between two frames of the shard.
    CheckSpan(Box<SpanCheck>),
}

/// The work on one output partition, and what it has asked for so far.
#[derive(Debug)]
pub(super) struct LogTask {
    purpose: Purpose,
    /// What was asked for last, other than records.
    asked: Option<Need>,
    /// Offset of the next record that will come without a new request.
    next_record: Option<i64>,
    /// The end was reached, and nothing came since. It is not reported again before something
    /// comes.
    is_at_end: bool,
    /// The end was reached before.
    has_been_at_end: bool,
    /// The end was reached since that was forgotten.
    was_at_end: bool,
    /// A record has come since the last turn.
    has_come: bool,
    /// For how long records came after the end that it had when it was surveyed.
    read_on: Duration,
    /// For how long nothing has come, not even the end.
    quiet: Duration,
    /// Until when it waits for the state that an owner of another version leaves; `None`: it has
    /// not waited.
    pub(super) waits_until: Option<Instant>,
    /// The input offset that the group has committed, as it last said.
    pub(super) committed: Option<i64>,
}

impl LogTask {
    /// Nothing is asked for yet.
    pub(super) fn new(purpose: Purpose) -> LogTask {
        LogTask {
            purpose,
            asked: None,
            next_record: None,
            is_at_end: false,
            has_been_at_end: false,
            was_at_end: false,
            has_come: false,
            read_on: Duration::ZERO,
            quiet: Duration::ZERO,
            waits_until: None,
            committed: None,
        }
    }

    /// What the task needs to go on.
    pub(super) fn need(&self) -> Need {
        match &self.purpose {
            Purpose::Acquire(acquisition) => acquisition.need(),
            Purpose::CheckSpan(check) => match check.result() {
                None => Need::Read { from: check.next() },
                Some(_) => Need::End,
            },
        }
    }

    /// What the task was for, once it needs nothing more.
    pub(super) fn into_purpose(self) -> Purpose {
        self.purpose
    }

    /// What to do for it in the topic now, if that was not asked for before. Reading goes on until
    /// the end once it was asked for, unless it has to begin further back, or at the end again.
    pub(super) fn next_action(&mut self, partition: i32) -> Option<OwnershipAction> {
        match self.need() {
            Need::Read { from } => {
                let is_told_more = !self.is_at_end || self.awaits_own_record();
                if is_told_more && self.next_record.is_some_and(|next| next <= from) {
                    return None;
                }
                self.is_at_end = false;
                self.next_record = Some(from);
                Some(OwnershipAction::Read { partition, from })
            }
            Need::Follow { from } | Need::Await { from } => {
                // At its end it goes on by itself.
                if !self.is_quiet() && self.next_record.is_some_and(|next| next <= from) {
                    return None;
                }
                (self.next_record, self.quiet) = (Some(from), Duration::ZERO);
                Some(OwnershipAction::Read { partition, from })
            }
            need @ Need::Append(header) => {
                self.ask(need).then_some(OwnershipAction::Append { partition, header })
            }
            Need::States | Need::Confirm { .. } | Need::End => None,
        }
    }

    /// Notes that something is asked for. False: it was before.
    pub(super) fn ask(&mut self, need: Need) -> bool {
        self.asked.replace(need) != Some(need)
    }

    /// The request will have no result.
    pub(super) fn unask(&mut self) {
        self.asked = None;
    }

    /// Returns whether the acquisition's fence was asked for, and may be in the output.
    pub(super) fn has_fenced(&self) -> bool {
        let is_asked = matches!(self.asked, Some(Need::Append(_)));
        let awaits_fence = matches!(self.need(), Need::Append(_));
        self.acquisition().is_some_and(Acquisition::is_fencing) && (is_asked || !awaits_fence)
    }

    /// The acquisition, if that is what the task is for.
    pub(super) fn acquisition(&self) -> Option<&Acquisition> {
        match &self.purpose {
            Purpose::Acquire(acquisition) => Some(acquisition),
            Purpose::CheckSpan(_) => None,
        }
    }

    /// The owner epoch in force in the output of a shard that is being acquired, and the id of the
    /// fence that has set it; `None` if it is not known.
    pub(super) fn fence_in_force(&self) -> Option<(u64, u128)> {
        self.acquisition()?.fence_in_force()
    }

    /// Another version has published from the newest state on; `None`: it does not wait for that.
    pub(super) fn behind(&self) -> Option<StartError> {
        self.acquisition()?.behind()
    }

    /// Takes the hashes of all loaded rules. An empty zone begins by the first.
    pub(super) fn know(&mut self, rulesets: &[u32]) {
        if let Purpose::Acquire(acquisition) = &mut self.purpose {
            acquisition.know(rulesets);
        }
    }

    /// The input ends here by now; -1: not known.
    pub(super) fn see_input_end(&mut self, input_end: i64) {
        if let Purpose::Acquire(acquisition) = &mut self.purpose {
            acquisition.see_input_end(input_end);
        }
    }

    /// The owner has left no state so far.
    pub(super) fn give_up_waiting(&mut self) {
        if let Purpose::Acquire(acquisition) = &mut self.purpose {
            acquisition.give_up_waiting();
        }
    }

    /// Returns whether the owner in force is of another version and may still publish.
    pub(super) fn may_other_version_publish(&self) -> bool {
        self.acquisition().is_some_and(Acquisition::may_other_version_publish)
    }

    /// Returns whether a zone stands still, or an owner does not know what is in the log, until the
    /// task has ended.
    pub(super) fn is_urgent(&self) -> bool {
        self.acquisition().is_none_or(Acquisition::is_fencing)
    }

    fn awaits_own_record(&self) -> bool {
        self.acquisition().is_some_and(Acquisition::awaits_own_record)
    }

    /// Where the engine that follows the output begins.
    pub(super) fn followed(&self) -> Option<&Acquired> {
        self.acquisition()?.followed()
    }

    /// How far an engine that follows the output may go.
    pub(super) fn cover(&self) -> Option<Mark> {
        self.acquisition()?.cover()
    }

    /// Returns whether the end was reached since [`LogTask::forget_end`], or the output is so busy
    /// that its end may never be reported.
    pub(super) fn was_at_end(&self) -> bool {
        self.was_at_end || self.read_on >= Duration::from_millis(END_UNSAID_MS)
    }

    /// Has the end reached again, if anything has come since it was.
    pub(super) fn forget_end(&mut self) {
        self.was_at_end = self.is_at_end;
    }

    /// A turn has passed. Returns whether the output is read on from its end. If nothing has come
    /// for long, it is not: it is read again, so that the end is reported if it is still there.
    pub(super) fn reads_on(&mut self, turn: Duration) -> bool {
        let is_followed = matches!(self.need(), Need::Follow { .. } | Need::Await { .. });
        if !is_followed {
            return false;
        }
        let turn = turn.min(Duration::from_millis(TURN_COUNTED_MS_MAX));
        let has_come = std::mem::take(&mut self.has_come);
        if has_come && self.acquisition().is_some_and(Acquisition::has_read_surveyed) {
            self.read_on += turn;
        }
        if !self.was_at_end() {
            return false;
        }
        self.quiet += turn;
        if self.is_quiet() {
            (self.is_at_end, self.was_at_end, self.read_on) = (false, false, Duration::ZERO);
        }
        self.was_at_end()
    }

    fn is_quiet(&self) -> bool {
        self.quiet >= Duration::from_millis(QUIET_OUTPUT_MS_MAX)
    }

    /// Takes the outcome of an acquisition that has ended.
    pub(super) fn take_outcome(&mut self) -> Result<Acquired, StartError> {
        match &mut self.purpose {
            Purpose::Acquire(acquisition) => acquisition.take_outcome(),
            Purpose::CheckSpan(_) => unreachable!("a foreign span is checked for open shards only"),
        }
    }

    /// The engine that follows the output is warm.
    pub(super) fn bid(&mut self) {
        if let Purpose::Acquire(acquisition) = &mut self.purpose {
            acquisition.bid();
        }
    }

    /// The owner is silent or has resigned: the engine that follows takes over.
    pub(super) fn take_over(&mut self, fence_id: u128) {
        if let Purpose::Acquire(acquisition) = &mut self.purpose {
            acquisition.take_over(fence_id);
        }
    }

    /// Whether the group was asked because a fence comes next, or an engine is to follow; `None`:
    /// it was not asked.
    pub(super) fn may_fence(&self) -> Option<bool> {
        match (&self.purpose, self.asked, self.need()) {
            (Purpose::Acquire(it), Some(Need::Confirm { .. }), Need::Confirm { .. }) => {
                Some(it.may_fence())
            }
            _ => None,
        }
    }

    /// The group counts us in: an engine follows.
    pub(super) fn follow(&mut self) {
        self.asked = None;
        if let Purpose::Acquire(acquisition) = &mut self.purpose {
            acquisition.follow();
        }
    }

    /// The group counts us in: the fence comes next.
    pub(super) fn confirm(&mut self, fence_id: u128) {
        self.asked = None;
        if let Purpose::Acquire(acquisition) = &mut self.purpose {
            acquisition.confirm(fence_id);
        }
    }

    /// Returns whether one of these states was stored after the logs were surveyed.
    pub(super) fn is_surveyed_before(&self, candidates: &[Candidate]) -> bool {
        self.acquisition().is_some_and(|it| it.is_surveyed_before(candidates))
    }

    /// These are all states that the shard can start from.
    pub(super) fn offer(&mut self, candidates: Vec<Candidate>) {
        if self.need() == Need::States
            && let Purpose::Acquire(acquisition) = &mut self.purpose
        {
            acquisition.offer(candidates);
        }
    }

    /// Takes what happened in the partition, and returns whether that is progress. While a record
    /// is missing, the end is reported again and again.
    pub(super) fn take(&mut self, event: &OutputEvent<'_>) -> bool {
        // Until reading has begun again further back, records are out of order.
        if let Need::Read { from } | Need::Follow { from } | Need::Await { from } = self.need()
            && let OutputEvent::Record { .. } | OutputEvent::End { .. } = event
            && self.next_record.is_none_or(|next| from < next)
        {
            return false;
        }
        match event {
            OutputEvent::Record { offset, .. } => {
                (self.is_at_end, self.has_come, self.quiet) = (false, true, Duration::ZERO);
                self.next_record = Some(offset + 1);
            }
            OutputEvent::End { .. } => {
                self.quiet = Duration::ZERO;
                (self.is_at_end, self.has_been_at_end, self.was_at_end) = (true, true, true);
            }
            _ => {}
        }
        match (&mut self.purpose, event) {
            (Purpose::Acquire(acquisition), OutputEvent::Record { offset, payload, .. }) => {
                acquisition.take(*offset, payload);
            }
            (Purpose::Acquire(acquisition), OutputEvent::End { .. }) => acquisition.reach_end(),
            (Purpose::Acquire(acquisition), OutputEvent::Appended { offset, .. }) => {
                acquisition.appended(*offset);
            }
            (Purpose::CheckSpan(check), OutputEvent::Record { offset, payload, .. }) => {
                check.take(*offset, payload);
            }
            _ => {}
        }
        match (&self.purpose, event) {
            (_, OutputEvent::End { .. }) => false,
            // Brokers acknowledge what is in the log. A span that goes beyond the log's end was
            // named by a damaged answer, and would be waited for as long as the log grows.
            (Purpose::CheckSpan(_), OutputEvent::Record { .. }) => !self.has_been_at_end,
            _ => true,
        }
    }
}
