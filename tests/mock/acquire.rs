//! Acquiring a shard's output against a mock cluster.

use huntd::control::output_log::{OutputLog, OutputLogOptions};
use huntd::control::surveyor::Surveyor;
use huntd::hunt::frames::{decode_frame, encode};
use huntd::kafka::right::Right;
use huntd::kafka::topic_error::TopicError;
use huntd::output::fence_id::InputTag;
use huntd::output::frame::{Chain, Format, FrameHeader, FrameKind, POSITION_UNKNOWN};
use huntd::output::reader::{Reader, Verdict};
use huntd::ownership::acquired::Acquired;
use huntd::ownership::acquisition::{Acquisition, Brief, Need, Remedy};
use huntd::ownership::bounds::Bounds;
use huntd::ownership::event::OutputEvent;
use huntd::ownership::start_error::StartError;
use huntd::testing::frame_maker::FrameMaker;
use rdkafka::message::Message;
use rdkafka::types::RDKafkaRespErr;
use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};
use support::PATIENCE;
use support::mock::{self, Cluster, append, read_partition};

const FORMAT: Format = Format::Binary;

fn options(cluster: &Cluster) -> OutputLogOptions {
    OutputLogOptions {
        client: mock::client(cluster),
        input_topic: "events".to_owned(),
        output_topic: "updates".to_owned(),
        dead_letter_topic: "dead-letters".to_owned(),
        format: FORMAT,
    }
}

fn topics() -> Cluster {
    mock::cluster(&[("events", 2), ("updates", 2), ("dead-letters", 1)])
}

fn brief(partition: i32) -> Brief {
    Brief {
        updates: huntd::hunt::change::UPDATES,
        partition,
        rulesets: vec![7],
        version: 1,
        candidates: Vec::new(),
        to_skip: Vec::new(),
        remedy: Remedy::Refuse,
        diverged: false,
        changed_from: None,
        input: InputTag::of_topic(&[1; 16]),
    }
}

fn survey(cluster: &Cluster, partitions: &[i32]) -> BTreeMap<i32, Bounds> {
    let mut surveyor = Surveyor::new(mock::dial_options(cluster, "events"), "updates", &[]);
    let (mut found, start) = (BTreeMap::new(), Instant::now());
    surveyor.begin(partitions);
    while found.len() < partitions.len() {
        assert!(start.elapsed() < PATIENCE, "{found:?}");
        surveyor.poll(|partition, bounds| {
            found.insert(partition, bounds.expect("the cluster answers"));
        });
        thread::sleep(Duration::from_millis(1));
    }
    found
}

/// Acquires shards at once. Each time that the group would be asked whether we are a member,
/// `meanwhile` answers. It gets the number of such questions before, and may act as others do.
fn acquire_all(
    cluster: &Cluster,
    tail: &mut OutputLog,
    briefs: Vec<Brief>,
    mut meanwhile: impl FnMut(usize) -> bool,
) -> Vec<Result<Acquired, StartError>> {
    let partitions: Vec<i32> = briefs.iter().map(|brief| brief.partition).collect();
    let bounds = survey(cluster, &partitions);
    let mut running: Vec<Acquisition> = briefs
        .into_iter()
        .map(|brief| {
            let bounds = bounds[&brief.partition];
            Acquisition::begin(brief, bounds)
        })
        .collect();
    let mut asked: Vec<(Option<Need>, Option<i64>)> = vec![(None, None); running.len()];
    let (mut questions, start) = (0, Instant::now());
    while running.iter().any(|acquisition| acquisition.need() != Need::End) {
        assert!(start.elapsed() < PATIENCE, "{running:?}");
        for (acquisition, (asked, reading)) in running.iter_mut().zip(&mut asked) {
            let need = acquisition.need();
            match need {
                Need::Read { from } if reading.is_none_or(|before| from < before) => {
                    tail.read(acquisition.partition(), from).expect("the topic is there");
                    *reading = Some(from);
                }
                Need::States => acquisition.offer(Vec::new()),
                Need::Confirm { .. } if !acquisition.may_fence() => acquisition.follow(),
                Need::Follow { .. } => acquisition.bid(),
                Need::Confirm { .. } => {
                    if !meanwhile(questions) {
                        return Vec::new();
                    }
                    questions += 1;
                    acquisition.confirm(900 + questions as u128);
                }
                Need::Append(header) if *asked != Some(need) => {
                    tail.append(acquisition.partition(), &header).expect("the topic is there");
                    *asked = Some(need);
                }
                _ => {}
            }
        }
        tail.poll(Duration::from_millis(10), |event| {
            let partition = match event {
                OutputEvent::Record { partition, .. }
                | OutputEvent::End { partition }
                | OutputEvent::Appended { partition, .. } => partition,
                other => panic!("{other:?}"),
            };
            let acquisition = running.iter_mut().find(|one| one.partition() == partition);
            let acquisition = acquisition.expect("only what is asked for is told");
            match event {
                OutputEvent::Record { offset, payload, .. } => acquisition.take(offset, payload),
                OutputEvent::End { .. } => acquisition.reach_end(),
                OutputEvent::Appended { offset, .. } => acquisition.appended(offset),
                _ => {}
            }
        });
    }
    partitions.iter().for_each(|partition| tail.forget(*partition));
    running.into_iter().map(Acquisition::into_outcome).collect()
}

fn acquire(cluster: &Cluster, partition: i32) -> Result<Acquired, StartError> {
    let mut tail = OutputLog::connect(options(cluster)).expect("connected");
    acquire_all(cluster, &mut tail, vec![brief(partition)], |_| true).remove(0)
}

/// Makes an input longer than what any output here accounts for.
fn fill_input(cluster: &Cluster, partition: i32) {
    mock::append_all(cluster, "events", partition, (0..60).map(|_| b"{}".as_slice()));
}

fn publish(cluster: &Cluster, shard: &mut FrameMaker, frames: u32) {
    let frames: Vec<Vec<u8>> = (0..frames)
        .map(|number| {
            let frame = shard.frame(number % 4);
            let mut bytes = Vec::new();
            encode(FORMAT, &frame.header, frame.updates.as_slice(), &mut bytes);
            bytes
        })
        .collect();
    let values = frames.iter().map(Vec::as_slice);
    mock::append_all(cluster, "updates", shard.partition, values);
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
    assert_eq!((acquired.owner_epoch, acquired.mark.owner_epoch), (1, 1));
    assert_eq!((acquired.mark.next_update, acquired.mark.next_offset), (0, 0));
    assert_eq!(acquired.mark.chain, Chain::default());

    let log = read_partition(&cluster, "updates", 1);
    let [record] = log.as_slice() else { panic!("{} records", log.len()) };
    assert_eq!(record.offset() + 1, acquired.mark.output_offset);
    let (fence, _) = decode_frame(record.payload().expect("a value")).expect("a frame");
    assert_eq!((fence.kind, fence.owner_epoch), (FrameKind::Fence, 1));
    assert_eq!((fence.fence_id, fence.next_offset), (acquired.fence_id, POSITION_UNKNOWN));
    assert!(read_partition(&cluster, "updates", 0).is_empty());
}

#[test]
fn each_owner_goes_on_where_the_last_one_stopped_under_a_higher_epoch() {
    let cluster = topics();
    let mut tail = OutputLog::connect(options(&cluster)).expect("connected");
    let mut shards = [FrameMaker::new(0), FrameMaker::new(1)];
    (0..2).for_each(|partition| fill_input(&cluster, partition));
    for owner_epoch in 1..=3 {
        let acquired = acquire_all(&cluster, &mut tail, vec![brief(0), brief(1)], |_| true);
        for (acquired, shard) in acquired.into_iter().zip(&mut shards) {
            let acquired = acquired.expect("acquired");
            assert_eq!(acquired.owner_epoch, owner_epoch);
            assert_eq!(acquired.mark.next_update, shard.next_update);
            assert_eq!(acquired.mark.next_offset, shard.next_offset);
            assert_eq!(acquired.mark.chain, shard.chain);
            shard.owner_epoch = owner_epoch;
            publish(&cluster, shard, 11);
        }
    }
}

#[test]
fn a_frame_that_an_older_owner_appends_late_is_dropped_by_every_reader() {
    let cluster = topics();
    fill_input(&cluster, 0);
    let mut zombie = FrameMaker::new(0);
    zombie.owner_epoch = acquire(&cluster, 0).expect("acquired").owner_epoch;
    publish(&cluster, &mut zombie, 10);
    let acquired = acquire(&cluster, 0).expect("acquired");
    let mut owner = FrameMaker { owner_epoch: acquired.owner_epoch, ..FrameMaker::new(0) };
    (owner.next_update, owner.next_offset) = (acquired.mark.next_update, acquired.mark.next_offset);
    owner.chain = acquired.mark.chain;
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
    fill_input(&cluster, 0);
    let mut shard = FrameMaker::new(0);
    publish(&cluster, &mut shard, 6);
    append(&cluster, "updates", 0, b"no frame");
    append(&cluster, "updates", 0, b"{\"type\":\"move\"}");
    publish(&cluster, &mut shard, 6);
    let acquired = acquire(&cluster, 0).expect("acquired");
    assert_eq!(acquired.mark.next_update, shard.next_update);
}

#[test]
fn a_fence_that_another_owner_overtakes_is_raised_again_after_another_question() {
    let cluster = topics();
    let mut tail = OutputLog::connect(options(&cluster)).expect("connected");
    // Between our reading of owner epoch 0 and our fence of owner epoch 1, another owner writes the
    // same; and then once more.
    let mut questions = 0;
    let acquired = acquire_all(&cluster, &mut tail, vec![brief(0)], |question| {
        questions += 1;
        if question < 2 {
            let owner_epoch = question as u64 + 1;
            let rival = FrameMaker { owner_epoch, ..FrameMaker::new(0) }
                .fence(u128::from(owner_epoch) + 9000);
            publish_fence(&cluster, 0, &rival);
        }
        true
    });
    assert_eq!(questions, 3);
    assert_eq!(acquired[0].as_ref().map(|acquired| acquired.owner_epoch), Ok(3));
}

#[test]
fn a_daemon_that_is_no_member_any_more_leaves_no_fence_behind() {
    let cluster = topics();
    let mut tail = OutputLog::connect(options(&cluster)).expect("connected");
    acquire_all(&cluster, &mut tail, vec![brief(1)], |_| false);
    assert!(read_partition(&cluster, "updates", 1).is_empty());
}

#[test]
fn updates_that_the_chain_was_not_made_of_halt_the_shard() {
    let cluster = topics();
    let mut shard = FrameMaker::new(0);
    publish(&cluster, &mut shard, 4);
    shard.chain = Chain(shard.chain.0 ^ 1);
    publish(&cluster, &mut shard, 2);
    assert_eq!(acquire(&cluster, 0), Err(StartError::Damaged { offset: 5 }));
}

#[test]
fn topics_that_do_not_fit_are_refused() {
    let connect = |cluster: &Cluster| OutputLog::connect(options(cluster)).map(|_| ());
    let cluster = mock::cluster(&[("events", 3), ("updates", 2)]);
    let refused = connect(&cluster);
    let Err(TopicError::PartitionsDiffer { input: 3, output: 2, .. }) = refused else {
        panic!("{refused:?}");
    };

    let missing = RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
    cluster.topic_error("updates", missing).expect("the mock's topic");
    assert_eq!(connect(&cluster), Err(TopicError::Missing("updates".to_owned())));

    let denied = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    cluster.topic_error("updates", denied).expect("the mock's topic");
    assert_eq!(
        connect(&cluster),
        Err(TopicError::NotAuthorised { topic: "updates".to_owned(), right: Right::ReadAndWrite })
    );
}
