//! Streams of players' cards that change all the time, as server-sent events and over WebSockets,
//! and of the players whom each of them sees: how late each one's next event comes.

use crate::compare::{head, row};
use crate::generators::{Ask, Generators};
use crate::inside::Inside;
use crate::{Size, ZONES, say, servers, start};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};
use support::daemon::Topics;
use support::kafka::Cluster;
use support::process;

/// Milliseconds from one event of a stream to its next.
pub(crate) const EVERY_MS: u64 = 250;

/// How far players see: some fifty others.
pub(crate) const SIGHT_CM: u64 = 2_000;

/// How often each player turns in that time, so that its card has always changed.
const TURNS: f64 = 1.6;

/// Between two pieces of what players do.
const PIECE: Duration = Duration::from_millis(10);

/// Players who turn, one after another.
struct Turning {
    producer: BaseProducer,
    topic: String,
    zones: i32,
    players: u64,
    made: u64,
}

impl Turning {
    fn new(cluster: &Cluster, topics: &Topics, zones: i32, players: u64) -> Turning {
        let mut config = cluster.client().config();
        config.set("linger.ms", "2").set("queue.buffering.max.messages", "1000000");
        let producer = config.create().expect("the configuration is valid");
        Turning { producer, topic: topics.input.clone(), zones, players, made: 0 }
    }

    /// The next events: first every player joins, then they turn.
    fn make(&mut self, count: u64) {
        for _ in 0..count {
            let (player, seq) = (self.made % self.players, 1 + self.made / self.players);
            let (id, zone) = (1 + player, (player % self.zones as u64) as i32);
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let ts_us = now.expect("after 1970").as_micros();
            // A square, so that most have others on all sides.
            let side = self.players.isqrt() + 1;
            let (x, y) = (100 + player % side * 500, 100 + player / side * 500);
            let what = match seq {
                1 => format!(r#""type":"join","x":{x},"y":{y}"#),
                _ => format!(r#""type":"rotate","heading":{}"#, seq * 7 % 36_000),
            };
            let value = format!(r#"{{{what},"player_id":{id},"seq":{seq},"ts_us":{ts_us}}}"#);
            let record = BaseRecord::<(), _>::to(&self.topic).partition(zone).payload(&value);
            self.producer.send(record).map_err(|(error, _)| error).expect("there is room");
            self.made += 1;
        }
        self.producer.poll(Duration::ZERO);
    }

    fn flush(&self) {
        self.producer.flush(Duration::from_secs(60)).expect("the broker has all");
    }
}

/// Measures streams of one form, each of another player.
pub(crate) fn streams(size: &Size, cluster: &Cluster, ask: Ask) {
    let (streams, zones, players) = match ask {
        Ask::Sight => (size.sights, 1, size.players_in_sights),
        _ => (size.streams, ZONES, size.streams as u64),
    };
    let topics = Topics::create(cluster, ask.part(), zones);
    let huntd = start(cluster, &topics, &[]);
    let mut turning = Turning::new(cluster, &topics, zones, players);
    turning.make(players);
    turning.flush();
    let servings = servers(&huntd, &cluster.client().ends(&topics.input, zones));
    let addresses: Vec<String> = servings.iter().map(|of| of.address().to_owned()).collect();
    let watched: Vec<String> = (1..=streams).map(|id| id.to_string()).collect();
    let resident = || servings.iter().map(|of| process::resident_bytes(of.pid())).sum::<u64>();
    let without = resident();
    let mut generators = Generators::connect(&addresses, streams);
    let cpu = || servings.iter().map(|of| process::cpu(of.pid())).sum::<Duration>();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let begun = Instant::now();
            let per_s = TURNS * players as f64 * 1e3 / EVERY_MS as f64;
            let first = turning.made;
            while !is_over.load(Ordering::Relaxed) {
                let due = first + (begun.elapsed().as_secs_f64() * per_s) as u64;
                turning.make(due.saturating_sub(turning.made));
                std::thread::sleep(PIECE);
            }
            turning.flush();
        });
        let (before, per_s) = (cpu(), size.per_s(ask));
        let (counted, begun) = (Inside::of(&addresses, ask), Instant::now());
        let measured = generators.run(ask, per_s, size.time, &watched);
        let inside = Inside::of(&addresses, ask).since(&counted, begun.elapsed());
        is_over.store(true, Ordering::Relaxed);
        say(&format!(
            "{streams} {}, {} events; {} MiB resident before, {:.0} bytes more for each of them; \
             {inside}",
            ask.part(),
            measured.latency_us.len(),
            without >> 20,
            resident().saturating_sub(without) as f64 / streams as f64,
        ));
        head();
        row("huntd serve", per_s, ask, &measured, (cpu() - before, Duration::ZERO));
    });
}
