//! A load that does real work in the engine, the same for the same numbers, and a quick way to put
//! it into a topic.

use crate::PATIENCE;
use crate::daemon::Topics;
use crate::kafka::Cluster;
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::types::RDKafkaErrorCode;
use std::io::Write;
use std::time::Duration;

/// Intended time of the first event, in microseconds since the Unix epoch.
const BASE_US: i64 = 1_767_225_600_000_000;

/// Microseconds between two events: with 3,000 players each does something three times a second.
const STEP_US: i64 = 100;

/// Events of a zone from the start of one of its hunts to the next, about, and the milliseconds
/// that a hunt lasts.
const HUNT_EVERY: u64 = 40_000;
const HUNT_MS: u32 = 20_000;

/// Side of the square that players walk in: the built-in rules' zone is a little larger.
const SIDE_CM: i64 = 256_000;

/// Longest step of a player.
const STRIDE_CM: u64 = 300;

/// Walking, turning, shooting and looting players of several zones, one zone a partition.
pub struct Load {
    partitions: u64,
    players: Vec<Player>,
    random: u64,
    made: u64,
    hunts: u64,
    hunts_begin: bool,
    notes: bool,
    text: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Player {
    seq: u64,
    x: i64,
    y: i64,
}

/// One record for the input topic.
pub struct Record<'a> {
    pub partition: i32,
    pub time_ms: i64,
    pub value: &'a [u8],
}

impl Load {
    pub fn new(players: u64, partitions: i32) -> Load {
        let mut random = 0x9e37_79b9_7f4a_7c15;
        let player = |_| Player {
            seq: 0,
            x: below(&mut random, SIDE_CM as u64) as i64,
            y: below(&mut random, SIDE_CM as u64) as i64,
        };
        let players = (0..players).map(player).collect();
        let partitions = partitions as u64;
        Load {
            partitions,
            players,
            random,
            made: 0,
            hunts: 0,
            hunts_begin: true,
            notes: false,
            text: Vec::new(),
        }
    }

    /// The same events, each with an object beside its fields that differs from record to record:
    /// no layout fits it.
    pub fn with_notes(self) -> Load {
        Load { notes: true, ..self }
    }

    /// From now on no hunt begins: none takes memory for the first time.
    pub fn stop_hunts(&mut self) {
        self.hunts_begin = false;
    }

    /// The next event: first every player joins, then they play.
    pub fn next_record(&mut self) -> Record<'_> {
        let number = self.made;
        self.made += 1;
        let ts_us = BASE_US + number as i64 * STEP_US;
        self.text.clear();
        // The zones take turns, so each has as many events of its own between two of its hunts.
        let is_hunts_turn =
            number >= self.players.len() as u64 && number.is_multiple_of(HUNT_EVERY);
        let partition = if is_hunts_turn && self.hunts_begin {
            self.write_hunt(ts_us)
        } else {
            self.write_player(number, ts_us)
        };
        if self.notes {
            self.text.pop();
            let note = write!(self.text, r#","client":{{"frame":{number}}}}}"#);
            note.expect("a vector takes it");
        }
        Record { partition: partition as i32, time_ms: ts_us / 1_000, value: &self.text }
    }

    fn write_hunt(&mut self, ts_us: i64) -> u64 {
        let hunt = self.hunts;
        self.hunts += 1;
        let written = write!(
            self.text,
            r#"{{"type":"hunt_start","ts_us":{ts_us},"hunt":{hunt},"seed":{hunt},"treasures":2048,"#
        );
        let written = written.and_then(|()| write!(self.text, r#""duration_ms":{HUNT_MS}}}"#));
        written.expect("a vector takes it");
        hunt % self.partitions
    }

    fn write_player(&mut self, number: u64, ts_us: i64) -> u64 {
        let joins = number < self.players.len() as u64;
        let index = if joins { number } else { below(&mut self.random, self.players.len() as u64) };
        let action = below(&mut self.random, 100);
        let stride = 2 * STRIDE_CM + 1;
        let dx = below(&mut self.random, stride) as i64 - STRIDE_CM as i64;
        let dy = below(&mut self.random, stride) as i64 - STRIDE_CM as i64;
        let player = &mut self.players[index as usize];
        player.seq += 1;
        let (id, seq) = (76_561_198_000_000_000 + index, player.seq);
        let text = &mut self.text;
        let mut begin = |kind| {
            write!(text, r#"{{"type":"{kind}","player_id":{id},"seq":{seq},"ts_us":{ts_us}"#)
                .expect("a vector takes it");
        };
        let written = match action {
            _ if joins => {
                begin("join");
                write!(self.text, r#","x":{},"y":{}}}"#, player.x, player.y)
            }
            0..60 => {
                player.x = (player.x + dx).clamp(0, SIDE_CM - 1);
                player.y = (player.y + dy).clamp(0, SIDE_CM - 1);
                begin("move");
                write!(self.text, r#","x":{},"y":{}}}"#, player.x, player.y)
            }
            60..80 => {
                begin("rotate");
                write!(self.text, r#","heading":{}}}"#, (dx + 300) * 50)
            }
            80..90 => {
                begin("shoot");
                write!(self.text, r#","weapon":0}}"#)
            }
            _ => {
                begin("loot");
                write!(self.text, "}}")
            }
        };
        written.expect("a vector takes it");
        index % self.partitions
    }

    /// Puts the next `count` events into the input topic, in order and in large batches, and waits
    /// until the broker has them.
    pub fn produce(&mut self, cluster: &Cluster, topics: &Topics, count: u64) {
        let producer = producer(cluster);
        self.send(&producer, topics, count);
        producer.flush(PATIENCE).expect("the broker acknowledges all records");
        assert_eq!(producer.in_flight_count(), 0);
    }

    /// Gives the next `count` events to a producer, in order.
    pub fn send(&mut self, producer: &BaseProducer, topics: &Topics, count: u64) {
        for _ in 0..count {
            let Record { partition, time_ms, value } = self.next_record();
            let mut record: BaseRecord<'_, (), [u8]> = BaseRecord::to(&topics.input)
                .partition(partition)
                .timestamp(time_ms)
                .payload(value);
            while let Err((error, unsent)) = producer.send(record) {
                let full = KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull);
                assert_eq!(error, full, "the record cannot be sent");
                producer.poll(Duration::from_millis(10));
                record = unsent;
            }
        }
        producer.poll(Duration::ZERO);
    }
}

/// A producer of large batches.
pub fn producer(cluster: &Cluster) -> BaseProducer {
    let mut config = cluster.client().config();
    config
        .set("enable.idempotence", "true")
        .set("linger.ms", "5")
        .set("batch.size", "1000000")
        .set("batch.num.messages", "100000")
        .set("queue.buffering.max.messages", "200000")
        .set("queue.buffering.max.kbytes", "65536");
    config.create().expect("the configuration is valid")
}

/// A number below `bound`, by xorshift.
fn below(random: &mut u64, bound: u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    (*random >> 11) % bound
}
