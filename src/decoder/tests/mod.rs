//! The decoder's result for each kind of record, and the agreement of its tiers.

pub(crate) mod corpus;
mod shapes;
mod tiers;
mod vectors;

use crate::decoder::RecordPosition;
use crate::decoder::json::JsonDecoder;
use crate::decoder::reject::Reject;
use crate::hunt::event::Event;
use crate::kit::event_list::Events;

/// The result of the JSON tier for a record.
fn parsed(json: &mut JsonDecoder, origin: RecordPosition, record: &[u8]) -> Result<Event, Reject> {
    let mut events = Events::default();
    json.read(origin, record, &mut events)?;
    Ok(events.pop().expect("no reject is an event"))
}
