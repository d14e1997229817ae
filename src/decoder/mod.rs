//! Record to event: what a record must look like to be one. `docs/EVENTS.md` is its contract.

pub mod layout;

pub mod json;

pub mod reject;

mod fields;

mod digits;

mod quantity;

use crate::engine::event::Event;
use json::JsonDecoder;
use layout::Layouts;
use reject::Reject;

/// Where a record stands in its partition, and its timestamp as Kafka stored it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Offset of the record in its input partition.
    pub offset: i64,
    /// Timestamp of the record, in milliseconds since the Unix epoch.
    pub time_ms: i64,
}

/// Makes events from records. It does not allocate after [`Decoder::new`].
///
/// The first tier, [`Layouts`], knows how recent records were laid out and reads a record of such a
/// layout without parsing it. Everything else is for the second tier, [`JsonDecoder`], which alone
/// decides what is valid.
pub struct Decoder {
    layouts: Layouts,
    json: JsonDecoder,
    counts: TierCounts,
}

/// How many records each tier has decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierCounts {
    /// Records of a known layout.
    pub layout: u64,
    /// Records parsed as JSON, the rejects among them.
    pub json: u64,
}

impl Decoder {
    /// A decoder with all the memory that it will need.
    pub fn new() -> Decoder {
        let counts = TierCounts::default();
        Decoder { layouts: Layouts::new(), json: JsonDecoder::new(), counts }
    }

    /// The event in a record's value, or why there is none. `None` is Kafka's null value.
    pub fn decode(&mut self, origin: Origin, value: Option<&[u8]>) -> Result<Event, Reject> {
        let value = value.ok_or(Reject::NullValue)?;
        if let Some(event) = self.layouts.read(origin, value) {
            self.counts.layout += 1;
            return Ok(event);
        }
        self.counts.json += 1;
        let event = self.json.decode(origin, value)?;
        self.layouts.learn(value);
        Ok(event)
    }

    /// Which tier decided how many records since the decoder was made.
    pub fn tier_counts(&self) -> TierCounts {
        self.counts
    }
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder::new()
    }
}
