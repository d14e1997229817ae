//! The states that shards may start from, found and loaded: this host's snapshots, and replicas of
//! other hosts'.

use crate::kafka::topic_error::TopicError;
use crate::kit::engine::{AnyRulebook, Engine, Migrated, ZoneDecoder};
use crate::ownership::acquisition::Candidate;
use crate::snapshot::disk::Files;
use crate::snapshot::format::{Header, Origin, SnapshotError};
use crate::snapshot::replicas::{Replica, ReplicaError, ReplicaOptions, Replicas};
use crate::snapshot::slots::Store;
use crate::snapshot::stored_states::{StoredState, StoredStates};
use std::ops::ControlFlow;

/// The source of a shard's state.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadedFrom {
    /// The candidate; `None`: the state before the first event.
    pub candidate: Option<usize>,
    /// The rules of the state before the first event.
    pub begun_by: u32,
    /// The rules by which the state of another version continues.
    pub migrates_to: Option<u32>,
}

/// Where the states of shards that are being acquired are looked for.
pub(super) struct States {
    store: Option<Store<Files>>,
    replica_options: Option<ReplicaOptions>,
    replicas: Option<Replicas>,
    known: StoredStates,
}

impl States {
    pub(super) fn new(
        store: Option<Store<Files>>,
        origin: Origin,
        replica_options: Option<ReplicaOptions>,
    ) -> States {
        States { store, replica_options, replicas: None, known: StoredStates::new(origin) }
    }

    /// This host's snapshots of a shard, newest first, or why they cannot be read now.
    pub(super) fn here(&mut self, partition: i32) -> Result<Vec<Candidate>, TopicError> {
        let snapshots = match &mut self.store {
            Some(store) => store.candidates(partition).map_err(|error| {
                let directory = store.disk().directory().display();
                TopicError::NotNow(format!("{error}; see that huntd may read {directory}"))
            })?,
            None => Vec::new(),
        };
        Ok(self.known.survey(partition, snapshots))
    }

    /// This host's snapshots and the newest replica of another host's, newest first. If it is not
    /// known whether there is a replica, the second part says why. `None`: finding out was given
    /// up, as `watch` wanted. What is wrong with the replicas goes to `report`.
    pub(super) fn everywhere(
        &mut self,
        partition: i32,
        report: &mut dyn FnMut(&ReplicaError),
        watch: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Option<(Vec<Candidate>, Option<String>)> {
        let (mut replica, mut why_unknown) = (None, None);
        match self.newest_replica(partition, watch) {
            Ok(newest) => replica = newest,
            Err(ReplicaError::GivenUp) => return None,
            Err(error) => {
                report(&error);
                if !matches!(error, ReplicaError::Refused(TopicError::Missing(_))) {
                    why_unknown = Some(error.to_string());
                }
            }
        }
        Some((self.known.offer(partition, replica), why_unknown))
    }

    fn newest_replica(
        &mut self,
        partition: i32,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Option<Replica>, ReplicaError> {
        let Some(options) = &self.replica_options else { return Ok(None) };
        let replicas = match &self.replicas {
            Some(replicas) => replicas,
            None => self.replicas.insert(Replicas::connect(options.clone())?),
        };
        let is_wanted = |header: &Header| self.known.is_replica_wanted(header);
        replicas.newest(partition, &is_wanted, watch)
    }

    /// The shard that a candidate stands for; without one, the state before the first event, by the
    /// rules that the zone began with. A candidate that is damaged is none any more. One that
    /// cannot be read now is passed over once.
    pub(super) fn load(
        &mut self,
        partition: i32,
        LoadedFrom { candidate, begun_by, migrates_to }: LoadedFrom,
        rulebook: &AnyRulebook,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Box<dyn Engine>, ReplicaError> {
        let Some(state) = self.known.choose(partition, candidate) else {
            let zone = u16::try_from(partition).expect("partitions are at most SHARDS_MAX");
            let rulebook = rulebook.beginning_by(begun_by).expect("the brief has them");
            return Ok(rulebook.new_zone(zone));
        };
        let loaded = match migrates_to {
            None => self.decode(&state, rulebook, watch),
            Some(ruleset) => {
                let rulebook = rulebook.beginning_by(ruleset).expect("the brief has them");
                self.decode(&state, &Migrated(rulebook), watch)
            }
        };
        match &loaded {
            // A state of another version is whole: no older one can take its place.
            Err(ReplicaError::Snapshot(SnapshotError::State(_))) if migrates_to.is_some() => {}
            Err(ReplicaError::Snapshot(SnapshotError::Unreadable(_))) => {
                self.known.set_unread(&state);
            }
            Err(ReplicaError::Snapshot(_)) => self.known.set_damaged(&state),
            _ => {}
        }
        loaded
    }

    fn decode(
        &mut self,
        state: &StoredState,
        decoder: &impl ZoneDecoder<Zone = dyn Engine>,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Box<dyn Engine>, ReplicaError> {
        match state {
            StoredState::Here(header) => {
                let store = self.store.as_mut().expect("the snapshot is from there");
                store.load(header, decoder).map_err(ReplicaError::Snapshot)
            }
            StoredState::Elsewhere(replica) => {
                let replicas = self.replicas.as_ref().expect("the replica is from there");
                replicas.load(replica, decoder, watch)
            }
        }
    }
}
