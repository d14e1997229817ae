//! Streams: events to a client, from a position, as server-sent events or over a WebSocket.
//!
//! A stream has no queue. A topic of updates reads the zone's recent updates from its own position;
//! a topic of state is written again when it changed. A client that reads slowly is written less
//! often, and costs no memory. One that falls behind the recent updates gets `reset`.

use crate::http::request::{parameter, parameters};
use crate::kit::update::Update;
use crate::kit::update_json::UpdateTable;
use crate::serve::answers::{Answer, Moment, Served};
use crate::serve::event_form::{EventBatch, EventForm, EventId};
use crate::serve::gate::Pass;
use crate::serve::problem::Problem;
use crate::serve::routes::{BoardPlaces, BoardQuery, PlayerQuery, Route, TICKET_KEY};
use crate::serve::sight::{SIGHT_RADIUS_MAX, Sight};
use crate::serve::waiting::AwaitedOffset;
use crate::view::json::Json;
use crate::view::zone::{ZonePosition, ZoneView};
use std::ops::RangeInclusive;

/// Topics of one stream.
const TOPICS_MAX: usize = 8;

/// Milliseconds from one event of a topic of state to its next.
const STATE_EVERY_MS: u64 = 250;

/// The values that clients may choose instead.
const STATE_EVERY_MS_RANGE: RangeInclusive<u64> = 50..=ALIVE_EVERY_MS;

/// Milliseconds from one writing of updates to the next, at least and at most: a client that
/// follows a busy zone is written what several frames have at once. The fewer streams there are,
/// the sooner each is written.
const UPDATES_EVERY_MS: RangeInclusive<u64> = 1..=10;

/// Streams of which each is written once a millisecond: so they take a fifth of the thread's time.
const STREAMS_PER_MS: usize = 13;

/// Milliseconds without an event after which a comment shows that the stream is alive.
const ALIVE_EVERY_MS: u64 = 15_000;

/// Milliseconds that a zone has to come to where a client is already: the process that the client
/// comes from has read further.
const AHEAD_MS_MAX: u64 = 10_000;

/// Updates of a zone that are written in one piece.
const UPDATES_PER_PIECE: usize = 64;

/// The parameters of a stream.
const PARAMETERS: &[&str] =
    &["zone", "player", "board", AROUND_KEY, RADIUS_KEY, "every_ms", TICKET_KEY, LAST_EVENT_ID_KEY];

/// The refusal of a stream's topics.
const WRONG_TOPICS: Problem = Problem::Parameter {
    name: "zone",
    must_be: "one to eight topics, each once: zone=3, player=ID, board=world, around=ID",
};

/// The key of the player whose sight is streamed.
const AROUND_KEY: &str = "around";

/// The key of how far the player sees.
const RADIUS_KEY: &str = "radius";

/// The key of what a page says in the query that cannot send `Last-Event-ID`.
const LAST_EVENT_ID_KEY: &str = "last_event_id";

/// A part of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
enum StreamTopic {
    /// Every update of a zone, from this one on.
    Updates {
        zone: u16,
        from: UpdatesFrom,
        /// Since when the zone has not come there yet.
        ahead_since_ms: Option<u64>,
        /// Whether the client was last told that the zone is stale.
        is_stale: bool,
    },
    /// State, written when it changed.
    State {
        /// The event's name.
        name: &'static str,
        route: Route,
        /// The last event.
        written: Vec<u8>,
        due_ms: u64,
    },
    /// The players around one, written when they changed.
    Sight { sight: Sight, due_ms: u64 },
}

/// The next update of a topic of updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UpdatesFrom {
    /// The zone's next update when the topic is first written.
    Present,
    /// There, too, but the client was at another position, and gets a `reset` first.
    Reset,
    /// At this update.
    Next {
        update: u64,
        /// [`ZoneView::genesis`], as far as the client knows.
        genesis: u64,
    },
}

/// The next turn of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamTurn {
    /// At the latest, by the caller's clock.
    pub until_ms: u64,
    /// Or with the next frame of some zone.
    pub or_frame: bool,
    /// Or when a zone has come to an offset.
    pub or_offset: Option<AwaitedOffset>,
}

/// The part of a zone's updates that was written.
enum UpdatesWritten {
    None,
    Some,
    All,
}

/// A stream to one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    form: EventForm,
    topics: Vec<StreamTopic>,
    every_ms: u64,
    alive_ms: u64,
}

impl Stream {
    /// The stream that a query asks for: `zone`, `player`, `board`, each of several if need be.
    /// `last_event_id` is where the client's last stream ended, unless the query says it; the world
    /// has this many zones.
    pub(crate) fn open(
        form: EventForm,
        (query, last_event_id): (&str, Option<&str>),
        zones: usize,
        now_ms: u64,
    ) -> Result<Stream, Problem> {
        let mut stream =
            Stream { form, topics: Vec::new(), every_ms: STATE_EVERY_MS, alive_ms: now_ms };
        // A browser that goes on by itself sends the header, and the query as it was.
        let in_query = parameter(query, LAST_EVENT_ID_KEY);
        let resumed = resumed(last_event_id.or(in_query.as_deref()));
        for (key, value) in parameters(query) {
            match &*key {
                "every_ms" => {
                    let every_ms = value.parse().ok();
                    let every_ms = every_ms.filter(|of| STATE_EVERY_MS_RANGE.contains(of));
                    let must_be = "milliseconds from 50 to 15000";
                    let wrong = Problem::Parameter { name: "every_ms", must_be };
                    stream.every_ms = every_ms.ok_or(wrong)?;
                }
                // As for posts: they mean nothing here.
                "at" | "wait_ms" => {}
                RADIUS_KEY | TICKET_KEY | LAST_EVENT_ID_KEY => {}
                _ => {
                    let topic = StreamTopic::of((&key, &value), query, &resumed, zones)?;
                    if stream.topics.len() == TOPICS_MAX || stream.topics.contains(&topic) {
                        return Err(WRONG_TOPICS);
                    }
                    stream.topics.push(topic);
                }
            }
        }
        // A client without topics sends commands.
        match stream.topics.is_empty() && form != EventForm::WebSocket {
            true => Err(WRONG_TOPICS),
            false => Ok(stream),
        }
    }

    /// Returns whether the client may have all of it.
    pub(crate) fn is_for(&self, pass: &Pass) -> bool {
        self.topics.iter().all(|topic| match topic {
            StreamTopic::Updates { .. } => pass.may_read_all(),
            StreamTopic::State { route, .. } => pass.may_read(route),
            // The one who may read a player's card may see what the player sees.
            StreamTopic::Sight { sight, .. } => {
                let player_id = sight.player_id();
                pass.may_read(&Route::Player(PlayerQuery { player_id, zone: None, after: None }))
            }
        })
    }

    /// Returns the first of its zones that is halted, and why.
    pub(crate) fn halted(&self, served: &Served) -> Option<(u16, Problem)> {
        self.topics.iter().find_map(|topic| match topic {
            StreamTopic::Updates { zone, .. } => match served.zone(*zone) {
                Err(halted @ Problem::ZoneHalted { .. }) => Some((*zone, halted)),
                _ => None,
            },
            // They say it themselves.
            StreamTopic::State { .. } | StreamTopic::Sight { .. } => None,
        })
    }

    /// Writes the last event of a stream: why a zone comes no further.
    pub(crate) fn write_halted(&self, zone: u16, halted: &Problem, out: &mut Vec<u8>) {
        let mut events = EventBatch::begin(self.form, out);
        events.write_object("halted", |json| {
            json.number("zone", zone.into()).text("detail", &halted.sentence());
        });
        events.end();
    }

    /// Writes a piece of what has come since. Returns the next turn.
    pub(crate) fn write(&mut self, served: &Served, now_ms: u64, out: &mut Vec<u8>) -> StreamTurn {
        let mut events = EventBatch::begin(self.form, out);
        let mut due_ms = now_ms + ALIVE_EVERY_MS;
        let (mut is_waiting, mut is_flowing) = (false, false);
        for at in 0..self.topics.len() {
            let (earlier, rest) = self.topics.split_at_mut(at);
            let (topic, later) = rest.split_first_mut().expect("it is one of the topics");
            match topic {
                StreamTopic::Updates { zone, from, ahead_since_ms, is_stale } => {
                    let written = match served.zone(*zone) {
                        Ok(known) if known.is_within_frame() => UpdatesWritten::None,
                        Ok(known)
                            if let Some(left_ms) =
                                ahead_ms(known, *from, ahead_since_ms, now_ms) =>
                        {
                            due_ms = due_ms.min(now_ms + left_ms);
                            UpdatesWritten::None
                        }
                        Ok(known) => {
                            let others = || other_positions(*zone, earlier.iter().chain(&*later));
                            let moment = served.moment(known);
                            let first = begin_updates(known, moment, *from, &mut events);
                            write_staleness(moment, is_stale, &mut events);
                            let zone = (known, served.schema().game.updates);
                            let next = write_updates(zone, first, others, &mut events);
                            *from = UpdatesFrom::Next { update: next, genesis: known.genesis() };
                            match next {
                                _ if next < known.recent().next() => UpdatesWritten::Some,
                                _ if next > first => UpdatesWritten::All,
                                _ => UpdatesWritten::None,
                            }
                        }
                        Err(_) => UpdatesWritten::None,
                    };
                    is_waiting = true;
                    if let Some(left_ms) = served.stale_in_ms(*zone) {
                        due_ms = due_ms.min(now_ms + left_ms);
                    }
                    match written {
                        UpdatesWritten::None => {}
                        UpdatesWritten::Some => due_ms = now_ms,
                        UpdatesWritten::All => {
                            is_flowing = true;
                            due_ms = due_ms.min(now_ms + updates_every_ms(served));
                        }
                    }
                }
                StreamTopic::State { name, route, written, due_ms: due } => {
                    if *due <= now_ms {
                        *due = now_ms + self.every_ms;
                        write_state(name, served, route, written, &mut events);
                    }
                    due_ms = due_ms.min(*due);
                }
                StreamTopic::Sight { sight, due_ms: due } => {
                    if *due <= now_ms {
                        let pause_ms = sight.write(served, &mut events);
                        *due = now_ms + pause_ms.map_or(1, |least| least.max(self.every_ms));
                    }
                    due_ms = due_ms.min(*due);
                }
            }
        }
        if events.end() {
            self.alive_ms = now_ms;
        } else if now_ms >= self.alive_ms + ALIVE_EVERY_MS {
            self.alive_ms = now_ms;
            self.form.write_sign_of_life(out);
        }
        let until_ms = due_ms.min(self.alive_ms + ALIVE_EVERY_MS);
        // Frames that follow closely are written together.
        StreamTurn { until_ms, or_frame: is_waiting && !is_flowing, or_offset: None }
    }
}

impl StreamTopic {
    /// The topic that a key of a query names, in a world of this many zones. The client has read
    /// these zones before, up to these updates.
    fn of(
        (key, value): (&str, &str),
        query: &str,
        resumed: &[(u16, u64)],
        zones: usize,
    ) -> Result<StreamTopic, Problem> {
        let wrong = |name, must_be| Problem::Parameter { name, must_be };
        let zone = value.parse::<u16>().ok();
        if let Some(zone) = zone.filter(|zone| usize::from(*zone) >= zones)
            && let "zone" | "board" = key
        {
            return Err(Problem::ZoneUnknown(zone));
        }
        let player = |name| {
            let player_id = value.parse::<u64>().ok().filter(|player| *player != 0);
            player_id.ok_or(wrong(name, "a player's number"))
        };
        match key {
            "zone" => {
                let zone = zone.ok_or(wrong("zone", "a zone's number"))?;
                let from = match resumed.iter().find(|(of, _)| *of == zone) {
                    Some((_, next)) => UpdatesFrom::Next { update: *next, genesis: 0 },
                    None if resumed.is_empty() => UpdatesFrom::Present,
                    None => UpdatesFrom::Reset,
                };
                Ok(StreamTopic::Updates { zone, from, ahead_since_ms: None, is_stale: false })
            }
            "player" => {
                let query = PlayerQuery { player_id: player("player")?, zone: None, after: None };
                Ok(StreamTopic::state("card", Route::Player(query)))
            }
            "board" if value != "world" && zone.is_none() => {
                Err(wrong("board", "a zone's number, or `world`"))
            }
            "board" => {
                let query = BoardQuery { zone, places: BoardPlaces::From(1, 10) };
                Ok(StreamTopic::state("board", Route::Board(query)))
            }
            AROUND_KEY => {
                let player_id = player(AROUND_KEY)?;
                let radius = parameter(query, RADIUS_KEY).and_then(|radius| radius.parse().ok());
                let radius = radius.filter(|radius| (1..=SIGHT_RADIUS_MAX).contains(radius));
                let must_be = "a number from 1 to 50000, in units of the game's positions";
                let radius = radius.ok_or(wrong(RADIUS_KEY, must_be))?;
                Ok(StreamTopic::Sight { sight: Sight::new(player_id, radius), due_ms: 0 })
            }
            _ => Err(Problem::ParameterUnknown { name: key.to_owned(), takes: PARAMETERS }),
        }
    }

    fn state(name: &'static str, route: Route) -> StreamTopic {
        StreamTopic::State { name, route, written: Vec::new(), due_ms: 0 }
    }
}

/// Returns the pause of a stream of updates.
fn updates_every_ms(served: &Served) -> u64 {
    let (least, most) = UPDATES_EVERY_MS.into_inner();
    (served.counts.streams.div_ceil(STREAMS_PER_MS) as u64).clamp(least, most)
}

/// Of each zone that `Last-Event-ID` names: the update after the one that the client has read last.
/// It is untrusted; what is no position in it counts as absent.
fn resumed(last_event_id: Option<&str>) -> Vec<(u16, u64)> {
    let position = |text: &str| {
        let (zone, update) = text.split_once(':')?;
        Some((zone.parse::<u16>().ok()?, update.parse::<u64>().ok()?.checked_add(1)?))
    };
    last_event_id.unwrap_or_default().split(',').take(TOPICS_MAX).filter_map(position).collect()
}

/// What follows a zone's own position in its ids: how far the zones of the other topics were
/// written.
fn other_positions<'a>(own: u16, topics: impl Iterator<Item = &'a StreamTopic>) -> String {
    let mut others = String::new();
    for topic in topics {
        if let StreamTopic::Updates { zone, from: UpdatesFrom::Next { update, .. }, .. } = *topic
            && zone != own
            && let Some(last) = update.checked_sub(1)
        {
            others += &format!(",{zone}:{last}");
        }
    }
    others
}

/// How long a client that is further than the zone still waits for the zone to come there; `None`:
/// it does not.
fn ahead_ms(
    zone: &ZoneView,
    from: UpdatesFrom,
    since_ms: &mut Option<u64>,
    now_ms: u64,
) -> Option<u64> {
    match from {
        UpdatesFrom::Next { update, .. } if update > zone.recent().next() => {
            let until_ms = *since_ms.get_or_insert(now_ms) + AHEAD_MS_MAX;
            until_ms.checked_sub(now_ms).filter(|left_ms| *left_ms > 0)
        }
        _ => {
            *since_ms = None;
            None
        }
    }
}

/// Returns the update with which a zone's stream goes on. If it does not follow what the client
/// knows, the client is told the position.
fn begin_updates(
    zone: &ZoneView,
    moment: Moment,
    from: UpdatesFrom,
    events: &mut EventBatch,
) -> u64 {
    let recent = zone.recent();
    let event = match from {
        UpdatesFrom::Next { update, genesis }
            if (recent.first()..=recent.next()).contains(&update)
                && (zone.genesis() < update || zone.genesis() == genesis) =>
        {
            return update;
        }
        UpdatesFrom::Present => "at",
        UpdatesFrom::Next { .. } | UpdatesFrom::Reset => "reset",
    };
    write_position(moment, event, events);
    recent.next()
}

/// Writes a zone's next updates, from this one on. Their ids end with the positions of the stream's
/// other zones. Returns the update that comes next.
fn write_updates(
    (zone, updates): (&ZoneView, &UpdateTable),
    from: u64,
    others: impl FnOnce() -> String,
    events: &mut EventBatch,
) -> u64 {
    let recent = zone.recent();
    let to = recent.next().min(from + UPDATES_PER_PIECE as u64);
    let others = if to > from { others() } else { String::new() };
    for number in from..to {
        let update: &Update = recent.get(number).expect("a recent update");
        let id = EventId { zone: zone.partition(), update: number, others: &others };
        events.write("update", Some(id), |out| {
            updates.write(std::slice::from_ref(update), out);
        });
    }
    to
}

/// Writes whether a zone's owner has fallen silent or is heard again, if the client does not know.
fn write_staleness(moment: Moment, was_stale: &mut bool, events: &mut EventBatch) {
    let is_stale = moment.stale_ms.is_some();
    if std::mem::replace(was_stale, is_stale) != is_stale {
        write_position(moment, if is_stale { "stale" } else { "live" }, events);
    }
}

/// Writes the position of a topic of updates.
fn write_position(moment: Moment, event: &str, events: &mut EventBatch) {
    let Moment { zone, position: ZonePosition { update, next_offset }, stale_ms } = moment;
    events.write_object(event, |json| {
        json.number("zone", zone.into()).number("update", update).signed("offset", next_offset);
        if let Some(stale_ms) = stale_ms {
            json.number("stale_ms", stale_ms);
        }
    });
}

fn write_state(
    name: &str,
    served: &Served,
    route: &Route,
    written: &mut Vec<u8>,
    events: &mut EventBatch,
) {
    let mut body = Vec::new();
    match served.answer(route, &mut body) {
        Ok(Answer::NotYet(_)) => return,
        Ok(_) => {}
        Err(problem) => {
            body.clear();
            Json::object(&mut body, |json| {
                json.text("detail", &problem.sentence());
            });
        }
    }
    // The positions change all the time; what they stand for is what a client waits for.
    if is_the_same(&body, written) {
        return;
    }
    events.write(name, None, |out| out.extend_from_slice(&body));
    *written = body;
}

/// Whether two answers differ in nothing but the numbers of their positions. A zone that has become
/// stale has one number more.
fn is_the_same(body: &[u8], written: &[u8]) -> bool {
    let ([before, at, rest], [was_before, was_at, was_rest]) = (parts(body), parts(written));
    let is_word = |byte: &&u8| !byte.is_ascii_digit();
    (before, rest) == (was_before, was_rest)
        && at.iter().filter(is_word).eq(was_at.iter().filter(is_word))
}

/// An answer in three parts: what comes before its positions, these, and what begins with one of
/// these keys.
fn parts(body: &[u8]) -> [&[u8]; 3] {
    let find = |key: &[u8]| body.windows(key.len()).position(|part| part == key);
    let keys: [&[u8]; 2] = [b"\"players\":", b"\"score\":"];
    let rest = keys.into_iter().find_map(find).unwrap_or(0);
    let positions = find(b"\"at\":").unwrap_or(0).min(rest);
    [&body[..positions], &body[positions..rest], &body[rest..]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_in_another_zone_is_another_one_and_at_another_position_it_is_not() {
        let card = |zone: u16, update: u64| {
            let at = format!(r#""at":{{"update":{update},"offset":{update}}}"#);
            format!(r#"{{"player_id":"1","zone":{zone},{at},"score":5,"rank":1}}"#)
        };
        let (here, later, elsewhere) = (card(0, 7), card(0, 9), card(1, 7));
        assert!(is_the_same(here.as_bytes(), later.as_bytes()));
        assert!(!is_the_same(here.as_bytes(), elsewhere.as_bytes()));
    }
}
