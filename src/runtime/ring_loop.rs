//! The loop of a thread with a ring, the hot thread or the publisher: poll the root future, then
//! sleep in the ring until there is something to do.
//!
//! The root future runs under smol's `LocalExecutor`.

use crate::queue::bell::Bell;
use crate::runtime::operations::{Handle, Operation};
use crate::runtime::ring::{Ring, RingKind};
use crate::runtime::ring_error::RingError;
use crate::runtime::turns::Turns;
use smol::LocalExecutor;
use std::future::Future;
use std::os::fd::AsFd;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Upper limit of the hot thread's sleep in its ring, in milliseconds, so that the watchdog
/// sees turns even when no event arrives.
pub(crate) const PARK_MS_MAX: u64 = 100;

/// [`PARK_MS_MAX`] as a time.
pub(crate) const PARK_MAX: Duration = Duration::from_millis(PARK_MS_MAX);

/// Runs one root future on the calling thread.
pub struct RingLoop {
    turns: Rc<Turns>,
    ring: Ring,
    eventfd: Handle,
    park_max: Duration,
}

impl RingLoop {
    /// Creates a loop over a new ring of this kind with room for `ring_entries` submissions. It
    /// sleeps `park_max` at most; the bell wakes it earlier.
    pub fn new(
        kind: RingKind,
        ring_entries: u32,
        park_max: Duration,
        bell: Arc<Bell>,
    ) -> Result<RingLoop, RingError> {
        let eventfd = Arc::new(bell.as_fd().try_clone_to_owned()?);
        let turns = Turns::new(clock(), bell);
        let ring = Ring::new(kind, turns.operations().clone(), ring_entries)?;
        Ok(RingLoop { turns, ring, eventfd, park_max })
    }

    /// Time and turns for the stages.
    pub fn turns(&self) -> &Rc<Turns> {
        &self.turns
    }

    /// The ring, for its counters and to restrict its worker threads.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Runs `root` to completion. `each_turn` is called once per turn, to publish counters.
    pub fn run<T>(
        &self,
        root: impl Future<Output = T>,
        mut each_turn: impl FnMut(&RingLoop),
    ) -> Result<T, RingError> {
        let executor = LocalExecutor::new();
        let mut root = pin!(executor.run(root));
        let waker = Waker::from(self.turns.bell().clone());
        let mut context = Context::from_waker(&waker);
        let operations = self.turns.operations();
        let mut bell_read = operations.read_bell(&self.eventfd, vec![0; size_of::<u64>()]);
        loop {
            self.turns.begin_turn(clock());
            if let Poll::Ready(output) = root.as_mut().poll(&mut context) {
                // Rings the last bells and submits the last cancels.
                self.ring.enter(None)?;
                return Ok(output);
            }
            each_turn(self);
            self.sleep()?;
            self.rearm(&mut bell_read, &mut context);
        }
    }

    /// Submits, and sleeps unless a stage asked for another turn.
    fn sleep(&self) -> Result<(), RingError> {
        if self.turns.try_sleep() {
            let wait = match self.turns.deadline() {
                Some(deadline) => {
                    deadline.saturating_duration_since(self.turns.now()).min(self.park_max)
                }
                None => self.park_max,
            };
            self.ring.enter(Some(wait))?;
        } else if self.ring.has_work() {
            self.ring.enter(None)?;
        }
        self.turns.bell().wake_up();
        Ok(())
    }

    /// Keeps one read of the bell in flight, so that other threads can end the sleep.
    fn rearm(&self, bell_read: &mut Operation, context: &mut Context<'_>) {
        if let Poll::Ready(rung) = Pin::new(&mut *bell_read).poll(context) {
            assert!(rung.result.is_ok(), "an eventfd can be read: {:?}", rung.result);
            *bell_read = self.turns.operations().read_bell(&self.eventfd, rung.buffer);
        }
    }
}

/// The clock for deadlines.
#[expect(clippy::disallowed_methods, reason = "the one clock read a turn")]
fn clock() -> Instant {
    Instant::now()
}
