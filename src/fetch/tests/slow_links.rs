//! Responses that arrive slowly, through a real ring.

use crate::fetch::connection::{Connection, ConnectionError};
use crate::fetch::dialling::Dialled;
use crate::kafka::message::Versions;
use crate::queue::bell::Bell;
use crate::runtime::ring::RingKind;
use crate::runtime::ring_loop::RingLoop;
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Milliseconds until a response has to be complete, or arriving.
const WAIT_MS: u64 = 300;

/// Bytes of the response, its length included.
const RESPONSE_BYTES: usize = 200_000;

/// Receives a response of which the broker sends this many bytes at this interval, and which is
/// wanted or not at the deadline.
fn receive(
    kind: RingKind,
    (bytes_at_a_time, every_ms): (usize, u64),
    is_wanted: bool,
) -> Result<Vec<u8>, ConnectionError> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it listens");
    let socket = TcpStream::connect(address).expect("it listens");
    let (mut broker, _) = listener.accept().expect("a client");
    let body = u32::try_from(RESPONSE_BYTES - 4).expect("a short response");
    let mut sent = body.to_be_bytes().to_vec();
    sent.extend((4..RESPONSE_BYTES).map(|at| (at / 7) as u8));
    let sending = thread::spawn(move || {
        for piece in sent.chunks(bytes_at_a_time) {
            if broker.write_all(piece).is_err() {
                break;
            }
            thread::sleep(Duration::from_millis(every_ms));
        }
        // The socket stays open until the client has gone.
        io::copy(&mut broker, &mut io::sink())
    });
    let bell = Arc::new(Bell::new().expect("a descriptor is left"));
    let park_max = Duration::from_millis(50);
    let ring_loop = RingLoop::new(kind, 8, park_max, bell).expect("this kernel has both");
    let versions = Versions { fetch: 13, produce: 9, init_producer_id: 0, tells_settings: false };
    let socket = Arc::new(socket.into());
    let dialled = Dialled { socket, address, versions, tls: None, replace_at: None };
    let connection = Connection::new(ring_loop.turns(), dialled, 1 << 20);
    let deadline = Instant::now() + Duration::from_millis(WAIT_MS);
    let received = async {
        let mut response = connection.receive_if_wanted(|| is_wanted, deadline).await?;
        Ok(response.bytes().to_vec())
    };
    let received = ring_loop.run(received, |_| {}).expect("the ring works");
    drop(connection);
    drop(ring_loop);
    let _gone = sending.join().expect("it does not panic");
    received
}

#[test]
fn a_response_that_is_arriving_at_its_deadline_is_received_to_its_end() {
    // For the second pace, nothing arrives in the last moments before the deadline.
    for pace in [(4_000, 20), (60_000, 2 * WAIT_MS)] {
        for kind in [RingKind::IoUring, RingKind::Epoll] {
            let begun = Instant::now();
            let received = receive(kind, pace, true).expect("it arrives");
            assert!(begun.elapsed() > Duration::from_millis(WAIT_MS), "it was there in time");
            let wanted = (4..RESPONSE_BYTES).map(|at| (at / 7) as u8);
            assert!(received.into_iter().eq(wanted));
        }
    }
}

#[test]
fn a_response_of_which_next_to_nothing_has_arrived_at_its_deadline_is_overdue() {
    assert_overdue((500, 20), true);
}

#[test]
fn a_response_that_nobody_wants_any_more_at_its_deadline_is_given_up() {
    assert_overdue((4_000, 20), false);
}

fn assert_overdue(pace: (usize, u64), is_wanted: bool) {
    for kind in [RingKind::IoUring, RingKind::Epoll] {
        let begun = Instant::now();
        let Err(ConnectionError::Io { error, .. }) = receive(kind, pace, is_wanted) else {
            panic!("all of it takes longer");
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let took = begun.elapsed();
        assert!((WAIT_MS..5_000).contains(&(took.as_millis() as u64)), "{took:?}");
    }
}
