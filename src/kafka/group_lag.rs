//! What the group has not committed of each input partition, no matter who owns it.
//!
//! An owner knows its own lag better and sooner. This one is for the partitions of an owner that
//! died: every instance shows it, so that an alert sees them.

use crate::kafka::METADATA_MS_MAX;
use crate::kafka::client::{KafkaReader, partitions, reader, reader_config};
use crate::kafka::group::GroupOptions;
use crate::telemetry::progress::{Progress, SHARDS_MAX};
use rdkafka::consumer::Consumer;
use rdkafka::error::KafkaResult;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Milliseconds between two samples, as between two commits of an owner.
const GROUP_LAG_EVERY_MS: u64 = 5_000;

/// A thread that asks the brokers. Dropped, it ends.
pub struct GroupLag {
    /// Dropping it ends the thread.
    alive: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl GroupLag {
    /// Begins to write `group_lag` of `progress`. Without a thread or a client for it the lag stays
    /// unknown.
    pub fn start(options: &GroupOptions, progress: Arc<Progress>) -> GroupLag {
        let consumer = reader(&reader_config(&options.client), &options.client).ok();
        let (alive, ended) = mpsc::channel::<()>();
        let topic = options.input_topic.clone();
        let watch = move |consumer: KafkaReader| {
            let pause = Duration::from_millis(GROUP_LAG_EVERY_MS);
            loop {
                // It reads nothing: what it may ask for is a token.
                drop(consumer.poll(Duration::ZERO));
                let lags = lags(&consumer, &topic).unwrap_or_default();
                for (partition, lag) in (0..).zip(&lags) {
                    progress.shard(partition).group_lag.set(*lag);
                }
                progress.group_lag_partitions.set(lags.len() as u64);
                // Nothing is ever sent.
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

/// Records after the group's commit, for each partition in order. `None`: not all brokers answer.
fn lags(consumer: &KafkaReader, topic: &str) -> Option<Vec<i64>> {
    let wait = Duration::from_millis(METADATA_MS_MAX);
    let count = partitions(consumer, topic, wait).ok()?.min(SHARDS_MAX as i32);
    let mut list = TopicPartitionList::with_capacity(count as usize);
    list.add_partition_range(topic, 0, count - 1);
    let committed = offsets(&consumer.committed_offsets(list, wait).ok()?, topic, count);
    let listed = |place| -> KafkaResult<Vec<Option<i64>>> {
        let mut list = TopicPartitionList::with_capacity(count as usize);
        for partition in 0..count {
            list.add_partition_offset(topic, partition, place)?;
        }
        Ok(offsets(&consumer.offsets_for_times(list, wait)?, topic, count))
    };
    let ends = listed(Offset::End).ok()?;
    // What was never committed has to be read from its start.
    let starts = match committed.contains(&None) {
        true => listed(Offset::Beginning).ok()?,
        false => vec![None; committed.len()],
    };
    let lag = |((committed, start), end): ((&Option<i64>, &Option<i64>), &Option<i64>)| {
        Some((end.as_ref()? - committed.or(*start)?).max(0))
    };
    committed.iter().zip(&starts).zip(&ends).map(lag).collect()
}

/// The offsets in a list, by partition; `None` where there is none.
fn offsets(list: &TopicPartitionList, topic: &str, partitions: i32) -> Vec<Option<i64>> {
    let offset = |partition| match list.find_partition(topic, partition)?.offset() {
        Offset::Offset(offset) => Some(offset),
        _ => None,
    };
    (0..partitions).map(offset).collect()
}
