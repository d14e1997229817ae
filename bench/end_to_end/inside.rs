//! What huntd tells of itself: its hot thread, its queues, its own latency.

use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use support::scrape::{self, Page, Task};

/// Time between two samples of the queues: with 64 zones, each costs the daemon five milliseconds.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Counters of a daemon, since its start or of a time.
pub(crate) struct Inside {
    events: u64,
    refused: u64,
    enters: u64,
    turns: u64,
    allocations: u64,
    hot: Task,
    /// From an event's due time to the first byte of it.
    input: Frames,
    /// From there to the producer.
    inside: Frames,
    /// From there to the acknowledgement.
    output: Frames,
    peaks: Peaks,
}

/// How long frames took: upper bounds in seconds, and frames up to there.
struct Frames(Vec<(f64, u64)>);

impl Frames {
    fn of(page: &Page, part: &str) -> Frames {
        Frames(page.buckets(&format!("huntd_{part}_seconds")))
    }

    fn remove(&mut self, earlier: &Frames) {
        for (bucket, earlier) in self.0.iter_mut().zip(&earlier.0) {
            bucket.1 -= earlier.1;
        }
    }

    /// Milliseconds that this part of the frames took at most: the upper bound of a bucket.
    fn ms(&self, percentile: f64) -> f64 {
        let all = self.0.last().map_or(0, |bucket| bucket.1);
        let wanted = all as f64 * percentile / 100.0;
        let bucket = self.0.iter().find(|bucket| bucket.1 as f64 >= wanted);
        bucket.map_or(f64::INFINITY, |bucket| bucket.0 * 1e3)
    }

    fn percentiles(&self) -> String {
        let [p50, p99, p999] = [50.0, 99.0, 99.9].map(|percentile| self.ms(percentile));
        format!("p50 {p50:.2}, p99 {p99:.2}, p99.9 {p999:.2} ms")
    }
}

/// The most that waited in the daemon's queues in any sample.
#[derive(Clone, Copy, Default)]
pub(crate) struct Peaks {
    samples: u64,
    /// Blocks between decoder and engine.
    queue_blocks: u64,
    /// Bytes of frames between the publisher and the broker's acknowledgement.
    in_flight_bytes: u64,
}

/// Samples the daemon's queues until it has to stop.
pub(crate) struct Watch {
    is_over: Arc<AtomicBool>,
    watching: JoinHandle<Peaks>,
}

impl Watch {
    pub(crate) fn start(address: &str) -> Watch {
        let (address, is_over) = (address.to_owned(), Arc::new(AtomicBool::new(false)));
        let ended = is_over.clone();
        let watching = thread::spawn(move || {
            let mut peaks = Peaks::default();
            while !ended.load(Ordering::Relaxed) {
                peaks.sample(&Page::of(&address));
                thread::sleep(POLL_INTERVAL);
            }
            peaks
        });
        Watch { is_over, watching }
    }

    pub(crate) fn stop(self) -> Peaks {
        self.is_over.store(true, Ordering::Relaxed);
        self.watching.join().expect("the daemon answers")
    }
}

impl Peaks {
    pub(crate) fn sample(&mut self, page: &Page) {
        self.samples += 1;
        self.queue_blocks = self.queue_blocks.max(page.value("huntd_queue_blocks"));
        self.in_flight_bytes = self.in_flight_bytes.max(page.value("huntd_in_flight_bytes"));
    }
}

impl Inside {
    pub(crate) fn of(page: &Page, pid: u32) -> Inside {
        let value = |name: &str| page.value(&format!("huntd_{name}_total"));
        assert_eq!(value("records_rejected"), 0, "the load holds events only");
        assert_eq!(value("events_no_op"), 0, "every event of the load does work");
        Inside {
            events: page.events(),
            refused: value("events_refused"),
            enters: value("ring_enters"),
            turns: value("turns"),
            allocations: value("hot_allocations"),
            hot: scrape::hot_task(pid),
            input: Frames::of(page, "input"),
            inside: Frames::of(page, "inside"),
            output: Frames::of(page, "output"),
            peaks: Peaks::default(),
        }
    }

    /// With what a watch has seen meanwhile.
    pub(crate) fn with(self, peaks: Peaks) -> Inside {
        Inside { peaks, ..self }
    }

    /// What happened since an earlier sample.
    pub(crate) fn since(mut self, earlier: &Inside) -> Inside {
        self.events -= earlier.events;
        self.refused -= earlier.refused;
        self.enters -= earlier.enters;
        self.turns -= earlier.turns;
        self.allocations -= earlier.allocations;
        self.hot.ran_ns -= earlier.hot.ran_ns;
        self.hot.waited_ns -= earlier.hot.waited_ns;
        self.hot.times -= earlier.hot.times;
        self.input.remove(&earlier.input);
        self.inside.remove(&earlier.inside);
        self.output.remove(&earlier.output);
        self
    }

    /// Milliseconds within which this part of the frames left, from the first byte of a batch to
    /// the producer.
    pub(crate) fn inside_ms(&self, percentile: f64) -> f64 {
        self.inside.ms(percentile)
    }

    fn per_1000(&self, count: u64) -> f64 {
        count as f64 * 1e3 / self.events.max(1) as f64
    }

    /// CPU-seconds of the hot thread per million events.
    fn hot_s_per_million(&self) -> f64 {
        self.hot.ran_ns as f64 / 1e3 / self.events.max(1) as f64
    }

    /// Nanoseconds of the hot thread per event.
    pub(crate) fn hot_ns(&self) -> f64 {
        self.hot_s_per_million() * 1e3
    }

    /// The part of a core that the hot thread takes at a rate.
    pub(crate) fn hot_cores(&self, rate: u64) -> f64 {
        self.hot_s_per_million() * rate as f64 / 1e6
    }

    /// The mean time that the hot thread waited for its core, in microseconds.
    fn scheduling_us(&self) -> f64 {
        self.hot.waited_ns as f64 / 1e3 / self.hot.times.max(1) as f64
    }

    /// The figures in a sentence.
    pub(crate) fn sentence(&self) -> String {
        // What was preloaded is older than the last bucket.
        let input = match self.input.ms(50.0).is_finite() {
            true => format!("due to received {}; ", self.input.percentiles()),
            false => String::new(),
        };
        format!(
            "{input}received to the producer {}; from there to acknowledged {}; hot thread {:.3} \
             CPU-s per million events, waits {:.0} us for its core on average; io_uring_enter \
             {:.2} and turns {:.2} per 1,000 events; {} allocations; at most {} blocks queued and \
             {} KiB in flight in {} samples; {:.1} % of the events refused by the rules",
            self.inside.percentiles(),
            self.output.percentiles(),
            self.hot_s_per_million(),
            self.scheduling_us(),
            self.per_1000(self.enters),
            self.per_1000(self.turns),
            self.allocations,
            self.peaks.queue_blocks,
            self.peaks.in_flight_bytes / 1024,
            self.peaks.samples,
            self.per_1000(self.refused) / 10.0,
        )
    }

    /// The figures for a program.
    pub(crate) fn json(&self) -> serde_json::Value {
        json!({
            "inside_p50_ms": self.inside_ms(50.0),
            "inside_p99_ms": self.inside_ms(99.0),
            "hot_cpu_s_per_million": self.hot_s_per_million(),
            "hot_scheduling_delay_us": self.scheduling_us(),
            "ring_enters_per_1000": self.per_1000(self.enters),
            "turns_per_1000": self.per_1000(self.turns),
            "hot_allocations": self.allocations,
            "queue_blocks_max": self.peaks.queue_blocks,
            "in_flight_bytes_max": self.peaks.in_flight_bytes,
        })
    }
}
