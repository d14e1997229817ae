//! Processes at one address.

use crate::serve::listen_at;
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
