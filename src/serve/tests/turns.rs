//! What one turn of the serving thread does at most, whatever clients ask for. Time is given: with
//! none at all, a turn is the least piece of folding and of answering.

use super::access::{gate_of, token_of};
use super::{World, text_of};
use crate::hunt::change::Change;
use crate::kit::update::Update;
use crate::queue;
use crate::queue::bell::Bell;
use crate::runtime::ring::RingKind;
use crate::runtime::sockets::Sockets;
use crate::serve::counts::AnswerKind;
use crate::serve::exchange::{Exchange, ExchangeNeed};
use crate::serve::feed_messages::{FEED_MESSAGES_MAX, FeedMessage};
use crate::serve::gate::Gate;
use crate::serve::postings::Postings;
use crate::serve::serving::Serving;
use crate::serve::sessions::Sessions;
use crate::service::AllowedOrigins;
use smol::channel::{self, Sender};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Updates of a piece, and of each frame that the feed gives here.
const PIECE: usize = 32;

/// Answers of one client that are made at once, and the bytes after which no other is.
const ANSWERS: usize = 64;
const BYTES: usize = 16 * 1024;

/// Clients that wait for a frame, and clients that always ask for something.
const WAITERS: usize = 100;
const FLOODERS: usize = 4;

const PATIENCE: Duration = Duration::from_secs(60);

/// A thread's parts, in the hands of a test.
struct Turns {
    serving: Serving,
    feed: Sender<FeedMessage>,
    listener: TcpListener,
    next_offset: i64,
    turns: usize,
}

impl Turns {
    fn new(kind: RingKind) -> Turns {
        Turns::behind(Gate::open(), kind)
    }

    fn behind(gate: Gate, kind: RingKind) -> Turns {
        let World { served, events, .. } = World::new();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let bell = Arc::new(Bell::new().expect("an eventfd"));
        let sockets = Sockets::new(kind, listener.try_clone().expect("a descriptor"), bell.clone());
        let (_, reports) = queue::bounded(1);
        let sockets = sockets.expect("this kernel has both");
        let postings = Postings::new(served.schema().game.events, None, reports);
        let sessions = Sessions::new(sockets, Rc::new(gate), postings);
        let (feed, messages) = channel::bounded(FEED_MESSAGES_MAX);
        let serving = Serving::new(served, sessions, messages, bell);
        Turns { serving, feed, listener, next_offset: events, turns: 0 }
    }

    fn connect(&self) -> TcpStream {
        let client = TcpStream::connect(self.listener.local_addr().expect("it listens"));
        let client = client.expect("it listens");
        client.set_nonblocking(true).expect("a socket takes the option");
        client
    }

    /// Lets the first zone's feed have as many frames as it may. Gives the offset of the first one.
    fn feed(&mut self) -> i64 {
        let first = self.next_offset + 1;
        while !self.feed.is_full() {
            self.feed_frame();
        }
        first
    }

    fn feed_frame(&mut self) {
        self.next_offset += 1;
        let turned = |heading| Update::new(1, 0, Change::Rotated { heading });
        let frame = FeedMessage::Frame {
            zone: 0,
            updates: (0..PIECE as u16).map(turned).collect(),
            next_offset: self.next_offset,
            owner_epoch: 1,
            published: Instant::now(),
        };
        self.feed.try_send(frame).expect("there is room");
    }

    /// Takes turns until a client has got this many times what is given.
    fn turn_until(&mut self, client: &mut TcpStream, times: usize, part: &str) -> String {
        let (begun, mut text) = (Instant::now(), String::new());
        while text.matches(part).count() < times {
            self.turn();
            text += &read_text(client);
            assert!(begun.elapsed() < Duration::from_secs(5), "{text}");
        }
        text
    }

    /// A turn of no time. Gives how many updates were folded.
    fn turn(&mut self) -> usize {
        let update = |serving: &Serving| {
            serving.served.view.zone(0).expect("it is served").position().update as usize
        };
        let before = update(&self.serving);
        self.serving.turn(Duration::ZERO, || ()).expect("the ring works");
        self.turns += 1;
        update(&self.serving) - before
    }
}

/// A client that sends all that its socket takes.
struct Flooder {
    client: TcpStream,
    sent: usize,
}

impl Flooder {
    fn flood(&mut self, requests: &[u8]) {
        loop {
            match self.client.write(&requests[self.sent % requests.len()..]) {
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Reads what there is.
fn read_text(client: &mut TcpStream) -> String {
    let mut buffer = [0; 64 * 1024];
    match client.read(&mut buffer) {
        Ok(bytes) => String::from_utf8(buffer[..bytes].to_vec()).expect("it is text"),
        Err(error) if error.kind() == ErrorKind::WouldBlock => String::new(),
        Err(error) => panic!("{error}"),
    }
}

/// Reads what there is. Gives how many answers begin in it.
fn read(client: &mut TcpStream) -> usize {
    let (mut answers, mut buffer) = (0, [0; 64 * 1024]);
    loop {
        match client.read(&mut buffer) {
            Ok(0) => panic!("the session is over"),
            Ok(bytes) => {
                let begins = |part: &[u8]| part == b"HTTP/1.1 ";
                answers += buffer[..bytes].windows(9).filter(|part| begins(part)).count();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return answers,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn whatever_clients_ask_for_each_turn_folds_a_piece_and_goes_on_with_one_of_them() {
    [RingKind::IoUring, RingKind::Epoll].into_iter().for_each(assert_each_turn_folds);
}

fn assert_each_turn_folds(kind: RingKind) {
    let mut turns = Turns::new(kind);
    let flooder = |_| Flooder { client: turns.connect(), sent: 0 };
    let mut flooders: Vec<Flooder> = (0..FLOODERS).map(flooder).collect();
    let mut waiters: Vec<TcpStream> = (0..WAITERS).map(|_| turns.connect()).collect();
    let offset = turns.next_offset + 1;
    let target = format!("/v1/players/1?at=0:{offset}&wait_ms=10000");
    let waiting = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    waiters.iter_mut().for_each(|waiter| waiter.write_all(waiting.as_bytes()).expect("it reads"));
    let (begun, mut idle) = (Instant::now(), 0);
    while turns.serving.sessions.count() < FLOODERS + WAITERS || idle < 3 {
        idle = if turns.serving.sessions.has_work() { 0 } else { idle + 1 };
        turns.turn();
        assert!(begun.elapsed() < PATIENCE);
    }
    assert_eq!(waiters.iter_mut().map(read).sum::<usize>(), 0, "no frame has come");
    assert_eq!(turns.feed(), offset);
    // The largest answers there are of a zone that is not within a frame now.
    let requests = "HEAD /v1/zones/1/tiles HTTP/1.1\r\nHost: localhost\r\n\r\n\
                   GET /v1/boards/1?count=100 HTTP/1.1\r\nHost: localhost\r\n\r\n"
        .repeat(500);
    let (mut answers, mut busy, first) = (0, 0, turns.turns);
    while answers < WAITERS {
        for flooder in &mut flooders {
            flooder.flood(requests.as_bytes());
            read(&mut flooder.client);
        }
        turns.feed();
        let has_work = turns.serving.sessions.has_work();
        let folded = turns.turn();
        assert!(folded >= PIECE, "a turn without folding");
        if has_work {
            assert_eq!(folded, PIECE, "clients wait until so much is folded");
            busy += 1;
        }
        answers += waiters.iter_mut().map(read).sum::<usize>();
        let turned = turns.turns - first;
        // One that a socket has something from, and one that needs not wait any more.
        assert!(answers <= 2 * turned, "{answers} clients went on in {turned} turns");
        assert!(begun.elapsed() < PATIENCE, "{answers} answers");
    }
    assert!(2 * busy > turns.turns - first, "clients have mostly had no work");
}

#[test]
fn a_frame_that_is_folded_at_any_moment_reaches_a_stream_at_once() {
    for kind in [RingKind::IoUring, RingKind::Epoll] {
        for moment in 0..16 {
            let mut turns = Turns::new(kind);
            let mut client = turns.connect();
            let request = "GET /v1/stream?zone=0 HTTP/1.1\r\nHost: localhost\r\n\r\n";
            client.write_all(request.as_bytes()).expect("it reads");
            (0..moment).for_each(|_| _ = turns.turn());
            turns.feed_frame();
            let end = format!("\"update\":{}", 4 + PIECE);
            let last = format!("id: 0:{}\n", 3 + PIECE);
            let (begun, mut text) = (Instant::now(), String::new());
            // The stream begins after the frame, or has it.
            while !text.contains(&end) && !text.contains(&last) {
                turns.turn();
                text += &read_text(&mut client);
                assert!(begun.elapsed() < Duration::from_secs(5), "{moment}: {text}");
            }
        }
    }
}

#[test]
fn pipelined_requests_are_counted_by_their_kind_each_time_that_some_are_answered() {
    for kind in [RingKind::IoUring, RingKind::Epoll] {
        let mut turns = Turns::new(kind);
        let mut client = turns.connect();
        let post = "POST /v1/events HTTP/1.1\r\nHost: localhost\r\n\
                    Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
        let get = "GET /v1/players/1/poll HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let requests = [post.to_owned(), get.repeat(3 * ANSWERS)].concat();
        client.write_all(requests.as_bytes()).expect("it reads");
        turns.turn_until(&mut client, 3 * ANSWERS, "HTTP/1.1 200 ");
        // The kernel says that the last ones are sent.
        (0..8).for_each(|_| _ = turns.turn());
        let answers = &turns.serving.served.counts.answers;
        let [gets, posts] = [AnswerKind::Request, AnswerKind::Post]
            .map(|kind| answers[kind as usize].counts().iter().sum::<u64>());
        assert_eq!(posts, 1);
        assert!(gets >= 3, "{gets}");
    }
}

#[test]
fn tokens_are_judged_by_the_host_s_clock_as_it_is_now() {
    // The gate was made when the clock was wrong.
    let gate = gate_of(AllowedOrigins::default(), 1_000);
    let mut turns = Turns::behind(gate, RingKind::Epoll);
    let mut client = turns.connect();
    let token = token_of("reader");
    let request = format!(
        "GET /v1/zones HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
    );
    client.write_all(request.as_bytes()).expect("it reads");
    turns.turn_until(&mut client, 1, "the token has expired");
}

#[test]
fn of_what_a_client_asks_for_at_once_a_bounded_part_is_answered_at_once() {
    let world = World::new();
    let targets = [
        "/v1/players/1/poll",
        "/v1/players/1?after=0:99",
        "/v1/players/9",
        "/v1/boards/world?count=100",
        "/v1/boards/0?around=2&each_side=49",
        "/v1/zones/0/tiles",
        "/v1/zones?at=0:1",
        "/v1/openapi.json",
        "/metrics",
        "/",
        "/v2",
    ];
    let asked = ["GET", "HEAD"].into_iter().flat_map(|of| targets.map(|to| (of, to)));
    // Nothing is made for the head of the page.
    for (method, target) in asked.filter(|asked| *asked != ("HEAD", "/")) {
        let made = world.get(target).len();
        let at_once = ANSWERS.min(BYTES / made + 1);
        let mut exchange = Exchange::default();
        let request = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        exchange.receive(request.repeat(200).as_bytes());
        let mut answers = 0;
        while answers < 200 {
            let need = exchange.advance(&world.served, &world.gate, 0);
            let some = text_of(&exchange).matches("HTTP/1.1 ").count();
            assert!((1..=at_once).contains(&some), "{method} {target}: {some} answers at once");
            answers += some;
            let is_whole = matches!(need, ExchangeNeed::Sending | ExchangeNeed::Bytes);
            assert!(is_whole, "{method} {target}: {need:?}");
            exchange.take_unsent();
        }
        assert_eq!(exchange.advance(&world.served, &world.gate, 0), ExchangeNeed::Bytes);
    }
}
