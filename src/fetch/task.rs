//! One broker connection's loop: ask, receive, ask for what follows, then decode what came.
//!
//! The next Fetch leaves as soon as the batch headers of a response were walked, so the broker
//! works while this thread decodes. What it brings waits in the socket until the decoding is done.

use crate::fetch::block::Block;
use crate::fetch::connection::{Connection, ConnectionError, Response};
use crate::fetch::cursor::Cursor;
use crate::fetch::decoding::Decoding;
use crate::fetch::dialling::{DialError, Dialled};
use crate::fetch::stage::Shared;
use crate::fetch::topic_check::TopicCheck;
use crate::kafka::aborted::AbortedTransactions;
use crate::kafka::error_code::ErrorCode;
use crate::kafka::fetch::{
    self, CurrentLeader, FetchError, FetchPartition, FetchRemedy, FetchRequest, FetchedPartition,
    VERSION_BY_NAME_MAX,
};
use crate::kafka::message::{self, Broker, TOPIC_ID_VERSION_MIN, Versions};
use crate::kafka::{RECONNECT_MS_MAX, RECONNECT_MS_MIN, record_batch};
use crate::ownership::event::ToControl;
use crate::queue::Sender;
use crate::telemetry::metrics::Counter;
use crate::telemetry::progress::SHARDS_MAX;
use std::convert::Infallible;
use std::iter;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The same while a partition is left out of it that may be asked for again within a moment.
pub const FETCH_WAIT_MS_LEFT_OUT: u32 = 10;

/// Milliseconds between two tries of what a broker refused for the moment.
pub const RETRY_MS: u64 = 50;

/// Tells the questions about the topic from Fetches, whose ids count up.
const CHECK_ID: i32 = -1;

/// One connection to one broker.
pub struct FetchTask {
    shared: Rc<Shared>,
    /// Tells this task from the others.
    id: usize,
    node_id: i32,
    /// Which of the broker's connections this is: it fetches every n-th partition.
    index: usize,
    decoding: Decoding,
    aborted: AbortedTransactions,
    /// What the Fetch under way asks for, in its order.
    asked: Vec<Asked>,
    /// What the last response brought.
    answers: Vec<Answer>,
    /// Reused for every request.
    request: Vec<u8>,
    partitions: Vec<FetchPartition>,
    correlation_id: i32,
    /// Version of the Fetch under way.
    version: i16,
    /// Leaders that a response has named beside errors.
    hints: Vec<(Rc<Cursor>, CurrentLeader)>,
    /// Fetches that still have to ask for one partition only.
    alone_left: usize,
    /// The dialler was asked for a connection and has not answered yet.
    is_dialling: bool,
}

/// The connection in use.
struct Link {
    connection: Connection,
    versions: Versions,
    topic_check: TopicCheck,
    /// When it must have been replaced by another one.
    replace_at: Option<Instant>,
}

/// One partition of a Fetch under way.
struct Asked {
    cursor: Rc<Cursor>,
    offset: i64,
}

/// Records of one partition, to be decoded.
struct Answer {
    cursor: Rc<Cursor>,
    part: FetchedPartition,
}

impl FetchTask {
    /// A task that has not connected yet.
    pub fn new(
        shared: Rc<Shared>,
        id: usize,
        node_id: i32,
        index: usize,
        blocks: Sender<Box<Block>>,
    ) -> FetchTask {
        FetchTask {
            decoding: Decoding::new(shared.clone(), blocks),
            aborted: AbortedTransactions::new(),
            shared,
            id,
            node_id,
            index,
            asked: Vec::with_capacity(SHARDS_MAX),
            answers: Vec::with_capacity(SHARDS_MAX),
            request: Vec::new(),
            partitions: Vec::with_capacity(SHARDS_MAX),
            correlation_id: 0,
            version: 0,
            hints: Vec::new(),
            alone_left: 0,
            is_dialling: false,
        }
    }

    /// Serves the broker for ever, connecting again as often as it takes.
    pub async fn run(mut self) {
        let shared = self.shared.clone();
        let turns = &shared.context.turns;
        let mut wait_ms = RECONNECT_MS_MIN;
        loop {
            turns.until(|| self.has_partitions().then_some(())).await;
            let before = self.decoding.blocks_sent();
            let sentence = match self.dial().await {
                Ok(dialled) => self.serve(dialled).await,
                Err(error) => error.to_string(),
            };
            self.asked.clear();
            self.release_claims();
            if self.decoding.blocks_sent() > before {
                wait_ms = RECONNECT_MS_MIN;
            }
            shared.report(ToControl::Trouble(sentence));
            shared.table.borrow_mut().mark_broker_stale(self.node_id);
            turns.turn_again();
            turns.sleep_until(turns.now() + Duration::from_millis(wait_ms)).await;
            wait_ms = (wait_ms * 2).min(RECONNECT_MS_MAX);
        }
    }

    /// Waits for a connection.
    async fn dial(&mut self) -> Result<Dialled, DialError> {
        let (shared, id, node_id) = (self.shared.clone(), self.id, self.node_id);
        let turns = &shared.context.turns;
        if !self.is_dialling {
            turns.until(|| shared.ask_for_connection(id, node_id).then_some(())).await;
        }
        self.is_dialling = true;
        let dialled = turns.until(|| shared.take_dialled(id)).await;
        self.is_dialling = false;
        dialled
    }

    /// Serves the broker until the connection fails: the sentence that says why.
    async fn serve(&mut self, dialled: Dialled) -> String {
        let shared = self.shared.clone();
        let mut link = self.link(dialled);
        shared.count_connections(1);
        // Whatever an earlier connection asked for is lost.
        shared.cursors.each(|cursor| {
            if self.serves(cursor) {
                cursor.rewind();
            }
        });
        let Err(error) = self.fetch(&mut link).await;
        shared.count_connections(-1);
        if let ConnectionError::TooLarge { .. } = error {
            self.isolate(&error);
        }
        error.to_string()
    }

    fn link(&self, dialled: Dialled) -> Link {
        let context = &self.shared.context;
        context.metrics.add(Counter::ConnectionsOpened, 1);
        let (versions, replace_at) = (dialled.versions, dialled.replace_at);
        let bytes_max = self.shared.options.receive_buffer_bytes;
        let connection = Connection::new(&context.turns, dialled, bytes_max);
        Link { connection, versions, topic_check: TopicCheck::new(), replace_at }
    }

    async fn fetch(&mut self, link: &mut Link) -> Result<Infallible, ConnectionError> {
        let shared = self.shared.clone();
        let turns = &shared.context.turns;
        loop {
            turns.until(|| self.has_partitions().then_some(())).await;
            self.send_fetch(link).await?;
            while !self.asked.is_empty() {
                let mut response = link.connection.receive(shared.deadline()).await?;
                self.check_topic(link).await?;
                let throttle_ms = self
                    .read_response(response.bytes())
                    .map_err(|error| link.connection.protocol(error))?;
                self.replace(link);
                match throttle_ms {
                    0 => self.send_fetch(link).await?,
                    _ => self.asked.clear(),
                }
                self.decode(&mut response).await;
                self.release_claims();
                link.connection.give_back(response);
                let quiet_until = turns.now() + Duration::from_millis(throttle_ms.into());
                turns.sleep_until(quiet_until).await;
            }
        }
    }

    /// Between two Fetches: goes on with a new connection before the broker closes this one
    /// (KIP-368), or its keys are worn.
    fn replace(&mut self, link: &mut Link) {
        let now = self.shared.context.turns.now();
        if self.is_dialling {
            match self.shared.take_dialled(self.id) {
                None => return,
                Some(Ok(dialled)) => *link = self.link(dialled),
                Some(Err(error)) => {
                    self.shared.report(ToControl::Trouble(error.to_string()));
                    link.replace_at = Some(now + Duration::from_millis(RECONNECT_MS_MAX));
                }
            }
            self.is_dialling = false;
        } else if link.replace_at.is_some_and(|at| at <= now) || link.connection.is_worn() {
            self.is_dialling = self.shared.ask_for_connection(self.id, self.node_id);
        }
    }

    /// Makes sure that the response that has just arrived, and is not used yet, is of the topic that
    /// was read before.
    async fn check_topic(&mut self, link: &mut Link) -> Result<(), ConnectionError> {
        let Link { connection, versions, topic_check, .. } = link;
        let shared = self.shared.clone();
        let (now, options) = (shared.context.turns.now(), &shared.options);
        let wait = Duration::from_millis(options.fetch_wait_ms_max.into());
        let cursors = || self.asked.iter().map(|asked| &asked.cursor);
        let answered_at = cursors().map(|cursor| cursor.answered_at.get());
        let is_by_name = self.version <= VERSION_BY_NAME_MAX;
        let is_due = is_by_name && topic_check.is_due(now, wait, answered_at);
        cursors().for_each(|cursor| cursor.answered_at.set(Some(now)));
        // Before Kafka 2.8 topics have no ids.
        if !is_due || versions.metadata < TOPIC_ID_VERSION_MIN {
            return Ok(());
        }
        let (version, topic) = (versions.metadata, &options.input_topic);
        let mut request = Vec::new();
        message::metadata_request(shared.envelope(version, CHECK_ID), topic, &mut request);
        connection.send(request, shared.deadline()).await?;
        let mut response = connection.receive(shared.deadline()).await?;
        let answer = message::parse_metadata(response.bytes(), version, CHECK_ID, topic);
        connection.give_back(response);
        let metadata = answer.map_err(|error| connection.protocol(error))?;
        shared.take_metadata(&metadata).map_err(|error| connection.protocol(error))?;
        topic_check.passed(now);
        Ok(())
    }

    /// A response is too large for the buffer: it holds one batch that is larger than allowed. The
    /// partitions are asked for one by one until it is known whose batch it is; that shard halts.
    fn isolate(&mut self, error: &ConnectionError) {
        match self.asked.as_slice() {
            [Asked { cursor, offset }] => {
                let partition = cursor.partition;
                cursor.fail(format!("input partition {partition} at offset {offset}: {error}"));
            }
            asked => self.alone_left = asked.len(),
        }
    }

    /// Lets go of the partitions that this connection no longer asks for: another broker may lead
    /// them now, and its task must not begin while this one still decodes.
    fn release_claims(&self) {
        self.shared.cursors.each(|cursor| {
            let is_asked = || self.asked.iter().any(|asked| Rc::ptr_eq(&asked.cursor, cursor));
            if cursor.claimant.get() == Some(self.id) && !is_asked() {
                cursor.claimant.set(None);
                self.shared.context.turns.turn_again();
            }
        });
    }

    /// Whether this connection is the one to fetch a partition.
    fn serves(&self, cursor: &Cursor) -> bool {
        let connections = self.shared.options.connections_per_broker;
        let leader = self.shared.table.borrow().leader(cursor.partition);
        leader.is_some_and(|leader| leader.node_id == self.node_id)
            && cursor.partition as usize % connections == self.index
            && cursor.claimant.get().is_none_or(|claimant| claimant == self.id)
    }

    fn has_partitions(&self) -> bool {
        let now = self.shared.context.turns.now();
        let mut found = false;
        self.shared.cursors.each(|cursor| {
            found |= cursor.is_fetchable(now) && self.serves(cursor);
            if let Some(at) = cursor.retry_at.get().filter(|at| *at > now) {
                self.shared.context.turns.turn_at(at);
            }
        });
        found
    }

    /// Asks for all partitions that may be fetched, beginning with another one each time: a broker
    /// fills its answer in the order of the request. Without such a partition nothing is sent.
    async fn send_fetch(&mut self, link: &mut Link) -> Result<(), ConnectionError> {
        let leaves_out = self.choose_partitions();
        if self.asked.is_empty() {
            return Ok(());
        }
        self.correlation_id = self.correlation_id.wrapping_add(1);
        let options = &self.shared.options;
        // What is left out may be asked for again within a moment, but not before the answer.
        let wait_ms_max = match leaves_out {
            true => options.fetch_wait_ms_max.min(FETCH_WAIT_MS_LEFT_OUT),
            false => options.fetch_wait_ms_max,
        };
        let topic = self.shared.topic_key();
        self.version = match topic.id {
            0 => link.versions.fetch.min(VERSION_BY_NAME_MAX),
            _ => link.versions.fetch,
        };
        let request = FetchRequest {
            version: self.version,
            correlation_id: self.correlation_id,
            client_id: &options.client_id,
            topic,
            rack: "",
            wait_ms_max: wait_ms_max as i32,
            bytes_min: 1,
            bytes_max: options.fetch_bytes_max as i32,
            read_committed: options.read_committed,
            partitions: &self.partitions,
        };
        let mut bytes = std::mem::take(&mut self.request);
        bytes.clear();
        fetch::encode(&request, &mut bytes);
        self.request = link.connection.send(bytes, self.shared.deadline()).await?;
        Ok(())
    }

    /// Chooses what to ask for: whether something that is served here is left out, as it may not be
    /// fetched now.
    fn choose_partitions(&mut self) -> bool {
        let now = self.shared.context.turns.now();
        let mut asked = std::mem::take(&mut self.asked);
        asked.clear();
        let mut leaves_out = false;
        self.shared.cursors.each(|cursor| {
            if !self.serves(cursor) {
                return;
            }
            if cursor.is_fetchable(now) {
                cursor.claimant.set(Some(self.id));
                asked.push(Asked { cursor: cursor.clone(), offset: cursor.fetch_offset.get() });
            } else {
                leaves_out = true;
            }
        });
        if !asked.is_empty() {
            let turn = self.correlation_id.unsigned_abs() as usize;
            let places = asked.len();
            asked.rotate_left(turn % places);
        }
        if self.alone_left > 0 {
            self.alone_left -= 1;
            asked.truncate(1);
        }
        self.asked = asked;
        self.partitions.clear();
        let table = self.shared.table.borrow();
        for Asked { cursor, offset } in &self.asked {
            let leader = table.leader(cursor.partition);
            self.partitions.push(FetchPartition {
                partition: cursor.partition,
                offset: *offset,
                leader_epoch: leader.map_or(-1, |leader| leader.leader_epoch),
                last_fetched_epoch: cursor.fetch_leader_epoch.get(),
                bytes_max: self.shared.options.partition_bytes_max as i32,
            });
        }
        leaves_out
    }

    /// Walks a response down to the batch headers: notes errors, and where each partition goes on.
    /// Gives the milliseconds for which the broker wants to be left alone.
    fn read_response(&mut self, bytes: &[u8]) -> Result<u32, FetchError> {
        self.answers.clear();
        let response = fetch::parse(bytes, self.version, self.correlation_id)?;
        self.shared.context.metrics.add(Counter::BytesReceived, bytes.len() as u64);
        if let Some(trouble) = fetch::trouble(response.error) {
            for place in 0..self.asked.len() {
                let cursor = self.asked[place].cursor.clone();
                self.handle_trouble(&cursor, trouble, response.error, None);
            }
            self.follow_hints(iter::empty());
            return Ok(response.throttle_ms);
        }
        let mut partitions = response.partitions;
        let shared = self.shared.clone();
        let topic = shared.topic_key();
        let mut place = 0;
        while let Some(part) = partitions.next_partition(bytes, topic)? {
            // Brokers answer in the order of the request, so the search is short.
            let asked = self.asked[place..]
                .iter()
                .chain(&self.asked[..place])
                .position(|asked| asked.cursor.partition == part.partition);
            let Some(steps) = asked else { continue };
            place = (place + steps) % self.asked.len();
            let Asked { cursor, offset } = &self.asked[place];
            if cursor.position.get() == *offset {
                let cursor = cursor.clone();
                self.read_part(cursor, part, bytes);
            } else {
                // What came before this part was thrown away, so this part cannot be used.
                cursor.rewind();
            }
        }
        self.follow_hints(partitions.endpoints(bytes));
        Ok(response.throttle_ms)
    }

    /// Takes over the leaders that the response has named, and where they listen (KIP-951).
    fn follow_hints(&mut self, endpoints: impl Iterator<Item = Broker>) {
        let mut table = self.shared.table.borrow_mut();
        endpoints.for_each(|broker| table.learn_broker(broker));
        for (cursor, leader) in std::mem::take(&mut self.hints) {
            if !table.learn(cursor.partition, leader) {
                table.mark_stale(cursor.partition);
                cursor.retry_at.set(Some(self.retry_at()));
            }
            self.shared.context.turns.turn_again();
        }
    }

    fn read_part(&mut self, cursor: Rc<Cursor>, part: FetchedPartition, bytes: &[u8]) {
        let progress = self.shared.context.progress.shard(cursor.partition);
        if let Some(trouble) = fetch::trouble(part.error) {
            self.handle_trouble(&cursor, trouble, part.error, part.leader);
            return;
        }
        if let Some(end) = part.diverging {
            cursor.fail(format!(
                "the input log of partition {} was truncated to offset {} below offset {} that is \
                 applied already: an unclean election lost records; restore them, or begin \
                 anew with `huntd run --genesis`",
                cursor.partition,
                end.end_offset,
                cursor.position.get(),
            ));
            return;
        }
        progress.high_watermark.set(part.high_watermark);
        let bytes_max = self.shared.options.batch_bytes_max;
        let offset = cursor.position.get();
        match record_batch::scan_headers(&bytes[part.records.clone()], offset, bytes_max) {
            Ok(walk) if walk.batches > 0 => {
                cursor.run_ahead(&walk);
                progress.fetched.set(walk.next_offset);
                self.answers.push(Answer { cursor, part });
            }
            // A part without one whole batch: the next one that begins with this partition has it.
            Ok(_) if !part.records.is_empty() => cursor.retry_at.set(Some(self.retry_at())),
            Ok(_) => {}
            // The batches before a damaged one are good and are decoded; then the shard halts.
            Err(_) => self.answers.push(Answer { cursor, part }),
        }
    }

    fn handle_trouble(
        &mut self,
        cursor: &Rc<Cursor>,
        trouble: FetchRemedy,
        error: ErrorCode,
        leader: Option<CurrentLeader>,
    ) {
        let partition = cursor.partition;
        let position = cursor.position.get();
        cursor.rewind();
        match trouble {
            FetchRemedy::RetryLater => cursor.retry_at.set(Some(self.retry_at())),
            FetchRemedy::RefreshMetadata => {
                let unknown = CurrentLeader { node_id: -1, leader_epoch: -1 };
                self.hints.push((cursor.clone(), leader.unwrap_or(unknown)));
            }
            FetchRemedy::OffsetOutOfRange => cursor.fail(format!(
                "offset {position} of input partition {partition} is not in the log: retention has \
                 passed it or the log was truncated; raise retention.ms, and begin anew with \
                 `huntd run --genesis`"
            )),
            FetchRemedy::Fatal => cursor.fail(format!(
                "input partition {partition} cannot be fetched at offset {position}: {error}"
            )),
        }
    }

    fn retry_at(&self) -> Instant {
        self.shared.context.turns.now() + Duration::from_millis(RETRY_MS)
    }

    async fn decode(&mut self, response: &mut Response) {
        self.decoding.received(response.received_at());
        let bytes = response.bytes();
        for Answer { cursor, part } in &self.answers {
            self.aborted.load(part.aborted.iter(bytes));
            let records = &mut bytes[part.records.clone()];
            let decoded = self.decoding.decode(cursor, records, &mut self.aborted).await;
            if let Err(error) = decoded {
                cursor.fail(format!(
                    "input partition {} cannot be read beyond offset {}: {error}; nothing was \
                     skipped",
                    cursor.partition,
                    cursor.position.get(),
                ));
            }
        }
        self.answers.clear();
    }
}
