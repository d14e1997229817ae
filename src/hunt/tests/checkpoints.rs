//! A checkpoint holds the state at its start, whatever the shard does in the meantime, and however
//! the bytes are read.

use crate::hunt::Shard;
use crate::hunt::event::ActionKind;
use crate::hunt::rules::rulebook::Rulebook;
use crate::hunt::rules_file::built_in;
use crate::kit::checkpoint::CheckpointRead;
use crate::kit::engine::encode_state;
use crate::kit::update::{Update, Updates};
use crate::testing::random::Random;
use crate::testing::random_game::{RandomGame, Setting};

/// More than a few chunks of actors, and hunts that end soon.
const PLAYERS: u64 = 1_000;

fn rulebook() -> Rulebook {
    let mut rules = built_in();
    rules.world.tiles_per_side = 32;
    rules.hunts.finish_treasures = 1;
    Rulebook::of(rules)
}

/// A game with many players, who all join, leave and join again.
#[derive(Clone)]
struct Game {
    random: Random,
    events: RandomGame,
}

impl Game {
    fn new(seed: u64) -> Game {
        let weights = &[(ActionKind::Leave, 20), (ActionKind::HuntStart, 4)];
        let setting = Setting { players: PLAYERS, weights, ..Setting::of(&rulebook()) };
        Game { random: Random::new(seed), events: RandomGame::new(setting) }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    fn play(&mut self, shard: &mut Shard, events: u64) -> Vec<Update> {
        let (mut published, mut updates) = (Vec::new(), Updates::new());
        for _ in 0..events {
            let event = self.events.event(&mut |bound| self.random.below(bound));
            updates.clear();
            shard.apply(&event, &mut updates);
            published.extend_from_slice(updates.as_slice());
        }
        published
    }
}

fn encoded(shard: &Shard) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_state(&mut shard.clone(), &mut bytes);
    bytes
}

/// Takes a checkpoint in random pieces, with random events in between.
fn checkpoint_while_playing(game: &mut Game, shard: &mut Shard) -> Vec<u8> {
    let promised = shard.begin_checkpoint();
    let mut bytes = Vec::new();
    loop {
        let events = game.below(40);
        game.play(shard, events);
        let room = 8 * game.below(2_000) as usize;
        let bytes_max = bytes.len() + room;
        let read = shard.write_checkpoint(&mut bytes, bytes_max);
        assert!(bytes.len() <= bytes_max);
        if read == CheckpointRead::Done {
            assert_eq!(promised, bytes.len() as u64);
            return bytes;
        }
    }
}

#[test]
fn a_checkpoint_is_the_state_at_its_beginning_whatever_happens_while_it_is_taken() {
    for seed in 0..30 {
        let mut game = Game::new(seed);
        let mut shard = Shard::new(0, &rulebook());
        for _ in 0..4 {
            let events = game.below(3_000);
            game.play(&mut shard, events);
            let (expected, digest) = (encoded(&shard), shard.digest());
            let written = checkpoint_while_playing(&mut game, &mut shard);
            assert!(written == expected, "seed {seed}");
            let restored = Shard::decode_state(&written, &rulebook()).expect("its own bytes");
            assert_eq!(restored.digest(), digest, "seed {seed}");
        }
    }
}

#[test]
fn a_shard_that_is_restored_from_a_checkpoint_goes_on_like_the_original() {
    for seed in 100..110 {
        let mut game = Game::new(seed);
        let mut shard = Shard::new(0, &rulebook());
        game.play(&mut shard, 4_000);
        let mut untouched = shard.clone();
        let later = game.clone();
        let written = checkpoint_while_playing(&mut game, &mut shard);
        let mut restored = Shard::decode_state(&written, &rulebook()).expect("its own bytes");
        let published = later.clone().play(&mut untouched, 3_000);
        assert!(later.clone().play(&mut restored, 3_000) == published, "seed {seed}");
        assert_eq!(restored.digest(), untouched.digest(), "seed {seed}");
        assert!(!published.is_empty());
    }
}

#[test]
fn a_checkpoint_that_is_given_up_leaves_nothing_behind() {
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
    assert!(checkpoint_while_playing(&mut game, &mut shard) == expected);
    // A new checkpoint replaces one that was not read to its end.
    shard.begin_checkpoint();
    game.play(&mut shard, 500);
    let expected = encoded(&shard);
    assert!(checkpoint_while_playing(&mut game, &mut shard) == expected);
}
