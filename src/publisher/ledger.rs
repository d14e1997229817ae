//! What is on its way to the broker, shard by shard, and how far the acknowledged part reaches.
//!
//! Frames of a shard are acknowledged in order; its dead letters go to another topic and are not.
//! So each shard keeps a window of everything it sent, in order, and its acknowledged offset moves
//! only over a prefix that is acknowledged without a gap. A capture stands in the same window: it
//! is gated when it comes to the front.

use crate::limits::SHARDS_MAX;
use crate::publisher::frame::FrameHeader;
use crate::publisher::{Capture, Gate};
use crate::recovery::mark::Mark;
use std::collections::VecDeque;

/// The windows of all shards, by partition number.
pub struct Ledger {
    shards: Vec<Window>,
    /// Captures that came to the front of their window.
    gates: VecDeque<Gate>,
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
    /// Where a reader stands after all that has left the window; `None` before the first frame.
    mark: Option<Mark>,
}

struct Entry {
    item: Item,
    acked: bool,
}

/// What stands in a window.
enum Item {
    /// A frame, and the output offset that its acknowledgement told.
    Frame(FrameHeader, i64),
    /// It moves no offset by itself.
    DeadLetter,
    /// It is acknowledged at once.
    Capture(Capture),
}

impl Ledger {
    /// Nothing was sent.
    pub fn new() -> Ledger {
        Ledger {
            shards: (0..SHARDS_MAX).map(|_| Window::default()).collect(),
            gates: VecDeque::new(),
        }
    }

    /// Whether something of this generation may still be sent: not when a newer one has begun, and
    /// not after a failed delivery. The first call with a newer generation begins it.
    pub fn admits(&mut self, partition: i32, generation: u32) -> bool {
        let window = self.window(partition);
        if generation > window.generation {
            window.generation = generation;
            window.failed = false;
            window.mark = None;
            window.first += window.entries.len() as u64;
            window.entries.clear();
        }
        generation == window.generation && !window.failed
    }

    /// The receipt of what is sent next.
    pub fn receipt(&mut self, partition: i32) -> Receipt {
        let window = self.window(partition);
        let sequence = window.first + window.entries.len() as u64;
        Receipt { partition, generation: window.generation, sequence }
    }

    /// The receipt's frame or dead letter is in the producer's hands. `header` is a frame's, `None`
    /// for a dead letter.
    pub fn sent(&mut self, receipt: Receipt, header: Option<FrameHeader>) {
        assert_eq!(receipt, self.receipt(receipt.partition), "sent in another order");
        let item = header.map_or(Item::DeadLetter, |header| Item::Frame(header, -1));
        self.window(receipt.partition).entries.push_back(Entry { item, acked: false });
    }

    /// A capture was begun after all that was sent so far.
    pub fn captured(&mut self, capture: Capture) {
        let item = Item::Capture(capture);
        self.window(capture.partition).entries.push_back(Entry { item, acked: true });
        self.settle_front(capture.partition);
    }

    /// The broker has acknowledged it, with this offset: the input offset up to which everything of
    /// the shard is acknowledged, if that has moved. Of an older or a failed generation nothing
    /// counts.
    pub fn acked(&mut self, receipt: Receipt, output_offset: i64) -> Option<i64> {
        let window = self.window(receipt.partition);
        if receipt.generation != window.generation || window.failed {
            return None;
        }
        let index = (receipt.sequence - window.first) as usize;
        let entry = &mut window.entries[index];
        assert!(!entry.acked, "delivered twice");
        entry.acked = true;
        if let Item::Frame(_, offset) = &mut entry.item {
            *offset = output_offset;
        }
        self.settle_front(receipt.partition)
    }

    /// A capture before which everything is acknowledged.
    pub fn next_gate(&mut self) -> Option<Gate> {
        self.gates.pop_front()
    }

    fn settle_front(&mut self, partition: i32) -> Option<i64> {
        let Ledger { shards, gates } = self;
        let window = &mut shards[usize::try_from(partition).expect("not negative")];
        let mut moved = None;
        while window.entries.front().is_some_and(|entry| entry.acked) {
            let entry = window.entries.pop_front().expect("the front was there");
            window.first += 1;
            match entry.item {
                Item::Frame(header, output_offset) => {
                    moved = Some(header.next_offset);
                    window.mark = Some(after(window.mark, &header, output_offset));
                }
                Item::DeadLetter => {}
                Item::Capture(Capture { partition, generation, capture, .. }) => {
                    let gate = |mark| Gate { partition, generation, capture, mark };
                    gates.extend(window.mark.map(gate));
                }
            }
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

/// Where a reader stands that has folded one more frame of the owner's.
fn after(mark: Option<Mark>, header: &FrameHeader, output_offset: i64) -> Mark {
    Mark {
        output_offset: output_offset + 1,
        epoch: header.epoch,
        next_update: header.first_update + u64::from(header.count),
        next_offset: mark.map_or(i64::MIN, |mark| mark.next_offset).max(header.next_offset),
        chain: header.chain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publisher::frame::Frame;

    fn send(ledger: &mut Ledger, partition: i32, next_offset: Option<i64>) -> Receipt {
        let receipt = ledger.receipt(partition);
        let header = |next_offset| FrameHeader { next_offset, epoch: 3, ..Frame::new().header };
        ledger.sent(receipt, next_offset.map(header));
        receipt
    }

    #[test]
    fn a_capture_is_gated_when_everything_before_it_is_acked_and_nothing_after_it() {
        let mut ledger = Ledger::new();
        assert!(ledger.admits(3, 1));
        let frame = send(&mut ledger, 3, Some(10));
        let letter = send(&mut ledger, 3, None);
        let (next_update, next_offset) = (0, 10);
        let capture = Capture { partition: 3, generation: 1, capture: 7, next_update, next_offset };
        ledger.captured(capture);
        let later = send(&mut ledger, 3, Some(20));
        assert_eq!(ledger.acked(later, 102), None);
        assert_eq!(ledger.acked(frame, 100), Some(10));
        assert_eq!(ledger.next_gate(), None);
        assert_eq!(ledger.acked(letter, 5), Some(20));
        let gate = ledger.next_gate().expect("everything before it is acknowledged");
        assert_eq!((gate.partition, gate.generation, gate.capture), (3, 1, 7));
        let Mark { output_offset, epoch, next_offset, .. } = gate.mark;
        assert_eq!((output_offset, epoch, next_offset), (101, 3, 10));
        ledger.captured(Capture { capture: 8, ..capture });
        assert_eq!(ledger.next_gate().map(|gate| gate.mark.output_offset), Some(103));
    }

    #[test]
    fn a_capture_of_a_failed_generation_is_never_gated() {
        let mut ledger = Ledger::new();
        assert!(ledger.admits(0, 1));
        let frame = send(&mut ledger, 0, Some(10));
        let (next_update, next_offset) = (0, 10);
        let capture = Capture { partition: 0, generation: 1, capture: 7, next_update, next_offset };
        ledger.captured(capture);
        assert!(ledger.failed(0, 1));
        assert_eq!(ledger.acked(frame, 100), None);
        assert_eq!(ledger.next_gate(), None);
    }

    #[test]
    fn the_acked_offset_waits_for_dead_letters_before_a_frame() {
        let mut ledger = Ledger::new();
        assert!(ledger.admits(3, 1));
        let first = send(&mut ledger, 3, Some(10));
        let letter = send(&mut ledger, 3, None);
        let second = send(&mut ledger, 3, Some(20));
        let third = send(&mut ledger, 3, Some(30));
        assert_eq!(ledger.acked(first, 0), Some(10));
        assert_eq!(ledger.acked(second, 0), None);
        assert_eq!(ledger.acked(third, 0), None);
        assert_eq!(ledger.acked(letter, 0), Some(30));
    }

    #[test]
    fn deliveries_of_an_older_generation_do_not_count() {
        let mut ledger = Ledger::new();
        assert!(ledger.admits(0, 1));
        let old = send(&mut ledger, 0, Some(10));
        assert!(ledger.admits(0, 2));
        assert!(!ledger.admits(0, 1));
        let new = send(&mut ledger, 0, Some(5));
        assert_eq!(ledger.acked(old, 0), None);
        assert!(!ledger.failed(0, 1));
        assert_eq!(ledger.acked(new, 0), Some(5));
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
        assert_eq!(ledger.acked(second, 0), None);
        assert!(ledger.waiting().is_empty());
        assert!(ledger.admits(0, 2));
        let next = send(&mut ledger, 0, Some(20));
        assert_eq!(ledger.acked(next, 0), Some(20));
    }
}
