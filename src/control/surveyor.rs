//! Finds out where the logs of partitions begin and end: their leaders say it.
//!
//! The control thread does not wait. Each pair of leaders, of output and input, is asked on
//! connections of its own: a broker that is silent holds up the partitions that it leads, and no
//! others.

use super::link::Link;
use super::roll_call::RollCall;
use crate::control::dialler::DialOptions;
use crate::fetch::broker_rotation::BrokerRotation;
use crate::fetch::dialling::{DialError, Endpoint, MetadataLink};
use crate::kafka::METADATA_MS_MAX;
use crate::kafka::error_code::ErrorCode;
use crate::kafka::list_offsets::{LogEnd, Offsets};
use crate::kafka::message::{Broker, Metadata, PartitionLeader};
use crate::kafka::right::Right;
use crate::kafka::topic_error::TopicError;
use crate::ownership::bounds::Bounds;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Brokers that are asked at once who leads, so that a silent one holds up no survey.
const BROKERS_ASKED_MAX: usize = 3;

/// Milliseconds for which the other brokers are waited for once one has said who leads. One that is
/// cut off from the controllers may be the first to answer, and names leaders of lower epochs.
const SECOND_OPINION_MS: u64 = 200;

/// Surveys at a time: partitions that come later are surveyed together as soon as one has ended.
const SURVEYS_MAX: usize = 4;

/// Threads that may still wait for brokers when a survey begins. A silent broker keeps one for tens
/// of seconds, a name service for longer.
const THREADS_MAX: usize = 256;

/// Surveys partitions.
pub struct Surveyor {
    /// Each thread that asks has a share of them.
    options: Arc<DialOptions>,
    topics: Topics,
    rotation: BrokerRotation,
    /// The number of each partition's last survey, while its result is awaited.
    awaited: BTreeMap<i32, u64>,
    /// Partitions that wait for a survey to begin.
    waiting: BTreeSet<i32>,
    /// Surveys that have begun.
    surveys: u64,
    /// Surveys that have not ended.
    running: usize,
    sender: mpsc::Sender<Finding>,
    findings: mpsc::Receiver<Finding>,
}

/// The input topic and the output topic.
type Topics = [String; 2];

/// The places of the topics.
const INPUT: usize = 0;
const OUTPUT: usize = 1;

/// What the thread of a survey reports.
enum Finding {
    Brokers(Vec<Broker>),
    Partition { survey: u64, partition: i32, bounds: Result<Bounds, TopicError> },
    End,
}

impl Surveyor {
    /// Asks nobody yet. The options name the input topic; these brokers are known.
    pub fn new(options: DialOptions, output_topic: &str, brokers: &[Broker]) -> Surveyor {
        let (sender, findings) = mpsc::channel();
        let mut rotation = BrokerRotation::new(options.bootstrap.clone());
        rotation.learn(brokers);
        Surveyor {
            topics: [options.topic.clone(), output_topic.to_owned()],
            rotation,
            options: Arc::new(options),
            awaited: BTreeMap::new(),
            waiting: BTreeSet::new(),
            surveys: 0,
            running: 0,
            sender,
            findings,
        }
    }

    /// Surveys partitions. The results of earlier surveys of them do not count any more.
    pub fn begin(&mut self, partitions: &[i32]) {
        self.waiting.extend(partitions);
        self.awaited.retain(|partition, _| !partitions.contains(partition));
        self.begin_waiting();
    }

    fn begin_waiting(&mut self) {
        if self.waiting.is_empty() || self.running == SURVEYS_MAX {
            return;
        }
        self.surveys += 1;
        self.running += 1;
        let partitions: Vec<i32> = std::mem::take(&mut self.waiting).into_iter().collect();
        self.awaited.extend(partitions.iter().map(|partition| (*partition, self.surveys)));
        let mut asked = BTreeSet::new();
        // The known brokers and the configuration may name the same one.
        for _ in 0..2 * BROKERS_ASKED_MAX {
            asked.insert(self.rotation.next(&MetadataLink::New));
            if asked.len() == BROKERS_ASKED_MAX {
                break;
            }
        }
        let survey = SurveyThread {
            number: self.surveys,
            options: self.options.clone(),
            topics: self.topics.clone(),
            asked: asked.into_iter().collect(),
            partitions,
            findings: self.sender.clone(),
        };
        if Arc::strong_count(&self.options) > THREADS_MAX {
            let why = format!("{THREADS_MAX} questions have no answer yet");
            return survey.fail(&TopicError::Unreachable(why));
        }
        let failing = survey.clone();
        let thread = thread::Builder::new().name("survey".to_owned());
        if let Err(error) = thread.spawn(move || survey.run()) {
            failing.fail(&no_thread(error));
        }
    }

    /// Reports each partition whose survey has ended.
    pub fn poll(&mut self, mut take: impl FnMut(i32, Result<Bounds, TopicError>)) {
        for finding in self.findings.try_iter() {
            match finding {
                Finding::Brokers(brokers) => self.rotation.learn(&brokers),
                Finding::Partition { survey, partition, bounds } => {
                    if self.awaited.get(&partition) == Some(&survey) {
                        self.awaited.remove(&partition);
                        take(partition, bounds);
                    }
                }
                Finding::End => self.running -= 1,
            }
        }
        self.begin_waiting();
    }
}

/// One survey, on a thread of its own.
#[derive(Clone)]
struct SurveyThread {
    number: u64,
    options: Arc<DialOptions>,
    topics: Topics,
    /// The brokers that are asked who leads.
    asked: Vec<Endpoint>,
    partitions: Vec<i32>,
    findings: mpsc::Sender<Finding>,
}

/// A question to the leaders of some partitions.
#[derive(Clone)]
struct LeaderQuestion {
    /// By the topic's place.
    leaders: [Endpoint; 2],
    partitions: Vec<i32>,
}

/// The leader epoch and the leader, by topic and partition.
type Leaders = BTreeMap<(usize, i32), (i32, Option<Endpoint>)>;

impl SurveyThread {
    fn run(self) {
        let until = Instant::now() + Duration::from_millis(METADATA_MS_MAX);
        let surveyed =
            self.ask_who_leads(until).and_then(|leaders| self.ask_leaders(&leaders, until));
        match surveyed {
            Ok(()) => self.report(Finding::End),
            Err(error) => self.fail(&error),
        }
    }

    /// Who leads each partition of each topic.
    fn ask_who_leads(&self, until: Instant) -> Result<Leaders, TopicError> {
        let (options, topics) = (self.options.clone(), self.topics.clone());
        let ask = move |broker: Endpoint| ask_who_leads(&broker, &options, &topics);
        let mut call = RollCall::begin(self.asked.clone(), ask, until).map_err(no_thread)?;
        let asked: Vec<String> = self.asked.iter().map(Endpoint::to_string).collect();
        let mut answer = Err(TopicError::Unreachable(late(&asked.join(", "))));
        while let Some((_, next)) = call.next() {
            match (&mut answer, next) {
                (Ok(leaders), Ok(metadata)) => fold_leaders(leaders, &metadata),
                (Ok(_), Err(_)) => {}
                (Err(_), Err(error)) => answer = Err(error),
                (Err(_), Ok(metadata)) => {
                    call.end_by(Instant::now() + Duration::from_millis(SECOND_OPINION_MS));
                    self.report(Finding::Brokers(metadata[0].brokers.clone()));
                    let mut leaders = Leaders::new();
                    fold_leaders(&mut leaders, &metadata);
                    answer = Ok(leaders);
                }
            }
        }
        answer
    }

    /// One question for each pair of leaders. A partition without both has failed.
    fn questions(&self, leaders: &Leaders) -> Vec<LeaderQuestion> {
        let mut by_leaders: BTreeMap<[Endpoint; 2], Vec<i32>> = BTreeMap::new();
        for partition in &self.partitions {
            let leader = |topic| match leaders.get(&(topic, *partition)) {
                Some((_, Some(leader))) => Ok(leader.clone()),
                _ => {
                    let name = &self.topics[topic];
                    let why = format!("partition {partition} of `{name}` has no leader now");
                    Err(TopicError::NotNow(why))
                }
            };
            match (leader(INPUT), leader(OUTPUT)) {
                (Ok(input), Ok(output)) => {
                    by_leaders.entry([input, output]).or_default().push(*partition);
                }
                (Err(error), _) | (_, Err(error)) => self.report_partition(*partition, Err(error)),
            }
        }
        let question = |(leaders, partitions)| LeaderQuestion { leaders, partitions };
        by_leaders.into_iter().map(question).collect()
    }

    fn ask_leaders(&self, leaders: &Leaders, until: Instant) -> Result<(), TopicError> {
        let (options, topics) = (self.options.clone(), self.topics.clone());
        let mut questions = self.questions(leaders);
        let ask = move |question: LeaderQuestion| ask_leaders(&question, &options, &topics);
        let call = RollCall::begin(questions.clone(), ask, until).map_err(no_thread)?;
        for (number, answer) in call {
            // What is left in a question has no answer.
            for partition in std::mem::take(&mut questions[number].partitions) {
                let leader_epoch = leaders.get(&(INPUT, partition)).map_or(-1, |(epoch, _)| *epoch);
                let bounds = answer.as_ref().map_err(Clone::clone).and_then(|offsets| {
                    let extent = |topic: usize| {
                        extent_of(&offsets[topic], partition)
                            .map_err(|error| refused(&self.topics[topic], error))
                    };
                    Ok(bounds(&extent(INPUT)?, leader_epoch, &extent(OUTPUT)?))
                });
                self.report_partition(partition, bounds);
            }
        }
        for LeaderQuestion { leaders, partitions } in questions {
            let leaders = BTreeSet::from(leaders.map(|leader| leader.to_string()));
            let leaders: Vec<String> = leaders.into_iter().collect();
            let error = TopicError::Unreachable(late(&leaders.join(" or ")));
            for partition in partitions {
                self.report_partition(partition, Err(error.clone()));
            }
        }
        Ok(())
    }

    fn fail(&self, error: &TopicError) {
        for partition in &self.partitions {
            self.report_partition(*partition, Err(error.clone()));
        }
        self.report(Finding::End);
    }

    /// The first report about a partition counts.
    fn report_partition(&self, partition: i32, bounds: Result<Bounds, TopicError>) {
        self.report(Finding::Partition { survey: self.number, partition, bounds });
    }

    fn report(&self, finding: Finding) {
        // Nobody is there any more only when the daemon ends.
        drop(self.findings.send(finding));
    }
}

fn ask_who_leads(
    broker: &Endpoint,
    options: &DialOptions,
    topics: &Topics,
) -> Result<[Metadata; 2], TopicError> {
    let mut link = Link::open(broker, options).map_err(unanswered)?;
    let [input, output] = topics.each_ref().map(|topic| {
        let metadata = link.ask_metadata(options, topic).map_err(unanswered)?;
        match metadata.error.is_none() {
            true => Ok(metadata),
            false => Err(refused(topic, metadata.error)),
        }
    });
    Ok([input?, output?])
}

/// Takes over what a broker says. Of two leaders the one with the higher epoch counts.
fn fold_leaders(leaders: &mut Leaders, metadata: &[Metadata; 2]) {
    for (topic, Metadata { partitions, brokers, .. }) in metadata.iter().enumerate() {
        for PartitionLeader { partition, leader, leader_epoch, .. } in partitions {
            let found = brokers.iter().find(|broker| Some(broker.node_id) == *leader);
            let said = (*leader_epoch, found.map(Endpoint::of));
            let known = leaders.entry((topic, *partition)).or_insert_with(|| said.clone());
            if (known.0, known.1.is_some()) < (said.0, said.1.is_some()) {
                *known = said;
            }
        }
    }
}

/// Where the logs of some partitions begin, and where they end.
type LogOffsets = [Offsets; 2];

/// Asks the leader of the output, then that of the input: an owner may append meanwhile.
fn ask_leaders(
    LeaderQuestion { leaders, partitions }: &LeaderQuestion,
    options: &DialOptions,
    topics: &Topics,
) -> Result<[LogOffsets; 2], TopicError> {
    let ask = |topic: usize| {
        let mut link = Link::open(&leaders[topic], options).map_err(unanswered)?;
        let mut ask =
            |end| link.ask_offsets(options, &topics[topic], partitions, end).map_err(unanswered);
        Ok([ask(LogEnd::Earliest)?, ask(LogEnd::Latest)?])
    };
    let output = ask(OUTPUT)?;
    Ok([ask(INPUT)?, output])
}

fn extent_of([starts, ends]: &LogOffsets, partition: i32) -> Result<Range<i64>, ErrorCode> {
    let offset = |offsets: &Offsets| match offsets.iter().find(|(of, _)| *of == partition) {
        Some((_, Ok(offset))) if *offset >= 0 => Ok(*offset),
        Some((_, Err(error))) => Err(*error),
        _ => Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
    };
    Ok(offset(starts)?..offset(ends)?)
}

fn bounds(input: &Range<i64>, input_leader_epoch: i32, output: &Range<i64>) -> Bounds {
    Bounds {
        input_start: input.start,
        input_end: input.end,
        input_leader_epoch,
        output_start: output.start,
        output_end: output.end,
    }
}

/// A broker has refused what it was asked of a topic. Leaders move, and rights are given.
fn refused(topic: &str, error: ErrorCode) -> TopicError {
    TopicError::NotNow(match error.is_forbidden() {
        true => TopicError::refused(topic, Right::Read, error).to_string(),
        false => format!("`{topic}`: {error}"),
    })
}

fn unanswered(error: DialError) -> TopicError {
    match error {
        DialError::Answer { .. } => TopicError::NotNow(error.to_string()),
        _ => TopicError::Unreachable(error.to_string()),
    }
}

fn late(brokers: &str) -> String {
    format!("no answer from {brokers} within {} s", METADATA_MS_MAX / 1_000)
}

fn no_thread(error: io::Error) -> TopicError {
    TopicError::NotNow(format!("no thread is left to ask the brokers: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(node_id: i32, leader_epoch: i32) -> Metadata {
        let (leader, error) = (Some(node_id), ErrorCode::NONE);
        Metadata {
            brokers: vec![Broker { node_id, host: format!("broker-{node_id}"), port: 9092 }],
            cluster_id: None,
            controller: None,
            error,
            topic_id: 0,
            partitions: vec![PartitionLeader { partition: 7, leader, leader_epoch, error }],
            replicas: 1,
        }
    }

    /// The one that is cut off from the controllers takes itself for the leader that it was.
    #[test]
    fn of_two_leaders_the_one_with_the_higher_epoch_counts_in_any_order() {
        let answers = [[metadata(1, 4), metadata(2, 9)], [metadata(3, 5), metadata(4, 8)]];
        for order in [[0, 1], [1, 0]] {
            let mut leaders = Leaders::new();
            order.into_iter().for_each(|place: usize| fold_leaders(&mut leaders, &answers[place]));
            let host = |topic| leaders[&(topic, 7)].1.as_ref().expect("it has one").host.clone();
            assert_eq!((host(0), host(1)), ("broker-3".to_owned(), "broker-2".to_owned()));
        }
    }
}
