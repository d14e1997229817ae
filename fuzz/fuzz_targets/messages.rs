//! Answers to the requests beside Fetch, in all their versions.

#![no_main]

use huntd::kafka::group::GroupProtocol;
use huntd::kafka::group_description;
use huntd::kafka::message::{API_VERSIONS_VERSION_MAX, parse_api_versions, parse_metadata};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    for version in 0..=API_VERSIONS_VERSION_MAX {
        let _ = parse_api_versions(input, version, 0);
    }
    let _ = parse_metadata(input, 0, "t");
    for protocol in [GroupProtocol::Classic, GroupProtocol::Consumer] {
        let _ = group_description::parse_answer(protocol, input, 0, "t");
    }
});
