//! A capture tells what the state was when it began, whatever the shard does meanwhile and however
//! the bytes are taken.

use huntd::engine::Shard;
use huntd::engine::checkpoint::CheckpointRead;
use huntd::engine::event::{Action, Event};
use huntd::engine::rules::rulebook::Rulebook;
use huntd::engine::update::{Update, Updates};
use huntd::service::rules::built_in;

/// More than some chunks of actors, and hunts that are over soon.
const PLAYERS: u64 = 1_000;

fn rulebook() -> Rulebook {
    let mut rules = built_in();
    rules.world.tiles_per_side = 32;
    rules.hunts.finish_treasures = 1;
    Rulebook::of(rules)
}

/// A seeded game in which everybody comes, walks, loots, leaves and comes again.
struct Game {
    state: u64,
    count: i64,
    hunts: u32,
    updates: Updates,
}

impl Game {
    fn new(seed: u64) -> Game {
        Game { state: seed * 2 + 1, count: 0, hunts: 0, updates: Updates::new() }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) % bound
    }

    fn event(&mut self) -> Event {
        self.count += 1;
        let player_id = 1 + self.below(PLAYERS);
        let (x, y) = (self.below(32_768) as i32, self.below(32_768) as i32);
        let action = match self.below(100) {
            0..40 => Action::Join { x, y },
            40..50 => Action::Move { x, y },
            50..60 => Action::Rotate { heading: self.below(36_000) as u16 },
            60..75 => Action::Loot { hunt: None },
            75..85 => Action::Shoot { weapon: 0, heading: None },
            85..95 => Action::Leave { to_zone: None },
            95..97 => {
                self.hunts += 1;
                let seed = self.state;
                Action::HuntStart { hunt: self.hunts, seed, treasures: 300, duration_ms: 4_000 }
            }
            _ => Action::Tick,
        };
        let (count, time_ms) = (self.count as u64, self.count * 5);
        Event { offset: self.count, time_ms, player_id, seq: count, ts_us: time_ms, action }
    }

    fn play(&mut self, shard: &mut Shard, events: u64) -> Vec<Update> {
        let mut told = Vec::new();
        for _ in 0..events {
            let event = self.event();
            self.updates.clear();
            shard.apply(&event, &mut self.updates);
            told.extend_from_slice(self.updates.as_slice());
        }
        told
    }
}

fn encoded(shard: &Shard) -> Vec<u8> {
    let mut bytes = Vec::new();
    shard.clone().encode_state(&mut bytes);
    bytes
}

/// Takes a capture in random pieces with random events between them.
fn captured_while_playing(game: &mut Game, shard: &mut Shard) -> Vec<u8> {
    let promised = shard.begin_checkpoint();
    let mut bytes = Vec::new();
    loop {
        let events = game.below(40);
        game.play(shard, events);
        let room = 8 * game.below(2_000) as usize;
        let bytes_max = bytes.len() + room;
        let captured = shard.write_checkpoint(&mut bytes, bytes_max);
        assert!(bytes.len() <= bytes_max);
        if captured == CheckpointRead::Done {
            assert_eq!(promised, bytes.len() as u64);
            return bytes;
        }
    }
}

#[test]
fn a_capture_is_the_state_at_its_beginning_whatever_happens_while_it_is_taken() {
    for seed in 0..30 {
        let mut game = Game::new(seed);
        let mut shard = Shard::new(0, &rulebook());
        for _ in 0..4 {
            let events = game.below(3_000);
            game.play(&mut shard, events);
            let (expected, digest) = (encoded(&shard), shard.digest());
            let captured = captured_while_playing(&mut game, &mut shard);
            assert!(captured == expected, "seed {seed}");
            let restored = Shard::decode_state(&captured, &rulebook()).expect("its own bytes");
            assert_eq!(restored.digest(), digest, "seed {seed}");
        }
    }
}

#[test]
fn a_shard_that_is_restored_from_a_capture_goes_on_like_the_captured_one() {
    for seed in 100..110 {
        let mut game = Game::new(seed);
        let mut shard = Shard::new(0, &rulebook());
        game.play(&mut shard, 4_000);
        let mut untouched = shard.clone();
        let (count, state, hunts) = (game.count, game.state, game.hunts);
        let captured = captured_while_playing(&mut game, &mut shard);
        let mut restored = Shard::decode_state(&captured, &rulebook()).expect("its own bytes");
        let again = || Game { count, state, hunts, updates: Updates::new() };
        let told = again().play(&mut untouched, 3_000);
        assert!(again().play(&mut restored, 3_000) == told, "seed {seed}");
        assert_eq!(restored.digest(), untouched.digest(), "seed {seed}");
        assert!(!told.is_empty());
    }
}

#[test]
fn a_capture_that_is_given_up_leaves_nothing_behind() {
    let mut game = Game::new(7);
    let mut shard = Shard::new(0, &rulebook());
    game.play(&mut shard, 4_000);
    let mut bytes = Vec::new();
    shard.begin_checkpoint();
    assert_eq!(shard.write_checkpoint(&mut bytes, 10_000), CheckpointRead::More);
    game.play(&mut shard, 500);
    shard.end_checkpoint();
    game.play(&mut shard, 500);
    let expected = encoded(&shard);
    assert!(captured_while_playing(&mut game, &mut shard) == expected);
    // A new one takes the place of one that was not told to its end.
    shard.begin_checkpoint();
    game.play(&mut shard, 500);
    let expected = encoded(&shard);
    assert!(captured_while_playing(&mut game, &mut shard) == expected);
}
