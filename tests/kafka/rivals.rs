//! Two deployments, each with a group of its own, publish to one output by mistake.

use crate::players::{Load, events, produce};
use crate::restarts::{wait_for_more, wait_until_owned};
use support::accounts::{self, Follower};
use support::daemon::{Huntd, Topics};
use support::kafka;

const HALTED: &str = "the shard has halted: another deployment takes the output over";

/// A daemon of this group.
fn start(topics: &Topics, group: &str) -> Huntd {
    let group = format!("kafka.group={group}");
    Huntd::start_as(kafka::shared(), topics, &[], &["--set", &group])
}

/// It has given up, and its log advises nothing that would harm the other one.
fn assert_gave_up(rival: Huntd) {
    let ended = rival.stop();
    assert_eq!(ended.status.code(), Some(10), "{}", ended.log);
    let suspicion = "another kafka.group, seems to publish to it";
    assert!(ended.log.contains(HALTED) || ended.log.contains(suspicion), "{}", ended.log);
    assert!(!ended.log.contains("--genesis"), "{}", ended.log);
}

#[test]
fn of_two_groups_with_one_output_one_gives_up_and_the_other_goes_on() {
    let topics = Topics::create(kafka::shared(), "two-groups", 1);
    let load = Load::start(kafka::shared(), &topics);
    let mut follower = Follower::new(kafka::shared(), &topics);
    let mut first = start(&topics, "first");
    wait_until_owned(&mut first, 1);
    wait_for_more(&topics, &mut follower, &mut first);
    let second = start(&topics, "second");
    first.wait_until("one of them gives up", |first| {
        first.log().contains(HALTED) || second.log().contains(HALTED)
    });
    let (mut winner, loser) = match second.log().contains(HALTED) {
        true => (first, second),
        false => (second, first),
    };
    assert_gave_up(loser);
    wait_until_owned(&mut winner, 1);
    wait_for_more(&topics, &mut follower, &mut winner);
    load.finish();
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut winner);
    let ended = winner.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    assert!(!ended.log.contains("--genesis"), "{}", ended.log);
    accounts::assert_is_the_replay(kafka::shared(), &topics, follower);
}

/// What the first one has published differs from what the other one makes of its own input.
#[test]
fn who_comes_with_another_input_is_not_told_to_start_over() {
    let topics = Topics::create(kafka::shared(), "two-inputs", 1);
    let load = Load::start(kafka::shared(), &topics);
    let mut first = start(&topics, "first-of-two");
    let mut follower = Follower::new(kafka::shared(), &topics);
    wait_for_more(&topics, &mut follower, &mut first);
    for (what, rounds) in [("shorter-input", 1..=1), ("other-input", 5..=500)] {
        let other = Topics::create(kafka::shared(), what, 1);
        produce(kafka::shared(), &other, &events(1, 20, rounds));
        let mistaken = Topics { output: topics.output.clone(), ..other };
        let mut second = start(&mistaken, what);
        second.wait_until("it gives up", |second| second.log().contains(HALTED));
        assert_gave_up(second);
    }
    wait_for_more(&topics, &mut follower, &mut first);
    load.finish();
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut first);
    let ended = first.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    accounts::assert_is_the_replay(kafka::shared(), &topics, follower);
}
