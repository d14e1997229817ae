//! Partitions that stand still although their log has grown, or may have, whatever the cause.

use crate::telemetry::progress::{Progress, ShardProgress};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Milliseconds without progress after which a partition stands still, if it has records to take or
/// may have some.
const STILL_MS: u64 = 10_000;

/// Milliseconds between two samples after which this process has stood still itself, and says
/// nothing about others: samples are taken every second or two.
const SAMPLE_MS_MAX: u64 = 5_000;

/// A shard that stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StillShard {
    /// Its partition.
    pub partition: i32,
    /// What it waits for now.
    pub waits_for: &'static str,
}

/// How far a shard was when it last moved.
#[derive(Debug)]
struct Seen {
    ownership_id: u32,
    offsets: [i64; 5],
    at: Instant,
    is_still: bool,
}

/// Remembers how far each shard was.
#[derive(Debug, Default)]
pub(crate) struct Standstill {
    shards: BTreeMap<i32, Seen>,
    sampled_at: Option<Instant>,
}

impl Standstill {
    /// Samples all owned shards, and returns those that stand still. Logs a line for each that has
    /// just come to a stop.
    pub(crate) fn sample(&mut self, progress: &Progress, now: Instant) -> Vec<StillShard> {
        let mut before = std::mem::take(&mut self.shards);
        let pause = now.saturating_duration_since(self.sampled_at.replace(now).unwrap_or(now));
        if pause >= Duration::from_millis(SAMPLE_MS_MAX) {
            before.values_mut().for_each(|seen| seen.at += pause);
        }
        let mut still = Vec::new();
        for (partition, shard) in progress.owned() {
            let ownership_id = shard.ownership_id.get();
            let (offsets, lag) = (offsets(shard), shard.lag());
            let seen = before.remove(&partition).filter(|seen| seen.ownership_id == ownership_id);
            let mut seen = seen.unwrap_or(Seen { ownership_id, offsets, at: now, is_still: false });
            if seen.offsets != offsets || lag == Some(0) {
                if std::mem::take(&mut seen.is_still) {
                    tracing::warn!(partition, "the partition moves again");
                }
                (seen.offsets, seen.at) = (offsets, now);
            }
            let stood = now.saturating_duration_since(seen.at);
            if stood >= Duration::from_millis(STILL_MS) && !seen.is_still {
                seen.is_still = true;
                let waits_for = waits_for(shard);
                tracing::error!(partition, lag, "the partition stands still: {waits_for}");
            }
            if seen.is_still {
                still.push(StillShard { partition, waits_for: waits_for(shard) });
            }
            shard.still.set(u64::from(seen.is_still));
            self.shards.insert(partition, seen);
        }
        still
    }
}

/// Where the stages are, in the order in which a record passes them.
fn offsets(shard: &ShardProgress) -> [i64; 5] {
    let ShardProgress { fetched, decoded, applied, published, acked, .. } = shard;
    [fetched.get(), decoded.get(), applied.get(), published.get(), acked.get()]
}

/// What the last record that moved waits for.
fn waits_for(shard: &ShardProgress) -> &'static str {
    let [fetched, decoded, applied, published, acked] = offsets(shard);
    // A shard sends nothing more while its quota is on its way.
    let is_on_its_way = shard.sent.get() > shard.settled.get();
    if is_on_its_way || acked < published {
        "the brokers of the output or dead-letter topic do not acknowledge what was sent"
    } else if published < applied {
        "updates are made, and frames are not sent: other shards fill the publisher's buffer"
    } else if applied < decoded {
        "events are decoded and not applied"
    } else if decoded < fetched {
        "records are fetched and not decoded"
    } else if shard.lag().is_none() {
        "no broker says where its log ends: see huntd_fetch_errors_total, and the input's leader"
    } else {
        "no record is fetched: see huntd_fetch_errors_total, the input's leader, quotas, and \
         transactions that were left open"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shard that has 100 records in its log, and is this far.
    fn shard(progress: &Progress, offsets: [i64; 5]) {
        let shard = progress.shard(3);
        shard.ownership_id.set(1);
        shard.high_watermark.set(100);
        let ShardProgress { fetched, decoded, applied, published, acked, .. } = shard;
        let stages = [fetched, decoded, applied, published, acked];
        stages.into_iter().zip(offsets).for_each(|(stage, offset)| stage.set(offset));
    }

    /// Samples once a second, up to this time.
    fn sampled(standstill: &mut Standstill, progress: &Progress, now: Instant) -> usize {
        while let Some(at) = standstill.sampled_at.map(|at| at + Duration::from_secs(1))
            && at < now
        {
            standstill.sample(progress, at);
        }
        standstill.sample(progress, now).len()
    }

    #[test]
    fn a_process_that_stood_still_itself_blames_nobody() {
        let (progress, start) = (Progress::new(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let mut standstill = Standstill::default();
        shard(&progress, [90, 90, 90, 90, 80]);
        assert_eq!(standstill.sample(&progress, at(0)), []);
        assert_eq!(standstill.sample(&progress, at(9 * STILL_MS)), []);
        assert_eq!(sampled(&mut standstill, &progress, at(10 * STILL_MS - 1)), 0);
        assert_eq!(sampled(&mut standstill, &progress, at(10 * STILL_MS)), 1);
    }

    #[test]
    fn a_partition_stands_still_once_nothing_has_moved_for_a_while_and_there_is_something_to_do() {
        let (progress, start) = (Progress::new(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let mut standstill = Standstill::default();
        shard(&progress, [90, 90, 90, 90, 80]);
        assert_eq!(sampled(&mut standstill, &progress, at(0)), 0);
        assert_eq!(sampled(&mut standstill, &progress, at(STILL_MS - 1)), 0);
        assert_eq!(sampled(&mut standstill, &progress, at(STILL_MS)), 1);
        // Any stage that moves is a sign of life.
        shard(&progress, [91, 90, 90, 90, 80]);
        assert_eq!(sampled(&mut standstill, &progress, at(STILL_MS + 1)), 0);
        assert_eq!(sampled(&mut standstill, &progress, at(2 * STILL_MS + 1)), 1);
        // A shard that has applied everything has no reason to move.
        shard(&progress, [100; 5]);
        assert_eq!(sampled(&mut standstill, &progress, at(2 * STILL_MS + 2)), 0);
        assert_eq!(sampled(&mut standstill, &progress, at(9 * STILL_MS)), 0);
    }

    #[test]
    fn a_partition_whose_end_nobody_tells_stands_still_too() {
        let (progress, start) = (Progress::new(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let mut standstill = Standstill::default();
        shard(&progress, [100; 5]);
        assert_eq!(sampled(&mut standstill, &progress, at(0)), 0);
        assert_eq!(sampled(&mut standstill, &progress, at(STILL_MS)), 0);
        progress.shard(3).high_watermark.set(-1);
        assert_eq!(sampled(&mut standstill, &progress, at(2 * STILL_MS - 1)), 0);
        assert_eq!(sampled(&mut standstill, &progress, at(2 * STILL_MS)), 1);
        let still = standstill.sample(&progress, at(2 * STILL_MS));
        assert!(matches!(still[..], [StillShard { partition: 3, .. }]), "{still:?}");
        assert!(still[0].waits_for.contains("no broker says"), "{still:?}");
        progress.shard(3).high_watermark.set(100);
        assert_eq!(sampled(&mut standstill, &progress, at(2 * STILL_MS)), 0);
    }

    #[test]
    fn another_ownership_begins_to_count_from_its_start() {
        let (progress, start) = (Progress::new(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let mut standstill = Standstill::default();
        shard(&progress, [90, 90, 90, 90, 80]);
        sampled(&mut standstill, &progress, at(0));
        progress.shard(3).ownership_id.set(2);
        assert_eq!(sampled(&mut standstill, &progress, at(STILL_MS)), 0);
        assert_eq!(sampled(&mut standstill, &progress, at(2 * STILL_MS)), 1);
        progress.shard(3).ownership_id.set(0);
        assert_eq!(
            sampled(&mut standstill, &progress, at(2 * STILL_MS)),
            0,
            "it is somebody else's"
        );
    }

    #[test]
    fn the_stage_that_holds_the_next_record_is_what_it_waits_for() {
        let progress = Progress::new();
        for (offsets, word) in [
            ([90, 90, 90, 90, 80], "acknowledge"),
            ([90, 90, 90, 80, 80], "buffer"),
            ([90, 90, 80, 80, 80], "applied"),
            ([90, 80, 80, 80, 80], "decoded"),
            ([90; 5], "fetched"),
        ] {
            shard(&progress, offsets);
            assert!(waits_for(progress.shard(3)).contains(word), "{offsets:?}");
        }
    }
}
