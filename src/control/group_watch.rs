//! Who is in the group, what it has committed, and which outputs have fallen quiet: brokers are
//! asked every 300 ms, or every second about a thousand partitions, for the placement of copies.

use super::ControlOptions;
use super::dialler::DialOptions;
use super::group_coordinator::GroupCoordinator;
use crate::kafka::client::{KafkaReader, committed, log_ends, reader, reader_config};
use crate::kafka::group::GroupOptions;
use crate::kafka::group_description::SeenMembers;
use crate::kafka::membership::GroupView;
use crate::kafka::quiet_outputs::{PLAYS, QuietOutput, QuietOutputs};
use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two questions.
const WATCH_EVERY: Duration = Duration::from_millis(300);

/// The same for each partition whose ends are asked for: what the answers cost is bounded.
const WATCH_EVERY_OF_ONE: Duration = Duration::from_millis(1);

/// Time that brokers may take to answer one.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Time for an answer about the ends of one topic's logs. If a leader is silent, six answers are
/// waited for between two looks, and all looks have to see outputs that grow:
/// [`PLAYS`](crate::kafka::quiet_outputs::PLAYS) is longer.
const ENDS_ANSWER_MAX: Duration = Duration::from_millis(700);
const _: () = assert!(6 * ENDS_ANSWER_MAX.as_millis() < PLAYS.as_millis());

/// Time after an output was quiet in which the group is asked: until copies of its zone have ended.
const VIEWS_WANTED: Duration = Duration::from_secs(60);

/// Time for an answer about commits without a group: zones must not wait for it.
const COMMITTED_WAIT_MAX: Duration = Duration::from_millis(200);

/// Views that wait for the control thread. One that is behind needs the next one only.
const VIEWS_MAX: usize = 1;

/// A thread that asks the brokers. Dropped, it ends with its next question; nobody waits for it.
pub(crate) struct GroupWatch {
    views: Receiver<GroupView>,
    /// How to ask how many members the group has.
    coordinator: (DialOptions, GroupOptions),
    /// The answers, and where they are sent; `None`: nobody says it.
    counts: (Sender<Option<usize>>, Receiver<Option<usize>>),
    /// Dropped, it ends the thread.
    _watching: Sender<()>,
}

impl GroupWatch {
    /// Begins to ask. Without a thread or a client for it, nothing is ever seen.
    pub(crate) fn start(options: &ControlOptions, partitions: i32) -> GroupWatch {
        let (seen, views) = mpsc::sync_channel(VIEWS_MAX);
        let (watching, watched) = mpsc::channel::<()>();
        let standby = options.standby;
        // Copies of all zones notice by themselves what falls quiet.
        let output_topic =
            standby.follows_quiet_zones().then(|| options.output.output_topic.clone());
        let group = &options.group;
        let input_topic = group.input_topic.clone();
        let coordinator = GroupCoordinator::new(options.dial.clone(), group.clone());
        let mut members = Members { coordinator, seen: SeenMembers::default() };
        let mut watch = move |client: KafkaReader| {
            let mut outputs = QuietOutputs::new(standby.is_without_group);
            let mut wanted_until = None;
            let committed_wait =
                if standby.is_without_group { COMMITTED_WAIT_MAX } else { ANSWER_MAX };
            let every = match output_topic {
                Some(_) => watch_every(partitions),
                None => WATCH_EVERY,
            };
            loop {
                if watched.recv_timeout(every) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
                // The client reads nothing; polling only lets it ask for a token.
                drop(client.poll(Duration::ZERO));
                let quiet = output_topic.as_deref().and_then(|output_topic| {
                    let ends = |topic| log_ends(&client, topic, partitions, ENDS_ANSWER_MAX).ok();
                    let (inputs, ends) = (ends(&input_topic)?, ends(output_topic)?);
                    Some(outputs.look(&inputs, &ends, Instant::now()))
                });
                let quiet = quiet.unwrap_or_default();
                let now = Instant::now();
                if !quiet.is_empty() {
                    wanted_until = Some(now + VIEWS_WANTED);
                }
                // Nobody is asked in vain.
                if standby.copies == 0 && wanted_until.is_none_or(|until| until < now) {
                    continue;
                }
                let topic = (input_topic.as_str(), partitions);
                if let Some(view) = view(&mut members, &client, topic, quiet, committed_wait) {
                    // A view that the control thread has not taken yet is as good as this one.
                    drop(seen.try_send(view));
                }
            }
        };
        if standby.is_on()
            && let Ok(client) = reader(&reader_config(&group.client), &group.client)
        {
            let thread = thread::Builder::new().name("group-watch".to_owned());
            let _unwatched = thread.spawn(move || watch(client));
        }
        GroupWatch {
            views,
            coordinator: (options.dial.clone(), group.clone()),
            counts: mpsc::channel(),
            _watching: watching,
        }
    }

    /// Asks how many members the group has, in a thread that waits for nothing else. Without one,
    /// there is no answer.
    pub(super) fn ask_members(&self) {
        let ((dial, group), counted) = (self.coordinator.clone(), self.counts.0.clone());
        let ask = move || {
            let described = GroupCoordinator::new(dial, group).describe();
            let _has_ended = counted.send(described.ok().map(|group| group.members.len()));
        };
        let _unasked = thread::Builder::new().name("members".to_owned()).spawn(ask);
    }

    /// Returns the answer to [`GroupWatch::ask_members`], once it is there.
    pub(super) fn next_members(&self) -> Option<Option<usize>> {
        self.counts.1.try_recv().ok()
    }

    /// The newest view that was not taken yet.
    pub(crate) fn next_view(&self) -> Option<GroupView> {
        self.views.try_recv().ok()
    }
}

/// Time between two questions about the ends of so many partitions.
fn watch_every(partitions: i32) -> Duration {
    WATCH_EVERY.max(WATCH_EVERY_OF_ONE * partitions.unsigned_abs())
}

/// Who is in the group, as its coordinator has said last.
struct Members {
    coordinator: GroupCoordinator,
    seen: SeenMembers,
}

/// The group as it is now; `None`: nobody says, or it is being rebalanced and no zone is quiet.
fn view(
    members: &mut Members,
    client: &KafkaReader,
    (topic, partitions): (&str, i32),
    quiet: BTreeMap<i32, QuietOutput>,
    committed_wait: Duration,
) -> Option<GroupView> {
    let described = members.coordinator.describe().ok()?;
    let members = members.seen.take(described, !quiet.is_empty())?;
    let committed = committed(client, topic, partitions, committed_wait).unwrap_or_default();
    let known = (0..).zip(committed).filter_map(|(partition, offset)| Some((partition, offset?)));
    Some(GroupView { members, committed: known.collect(), quiet })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::list_offsets::{self, LogEnd};
    use crate::kafka::message::Envelope;

    /// Bytes of an answer to ListOffsets for each partition.
    const ANSWER_BYTES: usize = 22;

    #[test]
    fn the_ends_of_many_partitions_cost_no_more_than_those_of_300() {
        let bytes_per_s = |partitions: i32| {
            let envelope = Envelope { version: 1, correlation_id: 7, client_id: "huntd" };
            let all: Vec<i32> = (0..partitions).collect();
            let mut request = Vec::new();
            list_offsets::request(envelope, "events", &all, LogEnd::Latest, &mut request);
            let of_both_topics = 2 * (request.len() + ANSWER_BYTES * all.len());
            (of_both_topics as f64 / watch_every(partitions).as_secs_f64()) as u64
        };
        assert_eq!([16, 300, 1_024].map(|count| bytes_per_s(count) / 1_000), [3, 68, 68]);
    }
}
