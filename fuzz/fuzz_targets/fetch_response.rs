//! Fetch responses: refused, or read to their end.

#![no_main]

use huntd::kafka::fetch;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Ok(response) = fetch::parse(input, 0) else {
        return;
    };
    let mut partitions = response.partitions;
    while let Ok(Some(partition)) = partitions.next_partition(input, 1) {
        let _records = &input[partition.records];
        partition.aborted.iter(input).for_each(drop);
    }
    partitions.endpoints(input).for_each(drop);
});
