//! The load: record batches that are encoded once and patched each time they are sent.
//!
//! Every player joins, then 60 % of the events are moves, 20 % turns, 10 % shots, 10 % loots, and a
//! hunt begins in each zone as soon as the one before is over. A cycle of batches repeats; players
//! walk in closed paths, and `seq`, `ts_us`, a hunt's id and the record times are patched again, so
//! that every event does real work however often its batch comes.

use huntd::kafka::wire::WireWriter;

/// Events of one zone's cycle, about.
const CYCLE_EVENTS: usize = 40_000;

/// Joins in a batch, which a broker takes: half a megabyte.
const JOINS_PER_BATCH: usize = 4_096;

/// Treasures of a hunt.
const TREASURES: u16 = 2048;

/// Digits of a patched `seq` or hunt: a one, then the event's number.
const NUMBER_DIGITS: usize = 9;
const NUMBER_FIRST: u64 = 100_000_000;

/// Digits of `ts_us` until the year 2286.
const TIME_DIGITS: usize = 16;

/// Bytes of a batch's header, and places in it.
const HEADER_BYTES: usize = 61;
const CRC_AT: usize = 17;
const CRC_START: usize = 21;
const BASE_TIME_AT: usize = 27;
const MAX_TIME_AT: usize = 35;

/// How records are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Three producers with a layout each; 5 % of records have an object that huntd does not know.
    Mixed,
    /// Keys in a new order in every record: the worst case of a decoder that predicts.
    Shuffled,
}

/// What decides the load, byte for byte.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub partitions: usize,
    pub players: u64,
    /// Events a second of intended time, over all partitions.
    pub rate: u64,
    /// Records in a batch.
    pub batch_events: usize,
    pub layout: Layout,
}

impl Shape {
    /// Events of one tick: a batch for each partition.
    pub fn tick_events(&self) -> u64 {
        (self.batch_events * self.partitions) as u64
    }

    /// Intended time from the start of the load to the start of a tick.
    pub fn tick_us(&self, tick: u64) -> u64 {
        tick * self.tick_events() * 1_000_000 / self.rate
    }

    /// Intended time from the start of a batch to one of its events.
    pub fn event_us(&self, index: usize) -> u64 {
        (index * self.partitions) as u64 * 1_000_000 / self.rate
    }

    /// Players of each partition, and records before the first tick: each joins.
    pub fn joins(&self) -> i64 {
        (self.players / self.partitions as u64) as i64
    }

    /// When the event at an offset is due, from the start of the load; joins are due before it.
    pub fn due_us(&self, offset: i64) -> Option<u64> {
        let number = u64::try_from(offset - self.joins()).ok()?;
        let (tick, index) = (number / self.batch_events as u64, number % self.batch_events as u64);
        Some(self.tick_us(tick) + self.event_us(index as usize))
    }
}

/// The batches of all partitions.
pub struct Load {
    pub shape: Shape,
    /// By partition, then in their order.
    joins: Vec<Vec<Template>>,
    /// By partition, then in their order.
    cycles: Vec<Vec<Template>>,
    /// Mean bytes of an event's JSON.
    pub value_bytes: f64,
}

impl Load {
    pub fn new(shape: Shape) -> Load {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let (mut joins, mut cycles) = (Vec::new(), Vec::new());
        for partition in 0..shape.partitions {
            let mut zone = Zone::new(&shape, partition, &mut random);
            joins.push(zone.joins());
            cycles.push(zone.cycle());
        }
        let records = cycles.iter().flatten().flat_map(|template| &template.records);
        let (count, bytes) =
            records.fold((0, 0), |(count, bytes), record| (count + 1, bytes + record.value_bytes));
        Load { shape, joins, cycles, value_bytes: bytes as f64 / count as f64 }
    }

    /// Every player of a partition joins.
    pub fn joins(&self, partition: usize) -> &[Template] {
        &self.joins[partition]
    }

    /// The batch of a partition in a tick.
    pub fn batch(&self, partition: usize, tick: u64) -> &Template {
        let cycle = &self.cycles[partition];
        &cycle[(tick % cycle.len() as u64) as usize]
    }
}

/// One encoded batch, and where it is patched.
pub struct Template {
    pub bytes: Vec<u8>,
    records: Vec<Patch>,
}

struct Patch {
    /// Where the digits of `ts_us` stand.
    time_at: u32,
    /// Where the digits of `seq` or `hunt` stand.
    number_at: u32,
    /// Microseconds after the batch's first event.
    after_us: u32,
    value_bytes: u32,
}

impl Template {
    /// Events in it.
    pub fn events(&self) -> u64 {
        self.records.len() as u64
    }

    /// Patches a copy of this batch: its first event was due at `time_us` and is the partition's
    /// `number`th.
    pub fn patch(&self, copy: &mut [u8], time_us: u64, number: u64) {
        let numbers = NUMBER_FIRST + number..;
        for (number, record) in numbers.zip(&self.records) {
            assert!(number < 10 * NUMBER_FIRST, "the load has run out of digits");
            let time = time_us + u64::from(record.after_us);
            let at = record.time_at as usize;
            copy[at..at + 8].copy_from_slice(&eight_digits(time / 100_000_000));
            copy[at + 8..at + 16].copy_from_slice(&eight_digits(time % 100_000_000));
            let at = record.number_at as usize;
            copy[at] = b'0' + (number / NUMBER_FIRST) as u8;
            copy[at + 1..at + 9].copy_from_slice(&eight_digits(number % NUMBER_FIRST));
        }
        let last = self.records.last().map_or(0, |record| record.after_us);
        let (first_ms, last_ms) = (time_us / 1_000, (time_us + u64::from(last)) / 1_000);
        copy[BASE_TIME_AT..BASE_TIME_AT + 8].copy_from_slice(&first_ms.to_be_bytes());
        copy[MAX_TIME_AT..MAX_TIME_AT + 8].copy_from_slice(&last_ms.to_be_bytes());
        let crc = crc32c::crc32c(&copy[CRC_START..]);
        copy[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
    }
}

/// The decimal digits of a number below 100,000,000, by halving it three times.
fn eight_digits(number: u64) -> [u8; 8] {
    let fours = (number / 10_000) | ((number % 10_000) << 32);
    let hundreds = ((fours * 10_486) >> 20) & 0x7f_0000_007f;
    let twos = hundreds | (fours - 100 * hundreds) << 16;
    let tens = ((twos * 103) >> 10) & 0x000f_000f_000f_000f;
    let ones = tens | (twos - 10 * tens) << 8;
    (ones | 0x3030_3030_3030_3030).to_le_bytes()
}

/// What makes the batches of one partition.
struct Zone<'a> {
    shape: &'a Shape,
    random: &'a mut Random,
    players: Vec<Player>,
    cycle_us: u64,
}

struct Player {
    id: u64,
    /// Where its path begins and ends.
    x: i64,
    y: i64,
    /// Its direction in steps.
    dx: i64,
    dy: i64,
    /// Moves in a cycle, and made.
    moves: i64,
    moved: i64,
}

/// An event without its patched numbers.
#[derive(Clone, Copy)]
enum Kind {
    Join { x: i64, y: i64 },
    Move { x: i64, y: i64 },
    Rotate { heading: u64 },
    Shoot { weapon: u64 },
    Loot,
    HuntStart { duration_ms: u64 },
}

impl<'a> Zone<'a> {
    fn new(shape: &'a Shape, partition: usize, random: &'a mut Random) -> Zone<'a> {
        let ticks = (CYCLE_EVENTS / shape.batch_events).max(1);
        let cycle_us = shape.tick_us(ticks as u64);
        let ids = (partition as u64..shape.players).step_by(shape.partitions);
        let players = ids.map(|number| {
            let mut place = || 50_000 + random.below(150_000) as i64;
            let (x, y) = (place(), place());
            let mut way = || random.below(3) as i64 - 1;
            let (dx, dy) = (way(), way());
            Player { id: 76_561_198_000_000_000 + number, x, y, dx, dy, moves: 0, moved: 0 }
        });
        let players = players.collect();
        Zone { shape, random, players, cycle_us }
    }

    fn joins(&mut self) -> Vec<Template> {
        let joins = self.players.iter().map(|player| {
            let Player { id, x, y, .. } = *player;
            (id, Kind::Join { x, y })
        });
        let joins: Vec<(u64, Kind)> = joins.collect();
        joins.chunks(JOINS_PER_BATCH).map(|batch| self.encode(batch)).collect()
    }

    /// A cycle after which every player stands where it stood before.
    fn cycle(&mut self) -> Vec<Template> {
        let ticks = (CYCLE_EVENTS / self.shape.batch_events).max(1);
        let events = ticks * self.shape.batch_events;
        let drawn: Vec<(usize, u64)> = (0..events)
            .map(|_| {
                let player = self.random.below(self.players.len() as u64) as usize;
                (player, self.random.below(100))
            })
            .collect();
        for (player, action) in &drawn {
            self.players[*player].moves += i64::from(*action < 60);
        }
        let mut kinds: Vec<(u64, Kind)> = Vec::with_capacity(events);
        for (player, action) in drawn {
            kinds.push((self.players[player].id, self.kind(player, action)));
        }
        // The next hunt begins when this one has been over for a while.
        let duration_ms = (self.cycle_us * 3 / 4 / 1_000).max(1);
        kinds[0] = (0, Kind::HuntStart { duration_ms });
        kinds.chunks(self.shape.batch_events).map(|batch| self.encode(batch)).collect()
    }

    fn kind(&mut self, player: usize, action: u64) -> Kind {
        match action {
            0..60 => {
                // A quarter of the speed that the rules allow, however long the cycle takes.
                let player = &mut self.players[player];
                let between_us = self.cycle_us as i64 / player.moves;
                let step = (between_us * 625 / 1_000_000).clamp(1, 300);
                player.moved += 1;
                let away = step * player.moved.min(player.moves - player.moved);
                // A long path turns back and forth.
                let away = (away % 60_000 - 30_000).abs() - 30_000;
                Kind::Move { x: player.x - player.dx * away, y: player.y - player.dy * away }
            }
            60..80 => Kind::Rotate { heading: self.random.below(36_000) },
            80..90 => Kind::Shoot { weapon: self.random.below(3) },
            _ => Kind::Loot,
        }
    }

    fn encode(&mut self, events: &[(u64, Kind)]) -> Template {
        let mut bytes = vec![0; HEADER_BYTES];
        let mut records = Vec::with_capacity(events.len());
        let (mut value, mut record) = (Vec::new(), Vec::new());
        for (index, (id, kind)) in events.iter().enumerate() {
            let fields = fields(*id, kind);
            let (time_in_value, number_in_value) =
                lay_out(&mut value, fields, self.shape.layout, self.random);
            let after_us = self.shape.event_us(index);
            record.clear();
            let mut writer = WireWriter::new(&mut record);
            writer.i8(0); // attributes
            writer.varlong((after_us / 1_000) as i64);
            writer.varint(index as i32);
            writer.varint(-1); // key: null
            writer.varint(value.len() as i32);
            let value_in_record = record.len();
            record.extend_from_slice(&value);
            record.push(0); // headers
            WireWriter::new(&mut bytes).varint(record.len() as i32);
            let value_at = bytes.len() + value_in_record;
            bytes.extend_from_slice(&record);
            records.push(Patch {
                time_at: (value_at + time_in_value) as u32,
                number_at: (value_at + number_in_value) as u32,
                after_us: after_us as u32,
                value_bytes: value.len() as u32,
            });
        }
        write_header(&mut bytes, events.len());
        Template { bytes, records }
    }
}

fn write_header(bytes: &mut [u8], count: usize) {
    let mut header = Vec::with_capacity(HEADER_BYTES);
    let mut writer = WireWriter::new(&mut header);
    writer.i64(0); // base_offset: the broker's matter
    writer.i32((bytes.len() - 12) as i32);
    writer.i32(-1); // partition_leader_epoch: the broker's matter
    writer.i8(2); // magic
    writer.u32(0); // crc: patched
    writer.i16(0); // attributes
    writer.i32(count as i32 - 1);
    writer.i64(0); // base_timestamp: patched
    writer.i64(0); // max_timestamp: patched
    writer.i64(-1); // producer_id: not idempotent
    writer.raw(&[0xff; 6]); // producer_epoch, base_sequence
    writer.i32(count as i32);
    bytes[..HEADER_BYTES].copy_from_slice(&header);
}

type Fields = Vec<(&'static str, String)>;

/// The keys and values of an event, with zeros where it is patched.
fn fields(id: u64, kind: &Kind) -> Fields {
    let quoted = |name: &str| format!("\"{name}\"");
    let time = ("ts_us", "0".repeat(TIME_DIGITS));
    let number = "0".repeat(NUMBER_DIGITS);
    let of_player = |name: &str, own: Fields| {
        let head = [("type", quoted(name)), ("player_id", id.to_string())];
        let all = head.into_iter().chain([("seq", number.clone()), time.clone()]).chain(own);
        all.collect()
    };
    match *kind {
        Kind::Join { x, y } => of_player("join", place(x, y)),
        Kind::Move { x, y } => of_player("move", place(x, y)),
        Kind::Rotate { heading } => of_player("rotate", vec![("heading", heading.to_string())]),
        Kind::Shoot { weapon } => of_player("shoot", vec![("weapon", weapon.to_string())]),
        Kind::Loot => of_player("loot", Vec::new()),
        Kind::HuntStart { duration_ms } => vec![
            ("type", quoted("hunt_start")),
            ("hunt", number.clone()),
            time.clone(),
            ("seed", "7".to_owned()),
            ("treasures", TREASURES.to_string()),
            ("duration_ms", duration_ms.to_string()),
        ],
    }
}

fn place(x: i64, y: i64) -> Fields {
    vec![("x", x.to_string()), ("y", y.to_string())]
}

/// Writes an event's JSON and gives the places of its time and of its number.
fn lay_out(
    value: &mut Vec<u8>,
    mut fields: Fields,
    layout: Layout,
    random: &mut Random,
) -> (usize, usize) {
    let (mut colon, mut comma) = (":", ",");
    match (layout, random.below(3)) {
        (Layout::Shuffled, _) => {
            for last in (1..fields.len()).rev() {
                fields.swap(last, random.below(last as u64 + 1) as usize);
            }
        }
        (Layout::Mixed, 0) => {}
        (Layout::Mixed, 1) => (colon, comma) = (": ", ", "),
        (Layout::Mixed, _) => fields.rotate_left(1),
    }
    if layout == Layout::Mixed && random.below(20) == 0 {
        fields.push(("note", "{\"a\":[1,2]}".to_owned()));
    }
    let (mut time_at, mut number_at) = (0, 0);
    value.clear();
    for (index, (key, text)) in fields.iter().enumerate() {
        value.extend_from_slice(if index == 0 { "{" } else { comma }.as_bytes());
        value.extend_from_slice(format!("\"{key}\"{colon}").as_bytes());
        match *key {
            "ts_us" => time_at = value.len(),
            "seq" | "hunt" => number_at = value.len(),
            _ => {}
        }
        value.extend_from_slice(text.as_bytes());
    }
    value.push(b'}');
    (time_at, number_at)
}

/// A seeded generator, so that every run has the same load.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}
