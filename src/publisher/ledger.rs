//! What is on its way to the broker, shard by shard, and how far the acknowledged part reaches.
//!
//! Frames of a shard are acknowledged in order; its dead letters go to another topic and are not.
//! So each shard keeps a window of everything it sent, in order, and its acknowledged offset moves
//! only over a prefix that is acknowledged without a gap.

use crate::limits::SHARDS_MAX;
use std::collections::VecDeque;

/// The windows of all shards, by partition number.
pub struct Ledger {
    shards: Vec<Window>,
}

impl Default for Ledger {
    fn default() -> Ledger {
        Ledger::new()
    }
}

/// Names one sent frame or dead letter until its delivery is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The shard's partition.
    pub partition: i32,
    /// The ownership that sent it.
    pub generation: u32,
    /// Its place in the shard's window.
    pub sequence: u64,
}

/// What one shard has sent in its latest generation.
#[derive(Default)]
struct Window {
    generation: u32,
    failed: bool,
    /// Sequence of the window's first entry.
    first: u64,
    entries: VecDeque<Entry>,
}

struct Entry {
    /// `None` for a dead letter, which does not move the offset by itself.
    next_offset: Option<i64>,
    acked: bool,
}

impl Ledger {
    /// Nothing was sent.
    pub fn new() -> Ledger {
        Ledger { shards: (0..SHARDS_MAX).map(|_| Window::default()).collect() }
    }

    /// Whether something of this generation may still be sent: not when a newer one has begun, and
    /// not after a failed delivery. The first call with a newer generation begins it.
    pub fn admits(&mut self, partition: i32, generation: u32) -> bool {
        let window = self.window(partition);
        if generation > window.generation {
            window.generation = generation;
            window.failed = false;
            window.first += window.entries.len() as u64;
            window.entries.clear();
        }
        generation == window.generation && !window.failed
    }

    /// The receipt of what is sent next. `next_offset` is a frame's, `None` for a dead letter.
    pub fn receipt(&mut self, partition: i32) -> Receipt {
        let window = self.window(partition);
        let sequence = window.first + window.entries.len() as u64;
        Receipt { partition, generation: window.generation, sequence }
    }

    /// The receipt's frame or dead letter is in the producer's hands.
    pub fn sent(&mut self, receipt: Receipt, next_offset: Option<i64>) {
        assert_eq!(receipt, self.receipt(receipt.partition), "sent in another order");
        self.window(receipt.partition).entries.push_back(Entry { next_offset, acked: false });
    }

    /// The broker has acknowledged it: the offset up to which everything of the shard is
    /// acknowledged, if that has moved. Of an older or a failed generation nothing counts.
    pub fn acked(&mut self, receipt: Receipt) -> Option<i64> {
        let window = self.window(receipt.partition);
        if receipt.generation != window.generation || window.failed {
            return None;
        }
        let index = (receipt.sequence - window.first) as usize;
        assert!(!window.entries[index].acked, "delivered twice");
        window.entries[index].acked = true;
        let mut moved = None;
        while window.entries.front().is_some_and(|entry| entry.acked) {
            let entry = window.entries.pop_front().expect("the front was there");
            window.first += 1;
            moved = entry.next_offset.or(moved);
        }
        moved
    }

    /// Its delivery failed: whether that is news, and not the consequence of an earlier failure or
    /// of a generation that is over.
    pub fn failed(&mut self, partition: i32, generation: u32) -> bool {
        let window = self.window(partition);
        let news = generation == window.generation && !window.failed;
        if news {
            window.failed = true;
            window.first += window.entries.len() as u64;
            window.entries.clear();
        }
        news
    }

    /// The shards that wait for acknowledgements, as partition and generation.
    pub fn waiting(&self) -> Vec<(i32, u32)> {
        let windows = (0..).zip(&self.shards);
        let waiting = windows.filter(|(_, window)| !window.entries.is_empty());
        waiting.map(|(partition, window)| (partition, window.generation)).collect()
    }

    fn window(&mut self, partition: i32) -> &mut Window {
        &mut self.shards[usize::try_from(partition).expect("partition numbers are not negative")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(ledger: &mut Ledger, partition: i32, next_offset: Option<i64>) -> Receipt {
        let receipt = ledger.receipt(partition);
        ledger.sent(receipt, next_offset);
        receipt
    }

    #[test]
    fn the_acked_offset_waits_for_dead_letters_before_a_frame() {
        let mut ledger = Ledger::new();
        assert!(ledger.admits(3, 1));
        let first = send(&mut ledger, 3, Some(10));
        let letter = send(&mut ledger, 3, None);
        let second = send(&mut ledger, 3, Some(20));
        let third = send(&mut ledger, 3, Some(30));
        assert_eq!(ledger.acked(first), Some(10));
        assert_eq!(ledger.acked(second), None);
        assert_eq!(ledger.acked(third), None);
        assert_eq!(ledger.acked(letter), Some(30));
    }

    #[test]
    fn deliveries_of_an_older_generation_do_not_count() {
        let mut ledger = Ledger::new();
        assert!(ledger.admits(0, 1));
        let old = send(&mut ledger, 0, Some(10));
        assert!(ledger.admits(0, 2));
        assert!(!ledger.admits(0, 1));
        let new = send(&mut ledger, 0, Some(5));
        assert_eq!(ledger.acked(old), None);
        assert!(!ledger.failed(0, 1));
        assert_eq!(ledger.acked(new), Some(5));
    }

    #[test]
    fn a_failure_is_news_once_and_ends_its_generation() {
        let mut ledger = Ledger::new();
        assert!(ledger.admits(0, 1));
        let first = send(&mut ledger, 0, Some(10));
        let second = send(&mut ledger, 0, Some(20));
        assert_eq!(ledger.waiting(), [(0, 1)]);
        assert!(ledger.failed(first.partition, first.generation));
        assert!(!ledger.failed(second.partition, second.generation));
        assert!(!ledger.admits(0, 1));
        assert_eq!(ledger.acked(second), None);
        assert!(ledger.waiting().is_empty());
        assert!(ledger.admits(0, 2));
        let next = send(&mut ledger, 0, Some(20));
        assert_eq!(ledger.acked(next), Some(20));
    }
}
