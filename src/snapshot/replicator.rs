//! The replicator stores a replica of each snapshot in the topic. It has its own thread, because
//! brokers may be slow and the next snapshot must not wait for them.

use crate::snapshot::disk::Disk;
use crate::snapshot::format::Header;
use crate::snapshot::replicas::{ReplicaError, ReplicaOptions, Replicas};
use crate::snapshot::slots::Store;
use crate::telemetry::metrics::{Counter, Metrics};
use crate::telemetry::progress::{Progress, SHARDS_MAX};
use crate::telemetry::repeated::Repeated;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Instant;

/// Milliseconds that the end of the daemon waits for the replicator: an instance of another version
/// on another host can go on only from the last snapshots.
pub(crate) const REPLICATOR_END_MS_MAX: u64 = 2_500;

/// Snapshots that may wait for the replicator. If one does not fit, its shard's next snapshot is
/// replicated instead.
pub(crate) const REPLICAS_WAITING_MAX: usize = SHARDS_MAX;

/// The replicator's ends of everything that it shares with other threads.
pub(crate) struct ReplicatorEnds {
    /// Stored snapshots. The replicator ends with this channel.
    pub stored: Receiver<Header>,
    /// The progress of each shard.
    pub progress: Arc<Progress>,
    /// The counters.
    pub metrics: Arc<Metrics>,
}

impl ReplicatorEnds {
    /// Nothing more happens to a stored snapshot of this partition.
    fn settle(&self, partition: i32) {
        self.progress.shard(partition).replicas_settled.add(1);
    }
}

/// Replicates snapshots until no more will be stored. Only the newest of each shard matters.
pub(crate) fn run<D: Disk>(options: &ReplicaOptions, mut store: Store<D>, ends: &ReplicatorEnds) {
    let mut trouble = Repeated::new();
    let mut replicas: Option<Replicas> = None;
    let mut waiting = VecDeque::new();
    while gather(ends, &mut waiting) {
        let Some(header) = waiting.pop_front() else { continue };
        match replicate(options, &mut replicas, &mut store, &header) {
            Ok(()) => ends.metrics.add(Counter::SnapshotReplicasStored, 1),
            Err(error) => {
                // Its records may still be in flight, so the next replica starts with new clients.
                replicas = None;
                ends.metrics.add(Counter::SnapshotReplicasFailed, 1);
                if let Some(withheld) = trouble.notice(Instant::now()) {
                    tracing::warn!(withheld, "{error}");
                }
            }
        }
        ends.settle(header.partition);
    }
}

/// Takes all stored snapshots, and waits for one if there is nothing to replicate. Returns false if
/// there will be no more.
fn gather(ends: &ReplicatorEnds, waiting: &mut VecDeque<Header>) -> bool {
    if waiting.is_empty() {
        match ends.stored.recv() {
            Ok(header) => waiting.push_back(header),
            Err(_) => return false,
        }
    }
    loop {
        match ends.stored.try_recv() {
            Ok(header) => {
                if let Some(replaced) = wait_for_turn(waiting, header) {
                    ends.settle(replaced.partition);
                }
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => return true,
        }
    }
}

/// Lets a snapshot wait in the place of an older one of its shard, which is returned, or after all
/// others: so each shard has its turn, however many snapshots of the others are stored meanwhile.
pub(super) fn wait_for_turn(waiting: &mut VecDeque<Header>, header: Header) -> Option<Header> {
    match waiting.iter_mut().find(|of| of.partition == header.partition) {
        Some(older) => Some(std::mem::replace(older, header)),
        None => {
            waiting.push_back(header);
            None
        }
    }
}

fn replicate<D: Disk>(
    options: &ReplicaOptions,
    replicas: &mut Option<Replicas>,
    store: &mut Store<D>,
    header: &Header,
) -> Result<(), ReplicaError> {
    let replicas = match replicas {
        Some(replicas) => replicas,
        None => replicas.insert(Replicas::connect(options.clone())?),
    };
    let go_on = &mut || ControlFlow::Continue(());
    replicas.put(header, |index| store.read_block(header, index), go_on)
}
