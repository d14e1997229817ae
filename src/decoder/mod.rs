//! Record to event: what a record must look like to be one. `docs/EVENTS.md` is its contract.

pub mod layout;

pub mod json;

pub(crate) mod reject;

mod fields;

mod digits;

mod names;

mod quantity;

#[cfg(test)]
mod tests;

use crate::engine::event::Event;
use json::JsonDecoder;
use layout::Layouts;
use reject::Reject;

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
/// The first tier, [`Layouts`], knows how recent records were laid out and reads a record of such a
/// layout without parsing it. Everything else is for the second tier, [`JsonDecoder`], which alone
/// decides what is valid.
pub struct Decoder {
    layouts: Layouts,
    json: JsonDecoder,
    counts: TierCounts,
    /// What the first tier has earned: looking at a record in vain costs as much as it saves.
    trust: u32,
    /// Records that came when it had none left.
    distrusted: u32,
}

/// Most trust that the first tier can have: so many records in a row that it does not know may come
/// until it is shown but one of 16, not at equal distances: records may have a period of their own.
const TRUST_MAX: u32 = 64;
const TRIAL_BITS: u32 = 4;

/// Trust for a record that the first tier knew. One that it did not know costs one.
const TRUST_EARNED: u32 = 2;

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
        let (layouts, json) = (Layouts::new(), JsonDecoder::new());
        Decoder { layouts, json, counts, trust: TRUST_MAX, distrusted: 0 }
    }

    /// The event in a record's value, or why there is none. `None` is Kafka's null value.
    pub fn decode(
        &mut self,
        origin: RecordPosition,
        value: Option<&[u8]>,
    ) -> Result<Event, Reject> {
        let value = value.ok_or(Reject::NullValue)?;
        if self.tries_layouts() {
            if let Some(event) = self.layouts.read(origin, value) {
                self.trust = TRUST_MAX.min(self.trust + TRUST_EARNED);
                self.counts.layout += 1;
                return Ok(event);
            }
            self.trust = self.trust.saturating_sub(1);
        }
        self.counts.json += 1;
        let event = self.json.decode(origin, value)?;
        self.layouts.learn(value);
        Ok(event)
    }

    /// Whether to show a record to the first tier.
    #[inline]
    fn tries_layouts(&mut self) -> bool {
        if self.trust > 0 {
            return true;
        }
        self.distrusted = self.distrusted.wrapping_add(1);
        self.distrusted.wrapping_mul(0x9e37_79b9) >> (u32::BITS - TRIAL_BITS) == 0
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
