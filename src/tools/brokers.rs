//! Whether brokers can be reached, and which of them cannot: librdkafka names none.

use super::failure::ToolError;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Milliseconds that a name and a connection may take together.
const REACH_MS_MAX: u64 = 3_000;

/// Connects to all of these brokers at once. One that can be reached is enough, as for the daemon;
/// the others are named on standard error.
pub(super) fn reach(brokers: &[String]) -> Result<(), ToolError> {
    unreached(brokers)?.map_or(Ok(()), |sentence| super::warn(&sentence))
}

/// The same, with a sentence that names the others, if there are any.
pub(super) fn unreached(brokers: &[String]) -> Result<Option<String>, ToolError> {
    let until = Instant::now() + Duration::from_millis(REACH_MS_MAX);
    let (sender, results) = mpsc::channel();
    for (number, broker) in brokers.iter().cloned().enumerate() {
        let sender = sender.clone();
        // Not joined: a resolver whose servers do not answer is left alone.
        thread::spawn(move || drop(sender.send((number, connect(&broker, until)))));
    }
    drop(sender);
    let late = format!("does not answer within {} s", REACH_MS_MAX / 1000);
    let mut found: Vec<Result<(), String>> = vec![Err(late); brokers.len()];
    while let Ok((number, result)) =
        results.recv_timeout(until.saturating_duration_since(Instant::now()))
    {
        found[number] = result;
        if found.iter().all(Result::is_ok) {
            return Ok(None);
        }
    }
    let trouble = brokers.iter().zip(&found).filter_map(|(broker, result)| {
        result.as_ref().err().map(|trouble| format!("{broker} {trouble}"))
    });
    let trouble = trouble.collect::<Vec<_>>().join(", ");
    match found.iter().any(Result::is_ok) {
        true => Ok(Some(format!("another broker answers, but {trouble}"))),
        false => Err(ToolError::Unreachable(trouble)),
    }
}

/// Connects to one broker: what went wrong, to follow its name.
fn connect(broker: &str, until: Instant) -> Result<(), String> {
    let addresses: Vec<SocketAddr> = match broker.to_socket_addrs() {
        Ok(addresses) => addresses.collect(),
        Err(error) => return Err(format!("cannot be resolved ({error})")),
    };
    let mut trouble = "has no address".to_owned();
    for address in addresses {
        let left = until.saturating_duration_since(Instant::now());
        match TcpStream::connect_timeout(&address, left.max(Duration::from_millis(1))) {
            Ok(_) => return Ok(()),
            Err(error) => trouble = format!("cannot be reached ({error})"),
        }
    }
    Err(trouble)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn brokers_that_cannot_be_reached_are_named_with_the_reason() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let alive = listener.local_addr().expect("bound").to_string();
        let refused = "127.0.0.1:1".to_owned();
        let unknown = "no-such-host.invalid:9092".to_owned();
        assert!(reach(std::slice::from_ref(&alive)).is_ok());
        let others = unreached(&[refused.clone(), alive]).expect("one is enough");
        assert!(others.expect("one is away").contains("but 127.0.0.1:1 cannot be reached ("));
        let sentence = reach(&[refused, unknown]).expect_err("none answers").to_string();
        assert!(sentence.contains("127.0.0.1:1 cannot be reached ("), "{sentence}");
        assert!(sentence.contains("no-such-host.invalid:9092 "), "{sentence}");
    }
}
