//! Hands a shard from the control thread to the others, and reads its progress as facts.
//!
//! The simulator's control thread uses these functions, too.

use crate::hunt::Shard;
use crate::ownership::action::Opening;
use crate::ownership::event::ShardFacts;
use crate::publisher::ToPublisher;
use crate::shards::ToHot;
use crate::shards::framer::Grant;
use crate::telemetry::progress::Progress;

/// Where a shard is.
pub fn facts(progress: &Progress, partition: i32) -> ShardFacts {
    let progress = progress.shard(partition);
    let is_sending = progress.sent.get() != progress.settled.get();
    let is_storing = progress.checkpoints.get() != progress.checkpoints_settled.get();
    ShardFacts {
        partition,
        input_end: progress.high_watermark.get(),
        applied: progress.applied.get(),
        acked: progress.acked.get(),
        settled_offset: progress.settled_offset.get(),
        is_busy: is_sending || is_storing,
    }
}

/// An ownership begins: its progress is set, and these messages go to the publisher and then to the
/// hot thread.
pub fn open(progress: &Progress, opening: Opening, engine: Box<Shard>) -> (ToPublisher, ToHot) {
    let grant = Grant::new(&opening);
    let Opening { ownership_id, zones, acquired, .. } = opening;
    let (partition, mark, start) = (acquired.partition, acquired.mark, acquired.start);
    let progress = progress.shard(partition);
    progress.acked.set(acquired.acked());
    progress.settled_offset.set(start.next_offset);
    progress.high_watermark.set(-1);
    progress.goal.set(-1);
    progress.applied.set(start.next_offset);
    progress.ownership_id.set(ownership_id);
    let is_ahead = |offset: &i64| *offset >= start.next_offset;
    let skips = acquired.skips.into_iter().filter(is_ahead).collect();
    let begin = ToPublisher::Begin { partition, ownership_id, mark, zones };
    (begin, ToHot::Open { grant, engine, skips })
}
