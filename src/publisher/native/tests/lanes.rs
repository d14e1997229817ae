//! Lanes against brokers that say what a test wants: which bytes leave, and what is delivered.

use crate::kafka::error_code::ErrorCode;
use crate::kafka::message::{Broker, Metadata, PartitionLeader, Versions};
use crate::kafka::wire::{WireReader, WireWriter};
use crate::output::frame::Compression;
use crate::publisher::native::lanes::{LaneOptions, Lanes};
use crate::publisher::producer::{SendError, SendFailure};
use std::time::{Duration, Instant};

const TOPIC: &str = "updates";
const VERSIONS: Versions =
    Versions { fetch: 4, metadata: 1, produce: 3, init_producer_id: 0, tells_settings: false };
const HELD_BYTES_MAX: usize = 8 << 20;

/// Lanes, and the time.
struct Bench {
    lanes: Lanes<u32>,
    now: Instant,
    epoch: i32,
}

/// A request, taken apart.
struct Sent {
    id: i32,
    batches: Vec<(i32, Vec<u8>)>,
}

impl Sent {
    /// Partition, producer id, epoch, sequence and records of each batch.
    fn heads(&self) -> Vec<(i32, i64, i16, i32, i32)> {
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
    fn new(leaders: &[i32], producer: Option<i64>) -> Bench {
        let options = LaneOptions {
            client_id: "huntd".to_owned(),
            topic: TOPIC.to_owned(),
            compression: Compression::None,
            held_bytes_max: HELD_BYTES_MAX,
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
    fn lead(&mut self, leaders: &[i32]) {
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
        self.lanes.learn(&metadata, self.now);
    }

    fn push(&mut self, partition: i32, receipt: u32) {
        self.lanes.push(partition, &receipt.to_be_bytes(), receipt).expect("there is room");
    }

    fn write(&mut self, node_id: i32) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let is_there = self.lanes.next_request(node_id, VERSIONS, (self.now, 1_000), &mut bytes);
        is_there.then_some(bytes)
    }

    fn request(&mut self, node_id: i32) -> Option<Sent> {
        let bytes = self.write(node_id)?;
        let mut reader = WireReader::new(&bytes);
        assert_eq!(reader.i32().unwrap() as usize, bytes.len() - 4);
        assert_eq!((reader.i16().unwrap(), reader.i16().unwrap()), (0, 3), "Produce, version 3");
        let id = reader.i32().unwrap();
        assert_eq!(reader.string(false).unwrap(), "huntd");
        assert_eq!(reader.nullable_string(false).unwrap(), None);
        let _acks_and_timeout = reader.skip(6).unwrap();
        assert_eq!((reader.array(false).unwrap(), reader.string(false).unwrap()), (1, TOPIC));
        let batches = (0..reader.array(false).unwrap()).map(|_| {
            let partition = reader.i32().unwrap();
            let length = reader.i32().unwrap() as usize;
            (partition, bytes[reader.skip(length).unwrap()].to_vec())
        });
        let batches = batches.collect();
        Some(Sent { id, batches })
    }

    /// Answers the question for a producer id.
    fn name(&mut self, node_id: i32, error: i16, id: i64) {
        let bytes = self.write(node_id).expect("a question");
        let mut reader = WireReader::resume(&bytes, 4);
        assert_eq!(reader.i16().unwrap(), 22, "InitProducerId");
        let mut answer = Vec::new();
        let mut writer = WireWriter::new(&mut answer);
        writer.i32(WireReader::resume(&bytes, 8).i32().unwrap());
        writer.i32(0);
        writer.i16(error);
        writer.i64(id);
        writer.i16(0);
        self.lanes.answered(node_id, &answer, self.now).expect("it is whole");
    }

    /// Answers a request: each partition with its error and offset.
    fn answer(&mut self, node_id: i32, id: i32, parts: &[(i32, i16, i64)]) -> Result<(), String> {
        let mut answer = Vec::new();
        let mut writer = WireWriter::new(&mut answer);
        writer.i32(id);
        writer.array(1, false);
        writer.string(TOPIC, false);
        writer.array(parts.len(), false);
        for (partition, error, offset) in parts {
            writer.i32(*partition);
            writer.i16(*error);
            writer.i64(*offset);
            writer.i64(-1);
        }
        writer.i32(0);
        let read = self.lanes.answered(node_id, &answer, self.now);
        read.map(|throttle_ms| assert_eq!(throttle_ms, 0)).map_err(|error| error.to_string())
    }

    /// What the lanes report, by receipt: an offset, or a failure.
    fn deliveries(&mut self) -> Vec<(u32, Result<i64, SendFailure>)> {
        let next = || self.lanes.next_delivery();
        let deliveries = std::iter::from_fn(next).map(|delivery| {
            let result = delivery.failure.map_or(Ok(delivery.offset), Err);
            (delivery.receipt, result)
        });
        deliveries.collect()
    }

    /// Receipts of what has failed, and whether that is final.
    fn failed(&mut self) -> Vec<(u32, bool)> {
        let deliveries = self.deliveries().into_iter();
        deliveries
            .map(|(receipt, result)| (receipt, result.expect_err("it failed").is_too_large))
            .collect()
    }

    fn wait(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }
}

#[test]
fn one_request_takes_a_batch_of_every_partition_that_its_broker_leads() {
    let mut bench = Bench::new(&[1, 2, 1], Some(4711));
    for receipt in 1..=6 {
        bench.push(receipt as i32 % 3, receipt);
    }
    assert_eq!(bench.lanes.leaders().into_iter().collect::<Vec<i32>>(), [1, 2]);
    let first = bench.request(1).expect("partitions 0 and 2");
    assert_eq!(first.heads(), [(0, 4711, 0, 1, 2), (2, 4711, 0, 0, 2)]);
    assert!(bench.request(1).is_none());
    let second = bench.request(2).expect("partition 1");
    assert_eq!(second.heads(), [(1, 4711, 0, 0, 2)]);
    bench.answer(1, first.id, &[(2, 0, 70), (0, 0, 5)]).unwrap();
    bench.answer(2, second.id, &[(1, 0, 9)]).unwrap();
    let offsets = [(3, 5), (6, 6), (2, 70), (5, 71), (1, 9), (4, 10)];
    assert_eq!(bench.deliveries(), offsets.map(|(receipt, offset)| (receipt, Ok(offset))));
    assert_eq!(bench.lanes.outstanding(), 0);
}

#[test]
fn five_requests_are_under_way_and_what_waits_longer_shares_a_batch() {
    let mut bench = Bench::new(&[1], Some(4711));
    let mut sent = Vec::new();
    for receipt in 1..=8 {
        bench.push(0, receipt);
        sent.extend(bench.request(1));
    }
    assert_eq!(sent.len(), 5);
    bench.answer(1, sent[0].id, &[(0, 0, 1)]).unwrap();
    let sixth = bench.request(1).expect("there is room");
    assert_eq!(sixth.heads(), [(0, 4711, 0, 6, 3)]);
}

#[test]
fn frames_that_wait_share_batches_of_half_a_mebibyte() {
    let mut bench = Bench::new(&[1], Some(4711));
    let frame = vec![0; 200 * 1024];
    (1..=5).for_each(|receipt| assert!(bench.lanes.push(0, &frame, receipt).is_ok()));
    let records: Vec<i32> =
        std::iter::from_fn(|| bench.request(1)).map(|sent| sent.heads()[0].4).collect();
    assert_eq!(records, [2, 2, 1]);
}

#[test]
fn what_does_not_fit_into_a_request_goes_with_the_next_one_first() {
    let mut bench = Bench::new(&[1; 12], Some(4711));
    let frame = vec![0; 500 * 1024];
    (0..12).for_each(|partition| assert!(bench.lanes.push(partition, &frame, 1).is_ok()));
    let partitions =
        |sent: Sent| -> Vec<i32> { sent.batches.iter().map(|(partition, _)| *partition).collect() };
    // The batch that exceeds 4 MiB is the last one.
    assert_eq!(bench.request(1).map(partitions), Some((0..9).collect()));
    assert!(bench.lanes.push(0, &frame, 1).is_ok());
    assert_eq!(bench.request(1).map(partitions), Some(vec![0, 9, 10, 11]));
}

#[test]
fn until_a_broker_knows_the_producer_one_batch_of_a_partition_is_under_way() {
    let mut bench = Bench::new(&[1, 1], Some(4711));
    bench.push(1, 1);
    let first = bench.request(1).expect("the first");
    bench.push(1, 2);
    assert!(bench.request(1).is_none());
    bench.answer(1, first.id, &[(1, 0, 0)]).unwrap();
    assert_eq!(bench.request(1).expect("the second").heads(), [(1, 4711, 0, 1, 1)]);
}

#[test]
fn what_a_lost_connection_leaves_in_doubt_goes_to_the_new_leader_as_the_same_bytes() {
    let mut bench = Bench::new(&[1], Some(4711));
    let mut sent = Vec::new();
    for receipt in 1..=3 {
        bench.push(0, receipt);
        sent.push(bench.request(1).expect("a batch"));
    }
    bench.lanes.closed(1);
    assert!(bench.lanes.needs_metadata());
    assert!(bench.request(1).is_none() && bench.request(2).is_none());
    bench.lead(&[2]);
    for (place, before) in sent.iter().enumerate() {
        let again = bench.request(2).expect("the same again");
        assert_eq!(again.batches, before.batches, "batch {place}");
        sent_answer(&mut bench, again.id, place);
    }
    assert_eq!(bench.deliveries(), [(1, Ok(1)), (2, Ok(2)), (3, Ok(3))]);
}

fn sent_answer(bench: &mut Bench, id: i32, place: usize) {
    bench.answer(2, id, &[(0, 0, place as i64 + 1)]).unwrap();
}

#[test]
fn batches_behind_a_refused_one_come_back_and_are_sent_again_after_it() {
    for (refusal, needs_leader) in [(7, false), (19, false), (6, true), (56, true)] {
        let mut bench = Bench::new(&[1], Some(4711));
        let sent: Vec<Sent> = (1..=3)
            .map(|receipt| {
                bench.push(0, receipt);
                bench.request(1).expect("a batch")
            })
            .collect();
        bench.answer(1, sent[0].id, &[(0, refusal, -1)]).unwrap();
        // Two are still under way: nothing leaves before they have come back.
        bench.wait(1_000);
        bench.lead(&[1]);
        assert!(bench.request(1).is_none());
        bench.answer(1, sent[1].id, &[(0, 45, -1)]).unwrap();
        assert!(bench.request(1).is_none());
        bench.answer(1, sent[2].id, &[(0, refusal, -1)]).unwrap();
        assert_eq!(bench.lanes.needs_metadata(), needs_leader, "{refusal}");
        bench.lead(&[1]);
        assert!(bench.request(1).is_none(), "not at once");
        bench.wait(20);
        for (place, before) in (1..).zip(&sent) {
            let again = bench.request(1).expect("the same again");
            assert_eq!(again.batches, before.batches);
            bench.answer(1, again.id, &[(0, 0, place)]).unwrap();
        }
        assert_eq!(bench.deliveries(), [(1, Ok(1)), (2, Ok(2)), (3, Ok(3))]);
    }
}

#[test]
fn a_later_batch_may_be_acknowledged_before_one_in_doubt() {
    let mut bench = Bench::new(&[1], Some(4711));
    bench.push(0, 1);
    let first = bench.request(1).unwrap();
    bench.push(0, 2);
    let second = bench.request(1).unwrap();
    bench.push(0, 3);
    bench.answer(1, first.id, &[(0, 20, -1)]).unwrap();
    bench.answer(1, second.id, &[(0, 0, 2)]).unwrap();
    bench.wait(20);
    let again = bench.request(1).unwrap();
    assert_eq!(again.batches, first.batches);
    bench.answer(1, again.id, &[(0, 0, 1)]).unwrap();
    assert_eq!(bench.deliveries(), [(2, Ok(2)), (1, Ok(1))]);
    assert_eq!(bench.request(1).unwrap().heads(), [(0, 4711, 0, 3, 1)]);
}

#[test]
fn a_partition_that_fails_goes_on_under_a_higher_epoch_and_no_other_does() {
    for error in [45, 46, -1, 87] {
        let mut bench = Bench::new(&[1, 1], Some(4711));
        bench.push(0, 1);
        bench.push(1, 11);
        let sent = bench.request(1).unwrap();
        bench.push(0, 2);
        let under_way = bench.request(1).unwrap();
        bench.push(0, 3);
        bench.answer(1, sent.id, &[(0, error, -1), (1, 0, 0)]).unwrap();
        let deliveries = bench.deliveries();
        assert_eq!(deliveries.last(), Some(&(11, Ok(0))));
        let failed: Vec<u32> = deliveries[..3].iter().map(|(receipt, _)| *receipt).collect();
        assert_eq!(failed, [1, 2, 3], "{error}");
        bench.push(0, 4);
        bench.push(1, 12);
        let next = bench.request(1).unwrap();
        assert_eq!(next.heads(), [(0, 4711, 1, 0, 1), (1, 4711, 0, 1, 1)]);
        // The answer to what was given up changes nothing.
        bench.answer(1, under_way.id, &[(0, 0, 2)]).unwrap();
        bench.push(0, 5);
        assert!(bench.request(1).is_none(), "the broker does not know the epoch yet");
        bench.answer(1, next.id, &[(0, 0, 7), (1, 0, 1)]).unwrap();
        assert_eq!(bench.deliveries(), [(4, Ok(7)), (12, Ok(1))]);
    }
}

#[test]
fn a_producer_that_the_broker_does_not_know_gets_another_id() {
    for error in [47, 59] {
        let mut bench = Bench::new(&[1, 1], Some(4711));
        bench.push(1, 9);
        let sent = bench.request(1).unwrap();
        bench.answer(1, sent.id, &[(1, 0, 0)]).unwrap();
        bench.push(0, 1);
        let sent = bench.request(1).unwrap();
        bench.answer(1, sent.id, &[(0, error, -1)]).unwrap();
        assert_eq!(bench.deliveries()[1].0, 1);
        bench.push(0, 2);
        bench.push(1, 10);
        bench.name(1, 0, 4712);
        let next = bench.request(1).unwrap();
        assert_eq!(next.heads(), [(0, 4712, 0, 0, 1), (1, 4711, 0, 1, 1)]);
    }
}

#[test]
fn a_partition_that_has_had_every_epoch_gets_another_id() {
    let mut bench = Bench::new(&[1], Some(4711));
    for epoch in 0..=i16::MAX {
        bench.push(0, 1);
        let sent = bench.request(1).unwrap();
        let [(0, 4711, sent_epoch, ..)] = sent.heads()[..] else { panic!("{:?}", sent.heads()) };
        assert_eq!(sent_epoch, epoch);
        bench.answer(1, sent.id, &[(0, 87, -1)]).unwrap();
        assert_eq!(bench.deliveries().len(), 1);
    }
    bench.push(0, 2);
    bench.name(1, 0, 4712);
    assert_eq!(bench.request(1).unwrap().heads(), [(0, 4712, 0, 0, 1)]);
}

#[test]
fn a_refused_producer_id_fails_what_waits_and_a_passing_error_is_waited_for() {
    let mut bench = Bench::new(&[1, 1], None);
    bench.push(0, 1);
    bench.push(1, 2);
    for wait_ms in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
        bench.name(1, 14, -1);
        let said = bench.lanes.take_trouble().expect("the log names the error");
        assert!(said.contains("(14)"), "{said}");
        bench.wait(wait_ms - 1);
        assert!(bench.write(1).is_none(), "it is not asked again before {wait_ms} ms");
        bench.wait(1);
    }
    assert!(bench.deliveries().is_empty());
    bench.name(1, 31, -1);
    assert_eq!(bench.failed(), [(1, false), (2, false)]);
    bench.wait(5_000);
    bench.push(0, 3);
    bench.name(1, 0, 7);
    assert_eq!(bench.request(1).unwrap().heads(), [(0, 7, 0, 0, 1)]);
}

#[test]
fn a_full_buffer_takes_no_more_and_a_frame_beyond_it_never_fits() {
    let mut bench = Bench::new(&[1], Some(4711));
    let large = vec![0; HELD_BYTES_MAX / 2];
    assert!(bench.lanes.push(0, &large, 1).is_ok());
    assert_eq!(bench.lanes.push(0, &large, 2), Err(SendError::Full));
    let refused = bench.lanes.push(0, &vec![0; HELD_BYTES_MAX], 3);
    assert!(matches!(refused, Err(SendError::Refused(failure)) if failure.is_too_large));
    let sent = bench.request(1).unwrap();
    bench.answer(1, sent.id, &[(0, 0, 1)]).unwrap();
    assert!(bench.lanes.push(0, &large, 2).is_ok());
}

#[test]
fn frames_that_are_too_large_together_leave_alone_from_then_on() {
    let mut bench = Bench::new(&[1], Some(4711));
    bench.push(0, 1);
    bench.push(0, 2);
    let sent = bench.request(1).unwrap();
    assert_eq!(sent.heads()[0].4, 2);
    bench.answer(1, sent.id, &[(0, 10, -1)]).unwrap();
    assert_eq!(bench.failed(), [(1, false), (2, false)]);
    bench.push(0, 3);
    bench.push(0, 4);
    let sent = bench.request(1).unwrap();
    assert_eq!(sent.heads()[0].4, 1);
    bench.answer(1, sent.id, &[(0, 10, -1)]).unwrap();
    assert_eq!(bench.failed(), [(3, true), (4, true)]);
}

#[test]
fn an_answer_to_another_request_or_without_a_partition_brings_everything_back() {
    let mut bench = Bench::new(&[1, 1], Some(4711));
    bench.push(0, 1);
    bench.push(1, 2);
    let sent = bench.request(1).unwrap();
    bench.answer(1, sent.id, &[(0, 0, 1)]).expect_err("partition 1 is missing");
    bench.lanes.closed(1);
    bench.lead(&[1, 1]);
    let again = bench.request(1).unwrap();
    assert_eq!(again.batches, sent.batches[1..]);
    bench.answer(1, again.id - 1, &[(1, 0, 1)]).expect_err("another request");
    bench.lanes.closed(1);
    bench.lead(&[1, 1]);
    assert_eq!(bench.request(1).unwrap().batches, sent.batches[1..]);
    assert_eq!(bench.deliveries(), [(1, Ok(1))]);
}

#[test]
fn an_acknowledgement_at_an_offset_that_no_log_has_brings_the_batch_back() {
    for offset in [-1, i64::MIN, i64::MAX, i64::MAX - 1] {
        let mut bench = Bench::new(&[1], Some(4711));
        (1..=5).for_each(|receipt| bench.push(0, receipt));
        let sent = bench.request(1).unwrap();
        bench.answer(1, sent.id, &[(0, 0, offset)]).expect_err("the answer is none");
        bench.lanes.closed(1);
        bench.lead(&[1]);
        assert!(bench.deliveries().is_empty(), "offset {offset}");
        assert_eq!(bench.request(1).unwrap().batches, sent.batches);
    }
}

#[test]
fn the_log_is_told_why_a_batch_is_not_taken_now() {
    let mut bench = Bench::new(&[1], Some(4711));
    bench.push(0, 1);
    let sent = bench.request(1).unwrap();
    bench.answer(1, sent.id, &[(0, 19, -1)]).unwrap();
    let said = bench.lanes.take_trouble().expect("the log names the error");
    assert!(said.contains("partition 0 of `updates`") && said.contains("NOT_ENOUGH_REPLICAS"));
    assert_eq!(bench.lanes.take_trouble(), None, "once for each answer");
}

#[test]
fn a_partition_that_is_missing_for_long_fails() {
    let mut bench = Bench::new(&[1], Some(4711));
    bench.push(0, 1);
    bench.push(3, 2);
    bench.lead(&[1]);
    bench.wait(4_900);
    bench.lead(&[1]);
    assert!(bench.deliveries().is_empty());
    bench.wait(200);
    bench.lead(&[1]);
    assert_eq!(bench.failed(), [(2, false)]);
    assert_eq!(bench.request(1).unwrap().heads(), [(0, 4711, 0, 1, 1)]);
}
