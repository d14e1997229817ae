//! The routes: what can be asked for, from path and query.

use crate::http::request::{ClientRequest, RequestMethod, parameter, parameters};
use crate::serve::problem::Problem;
use crate::serve::zone_players::PAGE_PLAYERS_MAX;
use crate::view::game::ViewSchema;
use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Places of a board in one answer.
const BOARD_PLACES_MAX: u64 = 100;

/// Places on each side of a player in one answer: with its own, no more than of a board.
const EACH_SIDE_MAX: u64 = 49;

/// Places of a board in one answer where the request does not say.
const BOARD_PLACES: u64 = 10;

/// Players of a zone in one answer where the request does not say.
const PAGE_PLAYERS: u64 = 100;

/// Milliseconds that a request may wait for a position or an outcome.
pub(crate) const WAIT_MS_MAX: u64 = 10_000;

/// What to write as such milliseconds.
const WAIT_MUST_BE: &str = "milliseconds from 0 to 10000";

/// Milliseconds that it waits where it does not say.
const WAIT_MS: u64 = 1_000;

/// The path to which events are posted.
pub(crate) const EVENTS: &str = "/v1/events";

/// The path of streams.
pub(crate) const STREAM: &str = "/v1/stream";

/// The path from which a page gets a ticket for streams.
pub(crate) const TICKET: &str = "/v1/ticket";

/// The key of the ticket in the query of a stream.
pub(crate) const TICKET_KEY: &str = "ticket";

/// The methods of a path that is only read.
pub(crate) const ALLOWED_READ: &str = "GET, HEAD, OPTIONS";

/// The methods of the paths to which clients only post.
const ALLOWED_POST: &str = "POST, OPTIONS";

/// The methods of the path of streams.
const ALLOWED_STREAM: &str = "GET, OPTIONS";

/// A request for an answer from the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// A player's card.
    Player(PlayerQuery),
    /// A player's card in some fifty bytes.
    Poll(PlayerQuery),
    /// Places of a board.
    Board(BoardQuery),
    /// All zones.
    Zones,
    /// A query of the game.
    Game {
        /// The zone.
        zone: u16,
        /// Number of the query in the game's tables.
        query: usize,
        /// Only what changed at or after this update.
        since: u64,
    },
    /// The players of a zone, ordered by their numbers.
    Players {
        /// The zone.
        zone: u16,
        /// The first player's number, or one below it.
        from: u64,
        /// Players of the answer, at most.
        count: u32,
    },
    /// The document of all routes.
    OpenApi,
}

/// A request for a player's card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlayerQuery {
    /// The player.
    pub player_id: u64,
    /// The zone; `None`: the one that it is in.
    pub zone: Option<u16>,
    /// Only if it is in another zone than this one, or an update from this one on changed it.
    pub after: Option<(u16, u64)>,
}

/// A request for places of a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BoardQuery {
    /// The zone; `None`: the world.
    pub zone: Option<u16>,
    /// The places.
    pub places: BoardPlaces,
}

/// A part of a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BoardPlaces {
    /// This many places, from a rank on.
    From(u32, u32),
    /// Around a player, this many places on each side.
    Around(u64, u32),
}

/// A position that a zone must have reached before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    /// The zone.
    pub zone: u16,
    /// The input offset up to which (exclusive) it must have come.
    pub next_offset: i64,
    /// Milliseconds to wait for that.
    pub wait_ms: u64,
}

/// Returns what a request asks for, of a server with these tables.
pub(crate) fn route(request: &ClientRequest, schema: &ViewSchema) -> Result<Route, Problem> {
    let query = request.query;
    let mut parts = request.path.strip_prefix('/').ok_or(Problem::NoRoute)?.split('/');
    let path: [&str; 4] = std::array::from_fn(|_| parts.next().unwrap_or_default());
    let is_longer = parts.next().is_some() || request.path.ends_with('/');
    let route = match path {
        _ if is_longer => return Err(Problem::NoRoute),
        ["v1", "players", id, ""] => Route::Player(player_query(id, query)?),
        ["v1", "players", id, "poll"] => Route::Poll(player_query(id, query)?),
        ["v1", "boards", board, ""] => Route::Board(board_query(board, query)?),
        ["v1", "zones", "", ""] => {
            takes(query, &["at", "wait_ms"])?;
            Route::Zones
        }
        ["v1", "zones", zone, "players"] => players_route(zone, query)?,
        ["v1", "zones", zone, name] => game_route(zone, name, query, schema)?,
        ["v1", "openapi.json", "", ""] => {
            takes(query, &["at", "wait_ms"])?;
            Route::OpenApi
        }
        ["v1", "events" | "ticket", "", ""] => return Err(Problem::MethodNotAllowed(ALLOWED_POST)),
        ["v1", "stream", "", ""] => return Err(Problem::MethodNotAllowed(ALLOWED_STREAM)),
        _ => return Err(Problem::NoRoute),
    };
    match request.method {
        RequestMethod::Get | RequestMethod::Head => Ok(route),
        RequestMethod::Post | RequestMethod::Options | RequestMethod::Other => {
            Err(Problem::MethodNotAllowed(ALLOWED_READ))
        }
    }
}

/// Returns the methods that a path takes; `None` if it is no route's.
pub(crate) fn allowed(request: &ClientRequest, schema: &ViewSchema) -> Option<&'static str> {
    let asked = ClientRequest { method: RequestMethod::Other, query: "", ..request.clone() };
    match route(&asked, schema) {
        Err(Problem::NoRoute) => None,
        Err(Problem::MethodNotAllowed(allowed)) => Some(allowed),
        // A part of the path is wrong.
        Ok(_) | Err(_) => Some(ALLOWED_READ),
    }
}

/// Returns an error if a query has a key twice, or another one than these.
fn takes(query: &str, keys: &'static [&'static str]) -> Result<(), Problem> {
    for (at, (key, _)) in parameters(query).enumerate() {
        let Some(name) = keys.iter().find(|known| **known == key) else {
            return Err(Problem::ParameterUnknown { name: key.into_owned(), takes: keys });
        };
        if parameters(query).take(at).any(|(earlier, _)| earlier == key) {
            return Err(Problem::Parameter { name, must_be: "one value" });
        }
    }
    Ok(())
}

/// Returns the position that a request asks for, in its query or its header.
pub(crate) fn at(request: &ClientRequest) -> Result<Option<At>, Problem> {
    let wait_ms = wait_ms(request.query)?;
    let written = parameter(request.query, "at").or(request.huntd_at.map(Cow::Borrowed));
    let Some(written) = written else { return Ok(None) };
    let wrong = Problem::Parameter { name: "at", must_be: "zone:offset, as in 3:4711" };
    // An answer's own header has the update between them.
    let mut parts = written.split(':');
    let numbers = (parts.next(), parts.next(), parts.next(), parts.next());
    let (zone, offset) = match numbers {
        (Some(zone), Some(offset), None, None) => (zone, offset),
        (Some(zone), Some(_), Some(offset), None) => (zone, offset),
        _ => return Err(wrong),
    };
    match (whole(zone), whole(offset)) {
        (Some(zone), Some(next_offset)) => Ok(Some(At { zone, next_offset, wait_ms })),
        _ => Err(wrong),
    }
}

/// Returns the zone that a post names, and the milliseconds that it waits for its outcome.
pub(crate) fn post_query(query: &str) -> Result<(Option<u16>, u64), Problem> {
    takes(query, &["zone", "wait_ms", "at"])?;
    let zone = parameter(query, "zone").map(|zone| zone_of(&zone)).transpose()?;
    Ok((zone, wait_ms(query)?))
}

/// Checks the query of a request for a ticket.
pub(crate) fn ticket_query(query: &str) -> Result<(), Problem> {
    takes(query, &["at", "wait_ms"])
}

fn wait_ms(query: &str) -> Result<u64, Problem> {
    wait_of(number(query, "wait_ms", WAIT_MUST_BE)?)
}

/// Returns the milliseconds that a request waits that says this.
pub(crate) fn wait_of(wait_ms: Option<u64>) -> Result<u64, Problem> {
    let wait_ms = wait_ms.unwrap_or(WAIT_MS);
    let wrong = Problem::Parameter { name: "wait_ms", must_be: WAIT_MUST_BE };
    if wait_ms <= WAIT_MS_MAX { Ok(wait_ms) } else { Err(wrong) }
}

fn player_query(id: &str, query: &str) -> Result<PlayerQuery, Problem> {
    takes(query, &["zone", "after", "at", "wait_ms"])?;
    let zone = parameter(query, "zone").map(|zone| zone_of(&zone)).transpose()?;
    let after = parameter(query, "after").map(|after| after_of(&after)).transpose()?;
    Ok(PlayerQuery { player_id: player_of("id", id)?, zone, after })
}

fn players_route(zone: &str, query: &str) -> Result<Route, Problem> {
    takes(query, &["from", "count", "at", "wait_ms"])?;
    let from = number(query, "from", "a player's number")?.unwrap_or(0);
    let must_be = "a number from 1 to 1000";
    let count = number_in(query, "count", 1..=PAGE_PLAYERS_MAX, must_be)?.unwrap_or(PAGE_PLAYERS);
    Ok(Route::Players { zone: zone_of(zone)?, from, count: count as u32 })
}

fn game_route(zone: &str, name: &str, query: &str, schema: &ViewSchema) -> Result<Route, Problem> {
    let number_of_query = schema.queries.iter().position(|known| known.name == name);
    let number_of_query = number_of_query.ok_or(Problem::NoRoute)?;
    let keys: &[&str] = match schema.queries[number_of_query].is_incremental {
        true => &["since", "at", "wait_ms"],
        false => &["at", "wait_ms"],
    };
    takes(query, keys)?;
    let since = number(query, "since", "the number of an update")?.unwrap_or(0);
    Ok(Route::Game { zone: zone_of(zone)?, query: number_of_query, since })
}

fn board_query(board: &str, query: &str) -> Result<BoardQuery, Problem> {
    takes(query, &["from", "count", "around", "each_side", "at", "wait_ms"])?;
    let wrong = Problem::Parameter { name: "board", must_be: "a zone's number, or `world`" };
    let zone = if board == "world" { None } else { Some(whole(board).ok_or(wrong)?) };
    let places = match parameter(query, "around") {
        Some(player) => {
            let must_be = "a number from 0 to 49";
            let each_side = number_in(query, "each_side", 0..=EACH_SIDE_MAX, must_be)?;
            BoardPlaces::Around(player_of("around", &player)?, each_side.unwrap_or(5) as u32)
        }
        None => {
            let from = number_in(query, "from", 1..=u64::MAX, "a rank, 1 or more")?.unwrap_or(1);
            let must_be = "a number from 1 to 100";
            let count = number_in(query, "count", 1..=BOARD_PLACES_MAX, must_be)?;
            let count = count.unwrap_or(BOARD_PLACES) as u32;
            BoardPlaces::From(u32::try_from(from).unwrap_or(u32::MAX), count)
        }
    };
    Ok(BoardQuery { zone, places })
}

fn player_of(name: &'static str, text: &str) -> Result<u64, Problem> {
    let player = whole(text).filter(|player| *player != 0);
    player.ok_or(Problem::Parameter { name, must_be: "a player's number" })
}

fn zone_of(text: &str) -> Result<u16, Problem> {
    whole(text).ok_or(Problem::Parameter { name: "zone", must_be: "a zone's number" })
}

/// The zone and the update of a player's card that the client has.
fn after_of(text: &str) -> Result<(u16, u64), Problem> {
    let of = text.split_once(':').and_then(|(zone, update)| Some((whole(zone)?, whole(update)?)));
    of.ok_or(Problem::Parameter { name: "after", must_be: "zone:update, as in 3:1208" })
}

fn number(query: &str, name: &'static str, must_be: &'static str) -> Result<Option<u64>, Problem> {
    match parameter(query, name) {
        Some(text) => whole(&text).map(Some).ok_or(Problem::Parameter { name, must_be }),
        None => Ok(None),
    }
}

fn number_in(
    query: &str,
    name: &'static str,
    range: RangeInclusive<u64>,
    must_be: &'static str,
) -> Result<Option<u64>, Problem> {
    match number(query, name, must_be)? {
        Some(number) if !range.contains(&number) => Err(Problem::Parameter { name, must_be }),
        number => Ok(number),
    }
}

/// A number of digits alone.
fn whole<T: FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}
