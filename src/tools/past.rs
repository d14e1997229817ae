//! A zone as it was before one of its events.

use super::failure::ToolError;
use super::kafka::TopicReader;
use super::source::SourceRecord;
use crate::daemon::snapshots;
use crate::decoder::reject::Reject;
use crate::decoder::{Decoder, RecordPosition};
use crate::kit::engine::{AnyRulebook, BlockReport, Engine, GameSchema};
use crate::kit::event::PlainEvent;
use crate::kit::event_list::Events;
use crate::kit::field::CARRIED_WORDS_MAX;
use crate::kit::update::Updates;
use crate::ownership::start_error::StartError;
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
    /// The number of the next update.
    pub next_update: u64,
    /// The updates of the last event.
    pub updates: Updates,
    schema: &'static GameSchema,
    next_offset: i64,
    skips: BTreeSet<i64>,
    decoder: Decoder,
    events: Events,
    report: BlockReport,
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
    /// It is not an event, and why.
    Rejected(Reject, String),
    /// The event changed the state.
    Applied(PlainEvent),
    /// The rules refused the event, for this reason.
    Refused(PlainEvent, &'static str),
    /// The event repeats an earlier one.
    NoOp(PlainEvent),
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
            updates: Updates::new(),
            schema,
            next_offset,
            skips,
            decoder: Decoder::new(schema.events),
            events: Events::with_capacity(1, CARRIED_WORDS_MAX),
            report: BlockReport::new(1, schema.refusal_codes()),
        }
    }

    /// Applies the next record. Also returns the last accepted `seq` of its player before. Fails if
    /// it needs rules that are not loaded.
    pub(super) fn apply(
        &mut self,
        record: &SourceRecord<'_>,
    ) -> Result<(Decided, Option<u64>), ToolError> {
        let SourceRecord { offset, time_ms, value, .. } = *record;
        self.next_update += self.updates.len() as u64;
        self.updates.clear();
        self.report.clear();
        self.events.clear();
        let decoded = match value {
            _ if self.skips.contains(&offset) => Err(Reject::Skipped),
            None => Err(Reject::NullValue),
            Some(value) => {
                let position = RecordPosition { offset, time_ms };
                self.decoder.decode_within(position, value, 0..value.len(), &mut self.events)
            }
        };
        if let Err(reject) = decoded {
            return Ok((Decided::Rejected(reject, self.decoder.explain(reject, value)), None));
        }
        let event = self.events.plain()[0];
        let last_seq = Some(self.engine.last_seq(event.player_id)).filter(|seq| *seq > 0);
        self.engine.apply_part(&self.events, 0..1, &mut self.updates, &mut self.report);
        if let Some((offset, ruleset)) = self.report.missing {
            return Err(StartError::RulesMissing { offset, ruleset }.into());
        }
        let refusal = self.report.refused.iter().position(|count| *count > 0);
        let decided = match refusal {
            Some(reason) => Decided::Refused(event, self.schema.refusals[reason]),
            None if self.report.no_ops > 0 => Decided::NoOp(event),
            None => Decided::Applied(event),
        };
        Ok((decided, last_seq))
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
