//! What [`Ownership`](crate::ownership::Ownership) wants done. The control thread executes each
//! action once and in order. It reports the result as an `OwnershipEvent`.

use crate::kafka::membership::MembershipError;
use crate::output::frame::FrameHeader;
use crate::output::mark::Mark;
use crate::ownership::acquired::Acquired;
use crate::ownership::instance_id::IdLoss;
use crate::ownership::panic_counts::PanicCounts;
use crate::ownership::start_error::StartError;
use std::time::Duration;

/// Something to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnershipAction {
    /// Find out where the logs of these partitions begin and end, and which snapshots this host
    /// has: `OwnershipEvent::Surveyed` for each.
    Survey(Vec<i32>),
    /// Also find states of a shard on other hosts: `OwnershipEvent::Found`.
    FindStates {
        /// The shard's partition.
        partition: i32,
    },
    /// Read the output from here on, until `Forget`:
    /// `OutputEvent`s.
    Read {
        /// Output partition.
        partition: i32,
        /// Offset of the first record.
        from: i64,
    },
    /// Append a frame without updates to the output:
    /// `OutputEvent`s.
    Append {
        /// Output partition.
        partition: i32,
        /// The frame.
        header: FrameHeader,
    },
    /// Append a note, which changes nothing for readers: `OutputEvent::Noted`.
    Note {
        /// Output partition.
        partition: i32,
        /// The frame.
        header: FrameHeader,
    },
    /// Stop reading, and stop waiting for an append.
    Forget {
        /// Output partition.
        partition: i32,
    },
    /// Commit what is committed once more, as a question: does the group still count us in? Where
    /// nothing is committed, commit these input offsets.
    /// [`MembershipEvent::Answered`](crate::kafka::membership::MembershipEvent::Answered).
    Ask {
        /// The question's number.
        question: u64,
        /// Partitions with the offsets at which their inputs begin.
        offsets: Vec<(i32, i64)>,
    },
    /// Let an engine follow the output on the hot thread: it applies what the output covers, and
    /// nothing of it leaves.
    Follow(Box<Opening>),
    /// The output covers more of a shard's input than before: the engine that follows goes on.
    Cover(Cover),
    /// Hand the output to the engine that follows it: it is ours.
    Promote(Box<Opening>),
    /// Load the state to start from: `OwnershipEvent::Loaded`.
    Load {
        /// The shard's partition.
        partition: i32,
        /// Which candidate has the state; `None` for the state before the first event.
        candidate: Option<usize>,
        /// The rules of the state before the first event.
        begun_by: u32,
        /// The rules by which the state of another version continues.
        migrates_to: Option<u32>,
    },
    /// Hand the shard to the publisher and to the hot thread.
    Open(Box<Opening>),
    /// End the shard on the hot thread: apply what is decoded, publish it, take a snapshot.
    Close {
        /// The shard's partition.
        partition: i32,
    },
    /// End the shard on the hot thread at once.
    Drop {
        /// The shard's partition.
        partition: i32,
    },
    /// The partition has no shard on the hot thread any more.
    Disown {
        /// The shard's partition.
        partition: i32,
    },
    /// The shard is live once it has applied this much of its input.
    SetGoal {
        /// The shard's partition.
        partition: i32,
        /// The input offset.
        offset: i64,
    },
    /// Let the publisher go on: the records before its next frame are no other owner's fence.
    PassSpan {
        /// The shard's partition.
        partition: i32,
        /// The ownership.
        ownership_id: u32,
        /// Where the frame stands.
        mark: Mark,
    },
    /// Keep these counts over a restart.
    KeepPanicCounts(PanicCounts),
    /// Commit input offsets, for lag tools.
    Commit(Vec<(i32, i64)>),
    /// Ask whether the input topic exists:
    /// `OwnershipEvent::TopicChecked`.
    CheckTopic,
    /// Join the group as a new member:
    /// `OwnershipEvent::Rejoined`.
    Rejoin,
    /// End the daemon: no shard is on the hot thread any more.
    Leave {
        /// Input offsets to commit before.
        offsets: Vec<(i32, i64)>,
        /// Shards that only an operator can help.
        halted: u32,
    },
    /// End the daemon: the group does not accept it, and trying again cannot help.
    Fail(MembershipError),
    /// Log this.
    Log(Note),
}

impl OwnershipAction {
    /// Returns the action that loads the state that a shard starts from.
    pub(super) fn load(acquired: &Acquired) -> OwnershipAction {
        let Acquired { partition, candidate, begun_by, migrates_to, .. } = *acquired;
        OwnershipAction::Load { partition, candidate, begun_by, migrates_to }
    }
}

/// A shard that is ours, with what it needs to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Number of this ownership within the process.
    pub ownership_id: u32,
    /// Rules that the loaded state is at.
    pub ruleset: u32,
    /// Zones there are: partitions of the input.
    pub zones: i32,
    /// Where its frames begin and its engine starts.
    pub acquired: Acquired,
    /// Up to this input offset, dead letters and handoffs need not be sent again.
    pub settled_offset: i64,
}

/// How far a shard may go that follows another owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cover {
    /// The shard's partition.
    pub partition: i32,
    /// The ownership for which it follows.
    pub ownership_id: u32,
    /// Where a reader of the output stands.
    pub mark: Mark,
    /// Up to this input offset, dead letters and handoffs need not be kept.
    pub settled_offset: i64,
}

/// Why a copy takes its zone over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeoverCause {
    /// Its owner has published nothing for this long, although there is input.
    Silence(Duration),
    /// Its owner has resigned.
    Resignation,
}

/// What happens to the copy of a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyNews {
    /// It begins on this host.
    Begins {
        /// How many other copies come first when the zone is taken over.
        rank: u32,
    },
    /// It ends because of this, and another one begins after a while.
    Ends(String),
    /// It has made other updates than its zone's owner, in this way.
    Diverged(StartError),
    /// The owner is silent: a probe shows whether the output takes records.
    Probes,
    /// It takes the zone over.
    TakesOver(TakeoverCause),
}

/// What an operator may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The group gave us these partitions.
    Assigned(Vec<i32>),
    /// The group gives these partitions to others. Their shards are played until others have taken
    /// them over.
    GivenUp(Vec<i32>),
    /// The group has given these partitions to others already, and does not count us in. Their
    /// shards are played until others have taken them over.
    Lost(Vec<i32>),
    /// The daemon ends, and with it these shards.
    Releasing(Vec<i32>),
    /// This process stood still for so long that the group may have removed it.
    StoodStill(Duration),
    /// The group has given our instance id to another member: we join again.
    Rejoining {
        /// The id.
        instance_id: String,
        /// Why it was given away.
        loss: IdLoss,
    },
    /// A wait for something that passes.
    Waiting {
        /// What it is about; sentences of one kind are throttled together.
        kind: Waiting,
        /// In words.
        sentence: String,
    },
    /// Another version of the game plays a zone that the group gives to us.
    AwaitsVersion {
        /// The zone's partition.
        partition: i32,
        /// In words.
        sentence: String,
    },
    /// A shard starts over, as the operator asked.
    StartsOver {
        /// The shard's partition.
        partition: i32,
        /// Why it cannot go on.
        why: String,
    },
    /// A shard is acquired again.
    AcquiresAgain {
        /// The shard's partition.
        partition: i32,
        /// After this time.
        wait: Duration,
        /// Why.
        why: String,
    },
    /// The engine failed at a record.
    EngineFailed {
        /// The shard's partition.
        partition: i32,
        /// The record's input offset.
        offset: i64,
        /// How often it has by now.
        times: u32,
    },
    /// Another instance has fenced the shard.
    Fenced {
        /// The shard's partition.
        partition: i32,
        /// The owner epoch in force.
        owner_epoch: u64,
    },
    /// The output has a fence that our group does not explain.
    Rival {
        /// The shard's partition.
        partition: i32,
    },
    /// A shard has ended in order.
    Released {
        /// The shard's partition.
        partition: i32,
    },
    /// A shard has applied what was in its input when it was acquired.
    Live {
        /// The shard's partition.
        partition: i32,
        /// Up to this input offset.
        offset: i64,
    },
    /// About the copy of a zone.
    Copy {
        /// The zone's partition.
        partition: i32,
        /// What happens.
        news: CopyNews,
    },
    /// A shard is ours, but it cannot be started now. That may pass.
    CannotStart {
        /// The shard's partition.
        partition: i32,
        /// Why.
        error: StartError,
    },
    /// A shard has stopped: only an operator can help.
    Halted {
        /// The shard's partition.
        partition: i32,
        /// What happened, and what to do.
        sentence: String,
        /// Why it cannot be started, if that is the cause.
        start_error: Option<StartError>,
    },
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Waiting {
    /// The consumer group.
    Group,
    /// A restart of this process, with which librdkafka's clients read their secrets again.
    Restart,
    /// Brokers, to acquire this partition.
    Acquiring(i32),
}
