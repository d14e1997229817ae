//! The steps of an owner, whether it is in force or not.

use crate::output::{Position, Record, Verdict};
use crate::state::{Instance, Model, Ownership, Role, State};
use crate::world::Mutation;

/// Events that an owner applies in one step at most.
const EVENTS_MAX: u8 = 2;

impl Model {
    /// Adds the steps of an owner.
    pub(crate) fn own(&mut self, owner: &Instance, known: &Ownership) {
        let State { output, committed, snapshot, budget, .. } = self.from;
        let end = self.outputs.get(output).end;
        if self.notices_fence(owner, end) {
            self.seen.insert("an owner that reads a fence");
            self.demote(owner, end);
        }
        if known.frames.len() < self.world.frames {
            self.apply(owner, known);
        }
        self.publish(owner, known);
        self.hear(owner, known);
        let covered = self.outputs.start(output, owner.read).end.next_offset;
        let settled = match self.world.mutation {
            Mutation::FramesTakenForSettled => covered,
            _ => covered.min(owner.applied).min(owner.sent.trailing_zeros() as u8),
        };
        if settled > committed {
            self.seen.insert("a settled offset committed");
            self.next.push(State { committed: settled, ..self.from });
        }
        let may_store = settled == owner.applied || self.world.mutation == Mutation::Ungated;
        if may_store && budget.snapshots > 0 && owner.applied > snapshot {
            self.seen.insert("a snapshot stored");
            self.turn_to(owner.clone(), |to| {
                to.snapshot = owner.applied;
                to.budget.snapshots -= 1;
            });
        }
    }

    /// Returns whether an owner sees here that it was fenced.
    fn notices_fence(&self, owner: &Instance, here: Position) -> bool {
        here.fence.epoch > owner.fence.epoch && self.world.mutation != Mutation::NeverDemoted
    }

    /// Adds the step by which an owner that was fenced follows.
    fn demote(&mut self, owner: &Instance, here: Position) {
        if owner.applied > here.next_offset {
            self.seen.insert("a former owner ahead of the output");
        }
        self.leave(owner, Instance { role: Role::Follower, ..*owner }, |_| {});
    }

    /// Adds the steps by which an owner applies events, and sends what they make.
    fn apply(&mut self, owner: &Instance, known: &Ownership) {
        let (world, published) = (self.world, known.published);
        let promoted = self.outputs.start(self.from.output, known.fence_at + 1).end;
        for applied in owner.applied + 1..=world.events().min(owner.applied + EVENTS_MAX) {
            let history = world.history(owner.is_other, applied);
            let has_all = history.updates >= published;
            if world.mutation != Mutation::PromotedBeforeReadThrough
                && (has_all || applied >= promoted.next_offset)
                && self.diverges(world.prefix(history, published), promoted.accepted)
            {
                self.leave(owner, Instance { role: Role::Halted, ..*owner }, |_| {});
                continue;
            }
            let (epoch, next_offset) = (owner.fence.epoch, applied);
            let first = world.count(owner.applied).max(published).min(history.updates);
            let mut known = known.clone();
            if first < history.updates || has_all && applied > promoted.next_offset {
                known.frames.push(Record::Updates { epoch, first, history, next_offset });
            }
            let made = world.beside_before(applied) & !world.beside_before(owner.applied);
            let (role, sent) = (Role::Owner(known), owner.sent | made);
            self.turn_to(Instance { role, applied, sent, ..*owner }, |_| {});
        }
    }

    /// Adds the steps by which an owner's next frame is appended, or fails.
    fn publish(&mut self, owner: &Instance, known: &Ownership) {
        let Some((&frame, frames)) = known.frames.split_first() else { return };
        let State { output: before, late, budget, .. } = self.from;
        let once = self.outputs.append(before, frame);
        let twice = self.outputs.append(once, frame);
        let later = self.late_with(late, vec![frame]);
        if self.outputs.get(once).verdict == Verdict::Stale {
            self.seen.insert("a stale frame");
        }
        let place = Some(self.outputs.get(before).length);
        for (output, late, answer, repeats, failures) in [
            (once, late, place, 0, 0),
            (twice, late, place, 1, 0),
            (once, later, place, 1, 0),
            (before, late, None, 0, 1),
            (once, late, None, 0, 1),
        ] {
            if repeats > budget.repeats || failures > budget.failures {
                continue;
            }
            let (frames, answers) = (frames.to_vec(), [&known.answers[..], &[answer]].concat());
            let role = Role::Owner(Ownership { frames, answers, ..*known });
            self.turn_to(Instance { role, ..*owner }, |to| {
                (to.output, to.late) = (output, late);
                to.budget.repeats -= repeats;
                to.budget.failures -= failures;
            });
        }
    }

    /// Adds the step by which an owner hears what became of its frame.
    fn hear(&mut self, owner: &Instance, known: &Ownership) {
        let Some((answer, answers)) = known.answers.split_first() else { return };
        let Some(place) = *answer else {
            self.seen.insert("a failed frame");
            let follower = Instance::follower(owner.is_other, self.from.snapshot);
            return self.leave(owner, Instance { sent: owner.sent, ..follower }, |_| {});
        };
        let before = self.outputs.start(self.from.output, place).end;
        if self.notices_fence(owner, before) {
            self.seen.insert("an owner that is answered after a fence");
            return self.demote(owner, before);
        }
        let is_stale = before.fence.epoch > owner.fence.epoch;
        if !is_stale && place > owner.read {
            self.seen.insert("a foreign span passed");
        }
        let read = if is_stale { owner.read } else { place + 1 };
        let (frames, answers) = (known.frames.clone(), answers.to_vec());
        let role = Role::Owner(Ownership { frames, answers, ..*known });
        self.turn_to(Instance { role, read, ..*owner }, |_| {});
    }
}
