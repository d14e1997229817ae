//! Nanoseconds per event of the engine, for a mixed load: 60 % move, 20 % rotate, 10 % shoot, 10 %
//! loot, with hunts running, and for a crowd that joins at once.
//!
//! Goal: what one event costs on one core, the worst single one included. Not a goal: decoding, or
//! what publishing the updates costs. The digest at the end shows that no change made the engine
//! faster by making it do something else. `--smoke` runs everything once with few events. With a
//! number of players as argument, it plays only the blocks of that many, for tools that count
//! instructions: divide those of `block` by the number of events that is printed.

#![expect(clippy::print_stdout, reason = "a benchmark prints its numbers")]

use huntd::hunt::Shard;
use huntd::hunt::event::{Action, Event};
use huntd::hunt::rules::rulebook::Rulebook;
use huntd::hunt::rules_file::built_in;
use huntd::kit::event_list::Events;
use huntd::kit::update::Updates;
use huntd::runtime::allocator;
use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

/// Events that are timed together, about as many as the daemon decodes before the engine has its
/// turn. A number of its own: the median of longer runs has more of the rare long events in it.
const BLOCK_EVENTS: usize = 536;

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

/// Processes that each event is timed in: if it is long in only one of them, the machine was.
const PROCESSES: usize = 5;

/// Prints how many nanoseconds each event takes of a game that begins with nobody, for
/// [`shortest`]: with every page that is touched for the first time. After them comes the longest
/// time between two readings of the clock, of a loop that does nothing else for as long.
fn print_times(load: &mut Load, shard: &mut Shard, joins: &[Event], count: usize) {
    let mixed: Vec<Event> = (0..count).map(|_| load.mixed()).collect();
    let mut updates = Updates::new();
    let mut times = Vec::with_capacity((joins.len() + count + 1) * size_of::<u32>());
    let begun = Instant::now();
    for event in joins.iter().chain(&mixed) {
        updates.clear();
        let start = Instant::now();
        shard.apply(event, &mut updates);
        times.extend(nanoseconds(start.elapsed()).to_le_bytes());
    }
    times.extend(nanoseconds(longest_idle(begun.elapsed())).to_le_bytes());
    std::io::stdout().write_all(&times).expect("the bench reads it");
}

fn nanoseconds(time: Duration) -> u32 {
    u32::try_from(time.as_nanos()).unwrap_or(u32::MAX)
}

/// What the machine takes at a time for other things: the host's, the kernel's and other programs'.
fn longest_idle(wait: Duration) -> Duration {
    let begun = Instant::now();
    let (mut before, mut longest) = (begun, Duration::ZERO);
    while before - begun < wait {
        let now = Instant::now();
        longest = longest.max(now - before);
        before = now;
    }
    longest
}

/// What several processes took that all play the same game, each from its start.
struct Shortest {
    /// How long each event took at least.
    times: Vec<Duration>,
    /// The longest one of all processes.
    longest: Duration,
    /// The longest of a loop that does nothing, in any process.
    longest_idle: Duration,
}

fn shortest(players: u64, smoke: bool) -> Shortest {
    let (mut shortest, mut longest, mut longest_idle): (Vec<u32>, u32, u32) = (Vec::new(), 0, 0);
    for _ in 0..PROCESSES {
        let mut bench = Command::new(std::env::current_exe().expect("a bench has a name"));
        bench.args(["--times", if smoke { "--smoke" } else { "--bench" }]);
        let played = bench.arg(players.to_string()).output().expect("it starts");
        assert!(played.status.success(), "{}", String::from_utf8_lossy(&played.stderr));
        let (times, []) = played.stdout.as_chunks() else { panic!("half a time") };
        let mut times = times.iter().map(|bytes| u32::from_le_bytes(*bytes));
        longest_idle = longest_idle.max(times.next_back().expect("the idle loop's comes last"));
        assert!(shortest.is_empty() || shortest.len() == times.len(), "another game");
        longest = times.clone().fold(longest, u32::max);
        shortest.resize(times.len(), u32::MAX);
        shortest.iter_mut().zip(times).for_each(|(least, time)| *least = time.min(*least));
    }
    let duration = |time_ns: u32| Duration::from_nanos(time_ns.into());
    Shortest {
        times: shortest.into_iter().map(duration).collect(),
        longest: duration(longest),
        longest_idle: duration(longest_idle),
    }
}

/// Applies a block of events as the daemon does, and tells how long one takes.
#[inline(never)]
fn block(shard: &mut Shard, events: &Events, updates: &mut Updates) -> f64 {
    let start = Instant::now();
    let mut applied = 0;
    while applied < events.len() {
        updates.clear();
        applied += shard.apply_all(events, applied..events.len(), updates, |_, _, _| {});
    }
    start.elapsed().as_nanos() as f64 / events.len() as f64
}

/// Nanoseconds an event of many blocks, of which only one exists at a time, as in the daemon.
fn blocks(shard: &mut Shard, load: &mut Load, count: usize) {
    let mut updates = Updates::new();
    let mut events = Events::with_capacity(BLOCK_EVENTS, 0);
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
    // As many that hunts begin, run side by side, and end.
    let (block_count, count) = if smoke { (3, 10_000) } else { (15_000, 3_500_000) };
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
        if given("--times") {
            print_times(&mut load, &mut shard, &joins, count);
        } else {
            join(&mut shard, &joins);
            blocks(&mut shard, &mut load, block_count.min(3000));
        }
        return;
    }
    for players in [3_000, 100_000] {
        let Shortest { mut times, longest, longest_idle } = shortest(players, smoke);
        let mixed = times.split_off(players as usize);
        report(players, "joins", times);
        report(players, "mixed", mixed);
        println!(
            "{players} players, the longest in any process, with what else ran: {longest:?}; of a \
             loop that only reads the clock for as long: {longest_idle:?}"
        );
        let (mut load, mut shard, joins) = joined(players);
        join(&mut shard, &joins);
        // The first hunts touch what later ones use again.
        blocks(&mut shard, &mut load, block_count);
        blocks(&mut shard, &mut load, block_count);
        println!("{players} players, digest {:016x}", shard.digest());
    }
}

fn join(shard: &mut Shard, joins: &[Event]) {
    let mut updates = Updates::new();
    for join in joins {
        updates.clear();
        shard.apply(join, &mut updates);
    }
}

fn report(players: u64, what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    let worst: Vec<_> = times.iter().rev().take(5).collect();
    println!(
        "{players} players, {what} one by one, from the start, each the shortest of {PROCESSES}: \
         median {:?}, p99.9 {:?}, worst five {worst:?}",
        at(0.5),
        at(0.999),
    );
}
