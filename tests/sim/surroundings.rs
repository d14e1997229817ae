//! What a daemon's threads find around them, for one turn.

use crate::answers::TOPIC;
use crate::broker::Broker;
use crate::chance::Chance;
use crate::disk::HostDisk;
use crate::group::Group;
use crate::line::{Late, Line};
use crate::mutation::Mutation;
use huntd::engine::Shard;
use huntd::engine::rules::rulebook::Rulebook;
use huntd::output::fold::Start;
use huntd::ownership::acquisition::{Bounds, Candidate};
use huntd::ownership::panic_counts::PanicCounts;
use huntd::snapshot::format::{Header, Origin};
use huntd::snapshot::slots::Store;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The world outside one daemon.
pub(crate) struct Surroundings<'a> {
    pub(crate) chance: &'a mut Chance,
    pub(crate) broker: &'a mut Broker,
    pub(crate) group: &'a mut Group,
    pub(crate) late: &'a mut Vec<Late>,
    pub(crate) line: &'a RefCell<Line>,
    /// How often records took the host's engine down, as its daemons have kept it.
    pub(crate) panics: &'a mut PanicCounts,
    /// How often they did, by partition and offset.
    pub(crate) seen_panics: &'a mut BTreeMap<(i32, i64), u32>,
    pub(crate) disk: &'a HostDisk,
    /// What the topic for snapshots has of each shard, for other hosts.
    pub(crate) copies: &'a mut BTreeMap<i32, (Header, Shard)>,
    pub(crate) rulebook: &'a Rulebook,
    pub(crate) base: Instant,
    /// Microseconds since the simulation's start.
    pub(crate) now: u64,
    pub(crate) is_traced: bool,
    /// Whether something of the daemon's is on its way to a broker or to the disk.
    pub(crate) is_disturbed: bool,
}

impl Surroundings<'_> {
    pub(crate) fn instant(&self) -> Instant {
        self.base + Duration::from_micros(self.now)
    }

    pub(crate) fn trace(&self, line: impl FnOnce() -> String) {
        if self.is_traced {
            println!("{:>12} {}", self.now, line());
        }
    }

    /// Where a partition's logs begin and end.
    pub(crate) fn bounds(&self, partition: i32) -> Bounds {
        let input = &self.broker.inputs[partition as usize];
        let output = &self.broker.outputs[partition as usize];
        Bounds {
            input_start: input.start,
            input_end: input.end,
            output_start: output.start,
            output_end: output.end(),
        }
    }

    /// The snapshots of this host, newest first.
    pub(crate) fn here(&self, partition: i32, damaged: &BTreeSet<u64>) -> Vec<Place> {
        let mut headers = store(self.disk).candidates(partition);
        headers.retain(|header| !damaged.contains(&header.id()));
        headers.into_iter().map(Place::Here).collect()
    }

    /// The same with the newest copy of other hosts' snapshots.
    pub(crate) fn everywhere(&self, partition: i32, damaged: &BTreeSet<u64>) -> Vec<Place> {
        let mut places = self.here(partition, damaged);
        let copy = self.copies.get(&partition);
        places.extend(
            copy.map(|(header, shard)| Place::Copied(header.clone(), Box::new(shard.clone()))),
        );
        let age = |place: &Place| (place.header().mark.owner_epoch, place.header().next_offset);
        places.sort_by_key(|place| std::cmp::Reverse(age(place)));
        places
    }

    /// The state that lies there, if it can be read.
    pub(crate) fn load(&self, place: &Place) -> Option<Box<Shard>> {
        match place {
            Place::Here(header) => store(self.disk).load(header, self.rulebook).ok(),
            Place::Copied(_, shard) => Some(shard.clone()),
        }
    }
}

/// Where a state lies that a shard may start from.
pub(crate) enum Place {
    Here(Header),
    Copied(Header, Box<Shard>),
}

impl Place {
    pub(crate) fn header(&self) -> &Header {
        match self {
            Place::Here(header) | Place::Copied(header, _) => header,
        }
    }

    /// The place as an acquisition knows it.
    pub(crate) fn candidate(&self, mutation: Mutation) -> Candidate {
        let Header { next_offset, leader_epoch, next_update, chain, mark, ruleset, .. } =
            *self.header();
        let mut start = Start { next_offset, leader_epoch, next_update, chain };
        match mutation {
            // It is taken for one that is behind everything, so that it passes.
            Mutation::UngatedAndUnfiltered => {
                start = Start { next_offset, ..Start::default() };
            }
            Mutation::LeaderEpochForgotten => start.leader_epoch = None,
            _ => {}
        }
        let skips = self.header().skips.clone();
        Candidate { start, mark, ruleset, skips, is_of_deleted_input: false }
    }
}

/// Snapshots on a host's disk.
pub(crate) fn store(disk: &HostDisk) -> Store<HostDisk> {
    let origin = Origin {
        input_topic: TOPIC.to_owned(),
        output_topic: "updates".to_owned(),
        ..Origin::default()
    };
    Store::new(disk.clone(), origin, 3)
}
