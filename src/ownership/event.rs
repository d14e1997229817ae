//! What can happen to the shards of a daemon: all events of [`Ownership`].
//!
//! [`Ownership`]: crate::ownership::Ownership

use crate::kafka::error_code::ErrorCode;
use crate::kafka::membership::GroupView;
use crate::kafka::membership::{MembershipError, MembershipEvent};
use crate::kafka::topic_error::TopicError;
use crate::ownership::acquisition::Candidate;
use crate::ownership::bounds::Bounds;
use crate::ownership::foreign_span::ForeignSpan;
use crate::ownership::panic_counts::PanicCounts;
use crate::ownership::start_error::StartError;

/// Something that has happened.
#[derive(Debug)]
pub enum OwnershipEvent<'a> {
    /// It is known which topic the input is.
    InputKnown {
        /// The topic's id.
        topic_id: [u8; 16],
        /// How often each of its records panicked the engine.
        panics: PanicCounts,
    },
    /// The operator has added rules: the hashes of all, that of a new zone first.
    RulesLoaded(Vec<u32>),
    /// The consumer group.
    Group(MembershipEvent),
    /// The result of `OwnershipAction::Rejoin`.
    Rejoined(Result<(), MembershipError>),
    /// The result of `OwnershipAction::CheckTopic`.
    TopicChecked(Result<(), MembershipError>),
    /// A shard on the hot thread.
    Shard(ShardNotice),
    /// The publisher could not deliver.
    DeliveryFailed(DeliveryFailure),
    /// The publisher found records between two frames of a shard.
    ForeignSpan(ForeignSpan),
    /// The result of `OwnershipAction::Survey`.
    Surveyed {
        /// The shard's partition.
        partition: i32,
        /// What it may start from.
        survey: Result<Survey, TopicError>,
    },
    /// The result of `OwnershipAction::FindStates`.
    Found {
        /// The shard's partition.
        partition: i32,
        /// All states that it may start from, newest first.
        candidates: Vec<Candidate>,
        /// Why it is not known whether another host has a newer one; `None`: it is known.
        why_unknown: Option<String>,
    },
    /// The state of `OwnershipAction::Load` is loaded.
    Loaded {
        /// The shard's partition.
        partition: i32,
        /// The rules that the state is at.
        ruleset: u32,
    },
    /// The state of `OwnershipAction::Load` cannot be read, now or
    /// ever.
    NotLoaded {
        /// The shard's partition.
        partition: i32,
        /// Why, and what to do.
        why: String,
    },
    /// Finding or loading states was interrupted by an event of the group.
    Interrupted {
        /// The shard's partition.
        partition: i32,
    },
    /// The output topic.
    Output(OutputEvent<'a>),
    /// The output was deleted and created again since the daemon began.
    OutputRecreated,
    /// The input has this many partitions.
    InputCounted(i32),
    /// Who is in the group, and what it has committed.
    GroupSeen {
        /// The group.
        view: &'a GroupView,
        /// The id of this instance in it.
        ours: &'a str,
    },
    /// Time has passed; this is where the shards of [`Ownership::watched`] are.
    ///
    /// [`Ownership::watched`]: crate::ownership::Ownership::watched
    Tick(&'a [ShardFacts]),
    /// The daemon has to end. Every shard is played until another instance has taken it over, for a
    /// while; what is left is released in order. To be told again once the others are gone.
    Stop {
        /// The group has other members that may take the shards over.
        has_successors: bool,
    },
}

/// Events that changed nothing since the last report of a shard, some of them players'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoOps {
    /// The shard's partition.
    pub partition: i32,
    /// How many there were.
    pub count: u64,
    /// The player of the last event of a player among them.
    pub player_id: u64,
    /// The `seq` of that one.
    pub seq: u64,
    /// The last `seq` of the player that counted.
    pub last_seq: u64,
}

/// What a shard may start from, as far as this host knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// Where its logs begin and end.
    pub bounds: Bounds,
    /// This host's snapshots, newest first.
    pub candidates: Vec<Candidate>,
}

/// What the hot thread says about one of its shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardNotice {
    /// The shard has ended. What it had sent to the publisher may still be on its way.
    Closed {
        /// The shard's partition.
        partition: i32,
        /// The ownership that has ended.
        ownership_id: u32,
    },
    /// The shard was stopped by a fault, or by something that only an operator can help with.
    Halted {
        /// The shard's partition.
        partition: i32,
        /// The ownership that has ended.
        ownership_id: u32,
        /// What happened, and what to do.
        sentence: String,
    },
    /// The shard was stopped because its replay does not make what is published.
    Diverged {
        /// The shard's partition.
        partition: i32,
        /// The ownership that has ended.
        ownership_id: u32,
        /// How it differs.
        error: StartError,
    },
    /// A shard that follows the output cannot go on as its owner: it has dropped something that the
    /// owner has to send, or has made more updates than are published.
    CannotTakeOver {
        /// The shard's partition.
        partition: i32,
        /// The ownership for which it follows, or that has ended.
        ownership_id: u32,
    },
    /// The shard was stopped because the engine failed.
    Panicked {
        /// The shard's partition.
        partition: i32,
        /// The ownership that has ended.
        ownership_id: u32,
        /// Input offset of the record at which it failed.
        offset: i64,
    },
}

impl ShardNotice {
    /// The partition and the ownership that it is about.
    pub(crate) fn ownership(&self) -> (i32, u32) {
        match self {
            ShardNotice::Closed { partition, ownership_id }
            | ShardNotice::CannotTakeOver { partition, ownership_id }
            | ShardNotice::Halted { partition, ownership_id, .. }
            | ShardNotice::Diverged { partition, ownership_id, .. }
            | ShardNotice::Panicked { partition, ownership_id, .. } => (*partition, *ownership_id),
        }
    }
}

/// A frame or dead letter that the broker does not have and will not get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryFailure {
    /// The shard's partition.
    pub partition: i32,
    /// The ownership that has failed; it sends nothing more.
    pub ownership_id: u32,
    /// What happened.
    pub sentence: String,
    /// Sending it again would fail again: only an operator can help.
    pub is_final: bool,
}

/// What happened in the output topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputEvent<'a> {
    /// The next record of a partition that is being read.
    Record {
        /// Output partition.
        partition: i32,
        /// Its offset.
        offset: i64,
        /// Its value.
        payload: &'a [u8],
    },
    /// Nothing is left to be read of this partition for now.
    End {
        /// Output partition.
        partition: i32,
    },
    /// All replicas have the frame that was appended last.
    Appended {
        /// Output partition.
        partition: i32,
        /// Its offset.
        offset: i64,
    },
    /// The note that was appended last is in the output, at this offset; `None`: it is not known to
    /// be.
    Noted {
        /// Output partition.
        partition: i32,
        /// Its offset.
        offset: Option<i64>,
    },
    /// Nothing can be read from the offset that was asked for; or the frame was not appended, or it
    /// is not known whether it was.
    RequestFailed {
        /// Output partition.
        partition: i32,
        /// Why.
        error: TopicError,
    },
    /// The topic cannot be read or written at all.
    Failed(TopicError),
}

/// Where a shard is, as the other threads' progress says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardFacts {
    /// The shard's partition.
    pub partition: i32,
    /// Where the input ends, as the last Fetch said; -1 while unknown.
    pub input_end: i64,
    /// The first input offset that was not read.
    pub decoded: i64,
    /// The first input offset that the engine has not applied.
    pub applied: i64,
    /// The first input offset that no acknowledged frame covers.
    pub acked: i64,
    /// The first input offset whose dead letters and handoffs may not be acknowledged.
    pub settled_offset: i64,
    /// Number of the next update that the engine makes, as far as is handed over or held back.
    pub next_update: u64,
    /// Whether something is on its way to the broker or to the disk.
    pub is_busy: bool,
}

impl ShardFacts {
    /// Whether the input ends before what the output covers of it: it was truncated, or its new
    /// leader does not know yet where it ends.
    pub(crate) fn is_input_short(&self) -> bool {
        (0..self.acked).contains(&self.input_end)
    }
}

/// A statement of one connection about a position, which stops the shard or leaves records out once
/// it counts: another connection has to say the same, and for some another broker who leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// The broker does not serve it, and no retry helps.
    Refused(ErrorCode),
    /// Its offset is not in the log.
    OutOfRange,
    /// The log is not the one that was read before.
    Truncated,
    /// The batch there cannot be read.
    Unreadable,
    /// The batch there begins later than expected.
    Gap,
    /// The response is larger than the buffer.
    TooLarge,
}

impl Claim {
    /// Whether only the leader can know it: a broker that is cut off and leads no more claims it
    /// of what it has missed. The others show what is in a log.
    pub(crate) fn is_of_leader(self) -> bool {
        match self {
            Claim::Refused(_) | Claim::OutOfRange | Claim::Truncated => true,
            Claim::Unreadable | Claim::Gap | Claim::TooLarge => false,
        }
    }
}

/// A trouble after which an input partition goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputTrouble {
    /// A broker does not serve it now.
    FetchRefused(ErrorCode),
    /// The leader serves no records, and names a follower replica instead.
    FollowerNamed,
    /// One connection claims what would stop the shard or leave records out, and another one is
    /// asked: a sentence.
    Doubted(Claim, String),
    /// The log goes on behind missing records, as two connections have said: a sentence.
    RecordsGone(String),
    /// A batch that cannot be read was passed over: which offsets, and why.
    BatchPassedOver(String),
}

/// What something that an operator may want to know is about. The log hears of each by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TroubleSource {
    /// A connection to the broker of this number.
    Broker(i32),
    /// The broker of this number, which wants to be left alone.
    Throttle(i32),
    /// Who leads the partitions of the input.
    Leaders,
    /// The number of connections.
    Connections,
}

/// What the other threads send to the control thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToControl {
    /// The hot thread, about one of its shards.
    Shard(ShardNotice),
    /// The hot thread, about something that an operator may want to know; it goes on trying.
    Trouble {
        /// What it is about.
        source: TroubleSource,
        /// What is the matter.
        sentence: String,
    },
    /// The hot thread, about an input partition; it goes on.
    InputTrouble {
        /// The partition.
        partition: i32,
        /// What is the matter.
        trouble: InputTrouble,
    },
    /// The hot thread, once in a while, about events that changed nothing.
    NoOps(NoOps),
    /// The publisher could not deliver.
    DeliveryFailed(DeliveryFailure),
    /// The publisher found records between two frames of a shard.
    ForeignSpan(ForeignSpan),
}
