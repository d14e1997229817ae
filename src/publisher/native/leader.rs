//! The connection to one broker that leads partitions: it sends requests, takes answers, and is
//! replaced after a failure.

use super::SharedProducer;
use super::lanes::REPLICAS_MS_MAX;
use crate::fetch::connection::{Connection, ConnectionError};
use crate::fetch::dialling::{DialError, Dialled, Endpoint};
use crate::kafka::message::Versions;
use crate::kafka::throttle::Throttle;
use crate::kafka::{RECONNECT_MS_MAX, RECONNECT_MS_MIN};
use futures_lite::future;
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Milliseconds that a broker may take to answer, beyond the time that its replicas may take.
const ANSWER_MS_MAX: u64 = 5_000;

/// Milliseconds without an answer after which another broker is asked who leads, and between two
/// such questions. A leader whose replicas follow another one by now waits for them in vain.
pub(super) const DOUBT_MS: u64 = 2_500;

/// Bytes of an answer: a thousand partitions take less than a tenth, sentences and all.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// One broker.
pub(super) struct Leader<T> {
    pub(super) shared: Rc<SharedProducer<T>>,
    /// Tells this task from the others.
    pub(super) task: usize,
    pub(super) node_id: i32,
}

/// The connection in use.
struct LeaderConnection {
    connection: Connection,
    versions: Versions,
    /// When it must have been replaced by another one.
    replace_at: Option<Instant>,
    throttle: Cell<Throttle>,
}

impl LeaderConnection {
    /// When the answer to a request that was sent at this time is overdue.
    fn overdue_at(&self, sent_at: Instant) -> Instant {
        self.throttle.get().reads_at(sent_at) + answer_max()
    }
}

impl<T> Leader<T> {
    /// Serves the broker until the cluster does not have it any more, connecting again as often as
    /// it takes.
    pub(super) async fn run(self) {
        let turns = &self.shared.turns;
        let mut wait_ms = RECONNECT_MS_MIN;
        loop {
            let begun = turns.now();
            let mut was_idle = false;
            let trouble = match self.dial().await {
                Some(Ok(dialled)) => self.serve(dialled).await.map_err(|error| {
                    was_idle = self.shared.lanes.borrow().asked_at(self.node_id).is_none()
                        && matches!(error, ConnectionError::Io { .. });
                    error.to_string()
                }),
                Some(Err(error)) => Err(error.to_string()),
                None => return,
            };
            let Err(sentence) = trouble else { continue };
            let has_lasted = turns.now() >= begun + Duration::from_millis(RECONNECT_MS_MAX);
            if has_lasted {
                wait_ms = RECONNECT_MS_MIN;
            }
            // Brokers close connections that nothing was sent on for a while.
            if !was_idle || !has_lasted {
                self.shared.note_trouble(&sentence);
            }
            if !was_idle {
                self.shared.lanes.borrow_mut().closed(self.node_id);
            }
            turns.sleep_until(turns.now() + Duration::from_millis(wait_ms)).await;
            wait_ms = (wait_ms * 2).min(RECONNECT_MS_MAX);
        }
    }

    /// Returns whether it leads a partition that has something to be sent, or soon may have.
    fn leads(&self) -> bool {
        self.shared.lanes.borrow().leaders().contains(&self.node_id)
    }

    /// Waits until the broker leads something, and then for a connection. Returns `None` if the
    /// cluster does not have the broker any more.
    async fn dial(&self) -> Option<Result<Dialled, DialError>> {
        let known = || {
            let endpoint = self.endpoint();
            (self.leads() || endpoint.is_none()).then_some(endpoint)
        };
        let endpoint = self.shared.turns.until(known).await?;
        self.connect(endpoint).await
    }

    fn endpoint(&self) -> Option<Endpoint> {
        self.shared.lanes.borrow().table().broker(self.node_id).map(Endpoint::of)
    }

    async fn connect(&self, endpoint: Endpoint) -> Option<Result<Dialled, DialError>> {
        let SharedProducer { turns, dialling, .. } = &*self.shared;
        dialling.ask_for_connection(self.task, endpoint);
        dialling.ring();
        Some(turns.until(|| dialling.take_dialled(self.task)).await)
    }

    /// Serves the broker until the connection fails, or is to be replaced and nothing is under way.
    async fn serve(&self, dialled: Dialled) -> Result<(), ConnectionError> {
        let Dialled { versions, replace_at, .. } = dialled;
        let connection = Connection::new(&self.shared.turns, dialled, ANSWER_BYTES_MAX);
        let throttle = Cell::new(Throttle::none(self.shared.turns.now()));
        let link = LeaderConnection { connection, versions, replace_at, throttle };
        // Answers first: they make room for requests.
        future::or(self.receive(&link), self.send(&link)).await
    }

    async fn send(&self, link: &LeaderConnection) -> Result<(), ConnectionError> {
        let SharedProducer { turns, lanes, now_ms, .. } = &*self.shared;
        let mut request = Vec::new();
        loop {
            request.clear();
            let is_last = turns
                .until(|| {
                    if link.connection.is_worn()
                        || link.replace_at.is_some_and(|at| at <= turns.now())
                    {
                        return Some(true);
                    }
                    let quiet_until = link.throttle.get().quiet_until();
                    if quiet_until > turns.now() {
                        turns.turn_at(quiet_until);
                        return None;
                    }
                    let now = (turns.now(), now_ms.get());
                    let mut lanes = lanes.borrow_mut();
                    lanes
                        .next_request(self.node_id, link.versions, now, &mut request)
                        .then_some(false)
                })
                .await;
            if is_last {
                let is_idle = || lanes.borrow().asked_at(self.node_id).is_none();
                turns.until(|| is_idle().then_some(())).await;
                return Ok(());
            }
            let deadline = link.overdue_at(turns.now());
            request = link.connection.send(request, deadline).await?;
        }
    }

    /// Ends when another broker leads what this one has not answered for a while.
    async fn superseded(&self, link: &LeaderConnection, asked_at: Instant) {
        let SharedProducer { turns, lanes, .. } = &*self.shared;
        let patience = Duration::from_millis(DOUBT_MS);
        let mut doubt_at = link.throttle.get().reads_at(asked_at) + patience;
        let mut is_doubted = false;
        let is_superseded = || {
            if doubt_at <= turns.now() {
                lanes.borrow_mut().suspects.add(self.node_id);
                (is_doubted, doubt_at) = (true, turns.now() + patience);
                turns.turn_again();
            }
            turns.turn_at(doubt_at);
            (is_doubted && lanes.borrow().is_superseded(self.node_id)).then_some(())
        };
        turns.until(is_superseded).await;
    }

    async fn receive(&self, link: &LeaderConnection) -> Result<(), ConnectionError> {
        let SharedProducer { turns, lanes, .. } = &*self.shared;
        loop {
            let asked_at = || lanes.borrow().asked_at(self.node_id);
            let overdue_at = || asked_at().map(|at| link.overdue_at(at));
            // It also ends if the broker closes the connection while nothing is asked.
            let answer = link.connection.receive_next(overdue_at);
            let superseded = async {
                let asked_at = turns.until(asked_at).await;
                self.superseded(link, asked_at).await;
                Err(ConnectionError::Superseded { address: link.connection.address() })
            };
            let mut answer = future::or(answer, superseded).await?;
            if asked_at().is_none() {
                return Err(link.connection.protocol("nothing was asked"));
            }
            lanes.borrow_mut().suspects.settle(self.node_id);
            let read = lanes.borrow_mut().answered(self.node_id, answer.bytes(), turns.now());
            link.connection.give_back(answer);
            if let Some(sentence) = lanes.borrow_mut().take_trouble() {
                self.shared.note_trouble(&sentence);
            }
            let throttle_ms = read.map_err(|error| link.connection.protocol(error))?;
            link.throttle.set(Throttle::asked(throttle_ms, turns.now()));
            if throttle_ms > 0 {
                self.shared.count_throttled(self.node_id, throttle_ms);
                let address = link.connection.address();
                let sentence = Throttle::sentence(address, throttle_ms, "producer_byte_rate");
                self.shared.note_trouble(&sentence);
            }
            if lanes.borrow().has_waiting() {
                // Batches that have come back may belong to another broker, or their leader must be
                // asked for.
                turns.turn_again();
            }
        }
    }
}

fn answer_max() -> Duration {
    Duration::from_millis(REPLICAS_MS_MAX as u64 + ANSWER_MS_MAX)
}
