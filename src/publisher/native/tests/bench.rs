//! Lanes, and brokers that answer what a test wants.

use crate::kafka::error_code::ErrorCode;
use crate::kafka::message::{Broker, Metadata, PartitionLeader, Versions};
use crate::kafka::wire::{WireReader, WireWriter};
use crate::output::frame::Compression;
use crate::publisher::native::lanes::{LaneOptions, Lanes};
use crate::publisher::producer::SendFailure;
use std::time::{Duration, Instant};

pub(super) const TOPIC: &str = "updates";
pub(super) const VERSIONS: Versions =
    Versions { fetch: 13, produce: 9, init_producer_id: 0, tells_settings: false };

/// The answer to the question for a producer id with this correlation id.
pub(super) fn naming(correlation_id: i32, error: i16, producer_id: i64) -> Vec<u8> {
    let mut answer = Vec::new();
    let mut writer = WireWriter::new(&mut answer);
    writer.i32(correlation_id);
    writer.i32(0);
    writer.i16(error);
    writer.i64(producer_id);
    writer.i16(0);
    answer
}

/// The answer to a request: each partition with its error and offset.
pub(super) fn produced(correlation_id: i32, parts: &[(i32, i16, i64)]) -> Vec<u8> {
    let mut answer = Vec::new();
    let mut writer = WireWriter::new(&mut answer);
    writer.i32(correlation_id);
    writer.no_tagged_fields();
    writer.array(1, true);
    writer.string(TOPIC, true);
    writer.array(parts.len(), true);
    for (partition, error, offset) in parts {
        writer.i32(*partition);
        writer.i16(*error);
        writer.i64(*offset);
        let (append_time_ms, log_start_offset) = (-1, 0);
        [append_time_ms, log_start_offset].into_iter().for_each(|field| writer.i64(field));
        writer.array(0, true);
        writer.null_string(true);
        writer.no_tagged_fields();
    }
    writer.no_tagged_fields();
    writer.i32(0);
    writer.no_tagged_fields();
    answer
}

/// Lanes, and the time.
pub(super) struct Bench {
    pub(super) lanes: Lanes<u32>,
    pub(super) now: Instant,
    epoch: i32,
}

/// A request, taken apart.
pub(super) struct Sent {
    pub(super) id: i32,
    pub(super) batches: Vec<(i32, Vec<u8>)>,
}

impl Sent {
    /// Partition, producer id, epoch, sequence and records of each batch.
    pub(super) fn heads(&self) -> Vec<(i32, i64, i16, i32, i32)> {
        let head = |(partition, batch): &(i32, Vec<u8>)| {
            let reader = |at| WireReader::resume(batch, at);
            let (id, epoch) = (reader(43).i64().unwrap(), reader(51).i16().unwrap());
            (*partition, id, epoch, reader(53).i32().unwrap(), reader(57).i32().unwrap())
        };
        self.batches.iter().map(head).collect()
    }
}

impl Bench {
    /// Lanes that know their leaders, and have a producer id if there is one.
    pub(super) fn new(leaders: &[i32], producer: Option<i64>) -> Bench {
        let options = LaneOptions {
            client_id: "huntd".to_owned(),
            topic: TOPIC.to_owned(),
            compression: Compression::None,
        };
        let mut bench = Bench { lanes: Lanes::new(options), now: Instant::now(), epoch: 0 };
        bench.lead(leaders);
        if let Some(id) = producer {
            bench.push(0, 0);
            let node_id = leaders[0];
            bench.name(node_id, 0, id);
            let sent = bench.request(node_id).expect("a batch");
            bench.answer(node_id, sent.id, &[(0, 0, 0)]).unwrap();
            assert_eq!(bench.deliveries(), [(0, Ok(0))]);
        }
        bench
    }

    /// Partition by partition, who leads.
    pub(super) fn lead(&mut self, leaders: &[i32]) {
        let broker = |node_id| Broker { node_id, host: format!("kafka{node_id}"), port: 9092 };
        self.epoch += 1;
        let leader = |(partition, node_id): (i32, &i32)| PartitionLeader {
            partition,
            leader: Some(*node_id),
            leader_epoch: self.epoch,
            error: ErrorCode::NONE,
        };
        let metadata = Metadata {
            brokers: vec![broker(1), broker(2)],
            cluster_id: None,
            controller: None,
            error: ErrorCode::NONE,
            topic_id: 7,
            partitions: (0..).zip(leaders).map(leader).collect(),
            replicas: 1,
        };
        self.lanes.learn(&metadata, None, self.now);
    }

    pub(super) fn push(&mut self, partition: i32, receipt: u32) {
        self.lanes.push(partition, &receipt.to_be_bytes(), receipt);
    }

    pub(super) fn write(&mut self, node_id: i32) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let is_there = self.lanes.next_request(node_id, VERSIONS, (self.now, 1_000), &mut bytes);
        is_there.then_some(bytes)
    }

    pub(super) fn request(&mut self, node_id: i32) -> Option<Sent> {
        let bytes = self.write(node_id)?;
        let mut reader = WireReader::new(&bytes);
        assert_eq!(reader.i32().unwrap() as usize, bytes.len() - 4);
        assert_eq!((reader.i16().unwrap(), reader.i16().unwrap()), (0, 9), "Produce, version 9");
        let id = reader.i32().unwrap();
        assert_eq!(reader.string(false).unwrap(), "huntd");
        reader.skip_tagged_fields().unwrap();
        assert_eq!(reader.nullable_string(true).unwrap(), None);
        let _acks_and_timeout = reader.skip(6).unwrap();
        assert_eq!((reader.array(true).unwrap(), reader.string(true).unwrap()), (1, TOPIC));
        let batches = (0..reader.array(true).unwrap()).map(|_| {
            let partition = reader.i32().unwrap();
            let batch = reader.nullable_bytes(true).unwrap().expect("a batch");
            reader.skip_tagged_fields().unwrap();
            (partition, bytes[batch].to_vec())
        });
        let batches = batches.collect();
        Some(Sent { id, batches })
    }

    /// Answers the question for a producer id.
    pub(super) fn name(&mut self, node_id: i32, error: i16, id: i64) {
        let bytes = self.write(node_id).expect("a question");
        let mut reader = WireReader::resume(&bytes, 4);
        assert_eq!(reader.i16().unwrap(), 22, "InitProducerId");
        let answer = naming(WireReader::resume(&bytes, 8).i32().unwrap(), error, id);
        self.lanes.answered(node_id, &answer, self.now).expect("it is whole");
    }

    /// Answers a request: each partition with its error and offset.
    pub(super) fn answer(
        &mut self,
        node_id: i32,
        id: i32,
        parts: &[(i32, i16, i64)],
    ) -> Result<(), String> {
        let read = self.lanes.answered(node_id, &produced(id, parts), self.now);
        read.map(|throttle_ms| assert_eq!(throttle_ms, 0)).map_err(|error| error.to_string())
    }

    /// What the lanes report, by receipt: an offset, or a failure.
    pub(super) fn deliveries(&mut self) -> Vec<(u32, Result<i64, SendFailure>)> {
        let next = || self.lanes.next_delivery();
        let deliveries = std::iter::from_fn(next).map(|delivery| {
            let result = delivery.failure.map_or(Ok(delivery.offset), Err);
            (delivery.receipt, result)
        });
        deliveries.collect()
    }

    /// Receipts of what has failed, and whether that is final.
    pub(super) fn failed(&mut self) -> Vec<(u32, bool)> {
        let deliveries = self.deliveries().into_iter();
        deliveries
            .map(|(receipt, result)| (receipt, result.expect_err("it failed").is_too_large))
            .collect()
    }

    pub(super) fn wait(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }
}
