//! A world: the input of one zone, the instances around it, and how often something may happen.

/// A set of events of the input, a bit for each.
pub(crate) type Events = u8;

/// The updates of the zone, from the first one on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct History {
    /// Whether one of them is of the engine that differs.
    is_other: bool,
    /// How many there are.
    pub updates: u8,
}

/// The input, the instances and the limits of a world.
#[derive(Clone, Copy)]
pub(crate) struct World {
    /// How many updates each event makes.
    pub updates: &'static [u8],
    /// Events that make a handoff or a dead letter, which go beside the output.
    pub beside: Events,
    /// The event from which on the engine of one instance makes other updates.
    pub differs_at: Option<u8>,
    pub instances: usize,
    /// Frames of one owner on their way, at most.
    pub frames: usize,
    pub budget: Budget,
    pub mutation: Mutation,
}

/// A broken rule of the protocol, to show that the checks notice it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    None,
    /// A follower applies input that the output does not cover.
    FollowerAppliesAhead,
    /// A bidder does not read the output through its own fence.
    PromotedBeforeReadThrough,
    /// Of two fences of one owner epoch, each bidder takes its own for the one in force.
    SecondFenceTaken,
    /// A follower that becomes the owner sends nothing again.
    BesideForgotten,
    /// An owner commits what the output covers, whatever is on its way beside it.
    FramesTakenForSettled,
    /// An owner that was fenced bids although its engine is ahead of the output.
    AheadOwnerBids,
    /// No engine is compared with what is published.
    CoverUnchecked,
    /// Readers take frames of any owner epoch.
    AnyOwnerEpoch,
    /// Readers take the input offset of a frame that is a gap.
    GapCovers,
    /// Snapshots do not wait for acknowledgements.
    Ungated,
    /// An owner never notices that it was fenced.
    NeverDemoted,
}

/// How often each of these may still happen: a frame fails if it is lost or said to be, and a
/// record is repeated if it is appended twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    pub bids: u8,
    pub kills: u8,
    pub failures: u8,
    pub repeats: u8,
    pub notes: u8,
    pub snapshots: u8,
}

impl World {
    /// Returns the number of events.
    pub(crate) fn events(&self) -> u8 {
        self.updates.len() as u8
    }

    /// Returns the events before this one that have something beside the output.
    pub(crate) fn beside_before(&self, event: u8) -> Events {
        self.beside & ((1 << event) - 1)
    }

    /// Returns how many updates the events before this one make.
    pub(crate) fn count(&self, event: u8) -> u8 {
        self.updates[..usize::from(event)].iter().sum()
    }

    /// Returns the updates that an engine makes of the events before this one.
    pub(crate) fn history(&self, is_other: bool, event: u8) -> History {
        self.prefix(History { is_other, updates: u8::MAX }, self.count(event))
    }

    /// Returns the first updates of a history, at most this many.
    pub(crate) fn prefix(&self, history: History, updates_max: u8) -> History {
        let updates = history.updates.min(updates_max);
        let differs = self.differs_at.is_some_and(|event| updates > self.count(event));
        History { is_other: history.is_other && differs, updates }
    }
}
