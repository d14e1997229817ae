//! Sequences of events, valid and not: the view that is folded from their updates equals the
//! engine, also when it goes on from snapshots.

#![no_main]

use huntd::testing::viewed_world::ViewedWorld;
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
    let mut world = ViewedWorld::new(input.len() % 2 == 1);
    for count in 0..input.len() / EVENT_BYTES {
        let zone = world.play(&mut below);
        world.check_zone(zone);
        if count % 64 == 63 {
            world.check_world();
            world.restart_view();
        }
    }
    world.check_world();
});
