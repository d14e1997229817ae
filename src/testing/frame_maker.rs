//! Frames for tests that have no engine: updates that follow from their numbers.

use crate::hunt::change::Change;
use crate::kit::update::{Update, Updates};
use crate::output::frame::{Chain, Frame, FrameHeader, FrameKind};
use std::time::Instant;

/// Makes the frames of one shard as its owner does.
pub struct FrameMaker {
    /// The shard's partition.
    pub partition: i32,
    /// Its owner's name for it.
    pub ownership_id: u32,
    /// Owner epoch of the frames.
    pub owner_epoch: u64,
    /// Number of the next update.
    pub next_update: u64,
    /// Input offset after the events of all frames.
    pub next_offset: i64,
    /// Chain of all updates.
    pub chain: Chain,
}

impl FrameMaker {
    /// A shard without updates.
    pub fn new(partition: i32) -> FrameMaker {
        FrameMaker {
            partition,
            ownership_id: 1,
            owner_epoch: 1,
            next_update: 0,
            next_offset: 0,
            chain: Chain::default(),
        }
    }

    /// The next frame, with `count` updates, one an event.
    pub fn frame(&mut self, count: u32) -> Box<Frame> {
        let mut updates = Updates::new();
        for _ in 0..count {
            let number = self.next_update;
            let update = Update::new(
                number % 7 + 1,
                1_000 + number as i64,
                Change::Moved { tile: 9, x: number as i32, y: -3 },
            );
            self.chain = self.chain.with(&update);
            self.next_update += 1;
            updates.push(update);
        }
        self.next_offset += i64::from(count.max(1));
        let header = FrameHeader {
            kind: FrameKind::Updates,
            owner_epoch: self.owner_epoch,
            first_update: self.next_update - u64::from(count),
            count,
            next_offset: self.next_offset,
            ruleset: 7,
            chain: self.chain,
            fence_id: 0,
        };
        let FrameMaker { partition, ownership_id, .. } = *self;
        let received_at = Some(Instant::now());
        Box::new(Frame { partition, ownership_id, header, received_at, updates })
    }

    /// A fence of this owner epoch, as an owner repeats it.
    pub fn fence(&self, fence_id: u128) -> FrameHeader {
        FrameHeader {
            kind: FrameKind::Fence,
            owner_epoch: self.owner_epoch,
            first_update: self.next_update,
            count: 0,
            next_offset: self.next_offset,
            ruleset: 7,
            chain: self.chain,
            fence_id,
        }
    }
}
