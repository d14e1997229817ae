//! The group's lag: records of each input partition that are not committed, whichever instance owns
//! it.
//!
//! An owner knows its own lag more precisely and sooner. This lag covers the partitions of an owner
//! that died: every instance exports it, so an alert sees them. It also tells an owner whose broker
//! is cut off from the cluster, through another client, how far the log has grown.
//!
//! The ends of the outputs show more: another program in the group may read and commit a partition
//! without processing it.

use crate::kafka::METADATA_MS_MAX;
use crate::kafka::client::{
    KafkaReader, committed, log_ends, offsets_at, partitions, reader, reader_config,
};
use crate::kafka::group::GroupOptions;
use crate::kafka::right::Right;
use crate::telemetry::progress::{Progress, SHARDS_MAX};
use rdkafka::topic_partition_list::Offset;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Milliseconds between two samples.
const GROUP_LAG_EVERY_MS: u64 = 2_000;

/// Milliseconds without a commit after which a partition with records counts as unread. An owner
/// commits every second. A shard of this instance counts as stalled after the same time.
const UNREAD_MS: u64 = 10_000;

/// Milliseconds without a record in the output after which a zone counts as unprocessed, even if
/// its input is committed: an owner repeats its fence every ten seconds.
const UNPLAYED_MS: u64 = 30_000;

/// Upper limit of the time between two samples that is counted. While no broker answers, no owner
/// can commit.
const SAMPLES_APART_MS_MAX: u64 = 2 * GROUP_LAG_EVERY_MS;

/// A thread that queries the brokers. It ends when this is dropped.
pub struct GroupLag {
    /// Dropping this ends the thread.
    alive: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl GroupLag {
    /// Starts updating `group_lag` in `progress`. If the thread or its client cannot be created,
    /// the lag stays unknown.
    pub fn start(options: &GroupOptions, output_topic: &str, progress: Arc<Progress>) -> GroupLag {
        let consumer = reader(&reader_config(&options.client), &options.client).ok();
        let (alive, ended) = mpsc::channel::<()>();
        let (topic, output) = (options.input_topic.clone(), output_topic.to_owned());
        let group = options.client.group.clone();
        let watch = move |consumer: KafkaReader| {
            let pause = Duration::from_millis(GROUP_LAG_EVERY_MS);
            let mut commits = Standstills::after_ms(UNREAD_MS);
            let mut outputs = Standstills::after_ms(UNPLAYED_MS);
            loop {
                // The client reads nothing; polling only lets it ask for a token.
                drop(consumer.poll(Duration::ZERO));
                let lags = lags(&consumer, &topic).unwrap_or_default();
                note(&lags, &progress);
                let is_played = |partition| progress.shard(partition).is_known_to_be_played();
                log_unread(&commits.news(&lags, is_played, Instant::now()));
                let dues = dues(&consumer, &output, lags.len() as i32).unwrap_or_default();
                log_unplayed(&outputs.news(&dues, is_played, Instant::now()), &group);
                progress.unread_partitions.set(commits.count_with(&outputs));
                // Nothing is ever sent on this channel.
                if ended.recv_timeout(pause) == Err(mpsc::RecvTimeoutError::Disconnected) {
                    return;
                }
            }
        };
        let thread = consumer.and_then(|consumer| {
            let builder = thread::Builder::new().name("group-lag".to_owned());
            builder.spawn(move || watch(consumer)).ok()
        });
        GroupLag { alive: Some(alive), thread }
    }
}

impl Drop for GroupLag {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a panic in any thread ends the process");
        }
    }
}

fn log_unread(partitions: &[i32]) {
    if !partitions.is_empty() {
        tracing::warn!(
            ?partitions,
            "nobody reads these partitions: they have records, and the group has committed nothing \
             in them for {} s; no instance owns them, or their owner is restoring them, has halted \
             them or is stalled (docs/RUNBOOKS.md#nobody-reads)",
            UNREAD_MS / 1_000
        );
    }
}

fn log_unplayed(partitions: &[i32], group: &str) {
    if !partitions.is_empty() {
        tracing::warn!(
            ?partitions,
            "nobody plays these partitions: for {} s their output has received nothing, not even a \
             fence; no instance owns them, or their owner is restoring them or has halted them, \
             or another program in the group has taken them: see `huntd zones`, list the members \
             with `kafka-consumer-groups.sh --describe --members --verbose --group {group}`, and \
             give such a program a group of its own (docs/RUNBOOKS.md#nobody-plays)",
            UNPLAYED_MS / 1_000
        );
    }
}

/// Stores a sample's lag of each partition, and marks the lag of partitions that it lacks as
/// unknown.
fn note(lags: &[Option<PartitionLag>], progress: &Progress) {
    let known_before = progress.group_lag_partitions.get() as usize;
    for place in 0..lags.len().max(known_before) {
        let lag = lags.get(place).copied().flatten();
        let shard = progress.shard(place as i32);
        shard.group_lag.set(lag.map_or(-1, PartitionLag::records));
        shard.end_elsewhere.set(lag.map_or(0, |lag| lag.end));
    }
    progress.group_lag_partitions.set(lags.len() as u64);
}

/// The unread part of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PartitionLag {
    /// The group's committed offset; without a commit, the log's start.
    offset: i64,
    /// The end of the log.
    end: i64,
}

impl PartitionLag {
    /// Number of unread records.
    fn records(self) -> i64 {
        (self.end - self.offset).max(0)
    }
}

/// How long offsets have not moved, by partition: committed offsets, or the ends of outputs.
#[derive(Debug)]
struct Standstills {
    /// Time without movement after which a partition is reported.
    patience: Duration,
    seen: BTreeMap<i32, SeenOffset>,
}

#[derive(Clone, Copy, Debug)]
struct SeenOffset {
    offset: i64,
    /// Time of its last sample.
    sampled_at: Instant,
    /// The time for which it has not moved.
    waited: Duration,
    /// True if it has not moved for too long.
    is_over: bool,
}

impl Standstills {
    fn after_ms(patience_ms: u64) -> Standstills {
        Standstills { patience: Duration::from_millis(patience_ms), seen: BTreeMap::new() }
    }

    /// Partitions that have not moved for too long.
    fn partitions(&self) -> impl Iterator<Item = i32> {
        let over = self.seen.iter().filter(|(_, seen)| seen.is_over);
        over.map(|(partition, _)| *partition)
    }

    /// Number of partitions that have not moved for too long in either set.
    fn count_with(&self, others: &Standstills) -> u64 {
        self.partitions().chain(others.partitions()).collect::<BTreeSet<_>>().len() as u64
    }

    /// Returns partitions that have now not moved for too long, without those that somebody is
    /// known to play. Each is reported once until its offset moves again. A partition that is
    /// missing from a sample is left as it was.
    fn news(
        &mut self,
        lags: &[Option<PartitionLag>],
        is_played: impl Fn(i32) -> bool,
        now: Instant,
    ) -> Vec<i32> {
        let mut news = Vec::new();
        // These are never waiting, whether or not this sample has them.
        self.seen.retain(|partition, _| !is_played(*partition));
        for (partition, lag) in (0..).zip(lags) {
            let Some(lag) = *lag else { continue };
            let (offset, records) = (lag.offset, lag.records());
            let (sampled_at, waited) = (now, Duration::ZERO);
            let moved = SeenOffset { offset, sampled_at, waited, is_over: false };
            let seen = self.seen.entry(partition).or_insert(moved);
            if seen.offset != offset || records == 0 {
                *seen = moved;
                continue;
            }
            let elapsed = now.saturating_duration_since(seen.sampled_at);
            seen.sampled_at = now;
            seen.waited += elapsed.min(Duration::from_millis(SAMPLES_APART_MS_MAX));
            if seen.waited >= self.patience && !seen.is_over {
                seen.is_over = true;
                news.push(partition);
            }
        }
        news
    }
}

/// The lag of each partition in order; `None` where its leader does not answer, or where there is
/// none. `None` for all if no broker says who leads.
fn lags(consumer: &KafkaReader, topic: &str) -> Option<Vec<Option<PartitionLag>>> {
    let wait = Duration::from_millis(METADATA_MS_MAX);
    let count = partitions(consumer, topic, Right::Read, wait).ok()?.min(SHARDS_MAX as i32);
    let committed = committed(consumer, topic, count, wait).ok()?;
    let ends = log_ends(consumer, topic, count, wait).ok()?;
    // Without a commit, a partition has to be read from its start.
    let starts = match committed.contains(&None) {
        true => offsets_at(consumer, topic, count, Offset::Beginning, wait).ok()?,
        false => vec![None; committed.len()],
    };
    let lag = |((committed, start), end): ((&Option<i64>, &Option<i64>), &Option<i64>)| {
        let offset = committed.or(*start)?;
        Some(PartitionLag { offset, end: *end.as_ref()? })
    };
    Some(committed.iter().zip(&starts).zip(&ends).map(lag).collect())
}

/// The end of each output, as the offset of the record that is due there; `None` where its leader
/// does not answer.
fn dues(consumer: &KafkaReader, output: &str, count: i32) -> Option<Vec<Option<PartitionLag>>> {
    let ends = log_ends(consumer, output, count, Duration::from_millis(METADATA_MS_MAX)).ok()?;
    let due = |offset: i64| PartitionLag { offset, end: offset + 1 };
    Some(ends.into_iter().map(|end| end.map(due)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY_OURS: fn(i32) -> bool = |_| false;

    /// Lags of partitions by their offsets and ends.
    fn lags(partitions: &[(i64, i64)]) -> Vec<Option<PartitionLag>> {
        let lag = |(offset, end)| Some(PartitionLag { offset, end });
        partitions.iter().copied().map(lag).collect()
    }

    /// Samples at intervals of [`GROUP_LAG_EVERY_MS`].
    struct Samples {
        commits: Standstills,
        now: Instant,
    }

    impl Samples {
        fn new() -> Samples {
            Samples { commits: Standstills::after_ms(UNREAD_MS), now: Instant::now() }
        }

        /// Takes the same sample this many times. Returns the partitions newly reported and the
        /// number reported in total.
        fn take(
            &mut self,
            times: usize,
            sample: &[Option<PartitionLag>],
            is_ours: impl Fn(i32) -> bool,
        ) -> (Vec<i32>, u64) {
            let mut news = Vec::new();
            for _ in 0..times {
                self.now += Duration::from_millis(GROUP_LAG_EVERY_MS);
                news.extend(self.commits.news(sample, &is_ours, self.now));
            }
            (news, self.commits.partitions().count() as u64)
        }
    }

    #[test]
    fn a_partition_that_has_records_and_no_commits_is_told_once_until_it_moves() {
        let mut samples = Samples::new();
        let mut take = |times, ends: &[(i64, i64)]| {
            samples.take(times, &lags(ends), |partition| partition == 1)
        };
        // The second partition is ours, and the third has nothing to read.
        let waiting = [(10, 20), (10, 20), (20, 20)];
        assert_eq!(take(5, &waiting), (vec![], 0), "not for long enough");
        assert_eq!(take(1, &waiting), (vec![0], 1));
        let more = [(10, 90), (10, 90), (20, 20)];
        assert_eq!(take(5, &more), (vec![], 1), "it is counted");
        // The first has moved, and the third one has records now.
        let moved = [(20, 90), (10, 90), (20, 30)];
        assert_eq!(take(4, &moved), (vec![], 0));
        assert_eq!(take(1, &moved), (vec![2], 1));
        assert_eq!(take(1, &moved), (vec![0], 2));
    }

    #[test]
    fn a_sample_that_fails_hides_no_partition_that_nobody_reads() {
        let (mut samples, both) = (Samples::new(), lags(&[(10, 20), (10, 20)]));
        assert_eq!(samples.take(6, &both, NOBODY_OURS), (vec![0, 1], 2));
        assert_eq!(samples.take(3, &[], NOBODY_OURS), (vec![], 2), "no broker answers");
        let leaderless = [None, lags(&[(20, 30)])[0]];
        assert_eq!(samples.take(3, &leaderless, NOBODY_OURS), (vec![], 1));
        let moved = lags(&[(11, 20), (20, 30)]);
        assert_eq!(samples.take(1, &moved, NOBODY_OURS), (vec![], 0));
        assert_eq!(samples.take(6, &both, NOBODY_OURS), (vec![0, 1], 2));
        assert_eq!(samples.take(1, &[], |partition| partition == 1), (vec![], 1), "it is ours");
    }

    #[test]
    fn a_partition_that_stands_still_in_two_ways_counts_once() {
        let (mut commits, mut outputs) = (Standstills::after_ms(1), Standstills::after_ms(1));
        let start = Instant::now();
        for now in [start, start + Duration::from_secs(1)] {
            commits.news(&lags(&[(10, 20), (10, 20), (20, 20)]), NOBODY_OURS, now);
            outputs.news(&lags(&[(10, 11), (10, 11), (20, 21)]), |partition| partition == 1, now);
        }
        assert_eq!(commits.count_with(&outputs), 3);
        assert_eq!(outputs.partitions().collect::<Vec<_>>(), [0, 2]);
    }

    /// The log may have become shorter in between.
    #[test]
    fn what_a_sample_does_not_know_is_unknown() {
        let progress = Progress::new();
        note(&lags(&[(10, 20), (20, 30)]), &progress);
        let exported = |partition| {
            let shard = progress.shard(partition);
            (shard.group_lag.get(), shard.end_elsewhere.get())
        };
        assert_eq!([exported(0), exported(1)], [(10, 20), (10, 30)]);
        note(&[None, lags(&[(20, 31)])[0]], &progress);
        assert_eq!([exported(0), exported(1)], [(-1, 0), (11, 31)]);
        note(&[], &progress);
        assert_eq!([exported(0), exported(1)], [(-1, 0), (-1, 0)]);
        assert_eq!(progress.group_lag_partitions.get(), 0);
    }

    /// Nobody can commit while no broker answers. But every second sample is enough.
    #[test]
    fn time_without_samples_counts_little() {
        let (mut samples, waiting) = (Samples::new(), lags(&[(10, 20)]));
        assert_eq!(samples.take(1, &waiting, NOBODY_OURS), (vec![], 0));
        samples.take(100, &[], NOBODY_OURS);
        assert_eq!(samples.take(3, &waiting, NOBODY_OURS), (vec![], 0));
        assert_eq!(samples.take(1, &waiting, NOBODY_OURS), (vec![0], 1));

        let mut samples = Samples::new();
        let counts = (0..4).map(|_| {
            samples.take(1, &[None], NOBODY_OURS);
            samples.take(1, &waiting, NOBODY_OURS).1
        });
        assert_eq!(counts.collect::<Vec<_>>(), [0, 0, 0, 1]);
    }
}
