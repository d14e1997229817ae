//! `huntd explain`: what became of one record of the input, and the state that it changed.

use super::failure::ToolError;
use super::kafka::TopicReader;
use super::past::{Decided, PastZone, PlayedInput, StateOrigin, skips_of};
use super::snapshot::time_text;
use super::source::SourceRecord;
use crate::decoder::{Decoder, RecordPosition};
use crate::edition::Edition;
use crate::kit::engine::{AnyRulebook, GameSchema, encode_state};
use crate::kit::event::PlainEvent;
use crate::kit::state_changes::{FieldChange, FieldValue, changed_fields};
use crate::service::cli::ExplainArgs;
use crate::telemetry::printable::printable;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::ops::{ControlFlow, Range};

/// The largest number that every reader of JSON keeps (RFC 8259, section 6).
const NUMBER_MAX: u64 = (1 << 53) - 1;

/// A record, and what became of it.
struct Explanation {
    zone: u16,
    offset: i64,
    time_ms: i64,
    record: String,
    origin: StateOrigin,
    ruleset: u32,
    event: Option<Named>,
    outcome: &'static str,
    reason: Option<String>,
    /// An object for each update, with its zone and number.
    updates: Vec<Value>,
    changes: Vec<FieldChange>,
}

/// An event by the names of its game.
struct Named {
    action: &'static str,
    player_id: u64,
    seq: u64,
}

/// Explains the event that the arguments name.
pub fn run(args: &ExplainArgs, edition: &Edition) -> Result<(), ToolError> {
    let config = args.config.load()?;
    let rulebook: AnyRulebook = super::rulebook(edition, &config.rules_files)?;
    let mut played = PlayedInput::open(&config, "explain")?;
    let zone = args.zone();
    let Range { start, end } = played.offsets(zone)?;
    let found = match args.event() {
        Some(event) => find(&played.reader, zone, start..end, rulebook.schema(), event)?,
        None => args.offset(),
    };
    let offset = found.filter(|offset| (start..end).contains(offset)).ok_or_else(|| {
        ToolError::TopicWrong(format!(
            "zone {zone} has no such event from offset {start} to {end}: it is in another zone, \
             was deleted by retention, or is not written yet"
        ))
    })?;
    let skips = skips_of(zone, &args.skip);
    let mut past = PastZone::before((zone, offset), &mut played, &rulebook, skips)?;
    let mut explained = None;
    played.reader.each(zone, offset..offset.saturating_add(1), |record| {
        explained = Some(explain(&mut past, record, rulebook.schema())?);
        Ok(ControlFlow::Break(()))
    })?;
    let explained = explained.ok_or_else(|| {
        ToolError::TopicWrong(format!(
            "zone {zone} has no record at offset {offset}, but some from {start} to {end}: markers \
             of transactions have offsets, too"
        ))
    })?;
    let mut out = io::stdout().lock();
    match args.json {
        true => writeln!(out, "{}", explained.to_json())?,
        false => explained.write(&mut out)?,
    }
    Ok(())
}

/// Returns the offset of a player's first event with this `seq`.
fn find(
    reader: &TopicReader,
    zone: u16,
    offsets: Range<i64>,
    schema: &GameSchema,
    (player, seq): (u64, u64),
) -> Result<Option<i64>, ToolError> {
    let mut decoder = Decoder::new(schema.events);
    let mut found = None;
    reader.each(zone, offsets, |record| {
        let SourceRecord { offset, time_ms, value, .. } = *record;
        let event = decoder.decode_plain(RecordPosition { offset, time_ms }, value);
        if event.is_ok_and(|event| (event.player_id, event.seq) == (player, seq)) {
            found = Some(offset);
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

/// Applies the record.
fn explain(
    past: &mut PastZone,
    record: &SourceRecord<'_>,
    schema: &GameSchema,
) -> Result<Explanation, ToolError> {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    encode_state(&mut *past.engine, &mut before);
    let decided = past.apply(record)?;
    encode_state(&mut *past.engine, &mut after);
    let changes = changed_fields(&before, &after);
    let outcome = decided.name();
    let (event, reason) = match decided {
        Decided::Rejected(reject) => {
            let why = past.explain(reject, record.value);
            (None, Some(format!("{}: {why}", reject.name())))
        }
        Decided::Applied(event) => (Some(event), None),
        Decided::Refused(event, reason) => (Some(event), Some(reason.to_owned())),
        Decided::NoOp(event, last_seq) => {
            let repeats = last_seq > 0 && last_seq >= event.seq;
            let why = format!("the last seq of the player is {last_seq}");
            (Some(event), repeats.then_some(why))
        }
    };
    Ok(Explanation {
        zone: record.partition,
        offset: record.offset,
        time_ms: record.time_ms,
        record: String::from_utf8_lossy(record.value.unwrap_or_default()).into_owned(),
        origin: past.origin,
        ruleset: past.engine.ruleset(),
        event: event.map(|event| Named::of(&event, schema)),
        outcome,
        reason,
        updates: past.updates_as_json(record.partition),
        changes: changes.expect("every state has names"),
    })
}

impl Named {
    fn of(event: &PlainEvent, schema: &GameSchema) -> Named {
        let action = &schema.events.actions[usize::from(event.action.kind())];
        Named { action: action.type_name, player_id: event.player_id, seq: event.seq }
    }
}

impl Explanation {
    fn to_json(&self) -> Value {
        let Explanation {
            zone, offset, time_ms, record, ruleset, outcome, reason, updates, ..
        } = self;
        let (source, from_offset) = self.origin.parts();
        let changes = self.changes.iter().map(|change| {
            json!({
                "table": change.table,
                "instance": change.instance,
                "row": change.row.to_string(),
                "field": change.field,
                "before": change.before.as_ref().map(value),
                "after": change.after.as_ref().map(value),
            })
        });
        let event = self.event.as_ref().map(|Named { action, player_id, seq }| {
            json!({ "type": action, "player_id": player_id.to_string(), "seq": seq })
        });
        json!({
            "zone": zone,
            "offset": offset,
            "time_ms": time_ms,
            "record": record,
            "state": { "source": source, "offset": from_offset },
            "ruleset": ruleset,
            "event": event,
            "outcome": outcome,
            "reason": reason,
            "updates": updates,
            "changes": changes.collect::<Vec<_>>(),
        })
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let Explanation { zone, offset, record, ruleset, outcome, updates, changes, .. } = self;
        writeln!(out, "zone {zone}, offset {offset}, {}", time_text(self.time_ms))?;
        writeln!(out, "  record   {}", printable(record))?;
        if let Some(Named { action, player_id, seq }) = &self.event {
            writeln!(out, "  event    {action}, player {player_id}, seq {seq}")?;
        }
        match &self.reason {
            Some(reason) => writeln!(out, "  outcome  {outcome}: {}", printable(reason))?,
            None => writeln!(out, "  outcome  {outcome}")?,
        }
        writeln!(out, "  ruleset  {ruleset}")?;
        let (source, from_offset) = self.origin.parts();
        writeln!(out, "  state    from {source}, offset {from_offset}")?;
        for update in updates {
            writeln!(out, "  update   {update}")?;
        }
        for FieldChange { table, instance, row, field, before, after } in changes {
            let part = instance.map_or_else(String::new, |instance| format!("[{instance}]"));
            let text = |value: &Option<FieldValue>| {
                value.as_ref().map_or_else(|| "-".to_owned(), FieldValue::to_string)
            };
            let (before, after) = (text(before), text(after));
            writeln!(out, "  changed  {table}{part} {row}: {field} {before} -> {after}")?;
        }
        Ok(())
    }
}

/// Returns a value as JSON. Readers of JSON may lose digits of large numbers, so these are texts.
fn value(value: &FieldValue) -> Value {
    match value {
        FieldValue::Signed(number) => json!(number),
        FieldValue::Bits(bits) if *bits > NUMBER_MAX => json!(bits.to_string()),
        FieldValue::Bits(bits) => json!(bits),
        FieldValue::Words(words) => json!(words.iter().map(u64::to_string).collect::<Vec<_>>()),
    }
}
