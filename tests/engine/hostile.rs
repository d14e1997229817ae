//! A zone that is played by whatever a number source says, valid or not, and checked from outside.
//! `tests/engine_fuzz.rs` draws the numbers from a seed, `fuzz/fuzz_targets/engine.rs` from bytes.

use huntd::engine::event::{Action, Event, Handoff, ItemStack};
use huntd::engine::rules::rulebook::Rulebook;
use huntd::engine::update::{EVENT_UPDATES_MAX, Update, Updates};
use huntd::engine::{Outcome, Shard};
use huntd::output::frame::Chain;
use huntd::service::rules::built_in;

/// Players that take part.
const PLAYERS: u64 = 24;

/// A small map on which much happens soon, without walls and with some; by two sets of rules.
pub fn rulebook(walls: bool) -> Rulebook {
    let mut rules = built_in();
    rules.world.tiles_per_side = 16;
    if walls {
        rules.world.walls = vec![0x0000_1ff0_0000_0404, 0x8080_0000_7f00_0000, 0, 0x3c3c];
    }
    rules.actors.count_max = 20;
    rules.actors.per_tile_max = 3;
    rules.actors.respawn_ms = 300;
    rules.hunts.finish_treasures = 2;
    rules.weapons[0].damage = 60;
    rules.weapons[0].reload_ms = 50;
    let mut others = rules.clone();
    others.actors.health = 50;
    others.actors.per_tile_max = 2;
    let mut rulebook = Rulebook::of(rules);
    rulebook.add(others).expect("the map is the same");
    rulebook
}

/// Makes events, most of which make sense. `below` draws a number below another.
pub struct Hostile<Below> {
    below: Below,
    time_ms: i64,
    count: i64,
    seqs: [u64; PLAYERS as usize],
    places: [(i32, i32); PLAYERS as usize],
    hunts: u32,
    rulesets: Vec<u32>,
}

impl<Below: FnMut(u64) -> u64> Hostile<Below> {
    pub fn new(below: Below, rulebook: &Rulebook) -> Hostile<Below> {
        Hostile {
            below,
            time_ms: 1_767_225_600_000,
            count: 0,
            seqs: [0; PLAYERS as usize],
            places: [(8000, 8000); PLAYERS as usize],
            hunts: 0,
            rulesets: rulebook.rulesets().collect(),
        }
    }

    /// Whether one of so many draws comes out.
    fn rarely(&mut self, one_of: u64) -> bool {
        (self.below)(one_of) == 0
    }

    /// A number at the edge of some type.
    fn extreme(&mut self) -> u64 {
        let near = (self.below)(3);
        let edges = [0u64, 1 << 16, 1 << 31, 1 << 32, 1 << 53, 1 << 63];
        edges[(self.below)(6) as usize].wrapping_add(near).wrapping_sub(1)
    }

    fn place(&mut self, player: usize) -> (i32, i32) {
        if self.rarely(30) {
            return (self.extreme() as i32, self.extreme() as i32);
        }
        if self.rarely(20) {
            return ((self.below)(16_384) as i32, (self.below)(16_384) as i32);
        }
        let (x, y) = self.places[player];
        let mut near = |at: i32| (at + (self.below)(1401) as i32 - 700).clamp(-9, 16_390);
        let place = (near(x), near(y));
        self.places[player] = place;
        place
    }

    fn small(&mut self, bound: u64) -> u64 {
        if self.rarely(40) { self.extreme() } else { (self.below)(bound) }
    }

    fn handoff(&mut self) -> Handoff {
        let mut handoff = Handoff {
            from_zone: self.small(4) as u16,
            crossing: self.small(50) as u32,
            score: self.small(500),
            last_seq: self.small(100),
            ..Handoff::default()
        };
        for stack in &mut handoff.items {
            *stack = ItemStack { item: self.small(8) as u8, count: self.small(5) as u8 };
        }
        handoff.effects = handoff.effects.map(|_| self.small(6) as u8);
        handoff.effects_left_ms = handoff.effects_left_ms.map(|_| self.small(5000) as u32);
        handoff
    }

    fn action(&mut self, player: usize) -> Action {
        match (self.below)(100) {
            0..6 => {
                let (x, y) = self.place(player);
                Action::Join { x, y }
            }
            6..8 => {
                let (x, y) = self.place(player);
                Action::Arrive { x, y, handoff: self.handoff() }
            }
            8..10 => {
                let to_zone = if self.rarely(2) { None } else { Some(self.small(3) as u16) };
                Action::Leave { to_zone }
            }
            10..42 => {
                let (x, y) = self.place(player);
                Action::Move { x, y }
            }
            42..47 => Action::Rotate { heading: self.small(36_000) as u16 },
            47..62 => {
                let heading = if self.rarely(3) { None } else { Some(self.small(36_000) as u16) };
                Action::Shoot { weapon: self.small(4) as u8, heading }
            }
            62..80 => {
                let hunt = self.small(u64::from(self.hunts) + 2) as u32;
                Action::Loot { hunt: Some(hunt).filter(|_| hunt.is_multiple_of(4)) }
            }
            80..88 => Action::Use { item: self.small(7) as u8 },
            88..95 => Action::Tick,
            95 => {
                let known = self.rulesets[(self.below)(2) as usize];
                let ruleset = if self.rarely(5) { self.extreme() as u32 } else { known };
                Action::RulesChange { ruleset }
            }
            96..98 => {
                self.hunts += 1;
                Action::HuntStart {
                    hunt: if self.rarely(50) { self.extreme() as u32 } else { self.hunts },
                    seed: (self.below)(u64::MAX),
                    treasures: self.small(150) as u16,
                    duration_ms: self.small(6000) as u32,
                }
            }
            _ => Action::HuntEnd { hunt: self.small(u64::from(self.hunts) + 2) as u32 },
        }
    }

    /// The next event. Some come twice, late, from nobody, or with a time of another age.
    pub fn event(&mut self) -> Event {
        self.count += 1;
        self.time_ms = self.time_ms.saturating_add((self.below)(40) as i64);
        if self.rarely(5000) {
            self.time_ms = self.extreme() as i64;
        }
        let player = (self.below)(PLAYERS) as usize;
        let action = self.action(player);
        self.seqs[player] += u64::from(!self.rarely(30));
        let seq = if action == Action::Tick { self.count as u64 } else { self.seqs[player] };
        let late_ms = (self.below)(20) as i64;
        let time_ms = if self.rarely(50) { self.extreme() as i64 } else { self.time_ms };
        Event {
            offset: self.count,
            time_ms: time_ms.saturating_sub(late_ms),
            player_id: if self.rarely(100) { self.extreme() } else { player as u64 },
            seq: if self.rarely(1000) { self.extreme() } else { seq },
            ts_us: self.count,
            action,
        }
    }
}

/// A zone and the chain over what it told.
pub struct Zone {
    shard: Shard,
    rulebook: Rulebook,
    updates: Updates,
    chain: Chain,
    /// A bit for each kind of update that was told.
    kinds: u64,
    applied: u64,
}

impl Zone {
    pub fn new(partition: u16, rulebook: &Rulebook) -> Zone {
        Zone {
            shard: Shard::new(partition, rulebook),
            rulebook: rulebook.clone(),
            updates: Updates::new(),
            chain: Chain::default(),
            kinds: 0,
            applied: 0,
        }
    }

    /// Applies one event and checks what it told.
    pub fn apply(&mut self, event: &Event) {
        self.updates.clear();
        let outcome = self.shard.apply(event, &mut self.updates);
        let told = self.updates.as_slice();
        assert!(told.len() <= EVENT_UPDATES_MAX, "{} updates of {event:?}", told.len());
        for update in told {
            assert_eq!(Update::from_words(update.words()), Some(*update), "{event:?}");
            assert_eq!(update.ts_us(), event.ts_us);
            self.kinds |= 1 << update.payload().kind;
        }
        let refusals = told.iter().filter(|update| update.payload().kind == 1).count();
        assert_eq!(refusals, usize::from(matches!(outcome, Outcome::Refused(_))), "{event:?}");
        self.applied += u64::from(outcome == Outcome::Applied);
        self.fold();
    }

    /// The kinds of updates that [`Zone::apply`] told, a bit each, and how many events applied.
    pub fn reached(&self) -> (u64, u64) {
        (self.kinds, self.applied)
    }

    /// Applies events as the daemon does, without a look at what they told.
    pub fn apply_ahead(&mut self, events: &[Event]) {
        let mut applied = 0;
        while applied < events.len() {
            self.updates.clear();
            applied += self.shard.apply_all(&events[applied..], &mut self.updates, |_, _, _| {});
            self.fold();
        }
    }

    fn fold(&mut self) {
        let told = self.updates.as_slice().iter();
        self.chain = told.fold(self.chain, |chain, update| chain.with(update));
    }

    /// Checks what must hold between events, and goes on from the encoded and decoded state.
    pub fn check_and_restart(&mut self) {
        let shard = &self.shard;
        let board: Vec<_> = shard.standings(1, u32::MAX).collect();
        assert_eq!(board.len(), shard.players() as usize);
        assert!(shard.players() <= shard.rules().actors.count_max);
        assert!(board.windows(2).all(|pair| pair[0].score >= pair[1].score), "{board:?}");
        for place in &board {
            assert_eq!(shard.standing(place.player_id), Some(*place));
            for stack in shard.inventory(place.player_id).expect("who has a place is here") {
                // A hand-off may bring items that these rules do not know.
                let known = shard.rules().item(stack.item);
                assert!(known.is_none_or(|item| stack.count <= item.stack_max), "{stack:?}");
            }
        }
        let mut bytes = Vec::new();
        self.shard.encode_state(&mut bytes);
        let shard = &self.shard;
        let decoded = Shard::decode_state(&bytes, &self.rulebook).expect("its own state");
        assert_eq!(decoded.digest(), shard.digest());
        self.shard = decoded;
    }

    /// What two runs over the same events have in common.
    pub fn outcome(&self) -> (Chain, u64) {
        (self.chain, self.shard.digest())
    }
}
