//! Who is in the group, what it has committed, and which outputs have fallen quiet: brokers are
//! asked every 300 ms, or every second about a thousand partitions, for the placement of copies.

use crate::kafka::client::{KafkaReader, log_ends, offsets, reader, reader_config};
use crate::kafka::group::GroupOptions;
use crate::kafka::membership::{GroupMember, GroupView};
use crate::kafka::quiet_outputs::QuietOutputs;
use crate::kafka::wire::WireReader;
use rdkafka::consumer::Consumer;
use rdkafka::groups::GroupInfo;
use rdkafka::topic_partition_list::TopicPartitionList;
use std::collections::BTreeSet;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two questions.
const WATCH_EVERY: Duration = Duration::from_millis(300);

/// The same for each partition whose ends are asked for: what the answers cost is bounded.
const WATCH_EVERY_OF_ONE: Duration = Duration::from_millis(1);

/// Time that brokers may take to answer one.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Time after an output was quiet in which the group is asked: until copies of its zone have ended.
const VIEWS_WANTED: Duration = Duration::from_secs(60);

/// Views that wait for the control thread. One that is behind needs the next one only.
const VIEWS_MAX: usize = 1;

/// The state of a group that is not being rebalanced.
const STABLE: &str = "Stable";

/// A thread that asks the brokers. Dropped, it ends with its next question; nobody waits for it.
pub(crate) struct GroupWatch {
    views: Receiver<GroupView>,
    /// Nothing is ever sent: dropping it ends the thread.
    _alive: Option<Sender<()>>,
}

impl GroupWatch {
    /// Begins to ask. Without a thread or a client for it, nothing is ever seen. Outputs are
    /// watched if their topic is named.
    pub(crate) fn start(
        options: &GroupOptions,
        output_topic: Option<&str>,
        partitions: i32,
    ) -> GroupWatch {
        let (seen, views) = mpsc::sync_channel(VIEWS_MAX);
        let (alive, ended) = mpsc::channel::<()>();
        let client = reader(&reader_config(&options.client), &options.client);
        let (options, output_topic) = (options.clone(), output_topic.map(str::to_owned));
        let watch = move |client: KafkaReader| {
            let mut outputs = QuietOutputs::default();
            let mut wanted_until = None;
            let every = match output_topic {
                Some(_) => watch_every(partitions),
                None => WATCH_EVERY,
            };
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                // The client reads nothing; polling only lets it ask for a token.
                drop(client.poll(Duration::ZERO));
                let quiet = output_topic.as_deref().and_then(|output_topic| {
                    let ends = |topic| log_ends(&client, topic, partitions, ANSWER_MAX).ok();
                    let (inputs, ends) = (ends(&options.input_topic)?, ends(output_topic)?);
                    Some(outputs.look(&inputs, &ends, Instant::now()))
                });
                let quiet = quiet.unwrap_or_default();
                let now = Instant::now();
                if !quiet.is_empty() {
                    wanted_until = Some(now + VIEWS_WANTED);
                }
                // The answer names all groups of the cluster: it is not asked for in vain.
                if output_topic.is_some() && wanted_until.is_none_or(|until| until < now) {
                    continue;
                }
                if let Some(view) = view(&client, &options, partitions, quiet) {
                    // A view that the control thread has not taken yet is as good as this one.
                    drop(seen.try_send(view));
                }
            }
        };
        let thread = client.ok().and_then(|client| {
            thread::Builder::new().name("group-watch".to_owned()).spawn(move || watch(client)).ok()
        });
        GroupWatch { views, _alive: thread.map(|_| alive) }
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

/// The group as it is now; `None`: it is being rebalanced, or nobody says.
fn view(
    client: &KafkaReader,
    options: &GroupOptions,
    partitions: i32,
    quiet: BTreeSet<i32>,
) -> Option<GroupView> {
    let (group, topic) = (&options.client.group, &options.input_topic);
    let listed = client.client().fetch_group_list(Some(group), ANSWER_MAX).ok()?;
    let listed = listed.groups().iter().find(|listed| listed.name() == group)?;
    let members = members(listed, topic)?;
    let mut list = TopicPartitionList::with_capacity(partitions as usize);
    list.add_partition_range(topic, 0, partitions - 1);
    let committed = offsets(&client.committed_offsets(list, ANSWER_MAX).ok()?, topic, partitions);
    let known = (0..).zip(committed).filter_map(|(partition, offset)| Some((partition, offset?)));
    Some(GroupView { members, committed: known.collect(), quiet })
}

fn members(listed: &GroupInfo, topic: &str) -> Option<Vec<GroupMember>> {
    if listed.state() != STABLE {
        return None;
    }
    let member = |member: &rdkafka::groups::GroupMemberInfo| {
        Some(GroupMember {
            id: member.id().to_owned(),
            host: member.client_host().to_owned(),
            partitions: assigned(member.assignment().unwrap_or_default(), topic)?,
        })
    };
    listed.members().iter().map(member).collect()
}

/// The partitions of a topic in a member's assignment (`ConsumerProtocolAssignment`); `None` if it
/// is none.
fn assigned(assignment: &[u8], topic: &str) -> Option<Vec<i32>> {
    if assignment.is_empty() {
        return Some(Vec::new());
    }
    let mut reader = WireReader::resume(assignment, 0);
    let _version = reader.i16().ok()?;
    let mut partitions = Vec::new();
    for _ in 0..reader.i32().ok()? {
        let name = reader.string(false).ok()?;
        let is_ours = name == topic;
        for _ in 0..reader.i32().ok()? {
            let partition = reader.i32().ok()?;
            partitions.extend(is_ours.then_some(partition));
        }
    }
    Some(partitions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::list_offsets::{self, LogEnd};
    use crate::kafka::message::Envelope;
    use crate::kafka::wire::WireWriter;

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

    /// An assignment of these topics.
    fn assignment(topics: &[(&str, &[i32])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = WireWriter::new(&mut bytes);
        writer.i16(1);
        writer.i32(topics.len() as i32);
        for (topic, partitions) in topics {
            writer.string(topic, false);
            writer.i32(partitions.len() as i32);
            partitions.iter().for_each(|partition| writer.i32(*partition));
        }
        writer.i32(-1); // user data
        bytes
    }

    #[test]
    fn an_assignment_names_partitions_of_the_topic_and_nothing_that_is_cut() {
        let whole = assignment(&[("others", &[7]), ("events", &[0, 3])]);
        assert_eq!(assigned(&whole, "events"), Some(vec![0, 3]));
        assert_eq!(assigned(&whole, "nothing"), Some(Vec::new()));
        assert_eq!(assigned(&[], "events"), Some(Vec::new()));
        for cut in 1..whole.len() - 4 {
            assert_eq!(assigned(&whole[..cut], "events"), None, "{cut}");
        }
    }

    #[test]
    fn a_count_beyond_the_end_is_no_assignment() {
        let mut bytes = assignment(&[("events", &[0])]);
        bytes[2..6].copy_from_slice(&i32::MAX.to_be_bytes());
        assert_eq!(assigned(&bytes, "events"), None);
    }
}
