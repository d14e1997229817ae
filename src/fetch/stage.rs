//! The fetch path as one stage of the hot thread: the dialler is asked who leads, and for a
//! connection to each broker that does. Each connection has a task; they are polled in a fixed
//! order.

use crate::fetch::block::{Block, BlockPool};
use crate::fetch::cursor::{Cursor, Cursors};
use crate::fetch::dialling::{DialEnds, Dialling, Endpoint, free_task};
use crate::fetch::doubted_brokers::{DoubtedBroker, DoubtedBrokers};
use crate::fetch::leader_questions::LeaderQuestions;
use crate::fetch::log_ends::ENDS_EVERY_MS;
use crate::fetch::task::FetchTask;
use crate::fetch::{FetchOptions, REPORTS_MAX};
use crate::kafka::fetch::TopicKey;
use crate::kafka::message::{Envelope, Metadata};
use crate::kafka::metadata::{LeaderTable, MetadataError};
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

/// Milliseconds that a broker may take to answer, beyond the time that a Fetch asked it to wait.
const RESPONSE_MS_MAX: u64 = 10_000;

/// An edition that the table has before it is first told who leads.
const EDITION_UNSEEN: u64 = 0;

/// How a line ends about what is asked again.
pub(super) const ASKED_AGAIN: &str = "another connection is asked before that counts";

/// Connections to brokers in all; each is a sender of the queue.
pub(crate) const CONNECTIONS_MAX: usize = 60;

/// What all tasks of the fetch path share.
pub(crate) struct SharedFetch {
    /// Time, turns, operations, progress and counters.
    pub context: HotContext,
    /// What the operator chose.
    pub options: FetchOptions,
    /// Where each partition stands.
    pub cursors: Rc<Cursors>,
    /// Empty blocks.
    pub pool: Rc<BlockPool>,
    /// Who leads.
    pub table: RefCell<LeaderTable>,
    /// What the last answer about the topic said, if another connection has to say it, too.
    topic_doubt: Cell<Option<TopicDoubt>>,
    /// The brokers whose claims do not count before another one has said who leads.
    pub doubted_brokers: DoubtedBrokers,
    /// When the cluster was last asked about although no leader was missing.
    pub searched_at: Cell<Option<Instant>>,
    /// To the control thread.
    pub control: Sender<ToControl>,
    /// To the dialler, and its answers.
    pub dialling: Dialling,
}

/// What counts once two connections in a row have said it of the topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TopicDoubt {
    /// Which topic it is, and how many partitions it has. Nothing is known to compare that with.
    First { topic_id: u128, partitions: usize },
    /// It would halt all shards.
    Final(MetadataError),
}

/// What the fetch path is made of.
pub(crate) struct FetchEnds {
    /// To the control thread.
    pub control: Sender<ToControl>,
    /// To the dialler, and back.
    pub dial_ends: DialEnds,
    /// To the engine.
    pub blocks: Sender<Box<Block>>,
}

impl SharedFetch {
    /// Reports to the control thread. False: there is no room now, and the report will be repeated.
    pub(crate) fn report(&self, report: ToControl) -> bool {
        self.control.try_send_below(REPORTS_MAX, report).is_ok()
    }

    /// Makes sure that the leader of a new cursor's partition is asked for before its first Fetch.
    /// So a topic that was created again while this daemon owned none of its partitions is not read
    /// as the topic before it. A leader below the epoch that the survey was told of does not count:
    /// brokers that are cut off together would name an earlier one, and confirm each other.
    fn doubt_leaders_of_new(&self) {
        self.cursors.each(|cursor| {
            if cursor.is_new.take() {
                let leader_epoch = cursor.surveyed_leader_epoch.get();
                self.table.borrow_mut().expect_leader(cursor.partition, leader_epoch);
                self.context.turns.turn_again();
            }
        });
    }

    /// Asks the dialler for a connection. False: the broker's address is not known.
    pub(crate) fn ask_for_connection(&self, task: usize, node_id: i32) -> bool {
        let Some(endpoint) = self.table.borrow().broker(node_id).map(Endpoint::of) else {
            return false;
        };
        self.dialling.ask_for_connection(task, endpoint);
        true
    }

    /// One connection more, or one less.
    pub(crate) fn count_connections(&self, change: i64) {
        let open = self.context.metrics.gauge(Gauge::Connections).saturating_add_signed(change);
        self.context.metrics.set_gauge(Gauge::Connections, open);
    }

    /// How long an answer may take once the broker reads the request.
    pub(crate) fn answer_wait(&self) -> Duration {
        Duration::from_millis(RESPONSE_MS_MAX + u64::from(self.options.fetch_wait_ms_max))
    }

    /// Learns what a broker says about the cluster and the topic. If that fails, the connection is
    /// not asked again. The error is a sentence.
    pub(crate) fn take_metadata(&self, metadata: &Metadata) -> Result<(), String> {
        let mut table = self.table.borrow_mut();
        let is_first = table.partition_count() == 0 && metadata.error.is_none();
        let first = is_first.then_some(TopicDoubt::First {
            topic_id: metadata.topic_id,
            partitions: metadata.partitions.len(),
        });
        let before = self.topic_doubt.get();
        if first.is_some() && first != before {
            self.topic_doubt.set(first);
            return match before {
                None => Ok(()),
                Some(_) => Err(format!(
                    "two connections do not say the same of which topic the input is, or how many \
                     partitions it has: {ASKED_AGAIN}"
                )),
            };
        }
        let folded = table.fold(metadata);
        drop(table);
        let doubt = folded.err().filter(MetadataError::is_final).map(TopicDoubt::Final);
        self.topic_doubt.set(doubt);
        match folded {
            Ok(()) => {
                let topic_id = &self.context.progress.input_topic_id;
                topic_id.get_or_init(|| metadata.topic_id.to_be_bytes());
            }
            Err(error) if doubt.is_some() && doubt != before => {
                return Err(format!("{error}: {ASKED_AGAIN}"));
            }
            // No retry helps a topic that was recreated or grew: each shard halts with the reason.
            Err(error) if doubt.is_some() => {
                self.cursors.each(|cursor: &Rc<Cursor>| cursor.fail(error.to_string()));
            }
            Err(_) => {}
        }
        folded.map_err(|error| error.to_string())
    }

    /// Whether another connection has to confirm what the last answer said about the topic.
    pub(crate) fn doubts_topic(&self) -> bool {
        self.topic_doubt.get().is_some()
    }

    /// The claims in doubt of brokers that the cluster still has.
    pub(crate) fn doubted(&self, table: &LeaderTable) -> Vec<DoubtedBroker> {
        self.doubted_brokers.of(|node_id| table.broker(node_id).is_some())
    }

    /// Whether a broker's claims about a partition do not count yet. They count if the cluster has
    /// no other broker.
    pub(crate) fn doubts_broker(&self, broker: DoubtedBroker) -> bool {
        let has_others =
            || self.table.borrow().brokers().iter().any(|it| it.node_id != broker.node_id);
        self.doubted_brokers.contain(broker) && has_others()
    }

    /// The input topic, as a Fetch names it.
    pub(crate) fn topic_key(&self) -> TopicKey<'_> {
        TopicKey { name: &self.options.input_topic, id: self.table.borrow().topic_id() }
    }

    /// What every request carries.
    pub(crate) fn envelope(&self, version: i16, correlation_id: i32) -> Envelope<'_> {
        Envelope { version, correlation_id, client_id: &self.options.client_id }
    }
}

/// The stage: finished once the cursors have ended.
pub(crate) struct Fetching {
    shared: Rc<SharedFetch>,
    blocks: Sender<Box<Block>>,
    metadata: Pin<Box<dyn Future<Output = ()>>>,
    tasks: Vec<SpawnedTask>,
    /// The edition of the table whose leaders have tasks.
    edition: u64,
    /// When the ends of logs are next checked for their age.
    ends_due_at: Instant,
}

struct SpawnedTask {
    /// No other task has the same at the same time.
    id: usize,
    node_id: i32,
    /// Which of the broker's connections it has.
    index: usize,
    future: Pin<Box<dyn Future<Output = ()>>>,
}

impl Fetching {
    /// The stage, not yet connected to anything.
    pub(crate) fn new(
        context: HotContext,
        options: FetchOptions,
        (cursors, pool): (Rc<Cursors>, Rc<BlockPool>),
        ends: FetchEnds,
    ) -> Fetching {
        let FetchEnds { control, dial_ends, blocks } = ends;
        let shared = Rc::new(SharedFetch {
            context,
            options,
            cursors,
            pool,
            table: RefCell::new(LeaderTable::new()),
            topic_doubt: Cell::new(None),
            doubted_brokers: DoubtedBrokers::default(),
            searched_at: Cell::new(None),
            control,
            dialling: Dialling::new(dial_ends),
        });
        let metadata = Box::pin(LeaderQuestions::new(shared.clone()).run());
        let (tasks, ends_due_at) = (Vec::new(), shared.context.turns.now());
        Fetching { shared, blocks, metadata, tasks, edition: EDITION_UNSEEN, ends_due_at }
    }

    /// Forgets the ends that are out of date, once per [`ENDS_EVERY_MS`].
    fn forget_old_ends(&mut self) {
        let now = self.shared.context.turns.now();
        if self.ends_due_at <= now {
            self.ends_due_at = now + Duration::from_millis(ENDS_EVERY_MS);
            self.shared.forget_old_ends();
        }
    }

    /// Adds the missing tasks of each broker that serves partitions of the topic: in a large
    /// cluster, most serve none.
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

    /// Polls all tasks, and removes those whose broker is not needed any more. Then there is room
    /// for others.
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
            unreachable!("metadata are followed for ever");
        }
        self.shared.doubt_leaders_of_new();
        self.add_tasks();
        self.poll_tasks(context);
        self.forget_old_ends();
        Poll::Pending
    }
}
