//! WebSockets: the topics of streams, and commands with their outcomes, one after the other.

use super::access::{ORIGIN_S, player_token, token_of, world_at_rate};
use super::posting::{appended, decide};
use super::{World, documented, text_of};
use crate::hunt::event::Action;
use crate::serve::command::Appended;
use crate::serve::exchange::{Exchange, ExchangeNeed};
use crate::serve::gate::Gate;
use crate::serve::stream::StreamTurn;
use crate::serve::waiting::AwaitedOffset;
use crate::service::AllowedOrigins;
use crate::testing::random::Random;
use serde_json::{Value, json};
use std::io::{self, ErrorKind, Read, Write};
use tungstenite::protocol::frame::CloseFrame;
use tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tungstenite::protocol::frame::{Frame, FrameHeader};
use tungstenite::protocol::{Message, Role, WebSocketContext};

/// A key and what the server makes of it (RFC 6455, 1.3).
const KEY: (&str, &str) = ("dGhlIHNhbXBsZSBub25jZQ==", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");

/// A client with a WebSocket, and the server's exchange with it.
struct Client {
    exchange: Exchange,
    context: WebSocketContext,
    wire: Wire,
    need: ExchangeNeed,
    now_ms: u64,
}

/// Bytes to the client that it has not read, and bytes of the client that are not received.
#[derive(Default)]
struct Wire {
    down: Vec<u8>,
    up: Vec<u8>,
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.down.len().min(buffer.len());
        if bytes == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        buffer[..bytes].copy_from_slice(&self.down[..bytes]);
        self.down.drain(..bytes);
        Ok(bytes)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.up.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn handshake(target: &str, more: &str) -> String {
    format!(
        "GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {}\r\n{more}\r\n",
        KEY.0
    )
}

impl Client {
    fn open(world: &World, target: &str, more: &str) -> Client {
        let mut exchange = Exchange::default();
        exchange.receive(handshake(target, more).as_bytes());
        let need = exchange.advance(&world.served, &world.gate, 0);
        let answer = text_of(&exchange);
        documented::check("GET", target, &answer);
        let accept = format!("\r\nSec-WebSocket-Accept: {}\r\n", KEY.1);
        assert!(answer.starts_with("HTTP/1.1 101 ") && answer.contains(&accept), "{answer}");
        assert_eq!(need, ExchangeNeed::Sending);
        exchange.take_unsent();
        let context = WebSocketContext::new(Role::Client, None);
        Client { exchange, context, wire: Wire::default(), need, now_ms: 0 }
    }

    /// Lets the server go on, until it waits.
    fn advance(&mut self, world: &World) {
        self.exchange.receive(&std::mem::take(&mut self.wire.up));
        for _ in 0..100 {
            self.need = self.exchange.advance(&world.served, &world.gate, self.now_ms);
            self.wire.down.append(&mut self.exchange.take_unsent());
            if self.need != ExchangeNeed::Sending {
                return;
            }
        }
        panic!("it never waits");
    }

    fn send(&mut self, message: Message) {
        self.context.write(&mut self.wire, message).expect("the client's half is open");
        self.context.flush(&mut self.wire).expect("the wire takes it");
    }

    fn command(&mut self, command: &Value) {
        self.send(Message::text(command.to_string()));
    }

    /// What the server has sent, as far as it has come.
    fn messages(&mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        loop {
            match self.context.read(&mut self.wire) {
                Ok(message) => messages.push(message),
                Err(tungstenite::Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => {
                    return messages;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// The events among them.
    fn events(&mut self) -> Vec<Value> {
        let mut events = Vec::new();
        for message in self.messages() {
            let text = message.into_text().expect("events are texts");
            let together: Vec<Value> = serde_json::from_str(&text).expect("an array");
            assert!(!together.is_empty(), "a message has at least one event");
            together.iter().for_each(documented::check_socket_event);
            events.extend(together);
        }
        events
    }

    /// The code with which the server has closed.
    fn closed(&mut self) -> CloseCode {
        match self.messages().pop() {
            Some(Message::Close(Some(CloseFrame { code, .. }))) => code,
            other => panic!("{other:?} is no close"),
        }
    }
}

/// The names of events; of updates, their ids.
fn names(events: &[Value]) -> Vec<&str> {
    let names = events.iter().map(|event| event.get("id").unwrap_or(&event["event"]));
    names.map(|name| name.as_str().expect("a text")).collect()
}

#[test]
fn a_socket_has_the_topics_of_a_stream_and_is_resumed_where_it_ended() {
    let mut world = World::new();
    let mut client = Client::open(&world, "/v1/stream?zone=0&player=1&board=0", "");
    client.advance(&world);
    assert_eq!(names(&client.events()), ["at", "card", "board"]);
    for heading in 1..=300 {
        world.act(1, Action::Rotate { heading });
    }
    let all: Vec<String> = (4..world.next_update()).map(|number| format!("0:{number}")).collect();
    let mut read = Vec::new();
    while read.len() < all.len() {
        client.advance(&world);
        read.extend(client.events());
    }
    assert_eq!(names(&read), all);
    assert_eq!(read[7]["data"]["kind"], "rotated");
    let target = format!("/v1/stream?zone=0&last_event_id={}", all[299]);
    let mut resumed = Client::open(&world, &target, "");
    resumed.advance(&world);
    assert_eq!(names(&resumed.events()), all[300..]);
}

#[test]
fn updates_that_came_together_are_one_message() {
    let mut world = World::new();
    let mut client = Client::open(&world, "/v1/stream?zone=0", "");
    client.advance(&world);
    client.events();
    for heading in 1..=40 {
        world.act(1, Action::Rotate { heading });
    }
    client.advance(&world);
    let messages = client.messages();
    let [Message::Text(text)] = messages.as_slice() else { panic!("{messages:?}") };
    let updates: Vec<Value> = serde_json::from_str(text).expect("an array");
    let headings = updates.iter().filter_map(|update| update["data"]["heading"].as_u64());
    assert!(headings.eq(1..=40), "{updates:?}");
}

#[test]
fn a_quiet_socket_is_pinged_and_its_client_s_pings_are_answered() {
    let world = World::new();
    let mut client = Client::open(&world, "/v1/stream", "");
    client.advance(&world);
    assert_eq!(client.messages(), [], "it has no topics");
    client.now_ms = 15_000;
    client.advance(&world);
    assert_eq!(client.messages(), [Message::Ping(Vec::new().into())]);
    client.send(Message::Ping(b"here".to_vec().into()));
    client.advance(&world);
    assert_eq!(client.messages(), [Message::Pong(b"here".to_vec().into())]);
}

#[test]
fn commands_of_a_socket_are_answered_in_their_order_with_what_became_of_them() {
    let mut world = World::new();
    let mut client = Client::open(&world, "/v1/stream?zone=0", "");
    client.advance(&world);
    client.events();
    let rotate = json!({"type": "rotate", "player_id": 1, "heading": 77});
    client.command(&json!({"request": 5, "post": rotate}));
    client.command(&json!({"request": 6, "post": [{"type": "use", "player_id": 1, "item": 3}]}));
    client.command(&json!({"request": 7, "post": rotate, "zone": 9}));
    client.command(&json!({"request": 8, "post": {"type": "fly"}, "wait_ms": 10_001}));
    client.send(Message::text("{}"));
    client.advance(&world);
    let mut answers = Vec::new();
    for request in 5..=6 {
        assert_eq!(client.need, ExchangeNeed::Post, "request {request}");
        let appended = appended(&world, &client.exchange, 0).expect("they are events");
        let record = appended[0].0.record.clone();
        client.exchange.begin_append();
        // The stream goes on while the brokers have the event.
        world.act(2, Action::Rotate { heading: request });
        client.advance(&world);
        assert!(client.events().iter().any(|event| event["data"]["heading"] == request));
        // What the test has appended before lies where the brokers have put the event.
        let offset = world.events;
        let placed = appended.into_iter().map(|(command, _)| (command, Appended::At(offset)));
        client.exchange.append(Ok(placed.collect()));
        client.advance(&world);
        let awaited = AwaitedOffset { zone: 0, next_offset: offset + 1 };
        let ExchangeNeed::Turn(StreamTurn { until_ms, or_offset, .. }) = client.need else {
            panic!("{:?}", client.need)
        };
        assert!(or_offset == Some(awaited) && until_ms <= 1_000);
        decide(&mut world, &record);
        client.advance(&world);
        answers.extend(client.events().into_iter().filter(|event| event["event"] == "answer"));
    }
    // The third one is refused when its events are looked at.
    assert_eq!(client.need, ExchangeNeed::Post);
    let refused = appended(&world, &client.exchange, 0);
    client.exchange.append(refused);
    client.advance(&world);
    answers.extend(client.events().into_iter().filter(|event| event["event"] == "answer"));
    let of = |name: &str| answers.iter().map(|answer| answer[name].clone()).collect::<Vec<_>>();
    assert_eq!(of("request"), [json!(5), json!(6), json!(7), json!(8), Value::Null]);
    assert_eq!(of("status"), [200, 200, 404, 400, 400]);
    assert_eq!(answers[0]["data"]["outcome"], "applied");
    assert_eq!(answers[1]["data"]["results"][0]["outcome"], "refused");
}

/// Lets the brokers take what the client has posted, one command after the other.
fn append_posted(world: &World, client: &mut Client, posted: &mut Vec<Vec<u8>>) {
    while client.need == ExchangeNeed::Post {
        let (body, ..) = client.exchange.posted().expect("it was posted");
        posted.push(body.to_vec());
        let appended = appended(world, &client.exchange, 0);
        client.exchange.begin_append();
        client.advance(world);
        assert!(matches!(client.need, ExchangeNeed::Turn(_)), "{:?}", client.need);
        client.exchange.append(appended);
        client.advance(world);
    }
}

#[test]
fn commands_before_a_close_are_appended_wherever_the_bytes_are_cut_and_then_it_is_answered() {
    let world = World::new();
    let posts = [1, 2, 3].map(|player_id| json!({"type": "leave", "player_id": player_id}));
    let expected: Vec<Vec<u8>> = posts.iter().map(|post| post.to_string().into_bytes()).collect();
    for cut in (0..).step_by(7) {
        let mut client = Client::open(&world, "/v1/stream?zone=0", "");
        client.advance(&world);
        client.events();
        for (request, post) in (1..).zip(&posts) {
            client.command(&json!({"request": request, "post": post, "wait_ms": 5_000}));
        }
        client.context.close(&mut client.wire, None).expect("it is open");
        let bytes = std::mem::take(&mut client.wire.up);
        if cut > bytes.len() {
            break;
        }
        let mut posted = Vec::new();
        for (piece, is_whole) in
            [(&bytes[..cut], cut == bytes.len()), (&bytes[cut..], cut < bytes.len())]
        {
            client.wire.up = piece.to_vec();
            client.advance(&world);
            assert_eq!(client.exchange.is_ending(), is_whole, "cut at {cut}");
            append_posted(&world, &mut client, &mut posted);
        }
        assert_eq!((&posted, client.need), (&expected, ExchangeNeed::Close), "cut at {cut}");
        assert!(!client.exchange.is_ending(), "cut at {cut}");
        assert_eq!(client.messages(), [Message::Close(None)], "cut at {cut}");
    }
}

#[test]
fn what_is_no_message_of_a_client_ends_the_socket_with_the_code_of_the_standard() {
    let world = World::new();
    let open = || {
        let mut client = Client::open(&world, "/v1/stream?zone=0", "");
        client.advance(&world);
        client.events();
        client
    };
    let frame = |code: Data, is_final, mask, payload: &[u8]| {
        let header =
            FrameHeader { is_final, opcode: OpCode::Data(code), mask, ..FrameHeader::default() };
        let mut bytes = Vec::new();
        Frame::from_payload(header, payload.to_vec().into()).format(&mut bytes).expect("a vector");
        bytes
    };
    let masked = Some([1, 2, 3, 4]);
    let long = vec![b'a'; 16 * 1024 + 1];
    let cases = [
        (frame(Data::Text, true, None, b"{}"), CloseCode::Protocol),
        (frame(Data::Continue, true, masked, b"{}"), CloseCode::Protocol),
        (frame(Data::Binary, true, masked, b"{}"), CloseCode::Unsupported),
        (frame(Data::Text, true, masked, b"\xff"), CloseCode::Invalid),
        (frame(Data::Text, true, masked, &long), CloseCode::Size),
        (
            [
                frame(Data::Text, false, masked, &long[1..]),
                frame(Data::Continue, true, masked, b"a"),
            ]
            .concat(),
            CloseCode::Size,
        ),
        (vec![0xf1, 0x80, 0, 0, 0, 0], CloseCode::Protocol),
        (vec![0x8f, 0x80, 0, 0, 0, 0], CloseCode::Protocol),
    ];
    for (at, (bytes, code)) in cases.into_iter().enumerate() {
        let mut client = open();
        client.wire.up = bytes;
        client.advance(&world);
        assert_eq!(client.need, ExchangeNeed::Close, "case {at}");
        assert_eq!(client.closed(), code, "case {at}");
    }
    let mut client = open();
    client.context.close(&mut client.wire, None).expect("it is open");
    client.advance(&world);
    assert_eq!(client.need, ExchangeNeed::Close);
    assert_eq!(client.messages(), [Message::Close(None)], "the close is answered");
}

#[test]
fn a_message_may_come_in_any_pieces() {
    let world = World::new();
    let mut random = Random::new(11);
    for round in 0..200 {
        let mut client = Client::open(&world, "/v1/stream", "");
        let text = format!(r#"{{"request":{round},"post":{{"type":"leave","player_id":1}}}}"#);
        let (mut bytes, mut rest, mut opcode) = (Vec::new(), text.as_bytes(), Data::Text);
        loop {
            let (payload, after) = rest.split_at(random.below(rest.len() as u64 + 1) as usize);
            let is_final = after.is_empty();
            let header = FrameHeader {
                is_final,
                opcode: OpCode::Data(opcode),
                mask: Some([random.below(256) as u8; 4]),
                ..FrameHeader::default()
            };
            let frame = Frame::from_payload(header, payload.to_vec().into());
            frame.format(&mut bytes).expect("a vector");
            (rest, opcode) = (after, Data::Continue);
            if is_final {
                break;
            }
        }
        for piece in bytes.chunks(1 + random.below(9) as usize) {
            assert_ne!(client.need, ExchangeNeed::Post, "round {round}");
            client.wire.up = piece.to_vec();
            client.advance(&world);
        }
        assert_eq!(client.need, ExchangeNeed::Post, "round {round}");
        let (posted, ..) = client.exchange.posted().expect("it was posted");
        assert_eq!(posted, br#"{"type":"leave","player_id":1}"#);
    }
}

#[test]
fn no_bytes_of_a_client_do_more_than_end_its_socket() {
    let world = World::new();
    for seed in 0..2_000 {
        let mut random = Random::new(seed);
        let mut client = Client::open(&world, "/v1/stream?zone=0", "");
        client.command(&json!({"request": seed, "post": []}));
        client.send(Message::Ping(vec![7; 20].into()));
        for _ in 0..1 + random.below(3) {
            let at = random.below(client.wire.up.len() as u64) as usize;
            client.wire.up[at] = random.below(256) as u8;
        }
        for _ in 0..3 {
            client.advance(&world);
            if client.need == ExchangeNeed::Post {
                let refused = appended(&world, &client.exchange, 0);
                client.exchange.append(refused);
            }
        }
        let is_open = matches!(client.need, ExchangeNeed::Turn(_) | ExchangeNeed::Post);
        assert!(is_open || client.need == ExchangeNeed::Close, "seed {seed}: {:?}", client.need);
    }
}

#[test]
fn a_client_that_sends_without_reading_is_not_read_on() {
    let world = World::new();
    let mut client = Client::open(&world, "/v1/stream", "");
    for request in 0..8 {
        client.command(&json!({"request": request, "post": {"type": "leave", "player_id": 1}}));
    }
    client.advance(&world);
    client.exchange.begin_append();
    // One is under way and four wait; the bytes of the others stay where the sockets see them.
    client.send(Message::text("x".repeat(10_000)));
    client.advance(&world);
    assert!(client.exchange.received_bytes() > 9_000);
}

#[test]
fn a_handshake_that_is_none_is_refused() {
    let world = World::new();
    let status = |request: &str| {
        let mut exchange = Exchange::default();
        exchange.receive(request.as_bytes());
        exchange.advance(&world.served, &world.gate, 0);
        let answer = text_of(&exchange);
        documented::check("GET", "/v1/stream", &answer);
        (answer[9..12].to_owned(), answer)
    };
    let good = handshake("/v1/stream?zone=0", "");
    assert_eq!(status(&good).0, "101");
    let (code, answer) = status(&good.replace("Version: 13", "Version: 8"));
    assert!(code == "426" && answer.contains("\r\nSec-WebSocket-Version: 13\r\n"), "{answer}");
    for key in ["", "dGhl", "no base64 at all..=="] {
        assert_eq!(status(&good.replace(KEY.0, key)).0, "400", "{key}");
    }
    assert_eq!(status(&good.replace("zone=0", "zone=7")).0, "404");
    // A client that does not ask for a WebSocket in every line gets server-sent events.
    assert_eq!(status(&good.replace("Upgrade: websocket", "Upgrade: h2c")).0, "200");
    assert_eq!(status(&good.replace("keep-alive, Upgrade", "keep-alive")).0, "200");
}

#[test]
fn a_page_gets_a_socket_if_it_is_served_and_may_post_if_it_is_listed() {
    let opened = |world: &World, host: &str, origin: &str, more: &str| {
        let mut exchange = Exchange::default();
        let request = handshake("/v1/stream", &format!("Origin: {origin}\r\n{more}"));
        exchange.receive(request.replace("Host: localhost", &format!("Host: {host}")).as_bytes());
        exchange.advance(&world.served, &world.gate, 0);
        (text_of(&exchange)[9..12].to_owned(), exchange)
    };
    let mut world = World::new();
    let game = "https://game.example";
    assert_eq!(opened(&world, "localhost", game, "").0, "403");
    assert_eq!(opened(&world, "localhost", "http://localhost:8000", "").0, "101");
    for (origins, may_post) in
        [(AllowedOrigins::Listed(vec![game.to_owned()]), true), (AllowedOrigins::Any, false)]
    {
        world.gate = Gate::new(None, origins, 0);
        let (status, exchange) = opened(&world, "localhost", game, "");
        assert_eq!(status, "101");
        let mut client = Client::open(&world, "/v1/stream", "");
        client.exchange = exchange;
        client.exchange.take_unsent();
        client.command(&json!({"request": 1, "post": {"type": "leave", "player_id": 1}}));
        client.advance(&world);
        assert_eq!(client.need, ExchangeNeed::Post);
        assert_eq!(appended(&world, &client.exchange, 0).is_ok(), may_post);
    }
    // With tokens, the page's own origin is that of the server, whatever its host is called.
    let world = world_at_rate(1_000);
    let token = format!("Authorization: Bearer {}\r\n", token_of("reader"));
    assert_eq!(opened(&world, "play.example", "https://play.example", &token).0, "101");
    assert_eq!(opened(&world, "play.example", game, &token).0, "403");
    assert_eq!(opened(&world, "play.example", "https://play.example", "").0, "401");
}

#[test]
fn messages_that_are_no_commands_count_too() {
    let world = world_at_rate(1);
    let token = format!("Authorization: Bearer {}\r\n", token_of("all"));
    let mut client = Client::open(&world, "/v1/stream", &token);
    for message in 1..=64 {
        client.send(Message::text("no command"));
        client.advance(&world);
        let status = if message < 64 { 400 } else { 429 };
        assert_eq!(client.events()[0]["status"], status, "{message}");
    }
    client.command(&json!({"request": 7, "post": []}));
    client.advance(&world);
    let answer = client.events();
    assert_eq!((&answer[0]["status"], &answer[0]["request"]), (&json!(429), &json!(7)));
}

#[test]
fn messages_count_as_requests_and_a_socket_ends_with_its_token() {
    let world = world_at_rate(1);
    let token = player_token(2, ORIGIN_S + 60);
    let more = format!("Authorization: Bearer {token}\r\n");
    let mut client = Client::open(&world, "/v1/stream?player=2", &more);
    client.advance(&world);
    client.events();
    // The handshake was the first of 64.
    for request in 1..=64 {
        client.command(&json!({"request": request, "post": {"type": "leave", "player_id": 3}}));
        client.advance(&world);
        if client.need == ExchangeNeed::Post {
            let refused = appended(&world, &client.exchange, 0);
            assert!(refused.is_err(), "it is another player");
            client.exchange.append(refused);
            client.advance(&world);
        }
        let status = if request < 64 { 403 } else { 429 };
        assert_eq!(client.events()[0]["status"], status, "request {request}");
    }
    client.now_ms = 91_000;
    client.advance(&world);
    assert_eq!((client.need, client.closed()), (ExchangeNeed::Close, CloseCode::Policy));
}

#[test]
fn a_socket_of_a_halted_zone_says_so_and_ends() {
    let mut world = World::new();
    let mut client = Client::open(&world, "/v1/stream?zone=0", "");
    client.advance(&world);
    client.events();
    world.served.halt(0, "its log was cut".to_owned());
    client.advance(&world);
    assert_eq!(client.need, ExchangeNeed::Close);
    let messages = client.messages();
    let [Message::Text(halted), Message::Close(Some(closed))] = &messages[..] else {
        panic!("{messages:?}")
    };
    let halted: Value = serde_json::from_str(halted).expect("JSON");
    let halted = &halted[0];
    assert_eq!((&halted["event"], &halted["data"]["zone"]), (&json!("halted"), &json!(0)));
    assert_eq!(closed.code, CloseCode::Error);
}
