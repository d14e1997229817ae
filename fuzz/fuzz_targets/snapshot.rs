//! A snapshot's header and the state behind it, from any bytes: an error or what was written.

#![no_main]

use huntd::hunt::Shard;
use huntd::hunt::rules::rulebook::Rulebook;
use huntd::hunt::rules_file::built_in;
use huntd::kit::engine::{AnyRulebook, encode_state};
use huntd::kit::rulebook::Rulebook as KitRulebook;
use huntd::snapshot::format::Header;
use huntd::testing::turf::SECOND_RULES;
use libfuzzer_sys::fuzz_target;

fn turf() -> AnyRulebook {
    KitRulebook::of(SECOND_RULES).into()
}

fuzz_target!(|input: &[u8]| {
    if let Ok(header) = Header::decode(input) {
        let encoded = header.encode();
        let is_of_version_before = encoded[8..12] != input[8..12];
        assert!(is_of_version_before || encoded == input[..encoded.len()]);
        assert_eq!(Header::decode(&encoded).as_ref(), Ok(&header));
        for index in 0..header.blocks() {
            let bytes = &input[..input.len().min(header.block_bytes(index))];
            let _damaged = header.open_block(index, bytes);
        }
    }
    if let Ok(mut shard) = Shard::decode_state(input, &Rulebook::of(built_in())) {
        let mut encoded = Vec::new();
        encode_state(&mut shard, &mut encoded);
        // A state of before names has none.
        assert!(encoded.ends_with(input));
    }
    if let Ok(mut zone) = turf().migrated_zone(input) {
        let mut encoded = Vec::new();
        encode_state(&mut *zone, &mut encoded);
        let restored = turf().stored_zone(&encoded).expect("its own state");
        assert_eq!(restored.digest(), zone.digest());
    }
});
