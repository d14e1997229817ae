//! The reference job on smol, with an executor over as many threads as there are cores: a task a
//! partition that parses and applies, and a channel to the one that publishes.

use futures_util::{FutureExt, StreamExt};
use rdkafka::consumer::stream_consumer::StreamPartitionQueue;
use rdkafka::consumer::{Consumer, DefaultConsumerContext, StreamConsumer};
use rdkafka::message::Message;
use rdkafka::util::AsyncRuntime;
use rust_rdkafka::frame::Frame;
use rust_rdkafka::kafka::{Arguments, report, wait_for_the_end};
use rust_rdkafka::zone::{Event, Zone};
use smol::future::FutureExt as _;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Frames that may wait for the publisher.
const FRAMES_MAX: usize = 64;

type Frames = async_channel::Sender<(i32, Vec<u8>)>;

/// What the client library needs of a runtime.
struct Smol;

impl AsyncRuntime for Smol {
    type Delay = Pin<Box<dyn Future<Output = ()> + Send>>;

    fn spawn<T: Future<Output = ()> + Send + 'static>(task: T) {
        smol::spawn(task).detach();
    }

    fn delay_for(duration: Duration) -> Self::Delay {
        Box::pin(async move {
            smol::Timer::after(duration).await;
        })
    }
}

type Queue = StreamPartitionQueue<DefaultConsumerContext, Smol>;

fn main() {
    let arguments = Arguments::read();
    let executor = Arc::new(smol::Executor::new());
    let (stop, stopped) = async_channel::bounded::<()>(1);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for _ in 1..cores {
        let (executor, stopped) = (executor.clone(), stopped.clone());
        std::thread::spawn(move || {
            smol::block_on(executor.run(async { stopped.recv().await.is_err() }))
        });
    }
    let zones = smol::block_on(executor.run(run(&arguments, &executor)));
    drop(stop);
    report(&zones);
}

async fn run(arguments: &Arguments, executor: &smol::Executor<'static>) -> Vec<Zone> {
    let consumer: StreamConsumer<DefaultConsumerContext, Smol> =
        arguments.consumer().create().expect("the settings are valid");
    consumer.assign(&arguments.assignment()).expect("the assignment is valid");
    let consumer = Arc::new(consumer);
    let (end, ended) = async_channel::bounded::<()>(1);
    let (frames, published) = async_channel::bounded::<(i32, Vec<u8>)>(FRAMES_MAX);
    let mut tasks = Vec::new();
    for partition in 0..arguments.partitions {
        let queue = consumer
            .split_partition_queue(&arguments.input, partition)
            .expect("the partition is assigned");
        let (frames, ended) = (frames.clone(), ended.clone());
        tasks.push(executor.spawn(async move {
            let mut zone = Zone::default();
            play(partition, &mut zone, queue, frames, ended).await;
            zone
        }));
    }
    drop(frames);
    // The partitions have queues of their own; here only errors and events come out.
    let events = executor.spawn({
        let consumer = consumer.clone();
        async move {
            loop {
                drop(consumer.recv().await);
            }
        }
    });
    let publisher = arguments.publisher();
    let publishing = executor.spawn(async move {
        while let Ok((partition, frame)) = published.recv().await {
            publisher.send(partition, &frame);
        }
        publisher
    });
    smol::unblock(wait_for_the_end).await;
    drop(end);
    let mut zones = Vec::new();
    for task in tasks {
        zones.push(task.await);
    }
    drop(events);
    let publisher = publishing.await;
    smol::unblock(move || publisher.finish()).await;
    zones
}

/// Applies the records of one partition; sends a frame when it is full or nothing more waits.
async fn play(
    partition: i32,
    zone: &mut Zone,
    queue: Queue,
    frames: Frames,
    ended: async_channel::Receiver<()>,
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
                let over = async {
                    let _ended = ended.recv().await;
                    None
                };
                let more = async { Some(records.next().await) };
                match more.or(over).await {
                    Some(record) => record,
                    None => return,
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
