//! The reader rule: which updates of an output partition count, whichever daemons died while
//! writing it.
//!
//! Every reader of frames folds them by this rule in the order of the log, the owner of the shard
//! included, and all accept the same updates. docs/PROTOCOL.md states the rule, and
//! docs/vectors/reader.json has histories with the expected results.

use crate::kit::update::Update;
use crate::output::frame::{Chain, FrameHeader, FrameKind};

/// Largest plausible difference between the owner epochs of two frames in one log. Each owner
/// raises the epoch by 1, so if two epochs differ by more than four billion, one of them is not an
/// owner's. If such a frame counted, no owner could follow it.
const OWNER_EPOCH_STEP_MAX: u64 = 1 << 32;

/// A reader's position in one output partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The highest owner epoch so far; frames with a lower one no longer count.
    pub owner_epoch: u64,
    /// Number of the next update.
    pub next_update: u64,
    /// The input offset up to which (exclusive) the accepted updates cover the input.
    pub next_offset: i64,
    /// The chain over all updates before `next_update`.
    pub chain: Chain,
}

/// Where a reader's position comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PositionSource {
    /// The log's start, or a stored position.
    #[default]
    Known,
    /// A repeated fence in the middle of the log, with the number of the first update after it. Its
    /// owner may already have been superseded.
    Fence { first_update: u64 },
    /// The reader has no position yet.
    None,
}

/// Folds the frames of one output partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reader {
    position: Position,
    fence_id: u128,
    source: PositionSource,
    halted: bool,
    /// Frames that followed missing updates. If not 0, the log has lost records, or another program
    /// writes to the topic.
    pub gaps: u64,
}

/// A reader's verdict on one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The updates from this index on are new. Those before it were accepted earlier.
    Accepted {
        /// Index of the first new update in the frame.
        from: usize,
    },
    /// No updates.
    Progress {
        /// The frame is at the next update, so the input offset may have advanced. Otherwise it
        /// came late or twice, or frames before it are lost, and it is ignored.
        is_at_next: bool,
    },
    /// A fence. It raised the owner epoch, repeated it, or came too late to do either.
    Fence,
    /// Every replay skips the input record at this offset.
    Skip {
        /// The record's input offset.
        offset: i64,
    },
    /// The zone starts over, empty. Update numbers and the chain continue.
    Genesis,
    /// A repeated fence that states the shard's position: the reader continues from there. If it
    /// had joined before, that was at a superseded fence, and updates since then may be repeated.
    Joined,
    /// Dropped: the reader waits for a fence where it can join.
    Waiting,
    /// Dropped: the writer no longer owns the shard, or its epoch is not plausible.
    Stale,
    /// Dropped: everything in it was accepted earlier.
    Duplicate,
    /// Dropped and counted: updates before it are missing.
    Gap {
        /// Number of missing updates.
        missing: u64,
    },
    /// The chain does not match the updates. Nothing is accepted after this.
    Halt,
}

impl Reader {
    /// Creates a reader at the start of the log.
    pub fn new() -> Reader {
        Reader::default()
    }

    /// Creates a reader that continues at a stored position.
    pub(crate) fn at(position: Position) -> Reader {
        Reader { position, ..Reader::default() }
    }

    /// Creates a reader in the middle of the log. It waits for an owner's repeated fence, the only
    /// frame that states the shard's position.
    pub fn joining() -> Reader {
        Reader { source: PositionSource::None, ..Reader::default() }
    }

    /// Returns whether it has a position: a joining reader has none until it has read a valid
    /// repeated fence.
    pub fn has_joined(&self) -> bool {
        self.source != PositionSource::None
    }

    /// The reader's position, once it has joined.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The id of the fence that set the owner epoch; 0 if none did since the reader began.
    pub(crate) fn fence_id(&self) -> u128 {
        self.fence_id
    }

    /// Folds the next frame of the log, with its updates.
    pub fn fold(&mut self, header: &FrameHeader, updates: &[Update]) -> Verdict {
        if self.halted {
            return Verdict::Halt;
        }
        if self.is_far_from(header) {
            if self.source == PositionSource::None || self.has_accepted_nothing() {
                // Either epoch may be invalid. The owner's next frame will tell.
                self.source = PositionSource::None;
                self.position.owner_epoch = header.owner_epoch;
                self.fence_id = header.fence_id;
            } else if self.position.owner_epoch < header.owner_epoch {
                return Verdict::Stale;
            }
        }
        if let PositionSource::Fence { .. } = self.source
            && (self.is_overtaken_by(header) || self.is_elsewhere(header))
        {
            self.source = PositionSource::None;
        }
        if self.source == PositionSource::None {
            return self.join(header);
        }
        if header.kind == FrameKind::Fence {
            self.raise(header.owner_epoch, header.fence_id);
            return Verdict::Fence;
        }
        if header.owner_epoch < self.position.owner_epoch {
            return Verdict::Stale;
        }
        self.raise(header.owner_epoch, 0);
        match header.kind {
            FrameKind::Skip => Verdict::Skip { offset: header.next_offset.saturating_sub(1) },
            FrameKind::Genesis => self.start_over(header),
            _ if header.count == 0 => self.progress(header),
            _ => {
                let continued = |chain: Chain, from: usize| {
                    updates[from..].iter().fold(chain, |chain, update| chain.with(update))
                };
                self.accept(header, continued)
            }
        }
    }

    /// Folds a frame of this instance, whose chain was made from its updates when it was sealed.
    pub(crate) fn fold_own(&mut self, header: &FrameHeader) -> Verdict {
        match header.kind {
            FrameKind::Updates if header.count > 0 && !self.halted => {
                if header.owner_epoch < self.position.owner_epoch {
                    return Verdict::Stale;
                }
                self.raise(header.owner_epoch, 0);
                self.accept(header, |_, _| header.chain)
            }
            _ => self.fold(header, &[]),
        }
    }

    /// Returns whether this frame shows that another owner had already taken over when the fence
    /// where the reader joined was written. An owner that takes over after that fence begins with a
    /// fence that has the next owner epoch and no position yet.
    fn is_overtaken_by(&self, header: &FrameHeader) -> bool {
        let takes_over = header.kind == FrameKind::Fence && header.next_offset < 0;
        let next_epoch = self.position.owner_epoch.saturating_add(1);
        let is_newer = self.position.owner_epoch < header.owner_epoch;
        let is_another = is_placed(header)
            && header.owner_epoch == self.position.owner_epoch
            && header.fence_id != self.fence_id;
        is_another || (is_newer && !(takes_over && header.owner_epoch == next_epoch))
    }

    /// Returns whether the epochs of this frame and of the reader cannot both be owners'. A frame
    /// of epoch 0 is a note, and says nothing about the epoch of the reader.
    fn is_far_from(&self, header: &FrameHeader) -> bool {
        let step = header.owner_epoch.abs_diff(self.position.owner_epoch);
        header.owner_epoch != 0 && step > OWNER_EPOCH_STEP_MAX
    }

    /// Returns whether a repeated fence states another position, while no update has been accepted
    /// yet: the fence where the reader joined may have been appended twice, or not be an owner's.
    fn is_elsewhere(&self, header: &FrameHeader) -> bool {
        let Position { owner_epoch, next_update, next_offset, .. } = self.position;
        self.has_accepted_nothing()
            && is_placed(header)
            && header.owner_epoch == owner_epoch
            && (header.first_update != next_update || header.next_offset < next_offset)
    }

    /// Returns whether it has joined in the middle of the log, and accepted no update since.
    fn has_accepted_nothing(&self) -> bool {
        self.source == (PositionSource::Fence { first_update: self.position.next_update })
    }

    /// Joins at a repeated fence whose owner has not been superseded, as far as known.
    fn join(&mut self, header: &FrameHeader) -> Verdict {
        let FrameHeader { owner_epoch, first_update, next_offset, chain, fence_id, .. } = *header;
        self.raise(owner_epoch, fence_id);
        if !is_placed(header) || owner_epoch < self.position.owner_epoch {
            return Verdict::Waiting;
        }
        self.position = Position { owner_epoch, next_update: first_update, next_offset, chain };
        (self.fence_id, self.source) = (fence_id, PositionSource::Fence { first_update });
        Verdict::Joined
    }

    fn raise(&mut self, owner_epoch: u64, fence_id: u128) {
        if owner_epoch > self.position.owner_epoch {
            self.position.owner_epoch = owner_epoch;
            self.fence_id = fence_id;
        }
    }

    fn progress(&mut self, header: &FrameHeader) -> Verdict {
        let is_at_next = header.first_update == self.position.next_update;
        if is_at_next {
            self.advance(header.next_offset);
        }
        Verdict::Progress { is_at_next }
    }

    /// Accepts a genesis at its place only: a later copy is a duplicate.
    fn start_over(&mut self, header: &FrameHeader) -> Verdict {
        if header.first_update != self.position.next_update {
            return Verdict::Duplicate;
        }
        if header.chain != self.position.chain {
            return self.differ();
        }
        self.position.next_offset = header.next_offset;
        Verdict::Genesis
    }

    fn accept(
        &mut self,
        header: &FrameHeader,
        continued: impl FnOnce(Chain, usize) -> Chain,
    ) -> Verdict {
        let next = self.position.next_update;
        let end = header.first_update.saturating_add(u64::from(header.count));
        if end <= next {
            return Verdict::Duplicate;
        }
        if header.first_update > next {
            self.gaps += 1;
            return Verdict::Gap { missing: header.first_update - next };
        }
        let from = (next - header.first_update) as usize;
        let chain = continued(self.position.chain, from);
        if chain != header.chain {
            return self.differ();
        }
        self.position.chain = chain;
        self.position.next_update = end;
        self.advance(header.next_offset);
        Verdict::Accepted { from }
    }

    /// Handles a frame whose chain differs from the reader's.
    fn differ(&mut self) -> Verdict {
        if self.has_accepted_nothing() {
            // The fence may have described a frame that was never appended.
            self.source = PositionSource::None;
            return Verdict::Waiting;
        }
        self.halted = true;
        Verdict::Halt
    }

    fn advance(&mut self, next_offset: i64) {
        self.position.next_offset = self.position.next_offset.max(next_offset);
    }
}

/// Returns whether the header is a fence that states the shard's position.
fn is_placed(header: &FrameHeader) -> bool {
    header.kind == FrameKind::Fence && header.next_offset >= 0
}
