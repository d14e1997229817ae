//! Daemons that are broken in one way, to show that the checks notice it. `ResentAsNew` and
//! `RefusalTakenForAck` break the broker's side instead: what of a batch reaches its log, and what
//! its answer says.

use crate::chance::{Fault, closed_list};

closed_list! {
    /// What is wrong.
    Mutation {
        /// Nothing.
        None,
        // It can take by far the most seeds. So it begins first.
        /// How often records panicked the engine is not kept over a restart.
        PanicsForgotten,
        /// Snapshots are committed without waiting for acknowledgements, and loaded even if they
        /// are ahead of the output.
        UngatedAndUnfiltered,
        /// Snapshots are committed without waiting for acknowledgements.
        Ungated,
        /// Every acknowledgement counts, whatever stands before it in the log.
        Unverified,
        /// Dead letters count as acknowledged when they are sent.
        LettersUngated,
        /// A follower is told that the output covers all of its input.
        FollowerAppliesAhead,
        /// A follower is not compared with what the output covers, and one host has an engine that
        /// differs.
        CoverUnchecked,
        /// A follower that becomes the owner sends nothing of what it has kept.
        BesideForgotten,
        /// Of two fences of one owner epoch, the daemon takes its own for the one in force,
        /// whichever comes first.
        SecondFenceTaken,
        /// A copy never hears that its probe was appended.
        ProbeUnanswered,
        /// A copy takes its zone over, and no probe has shown that the output takes records.
        ProbeSkipped,
        /// A copy takes its zone over before those that come first.
        RankIgnored,
        /// A zone without copies is taken over by the member that comes first, or by nobody.
        FirstTurnOnly,
        /// A copy counts the time for which its own host has stood still as the owner's silence.
        TiltIgnored,
        /// A shard that the group gives to another daemon is closed at once.
        PlaysOnNever,
        /// The group is told what the output covers, whatever stands beside it.
        FramesTakenForSettled,
        /// A mark says where the snapshot stands, not where a reader does.
        MarkOfSnapshot,
        /// The output is read before the fence is written, and not after.
        TailBeforeFence,
        /// A replay publishes again what is published.
        Unsuppressed,
        /// Readers take frames of any owner epoch.
        AnyOwnerEpoch,
        /// A frame that was not delivered is sent again from memory, and every acknowledgement
        /// counts. If only verified ones did, the ledger would notice the missing frame.
        Resent,
        /// Ownership does not learn that a frame was not delivered.
        FailureIgnored,
        /// The daemon's end forgets the check of a foreign span that is under way.
        SpanCheckForgotten,
        /// Shards are fenced and opened before the group has answered.
        OpenedUnanswered,
        /// A replica that was stored after the survey is passed over.
        SurveyKept,
        /// A shard whose output is read no more keeps its slot.
        SlotKept,
        /// A start does not name the leader epoch that its snapshot has.
        LeaderEpochForgotten,
        /// A start takes the snapshot of an input that was deleted for one of the input of that
        /// name.
        RecreationUnseen,
        /// No daemon compares the input topic's id.
        TopicIdIgnored,
        /// A check for the input topic that got no answer counts as one that did not find it.
        TopicCheckMisread,
        /// An output that cannot be read is waited for.
        OutputFailureIgnored,
        /// Views fold frames of any owner epoch.
        ViewFoldsStale,
        /// A view keeps its old state after a genesis.
        ViewSkipsGenesis,
        /// Views fold updates that the chain was not made of.
        ViewUnchained,
        /// Views answer for an offset before they have folded its updates.
        ViewAnswersEarly,
        /// A leader epoch that has gone back for good counts as an old answer for ever.
        LowerLeaderEpochIgnored,
        /// Every question about the cluster goes to the broker that has answered the last one.
        OneBrokerAsked,
        /// A batch that is sent again has another sequence number than before, the next one that
        /// the broker takes.
        ResentAsNew,
        /// A batch that the broker has refused counts as acknowledged.
        RefusalTakenForAck,
        /// Owners pass over whatever readers take from foreign frames of their own epoch.
        MovedSpanPassed,
        /// Owners take the epoch of a fence that is no owner's.
        EpochOfNoOwnerTaken,
        /// The hot thread counts the control thread's turns.
        TurnsMiscounted,
        /// A daemon is ready although shards of it are not open yet, or behind.
        ReadyTooSoon,
        /// A view takes a snapshot's mark without a look at the record before it.
        MarkTrusted,
        /// The conversion of a state does not know one of its fields.
        FieldForgotten,
        /// A state of another edition that is not at the end of what is published is said to be.
        SwitchNotAtEnd,
        /// Another state is converted than the one that was chosen.
        OtherStateConverted,
        /// An instance that waits for another edition looks for its state once.
        StateLeftUnseen,
        /// An owner publishes on after another edition has taken over, and its updates count.
        OldEditionGoesOn,
        /// An edition plays again the input that another one has published the updates of.
        ReplayedByOtherEdition,
    }
}

impl Mutation {
    /// Faults that always strike a daemon that is broken in this way: without them it takes too
    /// many seeds until it does what it does wrong.
    pub(crate) fn faults(self) -> &'static [Fault] {
        match self {
            Mutation::PanicsForgotten => &[Fault::Poison, Fault::Kill],
            Mutation::ProbeSkipped | Mutation::RankIgnored | Mutation::FirstTurnOnly => {
                &[Fault::Pause]
            }
            Mutation::TiltIgnored => &[Fault::Pause, Fault::ControlStalls],
            Mutation::SpanCheckForgotten => &[Fault::AppendedLate, Fault::Stop],
            Mutation::MovedSpanPassed => &[Fault::CloneGoesOn],
            Mutation::EpochOfNoOwnerTaken => &[Fault::FenceForged],
            Mutation::TurnsMiscounted => &[Fault::ControlStalls],
            Mutation::OldEditionGoesOn => &[Fault::Pause, Fault::Kill],
            _ => &[],
        }
    }

    /// Returns whether only simulations with both editions show it.
    pub(crate) fn is_of_editions(self) -> bool {
        matches!(
            self,
            Mutation::FieldForgotten
                | Mutation::SwitchNotAtEnd
                | Mutation::OtherStateConverted
                | Mutation::OldEditionGoesOn
                | Mutation::ReplayedByOtherEdition
        )
    }

    /// Whether daemons with the native producer show it.
    pub(crate) fn is_of_native_producer(self) -> bool {
        matches!(self, Mutation::None | Mutation::ResentAsNew | Mutation::RefusalTakenForAck)
    }
}
