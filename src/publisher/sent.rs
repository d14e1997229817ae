//! What the publisher remembers of a record until its delivery is reported.

use crate::decoder::reject::Reject;
use crate::output::dead_letter::DeadLetter;
use crate::publisher::ledger::Receipt;
use crate::publisher::producer::SendFailure;
use std::time::Instant;

/// A record whose delivery is not known yet.
pub enum Sent {
    /// A frame.
    Frame(QuotaItem, SentFrame),
    /// A dead letter.
    DeadLetter(QuotaItem, SentLetter),
    /// A player for another zone's input.
    Handoff(QuotaItem),
    /// A tick of this partition.
    Tick(i32),
}

#[derive(Clone, Copy)]
pub struct SentFrame {
    /// Length of the encoded frame.
    pub(super) bytes: usize,
    /// `ts_us` of the newest update.
    pub(super) newest_us: Option<i64>,
    pub(super) sent_at: Instant,
}

#[derive(Clone, Copy)]
pub struct SentLetter {
    /// Input offset that it stands for.
    pub(super) offset: i64,
    /// If its topic refuses it, the shard goes on without it.
    pub(super) is_dispensable: bool,
}

/// One item of a shard's quota, until it is settled.
#[derive(Clone, Copy)]
pub struct QuotaItem {
    pub(super) receipt: Receipt,
    pub(super) bytes: u64,
}

impl SentLetter {
    /// The receipt of a letter, given the skips that the operator has asked for.
    pub(super) fn of(letter: &DeadLetter, skips: &[(i32, i64)]) -> SentLetter {
        let DeadLetter { partition, offset, reason, .. } = *letter;
        let is_passed_over = Reject::PASSED_OVER.iter().any(|reject| reject.name() == reason);
        let is_dispensable = is_passed_over || skips.contains(&(partition, offset));
        SentLetter { offset, is_dispensable }
    }
}

impl Sent {
    /// What a failed delivery means for the record's shard. `None`: nothing.
    pub(super) fn loss(&self, failure: SendFailure) -> Option<SendFailure> {
        let Sent::DeadLetter(item, letter) = self else { return Some(failure) };
        let (partition, offset) = (item.receipt.partition, letter.offset);
        let SendFailure { sentence, is_too_large } = failure;
        if is_too_large && letter.is_dispensable {
            tracing::error!(
                partition,
                offset,
                "the record is passed over, and its topic refuses its dead letter: {sentence}"
            );
            return None;
        }
        let mut sentence = format!("the dead letter of offset {offset}: {sentence}");
        if is_too_large {
            let skip = format!(" (`huntd run --skip {partition}:{offset}` goes on without it)");
            sentence.push_str(&skip);
        }
        Some(SendFailure { sentence, is_too_large })
    }
}
