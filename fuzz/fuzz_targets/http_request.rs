//! Requests of clients, whole and in pieces: both are answered alike. And what clients send over a
//! WebSocket.

#![no_main]

use huntd::hunt::Shard;
use huntd::hunt::rules::rulebook::Rulebook;
use huntd::hunt::rules_file::built_in;
use huntd::serve::answers::{Served, ZoneState};
use huntd::serve::exchange::{Exchange, ExchangeNeed};
use huntd::serve::gate::Gate;
use huntd::serve::lag::Lag;
use huntd::view::game::ZoneImage;
use huntd::view::zone::{ZonePosition, ZoneView};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use std::time::{Duration, Instant};

thread_local! {
    static SERVED: Served = {
        let rulebook = Rulebook::of(built_in());
        let shard = Shard::new(0, &rulebook);
        let mut served = Served::new(&rulebook, 1, Duration::from_secs(2));
        let image = ZoneImage::of(&shard);
        served.view.put(ZoneView::of_engine(image, Arc::new(rulebook), ZonePosition::default()));
        // An answer tells the lag, so it must not grow between two requests.
        let lag = Lag::none(Instant::now() + Duration::from_secs(1 << 30));
        served.zones[0] = ZoneState::Live { owner_epoch: 1, lag };
        served
    };
}

/// All that is answered to these pieces, until something else than bytes is needed.
fn answers<'a>(served: &Served, pieces: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let (mut exchange, mut answers, gate) = (Exchange::default(), Vec::new(), Gate::open());
    for piece in pieces {
        exchange.receive(piece);
        loop {
            let need = exchange.advance(served, &gate, 0);
            answers.extend_from_slice(&exchange.take_unsent());
            match need {
                ExchangeNeed::Sending => {}
                ExchangeNeed::Bytes | ExchangeNeed::Turn(_) => break,
                _ => return answers,
            }
        }
    }
    answers
}

/// The request after which a client's bytes are frames.
const HANDSHAKE: &[u8] = b"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

fuzz_target!(|input: &[u8]| {
    let Some((size, bytes)) = input.split_first() else { return };
    let frames = [HANDSHAKE, bytes].concat();
    SERVED.with(|served| {
        // Pings after a command are answered if they have come before the command is looked at.
        answers(served, std::iter::once(&frames[..]));
        answers(served, frames.chunks(1 + usize::from(*size)));
        let whole = answers(served, std::iter::once(bytes));
        let pieces = answers(served, bytes.chunks(1 + usize::from(*size)));
        // A body that is waited for is asked for.
        if !pieces.windows(12).any(|part| part == b"HTTP/1.1 100") {
            assert_eq!(String::from_utf8_lossy(&whole), String::from_utf8_lossy(&pieces));
        }
    });
});
