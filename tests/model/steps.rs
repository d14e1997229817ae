//! The steps from a state: the fate of each record on its way, and each action of an instance.
//!
//! There is no clock and no group. A follower may bid at any moment: so a move by order, a takeover
//! by silence and a false alarm are one step, and a resignation adds none.

use crate::output::{Fence, Record, Verdict};
use crate::state::{Instance, Model, Ownership, Role, State};
use crate::world::{Events, Mutation};

impl Model {
    /// Sets `next` to the states to which one step leads.
    pub(crate) fn step(&mut self, from: State) {
        self.from = from;
        self.next.clear();
        self.land_late();
        if from.budget.notes > 0 && from.output != 0 {
            self.seen.insert("a note");
            let output = self.outputs.append(from.output, Record::Fence(Fence::default()));
            self.next.push(State { output, ..from });
            self.next.last_mut().expect("it was added").budget.notes -= 1;
        }
        let is_owner = |instance: &&Instance| matches!(instance.role, Role::Owner(_));
        if self.instances_of(&from).filter(is_owner).count() > 1 {
            self.seen.insert("two owners");
        }
        for place in 0..self.world.instances {
            let number = from.instances[place];
            if place > 0 && from.instances[place - 1] == number {
                continue;
            }
            self.place = place;
            let instance = self.instances.get(number).clone();
            for event in each(instance.sent) {
                let sent = instance.sent & !event;
                self.turn_to(Instance { sent, ..instance.clone() }, |to| to.arrived |= event);
            }
            let follower = Instance::follower(instance.is_other, from.snapshot);
            match &instance.role {
                Role::Dead => self.turn_to(follower, |_| {}),
                Role::Halted => continue,
                Role::Follower => self.follow(&instance),
                Role::Bidder(None) => self.fence(&instance),
                Role::Bidder(Some(fence_at)) => self.read_through(&instance, *fence_at),
                Role::Owner(known) => self.own(&instance, known),
            }
            if from.budget.kills > 0 && instance.role != Role::Dead {
                let dead =
                    Instance { role: Role::Dead, ..Instance::follower(instance.is_other, 0) };
                self.leave(&instance, dead, |to| {
                    to.late_beside |= instance.sent;
                    to.budget.kills -= 1;
                });
            }
        }
    }

    /// Adds the step that turns the instance into this one, and changes something else.
    pub(crate) fn turn_to(&mut self, instance: Instance, change: impl FnOnce(&mut State)) {
        let mut to = self.from;
        to.instances[self.place] = self.instances.number(instance);
        to.instances.sort_unstable();
        change(&mut to);
        self.next.push(to);
    }

    /// Adds the step after which the instance no longer waits for the records that it has sent.
    pub(crate) fn leave(
        &mut self,
        instance: &Instance,
        after: Instance,
        change: impl FnOnce(&mut State),
    ) {
        let records = match &instance.role {
            Role::Bidder(None) => vec![Record::Fence(instance.fence)],
            Role::Owner(known) => known.frames.clone(),
            _ => vec![],
        };
        let late = self.late_with(self.from.late, records);
        self.turn_to(after, |to| {
            to.late = late;
            change(to);
        });
    }

    /// Returns the late records with these, for which nobody waits any more.
    pub(crate) fn late_with(&mut self, late: u32, records: Vec<Record>) -> u32 {
        if records.is_empty() {
            return late;
        }
        let mut late = self.late.get(late).clone();
        late.push(records);
        late.sort_unstable();
        self.late.number(late)
    }

    /// Adds the steps by which something arrives late, or never does.
    fn land_late(&mut self) {
        let from = self.from;
        let late = self.late.get(from.late).clone();
        for place in 0..late.len() {
            let mut others = late.clone();
            let mut records = others.remove(place);
            let output = self.outputs.append(from.output, records.remove(0));
            match self.outputs.get(output).verdict {
                Verdict::Fenced => _ = self.seen.insert("a late fence in force"),
                Verdict::Accepted => _ = self.seen.insert("a late frame accepted"),
                Verdict::Gap => _ = self.seen.insert("a late frame after a gap"),
                _ => {}
            }
            let lost = State { late: self.late.number(others), ..from };
            let late = self.late_with(lost.late, records);
            self.next.extend([State { output, late, ..from }, lost]);
        }
        for event in each(from.late_beside) {
            let (late_beside, arrived) = (from.late_beside & !event, from.arrived | event);
            self.next.push(State { late_beside, arrived, ..from });
        }
        if from.late_beside != 0 {
            self.next.push(State { late_beside: 0, ..from });
        }
    }

    /// Adds the steps of a follower: it reads the output, applies what that covers, and bids.
    fn follow(&mut self, follower: &Instance) {
        let (world, applied) = (self.world, follower.applied);
        let end = self.outputs.start(self.from.output, follower.read).end;
        let length = self.outputs.get(self.from.output).length;
        if follower.read < length {
            self.turn_to(Instance { role: Role::Follower, read: length, ..*follower }, |_| {});
        }
        let may_be_ahead = world.mutation == Mutation::FollowerAppliesAhead;
        let ahead = if may_be_ahead { world.events().min(applied + 1) } else { 0 };
        let reach = end.next_offset.max(ahead);
        if applied < reach {
            let made = world.history(follower.is_other, reach);
            let published = world.prefix(end.accepted, made.updates);
            let has_diverged = self.diverges(world.prefix(made, published.updates), published);
            let role = if has_diverged { Role::Halted } else { Role::Follower };
            self.turn_to(Instance { role, applied: reach, ..*follower }, |_| {});
        }
        let may_bid = may_be_ahead || world.mutation == Mutation::AheadOwnerBids;
        if self.from.budget.bids > 0 && (applied <= end.next_offset || may_bid) {
            if follower.fence != Fence::default() && applied > 0 {
                self.seen.insert("a second bid");
            }
            let id = world.budget.bids - self.from.budget.bids + 1;
            let fence = Fence { epoch: end.fence.epoch + 1, id };
            let bidder = Instance { role: Role::Bidder(None), fence, ..*follower };
            self.turn_to(bidder, |to| to.budget.bids -= 1);
        }
    }

    /// Adds the steps by which a bidder's fence is appended, or the bidder gives up.
    fn fence(&mut self, bidder: &Instance) {
        let (fence, place) = (bidder.fence, self.outputs.get(self.from.output).length);
        let once = self.outputs.append(self.from.output, Record::Fence(fence));
        let twice = self.outputs.append(once, Record::Fence(fence));
        let budget = self.from.budget;
        for (output, repeats) in [(once, 0), (twice, 1)] {
            if repeats <= budget.repeats {
                self.turn_to(Instance { role: Role::Bidder(Some(place)), ..*bidder }, |to| {
                    to.output = output;
                    to.budget.repeats -= repeats;
                });
            }
        }
        self.leave(bidder, Instance { role: Role::Follower, ..*bidder }, |_| {});
    }

    /// Adds the step by which a bidder reads the output through its fence.
    fn read_through(&mut self, bidder: &Instance, fence_at: u8) {
        let (through, mutation) = (fence_at + 1, self.world.mutation);
        let is_early = mutation == Mutation::PromotedBeforeReadThrough;
        let read = if is_early { bidder.read } else { through };
        let end = self.outputs.start(self.from.output, read).end;
        let is_second = mutation == Mutation::SecondFenceTaken;
        let is_taken = is_early || is_second && end.fence.epoch == bidder.fence.epoch;
        if end.fence != bidder.fence && !is_taken {
            self.seen.insert("a lost bid");
            self.turn_to(Instance { role: Role::Follower, read: through, ..*bidder }, |_| {});
            return;
        }
        self.seen.insert(match bidder.applied {
            applied if applied >= end.next_offset => "a warm follower promoted",
            applied if applied == self.from.snapshot => "a cold follower promoted",
            _ => "a follower that lags promoted",
        });
        let resent = self.to_resend(bidder, self.from.committed);
        if resent != 0 {
            self.seen.insert("a handoff or dead letter sent again");
        }
        let (published, sent) = (end.accepted.updates, bidder.sent | resent);
        let role = Role::Owner(Ownership { fence_at, published, frames: vec![], answers: vec![] });
        self.turn_to(Instance { role, read: through, sent, ..*bidder }, |_| {});
    }
}

/// Returns the events of a set, each as a set.
fn each(events: Events) -> impl Iterator<Item = Events> {
    (0..Events::BITS).map(|event| 1 << event).filter(move |event| events & event != 0)
}
