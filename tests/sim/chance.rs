//! Chance, all of it from one seed, and what it may do: faults with their odds, and a count of all
//! that has happened.

macro_rules! closed_list {
    ($(#[$doc:meta])* $type:ident { $($(#[$of:meta])* $variant:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $type {
            $($(#[$of])* $variant,)*
        }

        impl $type {
            pub(crate) const ALL: &[$type] = &[$($type::$variant,)*];
        }
    };
}

pub(crate) use closed_list;

closed_list! {
    /// What the simulator does to the daemons.
    Fault {
        // Processes.
        Kill,
        KillWhileWriting,
        Pause,
        ControlStalls,
        PublisherStalls,
        Stop,
        // The network.
        ConnectRefused,
        ConnectionReset,
        BrokerMoves,
        AuthenticationExpires,
        MetadataStale,
        BrokerCutOff,
        ResponseDelayed,
        ResponseTruncated,
        ResponseRepeated,
        LengthLies,
        // What brokers answer.
        FetchRefused,
        PartitionRefused,
        PartitionForbidden,
        Throttled,
        BatchDamaged,
        BatchMoved,
        EpochDamaged,
        LeaderMoves,
        LeaderEpochFalls,
        LogTruncated,
        InputRetained,
        OutputRetained,
        // What is produced.
        ProducerStalls,
        ProducerFatal,
        AppendFails,
        AckLost,
        AppendedTwice,
        AppendedLate,
        BatchRefused,
        ProducerIdRefused,
        ProducerForgotten,
        RequestLate,
        FenceFails,
        FenceAckLost,
        FenceTwice,
        NoteLost,
        NoteLate,
        // The group.
        Expelled,
        Revoked,
        AnswerLost,
        NotCounted,
        InstanceTaken,
        RejoinFails,
        PartitionAdded,
        TopicUnknown,
        ViewStale,
        // What an acquisition asks for.
        Leaderless,
        EndEarly,
        SearchInterrupted,
        ReplicasUnanswered,
        OutputUnreachable,
        OutputForbidden,
        // What operators do.
        SkipAsked,
        GenesisAsked,
        RulesLacking,
        OutputRecreated,
        InputRecreated,
        // What other programs write to the output.
        CloneGoesOn,
        FenceForged,
        // The disk.
        WriteTorn,
        WriteFlipped,
        WriteStale,
        WriteMisdirected,
        FileMissing,
        SyncFails,
        DiskFull,
        RenameLost,
        // What the engine fails at.
        CheckpointFails,
        // The input.
        NoEvent,
        Poison,
        TimeBack,
        TimeAhead,
        Aborted,
        OffsetsSkipped,
        Burst,
    }
}

closed_list! {
    /// What must happen at some time, besides faults.
    Sight {
        Acquired,
        Followed,
        Promoted,
        Copied,
        CopyWarm,
        CopyEnded,
        Probed,
        TakenBySilence,
        TakenAtResignation,
        OpenedCold,
        AcquiredFromSnapshot,
        AcquiredFromReplica,
        /// A replica was stored after the survey of its zone.
        ReplicaAfterSurvey,
        SnapshotStored,
        SnapshotFailed,
        SnapshotDropped,
        SnapshotUnreadable,
        FenceContended,
        CannotStart,
        Halted,
        Closed,
        ForeignSpanPassed,
        ForeignSpanFenced,
        DeliveryFailed,
        ReacquisitionPaced,
        Diverged,
        OtherEngineNoticed,
        StartDiverged,
        EnginePanicked,
        CheckpointFailed,
        RecordSkipped,
        FramesDuplicate,
        FramesStale,
        FramesGap,
        FenceRepeated,
        LateReaderJoined,
        OperatorRestarted,
        AssignedWhilePlayed,
        FencedWhilePlayed,
        AssignedAfterLoss,
        Rejoined,
        StartedOver,
        SkippedAsAsked,
        ConnectionReplaced,
        BrokerFoundAgain,
        LeaderEpochWentBack,
        LeaderEpochUnknown,
        GapConfirmed,
        LedByCutOff,
        ProduceAbandoned,
        ZombieWrote,
        BatchKnown,
        BatchOutOfOrder,
        BatchOfOldProducerEpoch,
        ProducerEpochRaised,
        RulesChanged,
        RulesAdded,
        HaltedByNewOutput,
        HaltedByNewInput,
        NewInputAtStart,
        StartedOverWithNewInput,
        TopicCheckFailed,
        TopicGone,
        TopicFoundAgain,
        HaltedByRights,
        FrameForged,
        ClonePublished,
        StallNoticed,
        Ready,
        SnapshotOfOtherOutput,
        VersionChanged,
        Upgraded,
        Downgraded,
        ConvertedAgain,
        EditionAwaited,
    }
}

/// How often each thing has happened.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) faults: Vec<u64>,
    pub(crate) sights: Vec<u64>,
}

impl Counts {
    pub(crate) fn new() -> Counts {
        Counts { faults: vec![0; Fault::ALL.len()], sights: vec![0; Sight::ALL.len()] }
    }

    pub(crate) fn add(&mut self, other: &Counts) {
        let pairs = self.faults.iter_mut().zip(&other.faults);
        pairs.chain(self.sights.iter_mut().zip(&other.sights)).for_each(|(sum, n)| *sum += n);
    }

    pub(crate) fn see(&mut self, sight: Sight) {
        self.sights[sight as usize] += 1;
    }

    /// What has never happened, by name.
    pub(crate) fn never(&self) -> Vec<String> {
        let faults = Fault::ALL.iter().filter(|fault| self.faults[**fault as usize] == 0);
        let sights = Sight::ALL.iter().filter(|sight| self.sights[**sight as usize] == 0);
        faults
            .map(|fault| format!("{fault:?}"))
            .chain(sights.map(|sight| format!("{sight:?}")))
            .collect()
    }
}

/// The one source of chance.
pub(crate) struct Chance {
    state: u64,
    /// Odds of each fault in 10,000; 0 while it is off.
    odds: Vec<u32>,
    pub(crate) counts: Counts,
}

/// Occasions in 10,000 at which the most frequent faults strike.
const ODDS_MAX: u32 = 400;

impl Chance {
    /// Each seed has some of the faults, some of them often and some seldom: if all were on, few
    /// would have the time to show their consequences.
    pub(crate) fn new(seed: u64) -> Chance {
        let mut chance =
            Chance { state: seed, odds: vec![0; Fault::ALL.len()], counts: Counts::new() };
        chance.next();
        let share = chance.pick(&[0, 15, 30, 60]);
        for odds in 0..Fault::ALL.len() {
            if chance.below(100) < share {
                chance.odds[odds] = chance.pick(&[20, 100, ODDS_MAX.into()]) as u32;
            }
        }
        chance
    }

    /// These faults strike often.
    pub(crate) fn insist_on(&mut self, faults: &[Fault]) {
        faults.iter().for_each(|fault| self.odds[*fault as usize] = ODDS_MAX);
    }

    /// These faults never strike.
    pub(crate) fn leave_out(&mut self, faults: &[Fault]) {
        faults.iter().for_each(|fault| self.odds[*fault as usize] = 0);
    }

    /// From here on nothing goes wrong.
    pub(crate) fn stop_faults(&mut self) {
        self.odds.fill(0);
    }

    pub(crate) fn is_on(&self, fault: Fault) -> bool {
        self.odds[fault as usize] > 0
    }

    /// Whether the fault strikes now.
    pub(crate) fn strikes(&mut self, fault: Fault) -> bool {
        self.strikes_of(fault, 1)
    }

    /// Whether the fault strikes now, this many times as often, because there are few occasions.
    pub(crate) fn strikes_of(&mut self, fault: Fault, times: u32) -> bool {
        let odds = self.odds[fault as usize];
        let strikes = odds > 0 && self.below(10_000) < u64::from(odds * times);
        if strikes {
            self.counts.faults[fault as usize] += 1;
        }
        strikes
    }

    pub(crate) fn see(&mut self, sight: Sight) {
        self.counts.see(sight);
    }

    /// Steele, Lea and Flood's SplitMix64.
    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below this one.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A number from here to there, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    pub(crate) fn pick(&mut self, values: &[u64]) -> u64 {
        values[self.below(values.len() as u64) as usize]
    }

    /// Microseconds that something takes: mostly few, seldom very many.
    pub(crate) fn delay_us(&mut self) -> u64 {
        match self.below(100) {
            0..80 => self.between(1, 500),
            80..98 => self.between(500, 10_000),
            _ => self.between(10_000, 300_000),
        }
    }
}
