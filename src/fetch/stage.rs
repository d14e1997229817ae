//! The fetch path as one stage of the hot thread: who leads is found out, and each broker
//! connection has a task; they are polled in a fixed order.

use crate::fetch::addresses::Addresses;
use crate::fetch::block::{Block, BlockPool};
use crate::fetch::connection::{Connection, ConnectionError};
use crate::fetch::cursor::{Cursor, Cursors};
use crate::fetch::task::FetchTask;
use crate::fetch::{FetchOptions, REPORTS_MAX, Resolved};
use crate::kafka::message::{self, ApiVersionsAnswer, Envelope, Versions};
use crate::kafka::metadata::LeaderTable;
use crate::kafka::{RECONNECT_MS_MAX, RECONNECT_MS_MIN};
use crate::ownership::event::ToControl;
use crate::queue::Sender;
use crate::runtime::turns::HotContext;
use crate::telemetry::metrics::{Counter, Gauge};
use std::cell::RefCell;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Milliseconds that a broker may take to answer, beyond the time that a Fetch asked it to wait.
const RESPONSE_MS_MAX: u64 = 30_000;

/// Connections to brokers in all; each is a sender of the queue.
pub(crate) const CONNECTIONS_MAX: usize = 60;

/// Bytes of a response other than Fetch: a cluster of thousands of brokers and partitions fits.
const METADATA_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What all tasks of the fetch path share.
pub(crate) struct Shared {
    /// Time, turns, operations, progress and counters.
    pub context: HotContext,
    /// What the operator chose.
    pub options: FetchOptions,
    /// Addresses of `options.brokers`.
    pub bootstrap: Vec<SocketAddr>,
    /// Where each partition stands.
    pub cursors: Rc<Cursors>,
    /// Empty blocks.
    pub pool: Rc<BlockPool>,
    /// Who leads.
    pub table: RefCell<LeaderTable>,
    /// Where the brokers listen.
    pub addresses: RefCell<Addresses>,
    /// To the control thread.
    pub control: Sender<ToControl>,
}

impl Shared {
    /// Tells the control thread. False: there is no room now; what does not fit comes again.
    pub(crate) fn report(&self, report: ToControl) -> bool {
        self.control.try_send_below(REPORTS_MAX, report).is_ok()
    }

    /// Lets a broker's name be resolved again: it may have moved.
    pub(crate) fn forget_address(&self, node_id: i32) {
        if let Some(broker) = self.table.borrow().broker(node_id) {
            self.addresses.borrow_mut().remove(&broker.host, broker.port);
        }
    }

    /// Lets the leader of what was opened be asked for before its first Fetch: a topic that was
    /// created again while this daemon had none of its partitions is not read as the one before.
    fn doubt_leaders_of_new(&self) {
        self.cursors.each(|cursor| {
            if cursor.is_new.take() {
                self.table.borrow_mut().mark_stale(cursor.partition);
                self.context.turns.turn_again();
            }
        });
    }

    /// Where a broker listens, once that is known.
    pub(crate) fn address(&self, node_id: i32) -> Option<SocketAddr> {
        let table = self.table.borrow();
        let broker = table.broker(node_id)?;
        self.addresses.borrow().get(&broker.host, broker.port)
    }

    /// One connection more, or one less.
    pub(crate) fn count_connections(&self, change: i64) {
        let open = self.context.metrics.gauge(Gauge::Connections).saturating_add_signed(change);
        self.context.metrics.set_gauge(Gauge::Connections, open);
    }

    /// When an answer to a request that is sent now is overdue.
    pub(crate) fn deadline(&self) -> Instant {
        let wait_ms = RESPONSE_MS_MAX + u64::from(self.options.fetch_wait_ms_max);
        self.context.turns.now() + Duration::from_millis(wait_ms)
    }

    /// Connects and learns what versions the broker speaks.
    pub(crate) async fn connect(
        &self,
        address: SocketAddr,
        response_bytes_max: usize,
    ) -> Result<(Connection, Versions), ConnectionError> {
        let mut connection =
            Connection::open(&self.context.turns, address, response_bytes_max).await?;
        self.context.metrics.add(Counter::ConnectionsOpened, 1);
        let mut version = message::API_VERSIONS_VERSION_MAX;
        loop {
            let mut request = Vec::new();
            message::api_versions_request(self.envelope(version, 0), &mut request);
            connection.send(request, self.deadline()).await?;
            let mut response = connection.receive(self.deadline()).await?;
            let answer = message::parse_api_versions(response.bytes(), version, 0);
            connection.give_back(response);
            match answer {
                Ok(ApiVersionsAnswer::Chosen(versions)) => return Ok((connection, versions)),
                Ok(ApiVersionsAnswer::AskWithVersionZero) => version = 0,
                Err(error) => return Err(connection.protocol(error)),
            }
        }
    }

    /// What every request carries.
    pub(crate) fn envelope(&self, version: i16, correlation_id: i32) -> Envelope<'_> {
        Envelope { version, correlation_id, client_id: &self.options.client_id }
    }
}

/// The stage: finished once the cursors have ended.
pub(crate) struct Fetching {
    shared: Rc<Shared>,
    blocks: Sender<Box<Block>>,
    metadata: Pin<Box<dyn Future<Output = ()>>>,
    tasks: Vec<Task>,
    /// The edition of the table whose leaders have tasks.
    edition: u64,
    /// Whether it was said that there can be no more tasks.
    is_full: bool,
}

struct Task {
    node_id: i32,
    future: Pin<Box<dyn Future<Output = ()>>>,
}

impl Fetching {
    /// The stage, not yet connected to anything.
    pub(crate) fn new(shared: Rc<Shared>, blocks: Sender<Box<Block>>) -> Fetching {
        let metadata = Box::pin(follow_metadata(shared.clone()));
        let tasks = Vec::new();
        Fetching { shared, blocks, metadata, tasks, edition: 0, is_full: false }
    }

    /// A broker's name has been looked up.
    pub(crate) fn resolved(&self, resolved: Resolved) {
        let Resolved { host, port, address } = resolved;
        let mut addresses = self.shared.addresses.borrow_mut();
        match address {
            Some(_) => addresses.put(&host, port, address),
            // The next look at the metadata asks again.
            None => addresses.remove(&host, port),
        }
    }

    /// Sees to it that every broker that leads a partition has its tasks: of a large cluster, most
    /// do not.
    fn add_tasks(&mut self) {
        let shared = &self.shared;
        let table = shared.table.borrow();
        if std::mem::replace(&mut self.edition, table.edition()) == table.edition() {
            return;
        }
        for broker in table.brokers() {
            let has_tasks = self.tasks.iter().any(|task| task.node_id == broker.node_id);
            if has_tasks || !table.leads(broker.node_id) {
                continue;
            }
            for index in 0..shared.options.connections_per_broker {
                if self.tasks.len() == CONNECTIONS_MAX {
                    if !std::mem::replace(&mut self.is_full, true) {
                        let sentence = format!(
                            "more than {CONNECTIONS_MAX} broker connections are needed: lower \
                             fetch.connections_per_broker"
                        );
                        shared.report(ToControl::Trouble(sentence));
                    }
                    return;
                }
                let node_id = broker.node_id;
                let task = FetchTask::new(
                    shared.clone(),
                    self.tasks.len(),
                    node_id,
                    index,
                    self.blocks.clone(),
                );
                self.tasks.push(Task { node_id, future: Box::pin(task.run()) });
            }
        }
    }
}

impl Future for Fetching {
    type Output = ();

    fn poll(mut self: Pin<&mut Fetching>, context: &mut Context<'_>) -> Poll<()> {
        if self.shared.cursors.have_ended() {
            return Poll::Ready(());
        }
        if self.metadata.as_mut().poll(context).is_ready() {
            unreachable!("metadata are followed for ever");
        }
        self.shared.doubt_leaders_of_new();
        self.add_tasks();
        for task in &mut self.tasks {
            if task.future.as_mut().poll(context).is_ready() {
                unreachable!("a task serves its broker for ever");
            }
        }
        Poll::Pending
    }
}

/// Asks who leads whenever somebody needs to know.
async fn follow_metadata(shared: Rc<Shared>) {
    let mut wait_ms = RECONNECT_MS_MIN;
    for turn in 0.. {
        shared.context.turns.until(|| needs_metadata(&shared).then_some(())).await;
        let address = shared.bootstrap_address(turn);
        match refresh_metadata(&shared, address).await {
            Ok(()) => wait_ms = RECONNECT_MS_MIN,
            Err(error) => {
                shared.report(ToControl::Trouble(error.to_string()));
                wait_ms = (wait_ms * 2).min(RECONNECT_MS_MAX);
            }
        }
        // Asking again at once would only find the same: an election takes its time.
        let pause = shared.context.turns.now() + Duration::from_millis(wait_ms);
        shared.context.turns.sleep_until(pause).await;
    }
}

fn needs_metadata(shared: &Shared) -> bool {
    let table = shared.table.borrow();
    let mut needed = table.partition_count() == 0;
    shared.cursors.each(|cursor| needed |= table.leader(cursor.partition).is_none());
    let addresses = shared.addresses.borrow();
    let unknown = |broker: &message::Broker| !addresses.has(&broker.host, broker.port);
    needed || table.brokers().iter().any(unknown)
}

impl Shared {
    /// The brokers to ask in turn: those that are known to be there, then the ones from the
    /// configuration, which may have moved.
    fn bootstrap_address(&self, turn: usize) -> SocketAddr {
        let addresses = self.addresses.borrow();
        let known: Vec<SocketAddr> = addresses.iter().collect();
        let all = known.len() + self.bootstrap.len();
        match turn % all {
            place if place < known.len() => known[place],
            place => self.bootstrap[place - known.len()],
        }
    }
}

async fn refresh_metadata(shared: &Shared, address: SocketAddr) -> Result<(), ConnectionError> {
    let (mut connection, versions) = shared.connect(address, METADATA_BYTES_MAX).await?;
    let topic = &shared.options.input_topic;
    let (version, correlation_id) = (versions.metadata, 1);
    let mut request = Vec::new();
    message::metadata_request(shared.envelope(version, correlation_id), topic, &mut request);
    connection.send(request, shared.deadline()).await?;
    let mut response = connection.receive(shared.deadline()).await?;
    let answer = message::parse_metadata(response.bytes(), version, correlation_id, topic);
    let metadata = answer.map_err(|error| connection.protocol(error))?;
    let folded = shared.table.borrow_mut().fold(&metadata);
    if let Err(error) = folded {
        // No retry helps a topic that was recreated or grew: each shard halts with the reason.
        if error.is_final() {
            shared.cursors.each(|cursor: &Rc<Cursor>| cursor.fail(error.to_string()));
        }
        return Err(connection.protocol(error));
    }
    shared.context.progress.input_topic_id.get_or_init(|| metadata.topic_id.to_be_bytes());
    for broker in &metadata.brokers {
        if shared.addresses.borrow().has(&broker.host, broker.port) {
            continue;
        }
        let address = broker.host.parse().ok().map(|ip| SocketAddr::new(ip, broker.port));
        let (host, port) = (broker.host.clone(), broker.port);
        if address.is_some() || shared.report(ToControl::Resolve { host, port }) {
            shared.addresses.borrow_mut().put(&broker.host, broker.port, address);
        }
    }
    Ok(())
}
