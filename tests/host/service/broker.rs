//! Verbs against a broker whose answers make no sense: librdkafka would read what is not there.

use super::command_line::huntd;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

/// Kafka's number of the request for the versions, and its error code for one that is not known.
const API_VERSIONS: i16 = 18;
const UNSUPPORTED_VERSION: i16 = 35;

/// Kafka's numbers of the requests that huntd and librdkafka need, with versions of a real broker.
const KNOWN: [[i16; 3]; 15] = [
    [0, 0, 9],
    [1, 4, 13],
    [2, 0, 6],
    [3, 0, 12],
    [8, 0, 7],
    [9, 0, 6],
    [10, 0, 3],
    [11, 0, 6],
    [12, 0, 4],
    [13, 0, 4],
    [14, 0, 4],
    [18, 0, 3],
    [19, 0, 5],
    [22, 0, 3],
    [32, 0, 3],
];

/// The address of a broker that says which requests it knows, and answers them with zeros.
fn senseless_broker() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("a client");
            thread::spawn(move || answer_until_gone(stream));
        }
    });
    address
}

fn answer_until_gone(mut stream: TcpStream) -> io::Result<()> {
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let mut request = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut request)?;
        let [api_key, version] =
            [0, 2].map(|at| i16::from_be_bytes([request[at], request[at + 1]]));
        let correlation_id = &request[4..8];
        let body = match api_key {
            API_VERSIONS => known(version),
            _ => vec![0; 400],
        };
        let length = (correlation_id.len() + body.len()) as u32;
        stream.write_all(&[&length.to_be_bytes(), correlation_id, &body].concat())?;
    }
}

/// The answer in version 0. Who asks with another is told to ask with that.
fn known(version: i16) -> Vec<u8> {
    let error = if version == 0 { 0 } else { UNSUPPORTED_VERSION };
    let ranges = KNOWN.iter().flatten().flat_map(|number| number.to_be_bytes());
    let head = [&error.to_be_bytes()[..], &(KNOWN.len() as u32).to_be_bytes()].concat();
    head.into_iter().chain(ranges).collect()
}

#[test]
fn a_broker_whose_answers_make_no_sense_ends_each_verb_with_a_sentence() {
    let broker = senseless_broker();
    let brokers = format!("kafka.brokers={broker}");
    let configured = ["--config", "config/huntd.toml", "--set", &brokers];
    let named = ["--brokers", &broker, "--topic", "hunt-events"];
    for (verb, arguments) in [
        (&["check"][..], configured),
        (&["serve"], configured),
        (&["topics", "--check"], configured),
        (&["rules", "--zones"], configured),
        (&["load", "--events", "10", "--players", "5"], named),
        (&["tap", "--until-end"], named),
        (&["replay"], named),
    ] {
        let (code, _, error) = huntd(&[verb, &arguments[..]].concat(), &[]);
        assert_eq!(code, Some(4), "{verb:?}: {error}");
        let sentence = format!("broker {broker}: the broker's Metadata answer is malformed");
        assert_eq!(error.matches(&sentence).count(), 1, "{verb:?}: {error}");
    }
}
