//! A thread's time and turns, as seen by its stages: no I/O, no clock.
//!
//! The root future joins all stages of the thread in a fixed order. Each turn polls every stage
//! once, so a waiting stage needs no waker, only a turn. A turn follows a finished operation, a
//! call from another thread, a deadline registered with [`Turns::turn_at`], or
//! [`Turns::turn_again`], which a stage must use after it has changed what an earlier stage waits
//! for. `ring_loop.rs` runs turns with the clock and the kernel, the simulator with its own.

use crate::queue::bell::Bell;
use crate::runtime::operations::Operations;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::progress::Progress;
use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

/// The state that the stages of a thread share.
pub struct Turns {
    operations: Rc<Operations>,
    bell: Arc<Bell>,
    /// True if a stage polled in this turn has more to do.
    is_unfinished: Cell<bool>,
    now: Cell<Instant>,
    /// The earliest deadline that a stage registered in this turn.
    deadline: Cell<Option<Instant>>,
    turns: Cell<u64>,
}

impl Turns {
    /// Creates the state before the first turn. Other threads wake this one with `bell`.
    pub fn new(now: Instant, bell: Arc<Bell>) -> Rc<Turns> {
        Rc::new(Turns {
            operations: Operations::new(),
            bell,
            is_unfinished: Cell::new(false),
            now: Cell::new(now),
            deadline: Cell::new(None),
            turns: Cell::new(0),
        })
    }

    /// The operations that the stages request from the kernel.
    pub fn operations(&self) -> &Rc<Operations> {
        &self.operations
    }

    /// The time when this turn began.
    pub fn now(&self) -> Instant {
        self.now.get()
    }

    /// Number of turns.
    pub(crate) fn count(&self) -> u64 {
        self.turns.get()
    }

    /// Asks for another turn without sleeping: the calling stage has more to do.
    pub fn turn_again(&self) {
        self.is_unfinished.set(true);
    }

    /// Returns whether the thread may sleep after this turn, as far as known: no stage polled so
    /// far has more to do, and the bell has not rung.
    pub(crate) fn is_going_to_rest(&self) -> bool {
        !self.is_unfinished.get() && !self.bell.is_called()
    }

    /// Makes sure that a turn begins at `deadline` or soon after.
    pub(crate) fn turn_at(&self, deadline: Instant) {
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

    /// Gives the other stages their turn, then continues.
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

    /// Waits, polling once per turn, until `condition` returns a value. Whatever changes the
    /// condition must cause a turn: a finished operation, a wake-up, a deadline.
    pub async fn until<T>(&self, mut condition: impl FnMut() -> Option<T>) -> T {
        poll_fn(|_| condition().map_or(Poll::Pending, Poll::Ready)).await
    }

    /// For the loop: begins a turn.
    pub fn begin_turn(&self, now: Instant) {
        self.now.set(now);
        self.is_unfinished.set(false);
        self.deadline.set(None);
        self.turns.set(self.turns.get() + 1);
    }

    /// For the loop, after it has polled every stage: the earliest deadline of this turn.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline.get()
    }

    /// For the loop, after the turn: returns whether it may sleep. See [`Bell::try_sleep`].
    pub fn try_sleep(&self) -> bool {
        !self.is_unfinished.get() && self.bell.try_sleep()
    }

    /// For the loop: the bell with which other threads wake it.
    pub fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }
}

/// The context of every stage of the hot thread.
#[derive(Clone)]
pub(crate) struct HotContext {
    /// Time and turns.
    pub turns: Rc<Turns>,
    /// The progress of each shard.
    pub progress: Arc<Progress>,
    /// The counters.
    pub metrics: Arc<Metrics>,
}
