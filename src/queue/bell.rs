//! Wakes a sleeping thread, without a system call while it is awake.

use crate::queue::sleep_state::SleepState;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::task::Wake;
use std::time::Duration;

/// Wakes one thread, its owner. Consists of an eventfd to sleep on, and the owner's sleep state.
pub struct Bell {
    state: SleepState<AtomicU8>,
    eventfd: File,
}

impl Bell {
    /// Creates a bell for a thread that sleeps in [`Bell::sleep`] or in its ring. Fails if the
    /// process has no file descriptor left.
    pub fn new() -> io::Result<Bell> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Bell { state: SleepState::default(), eventfd: File::from(eventfd(0, flags)?) })
    }

    /// Notifies the owner of work that is already visible. Returns true, at most once per sleep, if
    /// the owner sleeps and the caller must write the eventfd.
    pub fn call(&self) -> bool {
        self.state.call()
    }

    /// Notifies the owner, and wakes it if it sleeps. For callers that may make system calls.
    pub fn ring(&self) {
        if self.call() {
            let written = (&self.eventfd).write(&1u64.to_ne_bytes());
            // A full counter is readable already, so the owner wakes in any case.
            debug_assert!(written.is_ok() || is_would_block(&written));
        }
    }

    /// For the owner: sleeps until the bell rings or `wait_max` has passed. Returns at once if
    /// there was a call since the last wake-up. The owner must then look for work, rung or not.
    pub fn sleep(&self, wait_max: Duration) -> io::Result<()> {
        let slept = if self.try_sleep() { self.poll(wait_max) } else { Ok(()) };
        self.wake_up();
        slept
    }

    /// For an owner that sleeps in its ring: returns whether it may. See [`Bell::wake_up`].
    pub fn try_sleep(&self) -> bool {
        self.state.try_sleep()
    }

    /// For an owner that slept in its ring, or was not allowed to: call this before looking for
    /// work.
    pub fn wake_up(&self) {
        self.state.wake_up();
    }

    /// For the owner: whether there was a call since it last woke up.
    pub(crate) fn is_called(&self) -> bool {
        self.state.is_called()
    }

    fn poll(&self, wait_max: Duration) -> io::Result<()> {
        let wait = Timespec::try_from(wait_max).expect("sleeps are shorter than centuries");
        let mut descriptors = [PollFd::new(&self.eventfd, PollFlags::IN)];
        match poll(&mut descriptors, Some(&wait)) {
            Ok(0) | Err(Errno::INTR) => Ok(()),
            Ok(_) => {
                let cleared = (&self.eventfd).read(&mut [0; 8]);
                if is_would_block(&cleared) { Ok(()) } else { cleared.map(drop) }
            }
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for Bell {
    /// The eventfd, for callers that read or write it through a ring.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Bell>) {
        self.ring();
    }
}

fn is_would_block(result: &io::Result<usize>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn an_awake_thread_is_not_rung_and_does_not_sleep_over_a_call() {
        let bell = Bell::new().expect("an eventfd");
        assert!(!bell.call());
        assert!(!bell.call());
        let start = Instant::now();
        bell.sleep(LONG).expect("no sleep");
        assert!(start.elapsed() < LONG / 2);
    }

    #[test]
    fn a_sleep_is_rung_for_once() {
        let bell = Bell::new().expect("an eventfd");
        assert!(bell.try_sleep());
        assert!(bell.call());
        assert!(!bell.call());
        bell.wake_up();
        assert!(!bell.is_called());
        assert!(bell.try_sleep());
    }

    #[test]
    fn a_sleeper_is_woken_as_often_as_it_sleeps() {
        let bell = Arc::new(Bell::new().expect("an eventfd"));
        let (work, inbox) = std::sync::mpsc::sync_channel::<u32>(1);
        let ringer = bell.clone();
        let producer = thread::spawn(move || {
            for number in 0..10_000 {
                work.send(number).expect("the sleeper listens");
                ringer.ring();
            }
        });
        let started = Instant::now();
        let mut next = 0;
        loop {
            for number in inbox.try_iter() {
                assert_eq!(number, next);
                next += 1;
            }
            if next == 10_000 {
                break;
            }
            bell.sleep(LONG).expect("poll works");
        }
        producer.join().expect("the ringer ends");
        assert!(started.elapsed() < LONG, "a ring was lost: one sleep took its whole time");
    }
}
