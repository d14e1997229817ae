//! A zone as it was before one of its events.

use super::applier::Applier;
use super::failure::ToolError;
use super::kafka::TopicReader;
use super::source::SourceRecord;
use crate::daemon::snapshots;
use crate::decoder::reject::Reject;
use crate::kit::engine::{AnyRulebook, Engine, GameSchema};
use crate::kit::event::PlainEvent;
use crate::kit::update::Update;
use crate::service::config::Config;
use crate::snapshot::disk::Files;
use crate::snapshot::format::{Header, Origin};
use crate::snapshot::replicas::Replicas;
use crate::snapshot::slots::Store;
use crate::telemetry::progress::TopicId;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// A zone between two of its events, without the daemon.
pub(super) struct PastZone {
    pub engine: Box<dyn Engine>,
    /// The source of the state.
    pub origin: StateOrigin,
    /// The number of the next update, before those of the last record.
    pub next_update: u64,
    schema: &'static GameSchema,
    next_offset: i64,
    skips: BTreeSet<i64>,
    applier: Applier,
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

impl PastZone {
    /// Returns the zone before the record at `offset`, from the newest snapshot that does not
    /// include it. `start` is the input's first offset; the records at `skips` are passed over.
    pub(super) fn before(
        (zone, offset): (u16, i64),
        (reader, start): (&TopicReader, i64),
        stored: &mut StoredZones,
        rulebook: &AnyRulebook,
        skips: BTreeSet<i64>,
    ) -> Result<PastZone, ToolError> {
        let is_wanted = |header: &Header| {
            header.engine_version == rulebook.version() && header.next_offset <= offset
        };
        let mut past = match stored.newest(zone, start, rulebook, &is_wanted)? {
            Some(StoredZone { origin, header, engine }) => {
                let skips = skips.into_iter().chain(header.skips).collect();
                let from = (header.next_offset, header.next_update);
                PastZone::new(engine, origin, from, rulebook, skips)
            }
            None if start == 0 => {
                PastZone::new(rulebook.new_zone(zone), StateOrigin::Start, (0, 0), rulebook, skips)
            }
            None => {
                return Err(ToolError::TopicWrong(format!(
                    "the input of zone {zone} begins at offset {start}, and no snapshot of this \
                     version lies between there and offset {offset}: keep events for longer, or \
                     more snapshots (snapshot.keep)"
                )));
            }
        };
        reader.each(zone, past.next_offset..offset, |record| {
            past.apply(record)?;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(past)
    }

    fn new(
        engine: Box<dyn Engine>,
        origin: StateOrigin,
        (next_offset, next_update): (i64, u64),
        rulebook: &AnyRulebook,
        skips: BTreeSet<i64>,
    ) -> PastZone {
        let schema = rulebook.schema();
        PastZone {
            engine,
            origin,
            next_update,
            schema,
            next_offset,
            skips,
            applier: Applier::new(schema),
        }
    }

    /// Applies the next record. Fails if it needs rules that are not loaded.
    pub(super) fn apply(&mut self, record: &SourceRecord<'_>) -> Result<Decided, ToolError> {
        self.next_update += self.applier.updates().len() as u64;
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

    /// Returns the updates of the last record.
    pub(super) fn updates(&self) -> &[Update] {
        self.applier.updates()
    }

    /// Explains a reject in words.
    pub(super) fn explain(&mut self, reject: Reject, value: Option<&[u8]>) -> String {
        self.applier.explain(reject, value)
    }
}

/// A zone from a snapshot.
struct StoredZone {
    origin: StateOrigin,
    header: Header,
    engine: Box<dyn Engine>,
}

/// The snapshots of a configuration: on this host, and in the topic.
pub(super) struct StoredZones {
    origin: Origin,
    disk: Option<Store<Files>>,
    topic: Option<Replicas>,
}

impl StoredZones {
    /// Finds the snapshots of zones whose input has this id.
    pub(super) fn open(config: &Config, input_id: u128) -> Result<StoredZones, ToolError> {
        let origin = snapshots::origin(config, &TopicId::new(input_id.to_be_bytes().into()));
        let directory = config.snapshot.directory.as_deref();
        let disk = directory.map(|directory| {
            Store::new(Files::of(directory), origin.clone(), config.snapshot.keep)
        });
        let topic = snapshots::replica_options(config, &origin).map(Replicas::connect);
        let topic = topic.transpose().map_err(|error| ToolError::TopicWrong(error.to_string()))?;
        Ok(StoredZones { origin, disk, topic })
    }

    /// Returns the newest state of a zone that is wanted and whole, and of which all later records
    /// are in the input, which begins at `start`.
    fn newest(
        &mut self,
        zone: u16,
        start: i64,
        rulebook: &AnyRulebook,
        is_wanted: &dyn Fn(&Header) -> bool,
    ) -> Result<Option<StoredZone>, ToolError> {
        let partition = i32::from(zone);
        let is_wanted = |header: &Header| {
            header.next_offset >= start && header.origin.agrees(&self.origin) && is_wanted(header)
        };
        let unreadable = |error| ToolError::TopicWrong(format!("{error}"));
        let mut watch = || ControlFlow::Continue(());
        let replica = match &self.topic {
            Some(topic) => topic.newest(partition, &is_wanted, &mut watch).map_err(unreadable)?,
            None => None,
        };
        let mut headers = match &mut self.disk {
            Some(disk) => disk.candidates(partition),
            None => Vec::new(),
        };
        headers.retain(is_wanted);
        headers.sort_by_key(|header| Reverse(header.next_offset));
        let newer = replica.filter(|replica| {
            headers.first().is_none_or(|header| header.next_offset < replica.header.next_offset)
        });
        if let (Some(topic), Some(replica)) = (&self.topic, newer) {
            let engine = topic.load(&replica, rulebook, &mut watch).map_err(unreadable)?;
            let origin = StateOrigin::Topic(replica.header.next_offset);
            return Ok(Some(StoredZone { origin, header: replica.header, engine }));
        }
        let Some(disk) = &mut self.disk else { return Ok(None) };
        Ok(headers.into_iter().find_map(|header| {
            let engine = disk.load(&header, rulebook).ok()?;
            Some(StoredZone { origin: StateOrigin::Disk(header.next_offset), header, engine })
        }))
    }
}
