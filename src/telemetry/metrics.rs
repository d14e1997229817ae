//! The closed list of metrics, and their values. Each has one writing thread, so counting is a load
//! and a store.

use super::tally::Tally;
use std::sync::atomic::{AtomicU64, Ordering};

/// Generates the enum, its names and its help texts from one table.
macro_rules! counters {
    ($($counter:ident, $name:literal, $writer:literal, $help:literal;)*) => {
        /// Everything that is counted over the daemon's life, for all shards together.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Counter {
            $(#[doc = concat!($help, " Written by: ", $writer, ".")] $counter,)*
        }

        impl Counter {
            /// All counters, in the order of the table.
            pub const ALL: [Counter; COUNTERS] = [$(Counter::$counter),*];

            /// The metric's name, without prefix and suffix.
            pub fn name(self) -> &'static str {
                match self { $(Counter::$counter => $name),* }
            }

            /// The help text.
            pub(crate) fn help(self) -> &'static str {
                match self { $(Counter::$counter => $help),* }
            }
        }

        /// Number of counters.
        const COUNTERS: usize = [$($name),*].len();
    };
}

counters! {
    BytesReceived, "received_bytes", "hot thread",
        "Bytes of Fetch responses received.";
    RecordsReceived, "records_received", "hot thread",
        "Records read from record batches.";
    RecordsOfKnownLayout, "records_of_known_layout", "hot thread",
        "Records decoded on the fast path, without parsing.";
    UpdatesMade, "updates_made", "hot thread",
        "Updates that the engine made, suppressed ones included.";
    UpdatesSuppressed, "updates_suppressed", "hot thread",
        "Updates not published again, because an earlier run published them.";
    FramesSent, "frames_sent", "hot thread",
        "Frames handed to the publisher.";
    FramesAcked, "frames_acked", "publisher",
        "Frames that the broker has acknowledged.";
    DeadLettersAcked, "dead_letters_acked", "publisher",
        "Dead letters that the broker has acknowledged.";
    OwnRecordsAcked, "own_records_acked", "publisher",
        "Ticks and handoffs that the broker has acknowledged.";
    FramesMisdated, "frames_misdated", "publisher",
        "Frames that no latency counts, because the `ts_us` of their newest event is more than \
         seven days away from this host's clock.";
    DeliveriesFailed, "deliveries_failed", "publisher",
        "Deliveries that failed.";
    SnapshotsStored, "snapshots_stored", "snapshots",
        "Snapshots stored in the state directory.";
    SnapshotsFailed, "snapshots_failed", "snapshots",
        "Snapshots that could not be stored.";
    SnapshotBytes, "snapshot_bytes", "snapshots",
        "Bytes of state in the snapshots stored.";
    SnapshotReplicasStored, "snapshot_replicas_stored", "replicator",
        "Snapshot replicas stored in the snapshot topic.";
    SnapshotReplicasFailed, "snapshot_replicas_failed", "replicator",
        "Snapshot replicas that could not be stored.";
    TakeoversBySilence, "takeovers_by_silence", "control thread",
        "Zones that this instance has taken over because their owner was silent.";
    TakeoversAtResignation, "takeovers_at_resignation", "control thread",
        "Zones that this instance has taken over because their owner has resigned.";
    Probes, "probes", "control thread",
        "Probes of outputs whose owner was silent.";
    CopiesDiverged, "copies_diverged", "control thread",
        "Copies of zones that have made other updates than the zone's owner.";
    Turns, "turns", "hot thread",
        "Turns of the hot thread's loop.";
    ControlTurns, "control_turns", "control thread",
        "Turns of the control thread's loop.";
    PublisherTurns, "publisher_turns", "publisher",
        "Turns of the publisher's loop.";
    RingEnters, "ring_enters", "hot thread",
        "Calls of io_uring_enter by the hot thread, or of epoll_pwait.";
    ConnectionsOpened, "connections_opened", "hot thread",
        "Connections to brokers opened, the first ones included.";
    HotAllocations, "hot_allocations", "hot thread",
        "Allocations of the hot thread since it began to fetch.";
}

/// A value that goes up and down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Gauge {
    /// Blocks in the queue between decoder and engine. Hot thread.
    QueueBlocks,
    /// Capacity of that queue in blocks. Hot thread, once.
    QueueBlocksMax,
    /// Open connections to brokers. Hot thread.
    Connections,
    /// Bytes of encoded frames that are not acknowledged yet. Publisher.
    InFlightBytes,
    /// Partitions of the input topic; 0 while unknown. Control thread.
    Partitions,
    /// Copies of zones that other instances own, also those that begin again after a failure.
    /// Control thread.
    Copies,
    /// Of these, those that could take their zone over now. Control thread.
    WarmCopies,
}

/// Number of gauges.
const GAUGES: usize = Gauge::WarmCopies as usize + 1;

/// Limit, in microseconds, of an event's age, and of its lead over the clock: Kafka keeps records
/// for seven days by default. A producer that counts in milliseconds is decades off.
const AGE_US_MAX: u64 = 7 * 24 * 3600 * 1_000_000;

/// The only name in the tally of events that changed nothing.
const NO_OP: &str = "no_op";

/// The values of all metrics.
pub struct Metrics {
    counters: [AtomicU64; COUNTERS],
    gauges: [AtomicU64; GAUGES],
    /// Events that the engine applied, by type. Hot thread.
    pub applied: Tally,
    /// Events that the rules refused, by reason. Hot thread.
    pub refusals: Tally,
    /// Events that changed nothing, under one name. Hot thread.
    pub no_ops: Tally,
    /// Records that are not valid events, by reason. Hot thread.
    pub rejects: Tally,
    /// Partitions that a Fetch response did not serve, by error code. Hot thread.
    pub fetch_errors: Tally,
    /// From the `ts_us` of a frame's newest event to the frame's acknowledgement. Publisher.
    pub end_to_end: Histogram,
    /// From the `ts_us` of a frame's newest event to the first byte of its Fetch response.
    /// Publisher.
    pub input: Histogram,
    /// From the first byte of a Fetch response to the producer, for each frame with updates.
    /// Publisher.
    pub inside: Histogram,
    /// From the producer to the acknowledgement, for each frame with updates. Publisher.
    pub output: Histogram,
    /// Names and help texts of what the game counts in a zone.
    pub zone_counts: &'static [(&'static str, &'static str)],
}

impl Metrics {
    /// All zero, without names, for a test of one stage.
    pub fn new() -> Metrics {
        Metrics::with_names(&[], &[], &[])
    }

    /// All zero. The names are event types, refusal reasons and reject reasons, each in the order
    /// of their codes.
    pub fn with_names(
        types: &[&'static str],
        refusals: &[&'static str],
        rejects: &[&'static str],
    ) -> Metrics {
        Metrics {
            counters: [const { AtomicU64::new(0) }; COUNTERS],
            gauges: [const { AtomicU64::new(0) }; GAUGES],
            applied: Tally::new(types),
            refusals: Tally::new(refusals),
            no_ops: Tally::new(&[NO_OP]),
            rejects: Tally::new(rejects),
            fetch_errors: Tally::new(&[]),
            end_to_end: Histogram::new(),
            input: Histogram::new(),
            inside: Histogram::new(),
            output: Histogram::new(),
            zone_counts: &[],
        }
    }

    /// Adds a tally of Fetch errors. The names are in the order of `ErrorCode::place`.
    pub(crate) fn counting_fetch_errors(self, names: &[&'static str]) -> Metrics {
        Metrics { fetch_errors: Tally::new(names), ..self }
    }

    /// Adds what the game counts in a zone: names and help texts.
    pub fn counting_in_zones(
        self,
        zone_counts: &'static [(&'static str, &'static str)],
    ) -> Metrics {
        Metrics { zone_counts, ..self }
    }

    /// Adds `n`. Only the counter's writing thread may call this.
    pub fn add(&self, counter: Counter, n: u64) {
        add(&self.counters[counter as usize], n);
    }

    /// Stores the current value of a counter that is kept elsewhere and never falls.
    pub(crate) fn take_over(&self, counter: Counter, value: u64) {
        self.counters[counter as usize].store(value, Ordering::Relaxed);
    }

    /// The current value.
    pub fn get(&self, counter: Counter) -> u64 {
        self.counters[counter as usize].load(Ordering::Relaxed)
    }

    /// Stores a new value. Only the gauge's writing thread may call this.
    pub fn set_gauge(&self, gauge: Gauge, value: u64) {
        self.gauges[gauge as usize].store(value, Ordering::Relaxed);
    }

    /// The current value.
    pub fn gauge(&self, gauge: Gauge) -> u64 {
        self.gauges[gauge as usize].load(Ordering::Relaxed)
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

/// A histogram of times in microseconds. Each doubling has four buckets, so the bounds of a bucket
/// differ by at most a quarter.
///
/// One thread writes. A reader may see a bucket before the sum, or the other way round.
pub struct Histogram {
    buckets: [AtomicU64; Histogram::BUCKETS],
    sum: AtomicU64,
}

impl Histogram {
    /// Upper bound of the first bucket, in microseconds.
    const FIRST_US: u64 = 4;
    /// Doublings after the first bucket: up to 67 s.
    const DOUBLINGS: usize = 24;
    /// Number of buckets; the last has no upper bound.
    const BUCKETS: usize = 1 + 4 * Histogram::DOUBLINGS + 1;

    pub(crate) const fn new() -> Histogram {
        Histogram {
            buckets: [const { AtomicU64::new(0) }; Histogram::BUCKETS],
            sum: AtomicU64::new(0),
        }
    }

    /// Counts `n` events that took `us` microseconds each. The sum may wrap around, which every
    /// reader treats as a counter reset.
    pub(crate) fn record(&self, us: u64, n: u64) {
        add(&self.buckets[Histogram::bucket(us)], n);
        add(&self.sum, us.wrapping_mul(n));
    }

    /// Counts one event of this age; a negative age, from a producer whose clock is ahead, counts
    /// as 0. Returns false without counting if the age is beyond [`AGE_US_MAX`], because its
    /// timestamp is wrong.
    pub fn record_age(&self, us: i64) -> bool {
        let is_plausible = us.unsigned_abs() <= AGE_US_MAX;
        if is_plausible {
            self.record(us.max(0).cast_unsigned(), 1);
        }
        is_plausible
    }

    /// Upper bound of a bucket; `None` for the last one.
    pub(crate) fn upper_us(bucket: usize) -> Option<u64> {
        if bucket + 1 >= Histogram::BUCKETS {
            return None;
        }
        let Some(step) = bucket.checked_sub(1) else {
            return Some(Histogram::FIRST_US);
        };
        Some((Histogram::FIRST_US / 4 * (step as u64 % 4 + 5)) << (step / 4))
    }

    /// The number of events in each bucket.
    pub fn counts(&self) -> [u64; Histogram::BUCKETS] {
        std::array::from_fn(|bucket| self.buckets[bucket].load(Ordering::Relaxed))
    }

    /// The sum of all times, in microseconds.
    pub(crate) fn sum_us(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }

    /// The bucket of a time. Upper bounds are inclusive, hence the minus one.
    fn bucket(us: u64) -> usize {
        let below = us.saturating_sub(1);
        if below < Histogram::FIRST_US {
            return 0;
        }
        let doubling = (below / Histogram::FIRST_US).ilog2() as usize;
        let quarter = (below >> doubling) / (Histogram::FIRST_US / 4) - 4;
        (1 + 4 * doubling + quarter as usize).min(Histogram::BUCKETS - 1)
    }
}

/// Adds to a value that only this thread writes.
fn add(value: &AtomicU64, n: u64) {
    value.store(value.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_lies_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let near_bounds = (0..Histogram::BUCKETS).filter_map(Histogram::upper_us);
        let times = near_bounds.flat_map(|us| [us - 1, us, us + 1]);
        for us in times.chain([0, 1, u64::MAX, u64::MAX - 1, 1 << 40]) {
            let fits =
                |bucket: &usize| Histogram::upper_us(*bucket).is_none_or(|upper| us <= upper);
            let expected = (0..Histogram::BUCKETS).find(fits).expect("the last has no bound");
            assert_eq!(Histogram::bucket(us), expected, "{us} us");
        }
    }

    #[test]
    fn an_age_that_cannot_be_counts_in_no_bucket_and_in_no_sum() {
        let ages = Histogram::new();
        let longest = AGE_US_MAX as i64;
        for us in [i64::MIN, i64::MAX, longest + 1, -longest - 1] {
            assert!(!ages.record_age(us), "{us} us");
        }
        assert_eq!((ages.counts().iter().sum::<u64>(), ages.sum_us()), (0, 0));
        for us in [longest, 3, 0, -1, -longest] {
            assert!(ages.record_age(us), "{us} us");
        }
        assert_eq!((ages.counts().iter().sum::<u64>(), ages.sum_us()), (5, AGE_US_MAX + 3));
    }

    #[test]
    fn a_sum_never_stops() {
        let times = Histogram::new();
        times.record(u64::MAX, 1);
        times.record(3, 1);
        assert_eq!(times.sum_us(), 2);
    }

    #[test]
    fn bucket_bounds_rise_by_a_quarter_at_most() {
        let bounds: Vec<_> = (0..Histogram::BUCKETS).filter_map(Histogram::upper_us).collect();
        assert_eq!(bounds.len(), Histogram::BUCKETS - 1);
        assert!(bounds.is_sorted_by(|a, b| a < b && b * 4 <= a * 5), "{bounds:?}");
        assert_eq!(bounds.last(), Some(&(64 << 20)));
    }

    #[test]
    fn names_are_unique_and_say_no_prefix() {
        let mut names: Vec<_> = Counter::ALL.iter().map(|counter| counter.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), COUNTERS);
        assert!(names.iter().all(|name| !name.starts_with("huntd") && !name.ends_with("total")));
    }
}
