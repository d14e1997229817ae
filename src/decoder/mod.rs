//! From a record to an event: which records are events. `docs/EVENTS.md` is the contract.

pub mod shape;

pub mod layout;

pub mod json;

pub(crate) mod reject;

mod fields;

mod digits;

mod names;

#[cfg(target_arch = "x86_64")]
mod narrow;

mod numbers;

mod quantity;

mod runs;

mod simd;

mod trust;

#[cfg(target_arch = "x86_64")]
mod wide;

#[cfg(test)]
pub(crate) mod tests;

use crate::hunt::event::Event;
use crate::hunt::events::Events;
use json::JsonDecoder;
use layout::Layouts;
use reject::Reject;
use shape::Shapes;
use std::ops::Range;
use trust::Trust;

/// Where a record stands in its partition, and its timestamp as Kafka stored it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordPosition {
    /// Offset of the record in its input partition.
    pub offset: i64,
    /// Timestamp of the record, in milliseconds since the Unix epoch.
    pub time_ms: i64,
}

/// Makes events from records. It does not allocate after [`Decoder::new`].
///
/// The first tier, [`Shapes`], finds all numbers of a record at once, on processors that can, where
/// a recent record had the same text around its numbers. The second, [`Layouts`], reads a record
/// that is laid out as a recent one from its start to its end. Everything else is for the third
/// tier, [`JsonDecoder`], which alone decides what is valid.
pub struct Decoder {
    shapes: Shapes,
    layouts: Layouts,
    json: JsonDecoder,
    counts: TierCounts,
    in_shapes: Trust,
    in_layouts: Trust,
    /// Room for the event of [`Decoder::decode`].
    single: Events,
}

/// How many records each tier has decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierCounts {
    /// Records of a known shape.
    pub shape: u64,
    /// Other records of a known layout.
    pub layout: u64,
    /// Records parsed as JSON, the rejects among them.
    pub json: u64,
}

impl TierCounts {
    /// Records that were not parsed.
    pub fn unparsed(&self) -> u64 {
        self.shape + self.layout
    }
}

impl Decoder {
    /// A decoder with all the memory that it will need.
    pub fn new() -> Decoder {
        Decoder {
            shapes: Shapes::new(),
            layouts: Layouts::new(),
            json: JsonDecoder::new(),
            counts: TierCounts::default(),
            in_shapes: Trust::default(),
            in_layouts: Trust::default(),
            single: Events::with_capacity(1, 1),
        }
    }

    /// The event in a record's value, or why there is none. `None` is Kafka's null value.
    pub fn decode(
        &mut self,
        origin: RecordPosition,
        value: Option<&[u8]>,
    ) -> Result<Event, Reject> {
        let value = value.ok_or(Reject::NullValue)?;
        let mut events = std::mem::take(&mut self.single);
        let decoded = self.decode_within(origin, value, 0..value.len(), &mut events);
        let event = events.pop();
        self.single = events;
        decoded.map(|()| event.expect("a record that is no reject is an event"))
    }

    /// Adds the event in the value that stands in a buffer at this range. The bytes around the
    /// value change nothing; if there are enough of them, the value need not be copied.
    #[inline]
    pub fn decode_within(
        &mut self,
        origin: RecordPosition,
        buffer: &[u8],
        value: Range<usize>,
        events: &mut Events,
    ) -> Result<(), Reject> {
        let tries_shapes = self.in_shapes.is_left();
        if tries_shapes {
            if self.shapes.read(origin, buffer, value.clone(), events) {
                self.in_shapes.earn();
                self.counts.shape += 1;
                return Ok(());
            }
            self.in_shapes.lose();
        }
        let value = &buffer[value];
        self.decode_one_by_one(origin, value, events)?;
        if tries_shapes {
            self.shapes.learn(value);
        }
        Ok(())
    }

    /// Reads a record's bytes one after the other.
    #[inline(never)]
    fn decode_one_by_one(
        &mut self,
        origin: RecordPosition,
        value: &[u8],
        events: &mut Events,
    ) -> Result<(), Reject> {
        let tries_layouts = self.in_layouts.is_left();
        if tries_layouts {
            if self.layouts.read(origin, value, events) {
                self.in_layouts.earn();
                self.counts.layout += 1;
                return Ok(());
            }
            self.in_layouts.lose();
        }
        self.counts.json += 1;
        self.json.read(origin, value, events)?;
        if tries_layouts {
            self.layouts.learn(value);
        }
        Ok(())
    }

    /// What is wrong with a rejected record, in words, with the field or type that is to blame.
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

    /// How many records each tier has decided since the decoder was made.
    pub fn tier_counts(&self) -> TierCounts {
        self.counts
    }
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder::new()
    }
}
