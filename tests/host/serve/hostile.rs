//! Clients that are broken, slow, greedy or gone.

use super::holder::Holder;
use super::read_answer;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};
use support::PATIENCE;
use support::playing::Playing;
use support::scrape::get;

const GET: &str = "GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Sessions that are open at once: about as many as one server takes that may have 20,000
/// descriptors, which is what many machines allow. It keeps 256 of them for everything else.
const SESSIONS: usize = 19_700;

/// Processes that hold them.
const HOLDERS: u8 = 2;

/// Bytes of memory for each of them, the allocator's slack included.
const SESSION_BYTES_MAX: u64 = 2048;

/// Descriptors that a server may have more or fewer of besides, as it reads its topics.
const DESCRIPTORS_BESIDE: usize = 8;

/// Streams that are never read.
const STREAMS: usize = 200;

/// Bytes of memory for each of them: 16 KiB that wait to be sent, twice where a buffer grows.
const STREAM_BYTES_MAX: u64 = 64 * 1024;

/// Bytes by which a demo may grow meanwhile without any stream: its broker keeps what is published.
const DEMO_BYTES: u64 = 32 << 20;

/// Descriptors of a server that soon has too few, and twice as many clients as it can have.
const FEW_DESCRIPTORS: u32 = 512;
const SILENT: usize = 512;

/// Seconds in which a request must have come whole.
const REQUEST_S_MAX: u64 = 5;

/// A quiet world.
const QUIET: &[&str] = &["--events", "2000", "--rate", "0", "--partitions", "2"];

fn quiet() -> Playing {
    Playing::start(QUIET)
}

#[test]
fn a_request_in_two_pieces_is_answered_wherever_it_is_cut() {
    let playing = quiet();
    let mut stream = playing.connect();
    stream.write_all(GET.as_bytes()).unwrap();
    let whole = read_answer(&mut stream);
    for cut in 1..GET.len() {
        stream.write_all(&GET.as_bytes()[..cut]).unwrap();
        std::thread::sleep(Duration::from_millis(2));
        stream.write_all(&GET.as_bytes()[cut..]).unwrap();
        assert_eq!(read_answer(&mut stream), whole, "cut at {cut}");
    }
}

#[test]
fn requests_in_one_piece_are_answered_in_their_order() {
    let playing = quiet();
    let paths: Vec<String> = (1..301).map(|rank| format!("/v1/boards/0?from={rank}")).collect();
    let request = |path: &String| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let all: String = paths.iter().map(request).collect();
    let mut stream = playing.connect();
    stream.write_all(all.as_bytes()).unwrap();
    for path in &paths {
        let (_, body) = read_answer(&mut stream);
        assert_eq!(body, get(&playing.address, path).1, "{path}");
    }
}

#[test]
fn what_two_readers_could_read_differently_gets_one_refusal_and_the_end() {
    let playing = quiet();
    let hidden = "GET /v1/zones HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let post = "POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let length = hidden.len();
    let cases = [
        format!("{post}Content-Length: 0\r\nContent-Length: {length}\r\n\r\n{hidden}"),
        format!("{post}Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n\r\n{hidden}"),
        format!("{post}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n{hidden}"),
        format!("{post}Transfer-Encoding: identity\r\n\r\n{hidden}"),
        format!("{post}Content-Length : 5\r\n\r\n{hidden}"),
        format!("{post}Content-Length: -1\r\n\r\n{hidden}"),
        format!("{post}Content-Length: 0x5\r\n\r\n{hidden}"),
        format!("{post}Content-Length: 99999999999999999999\r\n\r\n{hidden}"),
        format!("{post}Content-Length: 5\r\n folded: 1\r\n\r\n{hidden}"),
        format!("GET / HTTP/1.1\nHost: localhost\n\n{hidden}"),
        format!("GET / HTTP/1.1\r\nHost: localhost\r\n\n{hidden}"),
        format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: a\rb\r\n\r\n{hidden}"),
        format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n{hidden}"),
        format!("GET /\0 HTTP/1.1\r\nHost: localhost\r\n\r\n{hidden}"),
        format!("GET / HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n{hidden}"),
        format!("GET / HTTP/1.1\r\nX\u{e4}: h\r\nHost: i\r\n\r\n{hidden}"),
        format!("GET / HTTP/2.0\r\nHost: localhost\r\n\r\n{hidden}"),
        format!("GET / HTTP/1.1\r\n\r\n{hidden}"),
        format!("GET  / HTTP/1.1\r\nHost: localhost\r\n\r\n{hidden}"),
    ];
    for text in cases {
        let answer = playing.answer(text.as_bytes());
        let status = answer.get("HTTP/1.1 ".len()..).unwrap_or_default();
        assert!(status.starts_with("400") || status.starts_with("501"), "{text:?}: {answer}");
        let closes = answer.matches("Connection: close\r\n").count();
        let answers = answer.matches("\r\nContent-Length: ").count();
        assert_eq!((answers, closes), (1, 1), "{text:?}: {answer}");
    }
    // Bytes beyond ASCII in a header that nobody reads are no trouble (RFC 9110, 5.5).
    let odd = [b"GET /v1/zones HTTP/1.1\r\nHost: localhost\r\nX: ", &[0xff, 0xe4][..], b"\r\n\r\n"];
    assert!(playing.answer(&odd.concat()).starts_with("HTTP/1.1 200 OK"));
}

#[test]
fn a_head_or_a_body_without_an_end_is_refused_at_its_bound() {
    let playing = quiet();
    let endless = |begin: &str, piece: &str| {
        let mut stream = playing.connect();
        stream.write_all(begin.as_bytes()).unwrap();
        // The server stops to read at its bound.
        for _ in 0..64 * 1024 {
            if stream.write_all(piece.as_bytes()).is_err() {
                break;
            }
        }
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
        playing.wait_until("others are answered", |playing| playing.status("/livez") == 200);
    };
    endless("GET / HTTP/1.1\r\nHost: localhost\r\n", "X: y\r\n");
    endless("GET / HTTP/1.1\r\nHost: localhost\r\nX: ", "yyyyyyyyyyyyyyyy");
    endless("GET /", "aaaaaaaaaaaaaaaa");
    endless("", "\r\n");
    endless(
        "POST /v1/events HTTP/1.1\r\nHost: localhost\r\n\
        Content-Type: application/json\r\nContent-Length: 999999\r\n\r\n",
        "[[[[[[[[",
    );
    let head = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "y".repeat(5_000));
    assert!(playing.answer(head.as_bytes()).starts_with("HTTP/1.1 431 "));
    let body = "POST /v1/events HTTP/1.1\r\nHost: localhost\r\n\
        Content-Type: application/json\r\nContent-Length: 999999\r\n\r\n";
    assert!(playing.answer(body.as_bytes()).starts_with("HTTP/1.1 413 "));
}

#[test]
fn a_client_that_sends_a_byte_now_and_then_is_disconnected_and_delays_nobody() {
    let playing = quiet();
    let mut slow: Vec<TcpStream> = (0..50).map(|_| playing.connect()).collect();
    let begun = Instant::now();
    let mut bytes = GET.bytes().chain(std::iter::repeat(b'x'));
    while !slow.is_empty() {
        let byte = bytes.next().expect("it never ends");
        slow.retain_mut(|stream| {
            stream.set_nonblocking(true).unwrap();
            let byte = if byte == b'\n' { b'x' } else { byte };
            !matches!(stream.read(&mut [0; 4096]), Ok(0)) && stream.write_all(&[byte]).is_ok()
        });
        assert_eq!(playing.status("/v1/zones"), 200);
        assert!(begun.elapsed() < PATIENCE, "{} are still connected", slow.len());
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_client_that_has_sent_its_last_request_reads_the_whole_answer() {
    let playing = quiet();
    let answer = playing.answer(GET.repeat(20).as_bytes());
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 20);
    assert!(answer.trim_end().ends_with('}'));
    // One that breaks off within a request gets nothing.
    assert_eq!(playing.answer(&GET.as_bytes()[..20]), "");
}

#[test]
fn idle_sessions_take_little_memory_and_leave_nothing_behind() {
    let playing = quiet();
    let (resident, descriptors) = (playing.resident(), playing.descriptors());
    let begun = Instant::now();
    let mut holders: Vec<Holder> = (0..HOLDERS)
        .map(|number| Holder::start(&playing.address, number, SESSIONS / usize::from(HOLDERS)))
        .collect();
    holders.iter_mut().for_each(Holder::wait_until_open);
    let (open, elapsed) = (playing.descriptors(), begun.elapsed());
    assert!(open + DESCRIPTORS_BESIDE >= descriptors + SESSIONS, "{open} after {elapsed:?}");
    let taken = playing.resident().saturating_sub(resident);
    assert!(taken < SESSION_BYTES_MAX * SESSIONS as u64, "{taken} bytes");
    assert_eq!(playing.status("/v1/boards/world"), 200);
    drop(holders);
    playing.wait_until("all sessions are closed", |playing| {
        playing.descriptors() <= descriptors + DESCRIPTORS_BESIDE
    });
}

#[test]
fn silent_clients_give_way_to_those_that_come_later_and_a_stream_does_not() {
    let playing = Playing::start_within(FEW_DESCRIPTORS, QUIET);
    let mut stream = playing.connect();
    stream.write_all(b"GET /v1/stream?zone=0 HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut kept = playing.connect();
    kept.write_all(&GET.as_bytes()[..20]).unwrap();
    let _silent: Vec<TcpStream> = (0..SILENT).map(|_| playing.connect()).collect();
    for _ in 0..3 {
        assert_eq!(playing.status("/livez"), 200);
    }
    // Who has begun a request may end it, and who reads a stream goes on.
    kept.write_all(&GET.as_bytes()[20..]).unwrap();
    assert!(read_answer(&mut kept).0.starts_with("HTTP/1.1 200 OK"));
    let streams = "\nhuntd_serve_streams 1\n";
    assert!(get(&playing.address, "/metrics").1.contains(streams), "the stream has ended");
}

#[test]
fn clients_that_do_not_end_their_requests_give_way_to_those_that_come_later() {
    let playing = Playing::start_within(FEW_DESCRIPTORS, QUIET);
    let post = "POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n[[[[";
    loop {
        let begun = Instant::now();
        let begin = |number: usize| {
            let mut stream = playing.connect();
            let text = if number.is_multiple_of(2) { GET } else { post };
            stream.write_all(&text.as_bytes()[..1 + number % (text.len() - 1)]).unwrap();
            stream.set_nonblocking(true).unwrap();
            stream
        };
        let slow: Vec<TcpStream> = (0..SILENT).map(begin).collect();
        assert_eq!(playing.status("/livez"), 200);
        // Later, those that are closed first may only have used up their time.
        if begun.elapsed() < Duration::from_secs(REQUEST_S_MAX) {
            let is_open = |mut stream: &TcpStream| {
                let read = stream.read(&mut [0; 1]);
                read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
            };
            let open = slow.iter().filter(|stream| is_open(stream)).count();
            assert!(open < SILENT, "all that came before are still there");
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "no turn ends in time");
    }
}

#[test]
fn clients_that_take_no_answer_give_way_to_those_that_come_later() {
    let playing = Playing::start_within(FEW_DESCRIPTORS, QUIET);
    // More bytes than the kernel keeps for a client that does not read.
    let asked = GET.repeat(256);
    let ask = |_: usize| {
        let mut stream = playing.connect();
        set_socket_recv_buffer_size(&stream, 4_096).unwrap();
        stream.set_nonblocking(true).unwrap();
        let _unless_full = stream.write(asked.as_bytes());
        stream
    };
    let begun = Instant::now();
    let _deaf: Vec<TcpStream> = (0..SILENT).map(ask).collect();
    assert_eq!(playing.status("/livez"), 200);
    assert!(begun.elapsed() < PATIENCE, "they are served only once their time is over");
}

#[test]
fn streams_that_nobody_reads_take_bounded_memory_and_hold_up_nothing() {
    let playing = Playing::start(&["--events", "400000", "--rate", "40000", "--partitions", "2"]);
    let offset = |playing: &Playing| {
        let (_, body) = get(&playing.address, "/metrics");
        let line = body.lines().find_map(|line| line.strip_prefix("huntd_view_offset{zone=\"0\"}"));
        line.and_then(|value| value.trim().parse::<i64>().ok()).expect("the zone is served")
    };
    let goes_on = |events: i64| {
        let end = offset(&playing) + events;
        playing.wait_until("the zone goes on", |playing| offset(playing) >= end);
    };
    // The view, the recent updates and the demo's topics have their size by then.
    goes_on(60_000);
    let resident = playing.resident();
    let streams: Vec<TcpStream> = (0..STREAMS)
        .map(|number| {
            let mut stream = playing.connect();
            let path = format!("/v1/stream?zone={}&board=world&every_ms=50", number % 2);
            write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            stream
        })
        .collect();
    goes_on(60_000);
    let taken = playing.resident().saturating_sub(resident);
    assert!(taken < DEMO_BYTES + STREAM_BYTES_MAX * STREAMS as u64, "{taken} bytes");
    drop(streams);
}

#[test]
fn clients_that_break_off_anywhere_leave_no_descriptor_open() {
    let playing = quiet();
    let descriptors = playing.descriptors();
    let stream = "GET /v1/stream?zone=0 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let waiting = "GET /v1/zones?at=0:99999999&wait_ms=200 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for text in [GET, stream, waiting] {
        for cut in 0..=text.len() {
            let mut session = playing.connect();
            session.write_all(&text.as_bytes()[..cut]).unwrap();
            if cut % 2 == 0 {
                let _ = session.shutdown(Shutdown::Both);
            }
        }
    }
    playing.wait_until("all sessions are closed", |playing| {
        playing.descriptors() <= descriptors + DESCRIPTORS_BESIDE
    });
}
