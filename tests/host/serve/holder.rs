//! A process of its own that holds sessions, as this one has too few descriptors for all: this test
//! program with one test selected.

#![allow(clippy::print_stdout, reason = "the child talks to its parent")]

use super::read_answer;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::process::{ChildStdin, Command, Stdio};
use support::PATIENCE;
use support::process::{OwnedChild, wait_for_line};

/// Set in the child only: the server's address, and how many sessions.
const HOLDS: &str = "HUNTD_TEST_HOLDS_SESSIONS";

const HOLDING: &str = "holding";

/// Sessions that are idle. Dropped, they are closed.
pub(crate) struct Holder {
    _child: OwnedChild,
    /// The child ends when this does.
    _lives: ChildStdin,
}

impl Holder {
    /// Opens this many sessions, each of which has had an answer when this returns.
    ///
    /// They come from an address of the holder's own, 127.0.0.2 for holder 0. The kernel finds a
    /// port at once while less than half of an address's ports are taken; beyond that it searches
    /// all of them, for milliseconds.
    pub(crate) fn start(address: &str, number: u8, sessions: usize) -> Holder {
        let child = Command::new(std::env::current_exe().expect("a test has a program"))
            .args(["--exact", "serve::holder::a_child_holds_its_sessions", "--nocapture"])
            .env(HOLDS, format!("{address} 127.0.0.{} {sessions}", number + 2))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test program runs");
        let mut child = OwnedChild::from(child);
        let lives = child.stdin.take().expect("it was piped");
        let output = child.stdout.take().expect("it was piped");
        let holds = wait_for_line(output, |line| line.contains(HOLDING).then_some(()));
        holds.expect("all sessions are answered");
        Holder { _child: child, _lives: lives }
    }
}

/// Also run beside all other tests, where it has nothing to hold.
#[test]
fn a_child_holds_its_sessions() {
    let Ok(holds) = std::env::var(HOLDS) else { return };
    let holds: Vec<&str> = holds.split(' ').collect();
    let [address, source, sessions] = holds[..] else { panic!("two addresses and a number") };
    let address: SocketAddrV4 = address.parse().expect("an address");
    let source: Ipv4Addr = source.parse().expect("an address");
    let open = |_| {
        let session = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a descriptor");
        bind(&session, &SocketAddrV4::new(source, 0)).expect("the address is the host's");
        connect(&session, &address).expect("it listens");
        let mut session = TcpStream::from(session);
        session.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        session.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it reads");
        assert!(read_answer(&mut session).0.starts_with("HTTP/1.1 200 OK"));
        session
    };
    let sessions: Vec<TcpStream> = (0..sessions.parse().expect("a number")).map(open).collect();
    println!("{HOLDING} {}", sessions.len());
    std::io::stdin().read_to_end(&mut Vec::new()).expect("the parent writes nothing");
}
