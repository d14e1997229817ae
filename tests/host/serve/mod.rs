//! The serving part over real sockets: a demo's page, whose world plays on meanwhile.

mod holder;
mod hostile;
mod page;
mod programs;
mod steady;

use std::io::Read;
use support::playing::Playing;
use support::scrape::get;

/// Reads one answer that has a length: its head and its body.
fn read_answer(stream: &mut impl Read) -> (String, String) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("an answer has a whole head");
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("a head is text");
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let length = length.map_or(0, |length| length.parse().expect("a length is a number"));
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("an answer has a whole body");
    (head, String::from_utf8(body).expect("a body is text"))
}

#[test]
fn a_demo_with_its_page_ends_at_ctrl_c_while_it_plays() {
    let playing = Playing::start(&["--rate", "1000", "--events", "1000000"]);
    playing.wait_until("the game has begun", |playing| {
        get(&playing.address, "/v1/boards/world").1.contains("player_id")
    });
    assert_eq!(playing.interrupt().code(), Some(0));
}
