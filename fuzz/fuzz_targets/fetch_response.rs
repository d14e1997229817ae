//! Fetch responses of every version: refused, or read to their end.

#![no_main]

use huntd::kafka::fetch::{self, FETCH_VERSION_MAX, FETCH_VERSION_MIN, TopicKey};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    for version in FETCH_VERSION_MIN..=FETCH_VERSION_MAX {
        let Ok(response) = fetch::parse(input, version, 0) else {
            continue;
        };
        let mut partitions = response.partitions;
        let topic = TopicKey { name: "t", id: 1 };
        while let Ok(Some(partition)) = partitions.next_partition(input, topic) {
            let _records = &input[partition.records];
            partition.aborted.iter(input).for_each(drop);
        }
        partitions.endpoints(input).for_each(drop);
    }
});
