//! Names to addresses, within a bound: a name server that does not answer keeps the system's
//! resolver waiting for as long as its configuration says, often for half a minute.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Milliseconds that a name server may take.
const LOOKUP_MS_MAX: u64 = 4_000;

/// Lookups that may be under way. One that nobody waits for any more still has its thread.
const LOOKUPS_MAX: usize = 64;

static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// The addresses of a host.
pub(super) fn lookup(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let host = host.to_owned();
    lookup_by(move || Ok((host.as_str(), port).to_socket_addrs()?.collect()), LOOKUP_MS_MAX)
}

/// Asks on a thread of its own, and waits this long.
fn lookup_by(
    ask: impl FnOnce() -> io::Result<Vec<SocketAddr>> + Send + 'static,
    wait_ms: u64,
) -> io::Result<Vec<SocketAddr>> {
    let silent = || {
        io::Error::new(
            io::ErrorKind::TimedOut,
            format!("the name server does not answer within {wait_ms} ms"),
        )
    };
    if UNDER_WAY.fetch_add(1, Ordering::AcqRel) >= LOOKUPS_MAX {
        UNDER_WAY.fetch_sub(1, Ordering::AcqRel);
        return Err(silent());
    }
    let (answers, answer) = mpsc::channel();
    let asking = move || {
        let found = ask();
        UNDER_WAY.fetch_sub(1, Ordering::AcqRel);
        // Perhaps nobody waits any more.
        drop(answers.send(found));
    };
    let started = thread::Builder::new().name("lookup".to_owned()).spawn(asking);
    if let Err(error) = started {
        UNDER_WAY.fetch_sub(1, Ordering::AcqRel);
        return Err(error);
    }
    match answer.recv_timeout(Duration::from_millis(wait_ms)) {
        Ok(found) => found,
        Err(RecvTimeoutError::Timeout) => Err(silent()),
        Err(RecvTimeoutError::Disconnected) => unreachable!("the thread sends before it ends"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_server_that_hangs_is_waited_for_within_a_bound_and_an_address_not_at_all() {
        let (release, held) = mpsc::channel::<()>();
        let hanging = move || {
            let _released = held.recv();
            Ok(Vec::new())
        };
        let error = lookup_by(hanging, 20).expect_err("it hangs");
        assert_eq!(error.to_string(), "the name server does not answer within 20 ms");
        drop(release);
        let found = lookup("127.0.0.1", 9092).expect("an address needs no name server");
        assert_eq!(found, ["127.0.0.1:9092".parse().expect("an address")]);
        let found = lookup("[::1]", 9092).expect("an address needs no name server");
        assert_eq!(found, ["[::1]:9092".parse().expect("an address")]);
        assert!(lookup("localhost", 9092).is_ok_and(|found| !found.is_empty()));
    }
}
