//! The publisher against a mock cluster: order, progress, failures.

use huntd::hunt::frames::decode_frame;
use huntd::output::dead_letter::DeadLetter;
use huntd::output::frame::Format;
use huntd::output::reader::{Position, Reader, Verdict};
use huntd::publisher::{Outgoing, PublisherError};
use huntd::telemetry::metrics::{Counter, Gauge, Metrics};
use huntd::testing::frame_maker::FrameMaker;
use rdkafka::message::Message;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use std::thread::{self};
use std::time::{Duration, Instant};
use support::PATIENCE;
use support::mock::running::Running;
use support::mock::{self, Cluster, read_partition, wait_for};

/// Folds what a partition holds into a reader's position, and counts frames that came twice.
fn fold(cluster: &Cluster, partition: i32) -> (Position, usize) {
    let mut reader = Reader::new();
    let mut duplicates = 0;
    for record in read_partition(cluster, "updates", partition) {
        assert_eq!(record.key(), None);
        let (header, updates) = decode_frame(record.payload().expect("a value")).expect("a frame");
        match reader.fold(&header, &updates) {
            Verdict::Accepted { from: 0 } | Verdict::Progress { .. } => {}
            Verdict::Duplicate => duplicates += 1,
            verdict => panic!("{verdict:?} at output offset {}", record.offset()),
        }
    }
    (reader.position(), duplicates)
}

fn assert_position(position: Position, shard: &FrameMaker) {
    assert_eq!(position.next_update, shard.next_update);
    assert_eq!(position.next_offset, shard.next_offset);
    assert_eq!(position.chain, shard.chain);
}

fn assert_complete(cluster: &Cluster, shard: &FrameMaker) {
    let (position, duplicates) = fold(cluster, shard.partition);
    assert_position(position, shard);
    assert_eq!(duplicates, 0);
}

fn topics() -> Cluster {
    mock::cluster(&[("updates", 3), ("dead", 2)])
}

fn letter(partition: i32, offset: i64, value: Vec<u8>) -> DeadLetter {
    DeadLetter {
        partition,
        ownership_id: 1,
        offset,
        time_ms: 1_767_225_600_123,
        reason: "not_utf8",
        sentence: Some("byte 3 is no UTF-8".to_owned()),
        key: Some(b"k".to_vec()),
        value: Some(value),
        cut: None,
        run: None,
    }
}

#[test]
fn frames_arrive_in_order_in_their_own_partition_and_become_progress() {
    for format in [Format::Json, Format::Binary] {
        let cluster = topics();
        let mut running = Running::start(&cluster, format);
        let mut shards = [FrameMaker::new(0), FrameMaker::new(2)];
        shards.iter().for_each(|shard| running.begin(&cluster, shard));
        for _ in 0..50 {
            for shard in &mut shards {
                running.send_frames(shard, 4);
            }
        }
        for shard in &shards {
            wait_for("the last acknowledgement", || running.acked(shard));
            assert_eq!(running.settled(shard.partition), 200);
        }
        assert_eq!(running.metrics.get(Counter::FramesAcked), 400);
        let Metrics { end_to_end, input, inside, output, .. } = &*running.metrics;
        let count = |times: &[u64]| times.iter().sum::<u64>();
        // Frames without updates have no latency. The events of the others are of 1970, so nothing
        // is counted that goes by their times.
        assert_eq!((count(&inside.counts()), count(&output.counts())), (300, 300));
        assert_eq!((count(&end_to_end.counts()), count(&input.counts())), (0, 0));
        assert_eq!(running.metrics.get(Counter::FramesMisdated), 300);
        let metrics = running.metrics.clone();
        running.stop().expect("everything is acknowledged");
        assert_eq!(metrics.gauge(Gauge::InFlightBytes), 0);
        for shard in &shards {
            assert_complete(&cluster, shard);
        }
        assert!(read_partition(&cluster, "updates", 1).is_empty());
    }
}

#[test]
fn what_is_in_flight_at_the_end_is_still_delivered() {
    let cluster = topics();
    let mut running = Running::start(&cluster, Format::Binary);
    let mut shard = FrameMaker::new(1);
    running.begin(&cluster, &shard);
    running.send_frames(&mut shard, 500);
    running.stop().expect("everything is acknowledged");
    assert_complete(&cluster, &shard);
}

#[test]
fn dead_letters_keep_their_bytes_and_say_where_they_come_from() {
    let cluster = topics();
    let mut running = Running::start(&cluster, Format::Json);
    let mut shard = FrameMaker::new(2);
    running.begin(&cluster, &shard);
    let letter = letter(2, 41, b"{\"a\xff".to_vec());
    let tombstone = DeadLetter {
        offset: 42,
        reason: "null",
        sentence: None,
        key: None,
        value: None,
        ..letter.clone()
    };
    running.send(Outgoing::DeadLetter(Box::new(letter.clone())));
    running.send(Outgoing::DeadLetter(Box::new(tombstone)));
    running.send(Outgoing::Frame(shard.frame(0)));
    wait_for("the acknowledgement behind the letters", || running.acked(&shard));
    assert_eq!(running.metrics.get(Counter::DeadLettersAcked), 2);
    running.stop().expect("everything is acknowledged");

    let mut letters = read_partition(&cluster, "dead", 0);
    letters.extend(read_partition(&cluster, "dead", 1));
    letters.sort_by_key(|record| record.key().map(<[u8]>::to_vec));
    let [first, second] = letters.as_slice() else { panic!("{} letters", letters.len()) };
    assert_eq!(first.key(), Some(b"events/2/41".as_slice()));
    assert_eq!(first.payload(), letter.value.as_deref());
    let header = |name| mock::header(first, name);
    assert_eq!(header("huntd.topic").as_deref(), Some("events"));
    assert_eq!(header("huntd.partition").as_deref(), Some("2"));
    assert_eq!(header("huntd.offset").as_deref(), Some("41"));
    assert_eq!(header("huntd.timestamp_ms").as_deref(), Some("1767225600123"));
    assert_eq!(header("huntd.reason").as_deref(), Some("not_utf8"));
    assert_eq!(header("huntd.sentence").as_deref(), Some("byte 3 is no UTF-8"));
    assert_eq!(header("huntd.key").as_deref(), Some("k"));
    assert_eq!(second.key(), Some(b"events/2/42".as_slice()));
    assert_eq!(second.payload(), None);
    assert_eq!(mock::header(second, "huntd.sentence"), None);
    assert_eq!(mock::header(second, "huntd.key"), None);
}

#[test]
fn a_broker_that_goes_and_comes_back_costs_no_update_and_doubles_none() {
    let cluster = topics();
    let mut running = Running::start(&cluster, Format::Binary);
    let mut shard = FrameMaker::new(0);
    running.begin(&cluster, &shard);
    for _ in 0..3 {
        running.send_frames(&mut shard, 40);
        cluster.broker_down(1).expect("the broker stops");
        running.send_frames(&mut shard, 40);
        assert!(!running.acked(&shard));
        cluster.broker_up(1).expect("the broker starts");
        wait_for("acknowledgements after the outage", || {
            running.check_spans(&cluster);
            running.acked(&shard)
        });
    }
    running.stop().expect("everything is acknowledged");
    // The mock does not compare sequence numbers as a broker does, so what it had appended before
    // it went is appended again; the reader rule drops that.
    assert_position(fold(&cluster, 0).0, &shard);
}

/// What becomes of one frame when the broker answers twice with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It was sent again until it arrived.
    Retried,
    /// It ended its ownership, and a later ownership published what it had held.
    Failed,
}

fn fate_under(error: RDKafkaRespErr) -> Fate {
    let cluster = topics();
    let mut running = Running::start(&cluster, Format::Binary);
    let mut shard = FrameMaker::new(0);
    running.begin(&cluster, &shard);
    running.send_frames(&mut shard, 5);
    wait_for("the first acknowledgements", || running.acked(&shard));
    cluster.request_errors(RDKafkaApiKey::Produce, &[error, error]);
    let started = Instant::now();
    loop {
        let (next_update, next_offset, chain) = (shard.next_update, shard.next_offset, shard.chain);
        // One request at a time: the mock takes a second one although the first has failed, where
        // a broker would refuse it by its sequence number.
        running.send(Outgoing::Frame(shard.frame(3)));
        let mut failure = None;
        wait_for("an acknowledgement, or that there will be none", || {
            running.check_spans(&cluster);
            failure = failure.take().or_else(|| running.heard.failures.pop_front());
            failure.is_some() || running.acked(&shard)
        });
        let Some(failure) = failure else { break };
        assert_eq!((failure.partition, failure.ownership_id), (0, shard.ownership_id));
        assert!(!failure.sentence.is_empty());
        assert!(started.elapsed() < PATIENCE, "{}", failure.sentence);
        let sent = running.sent;
        wait_for("the failed ownership to be settled", || running.settled(0) == sent);
        let (ownership_id, owner_epoch) = (shard.ownership_id + 1, shard.owner_epoch + 1);
        shard = FrameMaker { ownership_id, owner_epoch, next_update, next_offset, chain, ..shard };
        running.begin(&cluster, &shard);
        // The control thread takes about as long to acquire a shard again.
        thread::sleep(Duration::from_millis(100));
    }
    running.send_frames(&mut shard, 30);
    wait_for("further acknowledgements", || {
        running.check_spans(&cluster);
        running.acked(&shard)
    });
    let failed = running.metrics.get(Counter::DeliveriesFailed);
    running.stop().expect("everything is acknowledged");
    assert_complete(&cluster, &shard);
    assert_eq!(failed > 0, shard.ownership_id > 1);
    if failed == 0 { Fate::Retried } else { Fate::Failed }
}

#[test]
fn an_error_of_the_broker_is_retried_or_ends_the_ownership_and_leaves_no_trace_in_the_output() {
    use RDKafkaRespErr as Code;
    let expected = [
        (Code::RD_KAFKA_RESP_ERR__TRANSPORT, Fate::Retried),
        (Code::RD_KAFKA_RESP_ERR_INVALID_MSG, Fate::Retried),
        (Code::RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE, Fate::Retried),
        (Code::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION, Fate::Retried),
        (Code::RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT, Fate::Retried),
        (Code::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS, Fate::Retried),
        (Code::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND, Fate::Retried),
        (Code::RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR, Fate::Retried),
        (Code::RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE, Fate::Failed),
        (Code::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, Fate::Failed),
        (Code::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER, Fate::Failed),
        (Code::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH, Fate::Failed),
        (Code::RD_KAFKA_RESP_ERR_INVALID_RECORD, Fate::Failed),
        (Code::RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID, Fate::Failed),
    ];
    assert_eq!(expected.map(|(error, _)| (error, fate_under(error))), expected);
}

#[test]
fn letters_that_cannot_be_delivered_hold_up_no_frame() {
    let cluster = topics();
    for partition in 0..2 {
        cluster.partition_leader("dead", partition, None).expect("the partition is there");
    }
    let mut running = Running::start(&cluster, Format::Binary);
    let (mut dead, mut alive) = (FrameMaker::new(0), FrameMaker::new(1));
    running.begin(&cluster, &dead);
    running.begin(&cluster, &alive);
    // More than the default of `publish.queue_kbytes_max`.
    for offset in 0..20 {
        running.send(Outgoing::DeadLetter(Box::new(letter(0, offset, vec![b'x'; 1_000_000]))));
    }
    running.send_frames(&mut dead, 3);
    running.send_frames(&mut alive, 3);
    wait_for("the other shard's acknowledgements", || running.acked(&alive));
    assert!(!running.acked(&dead));
    for partition in 0..2 {
        cluster.partition_leader("dead", partition, Some(1)).expect("the partition is there");
    }
    wait_for("the acknowledgements after the letters", || running.acked(&dead));
    running.stop().expect("everything is acknowledged");
}

#[test]
fn a_stop_while_the_broker_is_away_ends_and_says_what_is_missing() {
    let cluster = topics();
    let mut running = Running::start(&cluster, Format::Binary);
    let mut shard = FrameMaker::new(0);
    running.begin(&cluster, &shard);
    cluster.broker_down(1).expect("the broker stops");
    for _ in 0..64 {
        running.send(Outgoing::Frame(shard.frame(5)));
    }
    let Running { inbox, bell, thread, .. } = running;
    drop(inbox);
    bell.ring();
    let ended = thread.join().expect("the publisher does not panic");
    assert!(matches!(ended, Err(PublisherError::NotFlushed(64))), "{ended:?}");
}

#[test]
fn a_stop_does_not_wait_for_ticks() {
    let cluster = mock::cluster(&[("events", 2), ("updates", 3), ("dead", 2)]);
    cluster.partition_leader("events", 0, None).expect("the partition is there");
    let running = Running::start_ticking(&cluster, Format::Binary, 1);
    for partition in 0..2 {
        running.progress.shard(partition).ownership_id.set(1);
        running.begin(&cluster, &FrameMaker::new(partition));
    }
    // The other one was sent before.
    wait_for("a tick of partition 1", || running.metrics.get(Counter::OwnRecordsAcked) > 0);
    running.stop().expect("nothing else is on its way");
}

#[test]
fn a_refused_frame_ends_its_ownership_and_no_other_shard() {
    let cluster = topics();
    let mut running = Running::start(&cluster, Format::Binary);
    let mut dead = FrameMaker::new(0);
    let mut alive = FrameMaker::new(1);
    running.begin(&cluster, &dead);
    running.begin(&cluster, &alive);
    running.send_frames(&mut dead, 10);
    wait_for("the first acknowledgements", || running.acked(&dead));
    let owned = (dead.next_update, dead.next_offset, dead.chain);

    let refused = RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
    cluster.request_errors(RDKafkaApiKey::Produce, &[refused]);
    running.send(Outgoing::Frame(dead.frame(3)));
    let failure = running.next_failure();
    assert_eq!((failure.partition, failure.ownership_id), (0, 1));
    assert!(!failure.sentence.is_empty());
    running.send_frames(&mut dead, 20);
    running.send_frames(&mut alive, 20);
    wait_for("the other shard's acknowledgements", || running.acked(&alive));
    wait_for("the failed ownership to be settled", || running.settled(0) == 31);
    assert_eq!(running.progress.shard(0).acked.get(), owned.1);

    // A newer ownership begins where the output stands, under the next owner epoch.
    (dead.next_update, dead.next_offset, dead.chain) = owned;
    (dead.ownership_id, dead.owner_epoch) = (2, 2);
    running.begin(&cluster, &dead);
    running.send_frames(&mut dead, 20);
    wait_for("the new ownership's acknowledgements", || running.acked(&dead));
    running.hear();
    assert!(running.heard.failures.is_empty(), "one failure is reported once");
    running.stop().expect("everything is acknowledged");
    assert_complete(&cluster, &dead);
    assert_complete(&cluster, &alive);
}

#[test]
fn a_refused_producer_id_fails_every_shard_that_waits_for_it_and_the_next_attempt_succeeds() {
    let cluster = topics();
    let denied = RDKafkaRespErr::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED;
    cluster.request_errors(RDKafkaApiKey::InitProducerId, &[denied]);
    cluster.broker_down(1).expect("the broker stops");
    let mut running = Running::start(&cluster, Format::Binary);
    let mut shards = [FrameMaker::new(0), FrameMaker::new(1)];
    for shard in &mut shards {
        running.begin_at(0, shard);
        running.send_frames(shard, 5);
    }
    cluster.broker_up(1).expect("the broker starts");
    let failures = [running.next_failure(), running.next_failure()];
    let mut failed = failures.map(|failure| failure.partition);
    failed.sort_unstable();
    assert_eq!(failed, [0, 1]);
    for shard in &mut shards {
        wait_for("the lost frames to be settled", || running.settled(shard.partition) == 5);
        *shard = FrameMaker { ownership_id: 2, ..FrameMaker::new(shard.partition) };
        running.begin(&cluster, shard);
        running.send_frames(shard, 5);
        wait_for("the new producer's acknowledgements", || running.acked(shard));
    }
    running.stop().expect("everything is acknowledged");
    for shard in &shards {
        assert_complete(&cluster, shard);
    }
}

#[test]
fn a_fatal_error_of_librdkafka_fails_the_shards_whose_records_it_had_and_no_other() {
    let cluster = topics();
    let mut running = Running::start(&cluster, Format::Binary);
    let mut shards = [FrameMaker::new(0), FrameMaker::new(1)];
    shards.iter().for_each(|shard| running.begin_at(0, shard));
    // Frames have their producer id, and librdkafka has none.
    running.send_frames(&mut shards[1], 5);
    wait_for("a producer id", || running.acked(&shards[1]));
    let denied = RDKafkaRespErr::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED;
    cluster.request_errors(RDKafkaApiKey::InitProducerId, &[denied]);
    running.send_frames(&mut shards[1], 5);
    running.send(Outgoing::DeadLetter(Box::new(letter(0, 41, b"x".to_vec()))));
    let failure = running.next_failure();
    assert_eq!((failure.partition, failure.ownership_id, failure.is_final), (0, 1, false));
    let sentence = failure.sentence;
    assert!(sentence.contains("offset 41: the Kafka producer cannot go on: "), "{sentence}");
    wait_for("the other shard's acknowledgements", || running.acked(&shards[1]));

    // The next letter starts the next client.
    let [mut failed, _] = shards;
    failed.ownership_id = 2;
    running.begin_at(0, &failed);
    let again = DeadLetter { ownership_id: 2, ..letter(0, 41, b"x".to_vec()) };
    running.send(Outgoing::DeadLetter(Box::new(again)));
    running.send_frames(&mut failed, 5);
    wait_for("the new client's acknowledgements", || running.acked(&failed));
    assert_eq!(running.metrics.get(Counter::DeadLettersAcked), 1);
    running.hear();
    assert!(running.heard.failures.is_empty());
    running.stop().expect("everything is acknowledged");
}
