//! The data plane's own metadata: the leader and leader epoch of each partition.
//!
//! librdkafka keeps such a table too, but its public form lacks the leader epoch, without which a
//! truncated log goes unnoticed (KIP-320).

use std::collections::BTreeMap;
use thiserror::Error;

use crate::kafka::error_code::ErrorCode;
use crate::kafka::leader_hint::CurrentLeader;
use crate::kafka::message::{Broker, Metadata, PartitionLeader};

/// An id that no broker has.
pub(crate) const NODE_UNKNOWN: i32 = -1;

/// Why a Metadata answer cannot be applied. The table is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MetadataError {
    /// The topic as a whole has an error.
    #[error("the input topic cannot be read: {0}")]
    Topic(ErrorCode),
    /// The topic was deleted and recreated: its offsets have a new meaning.
    #[error(
        "the input topic was deleted and created again: start over with `huntd run --genesis` \
         (docs/RUNBOOKS.md#input-recreated)"
    )]
    Recreated,
    /// The topic has another number of partitions: players would change shards.
    #[error(
        "the input topic has {now} partitions instead of {before}: the output topic and the \
         producers must follow, then restart huntd (docs/RUNBOOKS.md#partitions-added)"
    )]
    PartitionCount {
        /// Partitions when the table was first filled.
        before: usize,
        /// Partitions now.
        now: usize,
    },
}

impl MetadataError {
    /// Returns whether no retry can help.
    pub(crate) fn is_final(&self) -> bool {
        !matches!(self, MetadataError::Topic(_))
    }
}

/// The metadata of one partition.
#[derive(Clone, Copy, Debug)]
struct LeaderRow {
    leader: Option<i32>,
    leader_epoch: i32,
    /// True if the leader must be asked for before the next Fetch.
    stale: bool,
    /// Consecutive answers with a lower leader epoch.
    lagging: u8,
}

impl LeaderRow {
    const UNKNOWN: LeaderRow =
        LeaderRow { leader: None, leader_epoch: -1, stale: true, lagging: 0 };
}

/// After this many consecutive answers with a lower leader epoch, while the leader is being asked
/// for, the epoch itself has gone back; the brokers are not merely lagging. That happens when a
/// cluster is restored or migrated.
const LAGGING_MAX: u8 = 5;

/// Limit of brokers learned from Fetch responses: more than any cluster has. A Metadata answer
/// replaces them all.
pub(crate) const BROKERS_MAX: usize = 1024;

/// Leaders, leader epochs and the brokers' addresses, for one topic.
#[derive(Debug)]
pub struct LeaderTable {
    topic_id: u128,
    brokers: Vec<Broker>,
    rows: Vec<LeaderRow>,
    /// Leader epochs known before the first answer, by partition.
    expected: BTreeMap<i32, i32>,
    /// Number of leader changes.
    edition: u64,
}

impl LeaderTable {
    /// Creates an empty table.
    pub fn new() -> LeaderTable {
        let (brokers, rows, expected) = (Vec::new(), Vec::new(), BTreeMap::new());
        LeaderTable { topic_id: 0, brokers, rows, expected, edition: 0 }
    }

    /// Applies a Metadata answer. An entry with a lower leader epoch than the known one comes from
    /// a lagging broker and is skipped, unless it is repeated. A leader that is not among the
    /// brokers must be asked for again, because its endpoint is unknown.
    pub fn fold(&mut self, metadata: &Metadata) -> Result<(), MetadataError> {
        self.fold_doubting(metadata, None)
    }

    /// Applies an answer that was requested because a broker does not behave as a leader. That
    /// broker may be holding requests indefinitely, so its partitions count as stale.
    pub(crate) fn fold_doubting(
        &mut self,
        metadata: &Metadata,
        doubted: Option<i32>,
    ) -> Result<(), MetadataError> {
        if !metadata.error.is_none() {
            return Err(MetadataError::Topic(metadata.error));
        }
        let known = !self.rows.is_empty();
        if known && self.topic_id != metadata.topic_id {
            return Err(MetadataError::Recreated);
        }
        let (before, now) = (self.rows.len(), metadata.partitions.len());
        if known && before != now {
            return Err(MetadataError::PartitionCount { before, now });
        }
        self.topic_id = metadata.topic_id;
        // A broker that has just started may not know the others yet.
        if !metadata.brokers.is_empty() {
            self.brokers.clone_from(&metadata.brokers);
        }
        if !known {
            self.rows = vec![LeaderRow::UNKNOWN; now];
            for (partition, leader_epoch) in std::mem::take(&mut self.expected) {
                self.expect_leader(partition, leader_epoch);
            }
        }
        for entry in &metadata.partitions {
            self.fold_partition(entry, doubted);
        }
        let LeaderTable { brokers, rows, .. } = self;
        let is_listed = |node_id| brokers.iter().any(|broker| broker.node_id == node_id);
        for row in rows {
            row.stale |= !row.leader.is_some_and(is_listed);
        }
        self.edition += 1;
        Ok(())
    }

    fn fold_partition(&mut self, entry: &PartitionLeader, doubted: Option<i32>) {
        let Some(row) = self.row_mut(entry.partition) else {
            return;
        };
        let lags = entry.leader_epoch != -1 && entry.leader_epoch < row.leader_epoch;
        let is_asked_for = row.stale || row.leader.is_some() && row.leader == doubted;
        // As long as the leader serves, another broker that names an earlier one is lagging.
        if lags && (!is_asked_for || row.lagging + 1 < LAGGING_MAX) {
            row.lagging += u8::from(is_asked_for);
            return;
        }
        row.lagging = 0;
        // REPLICA_NOT_AVAILABLE (9) concerns a follower: the leader named with it is valid.
        let leads = entry.error.is_none() || entry.error == ErrorCode(9);
        row.leader = entry.leader.filter(|_| leads);
        row.leader_epoch = entry.leader_epoch;
        row.stale = false;
    }

    /// Returns whether the last answer about a stale partition was older than the known leader.
    /// Only another broker can tell more, and all their answers are counted together.
    pub(crate) fn lags(&self) -> bool {
        self.rows.iter().any(|row| row.stale && row.lagging > 0)
    }

    /// Learns the endpoint of a broker that an answer names. Above the limit, the next Metadata
    /// answer has to name it.
    pub(crate) fn learn_broker(&mut self, broker: Broker) {
        match self.brokers.iter().position(|known| known.node_id == broker.node_id) {
            Some(place) => self.brokers[place] = broker,
            None if self.brokers.len() < BROKERS_MAX => self.brokers.push(broker),
            None => return,
        }
        self.edition += 1;
    }

    /// Learns the leader that an answer names along with an error. Returns whether it was new.
    pub(crate) fn learn(&mut self, partition: i32, leader: CurrentLeader) -> bool {
        let known_broker = self.broker(leader.node_id).is_some();
        let Some(row) = self.row_mut(partition) else {
            return false;
        };
        if leader.leader_epoch <= row.leader_epoch || !known_broker {
            return false;
        }
        row.leader = Some(leader.node_id);
        (row.leader_epoch, row.lagging) = (leader.leader_epoch, 0);
        row.stale = false;
        self.edition += 1;
        true
    }

    /// Marks a partition's leader as stale; `leader_epoch` is the highest one seen elsewhere, or
    /// -1.
    pub(crate) fn expect_leader(&mut self, partition: i32, leader_epoch: i32) {
        if self.rows.is_empty() {
            self.expected.insert(partition, leader_epoch);
        } else if let Some(row) = self.row_mut(partition) {
            row.stale = true;
            if row.leader_epoch < leader_epoch {
                (row.leader_epoch, row.lagging) = (leader_epoch, 0);
            }
        }
    }

    /// This broker does not lead a partition: learns the leader that it names, or else marks the
    /// leader as stale. Returns whether it is stale.
    pub(crate) fn refused(
        &mut self,
        partition: i32,
        refused_by: i32,
        named: Option<CurrentLeader>,
    ) -> bool {
        let is_learnt = named.is_some_and(|leader| self.learn(partition, leader));
        !is_learnt && self.mark_stale(partition, refused_by)
    }

    /// Marks a partition's leader as stale, because this broker does not lead it. Returns whether
    /// it is stale: if another broker leads by now, the refusal is late.
    pub(crate) fn mark_stale(&mut self, partition: i32, refused_by: i32) -> bool {
        let Some(row) = self.row_mut(partition) else { return true };
        row.stale |= row.leader.is_none_or(|leader| leader == refused_by);
        row.stale
    }

    /// Marks all partitions led by this broker as stale, because it is gone.
    pub(crate) fn mark_broker_stale(&mut self, node_id: i32) {
        for row in &mut self.rows {
            row.stale |= row.leader == Some(node_id);
        }
    }

    /// The leader of a partition; `None` while it is unknown or stale.
    pub fn leader(&self, partition: i32) -> Option<CurrentLeader> {
        let row = self.row(partition)?;
        let node_id = row.leader.filter(|_| !row.stale)?;
        Some(CurrentLeader { node_id, leader_epoch: row.leader_epoch })
    }

    /// Returns whether any partition, of any instance, is fetched from this broker. Stale
    /// partitions count, too.
    pub(crate) fn serves(&self, node_id: i32) -> bool {
        self.rows.iter().any(|row| row.leader == Some(node_id))
    }

    /// A number that changes whenever leaders may have changed.
    pub(crate) fn edition(&self) -> u64 {
        self.edition
    }

    /// The broker with this id.
    pub fn broker(&self, node_id: i32) -> Option<&Broker> {
        self.brokers.iter().find(|broker| broker.node_id == node_id)
    }

    /// All brokers.
    pub fn brokers(&self) -> &[Broker] {
        &self.brokers
    }

    /// The topic's id; 0 while unknown.
    pub(crate) fn topic_id(&self) -> u128 {
        self.topic_id
    }

    /// Number of partitions of the topic; 0 until the first answer.
    pub fn partition_count(&self) -> usize {
        self.rows.len()
    }

    /// The partitions with stale leaders.
    pub fn stale(&self) -> impl Iterator<Item = i32> {
        (0..).zip(&self.rows).filter(|(_, row)| row.stale).map(|(partition, _)| partition)
    }

    fn row(&self, partition: i32) -> Option<&LeaderRow> {
        self.rows.get(usize::try_from(partition).ok()?)
    }

    fn row_mut(&mut self, partition: i32) -> Option<&mut LeaderRow> {
        self.rows.get_mut(usize::try_from(partition).ok()?)
    }
}

impl Default for LeaderTable {
    fn default() -> LeaderTable {
        LeaderTable::new()
    }
}
