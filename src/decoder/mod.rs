//! Decodes records to events, and decides which records are events. `docs/EVENTS.md` is the
//! contract.

// Without vectors no shape is remembered.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub mod shape;

pub mod layout;

pub mod json;

pub(crate) mod reject;

mod fields;

mod digits;

#[cfg(target_arch = "x86_64")]
mod narrow;

#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
mod numbers;

mod quantity;

mod runs;

mod simd;

mod hit_score;

#[cfg(target_arch = "x86_64")]
mod wide;

#[cfg(test)]
pub(crate) mod tests;

use crate::kit::event::{Event, EventTable, GameAction, PlainEvent};
use crate::kit::event_list::Events;
use crate::kit::field::CARRIED_WORDS_MAX;
use hit_score::HitScore;
use json::JsonDecoder;
use layout::Layouts;
use reject::Reject;
use shape::Shapes;
use std::ops::Range;

/// A record's offset in its partition, and its timestamp as Kafka stored it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordPosition {
    /// Offset of the record in its input partition.
    pub offset: i64,
    /// Timestamp of the record, in milliseconds since the Unix epoch.
    pub time_ms: i64,
}

/// Decodes records to events. It does not allocate after [`Decoder::new`].
///
/// The first tier, [`Shapes`], finds all numbers of a record at once, if the processor supports it
/// and a recent record had the same text around its numbers. The second, [`Layouts`], reads a
/// record with the layout of a recent one from start to end. The third, [`JsonDecoder`], parses
/// everything else, and alone decides what is valid.
pub struct Decoder {
    shapes: Shapes,
    layouts: Layouts,
    json: JsonDecoder,
    counts: TierCounts,
    in_shapes: HitScore,
    in_layouts: HitScore,
    /// Holds the event of [`Decoder::decode`].
    single: Events,
}

/// Number of records that each tier has decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierCounts {
    /// Records of a known shape.
    pub shape: u64,
    /// Other records of a known layout.
    pub layout: u64,
    /// Records parsed as JSON, including rejects.
    pub json: u64,
}

impl TierCounts {
    /// Number of records that were not parsed.
    pub fn unparsed(&self) -> u64 {
        self.shape + self.layout
    }
}

impl Decoder {
    /// Creates a decoder of a game's events, with all the memory that it will need.
    pub fn new(table: &'static EventTable) -> Decoder {
        Decoder {
            shapes: Shapes::new(table),
            layouts: Layouts::new(table),
            json: JsonDecoder::new(table),
            counts: TierCounts::default(),
            in_shapes: HitScore::default(),
            in_layouts: HitScore::default(),
            single: Events::with_capacity(1, CARRIED_WORDS_MAX),
        }
    }

    /// Decodes a record's value, or returns why it is not an event. `None` is Kafka's null value.
    pub fn decode<A: GameAction>(
        &mut self,
        origin: RecordPosition,
        value: Option<&[u8]>,
    ) -> Result<Event<A>, Reject> {
        self.decode_with(origin, value, Events::pop)
    }

    /// Like [`Decoder::decode`], for a caller that does not know the game. What an arrival carries
    /// is left out.
    pub(crate) fn decode_plain(
        &mut self,
        origin: RecordPosition,
        value: Option<&[u8]>,
    ) -> Result<PlainEvent, Reject> {
        self.decode_with(origin, value, |events| {
            let event = events.plain().last().copied();
            events.clear();
            event
        })
    }

    fn decode_with<E>(
        &mut self,
        origin: RecordPosition,
        value: Option<&[u8]>,
        take: impl FnOnce(&mut Events) -> Option<E>,
    ) -> Result<E, Reject> {
        let value = value.ok_or(Reject::NullValue)?;
        let mut events = std::mem::take(&mut self.single);
        let decoded = self.decode_within(origin, value, 0..value.len(), &mut events);
        let event = take(&mut events);
        self.single = events;
        decoded.map(|()| event.expect("a record that is no reject is an event"))
    }

    /// Decodes the value at this range of a buffer and adds the event. The bytes around the value
    /// do not affect the result; if there are enough of them, the value need not be copied.
    #[inline]
    pub fn decode_within(
        &mut self,
        origin: RecordPosition,
        buffer: &[u8],
        value: Range<usize>,
        events: &mut Events,
    ) -> Result<(), Reject> {
        let tries_shapes = self.in_shapes.should_try();
        if tries_shapes {
            if self.shapes.read(origin, buffer, value.clone(), events) {
                self.in_shapes.add_hit();
                self.counts.shape += 1;
                return Ok(());
            }
            self.in_shapes.add_miss();
        }
        let value = &buffer[value];
        self.decode_one_by_one(origin, value, events)?;
        if tries_shapes {
            self.shapes.learn(value);
        }
        Ok(())
    }

    /// Decodes a record's bytes sequentially.
    #[inline(never)]
    fn decode_one_by_one(
        &mut self,
        origin: RecordPosition,
        value: &[u8],
        events: &mut Events,
    ) -> Result<(), Reject> {
        let tries_layouts = self.in_layouts.should_try();
        if tries_layouts {
            if self.layouts.read(origin, value, events) {
                self.in_layouts.add_hit();
                self.counts.layout += 1;
                return Ok(());
            }
            self.in_layouts.add_miss();
        }
        self.counts.json += 1;
        self.json.read(origin, value, events)?;
        if tries_layouts {
            self.layouts.learn(value);
        }
        Ok(())
    }

    /// Explains a reject in words, with the offending field or type.
    pub(crate) fn explain(&mut self, reject: Reject, value: Option<&[u8]>) -> String {
        let has_culprit = matches!(
            reject,
            Reject::DuplicateField
                | Reject::WrongType
                | Reject::OutOfRange
                | Reject::UnknownType
                | Reject::MissingField
        );
        match value.filter(|_| has_culprit).and_then(|value| self.json.culprit(value)) {
            Some(culprit) => format!("{reject}: `{culprit}`"),
            None => reject.to_string(),
        }
    }

    /// Number of records that each tier has decided since the decoder was created.
    pub fn tier_counts(&self) -> TierCounts {
        self.counts
    }
}
