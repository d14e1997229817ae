//! The loop of one broker connection: send a Fetch, receive the response, send the next Fetch, then
//! decode.
//!
//! The next Fetch is sent as soon as the batch headers of a response are scanned, so the broker
//! works while this thread decodes. Its response waits in the socket until the decoding is done.

use crate::fetch::block::Block;
use crate::fetch::connection::{Connection, ConnectionError};
use crate::fetch::cursor::{Cursor, CursorFault};
use crate::fetch::decoding::Decoding;
use crate::fetch::dialling::{DialError, Dialled};
use crate::fetch::stage::{ASKED_AGAIN, SharedFetch};
use crate::kafka::aborted::AbortedTransactions;
use crate::kafka::fetch::{self, FetchPartition, FetchRequest, FetchedPartition};
use crate::kafka::leader_hint::CurrentLeader;
use crate::kafka::list_offsets::Offsets;
use crate::kafka::message::Versions;
use crate::kafka::throttle::Throttle;
use crate::kafka::{RECONNECT_MS_MAX, RECONNECT_MS_MIN};
use crate::ownership::event::{Claim, InputTrouble, ToControl, TroubleSource};
use crate::queue::Sender;
use crate::telemetry::metrics::Counter;
use crate::telemetry::progress::SHARDS_MAX;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Milliseconds for which a broker that leads no partition of the topic keeps its task and
/// connections: leadership returns after a restart.
const UNNEEDED_MS_MAX: u64 = 60_000;

/// One connection to one broker.
pub(crate) struct FetchTask {
    pub(super) shared: Rc<SharedFetch>,
    /// Distinguishes this task from the others.
    pub(super) id: usize,
    pub(super) node_id: i32,
    /// Index among the connections to this broker: it fetches every n-th partition.
    pub(super) index: usize,
    pub(super) decoding: Decoding,
    pub(super) aborted: AbortedTransactions,
    /// The partitions of the outstanding Fetch, in its order.
    pub(super) asked: Vec<AskedPartition>,
    /// The partitions of the last response that have records.
    pub(super) answers: Vec<PartitionAnswer>,
    /// A buffer that is reused for every request.
    pub(super) request: Vec<u8>,
    pub(super) partitions: Vec<FetchPartition>,
    pub(super) correlation_id: i32,
    /// Leaders that a response named along with errors.
    pub(super) hints: Vec<(Rc<Cursor>, Option<CurrentLeader>)>,
    /// Number of Fetches that still have to ask for a single partition.
    pub(super) alone_left: usize,
    /// The id of the connection in use, unique to it.
    pub(super) connection: u64,
    /// The claim in doubt of the connection in use; another connection is asked.
    pub(super) doubt: Option<UnconfirmedClaim>,
    /// Partitions whose position is out of range, as two connections have confirmed.
    pub(super) out_of_range: Vec<Rc<Cursor>>,
    /// The partitions whose log ends are asked for, and the answer. Both are reused.
    pub(super) asked_ends: (Vec<i32>, Offsets),
    /// True if the dialler was asked for a connection and has not answered yet.
    is_dialling: bool,
    /// The time since which the broker leads no partition of the topic; `None` while it leads one.
    unneeded_since: Option<Instant>,
}

/// The connection in use, with its state.
pub(super) struct BrokerLink {
    pub(super) connection: Connection,
    versions: Versions,
    /// When the connection must have been replaced.
    replace_at: Option<Instant>,
    throttle: Throttle,
}

impl BrokerLink {
    /// When the answer to a request sent now is overdue.
    pub(super) fn deadline(&self, shared: &SharedFetch) -> Instant {
        self.throttle.reads_at(shared.context.turns.now()) + shared.answer_wait()
    }
}

/// A claim of the connection in use that another connection has to confirm.
pub(super) struct UnconfirmedClaim {
    pub(super) partition: i32,
    pub(super) claim: Claim,
    pub(super) sentence: String,
}

/// One partition of an outstanding Fetch.
pub(super) struct AskedPartition {
    pub(super) cursor: Rc<Cursor>,
    pub(super) offset: i64,
}

/// Records of one partition, to be decoded.
pub(super) struct PartitionAnswer {
    pub(super) cursor: Rc<Cursor>,
    pub(super) part: FetchedPartition,
}

impl FetchTask {
    /// Creates a task that has not connected yet.
    pub(crate) fn new(
        shared: Rc<SharedFetch>,
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
            hints: Vec::new(),
            alone_left: 0,
            connection: 0,
            doubt: None,
            out_of_range: Vec::new(),
            asked_ends: Default::default(),
            is_dialling: false,
            unneeded_since: None,
        }
    }

    /// Serves the broker, reconnecting as often as needed, until no partition needs it.
    pub(crate) async fn run(mut self) {
        let shared = self.shared.clone();
        let turns = &shared.context.turns;
        let mut wait_ms = RECONNECT_MS_MIN;
        while let Some(dialled) = self.dial().await {
            let before = self.decoding.blocks_sent();
            let trouble = match dialled {
                Ok(dialled) => self.serve(dialled).await,
                Err(error) => Some(self.trouble(error)),
            };
            self.forget_ends();
            self.asked.clear();
            self.release_partitions();
            if self.decoding.blocks_sent() > before {
                wait_ms = RECONNECT_MS_MIN;
            }
            match trouble {
                // The broker is reachable: its other partitions continue.
                Some(doubted @ ToControl::InputTrouble { partition, .. }) => {
                    shared.report(doubted);
                    shared.table.borrow_mut().mark_stale(partition, self.node_id);
                }
                trouble => {
                    trouble.map(|trouble| shared.report(trouble));
                    shared.table.borrow_mut().mark_broker_stale(self.node_id);
                }
            }
            turns.turn_again();
            turns.sleep_until(turns.now() + Duration::from_millis(wait_ms)).await;
            wait_ms = (wait_ms * 2).min(RECONNECT_MS_MAX);
        }
    }

    /// Waits until there is something to fetch, and then for a connection. `None` if no partition
    /// needs the broker any more.
    async fn dial(&mut self) -> Option<Result<Dialled, DialError>> {
        let (shared, id, node_id) = (self.shared.clone(), self.id, self.node_id);
        let turns = &shared.context.turns;
        if !self.is_dialling {
            self.is_dialling = turns
                .until(|| match self.is_needed() && shared.ask_for_connection(id, node_id) {
                    true => Some(true),
                    false => self.is_unneeded().then_some(false),
                })
                .await;
        }
        if !self.is_dialling {
            return None;
        }
        let dialled = turns.until(|| shared.dialling.take_dialled(id)).await;
        self.is_dialling = false;
        Some(dialled)
    }

    /// Returns whether the task can end: the broker has left the cluster, or has led no partition
    /// of the topic for a while.
    fn is_unneeded(&mut self) -> bool {
        let turns = &self.shared.context.turns;
        let table = self.shared.table.borrow();
        if table.serves(self.node_id) {
            self.unneeded_since = None;
            return false;
        }
        let since = *self.unneeded_since.get_or_insert(turns.now());
        let end = since + Duration::from_millis(UNNEEDED_MS_MAX);
        turns.turn_at(end);
        table.broker(self.node_id).is_none() || turns.now() >= end
    }

    /// Returns a report about the broker for the log.
    fn trouble(&self, error: impl ToString) -> ToControl {
        let (source, sentence) = (TroubleSource::Broker(self.node_id), error.to_string());
        ToControl::Trouble { source, sentence }
    }

    /// Serves the broker until the connection fails or is in doubt. Returns the report of the
    /// cause; `None` if the connection is no longer needed.
    async fn serve(&mut self, dialled: Dialled) -> Option<ToControl> {
        let shared = self.shared.clone();
        let mut link = self.link(dialled);
        shared.count_connections(1);
        // Requests on an earlier connection are lost.
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
        match self.doubt.take() {
            Some(UnconfirmedClaim { partition, claim, sentence }) => {
                let address = link.connection.address();
                let sentence = format!("broker {address}: {sentence}: {ASKED_AGAIN}");
                let trouble = InputTrouble::Doubted(claim, sentence);
                Some(ToControl::InputTrouble { partition, trouble })
            }
            None if matches!(error, ConnectionError::Unneeded) => None,
            None => Some(self.trouble(error)),
        }
    }

    fn link(&mut self, dialled: Dialled) -> BrokerLink {
        let context = &self.shared.context;
        context.metrics.add(Counter::ConnectionsOpened, 1);
        self.connection = context.metrics.get(Counter::ConnectionsOpened);
        self.doubt = None;
        self.out_of_range.clear();
        let (versions, replace_at) = (dialled.versions, dialled.replace_at);
        let bytes_max = self.shared.options.receive_buffer_bytes;
        let connection = Connection::new(&context.turns, dialled, bytes_max);
        let throttle = Throttle::none(context.turns.now());
        BrokerLink { connection, versions, replace_at, throttle }
    }

    async fn fetch(&mut self, link: &mut BrokerLink) -> Result<Infallible, ConnectionError> {
        let shared = self.shared.clone();
        let turns = &shared.context.turns;
        loop {
            let is_needed = turns
                .until(|| match self.is_needed() {
                    true => Some(true),
                    false => self.is_unneeded().then_some(false),
                })
                .await;
            if !is_needed {
                return Err(ConnectionError::Unneeded);
            }
            self.ask_ends(link).await?;
            self.send_fetch(link).await?;
            while !self.asked.is_empty() {
                let is_wanted = || self.is_wanted();
                let deadline = link.deadline(&shared);
                let mut response = link.connection.receive_if_wanted(is_wanted, deadline).await?;
                let throttle_ms = self
                    .read_response(response.bytes())
                    .map_err(|error| link.connection.protocol(error))?;
                // From here on, answers are due only once the throttle is over.
                self.note_throttle(link, throttle_ms);
                self.find_bounds(link).await?;
                if throttle_ms == 0 && self.doubt.is_none() && !self.has_old_ends() {
                    self.replace(link);
                    self.send_fetch(link).await?;
                } else {
                    self.asked.clear();
                }
                self.decode(&mut response).await;
                self.release_partitions();
                link.connection.give_back(response);
                if self.doubt.is_some() {
                    return Err(ConnectionError::Doubted);
                }
            }
            // A throttle belongs to its connection. The replacement starts once the throttle has
            // passed.
            turns.sleep_until(link.throttle.quiet_until()).await;
            self.replace(link);
        }
    }

    /// Records for how long the broker wants no requests.
    fn note_throttle(&self, link: &mut BrokerLink, throttle_ms: u32) {
        let now = self.shared.context.turns.now();
        link.throttle = Throttle::asked(throttle_ms, now);
        if throttle_ms == 0 {
            return;
        }
        for AskedPartition { cursor, .. } in &self.asked {
            let shard = self.shared.context.progress.shard(cursor.partition);
            shard.fetch_throttled_ms.add(Throttle::muted_ms(throttle_ms));
        }
        let source = TroubleSource::Throttle(self.node_id);
        let address = link.connection.address();
        let sentence = Throttle::sentence(address, throttle_ms, "consumer_byte_rate");
        self.shared.report(ToControl::Trouble { source, sentence });
    }

    /// Between two Fetches: switches to a new connection before the broker closes this one
    /// (KIP-368) or its keys reach their usage limit.
    fn replace(&mut self, link: &mut BrokerLink) {
        let now = self.shared.context.turns.now();
        if self.is_dialling {
            match self.shared.dialling.take_dialled(self.id) {
                None => return,
                Some(Ok(dialled)) => *link = self.link(dialled),
                Some(Err(error)) => {
                    self.shared.report(self.trouble(error));
                    link.replace_at = Some(now + Duration::from_millis(RECONNECT_MS_MAX));
                }
            }
            self.is_dialling = false;
        } else if link.replace_at.is_some_and(|at| at <= now) || link.connection.is_worn() {
            self.is_dialling = self.shared.ask_for_connection(self.id, self.node_id);
        }
    }

    /// Handles a response that is too large for the buffer: it holds a batch that is larger than
    /// allowed. The partitions are fetched one by one until it is known whose batch it is; that
    /// shard halts if another connection announces the same length.
    fn isolate(&mut self, error: &ConnectionError) {
        match self.asked.as_slice() {
            [AskedPartition { cursor, offset }] => {
                let (cursor, partition) = (cursor.clone(), cursor.partition);
                let sentence = format!("input partition {partition} at offset {offset}: {error}");
                self.stop(&cursor, Claim::TooLarge, CursorFault::Unreadable(sentence));
            }
            asked => self.alone_left = asked.len(),
        }
    }

    /// Asks for all partitions that may be fetched, starting with a different one each time,
    /// because a broker fills its answer in the order of the request. Sends nothing if there is no
    /// such partition.
    async fn send_fetch(&mut self, link: &mut BrokerLink) -> Result<(), ConnectionError> {
        let wait = self.choose_partitions();
        if self.asked.is_empty() {
            return Ok(());
        }
        self.correlation_id = self.correlation_id.wrapping_add(1);
        let options = &self.shared.options;
        let topic_id = self.shared.table.borrow().topic_id();
        let request = FetchRequest {
            version: link.versions.fetch,
            correlation_id: self.correlation_id,
            client_id: &options.client_id,
            topic_id,
            wait_ms_max: wait.ms_max as i32,
            bytes_min: wait.bytes_min as i32,
            bytes_max: options.fetch_bytes_max as i32,
            read_committed: options.read_committed,
            partitions: &self.partitions,
        };
        let mut bytes = std::mem::take(&mut self.request);
        bytes.clear();
        fetch::encode(&request, &mut bytes);
        self.request = link.connection.send(bytes, link.deadline(&self.shared)).await?;
        Ok(())
    }
}
