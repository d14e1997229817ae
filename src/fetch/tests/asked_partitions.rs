//! How many bytes of each partition a Fetch asks for, and how long the broker may collect them.

use super::{Daemon, metadata, options, partition_answer};
use crate::fetch::FetchOptions;
use crate::fetch::asked_partitions::{order, share_bytes};
use crate::testing::batch_builder::{BatchPlan, Owned};

#[test]
fn partitions_share_a_response_once_so_many_are_behind_that_it_holds_few_of_them() {
    let (fetch_bytes_max, partition_bytes_max) = (2 << 20, 1 << 20);
    let wide = FetchOptions { fetch_bytes_max, partition_bytes_max, ..options() };
    let narrow = FetchOptions { partition_bytes_max: 64 << 10, ..wide.clone() };
    let shares = [0, 1, 4, 5, 16, 32, 64, 1_024].map(|behind| share_bytes(&wide, behind) >> 10);
    assert_eq!(shares, [1_024, 1_024, 1_024, 819, 256, 128, 128, 128]);
    assert_eq!([1, 64].map(|behind| share_bytes(&narrow, behind) >> 10), [64, 64], "as configured");
}

/// How often each of these partitions, of which the first ones are played, comes first in so many
/// Fetches.
fn first_in(fetches: usize, played: usize, following: usize, behind: &[usize]) -> Vec<usize> {
    let mut firsts = vec![0; played + following];
    for turn in 0..fetches {
        let mut asked: Vec<usize> = (0..played + following).collect();
        order(&mut asked, played, turn, |partition| behind.contains(partition));
        firsts[asked[0]] += 1;
        asked.sort_unstable();
        assert!(asked.into_iter().eq(0..played + following));
    }
    firsts
}

#[test]
fn each_partition_that_is_played_comes_first_as_often_as_the_others() {
    for played in 1..=16 {
        let firsts = first_in(48 * played, played, 0, &[]);
        assert_eq!(firsts, vec![48; played]);
    }
}

#[test]
fn a_follower_that_is_behind_comes_first_in_one_of_four_fetches() {
    let firsts = first_in(400, 4, 30, &[17]);
    assert_eq!((firsts[17], firsts[16]), (100, 0));
    assert_eq!(firsts[..4], [75; 4]);
}

/// The milliseconds for which the broker may wait in the newest Fetch, and the bytes for which.
fn newest_wait(daemon: &Daemon) -> (i32, i32) {
    let (_, fetch) = daemon.asked.last_key_value().expect("a Fetch is under way");
    // After the length, the header and the replica id.
    let number = |at: usize| i32::from_be_bytes(fetch[at..at + 4].try_into().expect("four bytes"));
    (number(24), number(28))
}

#[test]
fn a_broker_collects_records_for_a_moment_only_while_they_keep_coming_to_a_follower() {
    let record = Owned { offset: 0, timestamp_ms: 7, key: None, value: None };
    let batch = BatchPlan::new(&[record]).build();
    let waits = [true, false].map(|is_following| {
        let mut daemon = Daemon::start(metadata(&[1], 1));
        daemon.cursor.is_following.set(is_following);
        daemon.turn_until_connected(1);
        let mut waits = vec![newest_wait(&daemon)];
        for (nth, records) in [(1, &batch[..]), (2, &[])] {
            daemon.answer(nth, 0, &partition_answer(0, records));
            daemon.turn_until_asked();
            waits.push(newest_wait(&daemon));
        }
        waits
    });
    assert_eq!(waits[0], [(100, 1), (10, 128 << 10), (100, 1)]);
    assert_eq!(waits[1], [(100, 1); 3]);
}
