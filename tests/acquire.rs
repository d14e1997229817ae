//! Acquiring a shard's output against a mock cluster.

mod mock;

use huntd::publisher::encode::{decode_frame, encode};
use huntd::publisher::frame::Format;
use huntd::publisher::frame::{Chain, FrameHeader, FrameKind, POSITION_UNKNOWN};
use huntd::recovery::reader::{Reader, Verdict};
use huntd::recovery::tail::{Acquired, Options, Reading, Tail};
use huntd::recovery::tail_error::TailError;
use mock::{Cluster, Shard, append, brokers, read_partition};
use rdkafka::message::Message;
use rdkafka::types::RDKafkaRespErr;
use std::ops::ControlFlow;

const FORMAT: Format = Format::Binary;

fn options(cluster: &Cluster) -> Options {
    Options {
        brokers: brokers(cluster),
        client_id: "test".to_owned(),
        group: "hunters".to_owned(),
        input_topic: "events".to_owned(),
        output_topic: "updates".to_owned(),
        dead_letter_topic: "dead-letters".to_owned(),
        format: FORMAT,
        ruleset: 7,
    }
}

fn topics() -> Cluster {
    mock::cluster(&[("events", 2), ("updates", 2), ("dead-letters", 1)])
}

fn go_on(_: Reading) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn acquire(cluster: &Cluster, partition: i32) -> Result<Acquired, TailError> {
    Tail::connect(options(cluster))?.acquire(partition, &mut go_on)
}

fn publish(cluster: &Cluster, shard: &mut Shard, frames: u32) {
    for number in 0..frames {
        let frame = shard.frame(number % 4);
        let mut bytes = Vec::new();
        encode(FORMAT, &frame.header, frame.updates.as_slice(), &mut bytes);
        append(cluster, "updates", shard.partition, &bytes);
    }
}

fn publish_fence(cluster: &Cluster, partition: i32, header: &FrameHeader) {
    let mut bytes = Vec::new();
    encode(FORMAT, header, &[], &mut bytes);
    append(cluster, "updates", partition, &bytes);
}

#[test]
fn an_empty_output_is_acquired_at_its_very_beginning() {
    let cluster = topics();
    let acquired = acquire(&cluster, 1).expect("acquired");
    assert_eq!(acquired.epoch, 1);
    assert_eq!((acquired.next_update, acquired.next_offset), (0, 0));
    assert_eq!(acquired.chain, Chain::default());

    let log = read_partition(&cluster, "updates", 1);
    let last = log.last().expect("a fence");
    assert_eq!(last.offset(), acquired.fence_offset);
    let (fence, _) = decode_frame(last.payload().expect("a value")).expect("a frame");
    assert_eq!((fence.kind, fence.epoch), (FrameKind::Fence, 1));
    assert_eq!((fence.fence_id, fence.next_offset), (acquired.fence_id, POSITION_UNKNOWN));
    assert!(read_partition(&cluster, "updates", 0).is_empty());
}

#[test]
fn each_owner_goes_on_where_the_last_one_stopped_under_a_higher_epoch() {
    let cluster = topics();
    let mut tail = Tail::connect(options(&cluster)).expect("connected");
    let mut shard = Shard::new(0);
    for epoch in 1..=3 {
        let mut readings = Vec::new();
        let acquired = tail
            .acquire(0, &mut |reading| {
                readings.push(reading);
                ControlFlow::Continue(())
            })
            .expect("acquired");
        assert_eq!(acquired.epoch, epoch);
        assert_eq!(acquired.next_update, shard.next_update);
        assert_eq!(acquired.next_offset, shard.next_offset);
        assert_eq!(acquired.chain, shard.chain);
        assert!(readings.is_sorted_by_key(|reading| reading.offset), "{readings:?}");
        shard.epoch = epoch;
        publish(&cluster, &mut shard, 20);
    }
}

#[test]
fn a_frame_that_an_older_owner_appends_late_is_dropped_by_every_reader() {
    let cluster = topics();
    let mut zombie = Shard::new(0);
    zombie.epoch = acquire(&cluster, 0).expect("acquired").epoch;
    publish(&cluster, &mut zombie, 10);
    let acquired = acquire(&cluster, 0).expect("acquired");
    let mut owner = Shard { epoch: acquired.epoch, ..Shard::new(0) };
    (owner.next_update, owner.next_offset) = (acquired.next_update, acquired.next_offset);
    owner.chain = acquired.chain;
    publish(&cluster, &mut zombie, 5);
    publish(&cluster, &mut owner, 7);
    publish(&cluster, &mut zombie, 5);

    let mut reader = Reader::new();
    let mut stale = 0;
    for record in read_partition(&cluster, "updates", 0) {
        let (header, updates) = decode_frame(record.payload().expect("a value")).expect("a frame");
        stale += usize::from(reader.fold(&header, &updates) == Verdict::Stale);
    }
    assert_eq!(stale, 10);
    assert_eq!(reader.position().next_update, owner.next_update);
    assert_eq!(reader.position().chain, owner.chain);
}

#[test]
fn what_is_no_frame_is_passed_over() {
    let cluster = topics();
    let mut shard = Shard::new(0);
    publish(&cluster, &mut shard, 6);
    append(&cluster, "updates", 0, b"HNTF but no frame");
    append(&cluster, "updates", 0, b"{\"kind\":\"updates\"}");
    publish(&cluster, &mut shard, 6);
    let acquired = acquire(&cluster, 0).expect("acquired");
    assert_eq!(acquired.next_update, shard.next_update);
}

#[test]
fn a_fence_that_another_owner_overtakes_is_raised_again() {
    let cluster = topics();
    let mut tail = Tail::connect(options(&cluster)).expect("connected");
    // Between our reading of epoch 0 and our fence of epoch 1, another owner writes the same epoch.
    let mut rivals = 2;
    let acquired = tail
        .acquire(0, &mut |reading| {
            if reading.offset == reading.end && rivals > 0 {
                rivals -= 1;
                let epoch = 2 - rivals;
                let rival = Shard { epoch, ..Shard::new(0) }.fence(u128::from(epoch) + 900);
                publish_fence(&cluster, 0, &rival);
            }
            ControlFlow::Continue(())
        })
        .expect("acquired");
    assert_eq!(rivals, 0);
    assert_eq!(acquired.epoch, 3);
}

#[test]
fn a_caller_that_lost_the_shard_meanwhile_leaves_no_fence_behind() {
    let cluster = topics();
    let mut tail = Tail::connect(options(&cluster)).expect("connected");
    let given_up = tail.acquire(1, &mut |_| ControlFlow::Break(()));
    assert_eq!(given_up, Err(TailError::Abandoned(1)));
    let mut reader = Reader::new();
    for record in read_partition(&cluster, "updates", 1) {
        let (header, updates) = decode_frame(record.payload().expect("a value")).expect("a frame");
        reader.fold(&header, &updates);
    }
    assert_eq!(reader.position().epoch, 0);
}

#[test]
fn updates_that_the_chain_was_not_made_of_halt_the_shard() {
    let cluster = topics();
    let mut shard = Shard::new(0);
    publish(&cluster, &mut shard, 4);
    shard.chain = Chain(shard.chain.0 ^ 1);
    publish(&cluster, &mut shard, 2);
    assert_eq!(acquire(&cluster, 0), Err(TailError::Damaged { partition: 0, offset: 5 }));
}

#[test]
fn topics_that_do_not_fit_are_refused() {
    let cluster = mock::cluster(&[("events", 3), ("updates", 2)]);
    let refused = acquire(&cluster, 0);
    let Err(TailError::PartitionsDiffer { input: 3, output: 2, .. }) = refused else {
        panic!("{refused:?}");
    };

    let missing = RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
    cluster.topic_error("updates", missing).expect("the mock's topic");
    assert_eq!(acquire(&cluster, 0), Err(TailError::TopicMissing("updates".to_owned())));

    let denied = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    cluster.topic_error("updates", denied).expect("the mock's topic");
    assert_eq!(acquire(&cluster, 0), Err(TailError::NotAuthorised("updates".to_owned())));
}
