//! One broker connection's loop: ask, receive, ask for what follows, then decode what came.
//!
//! The next Fetch leaves as soon as the batch headers of a response were walked, so the broker
//! works while this thread decodes. What it brings waits in the socket until the decoding is done.

use crate::fetch::block::Block;
use crate::fetch::connection::{Connection, ConnectionError, Response};
use crate::fetch::cursor::Cursor;
use crate::fetch::decoding::Decoding;
use crate::fetch::stage::Shared;
use crate::kafka::aborted::AbortedTransactions;
use crate::kafka::error_code::ErrorCode;
use crate::kafka::fetch::{
    self, CurrentLeader, FetchError, FetchPartition, FetchRemedy, FetchRequest, FetchedPartition,
};
use crate::kafka::{RECONNECT_MS_MAX, RECONNECT_MS_MIN, record_batch};
use crate::ownership::event::ToControl;
use crate::queue::Sender;
use crate::telemetry::metrics::Counter;
use crate::telemetry::progress::SHARDS_MAX;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The same while a partition is left out of it that may be asked for again within a moment.
const FETCH_WAIT_MS_LEFT_OUT: u32 = 10;

/// Milliseconds between two tries of what a broker refused for the moment.
const RETRY_MS: u64 = 50;

/// One connection to one broker.
pub(crate) struct FetchTask {
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
    /// Fetches that still have to ask for one partition only.
    alone_left: usize,
    is_connected: bool,
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
    pub(crate) fn new(
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
            alone_left: 0,
            is_connected: false,
        }
    }

    /// Serves the broker for ever, connecting again as often as it takes.
    pub(crate) async fn run(mut self) {
        let shared = self.shared.clone();
        let mut wait_ms = RECONNECT_MS_MIN;
        loop {
            shared.context.turns.until(|| self.has_partitions().then_some(())).await;
            let address = shared.context.turns.until(|| shared.address(self.node_id)).await;
            let before = self.decoding.blocks_sent();
            let Err(error) = self.serve(address).await;
            if std::mem::take(&mut self.is_connected) {
                shared.count_connections(-1);
            }
            shared.forget_address(self.node_id);
            if let ConnectionError::TooLarge { .. } = error {
                self.isolate(&error);
            }
            self.asked.clear();
            self.release_claims();
            if self.decoding.blocks_sent() > before {
                wait_ms = RECONNECT_MS_MIN;
            }
            shared.report(ToControl::Trouble(error.to_string()));
            shared.table.borrow_mut().mark_broker_stale(self.node_id);
            shared.context.turns.turn_again();
            let pause = shared.context.turns.now() + Duration::from_millis(wait_ms);
            shared.context.turns.sleep_until(pause).await;
            wait_ms = (wait_ms * 2).min(RECONNECT_MS_MAX);
        }
    }

    async fn serve(&mut self, address: SocketAddr) -> Result<Infallible, ConnectionError> {
        let shared = self.shared.clone();
        let bytes_max = shared.options.receive_buffer_bytes;
        let (mut connection, versions) = shared.connect(address, bytes_max).await?;
        self.is_connected = true;
        shared.count_connections(1);
        // Whatever an earlier connection asked for is lost.
        shared.cursors.each(|cursor| {
            if self.serves(cursor) {
                cursor.rewind();
            }
        });
        loop {
            shared.context.turns.until(|| self.has_partitions().then_some(())).await;
            self.send_fetch(&mut connection, versions.fetch).await?;
            while !self.asked.is_empty() {
                let mut response = connection.receive(shared.deadline()).await?;
                let throttle_ms = self
                    .read_response(response.bytes(), versions.fetch)
                    .map_err(|error| connection.protocol(error))?;
                match throttle_ms {
                    0 => self.send_fetch(&mut connection, versions.fetch).await?,
                    _ => self.asked.clear(),
                }
                self.decode(&mut response).await;
                self.release_claims();
                connection.give_back(response);
                let quiet_until =
                    shared.context.turns.now() + Duration::from_millis(throttle_ms.into());
                shared.context.turns.sleep_until(quiet_until).await;
            }
        }
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
    async fn send_fetch(
        &mut self,
        connection: &mut Connection,
        version: i16,
    ) -> Result<(), ConnectionError> {
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
        let request = FetchRequest {
            version,
            correlation_id: self.correlation_id,
            client_id: &options.client_id,
            topic: &options.input_topic,
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
        self.request = connection.send(bytes, self.shared.deadline()).await?;
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
    fn read_response(&mut self, bytes: &[u8], version: i16) -> Result<u32, FetchError> {
        self.answers.clear();
        let response = fetch::parse(bytes, version, self.correlation_id)?;
        self.shared.context.metrics.add(Counter::BytesReceived, bytes.len() as u64);
        if let Some(trouble) = fetch::trouble(response.error) {
            for asked in &self.asked {
                self.handle_trouble(&asked.cursor, trouble, response.error, None);
            }
            return Ok(response.throttle_ms);
        }
        let mut partitions = response.partitions;
        let shared = self.shared.clone();
        let topic = &shared.options.input_topic;
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
        Ok(response.throttle_ms)
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
                 over with `huntd run --genesis`",
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
        &self,
        cursor: &Cursor,
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
                let mut table = self.shared.table.borrow_mut();
                if !leader.is_some_and(|leader| table.learn(partition, leader)) {
                    table.mark_stale(partition);
                    cursor.retry_at.set(Some(self.retry_at()));
                }
                self.shared.context.turns.turn_again();
            }
            FetchRemedy::OffsetOutOfRange => cursor.fail(format!(
                "offset {position} of input partition {partition} is not in the log: retention has \
                 passed it or the log was truncated; raise retention.ms, and start over with \
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
