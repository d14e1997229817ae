//! Another program that writes to the output: a clone of an owner's host that goes on where it was,
//! or one that writes fences of epochs which no owner has.

use crate::chance::{Fault, Sight};
use crate::reader::Replay;
use crate::sim::Sim;
use huntd::hunt::frames::{decode_frame, encode};
use huntd::kit::update::Update;
use huntd::output::frame::{Chain, Format, FrameHeader, FrameKind};
use huntd::output::mark::Mark;

/// By how much a frame may raise the owner epoch (docs/PROTOCOL.md, rule 0).
pub(crate) const EPOCH_STEP_MAX: u64 = 1 << 32;

/// Updates of a clone's frame.
const CLONE_UPDATES_MAX: usize = 5;

impl Sim {
    /// Another program writes to an output that all readers have read to its end.
    pub(crate) fn strike_outputs(&mut self) {
        let partition = self.chance.below(self.followers.len() as u64) as usize;
        let mark = self.followers[partition].mark();
        let Some(fence_id) = self.fence_in_force(partition, mark.owner_epoch) else { return };
        if self.chance.strikes(Fault::FenceForged) {
            self.forge_fence(partition, &mark);
        } else if self.chance.strikes(Fault::CloneGoesOn) {
            self.go_on_as_clone(partition, &mark, fence_id);
        }
    }

    /// The id of the fence that has set the owner epoch. `None`: the frame of no owner has. A note,
    /// which comes before the first owner at times, sets none.
    fn fence_in_force(&self, partition: usize, owner_epoch: u64) -> Option<u128> {
        if owner_epoch == 0 {
            return None;
        }
        let frames = self.broker.outputs[partition].records.iter();
        let headers = frames.filter_map(|bytes| Some(decode_frame(bytes).ok()?.0));
        let mut fences = headers.filter(|header| header.kind == FrameKind::Fence);
        let raised = fences.find(|fence| fence.owner_epoch == owner_epoch)?;
        Some(raised.fence_id)
    }

    fn forge_fence(&mut self, partition: usize, mark: &Mark) {
        let step = EPOCH_STEP_MAX;
        // What is out of reach stays there, whatever owners come: else late readers cannot tell.
        let near = mark.owner_epoch + self.chance.pick(&[step - 1, step, step + (1 << 20)]);
        // An epoch that is raised once too often is taken for another deployment's.
        let is_raised = mark.owner_epoch >= step - 1;
        let far = if is_raised { mark.owner_epoch + 2 * step } else { near };
        let owner_epoch = self.chance.pick(&[u64::MAX, u64::MAX - 1, far, far]);
        let kind = FrameKind::Fence;
        let (first_update, next_offset, chain) = (0, -1, Chain::default());
        let fence_id = u128::from(self.chance.next());
        let header =
            FrameHeader { kind, first_update, next_offset, chain, fence_id, ..header(mark) };
        self.forge(partition, &FrameHeader { owner_epoch, ..header }, &[]);
    }

    fn go_on_as_clone(&mut self, partition: usize, mark: &Mark, fence_id: u128) {
        let input = &self.broker.inputs[partition];
        let is_whole = input.truncated_to.is_none() && !self.broker.was_input_deleted();
        let end = input.end.max(mark.next_offset);
        // It would publish the record that an owner is about to pass over.
        let mut skips = self.asked_skips.iter().filter(|((of, _), _)| *of == partition as i32);
        let awaits_skip = skips.any(|(_, is_seen)| !is_seen);
        match self.chance.below(3) {
            0 => {
                let ahead = self.chance.below((end - mark.next_offset) as u64 + 1) as i64;
                // Only an operator can help then.
                let is_absurd = self.starts_over && self.chance.one_in(4);
                let next_offset = if is_absurd { 1 << 62 } else { mark.next_offset + ahead };
                self.forge(partition, &FrameHeader { next_offset, ..header(mark) }, &[]);
            }
            // An owner that has to join where a clone has the last word would believe it.
            1 if !self.chance.is_on(Fault::OutputRetained) => {
                let first_update = self.chance.pick(&[0, mark.next_update, 1 << 40, u64::MAX]);
                let next_offset = self.chance.pick(&[0, end as u64, 1 << 62]) as i64;
                let chain = Chain(self.chance.pick(&[mark.chain.0, 1]));
                let kind = FrameKind::Fence;
                let header = FrameHeader { kind, first_update, next_offset, chain, ..header(mark) };
                self.forge(partition, &FrameHeader { fence_id, ..header }, &[]);
            }
            2 if is_whole && !awaits_skip => self.publish_as_clone(partition, mark),
            _ => {}
        }
    }

    /// A clone has applied the same input, and is faster.
    fn publish_as_clone(&mut self, partition: usize, mark: &Mark) {
        let (input, era) = (&self.broker.inputs[partition], &self.followers[partition].era);
        let whole = Replay::of(input, partition as i32, era, &self.rulebook);
        let known = (mark.next_update - whole.begin.next_update) as usize;
        let wanted = known + 1 + self.chance.below(CLONE_UPDATES_MAX as u64) as usize;
        // It publishes the updates of whole events.
        let upto = input.records.range(mark.next_offset..).map(|(offset, _)| offset + 1);
        for next_offset in upto {
            let before = input.records.range(..next_offset);
            let before = before.map(|(offset, record)| (*offset, record.clone())).collect();
            let replay = Replay::of_records(&before, partition as i32, era, &self.rulebook);
            if replay.updates.len() >= wanted {
                let updates = replay.updates[known..].to_vec();
                let (count, ruleset) = (updates.len() as u32, replay.shard.ruleset());
                let chain = replay.chain;
                let header = FrameHeader { count, ruleset, next_offset, chain, ..header(mark) };
                return self.forge(partition, &header, &updates);
            }
        }
    }

    fn forge(&mut self, partition: usize, header: &FrameHeader, updates: &[Update]) {
        self.trace(&format!("a stranger writes to partition {partition}: {header:?}"));
        self.chance.see(match updates.is_empty() {
            true => Sight::FrameForged,
            false => Sight::ClonePublished,
        });
        let ruleset = match updates.is_empty() {
            true => self.followers[partition].era.ruleset_or(&self.rulebook),
            false => header.ruleset,
        };
        let mut bytes = Vec::new();
        encode(Format::Binary, &FrameHeader { ruleset, ..*header }, updates, &mut bytes);
        let output = &mut self.broker.outputs[partition];
        let offset = output.append(bytes);
        output.forged = Some(offset);
    }
}

/// An empty frame where readers stand.
fn header(mark: &Mark) -> FrameHeader {
    FrameHeader {
        kind: FrameKind::Updates,
        owner_epoch: mark.owner_epoch,
        first_update: mark.next_update,
        count: 0,
        next_offset: mark.next_offset,
        ruleset: 0,
        chain: mark.chain,
        fence_id: 0,
    }
}
