//! Players' events, at once or without an end.

use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use std::fmt::Write;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use support::PATIENCE;
use support::daemon::Topics;
use support::kafka::Cluster;

/// One event: its partition and its JSON.
pub(crate) type Event = (i32, String);

/// Some players that join in round 1, and move, turn, shoot and loot in each round that follows.
pub(crate) fn events(partitions: i32, players: u64, rounds: RangeInclusive<u64>) -> Vec<Event> {
    let mut events = Vec::new();
    for round in rounds {
        for player in 1..=players {
            let (x, y) = (1_000 + player * 50 + round % 100, 2_000);
            let action = match (round, (round + player) % 5) {
                (1, _) => format!(r#""type":"join","x":{x},"y":{y}"#),
                (_, 0) => r#""type":"rotate","heading":9000"#.to_owned(),
                (_, 1) => r#""type":"shoot","weapon":0"#.to_owned(),
                (_, 2) => r#""type":"loot""#.to_owned(),
                _ => format!(r#""type":"move","x":{x},"y":{y}"#),
            };
            let ts_us = 1_767_225_600_000_000 + round * 100_000;
            let mut text = String::new();
            let _ =
                write!(text, r#"{{"player_id":{player},"seq":{round},"ts_us":{ts_us},{action}}}"#);
            events.push(((player % partitions as u64) as i32, text));
        }
    }
    events
}

/// Appends events to the input.
pub(crate) fn produce(cluster: &Cluster, topics: &Topics, events: &[Event]) {
    let records = events.iter().map(|(p, text)| (*p, b"".as_slice(), text.as_bytes()));
    cluster.client().produce(&topics.input, records);
}

/// Players that do not stop.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

/// How many players a [`Load`] has, and the time between two of their rounds.
pub(crate) struct Pace {
    players: u64,
    pause: Duration,
}

impl Pace {
    /// 4,000 events a second in few requests: these cost a broker more than their records.
    const USUAL: Pace = Pace { players: 80, pause: Duration::from_millis(20) };

    /// As many, with hardly a moment between two records.
    pub(crate) const DENSE: Pace = Pace { players: 40, pause: Duration::from_millis(10) };
}

impl Load {
    /// Begins to append events to the input.
    pub(crate) fn start(cluster: &Cluster, topics: &Topics) -> Load {
        Load::start_at(Pace::USUAL, cluster, topics)
    }

    /// Like [`Load::start`], at another pace.
    pub(crate) fn start_at(pace: Pace, cluster: &Cluster, topics: &Topics) -> Load {
        let Pace { players, pause } = pace;
        let producer: BaseProducer = cluster
            .client()
            .impatient_config()
            .set("enable.idempotence", "true")
            .set("reconnect.backoff.max.ms", "500")
            .create()
            .expect("the configuration is valid");
        let stop = Arc::new(AtomicBool::new(false));
        let (topic, partitions, asked) = (topics.input.clone(), topics.partitions, stop.clone());
        let thread = std::thread::spawn(move || {
            let mut round = 0;
            while !asked.load(Ordering::Relaxed) {
                round += 1;
                for (partition, text) in events(partitions, players, round..=round) {
                    let record: BaseRecord<'_, (), str> =
                        BaseRecord::to(&topic).partition(partition).payload(&text);
                    producer.send(record).map_err(|(error, _)| error).expect("there is room");
                }
                // It takes all of this time, whatever comes.
                producer.poll(pause);
            }
            producer.flush(PATIENCE).expect("brokers acknowledge all records");
            round * players
        });
        Load { stop, thread }
    }

    /// Ends it, once all events are acknowledged: how many there are.
    pub(crate) fn finish(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the load's thread ends by itself")
    }
}
