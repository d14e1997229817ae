//! The reference job on tokio's multi-threaded runtime in its usual form: one task receives and
//! parses, a channel carries the events, one task owns all state, fills frames and publishes them.

use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::message::Message;
use rust_rdkafka::frame::Frame;
use rust_rdkafka::kafka::{Arguments, Publisher, report, wait_for_the_end};
use rust_rdkafka::zone::{Event, Zone};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Events that may wait for the task that owns the state.
const EVENTS_MAX: usize = 16_384;

/// Events that are taken from the channel at once.
const EVENTS_AT_ONCE: usize = 1_024;

/// How long a frame waits for more events: the channel is often empty for a moment. As in huntd,
/// but that tokio's timer counts whole milliseconds.
const LINGER: Duration = Duration::from_micros(500);

/// What a record became: `None` if it is no event.
struct Parsed {
    partition: i32,
    offset: i64,
    event: Option<Event>,
}

fn main() {
    let arguments = Arguments::read();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build();
    let zones = runtime.expect("a runtime").block_on(run(arguments));
    report(&zones);
}

async fn run(arguments: Arguments) -> Vec<Zone> {
    let consumer: StreamConsumer = arguments.consumer().create().expect("the settings are valid");
    consumer.assign(&arguments.assignment()).expect("the assignment is valid");
    let (events, parsed) = mpsc::channel(EVENTS_MAX);
    let receiving = tokio::spawn(async move {
        loop {
            let Ok(record) = consumer.recv().await else { continue };
            let event = Event::parse(record.payload().unwrap_or_default());
            let (partition, offset) = (record.partition(), record.offset());
            if events.send(Parsed { partition, offset, event }).await.is_err() {
                return;
            }
        }
    });
    let partitions = arguments.partitions as usize;
    let publisher = arguments.publisher();
    let playing = tokio::spawn(play(partitions, parsed, publisher));
    tokio::task::spawn_blocking(wait_for_the_end).await.expect("the thread ends");
    // The channel ends with its sender, and what it still holds is played.
    receiving.abort();
    let (zones, publisher) = playing.await.expect("the task ends");
    tokio::task::spawn_blocking(move || publisher.finish()).await.expect("the thread ends");
    zones
}

/// One zone with the frame that is being filled.
#[derive(Default)]
struct Partition {
    zone: Zone,
    frame: Frame,
    next_offset: i64,
}

/// Applies events; sends frames when they are full, or have waited.
async fn play(
    partitions: usize,
    mut parsed: mpsc::Receiver<Parsed>,
    publisher: Publisher,
) -> (Vec<Zone>, Publisher) {
    let mut all: Vec<Partition> = (0..partitions).map(|_| Partition::default()).collect();
    let mut few = Vec::with_capacity(EVENTS_AT_ONCE);
    // When the oldest frame that is not sent was begun.
    let mut begun: Option<Instant> = None;
    loop {
        let more = parsed.recv_many(&mut few, EVENTS_AT_ONCE);
        let received = match begun {
            Some(begun) => timeout_at(begun + LINGER, more).await.ok(),
            None => Some(more.await),
        };
        if received == Some(0) {
            break;
        }
        for Parsed { partition, offset, event } in few.drain(..) {
            let of = &mut all[partition as usize];
            of.zone.apply(event, &mut of.frame);
            of.next_offset = offset + 1;
            if of.frame.is_full() {
                publisher.send(partition, &of.frame.seal(of.next_offset));
            }
        }
        if begun.is_some_and(|begun| begun.elapsed() >= LINGER) {
            send_begun(&mut all, &publisher);
            begun = None;
        } else if begun.is_none() && all.iter().any(|of| !of.frame.is_empty()) {
            begun = Some(Instant::now());
        }
    }
    send_begun(&mut all, &publisher);
    (all.into_iter().map(|of| of.zone).collect(), publisher)
}

/// Sends every frame that was begun.
fn send_begun(all: &mut [Partition], publisher: &Publisher) {
    for (partition, of) in (0..).zip(all).filter(|(_, of)| !of.frame.is_empty()) {
        publisher.send(partition, &of.frame.seal(of.next_offset));
    }
}
