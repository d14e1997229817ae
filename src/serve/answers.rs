//! Answers from the view, as JSON. Two views at one position give identical bytes.

use crate::kit::update::Update;
use crate::serve::counts::ServeCounts;
use crate::serve::feed_messages::FeedWatch;
use crate::serve::lag::Lag;
use crate::serve::openapi;
use crate::serve::problem::Problem;
use crate::serve::routes::{At, BoardPlaces, BoardQuery, PlayerQuery, Route};
use crate::serve::zone_players;
use crate::view::board::Place;
use crate::view::card::Card;
use crate::view::game::{POLL_FIELDS, ViewSchema, ViewedGame};
use crate::view::json::Json;
use crate::view::world::View;
use crate::view::zone::{ZonePosition, ZoneView};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Bytes of a poll at least. Most have no more, so the next one is as long as the last.
pub(super) const POLL_BYTES_MIN: usize = 50;

/// The view of all zones, and the state of each.
pub struct Served {
    /// All that is known.
    pub view: View,
    /// The tables of the game.
    schema: &'static ViewSchema,
    /// The document of all routes, once it was asked for.
    openapi: OnceLock<String>,
    /// By partition.
    pub zones: Vec<ZoneState>,
    /// By partition: whether the input topic is another one than the zone is played from.
    is_input_another: Vec<bool>,
    /// The record after which a zone is shown, in a process that shows one.
    pub(crate) as_of: Option<AsOf>,
    /// Counters of this process.
    pub counts: ServeCounts,
    /// Watches the feed thread, without which the view stops.
    pub(crate) feed: FeedWatch,
    /// For how long an owner may be silent before its zone is stale.
    owner_silence_max: Duration,
    /// The time of this turn.
    now: Instant,
}

/// The record of the input after which a zone is shown for ever.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AsOf {
    /// The zone.
    pub zone: u16,
    /// The record's input offset.
    pub offset: i64,
    /// The record's timestamp, in milliseconds since the Unix epoch.
    pub time_ms: i64,
}

/// The state of a zone that an answer is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// The zone.
    pub zone: u16,
    /// Its position.
    pub position: ZonePosition,
    /// Milliseconds since its owner was heard, if the zone is stale.
    pub stale_ms: Option<u64>,
}

/// The state of a zone in this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZoneState {
    /// It has no state yet.
    Loading,
    /// It follows the log.
    Live {
        /// The owner epoch in force.
        owner_epoch: u64,
        /// Its lag.
        lag: Lag,
    },
    /// It cannot go on.
    Halted(String),
}

/// A whole answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// JSON, about a zone at this moment if it is about one.
    Json(Option<Moment>),
    /// Nothing changed since.
    Unchanged(Moment),
    /// The zone is within a frame, or has not reached the position yet: ask again after its next
    /// frame.
    NotYet(u16),
}

impl Served {
    /// Creates the state of a process that serves so many zones of a game. None is loaded yet.
    pub fn new(game: &dyn ViewedGame, zones: usize, owner_silence_max: Duration) -> Served {
        Served {
            view: View::new(zones, zones * game.players_max() as usize),
            schema: game.view_schema(),
            openapi: OnceLock::new(),
            zones: vec![ZoneState::Loading; zones],
            is_input_another: vec![false; zones],
            as_of: None,
            counts: ServeCounts::new(),
            feed: FeedWatch::default(),
            owner_silence_max,
            now: Instant::now(),
        }
    }

    /// Returns the tables of the game.
    pub(crate) fn schema(&self) -> &'static ViewSchema {
        self.schema
    }

    /// Answers are of this time from now on.
    pub(crate) fn pass_time(&mut self, now: Instant) {
        self.now = now;
    }

    /// Returns the time of this turn.
    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// Starts a zone, in place of what was known of it.
    pub fn begin(&mut self, zone: ZoneView) {
        if !self.is_halted(zone.partition()) {
            self.view.put(zone);
        }
    }

    /// Halts a zone. Its players are on no board any more.
    pub(crate) fn halt(&mut self, zone: u16, sentence: String) {
        tracing::error!(zone, "halted: {sentence}");
        self.zones[usize::from(zone)] = ZoneState::Halted(sentence);
        self.view.take(zone);
    }

    /// Folds the next updates of a zone; no answer is made of it until its frame is sealed.
    pub fn fold(&mut self, zone: u16, updates: &[Update]) {
        if self.is_halted(zone) {
            return;
        }
        if let Err(error) = self.view.fold(zone, updates) {
            self.halt(zone, error.to_string());
        }
    }

    /// The updates of a frame that was published this many milliseconds ago were folded: the zone
    /// has come up to this input offset.
    pub fn seal(&mut self, zone: u16, next_offset: i64, owner_epoch: u64, frame_ms: u64) {
        self.view.seal(zone, next_offset);
        if let ZoneState::Live { owner_epoch: present, lag } = &mut self.zones[usize::from(zone)] {
            *present = owner_epoch;
            lag.folded(frame_ms, self.now);
        }
    }

    /// The owner of the zone has published at this time, but nothing new.
    pub(crate) fn hear_owner(&mut self, zone: u16, owner_epoch: u64, published: Instant) {
        if let ZoneState::Live { owner_epoch: present, lag } = &mut self.zones[usize::from(zone)] {
            *present = owner_epoch;
            lag.heard(published);
        }
    }

    /// All before the end that the zone's log had at this time is folded.
    pub(crate) fn confirm(&mut self, zone: u16, asked: Instant) {
        if let ZoneState::Live { lag, .. } = &mut self.zones[usize::from(zone)] {
            lag.confirmed(asked, self.now);
        }
    }

    /// The zone has come to its log's end. `owner_heard`: when its owner published the last frame
    /// or fence that was read; `None`: none was read.
    pub fn live(&mut self, zone: u16, owner_epoch: u64, owner_heard: Option<Instant>) {
        let now = self.now;
        match &mut self.zones[usize::from(zone)] {
            ZoneState::Halted(_) => {}
            ZoneState::Live { owner_epoch: present, .. } => *present = owner_epoch,
            loading @ ZoneState::Loading => {
                let lag = Lag::of_owner_heard(owner_heard.unwrap_or(now), now);
                *loading = ZoneState::Live { owner_epoch, lag };
            }
        }
    }

    /// The input topic is another one than the zone is played from, or is that one again.
    pub(crate) fn set_input(&mut self, zone: u16, is_another: bool) {
        self.is_input_another[usize::from(zone)] = is_another;
        match is_another {
            true => tracing::error!(
                zone,
                "the input topic was deleted and created again, so no events are taken for the \
                 zone; start it over with `huntd run --genesis`"
            ),
            false => tracing::info!(zone, "the zone is played from the present input topic"),
        }
    }

    /// Returns whether the zone is played from another topic than the present input.
    pub(crate) fn is_input_another(&self, zone: u16) -> bool {
        self.is_input_another.get(usize::from(zone)) == Some(&true)
    }

    /// Returns the milliseconds since the owner of a zone was heard, if the zone is stale.
    pub(crate) fn stale_ms(&self, zone: u16) -> Option<u64> {
        match self.zones.get(usize::from(zone))? {
            ZoneState::Live { lag, .. } => lag.stale_ms(self.now, self.owner_silence_max),
            ZoneState::Loading | ZoneState::Halted(_) => None,
        }
    }

    /// Returns the milliseconds until a live zone is stale if its owner is not heard.
    pub(crate) fn stale_in_ms(&self, zone: u16) -> Option<u64> {
        match self.zones.get(usize::from(zone))? {
            ZoneState::Live { lag, .. } if self.stale_ms(zone).is_none() => {
                let left = lag.stale_at(self.owner_silence_max).saturating_duration_since(self.now);
                Some(left.as_millis() as u64 + 1)
            }
            _ => None,
        }
    }

    /// Returns the moment of answers about a zone.
    pub(crate) fn moment(&self, zone: &ZoneView) -> Moment {
        let (position, zone) = (zone.position(), zone.partition());
        Moment { zone, position, stale_ms: self.stale_ms(zone) }
    }

    fn is_halted(&self, zone: u16) -> bool {
        matches!(self.zones[usize::from(zone)], ZoneState::Halted(_))
    }

    /// Writes the answer to a route.
    pub(crate) fn answer(&self, route: &Route, out: &mut Vec<u8>) -> Result<Answer, Problem> {
        match route {
            Route::Player(query) => self.player(query, card, out),
            Route::Poll(query) => self.player(query, poll, out),
            Route::Board(query) => self.board(query, out),
            Route::Zones => Ok(self.all_zones(out)),
            Route::Game { zone, query, since } => self.of_zone(*zone, out, |served, zone, out| {
                Json::object(out, |json| {
                    at(json, served.moment(zone));
                    zone.game().answer(*query, *since, zone.now_ms(), json);
                });
            }),
            Route::Players { zone, from, count } => {
                self.of_zone(*zone, out, |served, zone, out| {
                    zone_players::write(served, zone, *from, *count, out);
                })
            }
            Route::OpenApi => {
                let openapi = self.openapi.get_or_init(|| openapi::document(self.schema));
                out.extend_from_slice(openapi.as_bytes());
                Ok(Answer::Json(None))
            }
        }
    }

    /// Returns whether a zone has reached a position.
    pub(crate) fn has_reached(&self, at: &At) -> Result<bool, Problem> {
        let zone = self.zone(at.zone)?;
        Ok(zone.position().next_offset >= at.next_offset)
    }

    /// The input offset that a zone has come to; the last one there is if it is halted, as it comes
    /// no further. `None`: it is within a frame.
    pub(crate) fn reached(&self, zone: u16) -> Option<i64> {
        if self.is_halted(zone) {
            return Some(i64::MAX);
        }
        let known = self.view.zone(zone).filter(|known| !known.is_within_frame())?;
        Some(known.position().next_offset)
    }

    /// A zone that can answer, unless it is within a frame.
    pub(crate) fn zone(&self, zone: u16) -> Result<&ZoneView, Problem> {
        match self.zones.get(usize::from(zone)) {
            None => Err(Problem::ZoneUnknown(zone)),
            Some(ZoneState::Loading) => Err(Problem::ZoneLoading(zone)),
            Some(ZoneState::Halted(sentence)) => {
                Err(Problem::ZoneHalted { zone, sentence: sentence.clone() })
            }
            Some(ZoneState::Live { .. }) => self.view.zone(zone).ok_or(Problem::ZoneLoading(zone)),
        }
    }

    fn of_zone(
        &self,
        zone: u16,
        out: &mut Vec<u8>,
        write: impl FnOnce(&Served, &ZoneView, &mut Vec<u8>),
    ) -> Result<Answer, Problem> {
        let known = self.zone(zone)?;
        if known.is_within_frame() {
            return Ok(Answer::NotYet(zone));
        }
        write(self, known, out);
        Ok(Answer::Json(Some(self.moment(known))))
    }

    fn player(
        &self,
        query: &PlayerQuery,
        write: fn(&Served, &ZoneView, (u32, &Card), &mut Vec<u8>),
        out: &mut Vec<u8>,
    ) -> Result<Answer, Problem> {
        let PlayerQuery { player_id, zone, after } = *query;
        let zone = match zone {
            Some(zone) => self.zone(zone)?,
            None => self.zone(self.zone_of(player_id)?)?,
        };
        if zone.is_within_frame() {
            return Ok(Answer::NotYet(zone.partition()));
        }
        let found = zone.card(player_id).ok_or(Problem::PlayerNotHere)?;
        let moment = self.moment(zone);
        // Numbers of another zone's updates say nothing about this one's.
        let is_known = |(of, update)| of == zone.partition() && found.1.changed <= update;
        if after.is_some_and(is_known) {
            return Ok(Answer::Unchanged(moment));
        }
        write(self, zone, found, out);
        Ok(Answer::Json(Some(moment)))
    }

    /// Returns the zone that a player is in.
    pub(crate) fn zone_of(&self, player_id: u64) -> Result<u16, Problem> {
        if let Some(zone) = self.view.zone_of(player_id) {
            return Ok(zone.partition());
        }
        // It may be in a zone of which nothing is known here.
        let unknown = (0..).zip(&self.zones).find_map(|(zone, _)| self.zone(zone).err());
        Err(unknown.unwrap_or(Problem::PlayerNotHere))
    }

    fn board(&self, query: &BoardQuery, out: &mut Vec<u8>) -> Result<Answer, Problem> {
        let Some(partition) = query.zone else {
            return self.world_board(query.places, out);
        };
        let zone = self.zone(partition)?;
        if zone.is_within_frame() {
            return Ok(Answer::NotYet(partition));
        }
        let players = u64::from(zone.players());
        match query.places {
            BoardPlaces::From(rank, count) => {
                board(players, zone.places(rank, count), out, |json| at(json, self.moment(zone)));
            }
            BoardPlaces::Around(player_id, each_side) => {
                let places = zone.places_around(player_id, each_side);
                let places = places.ok_or(Problem::PlayerNotHere)?;
                board(players, places, out, |json| at(json, self.moment(zone)));
            }
        }
        Ok(Answer::Json(Some(self.moment(zone))))
    }

    /// Returns [`Answer::NotYet`] if a zone is within a frame, so that no answer about all zones
    /// can be made.
    fn within_frame(&self) -> Option<Answer> {
        let zone = self.view.zones().find(|zone| zone.is_within_frame())?;
        Some(Answer::NotYet(zone.partition()))
    }

    /// One prefix of the log of each zone that the view knows, so it names all their positions.
    fn world_board(&self, places: BoardPlaces, out: &mut Vec<u8>) -> Result<Answer, Problem> {
        if let Some(not_yet) = self.within_frame() {
            return Ok(not_yet);
        }
        let positions = |json: &mut Json| {
            json.objects("zones", self.view.zones(), |json, zone| {
                json.number("zone", zone.partition().into());
                at(json, self.moment(zone));
            });
        };
        let players = u64::from(self.view.players());
        match places {
            BoardPlaces::From(rank, count) => {
                board(players, self.view.places(rank, count), out, positions);
            }
            BoardPlaces::Around(player_id, each_side) => {
                let places = self.view.places_around(player_id, each_side);
                board(players, places.ok_or(Problem::PlayerNotHere)?, out, positions);
            }
        }
        Ok(Answer::Json(None))
    }

    fn all_zones(&self, out: &mut Vec<u8>) -> Answer {
        if let Some(not_yet) = self.within_frame() {
            return not_yet;
        }
        Json::object(out, |json| {
            json.objects("zones", (0..).zip(&self.zones), |json, (zone, state)| {
                let zone = zone as u16;
                json.number("zone", zone.into());
                match state {
                    ZoneState::Loading => {
                        json.text("state", "loading");
                    }
                    ZoneState::Halted(sentence) => {
                        json.text("state", "halted").text("sentence", sentence);
                    }
                    ZoneState::Live { owner_epoch, lag } => {
                        let stale_ms = self.stale_ms(zone);
                        json.text("state", if stale_ms.is_some() { "stale" } else { "live" });
                        json.number("owner_epoch", *owner_epoch);
                        json.number("lag_ms", lag.ms(self.now));
                        let as_of = self.as_of.filter(|as_of| as_of.zone == zone);
                        if let Some(AsOf { offset, time_ms, .. }) = as_of {
                            json.object_at("as_of", |json| {
                                json.signed("offset", offset).signed("time_ms", time_ms);
                            });
                        }
                    }
                }
                if let Some(zone) = self.view.zone(zone) {
                    at(json, self.moment(zone));
                    json.number("players", zone.players().into());
                    json.signed("now_ms", zone.now_ms());
                    json.number("ruleset", zone.ruleset().into());
                    zone.game().write_zone(json);
                }
            });
        });
        Answer::Json(None)
    }
}

/// The moment of a zone that a part of an answer is of.
pub(super) fn at(json: &mut Json, moment: Moment) {
    let Moment { position: ZonePosition { update, next_offset }, stale_ms, .. } = moment;
    json.object_at("at", |json| {
        json.number("update", update).signed("offset", next_offset);
        if let Some(stale_ms) = stale_ms {
            json.number("stale_ms", stale_ms);
        }
    });
}

fn card(served: &Served, zone: &ZoneView, (row, card): (u32, &Card), out: &mut Vec<u8>) {
    let Card { player_id, score, .. } = *card;
    let rank = |place: Option<Place>| place.map_or(0, |place| place.rank.into());
    Json::object(out, |json| {
        json.id("player_id", player_id).number("zone", zone.partition().into());
        at(json, served.moment(zone));
        json.number("score", score).number("rank", rank(zone.place(player_id)));
        json.number("world_rank", rank(served.view.place(player_id)));
        zone.game().write_card(served.schema, row, card, json);
    });
}

fn poll(served: &Served, zone: &ZoneView, (row, card): (u32, &Card), out: &mut Vec<u8>) {
    let [first, second, third, fourth] = zone.game().poll(served.schema, row, card);
    write_poll(
        [
            zone.position().update.cast_signed(),
            zone.partition().into(),
            card.score.cast_signed(),
            (zone.rank(row) + 1).into(),
            first,
            second,
            third,
            fourth,
        ],
        out,
    );
}

/// Writes a poll. The names of its numbers would take more bytes than they do.
pub(super) fn write_poll(numbers: [i64; 4 + POLL_FIELDS], out: &mut Vec<u8>) {
    let begin = out.len();
    Json::row(out, &numbers);
    out.resize(out.len().max(begin + POLL_BYTES_MIN), b' ');
}

fn board(
    players: u64,
    places: impl Iterator<Item = Place>,
    out: &mut Vec<u8>,
    positions: impl FnOnce(&mut Json),
) {
    Json::object(out, |json| {
        positions(json);
        json.number("players", players);
        json.objects("places", places, |json, place| {
            json.number("rank", place.rank.into()).id("player_id", place.player_id);
            json.number("score", place.score).signed("scored_at_ms", place.scored_at_ms);
            json.number("zone", place.zone.into());
        });
    });
}
