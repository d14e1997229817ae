//! Shows what the decoder makes of each kind of record, and that its tiers agree.

pub(crate) mod corpus;
mod shapes;
mod tiers;
mod vectors;

use crate::decoder::RecordPosition;
use crate::decoder::json::JsonDecoder;
use crate::decoder::reject::Reject;
use crate::hunt::event::Event;
use crate::hunt::events::Events;

/// What the last tier makes of a record.
fn parsed(json: &mut JsonDecoder, origin: RecordPosition, record: &[u8]) -> Result<Event, Reject> {
    let mut events = Events::default();
    json.read(origin, record, &mut events)?;
    Ok(events.pop().expect("no reject is an event"))
}
