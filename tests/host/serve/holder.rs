//! A process of its own that holds sessions, as this one has too few descriptors for all: this test
//! program with one test selected.

#![allow(clippy::print_stdout, reason = "the child talks to its parent")]

use super::read_answer;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};
use support::PATIENCE;
use support::process::{OwnedChild, wait_for_line};

/// Set in the child only: the server's address, and how many sessions.
const HOLDS: &str = "HUNTD_TEST_HOLDS_SESSIONS";

const HOLDING: &str = "holding";

/// Sessions that are opened, or asked again, together: so they do not wait for the server's thread
/// one by one, which takes milliseconds each on a busy machine.
const BATCH: usize = 100;

/// Time without a request after which a session is asked again, well before the server closes it
/// (75 s): a busy machine takes longer than that to open all.
const ASK_AGAIN: Duration = Duration::from_secs(30);

/// Sessions that are idle. Dropped, they are closed.
pub(crate) struct Holder {
    child: OwnedChild,
    /// The child ends when this does.
    _lives: ChildStdin,
}

impl Holder {
    /// Begins to open this many sessions.
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
        Holder { child, _lives: lives }
    }

    /// Waits until all sessions are open. Each has had an answer shortly before.
    pub(crate) fn wait_until_open(&mut self) {
        let output = self.child.stdout.take().expect("it was piped, and is waited for once");
        let holds = wait_for_line(output, |line| line.contains(HOLDING).then_some(()));
        holds.expect("all sessions are answered");
    }
}

/// Also run beside all other tests, where it has nothing to hold.
#[test]
fn a_child_holds_its_sessions() {
    let Ok(holds) = std::env::var(HOLDS) else { return };
    let holds: Vec<&str> = holds.split(' ').collect();
    let [address, source, count] = holds[..] else { panic!("two addresses and a number") };
    let address: SocketAddrV4 = address.parse().expect("an address");
    let source: Ipv4Addr = source.parse().expect("an address");
    let count: usize = count.parse().expect("a number");
    // Those asked longest ago come first.
    let mut batches = VecDeque::new();
    let mut left = count;
    while left > 0 {
        let size = left.min(BATCH);
        let mut batch: Vec<TcpStream> = (0..size).map(|_| open(source, address)).collect();
        ask(&mut batch);
        batches.push_back((batch, Instant::now()));
        left -= size;
        while batches[0].1.elapsed() >= ASK_AGAIN {
            let (mut batch, _) = batches.pop_front().expect("there is one");
            ask(&mut batch);
            batches.push_back((batch, Instant::now()));
        }
    }
    println!("{HOLDING} {count}");
    std::io::stdin().read_to_end(&mut Vec::new()).expect("the parent writes nothing");
}

fn open(source: Ipv4Addr, address: SocketAddrV4) -> TcpStream {
    let session = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a descriptor");
    bind(&session, &SocketAddrV4::new(source, 0)).expect("the address is the host's");
    connect(&session, &address).expect("it listens");
    let session = TcpStream::from(session);
    session.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    session
}

fn ask(sessions: &mut [TcpStream]) {
    for session in &mut *sessions {
        session.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it reads");
    }
    for session in sessions {
        assert!(read_answer(session).0.starts_with("HTTP/1.1 200 OK"));
    }
}
