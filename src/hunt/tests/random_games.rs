//! Random games, checked after every event against models that are too simple to be wrong.

use crate::hunt::change::{Change, UPDATES};
use crate::hunt::event::{Action, Event};
use crate::hunt::hunts::{HUNTS_MAX, Treasure};
use crate::hunt::refusal::Hint;
use crate::hunt::rules::Rules;
use crate::hunt::rules::rulebook::Rulebook;
use crate::hunt::*;
use crate::kit::checkpoint::CheckpointRead;
use crate::kit::engine::encode_state;
use crate::kit::update::{EVENT_UPDATES_MAX, Update, Updates};
use crate::testing::random::Random;
use crate::testing::random_game::{RandomGame, Setting};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

/// The usual rules on a small map with some walls, chosen so that much happens soon.
fn small_rules() -> Rules {
    let mut rules = rules::tests::sample();
    rules.world.tiles_per_side = 16;
    rules.world.walls = vec![0x0000_1ff0_0000_0404, 0x8080_0000_7f00_0000, 0, 0x3c3c];
    rules.actors.count_max = 12;
    rules.actors.per_tile_max = 3;
    rules.actors.respawn_ms = 300;
    rules.hunts.finish_treasures = 2;
    rules.weapons[0].damage = 60;
    rules.weapons[0].reload_ms = 50;
    rules
}

/// Random events, most of them effective. Each is generated from its own seed, so that a failing
/// game can be shortened event by event.
fn events(count: usize) -> impl Strategy<Value = Vec<Event>> {
    prop::collection::vec(any::<u64>(), 1..count).prop_map(|seeds| {
        let setting =
            Setting { players: 16, edge_one_in: 100, ..Setting::of(&Rulebook::of(small_rules())) };
        let mut game = RandomGame::new(setting);
        let event = |seed| {
            let mut random = Random::new(seed);
            game.event(&mut |bound| random.below(bound))
        };
        seeds.into_iter().map(event).collect()
    })
}

fn play(shard: &mut Shard, events: &[Event]) -> Vec<Update> {
    let mut published = Vec::new();
    for event in events {
        let mut updates = Updates::new();
        shard.apply(event, &mut updates);
        published.extend_from_slice(updates.as_slice());
    }
    published
}

fn new_shard() -> Shard {
    Shard::new(1, &Rulebook::of(small_rules()))
}

fn check(shard: &Shard) {
    check_tiles(shard);
    check_treasures(shard);
    for slot in 0..HUNTS_MAX {
        check_paths(shard, slot);
    }
}

fn check_tiles(shard: &Shard) {
    let mut standing = BTreeMap::<u32, Vec<u32>>::new();
    for row in (0..shard.game.actors.bodies.used())
        .filter(|row| shard.game.actors.body(*row).player_id != 0)
    {
        let body = shard.game.actors.body(row);
        let tile = shard.game.tiles.at(body.x(), body.y()).expect("an actor stands on the map");
        assert!(!shard.game.tiles.is_wall(tile));
        standing.entry(tile).or_default().push(row);
    }
    for tile in 0..shard.game.tiles.count() {
        let mut listed: Vec<u32> = shard.game.tiles.actors(tile).collect();
        listed.sort_unstable();
        assert_eq!(listed.len(), usize::from(shard.game.tiles.actors_on(tile)));
        assert_eq!(listed, standing.remove(&tile).unwrap_or_default());
    }
}

fn check_treasures(shard: &Shard) {
    let mut lying = 0;
    for slot in 0..HUNTS_MAX {
        let hunt = shard.game.hunts.hunt(slot);
        let treasures = (0..hunt.tried).map(|number| shard.game.hunts.treasure(slot, number));
        let treasures: Vec<Treasure> = treasures.collect();
        let opened =
            treasures.iter().filter(|treasure| matches!(treasure, Treasure::Opened(_))).count();
        if hunt.running() {
            assert_eq!(opened, usize::from(hunt.opened));
        }
        for (number, treasure) in treasures.iter().enumerate() {
            if let Treasure::Lies(tile) = treasure {
                let key = shard.game.tiles.treasure(*tile).expect("what lies is on its tile");
                assert_eq!((usize::from(key.slot), usize::from(key.number)), (slot, number));
                lying += 1;
            }
        }
    }
    let on_tiles =
        (0..shard.game.tiles.count()).filter(|tile| shard.game.tiles.treasure(*tile).is_some());
    assert_eq!(on_tiles.count(), lying);
}

/// Distance from every tile to the nearest unopened treasure, by a simple search.
fn distances(shard: &Shard, slot: usize) -> BTreeMap<u32, u16> {
    let mut found = BTreeMap::new();
    let mut queue = VecDeque::new();
    for number in 0..shard.game.hunts.hunt(slot).tried {
        if let Treasure::Lies(tile) = shard.game.hunts.treasure(slot, number) {
            found.insert(tile, 0);
            queue.push_back(tile);
        }
    }
    while let Some(tile) = queue.pop_front() {
        for near in near(shard, tile) {
            if !shard.game.tiles.is_wall(near) && !found.contains_key(&near) {
                found.insert(near, found[&tile] + 1);
                queue.push_back(near);
            }
        }
    }
    found
}

fn near(shard: &Shard, tile: u32) -> Vec<u32> {
    let (column, row) = shard.game.tiles.place(tile);
    let steps = [(1, 0), (0, 1), (-1, 0), (0, -1)];
    steps.iter().filter_map(|(x, y)| shard.game.tiles.numbered(column + x, row + y)).collect()
}

/// Checks that every hint is exact or stale. Returns the number of exact ones.
fn check_paths(shard: &Shard, slot: usize) -> usize {
    if shard.game.hunts.hunt(slot).phase != hunts::HuntPhase::Open {
        return 0;
    }
    let distances = distances(shard, slot);
    let lies = |tile| {
        shard
            .game
            .tiles
            .treasure(tile)
            .is_some_and(|key: tiles::TreasureKey| usize::from(key.slot) == slot)
    };
    // Hints are about the running hunt with the lowest number.
    let running = (0..HUNTS_MAX).filter(|slot| shard.game.hunts.hunt(*slot).running());
    let is_told = running.min_by_key(|slot| shard.game.hunts.hunt(*slot).hunt) == Some(slot);
    let mut exact = 0;
    for tile in 0..shard.game.tiles.count() {
        let (hint, distance) = shard.game.hunts.paths[slot].hint(&shard.game.tiles, tile, lies);
        if is_told {
            assert_eq!(shard.hint(tile), Some((slot, hint, distance)));
        }
        let (column, row) = shard.game.tiles.place(tile);
        let (x, y) = match hint {
            Hint::Stale => continue,
            Hint::Here => (0, 0),
            Hint::East => (1, 0),
            Hint::North => (0, 1),
            Hint::West => (-1, 0),
            Hint::South => (0, -1),
        };
        exact += 1;
        assert_eq!(distances[&tile], distance);
        let next = shard.game.tiles.numbered(column + x, row + y).expect("a hint stays on the map");
        let left = if hint == Hint::Here { 0 } else { distance - 1 };
        assert_eq!(distances[&next], left);
    }
    exact
}

fn tick(id: u64) -> Event {
    Event { offset: 0, time_ms: 9, player_id: 0, seq: id, ts_us: 0, action: Action::Tick }
}

#[test]
fn when_nothing_is_opened_for_a_while_every_way_is_known() {
    let mut shard = new_shard();
    let action = Action::HuntStart { hunt: 1, seed: 3, treasures: 30, duration_ms: 1000 };
    play(&mut shard, &[Event { action, ..tick(1) }]);
    play(&mut shard, &(1..20).map(tick).collect::<Vec<_>>());
    let all = distances(&shard, 0).len();
    assert_eq!(check_paths(&shard, 0), all);
    assert!(all > 200);
}

#[test]
fn a_hunt_that_is_over_leaves_nothing_behind() {
    let mut shard = new_shard();
    let action = Action::HuntStart { hunt: 1, seed: 3, treasures: 30, duration_ms: 1000 };
    play(&mut shard, &[Event { action, ..tick(1) }]);
    play(&mut shard, &(1..20).map(tick).collect::<Vec<_>>());
    play(&mut shard, &[Event { action: Action::HuntEnd { hunt: 1 }, ..tick(2) }]);
    play(&mut shard, &(20..40).map(tick).collect::<Vec<_>>());
    let mut fresh = hunts::Hunts::new(shard.game.tiles.count());
    fresh.last_hunt = 1;
    assert_eq!(shard.game.hunts.digest(), fresh.digest());
    check(&shard);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn whatever_happens_the_models_agree_and_one_event_makes_few_updates(events in events(200)) {
        let mut shard = new_shard();
        for event in &events {
            let mut updates = Updates::new();
            let outcome = shard.apply(event, &mut updates);
            prop_assert!(updates.len() <= EVENT_UPDATES_MAX);
            for update in updates.as_slice() {
                prop_assert_eq!(UPDATES.update(update.words()), Some(*update));
            }
            let refused = updates.as_slice().iter().filter(|update| {
                matches!(update.change(), Change::Refused { .. })
            });
            let refusals = usize::from(matches!(outcome, Outcome::Refused(_)));
            prop_assert_eq!(refused.count(), refusals);
            check(&shard);
        }
    }

    /// Reading a state computes every hash again, so this also shows that the digest maintained
    /// from event to event is the digest of the state.
    #[test]
    fn a_run_that_is_split_by_its_encoded_state_goes_on_the_same(
        events in events(200), split: prop::sample::Index,
    ) {
        let (before, after) = events.split_at(split.index(events.len()));
        let mut whole = new_shard();
        play(&mut whole, before);
        let mut bytes = Vec::new();
        encode_state(&mut whole, &mut bytes);
        let mut restored = Shard::decode_state(&bytes, &whole.rulebook).unwrap();
        prop_assert_eq!(restored.digest(), whole.digest());
        prop_assert_eq!(play(&mut restored, after), play(&mut whole, after));
        prop_assert_eq!(restored.digest(), whole.digest());
    }

    #[test]
    fn a_checkpoint_that_is_taken_between_events_is_the_state_at_its_beginning(
        events in events(200), split: prop::sample::Index, pieces: [u8; 8],
    ) {
        let (before, after) = events.split_at(split.index(events.len()));
        let mut shard = new_shard();
        play(&mut shard, before);
        let (mut expected, mut bytes) = (Vec::new(), Vec::new());
        encode_state(&mut shard.clone(), &mut expected);
        let promised = shard.begin_checkpoint();
        let mut pieces = pieces.iter().cycle();
        let mut after = after.iter();
        loop {
            if let Some(event) = after.next() {
                play(&mut shard, std::slice::from_ref(event));
            }
            let bytes_max = bytes.len() + usize::from(*pieces.next().unwrap()) * 4 / 8 * 8 + 8;
            if shard.write_checkpoint(&mut bytes, bytes_max) == CheckpointRead::Done {
                break;
            }
        }
        prop_assert_eq!(promised, bytes.len() as u64);
        prop_assert!(bytes == expected);
    }

    #[test]
    fn a_state_with_a_changed_bit_in_any_word_or_a_missing_end_is_not_read(
        events in events(60), bits: [u8; 16], cut: prop::sample::Index,
    ) {
        let mut shard = new_shard();
        play(&mut shard, &events);
        let mut bytes = Vec::new();
        encode_state(&mut shard, &mut bytes);
        let short = &bytes[..cut.index(bytes.len())];
        prop_assert!(Shard::decode_state(short, &shard.rulebook).is_err());
        // Words far from the start are all of the same kind.
        let words = (bytes.len() / 8).min(800);
        for (word, bit) in (0..words).zip(bits.iter().cycle()) {
            let at = word * 8 + usize::from(bit / 8 % 8);
            bytes[at] ^= 1 << (bit % 8);
            prop_assert!(Shard::decode_state(&bytes, &shard.rulebook).is_err(), "word {word}");
            bytes[at] ^= 1 << (bit % 8);
        }
    }
}
