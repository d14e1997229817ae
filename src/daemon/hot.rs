//! The hot thread: the stages of an event's path, joined in one future on one core.

use crate::fetch::addresses::Addresses;
use crate::fetch::block::{Block, BlockPool};
use crate::fetch::cursor::Cursors;
use crate::fetch::stage::{Fetching, Shared};
use crate::fetch::{FetchOptions, Report, Resolved};
use crate::kafka::metadata::LeaderTable;
use crate::output::frame::Frame;
use crate::publisher::Outgoing;
use crate::queue::bell::Bell;
use crate::queue::{self, Receiver, Sender};
use crate::runtime::allocator;
use crate::runtime::driver::Turns;
use crate::runtime::hot_loop::HotLoop;
use crate::runtime::operations::Handle;
use crate::runtime::ring::RingError;
use crate::shards::checkpoints::WriterPath;
use crate::shards::{Command, FRAMES_MAX, Notice, Shards, Tools};
use crate::snapshot::checkpoint::{Buffer, Message};
use crate::telemetry::metrics::{Counter, Gauge, Metrics};
use crate::telemetry::progress::Progress;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// What the hot thread is given.
pub struct HotEnds {
    /// What the operator chose for the fetch path.
    pub fetch: FetchOptions,
    /// Addresses of the brokers to ask first.
    pub bootstrap: Vec<SocketAddr>,
    /// Blocks that the queue holds.
    pub queue_blocks: usize,
    /// How long updates may wait for more.
    pub linger: Duration,
    /// Frames and dead letters of one shard that may be unacknowledged.
    pub frames_per_shard: u64,
    /// Bytes that may be unacknowledged, over all shards.
    pub bytes_max: u64,
    /// From the control thread.
    pub commands: Receiver<Command>,
    /// To the control thread.
    pub notices: Sender<Notice>,
    /// To the control thread.
    pub reports: Sender<Report>,
    /// From the control thread.
    pub resolved: Receiver<Resolved>,
    /// To the publisher.
    pub outbox: Sender<Outgoing>,
    /// From the publisher.
    pub free_frames: Receiver<Box<Frame>>,
    /// Wakes the publisher.
    pub bell: Arc<Bell>,
    /// To the keeper; `None`: there are no snapshots.
    pub keeper: Option<CheckpointEnds>,
    /// How far each shard is.
    pub progress: Arc<Progress>,
    /// The counters.
    pub metrics: Arc<Metrics>,
}

/// The hot thread's way to the keeper.
pub struct CheckpointEnds {
    /// What the keeper is told.
    pub messages: Sender<Message>,
    /// From the keeper.
    pub free_buffers: Receiver<Buffer>,
    /// Wakes the keeper.
    pub bell: Arc<Bell>,
    /// From one snapshot of a shard to its next.
    pub every: Duration,
}

/// Runs the event path until the control thread ends it.
pub fn run(hot_loop: &HotLoop, ends: HotEnds) -> Result<(), RingError> {
    let metrics = ends.metrics.clone();
    let mut bells = vec![Call::new(&ends.bell, {
        let outbox = ends.outbox.clone();
        move || !outbox.is_empty()
    })?];
    if let Some(keeper) = &ends.keeper {
        let messages = keeper.messages.clone();
        bells.push(Call::new(&keeper.bell, move || !messages.is_empty())?);
    }
    let driver = hot_loop.driver();
    let mut stages = Stages::new(driver, ends);
    let root = poll_fn(|context| {
        let turned = stages.turn(context);
        for call in &bells {
            if (call.is_due)() && call.bell.must_ring() {
                driver.operations().ring_bell(&call.handle);
            }
        }
        turned
    });
    allocator::count_this_thread();
    hot_loop.run(root, |hot_loop| {
        metrics.take_over(Counter::Turns, hot_loop.driver().turns());
        metrics.take_over(Counter::RingEnters, hot_loop.ring().enters());
        metrics.take_over(Counter::HotAllocations, allocator::hot_allocations());
    })
}

/// How a thread is woken that something was sent to.
struct Call {
    bell: Arc<Bell>,
    handle: Handle,
    is_due: Box<dyn Fn() -> bool>,
}

impl Call {
    fn new(bell: &Arc<Bell>, is_due: impl Fn() -> bool + 'static) -> Result<Call, RingError> {
        let handle = Rc::new(bell.as_fd().try_clone_to_owned()?);
        Ok(Call { bell: bell.clone(), handle, is_due: Box::new(is_due) })
    }
}

/// The stages of an event's path.
pub struct Stages {
    /// Dropped when it has ended, and the queue with it: the world drains what is left and ends
    /// too.
    fetching: Option<Pin<Box<Fetching>>>,
    world: Shards,
    blocks: Receiver<Box<Block>>,
}

impl Stages {
    /// Stages that have not had a turn yet.
    pub fn new(driver: &Rc<Turns>, ends: HotEnds) -> Stages {
        ends.metrics.set_gauge(Gauge::QueueBlocksMax, ends.queue_blocks as u64);
        let (block_sender, blocks) = queue::bounded::<Box<Block>>(ends.queue_blocks);
        let cursors = Cursors::new();
        let pool = Rc::new(BlockPool::default());
        let shared = Rc::new(Shared {
            driver: driver.clone(),
            options: ends.fetch,
            bootstrap: ends.bootstrap,
            cursors: cursors.clone(),
            pool: pool.clone(),
            table: RefCell::new(LeaderTable::new()),
            addresses: RefCell::new(Addresses::default()),
            reports: ends.reports,
            progress: ends.progress.clone(),
            metrics: ends.metrics.clone(),
        });
        let keeper = ends.keeper.map(|keeper| {
            let CheckpointEnds { messages, free_buffers, every, .. } = keeper;
            WriterPath { messages, free_buffers, every }
        });
        let world = Shards::new(Tools {
            driver: driver.clone(),
            cursors,
            pool,
            commands: ends.commands,
            notices: ends.notices,
            free_frames: ends.free_frames,
            spare_frames: Vec::with_capacity(FRAMES_MAX),
            outbox: ends.outbox,
            frames_per_shard: ends.frames_per_shard,
            bytes_max: ends.bytes_max,
            shards_max: Cell::new(1),
            linger: ends.linger,
            keeper,
            progress: ends.progress,
            metrics: ends.metrics,
        });
        let fetching = Some(Box::pin(Fetching::new(shared, block_sender, ends.resolved)));
        Stages { fetching, world, blocks }
    }

    /// One turn of each stage, in the order in which data flows. Ready: the last shard is closed.
    pub fn turn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let fetching = self.fetching.as_mut();
        if fetching.is_some_and(|stage| stage.as_mut().poll(context).is_ready()) {
            self.fetching = None;
        }
        self.world.turn(context, &mut self.blocks)
    }
}
