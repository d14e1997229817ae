//! A zone as it was before one of its events.

use super::applier::Applier;
use super::failure::ToolError;
use super::kafka::{Cluster, FETCH_WAIT_MS, TopicReader};
use super::source::SourceRecord;
use super::tap::write_update;
use super::topics;
use crate::daemon::snapshots;
use crate::decoder::reject::Reject;
use crate::kit::engine::{AnyRulebook, Engine, GameSchema};
use crate::kit::event::PlainEvent;
use crate::output::frame::Chain;
use crate::service::config::Config;
use crate::snapshot::disk::Files;
use crate::snapshot::format::{Header, Origin};
use crate::snapshot::replicas::{Replica, ReplicaError, Replicas};
use crate::snapshot::slots::Store;
use crate::telemetry::progress::TopicId;
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};

/// A zone between two of its events, without the daemon.
pub(super) struct PastZone {
    pub engine: Box<dyn Engine>,
    /// The source of the state.
    pub origin: StateOrigin,
    /// The number of the next update, before those of the last record.
    pub next_update: u64,
    schema: &'static GameSchema,
    skips: BTreeSet<i64>,
    applier: Applier,
}

/// Returns the records of a zone that the arguments skip.
pub(super) fn skips_of(zone: u16, skip: &[(i32, i64)]) -> BTreeSet<i64> {
    let of_zone = skip.iter().filter(|(of, _)| *of == i32::from(zone));
    of_zone.map(|(_, offset)| *offset).collect()
}

/// A zone from which the next records of its input are applied.
pub(super) struct BegunZone {
    pub engine: Box<dyn Engine>,
    /// The source of the state.
    pub origin: StateOrigin,
    /// The first input offset that it does not include.
    pub next_offset: i64,
    /// The number of the next update, and the chain over those before it.
    pub next_update: u64,
    pub chain: Chain,
    /// Records that every replay passes over.
    pub skips: BTreeSet<i64>,
}

impl BegunZone {
    /// The zone of a snapshot.
    fn of(origin: fn(i64) -> StateOrigin, header: Header, engine: Box<dyn Engine>) -> BegunZone {
        let Header { next_offset, next_update, chain, skips, .. } = header;
        let (origin, skips) = (origin(next_offset), skips.into_iter().collect());
        BegunZone { engine, origin, next_offset, next_update, chain, skips }
    }
}

/// Where a state comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateOrigin {
    /// The first record of the input.
    Start,
    /// A snapshot on disk, without the records from this offset on.
    Disk(i64),
    /// A snapshot in the topic, without the records from this offset on.
    Topic(i64),
}

impl StateOrigin {
    /// Returns the source in words, and the first offset that the state did not include.
    pub(super) fn parts(self) -> (&'static str, i64) {
        match self {
            StateOrigin::Start => ("the start of the input", 0),
            StateOrigin::Disk(offset) => ("a snapshot on disk", offset),
            StateOrigin::Topic(offset) => ("a snapshot in the topic", offset),
        }
    }
}

/// The outcome of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decided {
    /// It is not an event.
    Rejected(Reject),
    /// The event changed the state.
    Applied(PlainEvent),
    /// The rules refused the event, for this reason.
    Refused(PlainEvent, &'static str),
    /// The event changes nothing. The number is the player's last accepted `seq`.
    NoOp(PlainEvent, u64),
}

impl Decided {
    /// Returns the outcome's name.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Decided::Rejected(_) => "rejected",
            Decided::Applied(_) => "applied",
            Decided::Refused(..) => "refused",
            Decided::NoOp(..) => "no_op",
        }
    }
}

impl PastZone {
    /// Returns the zone before the record at `offset`. The records at `skips` are passed over.
    pub(super) fn before(
        (zone, offset): (u16, i64),
        played: &mut PlayedInput,
        rulebook: &AnyRulebook,
        skips: BTreeSet<i64>,
    ) -> Result<PastZone, ToolError> {
        let begun = played.begin((zone, offset), rulebook)?;
        let from = begun.next_offset;
        let mut past = PastZone::new(begun, rulebook, skips);
        played.reader.each(zone, from..offset, |record| {
            past.apply(record)?;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(past)
    }

    /// Returns a zone that has just begun.
    pub(super) fn new(
        begun: BegunZone,
        rulebook: &AnyRulebook,
        more_skips: BTreeSet<i64>,
    ) -> PastZone {
        let BegunZone { engine, origin, next_update, mut skips, .. } = begun;
        skips.extend(more_skips);
        let schema = rulebook.schema();
        PastZone { engine, origin, next_update, schema, skips, applier: Applier::new(schema) }
    }

    /// Returns the zone by another version, whose engine has this state of it.
    pub(super) fn by(&self, engine: Box<dyn Engine>, rulebook: &AnyRulebook) -> PastZone {
        let schema = rulebook.schema();
        let (applier, skips) = (Applier::new(schema), self.skips.clone());
        let next_update = self.updates_made();
        PastZone { engine, origin: self.origin, next_update, schema, skips, applier }
    }

    /// Applies the next record. Fails if it needs rules that are not loaded.
    pub(super) fn apply(&mut self, record: &SourceRecord<'_>) -> Result<Decided, ToolError> {
        self.next_update = self.updates_made();
        let decoded = self.applier.decode(record, self.skips.contains(&record.offset));
        let event = match (decoded, self.applier.event()) {
            (Ok(()), Some(event)) => event,
            (Ok(()), None) => unreachable!("a record that is no reject is an event"),
            (Err(reject), _) => return Ok(Decided::Rejected(reject)),
        };
        let last_seq = self.engine.last_seq(event.player_id);
        self.applier.apply(&mut *self.engine)?;
        let report = self.applier.report();
        let refusal = report.refused.iter().position(|count| *count > 0);
        Ok(match refusal {
            Some(reason) => Decided::Refused(event, self.schema.refusals[reason]),
            None if report.no_ops > 0 => Decided::NoOp(event, last_seq),
            None => Decided::Applied(event),
        })
    }

    /// Returns whether the last record needs rules that are not loaded.
    pub(super) fn lacks_rules(&self) -> bool {
        self.applier.report().missing.is_some()
    }

    /// Returns the number of the next update.
    pub(super) fn updates_made(&self) -> u64 {
        self.next_update + self.applier.updates().len() as u64
    }

    /// Appends the updates of the last record by the names of their fields, without numbers.
    pub(super) fn write_updates(&self, out: &mut Vec<u8>) {
        self.schema.updates.write(self.applier.updates(), out);
    }

    /// Returns the updates of the last record of this zone, as `tap` prints them.
    pub(super) fn updates_as_json(&self, zone: u16) -> Vec<Value> {
        let updates = (self.next_update..).zip(self.applier.updates());
        let updates = updates.map(|(number, update)| {
            let mut line = Vec::new();
            write_update(&mut line, self.schema.updates, (zone, number), update);
            serde_json::from_slice(&line).expect("an update is JSON")
        });
        updates.collect()
    }

    /// Explains a reject in words.
    pub(super) fn explain(&mut self, reject: Reject, value: Option<&[u8]>) -> String {
        self.applier.explain(reject, value)
    }
}

/// The input of a configuration, and the snapshots of its zones.
pub(super) struct PlayedInput {
    pub reader: TopicReader,
    /// How many zones it has.
    pub zones: usize,
    topic: String,
    stored: StoredZones,
}

impl PlayedInput {
    /// Finds the input and the snapshots for this verb.
    pub(super) fn open(config: &Config, verb: &str) -> Result<PlayedInput, ToolError> {
        let input = topics::input(config)?;
        let cluster = Cluster::of_config(config, verb)?;
        let Cluster { client, isolation, input_topic: topic, .. } = cluster;
        let reader = TopicReader::connect(&client, &topic, isolation, FETCH_WAIT_MS)?;
        let stored = StoredZones::open(config, input.id)?;
        Ok(PlayedInput { reader, zones: input.partitions, topic, stored })
    }

    /// Returns the offsets of the records that a zone has now.
    pub(super) fn offsets(&self, zone: u16) -> Result<Range<i64>, ToolError> {
        if usize::from(zone) >= self.zones {
            let (topic, last) = (&self.topic, self.zones - 1);
            let sentence = format!("`{topic}` has the zones 0 to {last}, not {zone}");
            return Err(ToolError::Usage(sentence));
        }
        let (start, end) = self.reader.bounds(zone)?;
        Ok(start..end)
    }

    /// Returns the offset after a record that is named on the command line.
    pub(super) fn after(&self, (zone, offset): (u16, i64)) -> Result<i64, ToolError> {
        let offsets = self.offsets(zone)?;
        match offsets.contains(&offset) {
            true => Ok(offset + 1),
            false => Err(ToolError::TopicWrong(format!(
                "zone {zone} has no record at offset {offset}, but some from {} to {}",
                offsets.start, offsets.end
            ))),
        }
    }

    /// Returns a zone as its newest snapshot of a version has it; `None`: it has none.
    pub(super) fn snapshot(
        &mut self,
        zone: u16,
        rulebook: &AnyRulebook,
    ) -> Result<Option<BegunZone>, ToolError> {
        let Range { start, end } = self.offsets(zone)?;
        self.stored.newest((zone, end), start, rulebook)
    }

    /// Returns a zone as the newest snapshot has it that does not include the record at `offset`,
    /// or as it was before its first record.
    pub(super) fn begin(
        &mut self,
        (zone, offset): (u16, i64),
        rulebook: &AnyRulebook,
    ) -> Result<BegunZone, ToolError> {
        let start = self.offsets(zone)?.start;
        match self.stored.newest((zone, offset), start, rulebook)? {
            Some(begun) => Ok(begun),
            None if start == 0 => Ok(BegunZone {
                engine: rulebook.new_zone(zone),
                origin: StateOrigin::Start,
                next_offset: 0,
                next_update: 0,
                chain: Chain::default(),
                skips: BTreeSet::new(),
            }),
            None => Err(ToolError::TopicWrong(format!(
                "the input of zone {zone} begins at offset {start}, and no snapshot of this \
                 version lies between there and offset {offset}: keep events for longer, or more \
                 snapshots (snapshot.keep)"
            ))),
        }
    }
}

/// The snapshots of a configuration: on this host, and in the topic.
struct StoredZones {
    origin: Origin,
    disk: Option<Store<Files>>,
    topic: Option<Replicas>,
}

impl StoredZones {
    /// Finds the snapshots of zones whose input has this id.
    fn open(config: &Config, input_id: u128) -> Result<StoredZones, ToolError> {
        let origin = snapshots::origin(config, &TopicId::new(input_id.to_be_bytes().into()));
        let directory = config.snapshot.directory.as_deref();
        let disk = directory.map(|directory| {
            Store::new(Files::of(directory), origin.clone(), config.snapshot.keep)
        });
        let topic = snapshots::replica_options(config, &origin).map(Replicas::connect);
        let topic = topic.transpose().map_err(|error| ToolError::TopicWrong(error.to_string()))?;
        Ok(StoredZones { origin, disk, topic })
    }

    /// Returns the newest whole state of a zone by these rules that does not include the record at
    /// `offset`, and of which all later records are in the input, which begins at `start`.
    fn newest(
        &mut self,
        (zone, offset): (u16, i64),
        start: i64,
        rulebook: &AnyRulebook,
    ) -> Result<Option<BegunZone>, ToolError> {
        let partition = i32::from(zone);
        let is_wanted = |header: &Header| {
            header.engine_version == rulebook.version()
                && (start..=offset).contains(&header.next_offset)
                && header.origin.agrees(&self.origin)
        };
        let mut watch = || ControlFlow::Continue(());
        let replica = match &self.topic {
            Some(topic) => topic.newest(partition, &is_wanted, &mut watch),
            None => Ok(None),
        };
        let mut headers = match &mut self.disk {
            Some(disk) => disk.candidates(partition).or_else(|error| {
                super::warn(&format!("the snapshots of this host are left out: {error}"))?;
                Ok::<_, ToolError>(Vec::new())
            })?,
            None => Vec::new(),
        };
        headers.retain(is_wanted);
        headers.sort_by_key(|header| Reverse(header.next_offset));
        let is_newer = |replica: &Replica| {
            headers.first().is_none_or(|header| header.next_offset < replica.header.next_offset)
        };
        let newer = replica.map(|replica| self.topic.as_ref().zip(replica.filter(is_newer)));
        let of_topic = newer.and_then(|newer| {
            let Some((topic, replica)) = newer else { return Ok(None) };
            let engine = topic.load(&replica, rulebook, &mut watch)?;
            Ok(Some(BegunZone::of(StateOrigin::Topic, replica.header, engine)))
        });
        let mut of_disk = headers.into_iter().filter_map(|header| {
            let engine = self.disk.as_mut()?.load(&header, rulebook).ok()?;
            Some(BegunZone::of(StateOrigin::Disk, header, engine))
        });
        choose(of_topic, || of_disk.next())
    }
}

/// Returns the state of the topic, or that of the disk if there is none or it cannot be read. Fails
/// if neither can, or if the topic is missing or denied, which a change of the configuration mends.
fn choose(
    of_topic: Result<Option<BegunZone>, ReplicaError>,
    of_disk: impl FnOnce() -> Option<BegunZone>,
) -> Result<Option<BegunZone>, ToolError> {
    match of_topic {
        Ok(Some(begun)) => Ok(Some(begun)),
        Ok(None) => Ok(of_disk()),
        Err(error) => {
            let is_refused = matches!(error, ReplicaError::Refused(_));
            let stored = if is_refused { None } else { of_disk() };
            let begun = stored.ok_or_else(|| ToolError::TopicWrong(error.to_string()))?;
            super::warn(&format!("the snapshot topic is left out: {error}"))?;
            Ok(Some(begun))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::topic_error::TopicError;
    use crate::kit::rulebook::Rulebook;
    use crate::snapshot::format::SnapshotError;
    use crate::testing::turf::FIRST_RULES;

    #[test]
    fn a_bad_snapshot_in_the_topic_leaves_the_one_on_disk() {
        let begun = |origin| BegunZone {
            engine: AnyRulebook::from(Rulebook::of(FIRST_RULES)).new_zone(0),
            origin,
            next_offset: 5,
            next_update: 0,
            chain: Chain::default(),
            skips: BTreeSet::new(),
        };
        let stored = || Some(begun(StateOrigin::Disk(5)));
        let source = |chosen: Result<Option<BegunZone>, ToolError>| {
            chosen.map(|begun| begun.map(|begun| begun.origin)).map_err(|error| error.to_string())
        };
        let bad = || ReplicaError::from(SnapshotError::Header("it is too short"));
        assert_eq!(source(choose(Err(bad()), stored)), Ok(Some(StateOrigin::Disk(5))));
        assert_eq!(source(choose(Err(bad()), || None)), Err(bad().to_string()));
        assert_eq!(source(choose(Ok(None), stored)), Ok(Some(StateOrigin::Disk(5))));
        let newer = choose(Ok(Some(begun(StateOrigin::Topic(6)))), stored);
        assert_eq!(source(newer), Ok(Some(StateOrigin::Topic(6))));
        let missing = ReplicaError::from(TopicError::Missing("snapshots".to_owned()));
        assert_eq!(source(choose(Err(missing.clone()), stored)), Err(missing.to_string()));
    }

    #[test]
    fn a_skip_is_of_its_own_zone() {
        assert_eq!(skips_of(3, &[(3, 7), (4, 8), (3, 9)]), BTreeSet::from([7, 9]));
    }
}
