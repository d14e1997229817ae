//! A reader of the whole output, from its start, that follows the reader rule while it grows.

use huntd::hunt::frames::decode_frame;
use huntd::output::reader::{Position, Reader, Verdict};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::{Offset, TopicPartitionList};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use support::generator::now_us;

pub(super) struct Witness {
    seen: Arc<Mutex<Vec<Seen>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What was seen of one partition.
struct Seen {
    reader: Reader,
    /// When updates were accepted last.
    moved_at: Instant,
    /// When a broker appended them, in milliseconds since the Unix epoch, or [`Witness::watch`].
    appended_ms: i64,
    /// The longest time between accepted updates since [`Witness::watch`], by the brokers' clock.
    pause: Duration,
    repeated: u64,
    stale: u64,
    gaps: u64,
    /// What no reader may ever see.
    wrong: Option<String>,
}

impl Witness {
    /// Begins to read.
    pub(super) fn start(config: &ClientConfig, topic: &str, partitions: i32) -> Witness {
        let consumer: BaseConsumer = config
            .clone()
            .set("group.id", "huntd-campaign-witness")
            .set("enable.auto.commit", "false")
            .set("check.crcs", "true")
            .set("fetch.wait.max.ms", "20")
            .set("reconnect.backoff.max.ms", "200")
            .create()
            .expect("the configuration is valid");
        let mut places = TopicPartitionList::new();
        for partition in 0..partitions {
            places
                .add_partition_offset(topic, partition, Offset::Beginning)
                .expect("the offset is valid");
        }
        consumer.assign(&places).expect("the assignment is valid");
        let seen: Vec<Seen> = (0..partitions).map(|_| Seen::nothing()).collect();
        let seen = Arc::new(Mutex::new(seen));
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, asked) = (seen.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            while !asked.load(Ordering::Relaxed) {
                // Brokers come and go here; the client goes on by itself.
                if let Some(Ok(record)) = consumer.poll(Duration::from_millis(50)) {
                    let mut seen = shared.lock().expect("no reader panics");
                    seen[record.partition() as usize].see(&record);
                }
            }
        });
        Witness { seen, stop, thread: Some(thread) }
    }

    fn of<T>(&self, partition: i32, ask: impl Fn(&Seen) -> T) -> T {
        ask(&self.seen.lock().expect("no reader panics")[partition as usize])
    }

    fn of_all<T>(&self, ask: impl Fn(&Seen) -> T) -> Vec<T> {
        self.seen.lock().expect("no reader panics").iter().map(ask).collect()
    }

    /// The epoch of each partition.
    pub(super) fn epochs(&self) -> Vec<u64> {
        self.of_all(|seen| seen.reader.position().owner_epoch)
    }

    /// Where the reader of a partition is.
    pub(super) fn position(&self, partition: i32) -> Position {
        self.of(partition, |seen| seen.reader.position())
    }

    /// Begins to measure pauses.
    pub(super) fn watch(&self) {
        for seen in self.seen.lock().expect("no reader panics").iter_mut() {
            (seen.appended_ms, seen.pause) = (unix_ms(), Duration::ZERO);
        }
    }

    /// Forgets the pauses that have ended. One that goes on counts from its begin.
    pub(super) fn forget_pauses(&self) {
        for seen in self.seen.lock().expect("no reader panics").iter_mut() {
            seen.pause = Duration::ZERO;
        }
    }

    /// The longest pause of these partitions since [`Witness::watch`].
    pub(super) fn pause(&self, partitions: &[i32]) -> Option<Duration> {
        partitions.iter().map(|at| self.of(*at, |seen| seen.pause)).max()
    }

    /// Whether a partition has had updates since then.
    pub(super) fn has_moved_on(&self, partition: i32, since: Instant) -> bool {
        self.of(partition, |seen| seen.moved_at > since)
    }

    /// Whether the output accounts for the input up to these offsets.
    pub(super) fn covers(&self, ends: &[i64]) -> bool {
        (0..).zip(ends).all(|(partition, end)| self.position(partition).next_offset >= *end)
    }

    /// Frames whose updates were known already.
    pub(super) fn repeated(&self) -> u64 {
        self.of_all(|seen| seen.repeated).iter().sum()
    }

    /// Frames of owners that had lost their shard.
    pub(super) fn stale(&self) -> u64 {
        self.of_all(|seen| seen.stale).iter().sum()
    }

    /// Frames after missing updates.
    pub(super) fn gaps(&self) -> u64 {
        self.of_all(|seen| seen.gaps).iter().sum()
    }

    /// Fails on the first thing that no reader may see.
    pub(super) fn assert_nothing_is_wrong(&self) {
        for (partition, wrong) in self.of_all(|seen| seen.wrong.clone()).iter().enumerate() {
            assert!(wrong.is_none(), "partition {partition}: {wrong:?}");
        }
    }
}

/// The time on this host, which the brokers share.
fn unix_ms() -> i64 {
    (now_us() / 1_000).cast_signed()
}

impl Seen {
    fn nothing() -> Seen {
        Seen {
            reader: Reader::new(),
            moved_at: Instant::now(),
            appended_ms: unix_ms(),
            pause: Duration::ZERO,
            repeated: 0,
            stale: 0,
            gaps: 0,
            wrong: None,
        }
    }

    fn see(&mut self, record: &BorrowedMessage<'_>) {
        let payload = record.payload().expect("frames have a value");
        let (header, updates) = decode_frame(payload).expect("frames can be read");
        match self.reader.fold(&header, &updates) {
            Verdict::Accepted { .. } => {
                let appended_ms = record.timestamp().to_millis().expect("brokers set it");
                let pause_ms = (appended_ms - self.appended_ms).max(0).cast_unsigned();
                self.pause = self.pause.max(Duration::from_millis(pause_ms));
                self.appended_ms = self.appended_ms.max(appended_ms);
                self.moved_at = Instant::now();
            }
            Verdict::Duplicate => self.repeated += 1,
            Verdict::Stale => self.stale += 1,
            // What follows a failed delivery; its owner starts again from where readers are.
            Verdict::Gap { .. } => self.gaps += 1,
            Verdict::Halt => {
                let offset = record.offset();
                self.wrong = Some(format!("another chain at output offset {offset}: {header:?}"));
            }
            Verdict::Genesis => self.wrong = Some("the shard has started over".to_owned()),
            Verdict::Skip { offset } => {
                self.wrong = Some(format!("the input record at {offset} was given up"));
            }
            Verdict::Progress { .. } | Verdict::Fence | Verdict::Joined | Verdict::Waiting => {}
        }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            assert!(std::thread::panicking(), "the witness has panicked");
        }
    }
}

impl fmt::Display for Witness {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.of_all(|seen| {
            format!("{:?} {:?} ago", seen.reader.position(), seen.moved_at.elapsed())
        });
        write!(formatter, "the reader is at\n{}", lines.join("\n"))
    }
}
