//! The data plane's own view of the cluster: who leads each partition, and since which epoch.
//!
//! librdkafka keeps such a table too, but its public form has no leader epoch, and without one a
//! truncated log goes unnoticed (KIP-320).

use thiserror::Error;

use crate::kafka::error_code::ErrorCode;
use crate::kafka::fetch::CurrentLeader;
use crate::kafka::message::{Broker, Metadata, PartitionLeader};

/// Why a Metadata answer cannot be taken over. The table stays as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MetadataError {
    /// The topic as a whole has an error.
    #[error("the input topic cannot be read: {0}")]
    Topic(ErrorCode),
    /// The topic was deleted and created again: offsets no longer mean what they meant.
    #[error("the input topic was deleted and created again: start over with `huntd run --genesis`")]
    Recreated,
    /// The topic has another number of partitions: players would change their shards.
    #[error(
        "the input topic has {now} partitions instead of {before}: the output topic and the \
         producers must follow, then restart huntd"
    )]
    PartitionCount {
        /// Partitions when the table was first filled.
        before: usize,
        /// Partitions now.
        now: usize,
    },
}

impl MetadataError {
    /// Whether asking again cannot help.
    pub(crate) fn is_final(&self) -> bool {
        !matches!(self, MetadataError::Topic(_))
    }
}

/// What the table knows of one partition.
#[derive(Clone, Copy, Debug)]
struct Row {
    leader: Option<i32>,
    leader_epoch: i32,
    /// The leader must be asked for before the next Fetch.
    stale: bool,
}

/// Leaders, their epochs and the brokers' addresses, for one topic.
#[derive(Debug)]
pub struct LeaderTable {
    topic_id: u128,
    brokers: Vec<Broker>,
    rows: Vec<Row>,
    /// How often it was told who leads.
    edition: u64,
}

impl LeaderTable {
    /// Knows nothing yet.
    pub fn new() -> LeaderTable {
        LeaderTable { topic_id: 0, brokers: Vec::new(), rows: Vec::new(), edition: 0 }
    }

    /// Takes a Metadata answer over. An entry of a lower epoch than the known one comes from a
    /// broker that lags and is passed over; such a partition stays stale.
    pub fn fold(&mut self, metadata: &Metadata) -> Result<(), MetadataError> {
        if !metadata.error.is_none() {
            return Err(MetadataError::Topic(metadata.error));
        }
        let known = !self.rows.is_empty();
        if known
            && self.topic_id != 0
            && metadata.topic_id != 0
            && self.topic_id != metadata.topic_id
        {
            return Err(MetadataError::Recreated);
        }
        let (before, now) = (self.rows.len(), metadata.partitions.len());
        if known && before != now {
            return Err(MetadataError::PartitionCount { before, now });
        }
        if metadata.topic_id != 0 {
            self.topic_id = metadata.topic_id;
        }
        // A broker that has just started may not know the others yet.
        if !metadata.brokers.is_empty() {
            self.brokers.clone_from(&metadata.brokers);
        }
        if !known {
            self.rows = vec![Row { leader: None, leader_epoch: -1, stale: true }; now];
        }
        for entry in &metadata.partitions {
            self.fold_partition(entry);
        }
        self.edition += 1;
        Ok(())
    }

    fn fold_partition(&mut self, entry: &PartitionLeader) {
        let Some(row) = self.row_mut(entry.partition) else {
            return;
        };
        let lags = entry.leader_epoch != -1 && entry.leader_epoch < row.leader_epoch;
        if lags {
            return;
        }
        // REPLICA_NOT_AVAILABLE (9) tells of a follower: the leader named beside it counts.
        let leads = entry.error.is_none() || entry.error == ErrorCode(9);
        row.leader = entry.leader.filter(|_| leads);
        row.leader_epoch = entry.leader_epoch;
        row.stale = row.leader.is_none();
    }

    /// Takes over the leader that a Fetch response names beside an error; says whether it was news.
    pub(crate) fn learn(&mut self, partition: i32, leader: CurrentLeader) -> bool {
        let known_broker = self.broker(leader.node_id).is_some();
        let Some(row) = self.row_mut(partition) else {
            return false;
        };
        if leader.leader_epoch <= row.leader_epoch || !known_broker {
            return false;
        }
        *row =
            Row { leader: Some(leader.node_id), leader_epoch: leader.leader_epoch, stale: false };
        self.edition += 1;
        true
    }

    /// Notes that a partition's leader must be asked for again.
    pub(crate) fn mark_stale(&mut self, partition: i32) {
        if let Some(row) = self.row_mut(partition) {
            row.stale = true;
        }
    }

    /// Notes that all partitions that this broker leads must be asked for again: it is gone.
    pub(crate) fn mark_broker_stale(&mut self, node_id: i32) {
        for row in self.rows.iter_mut().filter(|row| row.leader == Some(node_id)) {
            row.stale = true;
        }
    }

    /// Who leads a partition; `None` while that is unknown or stale.
    pub fn leader(&self, partition: i32) -> Option<CurrentLeader> {
        let row = self.rows.get(usize::try_from(partition).ok()?)?;
        let node_id = row.leader.filter(|_| !row.stale)?;
        Some(CurrentLeader { node_id, leader_epoch: row.leader_epoch })
    }

    /// Whether a broker leads a partition, be it one that must be asked for.
    pub(crate) fn leads(&self, node_id: i32) -> bool {
        self.rows.iter().any(|row| row.leader == Some(node_id))
    }

    /// A number that is another one whenever other brokers may lead.
    pub(crate) fn edition(&self) -> u64 {
        self.edition
    }

    /// A broker by its number.
    pub fn broker(&self, node_id: i32) -> Option<&Broker> {
        self.brokers.iter().find(|broker| broker.node_id == node_id)
    }

    /// All brokers.
    pub fn brokers(&self) -> &[Broker] {
        &self.brokers
    }

    /// Partitions of the topic; 0 until the first answer.
    pub fn partition_count(&self) -> usize {
        self.rows.len()
    }

    /// The partitions whose leaders must be asked for.
    pub fn stale(&self) -> impl Iterator<Item = i32> {
        (0..).zip(&self.rows).filter(|(_, row)| row.stale).map(|(partition, _)| partition)
    }

    fn row_mut(&mut self, partition: i32) -> Option<&mut Row> {
        self.rows.get_mut(usize::try_from(partition).ok()?)
    }
}

impl Default for LeaderTable {
    fn default() -> LeaderTable {
        LeaderTable::new()
    }
}
