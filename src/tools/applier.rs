//! Applies records to zones one after the other, with the daemon's decoder and without the daemon.

use super::source::SourceRecord;
use crate::decoder::reject::Reject;
use crate::decoder::{Decoder, RecordPosition};
use crate::kit::engine::{BlockReport, Engine, GameSchema};
use crate::kit::event::PlainEvent;
use crate::kit::event_list::Events;
use crate::kit::field::CARRIED_WORDS_MAX;
use crate::kit::update::{Update, Updates};
use crate::ownership::start_error::StartError;

/// Decodes and applies records. It keeps the outcome of the last one.
pub(super) struct Applier {
    decoder: Decoder,
    events: Events,
    updates: Updates,
    report: BlockReport,
}

impl Applier {
    /// Creates an applier for the records of a game.
    pub(super) fn new(schema: &GameSchema) -> Applier {
        Applier {
            decoder: Decoder::new(schema.events),
            events: Events::with_capacity(1, CARRIED_WORDS_MAX),
            updates: Updates::new(),
            report: BlockReport::new(1, schema.refusal_codes()),
        }
    }

    /// Decodes the next record of a zone, or passes it over.
    pub(super) fn decode(
        &mut self,
        record: &SourceRecord<'_>,
        is_skipped: bool,
    ) -> Result<(), Reject> {
        let SourceRecord { offset, time_ms, value, .. } = *record;
        self.events.clear();
        self.updates.clear();
        self.report.clear();
        let value = value.ok_or(Reject::NullValue);
        let value = if is_skipped { Err(Reject::Skipped) } else { value }?;
        let position = RecordPosition { offset, time_ms };
        self.decoder.decode_within(position, value, 0..value.len(), &mut self.events)
    }

    /// Applies the event that was decoded, if there is one. Fails if it needs rules that are not
    /// loaded.
    pub(super) fn apply(&mut self, zone: &mut dyn Engine) -> Result<(), StartError> {
        let Applier { events, updates, report, .. } = self;
        zone.apply_part(events, 0..events.len(), updates, report);
        match report.missing {
            Some((offset, ruleset)) => Err(StartError::RulesMissing { offset, ruleset }),
            None => Ok(()),
        }
    }

    /// The event that was decoded last; `None`: the record was a reject.
    pub(super) fn event(&self) -> Option<PlainEvent> {
        self.events.plain().first().copied()
    }

    /// The updates of the last event.
    pub(super) fn updates(&self) -> &[Update] {
        self.updates.as_slice()
    }

    /// The outcome of the last event.
    pub(super) fn report(&self) -> &BlockReport {
        &self.report
    }

    /// Explains a reject in words.
    pub(super) fn explain(&mut self, reject: Reject, value: Option<&[u8]>) -> String {
        self.decoder.explain(reject, value)
    }
}
