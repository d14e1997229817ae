//! Hands a shard from the control thread to the others, and reads its progress as facts.
//!
//! The simulator's control thread uses these functions, too.

use crate::kit::engine::Engine;
use crate::ownership::acquired::Acquired;
use crate::ownership::action::{Cover, Opening};
use crate::ownership::event::ShardFacts;
use crate::publisher::ToPublisher;
use crate::shards::ToHot;
use crate::shards::framer::{Grant, ShardRole};
use crate::telemetry::progress::Progress;

/// Where a shard is.
pub fn facts(progress: &Progress, partition: i32) -> ShardFacts {
    let progress = progress.shard(partition);
    let is_sending = progress.sent.get() != progress.settled.get();
    let is_storing = progress.checkpoints.get() != progress.checkpoints_settled.get()
        || progress.replicas.get() != progress.replicas_settled.get();
    ShardFacts {
        partition,
        input_end: progress.high_watermark.get(),
        decoded: progress.decoded.get(),
        applied: progress.applied.get(),
        acked: progress.acked.get(),
        settled_offset: progress.settled_offset.get(),
        next_update: progress.next_update.get(),
        is_busy: is_sending || is_storing,
    }
}

/// An ownership begins: its progress is set, and these messages go to the publisher and then to the
/// hot thread.
pub fn open(
    progress: &Progress,
    opening: Opening,
    engine: Box<dyn Engine>,
) -> (ToPublisher, ToHot) {
    let begin = begin(progress, &opening);
    let start = opening.acquired.start.next_offset;
    progress.shard(opening.acquired.partition).applied.set(start);
    (begin, to_hot(opening, engine, ShardRole::Owner))
}

/// An engine begins to follow another owner: its progress is set, and this message goes to the hot
/// thread.
pub fn follow(progress: &Progress, opening: Opening, engine: Box<dyn Engine>) -> ToHot {
    set_progress(progress, &opening);
    let Acquired { partition, mark, start, .. } = opening.acquired;
    let progress = progress.shard(partition);
    progress.following.set(1);
    progress.goal.set(mark.next_offset);
    progress.applied.set(start.next_offset);
    to_hot(opening, engine, ShardRole::Follower)
}

/// An engine that has followed goes on as the owner: its progress is set, and these messages go to
/// the publisher and then to the hot thread.
pub fn promote(progress: &Progress, opening: Opening) -> (ToPublisher, ToHot) {
    let begin = begin(progress, &opening);
    let (grant, settled_offset) = (Grant::new(&opening), opening.settled_offset);
    (begin, ToHot::Promote { grant, settled_offset })
}

/// The output covers more than an engine was told that follows: its progress is set, and this
/// message goes to the hot thread.
pub fn cover(progress: &Progress, cover: Cover) -> ToHot {
    progress.shard(cover.partition).acked.set(cover.mark.next_offset);
    ToHot::Cover(cover)
}

fn begin(progress: &Progress, opening: &Opening) -> ToPublisher {
    set_progress(progress, opening);
    let Opening { ownership_id, zones, ref acquired, .. } = *opening;
    let (partition, mark) = (acquired.partition, acquired.mark);
    ToPublisher::Begin { partition, ownership_id, mark, zones }
}

fn set_progress(progress: &Progress, opening: &Opening) {
    let progress = progress.shard(opening.acquired.partition);
    progress.acked.set(opening.acquired.acked());
    progress.settled_offset.set(opening.settled_offset);
    progress.high_watermark.set(-1);
    progress.goal.set(-1);
    progress.following.set(0);
    progress.snapshot_at_ms.set(0);
    progress.ownership_id.set(opening.ownership_id);
}

fn to_hot(opening: Opening, engine: Box<dyn Engine>, role: ShardRole) -> ToHot {
    let grant = Grant::new(&opening);
    let start = opening.acquired.start.next_offset;
    let is_ahead = |offset: &i64| *offset >= start;
    let skips = opening.acquired.skips.into_iter().filter(is_ahead).collect();
    ToHot::Open { grant, role, engine, skips }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::fold::Start;
    use crate::output::mark::Mark;
    use std::collections::BTreeSet;

    #[test]
    fn an_ownership_begins_without_the_snapshots_of_an_earlier_one() {
        let progress = Progress::new();
        progress.shard(3).snapshot_at_ms.set(1_767_225_600_999);
        let acquired = Acquired {
            partition: 3,
            owner_epoch: 2,
            fence_id: 1,
            mark: Mark::default(),
            start: Start::default(),
            candidate: None,
            migrates_to: None,
            begun_by: 1,
            skips: BTreeSet::new(),
            input_leader_epoch: -1,
        };
        let opening =
            Opening { ownership_id: 2, ruleset: 1, zones: 4, acquired, settled_offset: 0 };
        promote(&progress, opening);
        assert_eq!(progress.shard(3).snapshot_at_ms.get(), 0);
    }
}
