//! One owned shard. It takes blocks, and gives dead letters and frames.

use super::checkpoints::CheckpointSchedule;
use super::{Workspace, contained, publish_counts};
use crate::fetch::block::{BLOCK_EVENTS_MAX, Block, SHARD_BLOCKS_MAX};
use crate::fetch::cursor::Cursor;
use crate::kit::engine::{BlockReport, Engine};
use crate::output::dead_letter::DeadLetter;
use crate::output::handoff::HandoffRecord;
use crate::ownership::action::Cover;
use crate::ownership::event::{NoOps, ShardNotice, ToControl};
use crate::ownership::start_error::StartError;
use crate::publisher::{Outgoing, ToPublisher};
use crate::runtime::turns::HotContext;
use crate::shards::STALL_RETRY_MS;
use crate::shards::framer::{Framer, Grant, Sealed, ShardRole};
use crate::shards::kept::KeptBeside;
use crate::snapshot::checkpoint::{CheckpointHeader, CheckpointId};
use crate::telemetry::metrics::{Counter, Metrics};
use crate::telemetry::repeated::Repeated;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Why a shard cannot go on.
pub(super) enum ShardEnd {
    /// Its replay makes other updates than before, or rules for it are missing.
    CannotContinue(StartError),
    /// The engine failed at the event with this input offset.
    Panicked { offset: i64 },
    /// The engine failed while its state was written out.
    CheckpointFailed(String),
    /// It was to own an output, and lacks something that it has to send first.
    CannotTakeOver,
}

impl From<StartError> for ShardEnd {
    fn from(error: StartError) -> ShardEnd {
        ShardEnd::CannotContinue(error)
    }
}

/// One shard with its input and its output.
pub(super) struct OwnedShard {
    pub(super) engine: Box<dyn Engine>,
    pub(super) framer: Framer,
    pub(super) cursor: Rc<Cursor>,
    /// Blocks that wait for a frame, oldest first.
    pub(super) pending: VecDeque<Box<Block>>,
    /// Events of the oldest block that are applied already.
    pub(super) applied: usize,
    /// The outcomes of the last block.
    report: BlockReport,
    /// Players that have left for another zone and were not handed over.
    pub(super) handoffs: VecDeque<HandoffRecord>,
    /// What it has to hand over before anything else, once it is the owner.
    kept: KeptBeside,
    /// When the oldest update that was not handed over was made.
    pub(super) dirty_since: Option<Instant>,
    pub(super) closing: bool,
    /// When its next checkpoint is due.
    pub(super) schedule: CheckpointSchedule,
    /// Events that changed nothing and were not reported.
    no_ops: u64,
    no_op_reports: Repeated,
}

impl OwnedShard {
    /// A shard that has applied nothing yet.
    pub(super) fn new(
        (grant, role): (Grant, ShardRole),
        engine: Box<dyn Engine>,
        cursor: Rc<Cursor>,
        schedule: CheckpointSchedule,
        context: &HotContext,
    ) -> OwnedShard {
        let (now, reasons) = (context.turns.now(), context.metrics.refusals.codes());
        OwnedShard {
            engine,
            framer: Framer::new(grant, role, now),
            kept: KeptBeside::from(grant.settled_offset),
            cursor,
            pending: VecDeque::with_capacity(SHARD_BLOCKS_MAX),
            applied: 0,
            report: BlockReport::new(BLOCK_EVENTS_MAX, reasons),
            handoffs: VecDeque::with_capacity(BLOCK_EVENTS_MAX),
            dirty_since: None,
            closing: false,
            schedule,
            no_ops: 0,
            no_op_reports: Repeated::new(),
        }
    }

    /// Its place among the shards.
    pub(super) fn index(&self) -> usize {
        usize::try_from(self.cursor.partition).expect("a partition number")
    }

    /// Whether it closes, or its cursor has failed, and all of its decoded input is applied.
    pub(super) fn is_done(&self) -> bool {
        (self.closing || self.cursor.has_failed()) && self.cursor.blocks_out() == 0
    }

    /// Whether everything that was applied is handed over.
    pub(super) fn owes_nothing(&self) -> bool {
        !self.framer.is_dirty() && self.framer.silence_ends_at().is_none() && !self.owes_beside()
    }

    /// Returns whether something has to be handed over before any frame that accounts for it.
    fn owes_beside(&self) -> bool {
        !self.handoffs.is_empty() || (!self.kept.is_empty() && !self.framer.is_following())
    }

    /// The output covers more. An owner knows that by itself.
    pub(super) fn cover(&mut self, cover: &Cover) {
        if self.framer.is_following() {
            self.kept.settle(cover.settled_offset);
            self.framer.cover(cover.mark);
        }
    }

    /// A follower becomes the owner.
    pub(super) fn promote(
        &mut self,
        grant: Grant,
        settled_offset: i64,
        now: Instant,
    ) -> Result<(), ShardEnd> {
        if self.kept.has_dropped() || self.framer.next_update() > grant.published {
            return Err(ShardEnd::CannotTakeOver);
        }
        self.kept.settle(settled_offset);
        self.framer.promote(grant, now);
        self.cursor.is_following.set(false);
        Ok(())
    }

    /// Begins a checkpoint of the state. Everything before it is handed over.
    pub(super) fn begin_checkpoint(&mut self, number: u64) -> CheckpointHeader {
        let Grant { partition, ownership_id, .. } = *self.framer.grant();
        let next_offset = self.framer.next_offset();
        CheckpointHeader {
            id: CheckpointId { partition, ownership_id, number },
            ruleset: self.engine.ruleset(),
            engine_version: self.engine.version(),
            next_offset,
            leader_epoch: self.cursor.leader_epoch_at(next_offset),
            next_update: self.framer.next_update(),
            chain: self.framer.chain(),
            digest: self.engine.digest(),
            skips: self.cursor.skips_from(next_offset).to_vec(),
            state_bytes: self.engine.begin_checkpoint(),
        }
    }

    /// Applies the pending blocks as far as there are frames.
    pub(super) fn apply(&mut self, workspace: &mut Workspace) -> Result<(), ShardEnd> {
        while self.send_kept(workspace)
            && self.send_handoffs(workspace)
            && !self.pending.is_empty()
            && !self.is_at_gate()
            && self.send_rejects(workspace)
            && self.obtain_frame(workspace)?
        {
            self.apply_block(workspace)?;
        }
        if self.framer.has_fallen_short() {
            return Err(StartError::Diverged { update: self.framer.next_update() }.into());
        }
        Ok(())
    }

    /// Whether the next event has to wait until the output covers it, and everything before it is
    /// accounted for.
    fn is_at_gate(&self) -> bool {
        let Some(gate) = self.framer.gate() else { return false };
        let next = self.pending.front().and_then(|block| block.events.plain().get(self.applied));
        next.is_some_and(|next| gate <= next.offset && next.offset == self.framer.next_offset())
    }

    /// Makes sure that there is a frame with room for an event's updates.
    fn obtain_frame(&mut self, workspace: &mut Workspace) -> Result<bool, StartError> {
        if self.framer.updates().is_some() {
            return Ok(true);
        }
        if self.framer.has_frame() {
            self.flush(workspace)?;
            if self.framer.updates().is_some() {
                return Ok(true);
            }
        }
        if !self.may_send(workspace) {
            return Ok(false);
        }
        // The frame that came back last is the one that is still in the cache.
        workspace.gather_frames();
        let Some(mut frame) = workspace.spare_frames.pop() else { return Ok(false) };
        frame.updates.clear();
        frame.updates.touch();
        self.framer.supply(frame);
        Ok(true)
    }

    /// Whether the shard has less on its way to the broker than it may.
    fn may_send(&self, workspace: &Workspace) -> bool {
        let progress = workspace.context.progress.shard(self.cursor.partition);
        let frames = progress.sent.get() - progress.settled.get();
        let bytes = progress.sent_bytes.get() - progress.settled_bytes.get();
        frames < workspace.options.frames_per_shard
            && (frames == 0 || bytes < workspace.bytes_per_shard())
    }

    /// Hands over the dead letters of the oldest block, which must come before the frame that
    /// accounts for them. False: some have to wait, and so has the block.
    fn send_rejects(&mut self, workspace: &mut Workspace) -> bool {
        while self.pending.front().is_some_and(|block| !block.rejects.is_empty()) {
            if !self.may_send_beside(workspace) {
                return false;
            }
            let block = self.pending.front_mut().expect("the caller looked");
            let rejected = block.rejects.remove(0);
            let HotContext { metrics, progress, .. } = &workspace.context;
            // A zone that works through rejects is as late as they are old.
            if rejected.time_ms > 0 {
                progress.shard(block.partition).applied_time_ms.set(rejected.time_ms);
            }
            metrics.rejects.add(block.partition, rejected.reject as usize, rejected.records());
            let letter = DeadLetter {
                partition: block.partition,
                ownership_id: block.ownership_id,
                offset: rejected.offset,
                time_ms: rejected.time_ms,
                reason: rejected.reject.name(),
                sentence: Some(rejected.sentence),
                key: rejected.key,
                value: rejected.value,
                cut: rejected.cut,
                run: rejected.run,
            };
            self.send_beside(workspace, Outgoing::DeadLetter(Box::new(letter)));
        }
        true
    }

    /// Hands over the players that have left for another zone. False: some have to wait, and so
    /// has the next block.
    fn send_handoffs(&mut self, workspace: &mut Workspace) -> bool {
        while !self.handoffs.is_empty() {
            if !self.may_send_beside(workspace) {
                return false;
            }
            let handoff = self.handoffs.pop_front().expect("one is there");
            self.send_beside(workspace, Outgoing::Handoff(handoff));
        }
        true
    }

    /// Hands over what was kept while another owner published. False: some has to wait.
    fn send_kept(&mut self, workspace: &mut Workspace) -> bool {
        while !self.framer.is_following() && !self.kept.is_empty() {
            if !self.may_send_beside(workspace) {
                return false;
            }
            let outgoing = self.kept.pop().expect("one is there");
            self.send(workspace, outgoing);
        }
        true
    }

    /// Whether the shard may send something other than a frame. A follower keeps it.
    fn may_send_beside(&self, workspace: &Workspace) -> bool {
        self.framer.is_following()
            || (self.may_send(workspace) && workspace.ends.has_room_beside_frames())
    }

    /// Hands over something other than a frame, or keeps it until that is this shard's part.
    fn send_beside(&mut self, workspace: &Workspace, outgoing: Outgoing) {
        if !self.framer.is_following() {
            return self.send(workspace, outgoing);
        }
        if !self.kept.keep(outgoing) {
            let Cursor { partition, ownership_id, .. } = *self.cursor;
            let notice = ShardNotice::CannotTakeOver { partition, ownership_id };
            // The queue has room for several notices a shard.
            let _nobody = workspace.ends.control.try_send(ToControl::Shard(notice));
        }
    }

    /// The outbox has room for every frame there is. It refuses only when the publisher has ended,
    /// and then the daemon is about to end.
    fn send(&self, workspace: &Workspace, outgoing: Outgoing) {
        if let Outgoing::Frame(_) = outgoing {
            workspace.context.metrics.add(Counter::FramesSent, 1);
        }
        let bytes = outgoing.bytes_max();
        if workspace.ends.publisher.try_send(ToPublisher::Send(outgoing)).is_err() {
            self.cursor.fail("the publisher has ended: the log says why".to_owned());
        }
        let progress = workspace.context.progress.shard(self.cursor.partition);
        progress.sent.set(progress.sent.get() + 1);
        progress.sent_bytes.set(progress.sent_bytes.get() + bytes);
    }

    /// Applies the oldest block, or as much of it as the frame has room for.
    fn apply_block(&mut self, workspace: &Workspace) -> Result<(), ShardEnd> {
        let block = self.pending.front().expect("the caller looked");
        self.framer.received(block.received_at);
        let plain = block.events.plain();
        let gated = |gate| plain.partition_point(|event| event.offset < gate);
        let part = self.applied..self.framer.gate().map_or(plain.len(), gated);
        let updates = self.framer.updates().expect("the caller obtained a frame");
        let updates_before = updates.len();
        let report = &mut self.report;
        report.clear();
        let work = || self.engine.apply_part(&block.events, part, updates, report);
        let has_worked = contained(work).is_some();
        self.applied += self.report.events;
        if !has_worked {
            let at_work = block.events.plain().get(self.applied);
            let offset = at_work.map_or(self.framer.next_offset(), |event| event.offset);
            return Err(ShardEnd::Panicked { offset });
        }
        // Updates that were made before it and are in no sent frame are dropped with the shard.
        if let Some((offset, ruleset)) = self.report.missing {
            return Err(StartError::RulesMissing { offset, ruleset }.into());
        }
        let (partition, ownership_id) = (block.partition, block.ownership_id);
        self.handoffs.extend(self.report.departures.iter().map(|(offset, departure)| {
            HandoffRecord { partition, ownership_id, offset: *offset, departure: *departure }
        }));
        let made = updates.len() - updates_before;
        self.framer.set_ruleset(self.engine.ruleset());
        let metrics = &workspace.context.metrics;
        count(&self.report, metrics, partition);
        metrics.add(Counter::UpdatesMade, made as u64);
        let progress = workspace.context.progress.shard(self.cursor.partition);
        let listed = block.events.plain();
        if let Some(event) = listed[..self.applied].last() {
            progress.applied_time_ms.set(event.time_ms);
        }
        if let Some(next) = listed.get(self.applied) {
            self.framer.advance(next.offset);
        } else {
            self.framer.advance(block.next_offset);
            self.applied = 0;
            let block = self.pending.pop_front().expect("the block at work");
            self.cursor.give_block(&workspace.pool, block);
        }
        progress.applied.set(self.framer.next_offset());
        self.report_no_ops(workspace);
        if self.framer.is_dirty() && self.dirty_since.is_none() {
            self.dirty_since = Some(workspace.context.turns.now());
        }
        Ok(())
    }

    /// A producer whose players begin to count again from 1 is ignored: the operator has to learn
    /// of it.
    fn report_no_ops(&mut self, workspace: &Workspace) {
        let Some((player_id, seq)) = self.report.repeated else { return };
        self.no_ops += self.report.no_ops;
        if self.no_op_reports.notice(workspace.context.turns.now()).is_none() {
            return;
        }
        let report = NoOps {
            partition: self.cursor.partition,
            count: std::mem::take(&mut self.no_ops),
            player_id,
            seq,
            last_seq: self.engine.last_seq(player_id),
        };
        // The queue has room for several messages a shard, and only a log line depends on this one.
        let _full = workspace.ends.control.try_send(ToControl::NoOps(report));
    }

    /// Hands the collected updates to the publisher.
    fn flush(&mut self, workspace: &Workspace) -> Result<(), StartError> {
        let first = self.framer.next_update();
        let sealed = self.framer.seal(workspace.context.turns.now());
        self.hand_over(workspace, first, sealed)
    }

    /// Like [`OwnedShard::flush`]; without updates, an empty frame says how far the input is. It
    /// does not say so before the handoffs from before it are handed over.
    pub(super) fn flush_position(&mut self, workspace: &mut Workspace) -> Result<(), StartError> {
        if self.owes_beside() {
            return Ok(());
        }
        if !self.framer.has_frame() {
            self.obtain_frame(workspace)?;
        }
        let first = self.framer.next_update();
        let sealed = self.framer.seal_position(workspace.context.turns.now());
        self.hand_over(workspace, first, sealed)
    }

    fn hand_over(
        &mut self,
        workspace: &Workspace,
        first: u64,
        sealed: Sealed,
    ) -> Result<(), StartError> {
        let made = self.framer.next_update() - first;
        let published = match sealed {
            Sealed::Nothing => 0,
            Sealed::Frame(frame) => {
                let count = u64::from(frame.header.count);
                self.send(workspace, Outgoing::Frame(frame));
                count
            }
            Sealed::Diverged { at } => return Err(StartError::Diverged { update: at }),
        };
        workspace.context.metrics.add(Counter::UpdatesSuppressed, made - published);
        self.dirty_since = None;
        let progress = workspace.context.progress.shard(self.cursor.partition);
        progress.published.set(self.framer.next_offset());
        progress.next_update.set(self.framer.next_update());
        progress.ruleset.set(self.engine.ruleset().into());
        publish_counts(progress, &*self.engine);
        progress.digest.set(self.engine.digest());
        Ok(())
    }

    /// Repeats the fence when it is time, and a frame is free.
    pub(super) fn repeat_fence(&mut self, workspace: &mut Workspace) {
        let now = workspace.context.turns.now();
        if !self.framer.is_fence_due(now) || self.owes_beside() {
            return;
        }
        if let Ok(true) = self.obtain_frame(workspace)
            && let Some(fence) = self.framer.fence(now)
        {
            self.send(workspace, Outgoing::Frame(fence));
        }
    }

    /// Hands the collected updates over if they should wait no longer.
    pub(super) fn flush_if_due(&mut self, workspace: &mut Workspace) -> Result<(), StartError> {
        match self.is_done() || self.is_flush_due(workspace) {
            true => self.flush_position(workspace),
            false => Ok(()),
        }
    }

    /// Whether the collected updates should wait no longer: there is no more work, they have
    /// lingered, or the shard has been silent for too long.
    fn is_flush_due(&self, workspace: &Workspace) -> bool {
        let now = workspace.context.turns.now();
        let lingered = |since: Instant| {
            workspace.context.turns.is_going_to_rest() || since + workspace.options.linger <= now
        };
        self.dirty_since.is_some_and(lingered)
            || self.framer.silence_ends_at().is_some_and(|at| at <= now)
    }

    /// Tells the fetch path whether to bring more, and asks for the next turn.
    pub(super) fn ask_for_turn(&self, workspace: &Workspace) {
        let turns = &workspace.context.turns;
        let waits_for_publisher = !self.pending.is_empty() && !self.is_at_gate();
        if waits_for_publisher || self.owes_beside() {
            self.cursor.stall();
            turns.turn_at(turns.now() + Duration::from_millis(STALL_RETRY_MS));
        } else if self.cursor.go_on() {
            turns.turn_again();
        }
        if let Some(since) = self.dirty_since
            && !self.owes_beside()
        {
            turns.turn_at(since + workspace.options.linger);
        }
        if let Some(at) = self.framer.silence_ends_at() {
            // An overdue frame waits for the publisher: another turn at once would not help.
            turns.turn_at(at.max(turns.now() + Duration::from_millis(STALL_RETRY_MS)));
        }
    }
}

/// Adds a block's events to the metrics, by outcome.
fn count(report: &BlockReport, metrics: &Metrics, partition: i32) {
    metrics.no_ops.add(partition, 0, report.no_ops);
    for (counts, family) in
        [(&report.applied[..], &metrics.applied), (&report.refused[..], &metrics.refusals)]
    {
        for (number, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            family.add(partition, number, u64::from(*count));
        }
    }
}
