//! Nanoseconds per event of each decoder tier, beside serde_json on the same bytes.
//!
//! Goal: the cost of one record in the caches, for the mixes that a zone sees. Not a goal: the
//! cost of memory, of Kafka's framing, or of the first records of a producer. The digest is a hash
//! of all the events, so no change can make the decoder faster by making it do something else.
//! `--smoke` runs everything once over a few records.

use huntd::decoder::json::JsonDecoder;
use huntd::decoder::layout::Layouts;
use huntd::decoder::{Decoder, RecordPosition};
use huntd::fetch::block::BLOCK_EVENTS_MAX;
use huntd::hunt::event::{ActionOf, EVENTS};
use huntd::kit::event::PlainEvent;
use huntd::kit::event_list::Events;
use serde::Deserialize;
use std::hint::black_box;
use std::ops::Range;
use std::time::Instant;

const ORIGIN: RecordPosition = RecordPosition { offset: 0, time_ms: 0 };

/// A seeded generator, so that every run decodes the same records.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// The fields of one event, as a list of key and value that a producer may order as it likes.
fn fields(random: &mut Random, index: u64) -> Vec<(&'static str, String)> {
    let kind = match random.below(100) {
        0..70 => "move",
        70..85 => "rotate",
        85..93 => "shoot",
        93..98 => "loot",
        _ => "use",
    };
    let mut fields = vec![
        ("type", format!("\"{kind}\"")),
        ("player_id", (76_561_198_000_000_000 + random.below(3000)).to_string()),
        ("seq", (1 + index / 3000).to_string()),
        ("ts_us", (1_767_225_600_000_000 + index * 400).to_string()),
    ];
    match kind {
        "move" => fields.extend([
            ("x", random.below(400_000).to_string()),
            ("y", random.below(400_000).to_string()),
        ]),
        "rotate" => fields.push(("heading", random.below(36_000).to_string())),
        "shoot" => fields.push(("weapon", random.below(20).to_string())),
        "use" => fields.push(("item", random.below(20).to_string())),
        _ => {}
    }
    fields
}

fn object(fields: &[(&'static str, String)], colon: &str, comma: &str) -> Vec<u8> {
    let fields: Vec<_> = fields.iter().map(|(k, v)| format!("\"{k}\"{colon}{v}")).collect();
    format!("{{{}}}", fields.join(comma)).into_bytes()
}

/// One producer, one layout a type.
fn one_producer(count: u64) -> Vec<Vec<u8>> {
    let mut random = Random(0x9e37_79b9);
    (0..count).map(|index| object(&fields(&mut random, index), ":", ",")).collect()
}

/// Three producers that lay their records out differently; 5 % of records have an unknown object.
fn three_producers(count: u64) -> Vec<Vec<u8>> {
    let mut random = Random(0x9e37_79b9);
    let record = |index| {
        let mut fields = fields(&mut random, index);
        if random.below(20) == 0 {
            fields.push(("note", "{\"a\":[1,2]}".to_owned()));
        }
        match random.below(3) {
            0 => object(&fields, ":", ","),
            1 => object(&fields, ": ", ", "),
            _ => {
                fields.rotate_left(1);
                object(&fields, ":", ",")
            }
        }
    };
    (0..count).map(record).collect()
}

/// The worst case: keys in a new order in every record.
fn shuffled_keys(count: u64) -> Vec<Vec<u8>> {
    let mut random = Random(0x9e37_79b9);
    let record = |index| {
        let mut fields = fields(&mut random, index);
        for last in (1..fields.len()).rev() {
            fields.swap(last, random.below(last as u64 + 1) as usize);
        }
        object(&fields, ":", ",")
    };
    (0..count).map(record).collect()
}

/// The same fields by serde_json's derived deserializer, which checks less than huntd does.
#[derive(Deserialize)]
struct SerdeEvent<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    player_id: u64,
    seq: u64,
    ts_us: i64,
    x: Option<f64>,
    y: Option<f64>,
    heading: Option<u16>,
    item: Option<u8>,
    weapon: Option<u8>,
    hunt: Option<u32>,
}

/// Adds an event to a digest; the same events in the same order give the same digest.
fn fold(digest: u64, event: &PlainEvent) -> u64 {
    let payload = match event.unpack(&[]).action {
        ActionOf::<u32>::Move { x, y } => (x as u64) << 32 | u64::from(y as u32),
        ActionOf::<u32>::Rotate { heading } => heading.into(),
        ActionOf::<u32>::Shoot { weapon, .. } => weapon.into(),
        ActionOf::<u32>::Use { item } => item.into(),
        _ => 0,
    };
    let words = [event.player_id, event.seq, event.ts_us as u64, payload];
    words.iter().fold(digest, |digest, word| {
        (digest.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95)
    })
}

/// Runs one pass over all records again and again; prints the quickest pass's time per record and
/// the digest, which must be the same each time.
fn measure(name: &str, records: &[Vec<u8>], passes: u32, mut pass: impl FnMut() -> u64) {
    let digest = pass();
    let mut best_ns = f64::INFINITY;
    for _ in 0..passes {
        let start = Instant::now();
        let again = black_box(pass());
        best_ns = best_ns.min(start.elapsed().as_nanos() as f64 / records.len() as f64);
        assert_eq!(again, digest, "{name}: two passes differ");
    }
    report(&format!("  {name:<28} {best_ns:>8.1} ns/event   digest {digest:016x}"));
}

fn report(line: &str) {
    use std::io::Write;
    writeln!(std::io::stdout(), "{line}").expect("standard output is open");
}

/// Every tier does the same: the records stand in one buffer, and the events in a block, as in the
/// daemon.
fn pass<'a>(
    records: &'a [Vec<u8>],
    mut decode: impl FnMut(&[u8], Range<usize>, &mut Events) + 'a,
) -> impl FnMut() -> u64 + 'a {
    let buffer = records.concat();
    let mut events = Events::with_capacity(BLOCK_EVENTS_MAX, 0);
    move || {
        let (mut start, mut digest) = (0, 0);
        for record in records {
            if events.len() == BLOCK_EVENTS_MAX {
                digest = events.plain().iter().fold(digest, fold);
                events.clear();
            }
            let end = start + record.len();
            decode(&buffer, start..end, &mut events);
            start = end;
        }
        digest = events.plain().iter().fold(digest, fold);
        events.clear();
        digest
    }
}

fn json_pass<'a>(records: &'a [Vec<u8>], json: &'a mut JsonDecoder) -> impl FnMut() -> u64 + 'a {
    pass(records, |buffer, range, events| {
        json.read(ORIGIN, &buffer[range], events).expect("a valid record");
    })
}

fn all_tiers_pass<'a>(
    records: &'a [Vec<u8>],
    decoder: &'a mut Decoder,
) -> impl FnMut() -> u64 + 'a {
    pass(records, |buffer, range, events| {
        decoder.decode_within(ORIGIN, buffer, range, events).expect("a valid record");
    })
}

fn layout_pass<'a>(records: &'a [Vec<u8>], layouts: &'a mut Layouts) -> impl FnMut() -> u64 + 'a {
    pass(records, |buffer, range, events| {
        let value = &buffer[range];
        if !layouts.read(ORIGIN, value, events) {
            layouts.learn(value);
        }
    })
}

fn serde_pass(records: &[Vec<u8>]) -> impl FnMut() -> u64 {
    move || {
        records.iter().fold(0, |digest: u64, record| {
            let event: SerdeEvent<'_> = serde_json::from_slice(record).expect("a valid record");
            let SerdeEvent { kind, player_id, seq, ts_us, x, y, .. } = event;
            black_box((event.heading, event.item, event.weapon, event.hunt));
            let place = x.unwrap_or_default() + y.unwrap_or_default();
            let sum = player_id ^ seq ^ ts_us as u64 ^ place.to_bits() ^ kind.len() as u64;
            digest.rotate_left(5) ^ sum
        })
    }
}

fn bench(name: &str, records: &[Vec<u8>], passes: u32) {
    let bytes: usize = records.iter().map(Vec::len).sum();
    report(&format!("{name}: {} records, {} bytes each", records.len(), bytes / records.len()));
    let mut layouts = Layouts::new(&EVENTS);
    let mut json = JsonDecoder::new(&EVENTS);
    let mut decoder = Decoder::new(&EVENTS);
    // The first pass of the layout tier alone teaches it, so it is not part of the digest.
    layout_pass(records, &mut layouts)();
    if name == "one producer" {
        measure("layout tier", records, passes, layout_pass(records, &mut layouts));
    }
    measure("json tier", records, passes, json_pass(records, &mut json));
    measure("decoder, all tiers", records, passes, all_tiers_pass(records, &mut decoder));
    measure("serde_json", records, passes, serde_pass(records));
    let counts = decoder.tier_counts();
    let all = counts.unparsed() + counts.json;
    let share = |count: u64| 100.0 * count as f64 / all as f64;
    let (by_shape, by_layout) = (share(counts.shape), share(counts.layout));
    report(&format!("  by shape: {by_shape:.1} %, by layout: {by_layout:.1} %"));
}

fn main() {
    // Without `--bench`, `cargo test` runs it.
    let given = |name: &str| std::env::args().any(|argument| argument == name);
    let smoke = given("--smoke") || !given("--bench");
    let (count, passes) = if smoke { (1_000, 1) } else { (5_000, 300) };
    bench("one producer", &one_producer(count), passes);
    bench("three producers, 5 % odd", &three_producers(count), passes);
    bench("shuffled keys", &shuffled_keys(count), passes);
}
