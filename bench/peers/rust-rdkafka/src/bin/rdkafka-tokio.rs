//! The reference job on tokio's multi-threaded runtime: a task a partition that parses and applies,
//! and a channel to the one that publishes.

use futures_util::{FutureExt, StreamExt};
use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::message::Message;
use rust_rdkafka::frame::Frame;
use rust_rdkafka::kafka::{Arguments, report, wait_for_the_end};
use rust_rdkafka::zone::{Event, Zone};
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Frames that may wait for the publisher.
const FRAMES_MAX: usize = 64;

type Frames = mpsc::Sender<(i32, Vec<u8>)>;

fn main() {
    let arguments = Arguments::read();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_time().build().expect("a runtime");
    let zones = runtime.block_on(run(arguments));
    report(&zones);
}

async fn run(arguments: Arguments) -> Vec<Zone> {
    let consumer: StreamConsumer = arguments.consumer().create().expect("the settings are valid");
    consumer.assign(&arguments.assignment()).expect("the assignment is valid");
    let consumer = Arc::new(consumer);
    let (end, ended) = watch::channel(());
    let (frames, mut published) = mpsc::channel::<(i32, Vec<u8>)>(FRAMES_MAX);
    let mut tasks = Vec::new();
    for partition in 0..arguments.partitions {
        let queue = consumer
            .split_partition_queue(&arguments.input, partition)
            .expect("the partition is assigned");
        let (frames, ended) = (frames.clone(), ended.clone());
        tasks.push(tokio::spawn(async move {
            let mut zone = Zone::default();
            play(partition, &mut zone, queue, frames, ended).await;
            zone
        }));
    }
    drop(frames);
    // The partitions have queues of their own; here only errors and events come out.
    let events = tokio::spawn({
        let consumer = consumer.clone();
        async move {
            loop {
                drop(consumer.recv().await);
            }
        }
    });
    let publisher = arguments.publisher();
    let publishing = tokio::spawn(async move {
        while let Some((partition, frame)) = published.recv().await {
            publisher.send(partition, &frame);
        }
        publisher
    });
    tokio::task::spawn_blocking(wait_for_the_end).await.expect("the thread ends");
    drop(end);
    let mut zones = Vec::new();
    for task in tasks {
        zones.push(task.await.expect("the task ends"));
    }
    events.abort();
    let publisher = publishing.await.expect("the task ends");
    tokio::task::spawn_blocking(move || publisher.finish()).await.expect("the thread ends");
    zones
}

type Queue = rdkafka::consumer::stream_consumer::StreamPartitionQueue<
    rdkafka::consumer::DefaultConsumerContext,
>;

/// Applies the records of one partition; sends a frame when it is full or nothing more waits.
async fn play(
    partition: i32,
    zone: &mut Zone,
    queue: Queue,
    frames: Frames,
    mut ended: watch::Receiver<()>,
) {
    let mut records = queue.stream();
    let mut frame = Frame::new();
    let mut next_offset = 0;
    loop {
        let record = match records.next().now_or_never() {
            Some(record) => record,
            None => {
                if !frame.is_empty() {
                    let sealed = frame.seal(next_offset);
                    frames.send((partition, sealed)).await.expect("the publisher runs");
                }
                tokio::select! {
                    record = records.next() => record,
                    _ = ended.changed() => return,
                }
            }
        };
        let Some(Ok(record)) = record else { continue };
        next_offset = record.offset() + 1;
        zone.apply(Event::parse(record.payload().unwrap_or_default()), &mut frame);
        if frame.is_full() {
            let sealed = frame.seal(next_offset);
            frames.send((partition, sealed)).await.expect("the publisher runs");
        }
    }
}
