//! The stored states that shards may start from: the order in which they are tried, and which of
//! them turned out to be damaged or could not be read.
//!
//! Pure: the control thread finds and loads the states.

use crate::output::fold::Start;
use crate::ownership::acquisition::Candidate;
use crate::snapshot::format::{Header, Origin};
use crate::snapshot::replicas::Replica;
use crate::snapshot::slots::FAILED_READS_MAX;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A state and where it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredState {
    /// A snapshot on this host's disk.
    Here(Header),
    /// A replica in the snapshot topic.
    Elsewhere(Replica),
}

impl StoredState {
    /// The header of its snapshot.
    pub fn header(&self) -> &Header {
        match self {
            StoredState::Here(header) => header,
            StoredState::Elsewhere(replica) => &replica.header,
        }
    }

    /// Identifies the state. A snapshot and its replica have different keys, because one may be
    /// intact and the other damaged.
    fn key(&self) -> StateKey {
        let header = self.header();
        (header.partition, header.id(), matches!(self, StoredState::Elsewhere(_)))
    }
}

/// Partition, the header's id, and whether it is a replica.
type StateKey = (i32, u64, bool);

/// The known stored states of all shards that are being acquired.
#[derive(Debug)]
pub struct StoredStates {
    /// The topics that the states must belong to.
    origin: Origin,
    /// By partition, in the order of the candidates returned last.
    found: BTreeMap<i32, Vec<StoredState>>,
    damaged: BTreeSet<StateKey>,
    /// States that could not be read since the last survey.
    unread: BTreeSet<StateKey>,
    /// How many reads of a state have failed.
    failed_reads: BTreeMap<StateKey, u32>,
}

impl StoredStates {
    /// Creates an empty set.
    pub fn new(origin: Origin) -> StoredStates {
        let (damaged, unread) = (BTreeSet::new(), BTreeSet::new());
        let failed_reads = BTreeMap::new();
        StoredStates { origin, found: BTreeMap::new(), damaged, unread, failed_reads }
    }

    /// Replaces a shard's snapshots with these, and keeps the replica that was found last. Returns
    /// all as candidates, newest first. What could not be read is passed over this time, if
    /// anything is left.
    pub fn survey(&mut self, partition: i32, snapshots: Vec<Header>) -> Vec<Candidate> {
        let before = self.found.remove(&partition).unwrap_or_default().into_iter();
        let replica = before.filter(|state| matches!(state, StoredState::Elsewhere(_)));
        let known = snapshots.into_iter().map(StoredState::Here).chain(replica);
        let whole = known.filter(|state| !self.damaged.contains(&state.key()));
        let is_unread = |state: &StoredState| self.unread.contains(&state.key());
        let (unread, read): (Vec<_>, Vec<_>) = whole.partition(is_unread);
        self.unread.retain(|(of, ..)| *of != partition);
        self.found.insert(partition, if read.is_empty() { unread } else { read });
        self.candidates(partition)
    }

    /// Returns whether the replica with this header is not known to be damaged.
    pub fn is_replica_wanted(&self, header: &Header) -> bool {
        !self.damaged.contains(&(header.partition, header.id(), true))
    }

    /// Takes the newest replica of another host's snapshot, if there is one: another daemon may
    /// have owned the shard in the meantime. Returns all candidates, newest first.
    pub fn offer(&mut self, partition: i32, replica: Option<Replica>) -> Vec<Candidate> {
        let found = self.found.entry(partition).or_default();
        found.retain(|state| matches!(state, StoredState::Here(_)));
        found.extend(replica.map(StoredState::Elsewhere));
        self.candidates(partition)
    }

    fn candidates(&mut self, partition: i32) -> Vec<Candidate> {
        let found = self.found.entry(partition).or_default();
        found.sort_by_key(|state| Reverse(state.header().recency(&self.origin)));
        let found = self.found[&partition].iter();
        found.map(|state| self.candidate(state)).collect()
    }

    fn candidate(&self, state: &StoredState) -> Candidate {
        let header = state.header();
        let Header { next_offset, leader_epoch, next_update, chain, mark, ruleset, .. } = *header;
        let version = header.engine_version;
        Candidate {
            start: Start { next_offset, leader_epoch, next_update, chain },
            mark,
            ruleset,
            version,
            skips: header.skips.clone(),
            is_of_deleted_input: !header.origin.agrees(&self.origin),
            is_here: matches!(state, StoredState::Here(_)),
        }
    }

    /// The state of a candidate; `None`: the shard starts without one.
    pub fn choose(&self, partition: i32, candidate: Option<usize>) -> Option<StoredState> {
        candidate.map(|candidate| self.found[&partition][candidate].clone())
    }

    /// Marks a state as damaged: it is no longer a candidate.
    pub fn set_damaged(&mut self, state: &StoredState) {
        self.damaged.insert(state.key());
    }

    /// Notes that a state cannot be read now. The next attempt takes another one, if there is one;
    /// the one after that may take this one. After [`FAILED_READS_MAX`] failures it counts as
    /// damaged.
    pub(crate) fn set_unread(&mut self, state: &StoredState) {
        self.unread.insert(state.key());
        let failed_reads = self.failed_reads.entry(state.key()).or_default();
        *failed_reads += 1;
        if *failed_reads >= FAILED_READS_MAX {
            self.set_damaged(state);
        }
    }
}
