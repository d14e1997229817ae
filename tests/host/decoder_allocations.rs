//! The decoder takes all its memory when it is made: no record makes it allocate, not even the
//! first.

use huntd::decoder::{Decoder, RecordPosition};
use huntd::hunt::event::{Action, EVENTS};
use huntd::kit::event::RECORD_BYTES_MAX;
use huntd::runtime::allocator;

const ORIGIN: RecordPosition = RecordPosition { offset: 0, time_ms: 0 };

/// Fills a record up to the largest size with repetitions of `piece` after its last field.
fn filled(prefix: &str, piece: &str, suffix: &str) -> Vec<u8> {
    let head = format!(r#"{{"type":"move","player_id":1,"seq":1,"ts_us":1,"x":1,"y":1{prefix}"#);
    let room = RECORD_BYTES_MAX - head.len() - suffix.len();
    format!("{head}{}{suffix}", piece.repeat(room / piece.len())).into_bytes()
}

#[test]
fn decoding_does_not_allocate() {
    let mut records = vec![
        filled("", r#","a":1"#, "}"),
        filled("", ",\"\":{}", "}"),
        filled(r#","a":""#, r"\n", r#""}"#),
        filled(r#","a":""#, r"\ud83d\udc8e", r#""}"#),
        filled(r#","a":["#, "1,", "1]}"),
        filled("", " ", "}"),
        filled("", " ", "x"),
        vec![b'{'; RECORD_BYTES_MAX],
        vec![b'['; RECORD_BYTES_MAX],
        vec![b','; RECORD_BYTES_MAX],
        vec![b'"'; RECORD_BYTES_MAX],
        vec![b'\\'; RECORD_BYTES_MAX],
        vec![0xff; RECORD_BYTES_MAX],
        vec![b' '; RECORD_BYTES_MAX + 1],
    ];
    // More layouts than are remembered, each twice, so that they are learnt, used and forgotten.
    for extra in (0..100).flat_map(|extra| [extra, extra]) {
        records.push(filled(&format!(r#","extra{extra}":1"#), " ", "}"));
        records.push(
            format!(r#"{{"type":"use","e{extra}":"a","player_id":1,"seq":1,"ts_us":1,"item":1}}"#)
                .into_bytes(),
        );
    }
    // One layout, often enough to be read by it.
    let usual = br#"{"type":"use","player_id":1,"seq":1,"ts_us":1,"item":1}"#;
    records.extend(std::iter::repeat_n(usual.to_vec(), 500));
    let mut decoder = Decoder::new(&EVENTS);
    let mut events = 0;
    allocator::count_this_thread();
    for record in records.iter().chain(&records) {
        events += u32::from(decoder.decode::<Action>(ORIGIN, Some(record)).is_ok());
    }
    let allocations = allocator::hot_allocations();
    assert_eq!(allocations, 0);
    assert!(events > 400, "{events} events");
    assert!(decoder.tier_counts().unparsed() > 100);
}
