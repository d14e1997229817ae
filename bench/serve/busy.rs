//! Processes that take as much of the cores as servers and generators do, and send no requests. If
//! the daemon needs more beside them, it is for want of a core.

use crate::open_loop::SEND_EVERY;
use crate::ticks::Ticks;
use rustix::time::{ClockId, clock_gettime};
use std::process::{Child, Stdio};
use std::time::Duration;
use support::process::{self, before_others};
use support::serving::SERVER_PRIORITY;

/// First argument of such a process.
pub(crate) const BUSY: &str = "busy";

/// Processes that are busy. Dropped, they are killed.
pub(crate) struct Busy(Vec<Child>);

impl Busy {
    /// Starts so many, which take this much of a core in all.
    pub(crate) fn start(processes: usize, cores: f64) -> Busy {
        let each = SEND_EVERY.mul_f64(cores / processes as f64);
        let start = |_| {
            let program = std::env::current_exe().expect("this program");
            before_others(&["--fifo", SERVER_PRIORITY])
                .arg(program)
                .args([BUSY, &each.as_nanos().to_string()])
                .stdin(Stdio::null())
                .spawn()
                .expect("this program can be started")
        };
        Busy((0..processes).map(start).collect())
    }

    /// Processor time that they have taken.
    pub(crate) fn cpu(&self) -> Duration {
        self.0.iter().map(|child| process::cpu(child.id())).sum()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Takes so much processor time whenever the generators would send.
pub(crate) fn be_busy(each: Duration) -> ! {
    let cpu = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let ticks = Ticks::new();
    ticks.set(SEND_EVERY);
    loop {
        let end = cpu() + ticks.wait() as u32 * each;
        while cpu() < end {
            std::hint::spin_loop();
        }
    }
}
