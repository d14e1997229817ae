//! The events that were sent but are not covered by an accepted frame yet.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// Limit of unread events per partition. The mock cluster drops everything more than 5 MiB behind
/// the end, in the events topic and, as updates, in the output topic.
const UNREAD_EVENTS_MAX: i64 = 8192;

/// Upper limit of a generated event's size in a batch.
const EVENT_BYTES_MAX: i64 = 256;
const _: () = assert!(UNREAD_EVENTS_MAX * EVENT_BYTES_MAX < 4 * 1024 * 1024);

/// State shared by generator and verifier. Each number has one writer.
pub(super) struct InFlightEvents {
    partitions: Vec<Partition>,
    generated: AtomicBool,
    stopped: AtomicBool,
}

struct Partition {
    /// Events sent. Generator.
    sent: AtomicI64,
    /// Input offset that the accepted frames have reached. Verifier.
    covered: AtomicI64,
    /// Due time of each event in flight, by offset, in microseconds since the start. Generator.
    due_us: Box<[AtomicU64]>,
}

impl InFlightEvents {
    /// Creates the state before the first event.
    pub(super) fn new(partitions: u16) -> InFlightEvents {
        let partition = || Partition {
            sent: AtomicI64::new(0),
            covered: AtomicI64::new(0),
            due_us: (0..UNREAD_EVENTS_MAX).map(|_| AtomicU64::new(0)).collect(),
        };
        InFlightEvents {
            partitions: (0..partitions).map(|_| partition()).collect(),
            generated: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        }
    }

    /// Returns whether one more event may be sent to the partition.
    pub(super) fn has_room(&self, partition: u16) -> bool {
        self.sent(partition) - self.covered(partition) < UNREAD_EVENTS_MAX
    }

    /// Records that the partition's next event is sent, due at this time. There must be room.
    pub(super) fn send(&self, partition: u16, due_us: u64) {
        assert!(self.has_room(partition));
        let partition = &self.partitions[usize::from(partition)];
        let offset = partition.sent.load(Ordering::Relaxed);
        partition.due_us[slot(offset)].store(due_us, Ordering::Relaxed);
        partition.sent.store(offset + 1, Ordering::Release);
    }

    /// Records that frames cover the input up to `next_offset`, and passes the due time of each
    /// newly covered event to `report`.
    pub(super) fn cover(&self, partition: u16, next_offset: i64, mut report: impl FnMut(u64)) {
        let sent = self.sent(partition);
        let partition = &self.partitions[usize::from(partition)];
        let covered = partition.covered.load(Ordering::Relaxed);
        // The comparison of the accounts detects a frame that covers events that were never sent.
        for offset in covered..next_offset.min(sent) {
            report(partition.due_us[slot(offset)].load(Ordering::Relaxed));
        }
        partition.covered.store(next_offset.max(covered), Ordering::Release);
    }

    /// Number of events sent to a partition.
    pub(super) fn sent(&self, partition: u16) -> i64 {
        self.partitions[usize::from(partition)].sent.load(Ordering::Acquire)
    }

    /// Input offset up to which frames cover a partition.
    pub(super) fn covered(&self, partition: u16) -> i64 {
        self.partitions[usize::from(partition)].covered.load(Ordering::Acquire)
    }

    /// Number of events sent but not covered, over all partitions.
    pub(super) fn uncovered(&self) -> u64 {
        let uncovered = |partition| (self.sent(partition) - self.covered(partition)).max(0) as u64;
        (0..self.partitions.len() as u16).map(uncovered).sum()
    }

    /// Records that the last event is sent.
    pub(super) fn end(&self) {
        self.generated.store(true, Ordering::Release);
    }

    /// Returns whether all events are sent and covered.
    pub(super) fn is_complete(&self) -> bool {
        self.generated.load(Ordering::Acquire) && self.uncovered() == 0
    }

    /// Stops the generator and the verifier.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    /// Returns whether generator and verifier have to stop.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}

fn slot(offset: i64) -> usize {
    (offset % UNREAD_EVENTS_MAX) as usize
}

#[cfg(test)]
mod tests {
    use super::{InFlightEvents, UNREAD_EVENTS_MAX};

    #[test]
    fn a_partition_is_full_until_its_oldest_events_are_covered() {
        let in_flight = InFlightEvents::new(2);
        for number in 0..UNREAD_EVENTS_MAX {
            assert!(in_flight.has_room(1));
            in_flight.send(1, number as u64);
        }
        assert!(!in_flight.has_room(1) && in_flight.has_room(0));
        let mut due = Vec::new();
        in_flight.cover(1, 3, |due_us| due.push(due_us));
        assert_eq!(due, [0, 1, 2]);
        in_flight.cover(1, 2, |_| panic!("a frame never takes back what is covered"));
        assert!(in_flight.has_room(1));
        assert_eq!(in_flight.uncovered(), UNREAD_EVENTS_MAX as u64 - 3);
        assert!(!in_flight.is_complete());
        in_flight.end();
        in_flight.cover(1, UNREAD_EVENTS_MAX, |_| {});
        assert!(in_flight.is_complete());
    }
}
