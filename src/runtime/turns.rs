//! The hot thread's time and turns, as its stages see them: no I/O, no clock.
//!
//! The root future joins all stages of the hot path in a fixed order. Each turn polls every stage
//! once, so a stage that waits needs no waker of its own; it needs a turn. A turn follows a
//! finished operation, a wake from another thread, a deadline that was registered with
//! [`Driver::sleep_until`], or [`Driver::turn_again`], which whoever changes what an earlier stage
//! waits for has to ask for. `hot_loop.rs` turns with the clock and the kernel, the simulator with
//! its own.

use crate::runtime::operations::Operations;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::progress::Progress;
use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Poll;
use std::time::Instant;

/// What the stages of the hot thread know of it.
pub struct Turns {
    operations: Rc<Operations>,
    rest: Arc<Rest>,
    now: Cell<Instant>,
    /// The earliest deadline that a stage registered in this turn.
    deadline: Cell<Option<Instant>>,
    turns: Cell<u64>,
}

impl Turns {
    /// A driver before its first turn.
    pub fn new(now: Instant) -> Rc<Turns> {
        Rc::new(Turns {
            operations: Operations::new(),
            rest: Arc::default(),
            now: Cell::new(now),
            deadline: Cell::new(None),
            turns: Cell::new(0),
        })
    }

    /// What the stages ask of the kernel.
    pub fn operations(&self) -> &Rc<Operations> {
        &self.operations
    }

    /// The time when this turn began.
    pub fn now(&self) -> Instant {
        self.now.get()
    }

    /// Turns so far.
    pub fn count(&self) -> u64 {
        self.turns.get()
    }

    /// Asks for another turn without sleeping: the calling stage has more to do.
    pub fn turn_again(&self) {
        self.rest.state.store(NOTIFIED, Ordering::Relaxed);
    }

    /// Whether no stage that was polled before in this turn has more to do.
    pub fn is_going_to_rest(&self) -> bool {
        self.rest.state.load(Ordering::Relaxed) == AWAKE
    }

    /// Sees to it that a turn begins at `deadline` or soon after.
    pub fn turn_at(&self, deadline: Instant) {
        if self.deadline.get().is_none_or(|earliest| deadline < earliest) {
            self.deadline.set(Some(deadline));
        }
    }

    /// Waits until `deadline`.
    pub async fn sleep_until(&self, deadline: Instant) {
        poll_fn(|_| {
            if self.now() >= deadline {
                return Poll::Ready(());
            }
            self.turn_at(deadline);
            Poll::Pending
        })
        .await;
    }

    /// Lets the other stages have their turn, then goes on.
    pub async fn yield_turn(&self) {
        let mut yielded = false;
        poll_fn(|_| {
            if yielded {
                return Poll::Ready(());
            }
            yielded = true;
            self.turn_again();
            Poll::Pending
        })
        .await;
    }

    /// Waits, a turn at a time, until `condition` gives a value. What changes the condition must
    /// bring a turn about: a finished operation, a wake, a deadline.
    pub async fn until<T>(&self, mut condition: impl FnMut() -> Option<T>) -> T {
        poll_fn(|_| condition().map_or(Poll::Pending, Poll::Ready)).await
    }

    /// For who turns: a turn begins now.
    pub fn begin_turn(&self, now: Instant) {
        self.now.set(now);
        self.deadline.set(None);
        self.turns.set(self.turns.get() + 1);
    }

    /// For the same, when every stage was polled: the earliest deadline of this turn.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline.get()
    }

    /// For the same: whether the thread rests, or is asked for.
    pub fn rest(&self) -> &Arc<Rest> {
        &self.rest
    }
}

const AWAKE: u8 = 0;
const PARKED: u8 = 1;
const NOTIFIED: u8 = 2;

/// Whether the hot thread may rest. The one word that other threads change.
///
/// The thread parks only from AWAKE, so a wake between its last look and its sleep turns the state
/// to NOTIFIED first and the thread does not sleep, or comes later and finds it parked.
#[derive(Default)]
pub struct Rest {
    state: AtomicU8,
}

impl Rest {
    /// For the hot thread: whether it may sleep. If so, whoever wakes it has to ring.
    pub fn try_park(&self) -> bool {
        let state = &self.state;
        state.compare_exchange(AWAKE, PARKED, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// For the hot thread: whatever was announced up to here is seen by the turn that follows.
    pub fn end(&self) {
        self.state.store(AWAKE, Ordering::SeqCst);
    }

    /// For any thread: asks for a turn. True: the hot thread sleeps and has to be rung for.
    pub fn interrupt(&self) -> bool {
        self.state.swap(NOTIFIED, Ordering::SeqCst) == PARKED
    }
}

/// What every stage of the hot thread works with.
#[derive(Clone)]
pub struct HotContext {
    /// Time and turns.
    pub turns: Rc<Turns>,
    /// How far each shard is.
    pub progress: Arc<Progress>,
    /// The counters.
    pub metrics: Arc<Metrics>,
}
