//! How long a poll is, whatever a game comes to.

use super::json;
use crate::hunt::event::EFFECT_SLOTS;
use crate::hunt::rules::{HEALTH_MAX, ZONE_CM_MAX};
use crate::kit::PLAYERS_MAX;
use crate::serve::answers::{POLL_BYTES_MIN, write_poll};
use crate::telemetry::progress::SHARDS_MAX;
use proptest::prelude::*;
use simd_json::prelude::*;

/// Bytes of a poll at most.
const POLL_BYTES_MAX: usize = 64;

/// A zone that makes a million updates per second comes to this one in a hundred days.
const UPDATE_MAX: i64 = 9_999_999_999_999;

/// A player that finds a thousand points per second has as many after eleven days.
const SCORE_MAX: i64 = 999_999_999;

/// The largest value of each number of a poll.
const MOST: [i64; 8] = [
    UPDATE_MAX,
    SHARDS_MAX as i64 - 1,
    SCORE_MAX,
    PLAYERS_MAX as i64,
    ZONE_CM_MAX as i64 - 1,
    ZONE_CM_MAX as i64 - 1,
    HEALTH_MAX as i64,
    (1 << EFFECT_SLOTS) - 1,
];

/// A poll of these numbers is no longer or shorter than it may be, and says them.
fn check(numbers: [i64; 8]) -> usize {
    let mut body = b"before".to_vec();
    write_poll(numbers, &mut body);
    let body = std::str::from_utf8(&body["before".len()..]).expect("it is text");
    assert!((POLL_BYTES_MIN..=POLL_BYTES_MAX).contains(&body.len()), "{body:?}");
    let read = json(body);
    let read = read.as_array().expect("a list").iter().map(|number| number.as_i64());
    assert_eq!(read.collect::<Option<Vec<_>>>(), Some(numbers.to_vec()));
    body.len()
}

#[test]
fn the_shortest_and_the_longest_poll_are_as_long_as_they_may_be() {
    assert_eq!((check([0; 8]), check(MOST)), (POLL_BYTES_MIN, POLL_BYTES_MAX));
}

/// Numbers of every length.
fn up_to(most: i64) -> impl Strategy<Value = i64> {
    (0..=most.ilog10()).prop_flat_map(move |digits| 0..=most.min(10_i64.pow(digits + 1)))
}

proptest! {
    #[test]
    fn a_poll_has_50_to_64_bytes_and_says_its_numbers(numbers in MOST.map(up_to)) {
        check(numbers);
    }
}
