//! The framer: cuts one shard's updates into frames, on the hot thread.
//!
//! It numbers the updates, continues the chain over them, and suppresses those that are published
//! already: a replay makes the same updates again, and the chain proves that it did.

use crate::kit::update::Updates;
use crate::output::frame::{Chain, FENCE_EVERY_MS, Frame, FrameHeader, FrameKind};
use crate::output::mark::Mark;
use crate::ownership::action::Opening;
use std::time::{Duration, Instant};

/// Milliseconds after which a shard whose input has moved publishes a frame, even without updates.
pub(crate) const FRAME_SILENCE_MS_MAX: u64 = 100;

const FENCE_EVERY: Duration = Duration::from_millis(FENCE_EVERY_MS);

/// What an owner of a shard's output must know to continue it.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    /// Input and output partition.
    pub partition: i32,
    /// Which ownership of the partition within this process.
    pub ownership_id: u32,
    /// Owner epoch of the fence that this owner wrote.
    pub owner_epoch: u64,
    /// Id of that fence.
    pub fence_id: u128,
    /// Hash of the rules that the last update was made by.
    pub ruleset: u32,
    /// Updates below this number are published already.
    pub published: u64,
    /// The chain after them.
    pub published_chain: Chain,
    /// Input offset that they account for. A replay has made all of them when it gets there.
    pub published_offset: i64,
    /// The first input offset to apply.
    pub start_offset: i64,
    /// Leader epoch of the last record before it; `None`: not known.
    pub start_leader_epoch: Option<i32>,
    /// Leader epoch of the input's leader when the shard was acquired; -1: brokers do not tell it.
    pub input_leader_epoch: i32,
    /// Dead letters and handoffs of the input before this offset need not be sent.
    pub settled_offset: i64,
    /// Number of the first update that it makes.
    pub start_update: u64,
    /// The chain over all updates before that.
    pub start_chain: Chain,
}

impl Grant {
    /// What an opened shard must know.
    pub fn new(opening: &Opening) -> Grant {
        let Opening { ownership_id, ruleset, acquired, .. } = opening;
        Grant {
            partition: acquired.partition,
            ownership_id: *ownership_id,
            owner_epoch: acquired.owner_epoch,
            fence_id: acquired.fence_id,
            ruleset: *ruleset,
            published: acquired.mark.next_update,
            published_chain: acquired.mark.chain,
            published_offset: acquired.mark.next_offset,
            start_offset: acquired.start.next_offset,
            start_leader_epoch: acquired.start.leader_epoch,
            input_leader_epoch: acquired.input_leader_epoch,
            settled_offset: opening.settled_offset,
            start_update: acquired.start.next_update,
            start_chain: acquired.start.chain,
        }
    }
}

/// The role of a shard: it decides where its updates go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardRole {
    /// It publishes those that are not published yet.
    Owner,
    /// It makes those that another owner has published, and no others.
    Follower,
}

/// Cuts one shard's updates into frames.
pub struct Framer {
    grant: Grant,
    role: ShardRole,
    /// Number of the first update in `frame`.
    next_update: u64,
    /// The chain up to there.
    chain: Chain,
    frame: Option<Box<Frame>>,
    /// Input offset that the updates in `frame` account for.
    next_offset: i64,
    /// Input offset that the last frame sent accounts for.
    sent_offset: i64,
    sent_at: Instant,
    /// When the fence is repeated next.
    fence_at: Instant,
}

/// What to do with the updates that were collected.
pub enum Sealed {
    /// Nothing is to be sent now.
    Nothing,
    /// A frame for the publisher.
    Frame(Box<Frame>),
    /// The replay made other updates than those that are published: it must not go on.
    Diverged {
        /// Number of the update at which the chains differ, or which the replay did not make.
        at: u64,
    },
}

impl Framer {
    /// A framer for a shard that continues where its state was taken.
    pub fn new(grant: Grant, role: ShardRole, now: Instant) -> Framer {
        let start = grant.start_offset;
        Framer {
            grant,
            role,
            next_update: grant.start_update,
            chain: grant.start_chain,
            frame: None,
            next_offset: start,
            sent_offset: start,
            sent_at: now,
            fence_at: now + FENCE_EVERY,
        }
    }

    /// Returns whether another owner publishes.
    pub(crate) fn is_following(&self) -> bool {
        self.role == ShardRole::Follower
    }

    /// The input offset at which the shard has to wait: a follower must not be ahead of the output,
    /// which it could not take back.
    pub(crate) fn gate(&self) -> Option<i64> {
        self.is_following().then_some(self.grant.published_offset)
    }

    /// The output covers more, as another owner has published.
    pub(crate) fn cover(&mut self, mark: Mark) {
        assert!(self.is_following(), "an owner is told what it covers");
        self.grant.published = mark.next_update;
        self.grant.published_chain = mark.chain;
        self.grant.published_offset = mark.next_offset;
    }

    /// The output is ours: what is not published yet leaves from now on. The first frame says where
    /// the shard stands, even without updates.
    pub(crate) fn promote(&mut self, grant: Grant, now: Instant) {
        assert!(self.is_following(), "an owner is promoted");
        let ruleset = self.grant.ruleset;
        self.grant = Grant { ruleset, ..grant };
        self.role = ShardRole::Owner;
        (self.sent_offset, self.sent_at) = (grant.start_offset, now);
        self.fence_at = now + FENCE_EVERY;
    }

    /// Where the next updates go, if they fit; `None` asks for [`Framer::seal`], then for
    /// [`Framer::supply`].
    pub fn updates(&mut self) -> Option<&mut Updates> {
        let updates = &mut self.frame.as_mut()?.updates;
        updates.has_room().then_some(updates)
    }

    /// Whether there is a frame to put updates in.
    pub fn has_frame(&self) -> bool {
        self.frame.is_some()
    }

    /// Gives the framer an empty frame.
    pub fn supply(&mut self, mut frame: Box<Frame>) {
        assert!(self.frame.is_none() && frame.updates.is_empty());
        frame.received_at = None;
        self.frame = Some(frame);
    }

    /// The input of the updates that come next began to arrive then.
    pub(crate) fn received(&mut self, at: Option<Instant>) {
        if let Some(frame) = self.frame.as_mut().filter(|frame| frame.updates.is_empty()) {
            frame.received_at = at;
        }
    }

    /// Takes the frame away, with what it holds: the shard is given up.
    pub(crate) fn abandon(&mut self) -> Option<Box<Frame>> {
        self.frame.take()
    }

    /// The input up to `next_offset` (exclusive) is accounted for.
    pub fn advance(&mut self, next_offset: i64) {
        assert!(self.next_offset <= next_offset);
        self.next_offset = next_offset;
    }

    /// The rules that the last update was made by.
    pub(crate) fn set_ruleset(&mut self, ruleset: u32) {
        self.grant.ruleset = ruleset;
    }

    /// Its grant.
    pub(crate) fn grant(&self) -> &Grant {
        &self.grant
    }

    /// The chain over all updates that were sealed.
    pub(crate) fn chain(&self) -> Chain {
        self.chain
    }

    /// Number of the next update to be made after those that were sealed.
    pub(crate) fn next_update(&self) -> u64 {
        self.next_update
    }

    /// Input offset that is accounted for.
    pub(crate) fn next_offset(&self) -> i64 {
        self.next_offset
    }

    /// Whether the shard makes updates that are published already.
    pub(crate) fn is_replaying(&self) -> bool {
        self.next_update < self.grant.published
    }

    /// Whether the replay has passed all input that the published updates came from, and made
    /// fewer.
    pub(crate) fn has_fallen_short(&self) -> bool {
        let passed = self.grant.published_offset <= self.next_offset;
        self.is_replaying() && passed && !self.is_dirty()
    }

    /// Whether updates wait to be sent.
    pub(crate) fn is_dirty(&self) -> bool {
        self.frame.as_ref().is_some_and(|frame| !frame.updates.is_empty())
    }

    /// When a frame without updates is due, if the input has moved since the last one.
    pub(crate) fn silence_ends_at(&self) -> Option<Instant> {
        self.has_moved().then(|| self.sent_at + Duration::from_millis(FRAME_SILENCE_MS_MAX))
    }

    /// Whether a frame without updates would say how far the input is.
    fn has_moved(&self) -> bool {
        self.sent_offset < self.next_offset && !self.is_replaying() && !self.is_following()
    }

    /// Ends the frame: numbers and chains its updates, and holds back those that are published. A
    /// frame with nothing left stays.
    pub fn seal(&mut self, now: Instant) -> Sealed {
        match self.number_updates() {
            Err(at) => Sealed::Diverged { at },
            Ok(first_update) if self.is_dirty() => self.send_updates(first_update, now),
            Ok(_) => Sealed::Nothing,
        }
    }

    /// Like [`Framer::seal`], but a frame without updates leaves too if the input has moved.
    pub(crate) fn seal_position(&mut self, now: Instant) -> Sealed {
        match self.number_updates() {
            Err(at) => Sealed::Diverged { at },
            Ok(first_update) if self.is_dirty() || self.has_moved() => {
                self.send_updates(first_update, now)
            }
            Ok(_) => Sealed::Nothing,
        }
    }

    /// Number of the frame's first update after those that are published are gone from it. `Err` is
    /// the update at which the chains differ, or which the replay did not make.
    fn number_updates(&mut self) -> Result<u64, u64> {
        let is_following = self.is_following();
        let Some(frame) = self.frame.as_mut() else { return Ok(self.next_update) };
        let first = self.next_update;
        let published = self.grant.published;
        for update in frame.updates.as_slice() {
            if self.next_update == published && self.chain != self.grant.published_chain {
                return Err(published);
            }
            self.chain = self.chain.with(update);
            self.next_update += 1;
        }
        if self.next_update == published && self.chain != self.grant.published_chain {
            return Err(published);
        }
        // A follower that is ahead cannot be promoted, unless more is published.
        let held_back = if is_following { self.next_update } else { published };
        let suppressed = self.next_update.min(held_back).saturating_sub(first);
        frame.updates.discard_first(usize::try_from(suppressed).expect("within one frame"));
        match self.has_fallen_short() {
            true => Err(self.next_update),
            false => Ok(first + suppressed),
        }
    }

    fn send_updates(&mut self, first_update: u64, now: Instant) -> Sealed {
        self.take_frame(FrameKind::Updates, first_update, now)
            .map_or(Sealed::Nothing, Sealed::Frame)
    }

    /// Whether the fence should be repeated: readers join there. A replay does not repeat it,
    /// because the shard has not reached the position that the fence would state.
    pub(crate) fn is_fence_due(&self, now: Instant) -> bool {
        self.fence_at <= now && !self.is_replaying() && !self.is_dirty() && !self.is_following()
    }

    /// The fence again, with where the shard stands; `None` without a frame to write it to.
    pub(crate) fn fence(&mut self, now: Instant) -> Option<Box<Frame>> {
        assert!(!self.is_dirty());
        let fence = self.take_frame(FrameKind::Fence, self.next_update, now)?;
        self.fence_at = now + FENCE_EVERY;
        Some(fence)
    }

    fn take_frame(
        &mut self,
        kind: FrameKind,
        first_update: u64,
        now: Instant,
    ) -> Option<Box<Frame>> {
        let mut frame = self.frame.take()?;
        frame.partition = self.grant.partition;
        frame.ownership_id = self.grant.ownership_id;
        frame.header = FrameHeader {
            kind,
            owner_epoch: self.grant.owner_epoch,
            first_update,
            count: u32::try_from(frame.updates.len()).expect("a frame's updates are few"),
            next_offset: self.next_offset,
            ruleset: self.grant.ruleset,
            chain: self.chain,
            fence_id: if kind == FrameKind::Fence { self.grant.fence_id } else { 0 },
        };
        self.sent_at = now;
        if kind == FrameKind::Updates {
            self.sent_offset = self.next_offset;
        }
        Some(frame)
    }
}
