//! How one thread wakes another that sleeps, without a system call while the other is awake.
//!
//! The ringer first makes work visible (pushes to a queue), then asks [`Bell::must_ring`]. The
//! sleeper first says that it will sleep, then looks for work once more. Each side puts a
//! sequentially consistent fence between its two steps, so at least one of them sees the other: the
//! sleeper finds the work, or the ringer learns that it must ring.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

/// An eventfd that one thread sleeps at, and whether it does.
pub struct Bell {
    asleep: AtomicBool,
    eventfd: File,
}

impl Bell {
    /// A bell that nobody sleeps at. Fails when the process has no file descriptor left.
    pub fn new() -> io::Result<Bell> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Bell { asleep: AtomicBool::new(false), eventfd: File::from(eventfd) })
    }

    /// For the ringer, after its work is visible: whether the eventfd must be written. True at most
    /// once a sleep.
    pub fn must_ring(&self) -> bool {
        fence(Ordering::SeqCst);
        self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed)
    }

    /// For a ringer that may make system calls: wakes the sleeper if there is one.
    pub fn ring(&self) {
        if self.must_ring() {
            let written = (&self.eventfd).write(&1u64.to_ne_bytes());
            // A full counter would be readable already, so the sleeper wakes all the same.
            debug_assert!(written.is_ok() || is_would_block(&written));
        }
    }

    /// For the sleeper: sleeps until the bell rings or `wait_max` is over, unless `has_work` finds
    /// work after the ringers know of the sleep.
    pub fn sleep(&self, wait_max: Duration, has_work: impl FnOnce() -> bool) -> io::Result<()> {
        self.fall_asleep();
        let slept = if has_work() { Ok(()) } else { self.poll(wait_max) };
        self.wake_up();
        slept
    }

    /// For a sleeper that waits for the eventfd through a ring of its own: before it looks for work
    /// for the last time.
    pub fn fall_asleep(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// For the same, when it is awake again, rung or not.
    pub fn wake_up(&self) {
        self.asleep.store(false, Ordering::Relaxed);
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
    /// The eventfd, for a ringer that writes it through a ring of its own.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}

fn is_would_block(result: &io::Result<usize>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn an_awake_thread_is_not_rung() {
        let bell = Bell::new().expect("an eventfd");
        assert!(!bell.must_ring());
        bell.sleep(LONG, || true).expect("work was there");
        assert!(!bell.must_ring());
    }

    #[test]
    fn work_that_came_before_the_sleep_is_rung_for_once() {
        let bell = Bell::new().expect("an eventfd");
        bell.sleep(LONG, || {
            assert!(bell.must_ring());
            assert!(!bell.must_ring());
            true
        })
        .expect("work was there");
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
        while next < 10_000 {
            let mut received = None;
            bell.sleep(LONG, || {
                received = inbox.try_recv().ok();
                received.is_some()
            })
            .expect("poll works");
            for number in received.into_iter().chain(inbox.try_iter()) {
                assert_eq!(number, next);
                next += 1;
            }
        }
        producer.join().expect("the ringer ends");
        assert!(started.elapsed() < LONG, "a ring was lost: one sleep took its whole time");
    }
}
