//! The producer ids of lanes, and what a lane does under one.

use super::bench::Bench;

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
fn a_partition_without_a_producer_id_holds_up_no_other_one() {
    let mut bench = Bench::new(&[1, 1], Some(4711));
    bench.push(1, 1);
    let sent = bench.request(1).unwrap();
    bench.answer(1, sent.id, &[(1, 59, -1)]).unwrap();
    assert_eq!(bench.failed(), [(1, false)]);
    for (receipt, sequence, error, failed) in [(2, 1, 15, vec![]), (4, 2, 31, vec![(3, false)])] {
        bench.push(0, receipt);
        if error == 15 {
            bench.push(1, 3);
        }
        bench.name(1, error, -1);
        assert_eq!(bench.failed(), failed, "what waits for an id");
        let sent = bench.request(1).expect("the other partition has an id");
        assert_eq!(sent.heads(), [(0, 4711, 0, sequence, 1)]);
        bench.answer(1, sent.id, &[(0, 0, i64::from(receipt))]).unwrap();
        assert_eq!(bench.deliveries(), [(receipt, Ok(i64::from(receipt)))]);
        bench.wait(100);
    }
}

#[test]
fn a_producer_id_is_asked_for_before_the_first_frame_of_a_partition_that_an_engine_follows() {
    let mut bench = Bench::new(&[1, 2], None);
    bench.lanes.expect_frames(0);
    assert!(bench.write(2).is_none(), "it leads another partition");
    bench.name(1, 0, 7);
    assert!(bench.write(1).is_none(), "there is an id now, and no frame");
    bench.push(0, 1);
    assert_eq!(bench.request(1).unwrap().heads(), [(0, 7, 0, 0, 1)]);
}
