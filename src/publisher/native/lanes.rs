//! The idempotent producer without its connections: frames in, requests out, answers in, deliveries
//! out.
//!
//! Pure: connections, time and brokers' answers are arguments, so the simulator drives the same
//! code. One request takes a batch of every partition that has one, as its broker leads them.
//! Frames of a partition reach its log once and in their order. If one cannot be delivered, the
//! delivery of all that follow in the partition fails, too.

use super::lane::{Done, Lane, Sealing, UNDER_WAY_MAX};
use super::pending::{PendingRequest, PendingRequests, RequestKind};
use super::producer_id_request::ProducerIdRequest;
use super::suspects::SuspectLeaders;
use crate::kafka::batch_writer::ProducerId;
use crate::kafka::error_code::ErrorCode;
use crate::kafka::lz4_text::TextCompressor;
use crate::kafka::message::{Envelope, MessageError, Metadata, Versions};
use crate::kafka::metadata::{LeaderTable, MetadataError};
use crate::kafka::produce::{self, ProduceAnswer, ProduceRemedy, Produced};
use crate::kafka::producer_id;
use crate::kafka::right::Right;
use crate::kafka::topic_error::TopicError;
use crate::kafka::{LEADERLESS_MS_MAX, RECONNECT_MS_MAX};
use crate::output::frame::Compression;
use crate::ownership::group_session::TOPIC_MISSING_MS_MAX;
use crate::publisher::producer::{Delivery, OFFSET_UNKNOWN, SendFailure};
use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// Requests of a connection that may be unanswered. A broker reads them one after the other.
const REQUESTS_MAX: usize = UNDER_WAY_MAX;

/// Bytes of a request after which it takes no further batch. The rest goes with the next.
const REQUEST_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Milliseconds that a broker may wait for its replicas.
pub(super) const REPLICAS_MS_MAX: i32 = 10_000;

/// Pieces of memory that are kept for later batches.
const SPARE_MAX: usize = 64;

/// What the operator chose.
pub(super) struct LaneOptions {
    /// How the client names itself to brokers.
    pub client_id: String,
    /// The topic of all frames.
    pub topic: String,
    /// How batches are compressed.
    pub compression: Compression,
}

/// All lanes, by partition, and what is known of their brokers.
pub(super) struct Lanes<T> {
    options: LaneOptions,
    lanes: Vec<Lane<T>>,
    /// Partitions with a batch that is not under way.
    waiting: BTreeSet<i32>,
    /// Which of them comes first.
    first: i32,
    /// Partitions that may get a frame at any time.
    expected: BTreeSet<i32>,
    table: LeaderTable,
    pending: PendingRequests,
    producer_id: ProducerIdRequest,
    /// What the log should be told of the last answer.
    trouble: Option<String>,
    told: VecDeque<Delivery<T>>,
    compressor: Option<TextCompressor>,
    memory: Vec<Vec<u8>>,
    /// Of the last request.
    correlation_id: i32,
    /// Of the last batch.
    number: u64,
    /// Since when brokers say that there is no such topic or partition.
    missing_since: Option<Instant>,
    /// Leaders that may have been replaced without knowing it.
    pub(super) suspects: SuspectLeaders,
}

impl<T> Lanes<T> {
    /// Nothing waits, and no broker is known.
    pub(super) fn new(options: LaneOptions) -> Lanes<T> {
        let compressor = (options.compression == Compression::Lz4).then(TextCompressor::new);
        Lanes {
            options,
            lanes: Vec::new(),
            waiting: BTreeSet::new(),
            first: 0,
            expected: BTreeSet::new(),
            table: LeaderTable::new(),
            pending: PendingRequests::new(),
            producer_id: ProducerIdRequest::new(),
            trouble: None,
            told: VecDeque::new(),
            compressor,
            memory: Vec::new(),
            correlation_id: 0,
            number: 0,
            missing_since: None,
            suspects: SuspectLeaders::default(),
        }
    }

    /// Gets a connection and a producer id for a partition before its first frame.
    pub(super) fn expect_frames(&mut self, partition: i32) {
        self.place(partition);
        self.expected.insert(partition);
    }

    /// Needs neither before the next frame.
    pub(super) fn expect_no_frames(&mut self, partition: i32) {
        self.expected.remove(&partition);
    }

    /// Takes a copy of a frame.
    pub(super) fn push(&mut self, partition: i32, value: &[u8], receipt: T) {
        let place = self.place(partition);
        self.number += 1;
        self.lanes[place].push(value, receipt, self.number, &mut self.memory);
        self.waiting.insert(partition);
    }

    /// Returns the place of a partition's lane, which is there from now on.
    fn place(&mut self, partition: i32) -> usize {
        let place = usize::try_from(partition).expect("partition numbers are not negative");
        if place >= self.lanes.len() {
            self.lanes.resize_with(place + 1, Lane::new);
        }
        place
    }

    /// The next delivery that is known.
    pub(super) fn next_delivery(&mut self) -> Option<Delivery<T>> {
        self.told.pop_front()
    }

    /// Whether something is not under way.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether a leader must be asked for.
    pub(super) fn needs_metadata(&self) -> bool {
        self.wanted().any(|partition| self.table.leader(partition).is_none())
    }

    /// Whether another broker leads a partition of the request that this one has to answer next. If
    /// the request is for a producer id, whether others lead everything that waits.
    pub(super) fn is_superseded(&self, node_id: i32) -> bool {
        let leads =
            |(it, _): &(i32, u64)| self.table.leader(*it).is_none_or(|it| it.node_id == node_id);
        self.pending.oldest(node_id).is_some_and(|asked| match &asked.what {
            RequestKind::Batches(numbers) => !numbers.iter().all(leads),
            RequestKind::ProducerId => {
                let mut leaders = self.waiting.iter().filter_map(|it| self.table.leader(*it));
                leaders.all(|leader| leader.node_id != node_id)
            }
        })
    }

    /// Takes over what a broker says about the cluster, the topic, and the broker that is doubted.
    pub(super) fn learn(&mut self, metadata: &Metadata, doubted: Option<i32>, now: Instant) {
        let mut folded = self.table.fold_doubting(metadata, doubted);
        if matches!(folded, Err(error) if error.is_final()) {
            // The stages that read the topic decide what that means for the shards.
            self.table = LeaderTable::new();
            folded = self.table.fold(metadata);
        }
        let topic_error = match folded {
            Err(MetadataError::Topic(error)) => error,
            _ => ErrorCode::NONE,
        };
        if topic_error.is_forbidden() {
            let refused = TopicError::not_authorised(&self.options.topic, Right::Write);
            return self.give_up_waiting(&refused.to_string(), |_, _| true);
        }
        let partitions = match topic_error {
            ErrorCode::NONE => self.table.partition_count() as i32,
            // A broker that has just started knows no topic yet.
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION if self.needs_metadata() => 0,
            _ => return,
        };
        if self.waiting.last().is_none_or(|last| *last < partitions) {
            self.missing_since = None;
            return;
        }
        let since = *self.missing_since.get_or_insert(now);
        if now.saturating_duration_since(since) >= Duration::from_millis(TOPIC_MISSING_MS_MAX) {
            let missing = TopicError::Missing(self.options.topic.clone());
            self.give_up_waiting(&missing.to_string(), |partition, _| partition >= partitions);
            self.missing_since = None;
        }
    }

    /// The brokers that there are connections to make to: they lead what waits or is expected.
    pub(super) fn leaders(&self) -> BTreeSet<i32> {
        let leader = |partition| Some(self.table.leader(partition)?.node_id);
        self.wanted().filter_map(leader).collect()
    }

    /// Partitions that need a leader, some of them twice.
    fn wanted(&self) -> impl Iterator<Item = i32> + '_ {
        self.waiting.iter().chain(&self.expected).copied()
    }

    /// What is known of the cluster.
    pub(super) fn table(&self) -> &LeaderTable {
        &self.table
    }

    /// When a batch may be sent, if it waits only for time.
    pub(super) fn next_at(&self, now: Instant) -> Option<Instant> {
        let waiting = self.waiting.iter().map(|partition| &self.lanes[*partition as usize]);
        let id_at = self.producer_id.retry_at().filter(|_| self.wanted().next().is_some());
        waiting.filter_map(Lane::retry_at).chain(id_at).filter(|at| *at > now).min()
    }

    /// Writes the next request to a connected broker. False: there is none now.
    pub(super) fn next_request(
        &mut self,
        node_id: i32,
        versions: Versions,
        (now, now_ms): (Instant, i64),
        out: &mut Vec<u8>,
    ) -> bool {
        if self.pending.count(node_id) >= REQUESTS_MAX || self.wanted().next().is_none() {
            return false;
        }
        let (leaving, is_id_missing) = self.leaving(node_id, now);
        let correlation_id = self.correlation_id.wrapping_add(1);
        let envelope =
            |version| Envelope { version, correlation_id, client_id: &self.options.client_id };
        let asks = is_id_missing && self.producer_id.may_ask(now);
        let what = match asks {
            true => {
                producer_id::request(envelope(versions.init_producer_id), out);
                self.producer_id.ask();
                RequestKind::ProducerId
            }
            false if leaving.is_empty() => return false,
            false => {
                let mut sealing = Sealing {
                    producer: self.producer_id.producer(),
                    time_ms: now_ms,
                    compressor: self.compressor.as_mut(),
                    memory: &mut self.memory,
                };
                let (mut batches, mut numbers) = (Vec::new(), Vec::new());
                let (mut lanes, mut at) = (self.lanes.as_mut_slice(), 0);
                for partition in leaving {
                    let place = partition as usize;
                    let (lane, rest) = lanes[place - at..].split_first_mut().expect("it waits");
                    (lanes, at) = (rest, place + 1);
                    let (number, batch) = lane.leave(node_id, &mut sealing);
                    batches.push((partition, batch));
                    numbers.push((partition, number));
                }
                let envelope = envelope(versions.produce);
                let (topic, batches) = (&self.options.topic, batches.into_iter());
                produce::request(envelope, topic, REPLICAS_MS_MAX, batches, out);
                RequestKind::Batches(numbers)
            }
        };
        self.correlation_id = correlation_id;
        if let RequestKind::Batches(numbers) = &what {
            numbers.iter().for_each(|(partition, _)| self.note_waiting(*partition));
        }
        self.pending.push(node_id, PendingRequest { correlation_id, at: now, what });
        true
    }

    /// Partitions that have a batch for a broker, in their order, and whether others of its lanes
    /// lack a producer id. If they are too many for one request, the next one begins with the rest.
    fn leaving(&mut self, node_id: i32, now: Instant) -> (Vec<i32>, bool) {
        let Lanes { waiting, expected, table, lanes, first, producer_id, .. } = self;
        let has_id = producer_id.producer().is_some();
        let leads = |partition: i32| {
            table.leader(partition).is_some_and(|leader| leader.node_id == node_id)
        };
        let lacks_id = |lane: &Lane<T>| !has_id && lane.producer().is_none();
        let mut expected = expected.iter().copied();
        let mut is_id_missing = expected.any(|it| lacks_id(&lanes[it as usize]) && leads(it));
        let (mut bytes, mut leaving) = (0, Vec::new());
        for partition in waiting.range(*first..).chain(waiting.range(..*first)).copied() {
            let lane = &mut lanes[partition as usize];
            if !leads(partition) || !lane.may_leave(node_id, now) {
                continue;
            }
            if lacks_id(lane) {
                is_id_missing = true;
                continue;
            }
            if bytes >= REQUEST_BYTES_MAX {
                *first = partition;
                break;
            }
            bytes += lane.next_bytes();
            leaving.push(partition);
        }
        leaving.sort_unstable();
        (leaving, is_id_missing)
    }

    /// Since when a broker may answer its oldest request; `None`: it has answered all.
    pub(super) fn asked_at(&self, node_id: i32) -> Option<Instant> {
        self.pending.oldest(node_id).map(|asked| asked.at)
    }

    /// Reads a broker's answer to its oldest request, and gives the milliseconds that it throttles
    /// for. With an error, the connection is of no use.
    pub(super) fn answered(
        &mut self,
        node_id: i32,
        bytes: &[u8],
        now: Instant,
    ) -> Result<u32, MessageError> {
        let asked = self.pending.answered(node_id, now);
        match &asked.what {
            RequestKind::ProducerId => {
                self.producer_id.unask();
                let answer = producer_id::parse_answer(bytes, asked.correlation_id)?;
                self.producer_id_answered(answer, now);
                Ok(0)
            }
            RequestKind::Batches(numbers) => {
                let (topic, id) = (&self.options.topic, asked.correlation_id);
                let answer = produce::parse_answer(bytes, id, topic);
                let brokers = answer.iter().flat_map(|answer| &answer.brokers);
                brokers.for_each(|broker| self.table.learn_broker(broker.clone()));
                for (partition, number) in numbers {
                    let produced = answer.as_ref().ok().and_then(|answer| {
                        answer.produced.iter().find(|produced| produced.partition == *partition)
                    });
                    match produced {
                        Some(produced) => self.settle(*number, *produced, node_id, now),
                        None => self.came_back(*partition, *number),
                    }
                }
                match answer? {
                    ProduceAnswer { produced, throttle_ms, .. }
                        if produced.len() >= numbers.len() =>
                    {
                        Ok(throttle_ms)
                    }
                    _ => Err(MessageError::TopicMissing { api: "Produce" }),
                }
            }
        }
    }

    /// What an answer says is wrong, if the log has not been told yet.
    pub(super) fn take_trouble(&mut self) -> Option<String> {
        self.trouble.take()
    }

    /// The connection to a broker is gone, or there was none: the batches that were sent there come
    /// back.
    pub(super) fn closed(&mut self, node_id: i32) {
        for asked in self.pending.take(node_id) {
            match asked.what {
                RequestKind::ProducerId => self.producer_id.unask(),
                RequestKind::Batches(numbers) => {
                    numbers.iter().for_each(|(partition, number)| {
                        self.came_back(*partition, *number);
                    });
                }
            }
        }
        self.table.mark_broker_stale(node_id);
    }

    fn producer_id_answered(&mut self, answer: Result<ProducerId, ErrorCode>, now: Instant) {
        match answer {
            Ok(producer) => self.producer_id.given(producer),
            Err(error) => {
                self.producer_id.refused(now);
                self.trouble = Some(format!("the broker gives no producer id: {error}"));
                if error.is_forbidden() {
                    let sentence = format!(
                        "the broker gives no producer id: {error} Grant WRITE on `{}` to huntd's \
                         user.",
                        self.options.topic
                    );
                    self.give_up_waiting(&sentence, |_, lane| lane.producer().is_none());
                }
            }
        }
    }

    fn settle(&mut self, number: u64, produced: Produced, node_id: i32, now: Instant) {
        let Produced { partition, error, base_offset, leader } = produced;
        let lane = &mut self.lanes[partition as usize];
        if error.is_none() {
            if let Some(done) = lane.acked(number) {
                let offsets = base_offset..;
                self.tell(done, |place| (offsets.start + place as i64, None));
            }
            return self.note_waiting(partition);
        }
        let records = lane.records(number);
        if records == 0 {
            return;
        }
        let topic = &self.options.topic;
        self.trouble =
            Some(format!("partition {partition} of `{topic}` does not take a batch now: {error}"));
        let remedy = produce::remedy(error);
        let mut wait_ms_max = RECONNECT_MS_MAX;
        match remedy {
            ProduceRemedy::Resend => {}
            ProduceRemedy::ResendSometimes if !lane.waits_longest() => {}
            ProduceRemedy::ResendDoubting => self.suspects.add(node_id),
            ProduceRemedy::AskLeader => {
                self.table.refused(partition, node_id, leader);
                wait_ms_max = LEADERLESS_MS_MAX;
            }
            ProduceRemedy::ResendBefore if !lane.is_oldest(number) => {}
            _ => return self.refuse(partition, error, remedy, records),
        }
        lane.refused(number, now, wait_ms_max);
        self.note_waiting(partition);
    }

    /// The frames of a lane are given up.
    fn refuse(&mut self, partition: i32, error: ErrorCode, remedy: ProduceRemedy, records: usize) {
        let topic = &self.options.topic;
        let sentence = match error.is_forbidden() {
            true => TopicError::refused(topic, Right::Write, error).to_string(),
            false => format!("partition {partition} of `{topic}` does not take a batch: {error}"),
        };
        let cause = match remedy {
            ProduceRemedy::Split if records == 1 => LaneFailure::TooLarge,
            ProduceRemedy::Split => {
                self.lanes[partition as usize].share_no_more();
                LaneFailure::Passing
            }
            ProduceRemedy::NewProducerId => LaneFailure::Unknown,
            _ => LaneFailure::Passing,
        };
        self.fail(partition, &sentence, cause);
    }

    fn came_back(&mut self, partition: i32, number: u64) {
        self.lanes[partition as usize].came_back(number);
        self.note_waiting(partition);
    }

    fn note_waiting(&mut self, partition: i32) {
        match self.lanes[partition as usize].has_waiting() {
            true => self.waiting.insert(partition),
            false => self.waiting.remove(&partition),
        };
    }

    /// Gives up what waits for the chosen partitions.
    fn give_up_waiting(&mut self, sentence: &str, is_chosen: impl Fn(i32, &Lane<T>) -> bool) {
        let is_chosen = |partition: &i32| is_chosen(*partition, &self.lanes[*partition as usize]);
        let waiting = self.waiting.iter().copied().filter(is_chosen);
        for partition in waiting.collect::<Vec<i32>>() {
            self.fail(partition, sentence, LaneFailure::Passing);
        }
    }

    fn fail(&mut self, partition: i32, sentence: &str, cause: LaneFailure) {
        let lane = &mut self.lanes[partition as usize];
        let before = lane.producer();
        let given_up = lane.give_up(cause != LaneFailure::Unknown);
        if let (Some(producer), None) = (before, lane.producer()) {
            self.producer_id.forget(producer.id);
        }
        let failure = SendFailure {
            sentence: sentence.to_owned(),
            is_too_large: cause == LaneFailure::TooLarge,
        };
        for done in given_up {
            self.tell(done, |_| (OFFSET_UNKNOWN, Some(failure.clone())));
        }
        self.waiting.remove(&partition);
    }

    /// Tells what became of each record of a batch, by its place.
    fn tell(&mut self, done: Done<T>, told: impl Fn(usize) -> (i64, Option<SendFailure>)) {
        let Done { receipts, memory } = done;
        if self.memory.len() < SPARE_MAX {
            self.memory.extend(memory);
        }
        for (place, receipt) in receipts.into_iter().enumerate() {
            let (offset, failure) = told(place);
            self.told.push_back(Delivery { receipt, offset, failure });
        }
    }
}

/// Why a lane has failed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LaneFailure {
    /// Other frames may succeed.
    Passing,
    /// Its oldest frame is larger than the topic takes.
    TooLarge,
    /// The broker does not know its producer id, or knows a higher epoch of it.
    Unknown,
}
