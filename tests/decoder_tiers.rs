//! Both tiers of the decoder give the same event or the same reject for every record, and
//! serde_json agrees with them on what is JSON: shown on mutated records, a million of them unless
//! `HUNTD_FUZZ_RECORDS` says otherwise. `HUNTD_FUZZ_SEED` repeats a run.

use huntd::decoder::json::JsonDecoder;
use huntd::decoder::layout::Layouts;
use huntd::decoder::reject::Reject;
use huntd::decoder::{Decoder, RecordPosition};
use huntd::engine::event::Event;

const ORIGIN: RecordPosition = RecordPosition { offset: 3, time_ms: 4 };

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn pick<'a, T: ?Sized>(&mut self, list: &[&'a T]) -> &'a T {
        list[self.below(list.len())]
    }
}

const TYPES: [&str; 11] = [
    "join",
    "leave",
    "move",
    "rotate",
    "shoot",
    "loot",
    "use",
    "tick",
    "rules_change",
    "hunt_start",
    "hunt_end",
];

/// Numbers and other values at every edge that the decoder has.
const VALUES: [&str; 48] = [
    "0",
    "-0",
    "1",
    "-1",
    "00",
    "01",
    "-01",
    "7.0",
    "7e0",
    "1E2",
    "0.5",
    "-0.5",
    "2.5",
    "2.499999",
    "2.4999999999999999",
    "0.49999999999999994",
    "2147483647",
    "2147483647.4",
    "2147483647.5",
    "-2147483648",
    "-2147483648.4999999",
    "-2147483648.5",
    "35999",
    "36000",
    "255",
    "256",
    "65535",
    "65536",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "9999999999999999999",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "1e309",
    "1e-400",
    "null",
    "true",
    "\"42\"",
    "\"042\"",
    "\"\"",
    "\"4\\u0032\"",
    "[]",
    "{\"a\":1}",
];

/// What may be put anywhere into a record.
const PIECES: [&str; 36] = [
    " ",
    "\n",
    "\t",
    ",",
    ":",
    "\"",
    "{",
    "}",
    "[",
    "]",
    "\\",
    "\\\"",
    "\\u0041",
    "\\ud83d",
    "\u{feff}",
    "\u{e9}",
    "\u{1f48e}",
    "\0",
    "\x0c",
    "-",
    "+",
    ".",
    "e",
    "E5",
    "0",
    "9",
    "123456789",
    "true",
    "false",
    "null",
    "\"a\":1",
    ",\"x\":3",
    ",\"note\":\"text\"",
    ",\"a\":-1.25",
    ",\"a\":false",
    ",\"heading\":17",
];

/// A record as one of several producers writes it: each has its own order, spacing and extras.
fn record(random: &mut Random, producers: usize) -> Vec<u8> {
    let producer = random.below(producers);
    let number = |random: &mut Random, digits: usize| {
        let bound = 10u64.pow(1 + random.below(digits) as u32);
        (1 + random.next() % bound).to_string()
    };
    let player_id = match producer % 3 {
        0 => number(random, 18),
        1 => format!("\"{}\"", number(random, 18)),
        _ => (random.next() | 1).to_string(),
    };
    let position = |random: &mut Random| {
        let fraction = [String::new(), format!(".{:05}", random.below(100_000))];
        let whole = random.below(800_000) as i64 - 400_000;
        format!("{whole}{}", fraction[usize::from(producer % 4 == 1)])
    };
    let mut fields = vec![
        ("type", format!("\"{}\"", random.pick(&TYPES))),
        ("player_id", player_id),
        ("seq", number(random, 7)),
        ("ts_us", (1_767_225_600_000_000 + random.below(1 << 40)).to_string()),
        ("x", position(random)),
        ("y", position(random)),
        ("heading", random.below(36_000).to_string()),
        ("item", random.below(256).to_string()),
        ("hunt", number(random, 9)),
        ("seed", random.next().to_string()),
        ("treasures", random.below(65_536).to_string()),
        ("duration_ms", number(random, 9)),
    ];
    match producer % 5 {
        1 => fields.push(("version", random.pick(&["1", "-2.75", "true", "null"]).to_owned())),
        2 => fields.push(("note", format!("\"{}\"", random.pick(&["", "ok", "a b", "\u{e9}"])))),
        3 => fields.push(("deep", "{\"a\":[1,{}]}".to_owned())),
        _ => {}
    }
    fields.rotate_left(producer % 7);
    let (colon, comma) = [(":", ","), (": ", ", "), (" : ", "\n,")][producer % 3];
    let fields: Vec<_> = fields.iter().map(|(k, v)| format!("\"{k}\"{colon}{v}")).collect();
    format!("{{{}}}", fields.join(comma)).into_bytes()
}

fn insert(bytes: &mut Vec<u8>, at: usize, piece: &[u8]) {
    bytes.splice(at..at, piece.iter().copied());
}

/// Changes a record in one place.
fn mutate(random: &mut Random, bytes: &mut Vec<u8>, other: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let at = random.below(bytes.len());
    match random.below(9) {
        0 => bytes[at] = random.next() as u8,
        1 => bytes[at] ^= 1 << random.below(8),
        2 => drop(bytes.remove(at)),
        3 => bytes.truncate(at),
        4 => insert(bytes, at, random.pick(&PIECES).as_bytes()),
        5 => {
            let end = (at + 1 + random.below(24)).min(bytes.len());
            let range = bytes[at..end].to_vec();
            insert(bytes, at, &range);
        }
        6 => {
            bytes.truncate(at);
            bytes.extend_from_slice(&other[random.below(other.len())..]);
        }
        _ => replace_value(random, bytes, at),
    }
}

/// Puts an edge case in the place of the value after `at`.
fn replace_value(random: &mut Random, bytes: &mut Vec<u8>, at: usize) {
    let Some(colon) = bytes[at..].iter().position(|byte| *byte == b':') else {
        return;
    };
    let start = at + colon + 1;
    let is_end = |byte: &u8| matches!(byte, b',' | b'}');
    let length = bytes[start..].iter().position(is_end).unwrap_or(bytes.len() - start);
    bytes.splice(start..start + length, random.pick(&VALUES).bytes());
}

/// Whether serde_json takes the record, where it can be compared: it takes deeper nesting, and
/// integers of any size.
fn is_json_to_serde(record: &[u8], result: Result<Event, Reject>) -> Option<bool> {
    let comparable = !matches!(
        result,
        Err(Reject::TooDeep | Reject::InvalidNumber | Reject::TooLong | Reject::EmptyValue)
    );
    comparable.then(|| serde_json::from_slice::<serde_json::Value>(record).is_ok())
}

fn is_json(result: Result<Event, Reject>) -> bool {
    !matches!(result, Err(Reject::NotUtf8 | Reject::TrailingBytes | Reject::InvalidJson))
}

fn environment_number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a whole number, not {text}")))
}

/// Compares the tiers; how many records were events, and how many of them the first tier read.
fn run(seed: u64, records: u64, producers: usize) -> [u64; 2] {
    let mut random = Random(seed);
    let mut json = JsonDecoder::new();
    let mut decoder = Decoder::new();
    // The decoder soon stops to show its first tier what that does not know; here it sees all.
    let mut layouts = Layouts::new();
    let (mut events, mut by_layout) = (0, 0);
    let mut previous = record(&mut random, producers);
    for index in 0..records {
        let mut bytes = record(&mut random, producers);
        for _ in 0..random.below(4) {
            mutate(&mut random, &mut bytes, &previous);
        }
        let expected = json.decode(ORIGIN, &bytes);
        let found = decoder.decode(ORIGIN, Some(&bytes));
        let shown = || format!("seed {seed}, record {index}: {}", bytes.escape_ascii());
        assert_eq!(found, expected, "the tiers differ, {}", shown());
        if let Some(event) = layouts.read(ORIGIN, &bytes) {
            assert_eq!(Ok(event), expected, "the first tier differs, {}", shown());
            by_layout += 1;
        } else if expected.is_ok() {
            layouts.learn(&bytes);
        }
        if let Some(serde) = is_json_to_serde(&bytes, expected) {
            assert_eq!(serde, is_json(expected), "serde_json differs: {expected:?}, {}", shown());
        }
        events += u64::from(expected.is_ok());
        if !bytes.is_empty() {
            previous = bytes;
        }
    }
    [events, by_layout]
}

#[test]
fn both_tiers_and_serde_json_agree_on_mutated_records() {
    let seed = environment_number("HUNTD_FUZZ_SEED").unwrap_or(0x0068_756e_7464);
    let records = environment_number("HUNTD_FUZZ_RECORDS").unwrap_or(1_000_000);
    // Few producers keep the first tier busy; many make it learn and forget all the time.
    let mut events = 0;
    let mut by_layout = 0;
    for (producers, run_seed) in [1, 2, 7, 105].into_iter().zip(seed..) {
        let counts = run(run_seed, records / 4, producers);
        events += counts[0];
        by_layout += counts[1];
    }
    // The comparison means something only if each tier had its share, and rejects too.
    assert!(by_layout > records / 20, "{by_layout} of {records} by layout");
    assert!(events > by_layout + records / 20, "{events} events, {by_layout} by layout");
    assert!(events < records - records / 20, "{events} of {records} are events");
}
