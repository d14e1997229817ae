//! What the output must hold: the same records run through decoder and engine in this process.

use crate::daemon::{Huntd, Topics};
use crate::kafka::Cluster;
use huntd::decoder::{Decoder, RecordPosition};
use huntd::hunt::event::{Action, EVENTS};
use huntd::hunt::frames::decode_frame;
use huntd::hunt::rules::rulebook::Rulebook;
use huntd::hunt::rules_file;
use huntd::hunt::{Outcome, Shard};
use huntd::kit::update::{Update, Updates};
use huntd::output::frame::{Chain, FrameKind};
use huntd::output::reader::{Reader, Verdict};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};
use std::time::Duration;

/// One partition's story, as it must be or as a reader of the output has it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Story {
    /// All updates in order.
    pub updates: Vec<Update>,
    /// The chain over them.
    pub chain: u64,
    /// Input offset that is accounted for.
    pub next_offset: i64,
}

/// Counts of one partition's replay.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub applied: u64,
    pub refused: u64,
    pub no_ops: u64,
    pub rejects: u64,
    pub digest: u64,
}

/// Replays one input partition.
pub fn replay(cluster: &Cluster, topics: &Topics, partition: i32) -> (Story, Counts) {
    replay_without(cluster, topics, partition, &[])
}

/// The replay of a partition, without the records at these offsets.
pub fn replay_without(
    cluster: &Cluster,
    topics: &Topics,
    partition: i32,
    skips: &[i64],
) -> (Story, Counts) {
    replay_by(cluster, topics, partition, skips, &Rulebook::of(rules_file::built_in()))
}

/// The replay of a partition by these rules, without the records at these offsets.
pub fn replay_by(
    cluster: &Cluster,
    topics: &Topics,
    partition: i32,
    skips: &[i64],
    rulebook: &Rulebook,
) -> (Story, Counts) {
    let mut decoder = Decoder::new(&EVENTS);
    let mut shard = Shard::new(partition as u16, rulebook);
    let mut updates = Updates::new();
    let (mut story, mut counts) = (Story::default(), Counts::default());
    for record in cluster.client().consume(&topics.input, partition) {
        let time_ms = record.timestamp().to_millis().expect("records have times");
        story.next_offset = record.offset() + 1;
        let origin = RecordPosition { offset: record.offset(), time_ms };
        if skips.contains(&record.offset()) {
            counts.rejects += 1;
            continue;
        }
        let Ok(event) = decoder.decode::<Action>(origin, record.payload()) else {
            counts.rejects += 1;
            continue;
        };
        match shard.apply(&event, &mut updates) {
            Outcome::Applied => counts.applied += 1,
            Outcome::Refused(_) => counts.refused += 1,
            Outcome::NoOp => counts.no_ops += 1,
            Outcome::RulesMissing { ruleset } => panic!("no rules are {ruleset}"),
        }
        story.updates.extend_from_slice(updates.as_slice());
        updates.clear();
    }
    counts.digest = shard.digest();
    let chained = |chain: Chain, update: &Update| chain.with(update);
    story.chain = story.updates.iter().fold(Chain::default(), chained).0;
    (story, counts)
}

/// Reads one output partition by the reader rule. Every raw record must be accepted whole: nothing
/// twice, no gaps.
pub fn read(cluster: &Cluster, topics: &Topics, partition: i32) -> Story {
    let mut reader = Reader::new();
    let mut story = Story::default();
    for record in cluster.client().consume(&topics.output, partition) {
        let payload = record.payload().expect("frames have a value");
        let (header, updates) = decode_frame(payload).expect("frames can be read");
        reader.fold(&header, &updates);
        let position = reader.position();
        if header.kind == FrameKind::Updates {
            assert_eq!(header.first_update, story.updates.len() as u64, "twice or a gap");
            story.updates.extend_from_slice(&updates);
            assert_eq!(position.next_update, story.updates.len() as u64);
        }
        story.next_offset = position.next_offset.max(0);
        story.chain = position.chain.0;
    }
    story
}

/// A reader of the whole output that follows it as it grows.
pub struct Follower {
    consumer: BaseConsumer,
    readers: Vec<Reader>,
    stories: Vec<Story>,
}

impl Follower {
    /// A reader at the start of each output partition.
    pub fn new(cluster: &Cluster, topics: &Topics) -> Follower {
        let consumer: BaseConsumer = cluster
            .client()
            .impatient_config()
            .set("group.id", "huntd-tests-follow")
            .set("enable.auto.commit", "false")
            .set("isolation.level", "read_uncommitted")
            .set("fetch.wait.max.ms", "200")
            .create()
            .expect("the configuration is valid");
        let mut list = TopicPartitionList::new();
        for partition in 0..topics.partitions {
            list.add_partition_offset(&topics.output, partition, Offset::Beginning)
                .expect("the offset is valid");
        }
        consumer.assign(&list).expect("the assignment is valid");
        let readers = (0..topics.partitions).map(|_| Reader::new()).collect();
        let stories = (0..topics.partitions).map(|_| Story::default()).collect();
        Follower { consumer, readers, stories }
    }

    /// Folds what has arrived, waiting a little for it.
    pub fn follow(&mut self) {
        let mut wait = Duration::from_millis(50);
        while let Some(polled) = self.consumer.poll(wait) {
            wait = Duration::ZERO;
            // Brokers come and go in these tests; the client goes on by itself.
            let Ok(record) = polled else { continue };
            let payload = record.payload().expect("frames have a value");
            let (header, updates) = decode_frame(payload).expect("frames can be read");
            let place = record.partition() as usize;
            let (reader, story) = (&mut self.readers[place], &mut self.stories[place]);
            match reader.fold(&header, &updates) {
                Verdict::Accepted { from } => story.updates.extend_from_slice(&updates[from..]),
                Verdict::Gap { missing } => panic!("{missing} updates miss in partition {place}"),
                Verdict::Halt => panic!("the chain of partition {place} is broken"),
                _ => {}
            }
            story.next_offset = reader.position().next_offset.max(0);
            story.chain = reader.position().chain.0;
        }
    }

    /// Whether these partitions are accounted for up to these offsets.
    pub fn covers(&mut self, ends: &[(usize, i64)]) -> bool {
        self.follow();
        ends.iter().all(|(place, end)| self.stories[*place].next_offset >= *end)
    }

    /// Input offset that is accounted for.
    pub fn next_offset(&self, partition: usize) -> i64 {
        self.stories[partition].next_offset
    }

    /// The epoch of each partition's owner.
    pub fn epochs(&self) -> Vec<u64> {
        self.readers.iter().map(|reader| reader.position().owner_epoch).collect()
    }

    /// The output's history so far, partition by partition.
    pub fn stories(&self) -> &[Story] {
        &self.stories
    }

    /// The output's history at the end, partition by partition.
    pub fn into_stories(self) -> Vec<Story> {
        self.stories
    }
}

/// Waits until the output covers all of the input.
pub fn wait_until_covered(
    cluster: &Cluster,
    topics: &Topics,
    follower: &mut Follower,
    huntd: &mut Huntd,
) {
    let ends: Vec<(usize, i64)> =
        (0..).zip(cluster.client().ends(&topics.input, topics.partitions)).collect();
    huntd.wait_until("the output covers the input", |_| follower.covers(&ends));
}

/// Compares the output with the beginning of a replay of an input that has gone on.
pub fn assert_begins_the_replay(cluster: &Cluster, topics: &Topics, follower: Follower) {
    for (partition, story) in (0..).zip(follower.into_stories()) {
        let (replayed, _) = replay(cluster, topics, partition);
        assert!(!story.updates.is_empty(), "partition {partition} has no updates");
        assert!(replayed.updates.starts_with(&story.updates), "partition {partition} differs");
    }
}

/// Compares the output with a replay of the input.
pub fn assert_is_the_replay(cluster: &Cluster, topics: &Topics, follower: Follower) {
    for (partition, story) in (0..).zip(follower.into_stories()) {
        let (replayed, _) = replay(cluster, topics, partition);
        assert!(!story.updates.is_empty(), "partition {partition} has no updates");
        assert_eq!(story.updates.len(), replayed.updates.len(), "partition {partition}");
        assert!(story == replayed, "partition {partition} differs from its replay");
    }
}

/// The digest that the daemon's log gives for a partition that it released.
pub fn logged_digest(log: &str, partition: i32) -> u64 {
    let released = log
        .lines()
        .rfind(|line| {
            line.contains("\"message\":\"released\"")
                && line.contains(&format!("\"partition\":{partition},"))
        })
        .unwrap_or_else(|| panic!("partition {partition} is not released in:\n{log}"));
    let (_, rest) = released.split_once("\"digest\":\"").expect("a released shard has a digest");
    u64::from_str_radix(&rest[..16], 16).expect("a digest is hexadecimal")
}
