//! The events that were sent and not covered by an accepted frame yet.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// Events of one partition that may be on their way. The mock cluster drops what is more than 5 MiB
/// behind, in the events topic and, as updates, in the output topic.
const UNREAD_EVENTS_MAX: i64 = 8192;

/// Bytes that the longest event of a generator takes in a batch.
const EVENT_BYTES_MAX: i64 = 256;
const _: () = assert!(UNREAD_EVENTS_MAX * EVENT_BYTES_MAX < 4 * 1024 * 1024);

/// What generator and verifier share. Each number has one writer.
pub(super) struct Flight {
    partitions: Vec<Partition>,
    generated: AtomicBool,
    stopped: AtomicBool,
}

struct Partition {
    /// Events sent. Generator.
    sent: AtomicI64,
    /// Input offset that the accepted frames have come to. Verifier.
    covered: AtomicI64,
    /// When each event on its way was due, by offset, in microseconds since the start. Generator.
    due_us: Box<[AtomicU64]>,
}

impl Flight {
    /// Nothing is on its way.
    pub(super) fn new(partitions: u16) -> Flight {
        let partition = || Partition {
            sent: AtomicI64::new(0),
            covered: AtomicI64::new(0),
            due_us: (0..UNREAD_EVENTS_MAX).map(|_| AtomicU64::new(0)).collect(),
        };
        Flight {
            partitions: (0..partitions).map(|_| partition()).collect(),
            generated: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        }
    }

    /// Whether the partition takes one more event now.
    pub(super) fn has_room(&self, partition: u16) -> bool {
        self.sent(partition) - self.covered(partition) < UNREAD_EVENTS_MAX
    }

    /// Notes that the partition's next event is sent, due at this time. There must be room.
    pub(super) fn send(&self, partition: u16, due_us: u64) {
        assert!(self.has_room(partition));
        let partition = &self.partitions[usize::from(partition)];
        let offset = partition.sent.load(Ordering::Relaxed);
        partition.due_us[slot(offset)].store(due_us, Ordering::Relaxed);
        partition.sent.store(offset + 1, Ordering::Release);
    }

    /// Notes that frames cover the input up to `next_offset`, and reports when each event newly
    /// covered was due.
    pub(super) fn cover(&self, partition: u16, next_offset: i64, mut tell: impl FnMut(u64)) {
        let sent = self.sent(partition);
        let partition = &self.partitions[usize::from(partition)];
        let covered = partition.covered.load(Ordering::Relaxed);
        // The comparison of the accounts finds a frame that covers events that were never sent.
        for offset in covered..next_offset.min(sent) {
            tell(partition.due_us[slot(offset)].load(Ordering::Relaxed));
        }
        partition.covered.store(next_offset.max(covered), Ordering::Release);
    }

    /// Events sent to a partition.
    pub(super) fn sent(&self, partition: u16) -> i64 {
        self.partitions[usize::from(partition)].sent.load(Ordering::Acquire)
    }

    /// Input offset up to which frames cover a partition.
    pub(super) fn covered(&self, partition: u16) -> i64 {
        self.partitions[usize::from(partition)].covered.load(Ordering::Acquire)
    }

    /// Events sent and not covered, over all partitions.
    pub(super) fn uncovered(&self) -> u64 {
        let uncovered = |partition| (self.sent(partition) - self.covered(partition)).max(0) as u64;
        (0..self.partitions.len() as u16).map(uncovered).sum()
    }

    /// Notes that the last event is sent.
    pub(super) fn end(&self) {
        self.generated.store(true, Ordering::Release);
    }

    /// Whether every event there is was sent, and is covered.
    pub(super) fn is_complete(&self) -> bool {
        self.generated.load(Ordering::Acquire) && self.uncovered() == 0
    }

    /// Stops the generator and the verifier.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    /// Whether generator and verifier have to stop.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}

fn slot(offset: i64) -> usize {
    (offset % UNREAD_EVENTS_MAX) as usize
}

#[cfg(test)]
mod tests {
    use super::{Flight, UNREAD_EVENTS_MAX};

    #[test]
    fn a_partition_is_full_until_its_oldest_events_are_covered() {
        let flight = Flight::new(2);
        for number in 0..UNREAD_EVENTS_MAX {
            assert!(flight.has_room(1));
            flight.send(1, number as u64);
        }
        assert!(!flight.has_room(1) && flight.has_room(0));
        let mut due = Vec::new();
        flight.cover(1, 3, |due_us| due.push(due_us));
        assert_eq!(due, [0, 1, 2]);
        flight.cover(1, 2, |_| panic!("a frame never takes back what is covered"));
        assert!(flight.has_room(1));
        assert_eq!(flight.uncovered(), UNREAD_EVENTS_MAX as u64 - 3);
        assert!(!flight.is_complete());
        flight.end();
        flight.cover(1, UNREAD_EVENTS_MAX, |_| {});
        assert!(flight.is_complete());
    }
}
