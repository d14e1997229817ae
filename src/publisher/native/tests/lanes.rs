//! Lanes against brokers that say what a test wants: which bytes leave, and what is delivered.

use super::bench::{Bench, Sent, TOPIC, VERSIONS};
use crate::kafka::message::Versions;
use crate::kafka::wire::{WireReader, WireWriter};

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
    assert!(!bench.lanes.has_waiting());
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
    (1..=5).for_each(|receipt| bench.lanes.push(0, &frame, receipt));
    let records: Vec<i32> =
        std::iter::from_fn(|| bench.request(1)).map(|sent| sent.heads()[0].4).collect();
    assert_eq!(records, [2, 2, 1]);
}

#[test]
fn what_does_not_fit_into_a_request_goes_with_the_next_one_first() {
    let mut bench = Bench::new(&[1; 12], Some(4711));
    let frame = vec![0; 500 * 1024];
    (0..12).for_each(|partition| bench.lanes.push(partition, &frame, 1));
    let partitions =
        |sent: Sent| -> Vec<i32> { sent.batches.iter().map(|(partition, _)| *partition).collect() };
    // The batch that exceeds 4 MiB is the last one.
    assert_eq!(bench.request(1).map(partitions), Some((0..9).collect()));
    bench.lanes.push(0, &frame, 1);
    assert_eq!(bench.request(1).map(partitions), Some(vec![0, 9, 10, 11]));
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
    bench.wait(60_000);
    bench.push(3, 3);
    bench.lead(&[1]);
    assert!(bench.deliveries().is_empty(), "the next one has as much time");
}

#[test]
fn a_broker_has_its_time_for_each_request_from_the_answer_before_it_on() {
    let mut bench = Bench::new(&[1], Some(4711));
    let begun = bench.now;
    bench.push(0, 1);
    let first = bench.request(1).unwrap();
    bench.push(0, 2);
    let _second = bench.request(1).unwrap();
    bench.wait(9_000);
    assert_eq!(bench.lanes.asked_at(1), Some(begun));
    bench.answer(1, first.id, &[(0, 0, 1)]).unwrap();
    assert_eq!(bench.lanes.asked_at(1), Some(bench.now));
}

#[test]
fn a_refused_batch_waits_longer_each_time_until_one_is_taken() {
    let mut bench = Bench::new(&[1], Some(4711));
    for _ in 0..2 {
        bench.push(0, 1);
        for wait_ms in [10, 20, 40, 80, 160, 320, 640, 1_000, 1_000] {
            let sent = bench.request(1).unwrap();
            bench.answer(1, sent.id, &[(0, 7, -1)]).unwrap();
            bench.wait(wait_ms - 1);
            assert!(bench.request(1).is_none(), "it is not sent before {wait_ms} ms");
            bench.wait(1);
        }
        let sent = bench.request(1).unwrap();
        bench.answer(1, sent.id, &[(0, 0, 5)]).unwrap();
        assert_eq!(bench.deliveries(), [(1, Ok(5))]);
    }
}

/// If only its way is bad, the next attempt arrives; if its bytes have changed here, none does.
#[test]
fn a_batch_that_arrives_damaged_again_and_again_is_given_up() {
    let mut bench = Bench::new(&[1], Some(4711));
    bench.push(0, 1);
    for wait_ms in [10, 20, 40, 80, 160, 320, 640] {
        let sent = bench.request(1).unwrap();
        bench.answer(1, sent.id, &[(0, 2, -1)]).unwrap();
        assert!(bench.deliveries().is_empty());
        bench.wait(wait_ms);
    }
    let sent = bench.request(1).unwrap();
    bench.answer(1, sent.id, &[(0, 2, -1)]).unwrap();
    assert_eq!(bench.failed(), [(1, false)]);
    bench.push(0, 2);
    let sent = bench.request(1).unwrap();
    assert_eq!(sent.heads(), [(0, 4711, 1, 0, 1)], "the next epoch");
}

/// KIP-951: nobody has to be asked who leads.
#[test]
fn a_refused_batch_goes_at_once_to_the_leader_that_the_answer_names() {
    let mut bench = Bench::new(&[1], Some(4711));
    bench.push(0, 1);
    let versions = Versions { produce: 10, ..VERSIONS };
    let mut request = Vec::new();
    assert!(bench.lanes.next_request(1, versions, (bench.now, 1_000), &mut request));
    let id = WireReader::resume(&request, 8).i32().unwrap();
    bench.lanes.answered(1, &refused_naming(id, 2, 9), bench.now).expect("it is whole");
    assert!(!bench.lanes.needs_metadata());
    assert_eq!(bench.request(2).expect("at once").heads(), [(0, 4711, 0, 1, 1)]);
}

/// An answer of version 10: partition 0 is led by this broker in this leader epoch.
fn refused_naming(correlation_id: i32, node_id: i32, leader_epoch: i32) -> Vec<u8> {
    let mut answer = Vec::new();
    let mut writer = WireWriter::new(&mut answer);
    writer.i32(correlation_id);
    writer.no_tagged_fields();
    writer.array(1, true);
    writer.string(TOPIC, true);
    writer.array(1, true);
    writer.i32(0);
    writer.i16(6);
    [-1, -1, -1].into_iter().for_each(|offset| writer.i64(offset));
    writer.array(0, true);
    writer.null_string(true);
    [1, 0, 9].into_iter().for_each(|byte| writer.i8(byte));
    writer.i32(node_id);
    writer.i32(leader_epoch);
    [0, 0].into_iter().for_each(|byte| writer.i8(byte));
    writer.i32(0);
    [1, 0, 17, 2].into_iter().for_each(|byte| writer.i8(byte));
    writer.i32(node_id);
    writer.string("kafka", true);
    writer.i32(9092);
    writer.null_string(true);
    writer.no_tagged_fields();
    answer
}

/// The broker that moved it may answer late, after others have named the new leader.
#[test]
fn a_late_refusal_of_the_leader_before_leaves_the_new_leader_in_force() {
    let mut bench = Bench::new(&[1], Some(4711));
    bench.push(0, 1);
    let sent = bench.request(1).unwrap();
    bench.lead(&[2]);
    bench.answer(1, sent.id, &[(0, 6, -1)]).unwrap();
    let again = bench.request(2).expect("at once");
    assert_eq!(again.batches, sent.batches);
}

#[test]
fn a_batch_waits_only_for_the_broker_that_has_refused_it_and_not_long_if_that_leads_no_more() {
    let mut bench = Bench::new(&[1], Some(4711));
    bench.push(0, 1);
    for wait_ms in [10, 20, 40, 80, 160, 250, 250] {
        let sent = bench.request(1).unwrap();
        bench.answer(1, sent.id, &[(0, 6, -1)]).unwrap();
        bench.lead(&[1]);
        bench.wait(wait_ms - 1);
        assert!(bench.request(1).is_none(), "it is not sent before {wait_ms} ms");
        bench.wait(1);
    }
    let sent = bench.request(1).unwrap();
    bench.answer(1, sent.id, &[(0, 6, -1)]).unwrap();
    bench.lead(&[2]);
    let again = bench.request(2).expect("at once");
    assert_eq!(again.batches, sent.batches);
    bench.answer(2, again.id, &[(0, 0, 5)]).unwrap();
    assert_eq!(bench.deliveries(), [(1, Ok(5))]);
}

#[test]
fn after_a_batch_has_come_back_the_oldest_goes_alone() {
    let mut bench = Bench::new(&[1], Some(4711));
    let sent: Vec<i32> = (1..=3)
        .map(|receipt| {
            bench.push(0, receipt);
            bench.request(1).unwrap().id
        })
        .collect();
    for id in sent {
        bench.answer(1, id, &[(0, 7, -1)]).unwrap();
    }
    bench.wait(10);
    let oldest = bench.request(1).unwrap();
    assert_eq!(oldest.heads(), [(0, 4711, 0, 1, 1)]);
    assert!(bench.request(1).is_none(), "the broker may have forgotten it behind the others");
    bench.answer(1, oldest.id, &[(0, 0, 1)]).unwrap();
    for sequence in 2..=3 {
        assert_eq!(bench.request(1).unwrap().heads(), [(0, 4711, 0, sequence, 1)]);
    }
}

#[test]
fn a_new_leader_gets_nothing_before_the_old_one_has_answered() {
    let mut bench = Bench::new(&[1], Some(4711));
    bench.push(0, 1);
    let old = bench.request(1).unwrap();
    bench.push(0, 2);
    bench.lead(&[2]);
    assert!(bench.request(2).is_none(), "the batch before it may not have arrived");
    bench.answer(1, old.id, &[(0, 0, 1)]).unwrap();
    assert_eq!(bench.request(2).unwrap().heads(), [(0, 4711, 0, 2, 1)]);
}

#[test]
fn a_broker_is_superseded_once_another_leads_what_it_has_not_answered() {
    let mut bench = Bench::new(&[1, 1, 1], Some(4711));
    bench.push(0, 1);
    bench.push(1, 2);
    let sent = bench.request(1).unwrap();
    bench.push(2, 3);
    let behind = bench.request(1).unwrap();
    assert!(!bench.lanes.is_superseded(1) && !bench.lanes.is_superseded(2));
    bench.lead(&[1, 1, 2]);
    assert!(!bench.lanes.is_superseded(1), "partition 2 is in the request behind it");
    bench.answer(1, sent.id, &[(0, 0, 1), (1, 0, 1)]).unwrap();
    assert!(bench.lanes.is_superseded(1));
    bench.answer(1, behind.id, &[(2, 6, -1)]).unwrap();
    assert!(!bench.lanes.is_superseded(1), "it has answered all");
}

#[test]
fn a_broker_that_gives_no_producer_id_is_superseded_once_others_lead_all_that_waits() {
    let mut bench = Bench::new(&[1, 1], None);
    bench.push(0, 1);
    bench.push(1, 2);
    assert!(bench.write(1).is_some(), "a question for a producer id");
    bench.lead(&[2, 1]);
    assert!(!bench.lanes.is_superseded(1), "partition 1 waits for it");
    bench.lead(&[2, 2]);
    assert!(bench.lanes.is_superseded(1));
    bench.lead(&[2, 2, 1]);
    bench.lanes.expect_frames(2);
    assert!(bench.lanes.is_superseded(1), "partition 2 has no frame yet");
}

#[test]
fn another_broker_is_asked_once_about_one_whose_replicas_take_too_long() {
    let mut bench = Bench::new(&[1], Some(4711));
    bench.push(0, 1);
    let sent = bench.request(1).unwrap();
    assert_eq!(bench.lanes.suspects.take(), None);
    bench.answer(1, sent.id, &[(0, 7, -1)]).unwrap();
    assert_eq!(bench.lanes.suspects.take(), Some(1));
    assert_eq!(bench.lanes.suspects.take(), None);
}
