//! The fetch path as one stage of the hot thread. It asks the dialler for the leaders, and for a
//! connection to each broker that leads partitions. Each connection has a task; tasks are polled in
//! a fixed order.

use crate::fetch::block::{Block, BlockPool};
use crate::fetch::cursor::{Cursor, Cursors};
use crate::fetch::dialling::{DialEnds, Dialling, Endpoint, free_task};
use crate::fetch::leader_questions::LeaderQuestions;
use crate::fetch::leadership_claims::{LeadershipClaim, LeadershipClaims};
use crate::fetch::log_ends::ENDS_EVERY_MS;
use crate::fetch::task::FetchTask;
use crate::fetch::{FetchOptions, REPORTS_MAX};
use crate::kafka::message::{Envelope, Metadata};
use crate::kafka::metadata::{LeaderTable, MetadataError};
use crate::kit::event::EventTable;
use crate::ownership::event::{ToControl, TroubleSource};
use crate::queue::Sender;
use crate::runtime::turns::HotContext;
use crate::telemetry::metrics::Gauge;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Milliseconds that a broker may take to answer, in addition to the Fetch wait.
const RESPONSE_MS_MAX: u64 = 10_000;

/// The table's edition before it first learns who leads.
const EDITION_UNSEEN: u64 = 0;

/// The end of a log line about an answer that needs confirmation.
pub(super) const ASKED_AGAIN: &str = "confirming over another connection";

/// Connections to all brokers together; each is a sender of the queue.
pub(crate) const CONNECTIONS_MAX: usize = 60;

/// State that all tasks of the fetch path share.
pub(crate) struct SharedFetch {
    /// Time, turns, operations, progress and counters.
    pub context: HotContext,
    /// The operator's options.
    pub options: FetchOptions,
    /// The events of the game.
    pub events: &'static EventTable,
    /// The cursor of each partition.
    pub cursors: Rc<Cursors>,
    /// Empty blocks.
    pub pool: Rc<BlockPool>,
    /// The leader of each partition.
    pub table: RefCell<LeaderTable>,
    /// A claim of the last answer about the topic that another connection has to confirm.
    topic_claim: Cell<Option<TopicClaim>>,
    /// The claims that count once another broker has said who leads.
    pub leadership_claims: LeadershipClaims,
    /// Time of the last metadata query that no change of leaders required.
    pub searched_at: Cell<Option<Instant>>,
    /// To the control thread.
    pub control: Sender<ToControl>,
    /// To the dialler, and its answers.
    pub dialling: Dialling,
}

/// A claim about the topic that counts once two connections in a row make it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TopicClaim {
    /// The topic's id and its number of partitions. There is nothing to compare them with yet.
    First { topic_id: u128, partitions: usize },
    /// An error that would halt all shards.
    Final(MetadataError),
}

/// The queue ends of the fetch path.
pub(crate) struct FetchEnds {
    /// To the control thread.
    pub control: Sender<ToControl>,
    /// To the dialler, and back.
    pub dial_ends: DialEnds,
    /// To the engine.
    pub blocks: Sender<Box<Block>>,
    /// The events of the game.
    pub events: &'static EventTable,
}

impl SharedFetch {
    /// Reports to the control thread. Returns false if the queue is full; the report will be
    /// repeated.
    pub(crate) fn report(&self, report: ToControl) -> bool {
        self.control.try_send_below(REPORTS_MAX, report).is_ok()
    }

    /// Makes sure that the leader of a new cursor's partition is asked for before its first Fetch.
    /// This prevents a topic that was recreated while this daemon owned none of its partitions from
    /// being read as the old one. A leader with an epoch below the one that the survey saw does not
    /// count: brokers that are cut off together would name an earlier leader, and confirm each
    /// other.
    fn doubt_leaders_of_new(&self) {
        self.cursors.each(|cursor| {
            if cursor.is_new.take() {
                let leader_epoch = cursor.surveyed_leader_epoch.get();
                self.table.borrow_mut().expect_leader(cursor.partition, leader_epoch);
                self.context.turns.turn_again();
            }
        });
    }

    /// Asks the dialler for a connection. Returns false if the broker's address is unknown.
    pub(crate) fn ask_for_connection(&self, task: usize, node_id: i32) -> bool {
        let Some(endpoint) = self.table.borrow().broker(node_id).map(Endpoint::of) else {
            return false;
        };
        self.dialling.ask_for_connection(task, endpoint);
        true
    }

    /// Adds to the count of connections.
    pub(crate) fn count_connections(&self, change: i64) {
        let open = self.context.metrics.gauge(Gauge::Connections).saturating_add_signed(change);
        self.context.metrics.set_gauge(Gauge::Connections, open);
    }

    /// How long an answer may take once the broker has read the request.
    pub(crate) fn answer_wait(&self) -> Duration {
        Duration::from_millis(RESPONSE_MS_MAX + u64::from(self.options.fetch_wait_ms_max))
    }

    /// Learns what a broker says about the cluster and the topic. If this fails, the caller does
    /// not ask that connection again. The error is a sentence.
    pub(crate) fn take_metadata(&self, metadata: &Metadata) -> Result<(), String> {
        let mut table = self.table.borrow_mut();
        let is_first = table.partition_count() == 0 && metadata.error.is_none();
        let first = is_first.then_some(TopicClaim::First {
            topic_id: metadata.topic_id,
            partitions: metadata.partitions.len(),
        });
        let before = self.topic_claim.get();
        if first.is_some() && first != before {
            self.topic_claim.set(first);
            return match before {
                None => Ok(()),
                Some(_) => Err(format!(
                    "two connections disagree about the input topic's id or number of partitions: \
                     {ASKED_AGAIN}"
                )),
            };
        }
        let folded = table.fold(metadata);
        drop(table);
        let doubt = folded.err().filter(MetadataError::is_final).map(TopicClaim::Final);
        self.topic_claim.set(doubt);
        match folded {
            Ok(()) => {
                let topic_id = &self.context.progress.input_topic_id;
                topic_id.get_or_init(|| metadata.topic_id.to_be_bytes());
            }
            Err(error) if doubt.is_some() && doubt != before => {
                return Err(format!("{error}: {ASKED_AGAIN}"));
            }
            // No retry helps if a topic was recreated or grew: each shard halts with the reason.
            Err(error) if doubt.is_some() => {
                self.cursors.each(|cursor: &Rc<Cursor>| cursor.fail(error.to_string()));
            }
            Err(_) => {}
        }
        folded.map_err(|error| error.to_string())
    }

    /// Returns whether another connection has to confirm the last answer about the topic.
    pub(crate) fn doubts_topic(&self) -> bool {
        self.topic_claim.get().is_some()
    }

    /// The unconfirmed claims of brokers that are still in the cluster.
    pub(crate) fn unconfirmed(&self, table: &LeaderTable) -> Vec<LeadershipClaim> {
        self.leadership_claims.of(|node_id| table.broker(node_id).is_some())
    }

    /// Returns whether a broker's claim about a partition does not count yet. It counts at once if
    /// the cluster has no other broker.
    pub(crate) fn is_unconfirmed(&self, claim: LeadershipClaim) -> bool {
        let has_others =
            || self.table.borrow().brokers().iter().any(|it| it.node_id != claim.node_id);
        self.leadership_claims.contain(claim) && has_others()
    }

    /// The header fields of a request.
    pub(crate) fn envelope(&self, version: i16, correlation_id: i32) -> Envelope<'_> {
        Envelope { version, correlation_id, client_id: &self.options.client_id }
    }
}

/// The fetch stage; it finishes once the cursors have ended.
pub(crate) struct Fetching {
    shared: Rc<SharedFetch>,
    blocks: Sender<Box<Block>>,
    metadata: Pin<Box<dyn Future<Output = ()>>>,
    tasks: Vec<SpawnedTask>,
    /// The table's edition for which tasks were last added.
    edition: u64,
    /// When the ages of log ends are next checked.
    ends_due_at: Instant,
}

struct SpawnedTask {
    /// Unique among the running tasks.
    id: usize,
    node_id: i32,
    /// Index among the connections to this broker.
    index: usize,
    future: Pin<Box<dyn Future<Output = ()>>>,
}

impl Fetching {
    /// Creates the stage, without any connection.
    pub(crate) fn new(
        context: HotContext,
        options: FetchOptions,
        (cursors, pool): (Rc<Cursors>, Rc<BlockPool>),
        ends: FetchEnds,
    ) -> Fetching {
        let FetchEnds { control, dial_ends, blocks, events } = ends;
        let shared = Rc::new(SharedFetch {
            context,
            options,
            events,
            cursors,
            pool,
            table: RefCell::new(LeaderTable::new()),
            topic_claim: Cell::new(None),
            leadership_claims: LeadershipClaims::default(),
            searched_at: Cell::new(None),
            control,
            dialling: Dialling::new(dial_ends),
        });
        let metadata = Box::pin(LeaderQuestions::new(shared.clone()).run());
        let (tasks, ends_due_at) = (Vec::new(), shared.context.turns.now());
        Fetching { shared, blocks, metadata, tasks, edition: EDITION_UNSEEN, ends_due_at }
    }

    /// Forgets log ends that are out of date, once per [`ENDS_EVERY_MS`].
    fn forget_old_ends(&mut self) {
        let now = self.shared.context.turns.now();
        if self.ends_due_at <= now {
            self.ends_due_at = now + Duration::from_millis(ENDS_EVERY_MS);
            self.shared.forget_old_ends();
        }
    }

    /// Adds the missing tasks of each broker that leads partitions of the topic. In a large
    /// cluster, most brokers lead none.
    fn add_tasks(&mut self) {
        let shared = &self.shared;
        let table = shared.table.borrow();
        if std::mem::replace(&mut self.edition, table.edition()) == table.edition() {
            return;
        }
        for broker in table.brokers() {
            if !table.serves(broker.node_id) {
                continue;
            }
            for index in 0..shared.options.connections_per_broker {
                let node_id = broker.node_id;
                if self.tasks.iter().any(|task| (task.node_id, task.index) == (node_id, index)) {
                    continue;
                }
                let Some(id) = free_task(self.tasks.iter().map(|task| task.id)) else {
                    let sentence = format!(
                        "more than {CONNECTIONS_MAX} broker connections are needed: lower \
                         fetch.connections_per_broker"
                    );
                    let source = TroubleSource::Connections;
                    shared.report(ToControl::Trouble { source, sentence });
                    return;
                };
                let blocks = self.blocks.clone();
                let task = FetchTask::new(shared.clone(), id, node_id, index, blocks);
                self.tasks.push(SpawnedTask { id, node_id, index, future: Box::pin(task.run()) });
            }
        }
    }

    /// Polls all tasks, and removes those whose broker is no longer needed, which makes room for
    /// others.
    fn poll_tasks(&mut self, context: &mut Context<'_>) {
        let count = self.tasks.len();
        self.tasks.retain_mut(|task| task.future.as_mut().poll(context).is_pending());
        if self.tasks.len() < count {
            self.edition = EDITION_UNSEEN;
            self.shared.context.turns.turn_again();
        }
    }
}

impl Future for Fetching {
    type Output = ();

    fn poll(mut self: Pin<&mut Fetching>, context: &mut Context<'_>) -> Poll<()> {
        if self.shared.cursors.have_ended() {
            return Poll::Ready(());
        }
        self.shared.dialling.take_answers();
        if self.metadata.as_mut().poll(context).is_ready() {
            unreachable!("the metadata task never ends");
        }
        self.shared.doubt_leaders_of_new();
        self.add_tasks();
        self.poll_tasks(context);
        self.forget_old_ends();
        Poll::Pending
    }
}
