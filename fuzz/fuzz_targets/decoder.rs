//! Records, one a line: all tiers of the decoder give the same event or the same reject, whatever
//! was decoded before and whatever stands around a record.

#![no_main]

use huntd::decoder::json::JsonDecoder;
use huntd::decoder::{Decoder, RecordPosition};
use huntd::hunt::event::{Action, EVENTS};
use huntd::kit::event_list::Events;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut decoder = Decoder::new(&EVENTS);
    let mut json = JsonDecoder::new(&EVENTS);
    let mut events = Events::default();
    // Twice: the second time the first tiers know the shapes and layouts.
    for _ in 0..2 {
        let mut start = 0;
        for (offset, record) in (0..).zip(input.split(|byte| *byte == b'\n')) {
            let origin = RecordPosition { offset, time_ms: 0 };
            let expected = json.read(origin, record, &mut events);
            let expected = expected.map(|()| events.pop().expect("an event was added"));
            assert_eq!(decoder.decode::<Action>(origin, Some(record)), expected);
            // The lines before and after stand around it.
            let range = start..start + record.len();
            let found = decoder.decode_within(origin, input, range, &mut events);
            assert_eq!(found.map(|()| events.pop().expect("an event was added")), expected);
            start += record.len() + 1;
        }
    }
});
