//! Nanoseconds per event of the engine, for a mixed load: 60 % move, 20 % rotate, 10 % shoot, 10 %
//! loot, with hunts running, and for a crowd that joins at once.
//!
//! Goal: what one event costs on one core, the worst single one included. Not a goal: decoding, or
//! what publishing the updates costs. The digest at the end shows that no change made the engine
//! faster by making it do something else. `--smoke` runs everything once with few events. A number
//! of players plays the blocks of that many only, for tools that count instructions: those of
//! `block`, over the events that are printed.

#![expect(clippy::print_stdout, reason = "a benchmark prints its numbers")]

use huntd::engine::Shard;
use huntd::engine::event::{Action, Event};
use huntd::engine::rules::rulebook::Rulebook;
use huntd::engine::update::Updates;
use huntd::limits::{BLOCK_EVENTS_MAX, TURN_BLOCKS_MAX};
use huntd::runtime::allocator;
use huntd::service::rules::built_in;
use std::time::{Duration, Instant};

/// Events of a block: what the daemon decodes before the engine has its turn.
const BLOCK_EVENTS: usize = TURN_BLOCKS_MAX * BLOCK_EVENTS_MAX;

/// A seeded generator, so that every run plays the same game.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// What a client knows of its player.
#[derive(Clone, Copy)]
struct Player {
    x: i32,
    y: i32,
    seq: u64,
}

/// Makes the events of a game in which players walk about.
struct Load {
    random: Random,
    players: Vec<Player>,
    side_cm: i32,
    events: i64,
    hunts: u32,
}

impl Load {
    fn new(players: u64, side_cm: i32) -> Load {
        let mut random = Random(0x9e37_79b9);
        let mut place = || random.below(side_cm as u64) as i32;
        let players = (0..players).map(|_| Player { x: place(), y: place(), seq: 0 }).collect();
        Load { random, players, side_cm, events: 0, hunts: 0 }
    }

    fn event(&mut self, index: usize, action: Action) -> Event {
        self.events += 1;
        let players = self.players.len() as i64;
        let player = &mut self.players[index];
        player.seq += 1;
        Event {
            offset: self.events,
            // Ten events a second from each player.
            time_ms: self.events * 100 / players,
            player_id: 76_561_198_000_000_000 + index as u64 * 7919,
            seq: player.seq,
            ts_us: self.events,
            action,
        }
    }

    fn join(&mut self, index: usize) -> Event {
        let Player { x, y, .. } = self.players[index];
        self.event(index, Action::Join { x, y })
    }

    fn hunt_start(&mut self) -> Event {
        self.hunts += 1;
        let (hunt, seed) = (self.hunts, u64::from(self.hunts));
        // A window of two million events.
        let duration_ms = (200_000_000 / self.players.len()) as u32;
        let action = Action::HuntStart { hunt, seed, treasures: 4096, duration_ms };
        Event { player_id: 0, ..self.event(0, action) }
    }

    fn mixed(&mut self) -> Event {
        if self.events % 500_000 == 0 {
            return self.hunt_start();
        }
        let index = self.random.below(self.players.len() as u64) as usize;
        let action = match self.random.below(10) {
            0..6 => {
                let mut step = || self.random.below(301) as i32 - 150;
                let (step_x, step_y) = (step(), step());
                let player = &mut self.players[index];
                player.x = (player.x + step_x).clamp(0, self.side_cm - 1);
                player.y = (player.y + step_y).clamp(0, self.side_cm - 1);
                Action::Move { x: player.x, y: player.y }
            }
            6..8 => Action::Rotate { heading: self.random.below(36_000) as u16 },
            8 => Action::Shoot {
                weapon: self.random.below(3) as u8,
                heading: Some(self.random.below(36_000) as u16),
            },
            _ => Action::Loot { hunt: None },
        };
        self.event(index, action)
    }
}

/// How long each event takes, in ascending order.
struct Times {
    /// In the first of three runs over copies of the shard: with every page that is touched for the
    /// first time, and with what else the machine did.
    first: Vec<Duration>,
    /// In the shortest of the three: the engine does the same each time, so what is longer in one
    /// run was the machine.
    shortest: Vec<Duration>,
}

fn times(shard: &mut Shard, events: &[Event]) -> Times {
    let mut shortest = vec![Duration::MAX; events.len()];
    let mut first = Vec::new();
    let mut updates = Updates::new();
    let before = shard.clone();
    for _ in 0..3 {
        shard.clone_from(&before);
        for (event, shortest) in events.iter().zip(&mut shortest) {
            updates.clear();
            let start = Instant::now();
            shard.apply(event, &mut updates);
            *shortest = start.elapsed().min(*shortest);
        }
        if first.is_empty() {
            first.clone_from(&shortest);
        }
    }
    first.sort_unstable();
    shortest.sort_unstable();
    Times { first, shortest }
}

/// Applies a block of events as the daemon does, and tells how long one takes.
#[inline(never)]
fn block(shard: &mut Shard, events: &[Event], updates: &mut Updates) -> f64 {
    let start = Instant::now();
    let mut applied = 0;
    while applied < events.len() {
        updates.clear();
        applied += shard.apply_all(&events[applied..], updates, |_, _, _| {});
    }
    start.elapsed().as_nanos() as f64 / events.len() as f64
}

/// Nanoseconds an event of many blocks, of which only one exists at a time, as in the daemon.
fn blocks(shard: &mut Shard, load: &mut Load, count: usize) {
    let mut updates = Updates::new();
    let mut events = Vec::with_capacity(BLOCK_EVENTS);
    let (mut times_ns, mut allocations) = (Vec::with_capacity(count), 0);
    for _ in 0..count {
        events.clear();
        events.extend((0..BLOCK_EVENTS).map(|_| load.mixed()));
        let before = allocator::hot_allocations();
        times_ns.push(block(shard, &events, &mut updates));
        allocations += allocator::hot_allocations() - before;
    }
    times_ns.sort_unstable_by(f64::total_cmp);
    println!(
        "{} players, mixed: {:.1} ns an event in the median block, {:.1} in the quickest, {:.1} on \
         average; {allocations} allocations in {} events",
        load.players.len(),
        times_ns[count / 2],
        times_ns[0],
        times_ns.iter().sum::<f64>() / count as f64,
        count * BLOCK_EVENTS,
    );
}

fn main() {
    // Without `--bench`, `cargo test` runs it.
    let given = |name: &str| std::env::args().any(|argument| argument == name);
    let smoke = given("--smoke") || !given("--bench");
    let (block_count, count) = if smoke { (3, 10_000) } else { (15_000, 1_000_000) };
    allocator::count_this_thread();
    // As the daemon does.
    allocator::refuse_huge_pages();
    let rules = built_in();
    let side_cm = rules.world.side_cm() as i32;
    let rulebook = Rulebook::of(rules);
    let joined = |players: u64| {
        let mut load = Load::new(players, side_cm);
        let joins: Vec<Event> = (0..players as usize).map(|index| load.join(index)).collect();
        (load, Shard::new(0, &rulebook), joins)
    };
    if let Some(players) = std::env::args().find_map(|argument| argument.parse().ok()) {
        let (mut load, mut shard, joins) = joined(players);
        let mut updates = Updates::new();
        for join in &joins {
            updates.clear();
            shard.apply(join, &mut updates);
        }
        blocks(&mut shard, &mut load, block_count.min(3000));
        return;
    }
    for players in [3_000, 100_000] {
        let (mut load, mut shard, joins) = joined(players);
        report(players, "joins", &times(&mut shard, &joins));
        // The first hunts touch what later ones use again.
        blocks(&mut shard, &mut load, block_count);
        blocks(&mut shard, &mut load, block_count);
        let mixed: Vec<Event> = (0..count).map(|_| load.mixed()).collect();
        report(players, "mixed", &times(&mut shard, &mixed));
        println!("{players} players, digest {:016x}", shard.digest());
    }
}

fn report(players: u64, what: &str, Times { first, shortest }: &Times) {
    let at = |part: f64| shortest[((shortest.len() - 1) as f64 * part) as usize];
    let worst = |times: &[Duration]| times.iter().rev().take(5).copied().collect::<Vec<_>>();
    println!(
        "{players} players, {what} one by one: median {:?}, p99.9 {:?}, worst five {:?}, in the \
         first run {:?}",
        at(0.5),
        at(0.999),
        worst(shortest),
        worst(first),
    );
}
