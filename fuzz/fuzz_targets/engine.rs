//! Sequences of events, valid and not: the zone holds what it must, and a replay gives the same.

#![no_main]

use huntd::testing::hostile_zone::HostileZone;
use huntd::testing::random_game::RandomGame;
use libfuzzer_sys::fuzz_target;

/// Bytes that one event takes on average, so that the game is as long as the input.
const EVENT_BYTES: usize = 16;

fuzz_target!(|input: &[u8]| {
    let mut bytes = input.iter().copied().chain(std::iter::repeat(0));
    let mut below = move |bound: u64| {
        let width = (bound.ilog2() as usize).div_ceil(8).max(1);
        let number = bytes.by_ref().take(width);
        number.fold(0u64, |number, byte| number << 8 | u64::from(byte)) % bound
    };
    let rulebook = huntd::testing::hostile_zone::rulebook(input.len() % 2 == 1);
    let mut game = RandomGame::new(huntd::testing::hostile_zone::setting(&rulebook));
    let events: Vec<_> = (0..input.len() / EVENT_BYTES).map(|_| game.event(&mut below)).collect();
    let (mut zone, mut again) = (HostileZone::new(1, &rulebook), HostileZone::new(1, &rulebook));
    for (count, event) in events.iter().enumerate() {
        zone.apply(event);
        if count % 64 == 63 {
            zone.check_and_restart();
        }
    }
    zone.check_and_restart();
    again.apply_ahead(&events);
    assert_eq!(again.outcome(), zone.outcome());
});
