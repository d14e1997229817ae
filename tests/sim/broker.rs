//! The brokers: what their logs hold, who leads, and what they answer to a Fetch.
//!
//! Input logs are record batches in Kafka's own form. Output and dead-letter logs are what
//! producers have appended, record by record.

use crate::appends::Appends;
use crate::chance::{Chance, Fault};
use crate::cut_off::CutOff;
use crate::game::Record;
use crate::mutation::Mutation;
use crate::recreation::InputTopic;
use huntd::snapshot::format::Header;
use huntd::testing::batch_builder::{BatchPlan, Owned, PACKINGS, Packing};
use std::collections::BTreeMap;
use std::ops::Range;

/// The number of brokers; their ids are 1, 2 and 3. Two can be cut off together.
pub(crate) const BROKERS: i32 = 3;

/// A batch as it is stored.
#[derive(Clone)]
pub(crate) struct Batch {
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) bytes: Vec<u8>,
}

/// A transaction that was aborted.
#[derive(Clone, Copy)]
pub(crate) struct Aborted {
    pub(crate) producer_id: i64,
    pub(crate) first: i64,
    pub(crate) last: i64,
}

/// One input partition.
#[derive(Clone)]
pub(crate) struct InputLog {
    pub(crate) batches: Vec<Batch>,
    pub(crate) aborted: Vec<Aborted>,
    /// The first offset that retention has left.
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) leader: i32,
    pub(crate) leader_epoch: i32,
    /// Each leader epoch with its first offset.
    pub(crate) leader_epochs: Vec<(i32, i64)>,
    /// All records of committed batches, whatever retention has deleted since.
    pub(crate) records: BTreeMap<i64, Record>,
    /// The first offset at which a truncation has ever removed a record.
    pub(crate) truncated_to: Option<i64>,
}

/// One output partition.
#[derive(Default)]
pub(crate) struct OutputLog {
    pub(crate) records: Vec<Vec<u8>>,
    pub(crate) start: i64,
    /// The last record that no owner has written.
    pub(crate) forged: Option<i64>,
    /// When readers came further last.
    pub(crate) moved_at: u64,
}

impl OutputLog {
    pub(crate) fn append(&mut self, bytes: Vec<u8>) -> i64 {
        self.records.push(bytes);
        self.end() - 1
    }

    pub(crate) fn end(&self) -> i64 {
        self.records.len() as i64
    }
}

/// The cluster.
pub(crate) struct Broker {
    pub(crate) inputs: Vec<InputLog>,
    pub(crate) input_topic: InputTopic,
    pub(crate) outputs: Vec<OutputLog>,
    /// The dead letters' keys, in the order of the log.
    pub(crate) letters: Vec<String>,
    pub(crate) appends: Appends,
    /// The newest versions that the brokers speak.
    pub(crate) produce_version: i16,
    pub(crate) fetch_version: i16,
    pub(crate) api_versions_version: i16,
    /// How often each broker has moved to another address, by its id less one.
    pub(crate) moves: [u32; BROKERS as usize],
    /// The broker that knows of nothing new, if there is one.
    pub(crate) cut_off: Option<CutOff>,
    /// Changes whenever an input log does.
    pub(crate) changes: u64,
    /// A probe is answered at once: one that comes late shows that the log was silent, too.
    pub(crate) answers_notes_at_once: bool,
}

impl InputLog {
    pub(crate) fn new(leader: i32) -> InputLog {
        InputLog {
            batches: Vec::new(),
            aborted: Vec::new(),
            start: 0,
            end: 0,
            leader,
            leader_epoch: 0,
            leader_epochs: vec![(0, 0)],
            records: BTreeMap::new(),
            truncated_to: None,
        }
    }

    /// Appends records as one batch, sometimes behind a transaction that is aborted.
    pub(crate) fn append(&mut self, chance: &mut Chance, records: &[Record]) {
        if chance.strikes_of(Fault::Aborted, 5) {
            self.append_aborted(chance, records);
        }
        let gap = i64::from(chance.strikes_of(Fault::OffsetsSkipped, 5)) * 3;
        let owned = owned(records, self.end + gap);
        self.records.extend((self.end + gap..).zip(records.iter().cloned()));
        let mut plan = BatchPlan::new(&owned);
        plan.packing = packing(chance);
        // Compaction leaves a batch its last offset.
        plan.last_offset_delta += gap as i32 / 3;
        self.store(&plan);
    }

    fn append_aborted(&mut self, chance: &mut Chance, records: &[Record]) {
        let producer_id = 1_000 + chance.below(3) as i64;
        let first = self.end;
        let mut plan = BatchPlan::new(&owned(records, self.end));
        (plan.attributes, plan.producer_id) = (TRANSACTIONAL, producer_id);
        self.store(&plan);
        let marker = Owned {
            offset: self.end,
            timestamp_ms: records[0].time_ms,
            key: Some(vec![0, 0, 0, 0]),
            value: Some(vec![0; 6]),
        };
        self.aborted.push(Aborted { producer_id, first, last: self.end });
        let mut plan = BatchPlan::new(&[marker]);
        (plan.attributes, plan.producer_id) = (TRANSACTIONAL | CONTROL, producer_id);
        self.store(&plan);
    }

    fn store(&mut self, plan: &BatchPlan) {
        let mut bytes = plan.build();
        // The leader epoch stands outside the checksum.
        bytes[12..16].copy_from_slice(&self.leader_epoch.to_be_bytes());
        let last = plan.base_offset + i64::from(plan.last_offset_delta);
        self.batches.push(Batch { first: plan.base_offset, last, bytes });
        self.end = last + 1;
    }

    /// Another broker leads from now on.
    pub(crate) fn elect(&mut self, leader: i32) {
        self.leader = leader;
        self.leader_epoch += 1;
        self.leader_epochs.push((self.leader_epoch, self.end));
    }

    /// The cluster's metadata is restored from before the last elections, if nothing was written
    /// since: the leader epoch falls for good, and no record is lost. Returns whether it has.
    pub(crate) fn forget_elections(&mut self) -> bool {
        let end = self.end;
        let written =
            self.leader_epochs.iter().rposition(|(_, start)| *start < end).unwrap_or_default();
        // Of a log that was truncated, daemons know records of epochs that would come again.
        let falls = written + 1 < self.leader_epochs.len() && self.truncated_to.is_none();
        if falls {
            self.leader_epochs.truncate(written + 1);
            self.leader_epoch = self.leader_epochs[written].0;
        }
        falls
    }

    /// An unclean election: the new leader lacks the last batches.
    pub(crate) fn truncate(&mut self, batches: usize) {
        let mut kept = self.batches.len().saturating_sub(batches);
        // The rest of a transaction without its marker is given to nobody.
        let gone = self.batches.get(kept).map_or(self.end, |batch| batch.first);
        let torn = self.aborted.iter().find(|part| part.first < gone && gone <= part.last);
        if let Some(part) = torn {
            kept = self.batches.partition_point(|batch| batch.first < part.first);
        }
        let last = kept.checked_sub(1).map(|last| self.batches[last].last);
        self.end = last.map_or(self.start, |last| last + 1);
        self.truncated_to = Some(self.truncated_to.map_or(self.end, |to| to.min(self.end)));
        self.batches.truncate(kept);
        self.records.split_off(&self.end);
        let end = self.end;
        self.aborted.retain(|aborted| aborted.last < end);
        self.leader_epochs.iter_mut().for_each(|(_, start)| *start = (*start).min(end));
        self.elect(1 + self.leader % BROKERS);
    }

    /// Retention has deleted the batches before this offset.
    pub(crate) fn retain_from(&mut self, offset: i64) {
        let gone = self.batches.partition_point(|batch| batch.last < offset);
        self.batches.drain(..gone);
        self.start = self.batches.first().map_or(self.end, |batch| batch.first).max(self.start);
    }

    /// Where this log differs from one whose last record before an offset has this leader epoch.
    pub(crate) fn diverges(&self, leader_epoch: i32, offset: i64) -> Option<(i32, i64)> {
        Some(self.end_of_leader_epoch(leader_epoch))
            .filter(|(known, end)| *known < leader_epoch || *end < offset)
    }

    /// Where a leader epoch ends (KIP-320): the largest known one not above it, and its end.
    fn end_of_leader_epoch(&self, leader_epoch: i32) -> (i32, i64) {
        let known = self.leader_epochs.iter().rposition(|(known, _)| *known <= leader_epoch);
        let Some(known) = known else { return (-1, -1) };
        let end = self.leader_epochs.get(known + 1).map_or(self.end, |(_, start)| *start);
        (self.leader_epochs[known].0, end)
    }

    /// The stored batches with these offsets, cut off after this many bytes.
    pub(crate) fn read(&self, offsets: Range<i64>, bytes_max: usize) -> Vec<u8> {
        let from = self.batches.partition_point(|batch| batch.last < offsets.start);
        let until = self.batches.partition_point(|batch| batch.last < offsets.end);
        let mut out = Vec::new();
        for batch in &self.batches[from..until] {
            out.extend_from_slice(&batch.bytes);
            if out.len() >= bytes_max {
                // The first batch comes whole (KIP-74).
                out.truncate(bytes_max.max(self.batches[from].bytes.len()));
                break;
            }
        }
        out
    }
}

const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;

fn owned(records: &[Record], first: i64) -> Vec<Owned> {
    let with_offsets = (first..).zip(records);
    with_offsets
        .map(|(offset, record)| Owned {
            offset,
            timestamp_ms: record.time_ms,
            key: None,
            value: record.value.clone(),
        })
        .collect()
}

fn packing(chance: &mut Chance) -> Packing {
    match chance.one_in(4) {
        true => PACKINGS[chance.below(PACKINGS.len() as u64) as usize],
        false => Packing::None,
    }
}

impl Broker {
    pub(crate) fn new(chance: &mut Chance, partitions: usize, mutation: Mutation) -> Broker {
        let produce_version = chance.pick(&[9, 13]) as i16;
        let fetch_version = chance.pick(&[13, 15, 17, 18]) as i16;
        Broker {
            inputs: (0..partitions).map(|at| InputLog::new(1 + at as i32 % BROKERS)).collect(),
            input_topic: InputTopic::new(77),
            outputs: (0..partitions).map(|_| OutputLog::default()).collect(),
            letters: Vec::new(),
            appends: Appends::new(mutation),
            produce_version,
            fetch_version,
            api_versions_version: chance.pick(&[0, 3, 3, 3]) as i16,
            moves: [0; BROKERS as usize],
            cut_off: None,
            changes: 0,
            answers_notes_at_once: false,
        }
    }

    /// The name under which a broker can be reached now.
    pub(crate) fn host(&self, node_id: i32) -> String {
        format!("kafka{node_id}-{}", self.moves[node_id as usize - 1])
    }

    /// The broker that can be reached under this name now.
    pub(crate) fn node_of(&self, host: &str) -> Option<i32> {
        (1..=BROKERS).find(|node_id| self.host(*node_id) == host)
    }

    /// Both topics have one partition more.
    pub(crate) fn add_partition(&mut self) {
        let leader = 1 + self.inputs.len() as i32 % BROKERS;
        self.inputs.push(InputLog::new(leader));
        self.outputs.push(OutputLog::default());
        self.changes += 1;
    }

    /// Whether a daemon can know that the log which a snapshot has seen is another one by now: by
    /// the topic's id, or by a Fetch that goes on behind the snapshot.
    pub(crate) fn tells_another_log(&self, header: &Header) -> bool {
        if !self.is_about_this_input(header) {
            return true;
        }
        let Some(leader_epoch) = header.leader_epoch else { return false };
        let log = &self.inputs[header.partition as usize];
        log.diverges(leader_epoch, header.next_offset).is_some()
    }

    /// Appends a record that a daemon has written itself: its offset.
    pub(crate) fn append_plain(&mut self, partition: i32, record: Record) -> i64 {
        self.changes += 1;
        let log = &mut self.inputs[partition as usize];
        let plan = BatchPlan::new(&owned(std::slice::from_ref(&record), log.end));
        log.records.insert(log.end, record);
        log.store(&plan);
        log.end - 1
    }
}
