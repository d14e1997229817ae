//! The states that shards may start from: this host's snapshots, and replicas of other hosts'.

use crate::engine::Shard;
use crate::engine::rules::rulebook::Rulebook;
use crate::output::fold::Start;
use crate::ownership::acquisition::Candidate;
use crate::snapshot::disk::Files;
use crate::snapshot::format::{Header, Origin};
use crate::snapshot::replicas::{Replica, ReplicaError, ReplicaOptions, Replicas};
use crate::snapshot::slots::Store;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// Where a state lies.
enum Place {
    Here(Header),
    Elsewhere(Replica),
}

/// Where the states of shards that are being acquired lie, as candidates in the same order.
pub(super) struct States {
    store: Option<Store<Files>>,
    /// The topics that the states have to be about.
    origin: Origin,
    replica_options: Option<ReplicaOptions>,
    replicas: Option<Replicas>,
    found: BTreeMap<i32, Vec<Place>>,
    /// States that could not be read after all. A replica may be whole where the file is not.
    damaged: BTreeSet<Damaged>,
}

/// Which state of which shard, here or copied, by its id.
type Damaged = (i32, u64, bool);

impl States {
    pub(super) fn new(
        store: Option<Store<Files>>,
        origin: Origin,
        replica_options: Option<ReplicaOptions>,
    ) -> States {
        let (found, damaged) = (BTreeMap::new(), BTreeSet::new());
        States { store, origin, replica_options, replicas: None, found, damaged }
    }

    /// This host's snapshots of a shard, newest first.
    pub(super) fn here(&mut self, partition: i32) -> Vec<Candidate> {
        let store = self.store.as_mut();
        let headers = store.map_or_else(Vec::new, |store| store.candidates(partition));
        let places = headers.into_iter().map(Place::Here);
        let places = places.filter(|place| !self.is_damaged(partition, place)).collect();
        self.found.insert(partition, places);
        self.candidates(partition)
    }

    /// This host's snapshots and the newest replica of another host's, newest first: somebody else
    /// may have owned the shard since it was last here. If nobody knows whether there is a replica,
    /// the second part says why. `None`: finding out was given up, as `watch` wanted.
    pub(super) fn everywhere(
        &mut self,
        partition: i32,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Option<(Vec<Candidate>, Option<String>)> {
        let (mut replica, mut why_unknown) = (None, None);
        match self.newest_replica(partition, watch) {
            Ok(newest) => replica = newest,
            Err(ReplicaError::GivenUp) => return None,
            Err(error) => {
                tracing::warn!(partition, "{error}");
                if !matches!(error, ReplicaError::TopicMissing(_)) {
                    why_unknown = Some(error.to_string());
                }
            }
        }
        let found = self.found.entry(partition).or_default();
        found.extend(replica.map(Place::Elsewhere));
        let newest_first = |place: &Place| {
            let Header { origin, mark, next_offset, .. } = place.header();
            (!origin.agrees(&self.origin), Reverse(mark.owner_epoch), Reverse(*next_offset))
        };
        found.sort_by_key(newest_first);
        Some((self.candidates(partition), why_unknown))
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
        let damaged = &self.damaged;
        let is_wanted = |header: &Header| !damaged.contains(&(partition, header.id(), true));
        replicas.newest(partition, &is_wanted, watch)
    }

    /// The shard that a candidate stands for; without one, the state before the first event, by the
    /// rules that the zone began with. `None`: the candidate cannot be read after all, and is none
    /// any more, or brokers and `watch` keep us from reading it now.
    pub(super) fn load(
        &mut self,
        partition: i32,
        candidate: Option<usize>,
        begun_by: u32,
        rulebook: &Rulebook,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Option<Box<Shard>> {
        let found = self.found.remove(&partition).unwrap_or_default();
        let Some(place) = candidate.map(|candidate| &found[candidate]) else {
            let zone = u16::try_from(partition).expect("partitions are at most SHARDS_MAX");
            let rulebook = rulebook.beginning_by(begun_by).expect("the brief has them");
            return Some(Box::new(Shard::new(zone, &rulebook)));
        };
        let loaded = match place {
            Place::Here(header) => {
                let store = self.store.as_mut().expect("the snapshot is from there");
                store.load(header, rulebook).map_err(ReplicaError::Snapshot)
            }
            Place::Elsewhere(replica) => {
                let replicas = self.replicas.as_ref().expect("the replica is from there");
                replicas.load(replica, rulebook, watch)
            }
        };
        match &loaded {
            Ok(_) | Err(ReplicaError::GivenUp) => {}
            Err(error) => {
                tracing::warn!(partition, "{error}");
                if matches!(error, ReplicaError::Snapshot(_)) {
                    self.damaged.insert(place.of(partition));
                }
            }
        }
        loaded.ok()
    }

    fn candidates(&self, partition: i32) -> Vec<Candidate> {
        let found = self.found.get(&partition).into_iter().flatten();
        found.map(|place| self.candidate(place.header())).collect()
    }

    /// What a snapshot says of itself, to be chosen or passed over.
    fn candidate(&self, header: &Header) -> Candidate {
        let Header { next_offset, leader_epoch, next_update, chain, mark, ruleset, .. } = *header;
        Candidate {
            start: Start { next_offset, leader_epoch, next_update, chain },
            mark,
            ruleset,
            skips: header.skips.clone(),
            is_of_deleted_input: !header.origin.agrees(&self.origin),
        }
    }

    fn is_damaged(&self, partition: i32, place: &Place) -> bool {
        self.damaged.contains(&place.of(partition))
    }
}

impl Place {
    fn of(&self, partition: i32) -> Damaged {
        (partition, self.header().id(), matches!(self, Place::Elsewhere(_)))
    }

    fn header(&self) -> &Header {
        match self {
            Place::Here(header) => header,
            Place::Elsewhere(replica) => &replica.header,
        }
    }
}
