//! Detects stalled partitions: those without progress although their log has grown, or may have.

use crate::telemetry::progress::{Count, Progress, ShardProgress};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Milliseconds without progress after which a partition counts as stalled, if it has records to
/// process or may have some.
const STILL_MS: u64 = 10_000;

/// Milliseconds between two samples above which this process was suspended itself, and cannot judge
/// others: samples are taken every second or two.
const SAMPLE_MS_MAX: u64 = 5_000;

/// A stalled shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StillShard {
    /// Its partition.
    pub partition: i32,
    /// The thing that it waits for and, after a colon, where to look or what to do.
    pub waits_for: &'static str,
}

/// A shard's state when it last made progress.
#[derive(Debug)]
struct LastMove {
    ownership_id: u32,
    offsets: [i64; 5],
    /// When any stage made progress, or there was nothing to do.
    at: Instant,
    /// When an acknowledgement advanced the shard, or no frame or dead letter waited for one. The
    /// earlier stages continue while there is room: one record per second, such as a tick, would
    /// hide that nothing is stored. Dead letters precede all frames that cover their records.
    acked_at: Instant,
    is_still: bool,
    fetch: Throttled,
    frames: Throttled,
}

/// Throttling by brokers because of a quota.
#[derive(Debug)]
struct Throttled {
    /// Total milliseconds.
    ms: u64,
    /// When the last throttle ends, if it began after the shard was first seen.
    until: Option<Instant>,
}

/// Detects stalled shards from samples of their progress.
#[derive(Debug, Default)]
pub(crate) struct Standstill {
    shards: BTreeMap<i32, LastMove>,
    sampled_at: Option<Instant>,
}

impl Standstill {
    /// Samples all owned shards, and returns the stalled ones. Logs a line when a shard stalls or
    /// recovers.
    pub(crate) fn sample(&mut self, progress: &Progress, now: Instant) -> Vec<StillShard> {
        let mut before = std::mem::take(&mut self.shards);
        let pause = now.saturating_duration_since(self.sampled_at.replace(now).unwrap_or(now));
        if pause >= Duration::from_millis(SAMPLE_MS_MAX) {
            before.values_mut().for_each(|seen| {
                seen.at += pause;
                seen.acked_at += pause;
            });
        }
        let mut still = Vec::new();
        for (partition, shard) in progress.owned() {
            let ownership_id = shard.ownership_id.get();
            let seen = before.remove(&partition).filter(|seen| seen.ownership_id == ownership_id);
            let mut seen = seen.unwrap_or_else(|| LastMove::new(shard, now));
            seen.fetch.count(shard.fetch_throttled_ms.get(), now);
            seen.frames.count(shard.frames_throttled_ms.get(), now);
            seen.note(shard, now);
            let is_still = seen.stands(now) >= Duration::from_millis(STILL_MS);
            match (std::mem::replace(&mut seen.is_still, is_still), is_still) {
                (true, false) => tracing::warn!(partition, "the partition moves again"),
                (false, true) => {
                    let (lag, waits_for) = (shard.lag(), seen.waits_for(shard, now));
                    tracing::error!(
                        partition,
                        lag,
                        "the partition stands still: {waits_for} (docs/RUNBOOKS.md#stands-still)"
                    );
                }
                _ => {}
            }
            if is_still {
                still.push(StillShard { partition, waits_for: seen.waits_for(shard, now) });
            }
            shard.still.set(u64::from(seen.is_still));
            self.shards.insert(partition, seen);
        }
        still
    }
}

/// The offsets of the stages, in the order of the event path.
fn offsets(shard: &ShardProgress) -> [i64; 5] {
    let ShardProgress { fetched, decoded, applied, published, acked, .. } = shard;
    [fetched.get(), decoded.get(), applied.get(), published.get(), acked.get()]
}

/// Returns whether nothing is left to do. A shard that follows another owner goes as far as that
/// owner's output, and its owner may be who stands still.
fn has_nothing(shard: &ShardProgress) -> bool {
    match shard.is_played() {
        true => shard.lag() == Some(0),
        false => shard.acked.get() <= shard.applied.get(),
    }
}

impl LastMove {
    fn new(shard: &ShardProgress, now: Instant) -> LastMove {
        let throttled = |ms: &Count| Throttled { ms: ms.get(), until: None };
        LastMove {
            ownership_id: shard.ownership_id.get(),
            offsets: offsets(shard),
            at: now,
            acked_at: now,
            is_still: false,
            fetch: throttled(&shard.fetch_throttled_ms),
            frames: throttled(&shard.frames_throttled_ms),
        }
    }

    /// Processes a sample of the shard.
    fn note(&mut self, shard: &ShardProgress, now: Instant) {
        let before = std::mem::replace(&mut self.offsets, offsets(shard));
        let ([.., acked_before], [.., published, acked]) = (before, self.offsets);
        let has_nothing = has_nothing(shard);
        if before != self.offsets || has_nothing {
            self.at = now;
        }
        let has_stored_all = acked >= published && shard.sent.get() == shard.settled.get();
        if acked != acked_before || has_stored_all || has_nothing {
            self.acked_at = now;
        }
    }

    /// Returns how long it has been stalled.
    fn stands(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.at.min(self.acked_at))
    }

    /// Returns what the last record that moved is waiting for.
    fn waits_for(&self, shard: &ShardProgress, now: Instant) -> &'static str {
        let [fetched, decoded, applied, published, acked] = offsets(shard);
        // A shard sends nothing more while its whole quota is in flight.
        let is_owner = shard.is_played();
        let is_on_its_way =
            is_owner && (shard.sent.get() > shard.settled.get() || acked < published);
        let is_held_back = is_owner && published < applied;
        if (is_on_its_way || is_held_back) && self.frames.is_under_way(now) {
            "a broker of the output topic throttles huntd: raise this client's quotas, such as \
             producer_byte_rate"
        } else if is_on_its_way {
            "brokers do not acknowledge what was sent: see those of the output and dead-letter \
             topics"
        } else if is_held_back {
            "updates are made, and frames are not sent: other shards fill the publisher's buffer"
        } else if applied < decoded {
            "events are decoded and not applied"
        } else if decoded < fetched {
            "records are fetched and not decoded"
        } else if self.fetch.is_under_way(now) {
            "a broker of the input topic throttles huntd: raise this client's quotas, such as \
             consumer_byte_rate"
        } else if shard.lag().is_none() {
            "no broker reports the end of its log: see huntd_fetch_errors_total, and the input's \
             leader"
        } else if shard.high_watermark.get() <= fetched {
            "its broker lacks what other brokers have: see whether the input's leader is cut off \
             from them"
        } else {
            "no record is fetched: see huntd_fetch_errors_total, the input's leader, and \
             transactions that were left open"
        }
    }
}

impl Throttled {
    fn count(&mut self, ms: u64, now: Instant) {
        let more = ms - std::mem::replace(&mut self.ms, ms);
        if more > 0 {
            self.until = Some(now + Duration::from_millis(more));
        }
    }

    fn is_under_way(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shard with 100 records in its log and this progress.
    fn shard(progress: &Progress, offsets: [i64; 5]) {
        let shard = progress.shard(3);
        shard.ownership_id.set(1);
        shard.high_watermark.set(100);
        let ShardProgress { fetched, decoded, applied, published, acked, .. } = shard;
        let stages = [fetched, decoded, applied, published, acked];
        stages.into_iter().zip(offsets).for_each(|(stage, offset)| stage.set(offset));
    }

    /// Samples once per second up to this time. Returns the number of stalled shards.
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
        // Progress of any stage counts.
        shard(&progress, [91, 90, 90, 90, 90]);
        assert_eq!(sampled(&mut standstill, &progress, at(STILL_MS + 1)), 0);
        assert_eq!(sampled(&mut standstill, &progress, at(2 * STILL_MS + 1)), 1);
        // A shard that has applied everything need not advance.
        shard(&progress, [100; 5]);
        assert_eq!(sampled(&mut standstill, &progress, at(2 * STILL_MS + 2)), 0);
        assert_eq!(sampled(&mut standstill, &progress, at(9 * STILL_MS)), 0);
    }

    #[test]
    fn a_partition_whose_frames_nobody_acknowledges_stands_still_although_records_come_in() {
        let (progress, start) = (Progress::new(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let mut standstill = Standstill::default();
        for second in 0..20 {
            // One record per second; acknowledgements stop and resume.
            let came = 50 + second;
            let acked = if (5..18).contains(&second) { 54 } else { came };
            shard(&progress, [came, came, came, came, acked]);
            let still = standstill.sample(&progress, at(1_000 * second as u64));
            assert_eq!(!still.is_empty(), (14..18).contains(&second), "{second} s: {still:?}");
            assert!(still.iter().all(|still| still.waits_for.contains("acknowledge")));
        }
    }

    #[test]
    fn a_partition_whose_dead_letters_keep_its_frames_back_stands_still_although_some_are_stored() {
        let (progress, start) = (Progress::new(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let mut standstill = Standstill::default();
        for second in 0..20 {
            // One dead letter is stored per second, and the next reject takes its place.
            shard(&progress, [90, 90, 50 + second, 40, 40]);
            progress.shard(3).sent.set(8 + second as u64);
            progress.shard(3).settled.set(second as u64);
            let still = standstill.sample(&progress, at(1_000 * second as u64));
            assert_eq!(!still.is_empty(), second >= 10, "{second} s: {still:?}");
            assert!(still.iter().all(|still| still.waits_for.contains("dead-letter topics")));
        }
    }

    #[test]
    fn a_copy_stands_still_only_before_the_end_of_its_owners_output() {
        let (progress, start) = (Progress::new(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        progress.shard(3).following.set(1);
        let mut standstill = Standstill::default();
        shard(&progress, [90, 90, 80, 40, 80]);
        assert_eq!(sampled(&mut standstill, &progress, at(9 * STILL_MS)), 0, "its owner halts");
        shard(&progress, [90, 90, 80, 40, 85]);
        assert_eq!(sampled(&mut standstill, &progress, at(20 * STILL_MS)), 1);
        let still = standstill.sample(&progress, at(20 * STILL_MS + 1));
        assert_eq!(still[0].waits_for, "events are decoded and not applied");
    }

    #[test]
    fn a_replay_of_what_is_published_moves_although_nothing_is_acknowledged() {
        let (progress, start) = (Progress::new(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let mut standstill = Standstill::default();
        for second in 0..30 {
            shard(&progress, [second, second, second, 0, 80]);
            assert_eq!(standstill.sample(&progress, at(1_000 * second as u64)), []);
        }
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
        assert!(still[0].waits_for.contains("no broker reports"), "{still:?}");
        progress.shard(3).high_watermark.set(100);
        assert_eq!(sampled(&mut standstill, &progress, at(2 * STILL_MS)), 0);
    }

    /// It is cut off from the others, and regards itself as the leader.
    #[test]
    fn a_partition_whose_broker_does_not_know_of_the_records_that_others_have_stands_still() {
        let (progress, start) = (Progress::new(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let mut standstill = Standstill::default();
        shard(&progress, [100; 5]);
        progress.shard(3).end_elsewhere.set(100);
        assert_eq!(sampled(&mut standstill, &progress, at(0)), 0);
        assert_eq!(sampled(&mut standstill, &progress, at(2 * STILL_MS)), 0);
        progress.shard(3).end_elsewhere.set(101);
        assert_eq!(sampled(&mut standstill, &progress, at(4 * STILL_MS)), 1);
        assert_eq!(progress.shard(3).lag(), Some(1));
        let waits_for = standstill.sample(&progress, at(4 * STILL_MS))[0].waits_for;
        assert!(waits_for.contains("cut off"), "{waits_for}");
        progress.shard(3).high_watermark.set(101);
        shard(&progress, [101; 5]);
        assert_eq!(sampled(&mut standstill, &progress, at(4 * STILL_MS)), 0);
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
        let (progress, now) = (Progress::new(), Instant::now());
        for (offsets, word) in [
            ([90, 90, 90, 90, 80], "acknowledge"),
            ([90, 90, 90, 80, 80], "buffer"),
            ([90, 90, 80, 80, 80], "applied"),
            ([90, 80, 80, 80, 80], "decoded"),
            ([90; 5], "fetched"),
        ] {
            shard(&progress, offsets);
            let seen = LastMove::new(progress.shard(3), now);
            let waits_for = seen.waits_for(progress.shard(3), now);
            assert!(waits_for.contains(word), "{offsets:?}");
        }
    }

    #[test]
    fn a_shard_waits_for_a_quota_as_long_as_the_throttle_that_holds_its_next_record() {
        let (progress, start) = (Progress::new(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let ShardProgress { fetch_throttled_ms, frames_throttled_ms, .. } = progress.shard(3);
        // Throttling before the first sample does not count.
        [fetch_throttled_ms, frames_throttled_ms].iter().for_each(|ms| ms.set(1 << 40));
        for (offsets, throttled_ms, word) in [
            ([90, 90, 90, 90, 80], frames_throttled_ms, "producer_byte_rate"),
            ([90, 90, 90, 80, 80], frames_throttled_ms, "producer_byte_rate"),
            ([90, 90, 80, 80, 80], frames_throttled_ms, "applied"),
            ([90; 5], frames_throttled_ms, "fetched"),
            ([90, 90, 90, 90, 80], fetch_throttled_ms, "acknowledge"),
            ([90, 80, 80, 80, 80], fetch_throttled_ms, "decoded"),
            ([90; 5], fetch_throttled_ms, "consumer_byte_rate"),
        ] {
            let mut standstill = Standstill::default();
            shard(&progress, offsets);
            assert_eq!(standstill.sample(&progress, at(0)), []);
            throttled_ms.add(2 * STILL_MS);
            let waits_for = |standstill: &mut Standstill, ms| {
                sampled(standstill, &progress, at(ms));
                standstill.sample(&progress, at(ms))[0].waits_for
            };
            assert!(waits_for(&mut standstill, 2 * STILL_MS).contains(word), "{offsets:?}");
            let after = waits_for(&mut standstill, 2 * STILL_MS + 1_000);
            assert!(!after.contains("quota"), "{offsets:?}: {after}");
        }
    }
}
