//! A timer that is set once and not for each wait: on a virtual machine that would take more of the
//! core than the requests do.

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// The timer. Its descriptor can be read when a tick is due.
pub(crate) struct Ticks(OwnedFd);

impl Ticks {
    pub(crate) fn new() -> Ticks {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC);
        Ticks(timer.expect("a timer"))
    }

    /// From now on a tick is due so often.
    pub(crate) fn set(&self, every: Duration) {
        let (tv_sec, tv_nsec) = (every.as_secs() as i64, every.subsec_nanos().into());
        let every = Timespec { tv_sec, tv_nsec };
        let times = Itimerspec { it_interval: every, it_value: every };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &times).expect("a valid time");
    }

    /// Waits for a tick. Gives how many were due.
    pub(crate) fn wait(&self) -> u64 {
        let mut due = [0; size_of::<u64>()];
        rustix::io::read(&self.0, &mut due).expect("a timer can be read");
        u64::from_ne_bytes(due)
    }
}

impl AsFd for Ticks {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
