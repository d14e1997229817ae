//! What many requests in a row cost.

use super::read_answer;
use std::io::Write;
use std::net::TcpStream;
use support::playing::Playing;
use support::scrape::get;

/// Polls in a row.
const POLLS: usize = 5_000;

/// The value of a metric, by the connection that the polls come by, too.
fn metric(stream: &mut TcpStream, name: &str) -> u64 {
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let (_, body) = read_answer(stream);
    let line = body.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name}: {body}"))
}

#[test]
fn polls_take_no_allocation_and_each_answer_s_time_is_counted() {
    let playing = Playing::start(&["--events", "2000", "--rate", "0", "--partitions", "2"]);
    let board = || get(&playing.address, "/v1/boards/world?count=1").1;
    playing.wait_until("somebody plays", |_| board().contains("\"player_id\""));
    let mut stream = playing.connect();
    let ask = |stream: &mut TcpStream, path: &str| {
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let (head, body) = read_answer(stream);
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{path}: {head}");
        body
    };
    let board = board();
    let (_, rest) = board.split_once("\"player_id\":\"").expect("somebody plays");
    let poll = format!("/v1/players/{}/poll", rest.split('"').next().expect("an id"));
    let mut between = |polls: usize| {
        let allocations = metric(&mut stream, "huntd_serve_allocations_total");
        let answers = metric(&mut stream, "huntd_serve_answer_seconds_count");
        (0..polls).for_each(|_| drop(ask(&mut stream, &poll)));
        let answered = metric(&mut stream, "huntd_serve_answer_seconds_count") - answers;
        assert_eq!(answered, polls as u64 + 1, "the polls, and the one before");
        metric(&mut stream, "huntd_serve_allocations_total") - allocations
    };
    between(100);
    // What the metrics' own answers take, which are texts of some kilobytes.
    let without = between(0);
    let with = between(POLLS);
    assert!(with <= without + 16, "{with} allocations with {POLLS} polls, {without} without");
}

#[test]
fn the_times_of_a_stream_s_events_are_counted() {
    let playing = Playing::start(&["--events", "400000", "--rate", "2000", "--partitions", "1"]);
    let count = |name: &str| metric(&mut playing.connect(), &format!("{name}_count"));
    assert_eq!(count("huntd_serve_stream_seconds"), 0);
    let mut stream = playing.connect();
    stream.write_all(b"GET /v1/stream?zone=0 HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    playing.wait_until("events are written", |_| count("huntd_serve_stream_seconds") > 100);
    assert_eq!(count("huntd_serve_post_seconds"), 0);
}
