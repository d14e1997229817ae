//! The hot thread: the stages of the event path, joined in one future on one core.

use crate::fetch::FetchOptions;
use crate::fetch::block::{Block, BlockPool};
use crate::fetch::cursor::Cursors;
use crate::fetch::dialling::DialEnds;
use crate::fetch::stage::{FetchEnds, Fetching};
use crate::kit::event::EventTable;
use crate::queue::bell::Bell;
use crate::queue::{self, Received, Receiver};
use crate::runtime::allocator;
use crate::runtime::confinement::{Confinement, confine_this_thread};
use crate::runtime::operations::Handle;
use crate::runtime::ring_error::RingError;
use crate::runtime::ring_loop::RingLoop;
use crate::runtime::turns::{HotContext, Turns};
use crate::shards::{ShardEnds, ShardOptions, Shards, ToHot};
use crate::telemetry::metrics::{Counter, Gauge, Metrics};
use crate::telemetry::progress::Progress;
use std::future::{Future, poll_fn};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The hot thread's ends of queues, and its options.
pub struct HotEnds {
    /// From the control thread.
    pub messages: Receiver<ToHot>,
    /// Options of the fetch path.
    pub fetch: FetchOptions,
    /// The queues to and from the dialler.
    pub dial_ends: DialEnds,
    /// Blocks that may wait between decoder and engine; a simulation uses fewer.
    pub queue_blocks: usize,
    /// Options of the shards.
    pub shards: ShardOptions,
    /// The state that the shards share with other threads.
    pub shard_ends: ShardEnds,
    /// Wakes this thread.
    pub bell: Arc<Bell>,
    /// Wakes the publisher.
    pub publisher_bell: Arc<Bell>,
    /// The progress of each shard.
    pub progress: Arc<Progress>,
    /// The counters.
    pub metrics: Arc<Metrics>,
    /// The events of the game.
    pub events: &'static EventTable,
}

/// Runs the event path until the control thread ends it.
pub(crate) fn run(ring_loop: &RingLoop, ends: HotEnds) -> Result<(), RingError> {
    let metrics = ends.metrics.clone();
    let mut calls = vec![Call::new(&ends.publisher_bell, {
        let publisher = ends.shard_ends.publisher.clone();
        move || !publisher.is_empty()
    })?];
    calls.push(Call::new(&ends.dial_ends.dialler_bell, {
        let dialler = ends.dial_ends.dialler.clone();
        move || !dialler.is_empty()
    })?);
    if let Some(checkpoints) = &ends.shard_ends.checkpoints {
        let writer = checkpoints.writer.clone();
        calls.push(Call::new(&checkpoints.bell, move || !writer.is_empty())?);
    }
    let turns = ring_loop.turns();
    let mut stages = Stages::new(turns, ends);
    let root = poll_fn(|context| {
        let turned = stages.turn(context);
        for call in &calls {
            if (call.is_due)() && call.bell.call() {
                turns.operations().ring_bell(&call.handle);
            }
        }
        turned
    });
    confine_this_thread(Confinement::Hot, ring_loop.ring().kind())?;
    allocator::count_this_thread();
    ring_loop.run(root, |ring_loop| {
        metrics.take_over(Counter::Turns, ring_loop.turns().count());
        metrics.take_over(Counter::RingEnters, ring_loop.ring().enters());
        metrics.take_over(Counter::HotAllocations, allocator::hot_allocations());
    })
}

/// Wakes a thread after something was sent to it.
struct Call {
    bell: Arc<Bell>,
    handle: Handle,
    is_due: Box<dyn Fn() -> bool>,
}

impl Call {
    fn new(bell: &Arc<Bell>, is_due: impl Fn() -> bool + 'static) -> Result<Call, RingError> {
        let handle = Arc::new(bell.as_fd().try_clone_to_owned()?);
        Ok(Call { bell: bell.clone(), handle, is_due: Box::new(is_due) })
    }
}

/// The stages of the event path.
pub struct Stages {
    messages: Receiver<ToHot>,
    cursors: Rc<Cursors>,
    turns: Rc<Turns>,
    /// Dropped when it has ended, together with its end of the queue: the shards then drain the
    /// rest, and end, too.
    fetching: Option<Pin<Box<Fetching>>>,
    blocks: Receiver<Box<Block>>,
    shards: Shards,
}

impl Stages {
    /// Creates the stages before their first turn.
    pub fn new(turns: &Rc<Turns>, ends: HotEnds) -> Stages {
        let HotEnds { messages, fetch, queue_blocks, shards, shard_ends, .. } = ends;
        let (progress, metrics) = (ends.progress, ends.metrics);
        metrics.set_gauge(Gauge::QueueBlocksMax, queue_blocks as u64);
        let context = HotContext { turns: turns.clone(), progress, metrics };
        let (block_sender, blocks) = queue::bounded::<Box<Block>>(queue_blocks);
        let cursors = Cursors::new();
        let pool = Rc::new(BlockPool::default());
        let fetch_ends = FetchEnds {
            control: shard_ends.control.clone(),
            dial_ends: ends.dial_ends,
            blocks: block_sender,
            events: ends.events,
        };
        let shared = (cursors.clone(), pool.clone());
        let fetching = Fetching::new(context.clone(), fetch, shared, fetch_ends);
        Stages {
            messages,
            cursors: cursors.clone(),
            turns: turns.clone(),
            fetching: Some(Box::pin(fetching)),
            blocks,
            shards: Shards::new(context, shards, shard_ends, cursors, pool),
        }
    }

    /// Gives each stage one turn, in the order in which data flows. Ready once the last shard is
    /// closed.
    pub fn turn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.take_messages();
        let fetching = self.fetching.as_mut();
        if fetching.is_some_and(|stage| stage.as_mut().poll(context).is_ready()) {
            self.fetching = None;
        }
        self.shards.turn(&mut self.blocks)
    }

    fn take_messages(&mut self) {
        loop {
            match self.messages.receive() {
                Received::Item(ToHot::Open { grant, role, engine, skips }) => {
                    self.shards.open(grant, role, engine, skips);
                }
                Received::Item(ToHot::Cover(cover)) => self.shards.cover(cover),
                Received::Item(ToHot::Promote { grant, settled_offset }) => {
                    self.shards.promote(grant, settled_offset);
                }
                Received::Item(ToHot::Rulebook(rulebook)) => self.shards.know(&rulebook),
                Received::Item(ToHot::Close { partition }) => self.shards.close(partition),
                Received::Item(ToHot::Drop { partition }) => self.shards.drop_shard(partition),
                // The control thread is gone: no shard is left, and none will come.
                Received::Ended => {
                    self.cursors.end();
                    self.shards.drop_all();
                    self.turns.turn_again();
                    return;
                }
                Received::Empty => return,
            }
        }
    }
}
