//! The hot thread's loop: poll the root future, then sleep in `io_uring_enter` until there is
//! something to do.
//!
//! The root future runs under smol's `LocalExecutor` and joins all stages of the hot path in a
//! fixed order. Each turn polls every stage once, so a stage that waits needs no waker of its own;
//! it needs a turn. A turn follows a completion, a wake from another thread, a deadline that was
//! registered with [`Driver::sleep_until`], or [`Driver::turn_again`].

use crate::runtime::ring::{Handle, Operation, Ring, RingError};
use smol::LocalExecutor;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// Runs one root future on the calling thread.
pub struct Driver {
    ring: Rc<Ring>,
    alarm: Arc<Alarm>,
    bell: Handle,
    now: Cell<Instant>,
    /// The earliest deadline that a stage registered in this turn.
    deadline: Cell<Option<Instant>>,
    turns: Cell<u64>,
    park_max: Duration,
}

impl Driver {
    /// A driver over a new ring with room for `ring_entries` submissions, which sleeps `park_max`
    /// at most.
    pub fn new(ring_entries: u32, park_max: Duration) -> Result<Rc<Driver>, RingError> {
        let ring = Ring::new(ring_entries)?;
        let flags = rustix::event::EventfdFlags::CLOEXEC;
        let bell = rustix::event::eventfd(0, flags).map_err(std::io::Error::from)?;
        let other_end = bell.try_clone()?;
        Ok(Rc::new(Driver {
            ring,
            alarm: Arc::new(Alarm { state: AtomicU8::new(AWAKE), bell: other_end }),
            bell: Rc::new(bell),
            now: Cell::new(clock()),
            deadline: Cell::new(None),
            turns: Cell::new(0),
            park_max,
        }))
    }

    /// The ring, for operations.
    pub fn ring(&self) -> &Rc<Ring> {
        &self.ring
    }

    /// The time when this turn began: the hot path's only clock read.
    pub fn now(&self) -> Instant {
        self.now.get()
    }

    /// Turns so far.
    pub fn turns(&self) -> u64 {
        self.turns.get()
    }

    /// Asks for another turn without sleeping: the calling stage has more to do.
    pub fn turn_again(&self) {
        self.alarm.state.store(NOTIFIED, Ordering::Relaxed);
    }

    /// Whether no stage that was polled before in this turn has more to do.
    pub fn is_going_to_rest(&self) -> bool {
        self.alarm.state.load(Ordering::Relaxed) == AWAKE
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
    /// bring a turn about: a completion, a wake, a deadline.
    pub async fn until<T>(&self, mut condition: impl FnMut() -> Option<T>) -> T {
        poll_fn(|_| condition().map_or(Poll::Pending, Poll::Ready)).await
    }

    /// Runs `root` to its end. `each_turn` is called once a turn, to let counters be published.
    pub fn run<T>(
        &self,
        root: impl Future<Output = T>,
        mut each_turn: impl FnMut(&Driver),
    ) -> Result<T, RingError> {
        let executor = LocalExecutor::new();
        let mut root = pin!(executor.run(root));
        let waker = Waker::from(self.alarm.clone());
        let mut context = Context::from_waker(&waker);
        let mut bell_read = self.ring.read_bell(&self.bell, vec![0; size_of::<u64>()]);
        loop {
            self.now.set(clock());
            self.deadline.set(None);
            self.turns.set(self.turns.get() + 1);
            if let Poll::Ready(output) = root.as_mut().poll(&mut context) {
                // The last bells are rung, the last cancels submitted.
                self.ring.enter(None)?;
                return Ok(output);
            }
            each_turn(self);
            self.rest()?;
            self.rearm(&mut bell_read, &mut context);
        }
    }

    /// Submits, and sleeps if no stage asked for another turn.
    fn rest(&self) -> Result<(), RingError> {
        let state = &self.alarm.state;
        if state.compare_exchange(AWAKE, PARKED, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            let wait = match self.deadline.get() {
                Some(deadline) => deadline.saturating_duration_since(self.now()).min(self.park_max),
                None => self.park_max,
            };
            self.ring.enter(Some(wait))?;
        } else if self.ring.has_work() {
            self.ring.enter(None)?;
        }
        // Whatever was announced up to here is seen by the turn that follows.
        state.store(AWAKE, Ordering::SeqCst);
        Ok(())
    }

    /// Keeps one read of the bell under way, so that other threads can end the sleep.
    fn rearm(&self, bell_read: &mut Operation, context: &mut Context<'_>) {
        if let Poll::Ready(rung) = Pin::new(&mut *bell_read).poll(context) {
            assert!(rung.result.is_ok(), "an eventfd can be read: {:?}", rung.result);
            *bell_read = self.ring.read_bell(&self.bell, rung.buffer);
        }
    }
}

/// The clock that deadlines are measured by.
#[expect(clippy::disallowed_methods, reason = "the one clock read a turn")]
fn clock() -> Instant {
    Instant::now()
}

const AWAKE: u8 = 0;
const PARKED: u8 = 1;
const NOTIFIED: u8 = 2;

/// How others end the hot thread's sleep.
///
/// The eventfd is written only if the thread said that it parks: a wake while it is awake costs one
/// exchange. The thread parks only from AWAKE, so a wake between its last look and its sleep turns
/// the state to NOTIFIED first and the thread does not sleep, or comes later and rings.
struct Alarm {
    state: AtomicU8,
    bell: std::os::fd::OwnedFd,
}

impl Wake for Alarm {
    fn wake(self: Arc<Alarm>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Alarm>) {
        if self.state.swap(NOTIFIED, Ordering::SeqCst) == PARKED {
            let rung = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
            assert!(rung.is_ok(), "an eventfd can be written: {rung:?}");
        }
    }
}
