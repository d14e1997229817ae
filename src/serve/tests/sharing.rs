//! Processes at one address.

use crate::serve::{ServeError, listen_at};
use std::io::ErrorKind;

#[test]
fn two_listen_at_one_address_only_if_both_share_it() {
    let free = "127.0.0.1:0".parse().expect("an address");
    for (first, second) in [(false, false), (false, true), (true, false), (true, true)] {
        let listening = listen_at(free, first).expect("a free port");
        let address = listening.local_addr().expect("it has one");
        let other = listen_at(address, second).map(|_| ()).map_err(|error| error.kind());
        let expected = if first && second { Ok(()) } else { Err(ErrorKind::AddrInUse) };
        assert_eq!(other, expected, "{first} {second}");
    }
}

#[test]
fn only_for_an_address_that_is_taken_it_is_advised_to_share_it() {
    let advised = |listen| {
        let source = listen_at(listen, false).expect_err("it cannot listen there");
        ServeError::Listen { listen, source }.to_string()
    };
    let free = "127.0.0.1:0".parse().expect("an address");
    let listening = listen_at(free, false).expect("a free port");
    let taken = listening.local_addr().expect("it has one");
    // TEST-NET-1 (RFC 5737): no host has it.
    let foreign = advised("192.0.2.1:9465".parse().expect("an address"));
    assert!(!foreign.contains("share_address"), "{foreign}");
    assert!(advised(taken).contains("share_address"));
}
