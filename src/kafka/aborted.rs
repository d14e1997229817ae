//! Finds the batches of a partition that belong to aborted transactions (read_committed).

use crate::kafka::record_batch::BatchHeader;

/// A transaction that a Fetch response names as aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AbortedTransaction {
    /// The producer.
    pub producer_id: i64,
    /// Offset of its first record.
    pub first_offset: i64,
}

/// A control record's type: the second field of its key (KIP-98).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marker {
    /// The producer's transaction is aborted.
    Abort,
    /// The producer's transaction is committed.
    Commit,
}

impl Marker {
    /// Parses the key of a control record; `None` for other types.
    pub(crate) fn from_key(key: &[u8]) -> Option<Marker> {
        match key.first_chunk()? {
            [_, _, 0, 0] => Some(Marker::Abort),
            [_, _, 0, 1] => Some(Marker::Commit),
            _ => None,
        }
    }
}

/// The aborted transactions of one partition in one Fetch response, while its batches are read in
/// order. Reused from response to response.
#[derive(Debug)]
pub struct AbortedTransactions {
    /// The transactions whose marker has not been read yet, sorted by producer and then by offset:
    /// not all brokers send them sorted.
    open: Vec<AbortedTransaction>,
}

impl AbortedTransactions {
    /// Creates an empty list.
    pub fn new() -> AbortedTransactions {
        AbortedTransactions { open: Vec::new() }
    }

    /// Replaces the transactions with those of a partition in a response.
    pub fn load(&mut self, transactions: impl Iterator<Item = AbortedTransaction>) {
        self.open.clear();
        self.open.extend(transactions);
        self.open.sort_unstable();
    }

    /// Returns whether the records of this batch were aborted and must be skipped.
    pub(crate) fn covers(&self, header: &BatchHeader) -> bool {
        header.is_transactional()
            && !header.is_control()
            && self.first_begun(header.producer_id, header.base_offset).is_some()
    }

    /// Processes a marker. An abort ends the oldest open transaction of its producer. A marker
    /// without such a transaction changes nothing, because empty transactions have markers, too.
    pub(crate) fn pass(&mut self, header: &BatchHeader, marker: Marker) {
        if marker == Marker::Abort
            && let Some(place) = self.first_begun(header.producer_id, header.last_offset())
        {
            self.open.remove(place);
        }
    }

    fn first_begun(&self, producer_id: i64, offset: i64) -> Option<usize> {
        let place = self.open.partition_point(|open| open.producer_id < producer_id);
        let oldest = self.open.get(place)?;
        (oldest.producer_id == producer_id && oldest.first_offset <= offset).then_some(place)
    }
}

impl Default for AbortedTransactions {
    fn default() -> AbortedTransactions {
        AbortedTransactions::new()
    }
}
