//! Commands: events that clients post, and what became of them.
//!
//! A command takes the way of every other event: it is appended to the input, some daemon decides
//! it, and the published updates show its outcome. A record that is not an event is refused here
//! and never reaches the log.

use crate::decoder::reject::Reject;
use crate::decoder::{Decoder, RecordPosition};
use crate::kit::kinds::UpdateRole;
use crate::kit::update::Update;
use crate::output::event_json;
use crate::serve::answers::{Served, at};
use crate::serve::gate::Pass;
use crate::serve::problem::Problem;
use crate::serve::waiting::AwaitedOffset;
use crate::view::json::Json;
use crate::view::zone::ZoneView;

/// The position of a record that is not in the log yet.
const UNPLACED: RecordPosition = RecordPosition { offset: 0, time_ms: 0 };

/// The field of an event of the world that changes the rules.
const RULESET: &str = "ruleset";

/// Events of one request.
pub(crate) const COMMANDS_MAX: usize = 64;

/// One event on its way to the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    /// The zone, which is the partition.
    pub zone: u16,
    /// The player; 0 where it is the world's.
    pub player_id: u64,
    /// The event's time, which its updates repeat.
    pub ts_us: i64,
    /// The record, until it is appended.
    pub record: Vec<u8>,
}

/// What became of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Appended {
    /// The brokers have it at this offset.
    At(i64),
    /// It was not sent: too much is on its way.
    Full,
    /// The brokers do not take it from this process.
    Refused,
    /// The brokers did not say whether they have it.
    Unknown,
    /// The brokers have it at an offset that the zone had passed before: in another input topic
    /// than the one that the zone was played from.
    Elsewhere,
}

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommandOutcome {
    /// It changed the state.
    Applied,
    /// The rules turned it down.
    Refused,
    /// It changed nothing: its `seq` came before, most likely.
    NoOp,
    /// It was decided, but so many updates ago that its outcome is not known here any more.
    Decided,
}

/// Gives a `seq` to events that have none: the time, later than every one before.
#[derive(Debug, Default)]
pub(crate) struct Stamps {
    last_us: i64,
}

impl Stamps {
    /// A time in microseconds since the Unix epoch that was not given before.
    pub(crate) fn next(&mut self, now_us: i64) -> i64 {
        self.last_us = now_us.max(self.last_us + 1);
        self.last_us
    }
}

/// The commands of a body, as far as the pass is good for them: one event, or an array of some. A
/// zone that the request does not name is the one that the player is in.
pub(crate) fn commands(
    (body, zone, pass): (&[u8], Option<u16>, &Pass),
    served: &Served,
    decoder: &mut Decoder,
    mut stamp: impl FnMut() -> i64,
) -> Result<Vec<Command>, Problem> {
    let events = events(body).ok_or(Problem::NoEvents)?;
    let table = served.schema().game.events;
    let mut commands = Vec::with_capacity(events.len());
    for text in events {
        let stamp = stamp();
        let decode = |record: &[u8]| decoder.decode_plain(UNPLACED, Some(record));
        let (record, event) = stamped(text, decode, stamp).map_err(|(reject, record)| {
            Problem::NoEvent { reject, words: decoder.explain(reject, Some(&record)) }
        })?;
        let action = &table.actions[usize::from(event.action.kind())];
        let (player_id, subject) = (event.player_id, action.subject);
        if !pass.may_command(player_id, subject) {
            return Err(Problem::OutOfScope);
        }
        let is_world = subject.is_world();
        let zone = match zone {
            Some(zone) => zone,
            None if is_world => {
                let must_be = "the number of the zone that the world's event is for";
                return Err(Problem::Parameter { name: "zone", must_be });
            }
            None => served.zone_of(player_id)?,
        };
        let view = served.zone(zone)?;
        if served.is_input_another(zone) {
            return Err(Problem::InputRecreated(zone));
        }
        let ruleset = action.fields.iter().find(|field| is_world && field.spec.key == RULESET);
        let ruleset = ruleset.map(|field| event.action.get(field.place) as u32);
        if let Some(ruleset) = ruleset.filter(|ruleset| !view.knows(*ruleset)) {
            return Err(Problem::RulesetUnknown(ruleset));
        }
        let (record, ts_us) = match pass.player() {
            // A player's event has this process's time. Its `seq` is not ahead of the time either:
            // the events that others post of the player, as to make it leave, count by the time,
            // and would change nothing until then.
            Some(_) if event.seq > stamp.max(0).cast_unsigned() => {
                let must_be =
                    "at most the time in microseconds since the Unix epoch, or leave it out";
                return Err(Problem::Parameter { name: "seq", must_be });
            }
            Some(_) => {
                let mut record = Vec::new();
                let numbers = (player_id, event.seq, stamp);
                // No player posts an arrival, so nothing is carried.
                event_json::write_words(&mut record, table, numbers, (&event.action, &[]));
                (record, stamp)
            }
            None => (record, event.ts_us),
        };
        commands.push(Command { zone, player_id, ts_us, record });
    }
    Ok(commands)
}

/// The events of a body, as they are written. `None`: it is no object and no array of a few.
fn events(body: &[u8]) -> Option<Vec<&[u8]>> {
    let body = body.trim_ascii();
    if body.first() == Some(&b'{') {
        return Some(vec![body]);
    }
    let items = body.strip_prefix(b"[")?.strip_suffix(b"]")?;
    let (mut events, mut from, mut depth) = (Vec::new(), 0, 0_u32);
    let (mut is_text, mut is_escaped) = (false, false);
    for (at, byte) in items.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            _ if is_text => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => {
                events.push(items[from..at].trim_ascii());
                from = at + 1;
            }
            _ => {}
        }
    }
    events.push(items[from..].trim_ascii());
    (events.len() <= COMMANDS_MAX).then_some(events)
}

/// Returns the event of a text, and its record: the text, with what it leaves out of `seq` and
/// `ts_us`. An error has the record that is closest to an event.
fn stamped<E>(
    text: &[u8],
    mut decode: impl FnMut(&[u8]) -> Result<E, Reject>,
    stamp: i64,
) -> Result<(Vec<u8>, E), (Reject, Vec<u8>)> {
    match decode(text) {
        Ok(event) => return Ok((text.to_vec(), event)),
        Err(Reject::MissingField) => {}
        Err(reject) => return Err((reject, text.to_vec())),
    }
    let fields = [
        format!("\"seq\":{stamp},\"ts_us\":{stamp},"),
        format!("\"ts_us\":{stamp},"),
        format!("\"seq\":{stamp},"),
    ];
    let text = text.trim_ascii();
    let Some(inside) = text.strip_prefix(b"{") else {
        return Err((Reject::NotAnObject, text.to_vec()));
    };
    let mut lacking = None;
    for field in fields {
        let record = [b"{", field.as_bytes(), inside].concat();
        match decode(&record) {
            Ok(event) => return Ok((record, event)),
            // The first of these has the most, so it lacks what the client has to write.
            Err(Reject::MissingField) => _ = lacking.get_or_insert(record),
            Err(_) => {}
        }
    }
    Err((Reject::MissingField, lacking.unwrap_or_else(|| text.to_vec())))
}

/// Whether it is known what became of a command.
fn is_decided(served: &Served, command: &Command, offset: i64) -> bool {
    let zone = served.view.zone(command.zone);
    zone.is_some_and(|zone| !zone.is_within_frame() && zone.position().next_offset > offset)
}

/// What an event that is in the log still waits for.
pub(crate) fn awaited(
    served: &Served,
    (command, appended): &(Command, Appended),
) -> Option<AwaitedOffset> {
    match appended {
        Appended::At(offset) if !is_decided(served, command, *offset) => {
            let next_offset = offset.saturating_add(1);
            Some(AwaitedOffset { zone: command.zone, next_offset })
        }
        _ => None,
    }
}

/// What became of a command that is decided, with its updates.
fn outcome<'a>(
    served: &Served,
    zone: &'a ZoneView,
    command: &Command,
    offset: i64,
) -> (CommandOutcome, Vec<&'a Update>) {
    let Some(frame) = zone.recent().frame_at(offset) else {
        return (CommandOutcome::Decided, Vec::new());
    };
    let updates = frame.filter(|update| {
        (update.player_id(), update.ts_us()) == (command.player_id, command.ts_us)
    });
    let updates: Vec<&Update> = updates.collect();
    let is_refusal = |update: &&Update| served.schema().role(update) == UpdateRole::Refusal;
    let outcome = match updates.is_empty() {
        true => CommandOutcome::NoOp,
        false if updates.iter().any(is_refusal) => CommandOutcome::Refused,
        false => CommandOutcome::Applied,
    };
    (outcome, updates)
}

/// Writes what became of a command that is in the log.
pub(crate) fn write_outcome(json: &mut Json, served: &Served, command: &Command, offset: i64) {
    json.number("zone", command.zone.into()).signed("offset", offset);
    let zone = served.view.zone(command.zone);
    if let Some(zone) = zone {
        at(json, served.moment(zone));
    }
    let zone = zone.filter(|_| is_decided(served, command, offset));
    let Some(zone) = zone else {
        json.text("outcome", "appended");
        return;
    };
    let (outcome, updates) = outcome(served, zone, command, offset);
    json.text(
        "outcome",
        match outcome {
            CommandOutcome::Applied => "applied",
            CommandOutcome::Refused => "refused",
            CommandOutcome::NoOp => "no_op",
            CommandOutcome::Decided => "decided",
        },
    );
    if outcome == CommandOutcome::Decided {
        return;
    }
    json.list("updates", updates.into_iter(), |out, update| {
        served.schema().game.updates.write(std::slice::from_ref(update), out);
    });
}
