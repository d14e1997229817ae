//! What huntd tells of itself: its hot thread, its queues, its own latency.

use crate::scrape::{self, Page};

/// Figures of a daemon since its start.
pub struct Inside {
    pub events: u64,
    pub refused: u64,
    pub enters_per_1000: f64,
    pub turns_per_1000: f64,
    pub hot_allocations: u64,
    /// CPU-seconds of the hot thread per million events.
    pub hot_s_per_million: f64,
    /// The mean time that the hot thread waited for its core, in microseconds.
    pub scheduling_us: f64,
}

impl Inside {
    pub fn of(page: &Page, pid: u32) -> Inside {
        let value = |name: &str| page.value(&format!("huntd_{name}_total"));
        assert_eq!(value("records_rejected"), 0, "the load holds events only");
        assert_eq!(value("events_no_op"), 0, "every event of the load does work");
        let events = page.events();
        let hot = scrape::hot_task(pid);
        Inside {
            events,
            refused: value("events_refused"),
            enters_per_1000: value("ring_enters") as f64 * 1e3 / events as f64,
            turns_per_1000: value("turns") as f64 * 1e3 / events as f64,
            hot_allocations: value("hot_allocations"),
            hot_s_per_million: hot.ran_ns as f64 / 1e3 / events as f64,
            scheduling_us: hot.waited_ns as f64 / 1e3 / hot.times.max(1) as f64,
        }
    }

    /// The figures in a sentence.
    pub fn sentence(&self) -> String {
        format!(
            "hot thread {:.3} CPU-s per million events, waits {:.0} us for its core on average; \
             io_uring_enter {:.2} and turns {:.2} per 1,000 events; {} allocations; {:.1} % of \
             the events refused by the rules",
            self.hot_s_per_million,
            self.scheduling_us,
            self.enters_per_1000,
            self.turns_per_1000,
            self.hot_allocations,
            self.refused as f64 * 1e2 / self.events as f64,
        )
    }
}
