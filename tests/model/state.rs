//! The states of a world.

use crate::output::{Fence, Outputs, Record};
use crate::world::{Budget, Events, World};
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// Instances of a world at most.
const INSTANCES_MAX: usize = 3;

/// An instance.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Instance {
    pub role: Role,
    /// True for the instance whose engine differs.
    pub is_other: bool,
    /// Number of events that its engine has applied.
    pub applied: u8,
    /// Number of those that were in the snapshot.
    pub loaded: u8,
    /// Records of the output that it has read; of an owner, up to its last verified frame.
    pub read: u8,
    /// The fence of its last bid.
    pub fence: Fence,
    /// Events whose handoff or dead letter it has sent, and which is on its way.
    pub sent: Events,
}

/// The role of an instance. A bidder has the place of its fence, once that is appended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Role {
    Dead,
    Halted,
    Follower,
    Bidder(Option<u8>),
    Owner(Ownership),
}

/// The knowledge of an owner: the place of its fence, the number of updates published before, its
/// frames on their way, and the answers on their way: the place of a frame, or none if it failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ownership {
    pub fence_at: u8,
    pub published: u8,
    pub frames: Vec<Record>,
    pub answers: Vec<Option<u8>>,
}

/// A state of a world. `Model` has what the numbers mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub output: u32,
    /// Records of dead and former owners and bidders that are on their way to the output.
    pub late: u32,
    /// In ascending order: which instance is which makes no difference.
    pub instances: [u32; INSTANCES_MAX],
    /// Events whose handoff or dead letter a dead instance has sent, and which is on its way.
    pub late_beside: Events,
    /// Events whose handoff or dead letter has arrived.
    pub arrived: Events,
    /// The settled offset that the group has.
    pub committed: u8,
    /// Events in the newest snapshot.
    pub snapshot: u8,
    pub budget: Budget,
}

/// A world, and the values that its states refer to.
pub(crate) struct Model {
    pub world: World,
    pub outputs: Outputs,
    pub instances: Numbered<Instance>,
    pub late: Numbered<Vec<Vec<Record>>>,
    /// Everything that has happened.
    pub seen: BTreeSet<&'static str>,
    /// The state whose steps are taken.
    pub from: State,
    /// The place of the instance that takes them.
    pub place: usize,
    /// The states to which they lead.
    pub next: Vec<State>,
}

impl Model {
    /// Returns a world as it begins: all instances follow, and none is the owner.
    pub(crate) fn new(world: World) -> Model {
        let (mut instances, mut lates) = (Numbered::new(), Numbered::new());
        let mut numbers = [u32::MAX; INSTANCES_MAX];
        for (place, number) in numbers.iter_mut().take(world.instances).enumerate() {
            let is_other = place == 1 && world.differs_at.is_some();
            *number = instances.number(Instance::follower(is_other, 0));
        }
        let (late, budget) = (lates.number(Vec::new()), world.budget);
        let from = State { late, instances: numbers, budget, ..State::default() };
        let (outputs, seen, next) = (Outputs::new(world), BTreeSet::new(), vec![]);
        Model { world, outputs, instances, late: lates, seen, from, place: 0, next }
    }

    /// Returns the instances of a state.
    pub(crate) fn instances_of(&self, state: &State) -> impl Iterator<Item = &Instance> {
        let numbers = state.instances.into_iter().take(self.world.instances);
        numbers.map(|number| self.instances.get(number))
    }

    /// Returns a state in words.
    pub(crate) fn describe(&self, state: &State) -> String {
        let records = (1..=self.outputs.get(state.output).length)
            .map(|length| self.outputs.start(state.output, length).record);
        let (output, late) = (records.collect::<Vec<_>>(), self.late.get(state.late));
        let instances: Vec<_> = self.instances_of(state).collect();
        format!("{state:?}\n  output {output:?}\n  late {late:?}\n  instances {instances:?}\n")
    }
}

impl Instance {
    /// Returns an instance that begins to follow at a snapshot.
    pub(crate) fn follower(is_other: bool, snapshot: u8) -> Instance {
        let (applied, loaded, fence) = (snapshot, snapshot, Fence::default());
        Instance { role: Role::Follower, is_other, applied, loaded, read: 0, fence, sent: 0 }
    }
}

/// Values, each with a number.
pub(crate) struct Numbered<T> {
    values: Vec<T>,
    numbers: HashMap<T, u32>,
}

impl<T: Clone + Eq + Hash> Numbered<T> {
    fn new() -> Numbered<T> {
        Numbered { values: Vec::new(), numbers: HashMap::new() }
    }

    /// Returns the number of a value.
    pub(crate) fn number(&mut self, value: T) -> u32 {
        if let Some(number) = self.numbers.get(&value) {
            return *number;
        }
        let number = self.values.len() as u32;
        self.values.push(value.clone());
        self.numbers.insert(value, number);
        number
    }

    /// Returns the value with a number.
    pub(crate) fn get(&self, number: u32) -> &T {
        &self.values[number as usize]
    }
}
