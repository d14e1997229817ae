//! The keeper: writes captured states to slots, and makes snapshots of them once they are gated.
//!
//! It has a thread of its own, off the hot core. Whatever a disk does, the daemon goes on: a
//! snapshot that could not be stored is counted and told, and the next one is tried.

use crate::limits::{KEEPER_IDLE_MS_MAX, KEEPER_MESSAGES_PER_LOOK};
use crate::metrics::{Counter, Metrics};
use crate::progress::Progress;
use crate::publisher::Gate;
use crate::publisher::bell::Bell;
use crate::queue::{Receiver, Sender};
use crate::recovery::capture::{Buffer, Captured, Message};
use crate::recovery::disk::Disk;
use crate::recovery::mark::Mark;
use crate::recovery::slots::{Draft, Store};
use crate::recovery::snapshot::Header;
use crate::service::log::Repeated;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime};

/// What became of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is the shard's newest snapshot.
    Stored(Box<Header>),
    /// It could not be stored: the sentence says why, and what to do.
    Failed {
        /// The shard's partition.
        partition: i32,
        /// In words.
        sentence: String,
    },
    /// Its shard has ended, or a newer capture has taken its place.
    Dropped {
        /// The shard's partition.
        partition: i32,
    },
}

/// Puts states and gates together. Neither threads nor clocks: whoever has those calls this.
pub struct Keeper<D> {
    store: Store<D>,
    /// By partition: the capture that is written or waits for its gate.
    waiting: BTreeMap<i32, Waiting>,
    /// The partition whose state comes now.
    writing: Option<i32>,
    outcomes: VecDeque<Outcome>,
}

struct Waiting {
    generation: u32,
    capture: u64,
    draft: Draft,
    gate: Option<Mark>,
}

impl<D: Disk> Keeper<D> {
    /// A keeper with nothing to do.
    pub fn new(store: Store<D>) -> Keeper<D> {
        Keeper { store, waiting: BTreeMap::new(), writing: None, outcomes: VecDeque::new() }
    }

    /// Takes what the hot thread says. A buffer comes back for further use.
    pub fn take(&mut self, message: Message) -> Option<Buffer> {
        match message {
            Message::Begin(captured) => {
                self.begin(&captured);
                None
            }
            Message::Block(buffer) => Some(self.write(buffer)),
            Message::Abandon { partition, generation } => {
                let waiting = self.waiting.get(&partition);
                if waiting.is_some_and(|waiting| waiting.generation == generation) {
                    self.forget(partition);
                    self.outcomes.push_back(Outcome::Dropped { partition });
                }
                None
            }
        }
    }

    fn begin(&mut self, captured: &Captured) {
        let Captured { partition, generation, capture, .. } = *captured;
        if self.forget(partition) {
            self.outcomes.push_back(Outcome::Dropped { partition });
        }
        // If it cannot begin, its state must not be taken for that of the capture before it.
        self.writing = None;
        match self.store.begin(captured) {
            Ok(draft) => {
                let waiting = Waiting { generation, capture, draft, gate: None };
                self.waiting.insert(partition, waiting);
                self.writing = Some(partition);
            }
            Err(error) => self.fail(partition, &error),
        }
    }

    fn write(&mut self, mut buffer: Buffer) -> Buffer {
        // A capture that has failed may still send state: it comes to nothing.
        if let Some(partition) = self.writing
            && let Some(waiting) = self.waiting.get_mut(&partition)
            && let Err(error) = self.store.write_block(&mut waiting.draft, &mut buffer)
        {
            self.fail(partition, &error);
        }
        buffer.clear();
        buffer
    }

    /// Takes what the publisher says. A gate may come before the last of its state.
    pub fn gate(&mut self, gate: Gate) {
        let Gate { partition, generation, capture, mark } = gate;
        if let Some(waiting) = self.waiting.get_mut(&partition)
            && (waiting.generation, waiting.capture) == (generation, capture)
        {
            waiting.gate = Some(mark);
        }
    }

    /// Makes snapshots of all captures that are whole and gated.
    pub fn settle(&mut self, now_ms: i64) {
        let is_ready = |waiting: &Waiting| waiting.gate.is_some() && waiting.draft.is_complete();
        while let Some((&partition, _)) = self.waiting.iter().find(|(_, waiting)| is_ready(waiting))
        {
            let Waiting { draft, gate, .. } = self.waiting.remove(&partition).expect("found");
            self.writing = self.writing.filter(|writing| *writing != partition);
            match self.store.commit(draft, gate.expect("it is ready"), now_ms) {
                Ok(header) => self.outcomes.push_back(Outcome::Stored(Box::new(header))),
                Err(error) => self.fail(partition, &error),
            }
        }
    }

    /// What has become of a capture since the last question.
    pub fn next_outcome(&mut self) -> Option<Outcome> {
        self.outcomes.pop_front()
    }

    fn fail(&mut self, partition: i32, error: &dyn std::fmt::Display) {
        self.forget(partition);
        let sentence = format!(
            "a snapshot of partition {partition} was not stored: {error}; give the state directory \
             room and make it writable: until then a restart replays from an older one"
        );
        self.outcomes.push_back(Outcome::Failed { partition, sentence });
    }

    fn forget(&mut self, partition: i32) -> bool {
        self.writing = self.writing.filter(|writing| *writing != partition);
        self.waiting.remove(&partition).is_some()
    }
}

/// The keeper thread's ends of all that it shares with other threads.
pub struct Ends {
    /// From the hot thread. Its end and that of the gates is the keeper's end.
    pub messages: Receiver<Message>,
    /// To the hot thread: buffers to fill again.
    pub free_buffers: Sender<Buffer>,
    /// From the publisher.
    pub gates: Receiver<Gate>,
    /// Rung after either was filled.
    pub bell: Arc<Bell>,
    /// To the copier; `None`: there are no copies.
    pub stored: Option<SyncSender<Header>>,
    /// How far each shard is.
    pub progress: Arc<Progress>,
    /// The counters.
    pub metrics: Arc<Metrics>,
}

/// Keeps snapshots until nobody captures any more.
pub fn run<D: Disk>(mut keeper: Keeper<D>, mut ends: Ends) {
    let mut trouble = Repeated::new();
    loop {
        let messages = take_messages(&mut keeper, &mut ends);
        let gates = take_gates(&mut keeper, &mut ends);
        keeper.settle(now_ms());
        while let Some(outcome) = keeper.next_outcome() {
            tell(&outcome, &ends, &mut trouble);
        }
        match (messages, gates) {
            (Inbox::Ended, Inbox::Ended) => return,
            (Inbox::Full, _) => {}
            _ => {
                let Ends { messages, gates, .. } = &ends;
                let has_work = || !messages.is_empty() || !gates.is_empty();
                // Where sleeping fails, the next look comes early.
                let _rung = ends.bell.sleep(Duration::from_millis(KEEPER_IDLE_MS_MAX), has_work);
            }
        }
    }
}

/// How a queue was left.
enum Inbox {
    /// There may be more.
    Full,
    /// There was no more.
    Empty,
    /// There will be no more.
    Ended,
}

/// Takes what the hot thread says, a bounded number: gates wait meanwhile.
fn take_messages<D: Disk>(keeper: &mut Keeper<D>, ends: &mut Ends) -> Inbox {
    for _ in 0..KEEPER_MESSAGES_PER_LOOK {
        match ends.messages.poll_receive(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(message)) => {
                if let Some(buffer) = keeper.take(message) {
                    // The queue holds all buffers there are; the hot thread may be gone.
                    let _gone = ends.free_buffers.try_send(buffer);
                }
            }
            Poll::Ready(None) => return Inbox::Ended,
            Poll::Pending => return Inbox::Empty,
        }
    }
    Inbox::Full
}

fn take_gates<D: Disk>(keeper: &mut Keeper<D>, ends: &mut Ends) -> Inbox {
    loop {
        match ends.gates.poll_receive(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(gate)) => keeper.gate(gate),
            Poll::Ready(None) => return Inbox::Ended,
            Poll::Pending => return Inbox::Empty,
        }
    }
}

fn tell(outcome: &Outcome, ends: &Ends, trouble: &mut Repeated) {
    let partition = match outcome {
        Outcome::Stored(header) => {
            let progress = ends.progress.shard(header.partition);
            progress.snapshot_at_ms.set(header.taken_at_ms);
            ends.metrics.add(Counter::SnapshotsStored, 1);
            ends.metrics.add(Counter::SnapshotBytes, header.state_bytes);
            let Header { partition, next_offset, next_update, .. } = **header;
            tracing::debug!(partition, next_offset, next_update, "snapshot stored");
            if let Some(stored) = &ends.stored {
                // A copier that is far behind takes the next one.
                let _full = stored.try_send(Header::clone(header));
            }
            partition
        }
        Outcome::Failed { partition, sentence } => {
            ends.metrics.add(Counter::SnapshotsFailed, 1);
            if let Some(withheld) = trouble.notice(Instant::now()) {
                tracing::warn!(withheld, "{sentence}");
            }
            *partition
        }
        Outcome::Dropped { partition } => *partition,
    };
    let settled = &ends.progress.shard(partition).captures_settled;
    settled.set(settled.get() + 1);
}

/// Milliseconds since the Unix epoch.
fn now_ms() -> i64 {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since_epoch.map_or(0, |elapsed| elapsed.as_millis() as i64)
}
