//! A property of every game: batches, and restarts from a stored state, change neither the updates
//! nor what clients see.

use crate::kit::engine::encode_state;
use crate::kit::event::Event;
use crate::kit::event_list::Events;
use crate::kit::rulebook::{GameRules, Rulebook};
use crate::kit::update::{Update, Updates};
use crate::kit::zone::Zone;
use crate::output::event_json::write_event;
use crate::testing::random::Random;
use crate::view::game::{ViewSchema, Viewed, ViewedGame, ZoneImage};
use crate::view::json::Json;
use crate::view::world::View;
use crate::view::zone::{ZonePosition, ZoneView};
use std::sync::Arc;

/// The zone that is played.
const ZONE: u16 = 3;

/// Events of a batch at most.
const BATCH_MAX: u64 = 200;

/// Plays events one by one, and again in batches that the seed decides, with a restart from a
/// stored state after each. A view of the zone follows the updates, and is held against one that
/// begins with the stored state. Returns the updates, or the first difference: the event, and what
/// repeats it.
pub fn prove<G: Viewed<Rules: GameRules<Game = G>>>(
    rules: &G::Rules,
    events: &[Event<G::Action>],
    seed: u64,
) -> Result<Vec<Update>, String> {
    let rulebook = Rulebook::of(rules.clone());
    let (mut single, mut batched) =
        (Zone::<G>::new(ZONE, &rulebook), Zone::<G>::new(ZONE, &rulebook));
    let (mut random, mut watched) = (Random::new(seed), Watched::new(&rulebook));
    let (mut made, mut updates, mut expected) = (Vec::new(), Updates::new(), Updates::new());
    let packed = events.iter().copied().collect::<Events>();
    let mut applied = 0;
    while applied < events.len() {
        let fails = |at: usize, what: String| {
            let Event { player_id, seq, ts_us, ref action, .. } = events[at];
            let mut event = Vec::new();
            write_event(&mut event, player_id, seq, ts_us, action);
            let event = String::from_utf8_lossy(&event).into_owned();
            format!(
                "event {at}, {event}: {what}. The zone was last restarted before event {applied}; \
                 `prove` of the same events with seed {seed} repeats it"
            )
        };
        updates.clear();
        let left = (events.len() - applied) as u64;
        let batch = applied..applied + 1 + random.below(left.min(BATCH_MAX)) as usize;
        let end = applied + batched.apply_all(&packed, batch, &mut updates, |_, _, _| {});
        let mut rest = updates.as_slice();
        for (at, event) in (applied..end).zip(&events[applied..]) {
            expected.clear();
            single.apply(event, &mut expected);
            let expected = expected.as_slice();
            let Some(after) = rest.strip_prefix(expected) else {
                let again = &rest[..rest.len().min(expected.len().max(1))];
                let [once, again] = [expected, again].map(json::<G>);
                return Err(fails(at, format!("the updates differ: {once}, and again {again}")));
            };
            made.extend_from_slice(expected);
            rest = after;
        }
        let fails = |what| fails(end - 1, what);
        batched = restarted(&mut batched, &rulebook).map_err(fails)?;
        if single.digest() != batched.digest() {
            return Err(fails("the states differ after it: something is not stored".to_owned()));
        }
        let position = ZonePosition { update: made.len() as u64, next_offset: end as i64 };
        let image = ZoneImage::of(&batched);
        let goes_on = random.below(2) == 0;
        watched.check(updates.as_slice(), image, position, goes_on).map_err(fails)?;
        applied = end;
    }
    Ok(made)
}

/// The zone that a stored state of this one is restored to.
fn restarted<G: Viewed>(
    zone: &mut Zone<G>,
    rulebook: &Rulebook<G::Rules>,
) -> Result<Zone<G>, String> {
    let mut bytes = Vec::new();
    encode_state(zone, &mut bytes);
    Zone::decode_state(&bytes, rulebook)
        .map_err(|error| format!("the state after it is refused: {error}"))
}

fn json<G: Viewed>(updates: &[Update]) -> String {
    let mut text = Vec::new();
    G::SCHEMA.game.updates.write(updates, &mut text);
    format!("[{}]", String::from_utf8_lossy(&text))
}

/// A view that follows the updates of the zone.
struct Watched {
    rules: Arc<dyn ViewedGame>,
    view: View,
}

impl Watched {
    fn new<R: GameRules<Game: Viewed>>(rulebook: &Rulebook<R>) -> Watched {
        let rules: Arc<dyn ViewedGame> = Arc::new(rulebook.clone());
        let mut watched = Watched { view: Watched::empty(&*rules), rules };
        watched.view.put(ZoneView::new(ZONE, watched.rules.clone(), ZonePosition::default()));
        watched
    }

    fn empty(rules: &dyn ViewedGame) -> View {
        View::new(usize::from(ZONE) + 1, rules.players_max() as usize)
    }

    /// Folds updates, after which the zone is as in the image: a view that begins with it shows the
    /// same. One of the two goes on.
    fn check(
        &mut self,
        updates: &[Update],
        image: ZoneImage,
        position: ZonePosition,
        goes_on: bool,
    ) -> Result<(), String> {
        let cannot = |error| format!("a view cannot follow its updates: {error}");
        self.view.fold(ZONE, updates).map_err(cannot)?;
        self.view.seal(ZONE, position.next_offset);
        let mut later = Watched::empty(&*self.rules);
        later.put(ZoneView::of_engine(image, self.rules.clone(), position));
        let shown = |view: &View| shown(view.zone(ZONE).expect("it was put there"), &*self.rules);
        let (followed, restored) = (shown(&self.view), shown(&later));
        let mut both = followed.iter().zip(&restored);
        if let Some((followed, restored)) = both.find(|(followed, restored)| followed != restored) {
            return Err(format!(
                "a view that has followed the updates shows {followed}, and one of the stored \
                 state {restored}"
            ));
        }
        if !goes_on {
            self.view = later;
        }
        Ok(())
    }
}

/// Returns what clients see of the zone, without the times of events: its line in the list of
/// zones, the answers to queries that have no history, and the cards by player.
fn shown(zone: &ZoneView, rules: &dyn ViewedGame) -> Vec<String> {
    let schema: &'static ViewSchema = rules.view_schema();
    let write = |name: &str, write: &dyn Fn(&mut Json)| {
        let mut text = Vec::new();
        Json::object(&mut text, write);
        format!("{name} {}", String::from_utf8_lossy(&text))
    };
    let game = zone.game();
    let mut players: Vec<u64> = zone.cards().map(|card| card.player_id).collect();
    players.sort_unstable();
    let mut shown = vec![format!("the players {players:?}")];
    shown.push(write("the zone", &|json| game.write_zone(json)));
    for (number, query) in schema.queries.iter().enumerate() {
        if !query.is_incremental {
            let answer = |json: &mut Json| game.answer(number, 0, zone.now_ms(), json);
            shown.push(write(query.name, &answer));
        }
    }
    for player_id in players {
        let (row, card) = zone.card(player_id).expect("it is in the zone");
        let polled = game.poll(schema, row, card);
        let card = |json: &mut Json| {
            json.number("score", card.score);
            game.write_card(schema, row, card, json);
        };
        shown.push(format!("{}, polled {polled:?}", write(&format!("player {player_id}"), &card)));
    }
    shown
}
