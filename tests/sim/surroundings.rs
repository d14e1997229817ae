//! The surroundings of a daemon's threads, for one turn.

use crate::answers::{OUTPUT_TOPIC, TOPIC};
use crate::broker::Broker;
use crate::chance::Chance;
use crate::disk::HostDisk;
use crate::group::Group;
use crate::line::{Late, Line};
use crate::mutation::Mutation;
use huntd::kit::engine::{AnyRulebook, Engine, ZoneDecoder};
use huntd::output::fold::Start;
use huntd::ownership::acquisition::Candidate;
use huntd::ownership::bounds::Bounds;
use huntd::ownership::panic_counts::PanicCounts;
use huntd::snapshot::format::{Header, Origin};
use huntd::snapshot::slots::Store;
use huntd::snapshot::stored_states::StoredState;
use huntd::telemetry::progress::TopicId;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How often records of a topic took a host's engine down.
#[derive(Default)]
pub(crate) struct KeptPanics {
    pub(crate) topic_id: [u8; 16],
    pub(crate) counts: PanicCounts,
}

/// The world outside one daemon.
pub(crate) struct Surroundings<'a> {
    pub(crate) chance: &'a mut Chance,
    pub(crate) broker: &'a mut Broker,
    pub(crate) group: &'a mut Group,
    pub(crate) late: &'a mut Vec<Late>,
    pub(crate) line: Rc<RefCell<Line>>,
    /// How often records took the host's engine down, as its daemons have kept it.
    pub(crate) panics: &'a mut KeptPanics,
    /// How often they did, by partition and offset.
    pub(crate) seen_panics: &'a mut BTreeMap<(i32, i64), u32>,
    pub(crate) disk: &'a HostDisk,
    /// What the topic for snapshots has of each shard, for other hosts: headers with states.
    pub(crate) replicas: &'a mut BTreeMap<i32, (Header, Vec<u8>)>,
    /// Whether each snapshot comes to that topic.
    pub(crate) keeps_replicas: bool,
    /// All rules there are.
    pub(crate) rulebook: &'a AnyRulebook,
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
            input_leader_epoch: input.leader_epoch,
            output_start: output.start,
            output_end: output.end(),
        }
    }

    /// The state that is stored there, if it can be read.
    pub(crate) fn load(
        &self,
        state: &StoredState,
        decoder: &impl ZoneDecoder<Zone = dyn Engine>,
    ) -> Option<Box<dyn Engine>> {
        match state {
            StoredState::Here(header) => whole_store(self.disk).load(header, decoder).ok(),
            StoredState::Elsewhere(replica) => {
                let stored = self.replicas.get(&replica.header.partition);
                // A newer one may have taken its place since.
                let (_, bytes) = stored.filter(|(header, _)| *header == replica.header)?;
                decoder.decode_zone(bytes).ok()
            }
        }
    }
}

/// A candidate, or what the mutation makes of it.
pub(crate) fn falsified(mut candidate: Candidate, mutation: Mutation) -> Candidate {
    let start = &mut candidate.start;
    match mutation {
        // It is taken for one that is behind everything, so that it passes.
        Mutation::UngatedAndUnfiltered => {
            *start = Start { next_offset: start.next_offset, ..Start::default() };
        }
        Mutation::LeaderEpochForgotten => start.leader_epoch = None,
        Mutation::RecreationUnseen => candidate.is_of_deleted_input = false,
        _ => {}
    }
    candidate
}

/// Which topics a daemon's snapshots are about.
pub(crate) fn origin(input_topic_id: &TopicId) -> Origin {
    Origin {
        input_topic: TOPIC.to_owned(),
        input_topic_id: input_topic_id.clone(),
        output_topic: OUTPUT_TOPIC.to_owned(),
        ..Origin::default()
    }
}

/// Snapshots on a host's disk, for a daemon with this input.
pub(crate) fn store(disk: &HostDisk, input_topic_id: &TopicId) -> Store<HostDisk> {
    Store::new(disk.clone(), origin(input_topic_id), 3)
}

/// Snapshots on a host's disk, whatever input they are about.
pub(crate) fn whole_store(disk: &HostDisk) -> Store<HostDisk> {
    store(disk, &TopicId::default())
}
