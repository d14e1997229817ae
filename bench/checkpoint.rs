//! What a checkpoint of 100,000 actors costs the hot thread: the pause at its beginning, the slower
//! events while it lasts, the pieces. And what restoring them costs a start.
//!
//! Goal: the longest pause. Not a goal: the disk, which is another thread's. `--smoke` runs
//! everything once with few actors.

#![expect(clippy::print_stdout, reason = "a benchmark prints its numbers")]

use huntd::hunt::Shard;
use huntd::hunt::event::{Action, Event};
use huntd::hunt::rules::rulebook::Rulebook;
use huntd::hunt::rules_file::built_in;
use huntd::kit::checkpoint::CheckpointRead;
use huntd::kit::update::Updates;
use huntd::runtime::allocator;
use huntd::snapshot::format::SNAPSHOT_BLOCK_BYTES;
use std::time::{Duration, Instant};

/// Events between two pieces, about as many as a turn applies under load.
const EVENTS_PER_PIECE: usize = 500;

/// A zone full of players that walk about.
struct Crowd {
    shard: Shard,
    updates: Updates,
    state: u64,
    events: i64,
    players: u64,
}

impl Crowd {
    fn new(players: u64) -> Crowd {
        let shard = Shard::new(0, &Rulebook::of(built_in()));
        let mut crowd = Crowd { shard, updates: Updates::new(), state: 1, events: 0, players };
        for player in 0..players {
            let (x, y) = (crowd.below(1 << 17) as i32, crowd.below(1 << 17) as i32);
            crowd.apply(player, Action::Join { x, y });
        }
        crowd
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) % bound
    }

    fn apply(&mut self, player: u64, action: Action) {
        self.events += 1;
        self.updates.clear();
        let (offset, seq) = (self.events, self.events as u64);
        let time_ms = self.events / 1000;
        let event = Event { offset, time_ms, player_id: player + 1, seq, ts_us: 0, action };
        self.shard.apply(&event, &mut self.updates);
    }

    /// Some players turn: an event that writes to a random place. The time of all and of the
    /// longest one.
    fn turn(&mut self) -> (Duration, Duration) {
        let (began, mut longest) = (Instant::now(), Duration::ZERO);
        for _ in 0..EVENTS_PER_PIECE {
            let player = self.below(self.players);
            let heading = self.below(36_000) as u16;
            let event = Instant::now();
            self.apply(player, Action::Rotate { heading });
            longest = longest.max(event.elapsed());
        }
        (began.elapsed(), longest)
    }
}

/// What one checkpoint took.
#[derive(Default)]
struct Cost {
    begin: Duration,
    pieces: Vec<Duration>,
    turns: Vec<Duration>,
    longest_event: Duration,
    bytes: u64,
    allocations: u64,
}

fn take_checkpoint(crowd: &mut Crowd, state: &mut Vec<u8>) -> Cost {
    let mut cost = Cost::default();
    let mut block = Vec::with_capacity(SNAPSHOT_BLOCK_BYTES);
    state.clear();
    let began = Instant::now();
    cost.bytes = crowd.shard.begin_checkpoint();
    cost.begin = began.elapsed();
    cost.turns.reserve(4096);
    cost.pieces.reserve(4096);
    let reserved = allocator::hot_allocations();
    loop {
        let (turn, longest) = crowd.turn();
        cost.turns.push(turn);
        cost.longest_event = cost.longest_event.max(longest);
        block.clear();
        let piece = Instant::now();
        let read = crowd.shard.write_checkpoint(&mut block, SNAPSHOT_BLOCK_BYTES);
        cost.pieces.push(piece.elapsed());
        state.extend_from_slice(&block);
        if read == CheckpointRead::Done {
            cost.allocations = allocator::hot_allocations() - reserved;
            return cost;
        }
    }
}

fn mean(times: &[Duration]) -> Duration {
    times.iter().sum::<Duration>() / times.len().max(1) as u32
}

fn main() {
    let given = |name: &str| std::env::args().any(|argument| argument == name);
    let smoke = given("--smoke") || !given("--bench");
    let players = if smoke { 1_000 } else { 100_000 };
    allocator::count_this_thread();
    // As the daemon does.
    allocator::refuse_huge_pages();
    let mut crowd = Crowd::new(players);
    let mut state = Vec::with_capacity(64 << 20);
    for round in 0..if smoke { 2 } else { 6 } {
        let quiet: Vec<Duration> = (0..200).map(|_| crowd.turn().0).collect();
        let cost = take_checkpoint(&mut crowd, &mut state);
        assert_eq!(cost.bytes, state.len() as u64);
        let longest_piece = cost.pieces.iter().max().copied().unwrap_or_default();
        let events = EVENTS_PER_PIECE as u32;
        println!(
            "checkpoint {round}: {players} actors, {} bytes, begin {:?}, {} pieces of {:?} \
             (longest {longest_piece:?}), event {:?} (longest {:?}), without a checkpoint {:?}, \
             {} allocations",
            cost.bytes,
            cost.begin,
            cost.pieces.len(),
            mean(&cost.pieces),
            mean(&cost.turns) / events,
            cost.longest_event,
            mean(&quiet) / events,
            cost.allocations,
        );
        let began = Instant::now();
        let restored =
            Shard::decode_state(&state, &Rulebook::of(built_in())).expect("its own bytes");
        println!("restored in {:?}, digest {:016x}", began.elapsed(), restored.digest());
    }
}
