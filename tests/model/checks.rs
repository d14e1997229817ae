//! The checks of each state, and those that the instances make themselves.

use crate::output::{Record, Verdict};
use crate::state::{Instance, Model, Role, State};
use crate::world::{Events, History, Mutation};

/// A sentence that says what is wrong.
pub(crate) type Violation = &'static str;

impl Model {
    /// Returns whether an instance finds that its engine makes other updates than are published.
    pub(crate) fn diverges(&mut self, made: History, published: History) -> bool {
        let is_found = made != published && self.world.mutation != Mutation::CoverUnchecked;
        if is_found {
            self.seen.insert("an engine that has diverged");
        }
        is_found
    }

    /// Returns the events whose handoff or dead letter a follower sends when it becomes the owner:
    /// those that it has applied itself, and that are not known to be settled.
    pub(crate) fn to_resend(&self, follower: &Instance, committed: u8) -> Events {
        let settled = committed.max(follower.loaded).min(follower.applied);
        match self.world.mutation {
            Mutation::BesideForgotten => 0,
            _ => self.world.beside_before(follower.applied) & !self.world.beside_before(settled),
        }
    }

    /// Returns the first violation in a state as an error. A state is right only if the next owner
    /// publishes and sends all that is missing, even if everything is lost that is on its way.
    pub(crate) fn check(&self, state: &State) -> Result<(), Violation> {
        let (world, output) = (self.world, self.outputs.get(state.output));
        let (verdict, end, updates) = (output.verdict, output.end, output.end.accepted.updates);
        let lost = |event, sent: Events| world.beside_before(event) & !state.arrived & !sent != 0;
        let is_gap = verdict == Verdict::Gap && state.budget.failures == world.budget.failures;
        let is_again =
            verdict == Verdict::Duplicate && state.budget.repeats == world.budget.repeats;
        forbid(verdict == Verdict::Halt, "a reader halts at a frame with another chain")?;
        forbid(is_gap, "a frame is a gap")?;
        forbid(is_again, "a frame has only updates that were published")?;
        forbid(
            world.count(end.next_offset) != updates,
            "readers miss updates before their offset",
        )?;
        forbid(world.count(state.snapshot) > updates, "a snapshot is ahead of the output")?;
        forbid(lost(state.committed, 0), "a handoff or dead letter is lost and settled")?;
        forbid(lost(state.snapshot, 0), "a handoff or dead letter is lost and in a snapshot")?;
        for instance in self.instances_of(state) {
            let Instance { applied, sent, .. } = *instance;
            match &instance.role {
                Role::Follower if applied <= end.next_offset => {
                    let resent = self.to_resend(instance, state.committed);
                    forbid(lost(applied, resent), "a follower forgets a handoff or dead letter")?;
                }
                Role::Owner(known) if instance.fence == end.fence => {
                    forbid(lost(applied, sent), "the owner forgets a handoff or dead letter")?;
                    let reach = match known.frames.last() {
                        Some(Record::Updates { next_offset, .. }) => *next_offset,
                        _ => 0,
                    };
                    let is_published = applied <= reach.max(end.next_offset);
                    let begins_again = known.answers.contains(&None);
                    forbid(!is_published && !begins_again, "the owner never publishes an event")?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn forbid(is_wrong: bool, violation: Violation) -> Result<(), Violation> {
    if is_wrong { Err(violation) } else { Ok(()) }
}
