//! What a daemon's threads find around them, for one turn.

use crate::broker::Broker;
use crate::chance::Chance;
use crate::disk::HostDisk;
use crate::group::Group;
use crate::line::{Late, Line};
use crate::mutation::Mutation;
use huntd::engine::Shard;
use huntd::engine::rules::Rules;
use huntd::recovery::acquire::{Bounds, Candidate};
use huntd::recovery::fold::Start;
use huntd::recovery::poison::Poison;
use huntd::recovery::slots::Store;
use huntd::recovery::snapshot::{Header, Origin};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The world outside one daemon.
pub(crate) struct Surroundings<'a> {
    pub(crate) chance: &'a mut Chance,
    pub(crate) broker: &'a mut Broker,
    pub(crate) group: &'a mut Group,
    pub(crate) late: &'a mut Vec<Late>,
    pub(crate) line: &'a RefCell<Line>,
    pub(crate) poison: &'a mut Poison,
    pub(crate) disk: &'a HostDisk,
    pub(crate) rules: &'a Arc<Rules>,
    pub(crate) base: Instant,
    /// Microseconds since the simulation's start.
    pub(crate) now: u64,
    pub(crate) is_traced: bool,
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

    /// The snapshots of this host that a shard may start from, newest first.
    pub(crate) fn candidates(
        &self,
        partition: i32,
        damaged: &BTreeSet<(i32, u64)>,
        mutation: Mutation,
    ) -> (Vec<Candidate>, Vec<Header>) {
        let mut headers = store(self.disk).candidates(partition);
        headers.retain(|header| !damaged.contains(&(partition, header.sequence)));
        let candidates = headers.iter().map(|header| {
            let Header { next_offset, next_update, chain, mark, ruleset, .. } = *header;
            let mut start = Start { next_offset, next_update, chain };
            if mutation == Mutation::UngatedAndUnfiltered {
                // It is taken for one that is behind everything, so that it passes.
                start = Start { next_offset, ..Start::default() };
            }
            Candidate { start, mark, ruleset, skips: header.skips.clone() }
        });
        (candidates.collect(), headers)
    }

    pub(crate) fn load(&self, header: &Header) -> Option<Box<Shard>> {
        store(self.disk).load(header, self.rules.clone()).ok()
    }
}

/// Snapshots on a host's disk.
pub(crate) fn store(disk: &HostDisk) -> Store<HostDisk> {
    let origin = Origin {
        input_topic: crate::answers::TOPIC.to_owned(),
        output_topic: "updates".to_owned(),
        ..Origin::default()
    };
    Store::new(disk.clone(), origin, 3)
}
