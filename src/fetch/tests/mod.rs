//! The fetch path with a dialler, brokers and a clock that the test controls.

mod asked_partitions;
mod batch_offsets;
mod connections;
mod leader_hints;
mod leader_questions;
mod letters;
mod slow_links;

use crate::fetch::FetchOptions;
use crate::fetch::block::{Block, BlockPool};
use crate::fetch::cursor::{Cursor, Cursors};
use crate::fetch::dialling::{
    DialEnds, DialError, Dialled, FromDialler, MetadataLink, QUESTIONS_MAX, ToDialler,
};
use crate::fetch::stage::{FetchEnds, Fetching};
use crate::hunt::event::EVENTS;
use crate::kafka::error_code::ErrorCode;
use crate::kafka::message::{Broker, Metadata, PartitionLeader, Versions};
use crate::kafka::wire::WireWriter;
use crate::output::dead_letter::LetterRun;
use crate::ownership::event::{ToControl, TroubleSource};
use crate::queue::bell::Bell;
use crate::queue::{Receiver, Sender, bounded};
use crate::runtime::operations::{Completed, Handle, Request, Task, UserData};
use crate::runtime::turns::{HotContext, Turns};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::progress::Progress;
use std::collections::BTreeMap;
use std::fs::File;
use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

const TOPIC_ID: u128 = 7;

/// Kafka's error code for an offset that is not in the log.
const OFFSET_OUT_OF_RANGE: i16 = 1;

/// Bytes of a slow answer that arrive per wait.
const SLOWLY_BYTES: usize = 20_000;

/// A daemon that owns partition 0.
struct Daemon {
    fetching: Pin<Box<Fetching>>,
    cursors: Rc<Cursors>,
    cursor: Rc<Cursor>,
    turns: Rc<Turns>,
    metrics: Arc<Metrics>,
    progress: Arc<Progress>,
    questions: Receiver<ToDialler>,
    answers: Sender<FromDialler>,
    reports: Receiver<ToControl>,
    blocks: Receiver<Box<Block>>,
    pool: Rc<BlockPool>,
    /// Offsets of the decoded records, none of which is an event.
    decoded: Vec<i64>,
    /// The runs of records that letters represent.
    runs: Vec<LetterRun>,
    /// The dialler's answer about the cluster.
    metadata: Metadata,
    /// True if a connection that is opened now has to be replaced at once.
    are_short_lived: bool,
    /// The dialler's answer when one broker is asked about another.
    witness: fn(Metadata) -> Result<Metadata, DialError>,
    /// The connections on which it was asked.
    links: Vec<MetadataLink>,
    /// Pairs of a broker and a partition for which it answers that the offset is out of range.
    lost: Vec<(i32, i32)>,
    /// Pairs of a broker and a partition for which it returns only zeros.
    zeroed: Vec<(i32, i32)>,
    /// Connections by broker port, the newest last.
    connections: Vec<(u16, Handle)>,
    /// The last request on each connection.
    asked: BTreeMap<RawFd, Vec<u8>>,
    /// Outstanding receives, which nothing completes by itself.
    receiving: Vec<Awaited>,
}

/// An outstanding receive.
struct Awaited {
    socket: Handle,
    user_data: UserData,
    buffer: Vec<u8>,
    /// The result to report when it is cancelled.
    arrived: io::Result<usize>,
}

/// A cluster of these brokers, whose ports are their ids, with this leader of partition 0.
fn metadata(brokers: &[i32], leader: i32) -> Metadata {
    let broker = |node_id: &i32| Broker {
        node_id: *node_id,
        host: "broker".to_owned(),
        port: u16::try_from(*node_id).expect("a small number"),
    };
    let leader = PartitionLeader {
        partition: 0,
        leader: Some(leader),
        leader_epoch: -1,
        error: ErrorCode::NONE,
    };
    Metadata {
        brokers: brokers.iter().map(broker).collect(),
        cluster_id: None,
        controller: None,
        error: ErrorCode::NONE,
        topic_id: TOPIC_ID,
        partitions: vec![leader],
        replicas: 1,
    }
}

/// A Fetch response with this correlation id and these topics.
fn fetch_answer(id: &[u8], throttle_ms: i32, topics: &[u8]) -> Vec<u8> {
    // No tagged fields, throttle, error, session; no tagged fields.
    [id, &[0], &throttle_ms.to_be_bytes(), &[0; 6], topics, &[0]].concat()
}

/// The topics of a Fetch response: partition 0 ends at `end` and returns these records.
fn partition_answer(end: i64, records: &[u8]) -> Vec<u8> {
    topic_answer(&[answered_part((0, 0), end, records)])
}

/// The topics of a Fetch response: one topic with these parts.
fn topic_answer(parts: &[Vec<u8>]) -> Vec<u8> {
    let count = u8::try_from(parts.len()).expect("a few") + 1;
    [&[2][..], &TOPIC_ID.to_be_bytes(), &[count], &parts.concat(), &[0]].concat()
}

/// A partition of a Fetch response, and its error.
fn answered_part((partition, error): (i32, i16), end: i64, records: &[u8]) -> Vec<u8> {
    let (number, error, end) = (partition.to_be_bytes(), error.to_be_bytes(), end.to_be_bytes());
    // High watermark, last stable offset and log start; no aborted transactions.
    let mut part = [&number[..], &error, &end, &end, &[0; 8], &[0]].concat();
    // No preferred replica.
    part.extend((-1i32).to_be_bytes());
    WireWriter::new(&mut part).unsigned_varint(records.len() as u32 + 1);
    part.extend(records);
    // No tagged fields.
    part.push(0);
    part
}

/// The partitions in a Fetch or ListOffsets request.
fn partitions_of(request: &[u8], is_fetch: bool) -> Vec<i32> {
    let (topic, count_bytes, part_bytes) = match is_fetch {
        true => (&TOPIC_ID.to_be_bytes()[..], 1, 33),
        false => (&b"input"[..], 4, 12),
    };
    let at = request.windows(topic.len()).position(|bytes| bytes == topic).expect("it is asked");
    let (counts, parts) = request[at + topic.len()..].split_at(count_bytes);
    let count = usize::from(counts[count_bytes - 1]) - usize::from(is_fetch);
    let number = |part: &[u8]| i32::from_be_bytes(part[..4].try_into().expect("four bytes"));
    parts.chunks(part_bytes).take(count).map(number).collect()
}

/// Returns whether a broker is asked about another one.
fn is_to_witness(link: &MetadataLink) -> bool {
    matches!(link, MetadataLink::NewTo(_))
}

fn options() -> FetchOptions {
    FetchOptions {
        client_id: "huntd".to_owned(),
        input_topic: "input".to_owned(),
        connections_per_broker: 2,
        fetch_wait_ms_max: 100,
        tick_every_ms: 1_000,
        fetch_bytes_max: 1 << 20,
        partition_bytes_max: 1 << 20,
        receive_buffer_bytes: 1 << 20,
        batch_bytes_max: 1 << 20,
        read_committed: true,
    }
}

impl Daemon {
    fn start(metadata: Metadata) -> Daemon {
        Daemon::start_at(0, metadata)
    }

    fn start_at(position: i64, metadata: Metadata) -> Daemon {
        Daemon::start_with(options(), position, metadata)
    }

    fn start_with(options: FetchOptions, position: i64, metadata: Metadata) -> Daemon {
        let bell = || Arc::new(Bell::new().expect("a descriptor is left"));
        let turns = Turns::new(Instant::now(), bell());
        let (metrics, progress) = (Arc::new(Metrics::new()), Arc::new(Progress::new()));
        let context = HotContext {
            turns: turns.clone(),
            progress: progress.clone(),
            metrics: metrics.clone(),
        };
        let (dialler, questions) = bounded(QUESTIONS_MAX);
        let (answers, dialled) = bounded(QUESTIONS_MAX);
        let dial_ends = DialEnds { dialler, dialler_bell: bell(), dialled };
        let (control, reports) = bounded(crate::fetch::REPORTS_MAX);
        let (to_shards, blocks) = bounded(1);
        let pool = Rc::new(BlockPool::default());
        let cursors = Cursors::new();
        let cursor = Cursor::new(0, 1, (position, None), Box::default());
        cursors.open(cursor.clone());
        let ends = FetchEnds { control, dial_ends, blocks: to_shards, events: &EVENTS };
        let shared = (cursors.clone(), pool.clone());
        Daemon {
            cursors,
            fetching: Box::pin(Fetching::new(context, options, shared, ends)),
            cursor,
            turns,
            metrics,
            progress,
            questions,
            answers,
            reports,
            blocks,
            pool,
            decoded: Vec::new(),
            runs: Vec::new(),
            metadata,
            are_short_lived: false,
            witness: Ok,
            links: Vec::new(),
            lost: Vec::new(),
            zeroed: Vec::new(),
            connections: Vec::new(),
            asked: BTreeMap::new(),
            receiving: Vec::new(),
        }
    }

    /// Runs a turn some milliseconds after the last one.
    fn turn(&mut self, ms: u64) {
        self.turns.begin_turn(self.turns.now() + Duration::from_millis(ms));
        let polled = self.fetching.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending(), "the shard is open");
        while let Some(block) = self.blocks.try_receive() {
            self.decoded.extend(block.rejects.iter().map(|reject| reject.offset));
            self.runs.extend(block.rejects.iter().filter_map(|reject| reject.run));
            self.cursor.give_block(&self.pool, block);
        }
        while let Some(question) = self.questions.try_receive() {
            let answer = match question {
                ToDialler::Connect { task, endpoint } => {
                    let dialled = Ok(self.connect(endpoint.port));
                    FromDialler::Connected { task, dialled }
                }
                ToDialler::AskMetadata(link) => {
                    let answer = if is_to_witness(&link) { self.witness } else { Ok };
                    self.links.push(link);
                    FromDialler::Metadata(answer(self.metadata.clone()))
                }
            };
            assert!(self.answers.try_send(answer).is_ok(), "one answer to each question");
        }
        while let Some(request) = self.turns.operations().take_order() {
            self.begin(request);
        }
    }

    fn connect(&mut self, port: u16) -> Dialled {
        // Nothing is ever read from it.
        let file = File::open("/dev/null").expect("a descriptor is left");
        let socket: Handle = Arc::new(file.into());
        self.connections.push((port, socket.clone()));
        let (fetch, produce, init_producer_id, tells_settings) = (13, 9, 1, true);
        let versions = Versions { fetch, produce, init_producer_id, tells_settings };
        let address = ([127, 0, 0, 1], port).into();
        let replace_at = self.are_short_lived.then_some(self.turns.now());
        Dialled { socket, address, versions, tls: None, replace_at }
    }

    /// Completes sends at once; receives stay outstanding.
    fn begin(&mut self, request: Request) {
        let operations = self.turns.operations();
        match request {
            Request::Start(user_data, Task::Send { socket, buffer, from }) => {
                self.asked.insert(socket.as_raw_fd(), buffer[from..].to_vec());
                let sent = Ok(buffer.len() - from);
                operations.finish(user_data, Completed::new(sent, buffer));
            }
            Request::Start(user_data, Task::Receive { socket, buffer, .. }) => {
                let arrived = Err(io::ErrorKind::Interrupted.into());
                self.receiving.push(Awaited { socket, user_data, buffer, arrived });
            }
            Request::Start(user_data, Task::ReceiveAll { socket, buffer, .. }) => {
                let arrived = Ok(SLOWLY_BYTES);
                self.receiving.push(Awaited { socket, user_data, buffer, arrived });
            }
            Request::Cancel(user_data) => {
                let is_it = |awaited: &Awaited| awaited.user_data == user_data;
                let place = self.receiving.iter().position(is_it).expect("only receives wait");
                let Awaited { buffer, arrived, .. } = self.receiving.remove(place);
                operations.finish(user_data, Completed::new(arrived, buffer));
            }
            _ => unreachable!("no bell is read"),
        }
    }

    /// Ends all connections.
    fn break_connections(&mut self) {
        for Awaited { user_data, buffer, .. } in self.receiving.drain(..) {
            self.turns.operations().finish(user_data, Completed::new(Ok(0), buffer));
        }
    }

    /// The broker at the other end of a connection.
    fn node_of(&self, socket: &Handle) -> i32 {
        let of = |(_, handle): &&(u16, Handle)| Arc::ptr_eq(handle, socket);
        self.connections.iter().find(of).expect("it was dialled").0.into()
    }

    /// Answers each broker's last request: the log ends at `end`, and no records. Returns the
    /// Fetches, with the brokers that they were sent to.
    fn answer_all(&mut self, end: i64) -> Vec<(i32, Vec<u8>)> {
        let mut fetches = Vec::new();
        for awaited in std::mem::take(&mut self.receiving) {
            let request = self.asked.remove(&awaited.socket.as_raw_fd()).expect("it was asked");
            let node_id = self.node_of(&awaited.socket);
            let (is_fetch, id) = (request[5] == 1, &request[8..12]);
            let asked = partitions_of(&request, is_fetch);
            let parts = asked.iter().map(|partition| {
                let is_lost = self.lost.contains(&(node_id, *partition));
                let error = if is_lost { OFFSET_OUT_OF_RANGE } else { 0 };
                let zeros = self.zeroed.contains(&(node_id, *partition));
                let records: &[u8] = if zeros { &[0; 100] } else { &[] };
                match is_fetch {
                    true => answered_part((*partition, error), end, records),
                    // No error, no time.
                    false => {
                        [&partition.to_be_bytes()[..], &[0; 2], &[0xff; 8], &end.to_be_bytes()]
                            .concat()
                    }
                }
            });
            let parts: Vec<Vec<u8>> = parts.collect();
            let answer = match is_fetch {
                true => fetch_answer(id, 0, &topic_answer(&parts)),
                false => {
                    let count = u8::try_from(parts.len()).expect("a few");
                    [id, &[0, 0, 0, 1, 0, 5], b"input", &[0, 0, 0, count], &parts.concat()].concat()
                }
            };
            self.respond(awaited, &answer);
            if is_fetch {
                fetches.push((node_id, request));
            }
        }
        fetches
    }

    fn respond(&self, awaited: Awaited, answer: &[u8]) {
        let Awaited { user_data, mut buffer, .. } = awaited;
        let whole = [&(answer.len() as u32).to_be_bytes()[..], answer].concat();
        buffer[..whole.len()].copy_from_slice(&whole);
        self.turns.operations().finish(user_data, Completed::new(Ok(whole.len()), buffer));
    }

    /// Answers the only outstanding Fetch with the length of a long response, whose bytes come
    /// slowly.
    fn begin_answer(&mut self) {
        let Awaited { user_data, mut buffer, .. } = self.receiving.pop().expect("it is under way");
        let length = 1u32 << 19;
        buffer[..4].copy_from_slice(&length.to_be_bytes());
        self.turns.operations().finish(user_data, Completed::new(Ok(4), buffer));
    }

    /// Answers the first Fetch of a task, the only outstanding one, with no partition and this
    /// throttle.
    fn answer_with_nothing(&mut self, throttle_ms: i32) {
        self.answer(1, throttle_ms, &[1]);
    }

    /// Answers the nth Fetch of a task, the only outstanding one.
    fn answer(&mut self, nth: u32, throttle_ms: i32, topics: &[u8]) {
        let awaited = self.receiving.pop().expect("a Fetch is under way");
        assert!(self.receiving.is_empty());
        self.respond(awaited, &fetch_answer(&nth.to_be_bytes(), throttle_ms, topics));
    }

    /// Runs turns until there is a connection to this broker's port, for a minute.
    fn turn_until_connected(&mut self, node_id: i32) {
        let is_there = |(port, _): &(u16, Handle)| i32::from(*port) == node_id;
        for _ in 0..600 {
            self.turn(100);
            if self.connections.last().is_some_and(is_there) && !self.receiving.is_empty() {
                return;
            }
        }
        panic!("broker {node_id} is not asked: {:?}", self.sentences());
    }

    /// Runs turns until a Fetch is outstanding; no time passes.
    fn turn_until_asked(&mut self) {
        let turns = (0..10).take_while(|_| {
            self.turn(0);
            self.receiving.is_empty()
        });
        assert!(turns.count() < 10, "no broker is asked");
    }

    /// Runs turns until an answer is overdue. Returns the seconds that it takes, a minute at most.
    fn turn_until_overdue(&mut self) -> usize {
        let is_said = |(_, said): &(_, String)| said.contains("timed out");
        let seconds = (1..=60).find(|_| {
            self.turn(1_000);
            self.sentences().iter().any(is_said)
        });
        seconds.expect("no answer is waited for so long")
    }

    fn sentences(&mut self) -> Vec<(TroubleSource, String)> {
        let mut sentences = Vec::new();
        while let Some(report) = self.reports.try_receive() {
            if let ToControl::Trouble { source, sentence } = report {
                sentences.push((source, sentence));
            }
        }
        sentences
    }
}
