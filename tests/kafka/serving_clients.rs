//! Clients of several `huntd serve` processes beside one daemon.

use crate::snapshots::{settings, start};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use support::PATIENCE;
use support::daemon::{Huntd, Topics};
use support::kafka;
use support::scrape::get;
use support::serving::Serving;

/// Sessions that are open at once: so many that each of three processes has some.
const SESSIONS: usize = 64;

const JOIN: &str = r#"{"type":"join","player_id":7,"x":1000,"y":2000}"#;
const CARD: &[u8] = b"GET /v1/players/7?at=0:1 HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A daemon with a single zone, in which nothing happens by itself.
fn daemon(name: &str, folder: &tempfile::TempDir) -> Huntd {
    let topics = Topics::create(kafka::shared(), name, 1);
    let mut settings = settings(folder.path());
    settings.push(("input", "tick_every_ms = 0".to_owned()));
    let mut huntd = start(&topics, &settings, &[]);
    huntd.wait_for_address();
    huntd
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    stream
}

/// The head and the body that come next; `None`: the session is over.
fn answer(stream: &mut TcpStream) -> Option<(String, String)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("a head is text");
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a number"))];
    stream.read_exact(&mut body).ok()?;
    Some((head, String::from_utf8(body).expect("a body is text")))
}

/// The card that a session is answered with, once its process has loaded the zone; `None`: the
/// session is over.
fn card(session: &mut TcpStream) -> Option<String> {
    let until = Instant::now() + PATIENCE;
    loop {
        session.write_all(CARD).ok()?;
        let (head, body) = answer(session)?;
        if head.starts_with("HTTP/1.1 200 OK") {
            return Some(body);
        }
        assert!(head.starts_with("HTTP/1.1 503 ") && Instant::now() < until, "{head}{body}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn processes_share_a_port_and_outlive_each_other() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let huntd = daemon("shared_port", &folder);
    let shared = [("HUNTD_SERVE__SHARE_ADDRESS", "true")];
    let first = Serving::start_at(&huntd, "127.0.0.1:0", &shared);
    let address = first.address().to_owned();
    let mut servings = vec![first];
    servings[0].body_at(&[0], "/v1/zones");
    assert_eq!(servings[0].post("/v1/events?zone=0&wait_ms=10000", JOIN).0, "200");
    let expected = get(&address, "/v1/players/7").1;
    for _ in 1..3 {
        servings.push(Serving::start_at(&huntd, &address, &shared));
    }
    while let Some(serving) = servings.pop() {
        let mut sessions: Vec<TcpStream> = (0..SESSIONS).map(|_| connect(&address)).collect();
        for session in &mut sessions {
            assert_eq!(card(session).as_ref(), Some(&expected));
        }
        // Dropped, it is killed.
        drop(serving);
        let cards: Vec<String> = sessions.iter_mut().filter_map(card).collect();
        assert!(cards.iter().all(|card| *card == expected), "{cards:?}");
        assert!(cards.len() < SESSIONS, "nobody was served by the process that is gone");
        assert_eq!(cards.is_empty(), servings.is_empty(), "{} of them are left", cards.len());
    }
}

#[test]
fn a_client_is_asked_for_its_event_and_reads_it_at_another_process() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let huntd = daemon("expecting", &folder);
    let (first, second) = (Serving::start(&huntd), Serving::start(&huntd));
    for serving in [&first, &second] {
        serving.body_at(&[0], "/v1/zones");
    }
    let mut session = connect(first.address());
    let head = "POST /v1/events?zone=0&wait_ms=10000 HTTP/1.1\r\nHost: localhost\r\n\
        Content-Type: application/json\r\nExpect: 100-continue";
    write!(session, "{head}\r\nContent-Length: {}\r\n\r\n", JOIN.len()).expect("it reads");
    let asked = answer(&mut session).expect("it asks for the body");
    assert_eq!(asked, ("HTTP/1.1 100 Continue\r\n\r\n".to_owned(), String::new()));
    session.write_all(JOIN.as_bytes()).expect("it reads");
    let (head, body) = answer(&mut session).expect("it answers");
    assert!(head.starts_with("HTTP/1.1 200 OK") && body.contains("\"applied\""), "{head}{body}");
    let at = head.lines().find_map(|line| line.strip_prefix("Huntd-At: ")).expect("a position");
    let mut other = connect(second.address());
    write!(other, "GET /v1/players/7 HTTP/1.1\r\nHost: localhost\r\nHuntd-At: {at}\r\n\r\n")
        .unwrap();
    let (head, body) = answer(&mut other).expect("it answers");
    assert!(head.starts_with("HTTP/1.1 200 OK") && body.contains("\"x\":1000"), "{head}{body}");
    // The session goes on, and what its head forbids is refused without a body.
    let head = "POST /v1/zones HTTP/1.1\r\nHost: localhost\r\n\
        Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 9";
    write!(session, "{head}\r\n\r\n").expect("it reads");
    let (head, _) = answer(&mut session).expect("it answers");
    assert!(head.starts_with("HTTP/1.1 405 ") && head.contains("Connection: close"), "{head}");
    assert_eq!(session.read(&mut [0]).expect("it closes"), 0);
}
