//! Leaders that a broker names along with an error, and their endpoints (KIP-951).

use super::{Daemon, TOPIC_ID, fetch_answer, metadata};

/// A Fetch response: partition 0 is led by broker 2 in epoch 1, which no Metadata answer has named.
fn led_by_another(id: [u8; 4]) -> Vec<u8> {
    let leader = [&2_i32.to_be_bytes()[..], &1_i32.to_be_bytes(), &[0]].concat();
    // One topic; one partition: its number, NOT_LEADER_OR_FOLLOWER, three offsets, no aborted
    // transactions, no preferred replica, no records, tagged field 1; no tagged fields of the
    // topic.
    let partition = [&[0, 0, 0, 0, 0, 6][..], &[0xff; 24], &[0], &[0xff; 4], &[1], &[1, 1, 9]];
    let topics = [&[2][..], &TOPIC_ID.to_be_bytes(), &[2], &partition.concat(), &leader, &[0]];
    let mut answer = fetch_answer(&id, 0, &topics.concat());
    // Tagged field 0 instead of none: a broker with its name, port, no rack, no further fields.
    answer.pop();
    answer.extend(
        [&[1, 0, 18, 2][..], &[0, 0, 0, 2], b"\x07broker", &[0, 0, 0, 2], &[0, 0]].concat(),
    );
    answer
}

#[test]
fn a_leader_that_no_answer_has_listed_is_asked_where_the_hint_says_that_it_listens() {
    let mut daemon = Daemon::start(metadata(&[1], 1));
    daemon.turn_until_connected(1);
    let awaited = daemon.receiving.pop().expect("a Fetch is under way");
    daemon.respond(awaited, &led_by_another(1_i32.to_be_bytes()));
    daemon.turn_until_connected(2);
}
