//! An event's path, a stage after the other over a whole response.

#![expect(clippy::vec_box, reason = "blocks and frames go round as boxes, as in the daemon")]

use huntd::decoder::json::JsonDecoder;
use huntd::decoder::shape::Shapes;
use huntd::decoder::{Decoder, RecordPosition};
use huntd::fetch::block::{BLOCK_EVENTS_MAX, Block, BlockPool};
use huntd::hunt::Shard;
use huntd::hunt::event::EVENTS;
use huntd::hunt::frames::{decode_frame, encode};
use huntd::hunt::rules::rulebook::Rulebook;
use huntd::hunt::rules_file::built_in;
use huntd::kafka::codec::Decompressor;
use huntd::kafka::record_batch::Batch;
use huntd::kit::event_list::Events;
use huntd::output::frame::{Chain, Format, Frame};
use huntd::queue::{Receiver, Sender, bounded};
use huntd::shards::framer::{Framer, Grant, Sealed, ShardRole};
use rustix::fs::{MemfdFlags, memfd_create, sendfile};
use std::fs::File;
use std::hint::black_box;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::Instant;
use support::batch_load::{Load, Template};

/// Intended time of the first event, in microseconds since the Unix epoch.
const BASE_US: u64 = 1_767_225_600_000_000;

/// Bytes that a socket takes at once, whatever reads.
const CHUNK_BYTES: usize = 32 * 1024;

const BATCH_BYTES_MAX: usize = 8 << 20;

/// Frames from one that is read back to the next: reading takes the place of what is measured in
/// the caches.
const FRAMES_PER_CHECK: u64 = 64;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Receive,
    Records,
    Decode,
    FirstTier,
    LastTier,
    Queue,
    Apply,
    Seal,
    EncodeBinary,
    EncodeJson,
}

/// All stages in their order, and whether each is part of the sum.
pub(crate) const STAGES: [(Stage, bool); 10] = [
    (Stage::Receive, true),
    (Stage::Records, true),
    (Stage::Decode, true),
    (Stage::FirstTier, false),
    (Stage::LastTier, false),
    (Stage::Queue, true),
    (Stage::Apply, true),
    (Stage::Seal, true),
    (Stage::EncodeBinary, true),
    (Stage::EncodeJson, false),
];

impl Stage {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Stage::Receive => "receive, by read(2)",
            Stage::Records => "CRC and records",
            Stage::Decode => "decode, all tiers",
            Stage::FirstTier => "  first tier where it reads",
            Stage::LastTier => "  last tier on everything",
            Stage::Queue => "queue",
            Stage::Apply => "apply",
            Stage::Seal => "frame: number and chain",
            Stage::EncodeBinary => "frame encode, binary",
            Stage::EncodeJson => "frame encode, JSON",
        }
    }

    /// The function whose inclusive cost is the stage's.
    pub(crate) fn function(self) -> &'static str {
        match self {
            Stage::Receive => "stage_receive",
            Stage::Records => "stage_records",
            Stage::Decode => "stage_decode",
            Stage::FirstTier => "stage_first_tier",
            Stage::LastTier => "stage_last_tier",
            Stage::Queue => "stage_queue",
            Stage::Apply => "stage_apply",
            Stage::Seal => "stage_seal",
            Stage::EncodeBinary => "stage_encode_binary",
            Stage::EncodeJson => "stage_encode_json",
        }
    }
}

/// The stages' state, and how long they took.
pub(crate) struct Path {
    /// Responses come from a file, page by page, as from a broker.
    file: File,
    source: TcpStream,
    sink: TcpStream,
    buffer: Vec<u8>,
    decompressor: Decompressor,
    records: Vec<(RecordPosition, Range<usize>)>,
    decoder: Decoder,
    shapes: Shapes,
    json: JsonDecoder,
    pool: BlockPool,
    queue: (Sender<Box<Block>>, Receiver<Box<Block>>),
    shard: Shard,
    framer: Framer,
    free_frames: Vec<Box<Frame>>,
    bytes: Vec<u8>,
    /// Nanoseconds per event of each response, by stage.
    times: Vec<Vec<f64>>,
    next_offset: i64,
    /// Events since the first, and those that the first tier alone has read.
    events_ever: (u64, u64),
    events: u64,
    updates: u64,
    /// Over all updates: it does not depend on how they are cut into frames.
    chain: Chain,
    frames: u64,
}

impl Path {
    pub(crate) fn new() -> Path {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let source = TcpStream::connect(address).expect("the listener listens");
        let (sink, _) = listener.accept().expect("the connection is there");
        source.set_nodelay(true).expect("a TCP socket has this option");
        let ownership = Grant {
            partition: 0,
            ownership_id: 1,
            owner_epoch: 1,
            fence_id: 0,
            ruleset: 0,
            published: 0,
            published_chain: Chain::default(),
            published_offset: 0,
            start_update: 0,
            start_chain: Chain::default(),
            start_offset: 0,
            start_leader_epoch: None,
            input_leader_epoch: -1,
            settled_offset: 0,
        };
        let file = memfd_create("responses", MemfdFlags::CLOEXEC).expect("a file in memory");
        Path {
            file: file.into(),
            source,
            sink,
            buffer: Vec::new(),
            decompressor: Decompressor::new(BATCH_BYTES_MAX),
            records: Vec::new(),
            decoder: Decoder::new(&EVENTS),
            shapes: Shapes::new(&EVENTS),
            json: JsonDecoder::new(&EVENTS),
            pool: BlockPool::default(),
            queue: bounded(1024),
            shard: Shard::new(0, &Rulebook::of(built_in())),
            framer: Framer::new(ownership, ShardRole::Owner, Instant::now()),
            free_frames: (0..16).map(|_| Frame::new()).collect(),
            bytes: Vec::new(),
            times: vec![Vec::new(); STAGES.len()],
            next_offset: 0,
            events_ever: (0, 0),
            events: 0,
            updates: 0,
            chain: Chain::default(),
            frames: 0,
        }
    }

    /// Every player joins.
    pub(crate) fn join(&mut self, load: &Load) {
        let mut bytes = Vec::new();
        let mut number = 0;
        for joins in load.joins(0) {
            append(joins, BASE_US, number, &mut bytes);
            number += joins.events();
        }
        self.pass(&bytes);
    }

    /// One response with so many batches, from this tick on.
    pub(crate) fn respond(&mut self, load: &Load, tick: u64, batches: u64) {
        let mut bytes = Vec::new();
        for tick in tick..tick + batches {
            let time_us = BASE_US + load.shape.tick_us(tick);
            let number = load.shape.joins() as u64 + tick * load.shape.batch_events as u64;
            append(load.batch(0, tick), time_us, number, &mut bytes);
        }
        self.pass(&bytes);
    }

    /// From now on times, events and updates count.
    pub(crate) fn forget_times(&mut self) {
        self.times.iter_mut().for_each(Vec::clear);
        (self.events, self.updates) = (0, 0);
    }

    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// Events since the first, and those of them that the first tier alone has read.
    pub(crate) fn events_ever(&self) -> (u64, u64) {
        self.events_ever
    }

    pub(crate) fn updates(&self) -> u64 {
        self.updates
    }

    /// The part of all records so far that the first tier has read.
    pub(crate) fn first_tier(&self) -> f64 {
        let counts = self.decoder.tier_counts();
        counts.shape as f64 / (counts.unparsed() + counts.json) as f64
    }

    /// The median response's nanoseconds per event.
    pub(crate) fn ns(&self, stage: Stage) -> f64 {
        let mut times = self.times[stage as usize].clone();
        times.sort_unstable_by(f64::total_cmp);
        times[times.len() / 2]
    }

    pub(crate) fn digest(&self) -> u64 {
        self.chain.0.rotate_left(1) ^ self.shard.digest()
    }

    fn pass(&mut self, response: &[u8]) {
        let before = self.events;
        let mut times = [0; STAGES.len()];
        times[Stage::Receive as usize] = self.receive(response);
        times[Stage::Records as usize] = timed(|| stage_records(self));
        self.events += self.records.len() as u64;
        self.events_ever.0 += self.records.len() as u64;
        let mut blocks = Vec::new();
        times[Stage::Decode as usize] = timed(|| stage_decode(self, &mut blocks));
        times[Stage::Queue as usize] = timed(|| stage_queue(&mut self.queue, &mut blocks));
        for block in &blocks {
            times[Stage::Apply as usize] += timed(|| stage_apply(self, block));
            let mut sealed = None;
            times[Stage::Seal as usize] += timed(|| sealed = stage_seal(self, block.next_offset));
            if let Some(mut frame) = sealed {
                self.publish(&frame, &mut times);
                frame.updates.clear();
                self.free_frames.push(frame);
            }
        }
        blocks.into_iter().for_each(|block| self.pool.give(block));
        // Last, so that nothing above finds the records in a cache, or foreseen, that the daemon
        // would not.
        times[Stage::FirstTier as usize] = self.first_tier_alone();
        times[Stage::LastTier as usize] = timed(|| stage_last_tier(self));
        let events = (self.events - before) as f64;
        for (all, time) in self.times.iter_mut().zip(times) {
            all.push(time as f64 / events);
        }
    }

    fn receive(&mut self, response: &[u8]) -> u64 {
        self.buffer.resize(response.len(), 0);
        self.file.write_all_at(response, 0).expect("there is memory");
        let (mut sent, mut time) = (0, 0);
        for received in self.buffer.chunks_mut(CHUNK_BYTES) {
            let chunk = sendfile(&self.source, &self.file, Some(&mut sent), received.len());
            assert_eq!(chunk.expect("the file is whole"), received.len(), "the socket takes it");
            time += timed(|| stage_receive(&mut self.sink, received));
        }
        time
    }

    /// Learns what it cannot read, and measures what it can.
    fn first_tier_alone(&mut self) -> u64 {
        let Path { records, shapes, buffer, events_ever, .. } = self;
        let mut known = Vec::with_capacity(records.len());
        let mut events = Events::with_capacity(BLOCK_EVENTS_MAX, 0);
        for (origin, range) in records.iter() {
            events.clear();
            match shapes.read(*origin, buffer, range.clone(), &mut events) {
                true => known.push((*origin, range.clone())),
                false => shapes.learn(&buffer[range.clone()]),
            }
        }
        events_ever.1 += known.len() as u64;
        let time = timed(|| stage_first_tier(shapes, buffer, &known, &mut events));
        // Per event of those that it reads.
        time * records.len() as u64 / known.len().max(1) as u64
    }

    fn publish(&mut self, frame: &Frame, times: &mut [u64; STAGES.len()]) {
        self.updates += frame.updates.len() as u64;
        self.chain = frame.header.chain;
        self.frames += 1;
        self.bytes.clear();
        times[Stage::EncodeBinary as usize] +=
            timed(|| stage_encode_binary(frame, &mut self.bytes));
        self.check(frame);
        self.bytes.clear();
        times[Stage::EncodeJson as usize] += timed(|| stage_encode_json(frame, &mut self.bytes));
        self.check(frame);
    }

    /// Reads a frame back, now and then: it says what the engine told.
    fn check(&self, frame: &Frame) {
        if self.frames.is_multiple_of(FRAMES_PER_CHECK) {
            let (header, updates) = decode_frame(&self.bytes).expect("a frame");
            assert_eq!((header, &updates[..]), (frame.header, frame.updates.as_slice()));
        }
    }
}

/// Adds a batch to a response, as the broker would: it sets the base offset.
fn append(template: &Template, time_us: u64, number: u64, bytes: &mut Vec<u8>) {
    let at = bytes.len();
    bytes.extend_from_slice(&template.bytes);
    template.patch(&mut bytes[at..], time_us, number);
    bytes[at..at + 8].copy_from_slice(&number.to_be_bytes());
}

fn timed(stage: impl FnOnce()) -> u64 {
    let start = Instant::now();
    stage();
    start.elapsed().as_nanos() as u64
}

// What follows is not inlined, so that the cost of each stage can be told from outside.

#[inline(never)]
fn stage_receive(sink: &mut TcpStream, chunk: &mut [u8]) {
    sink.read_exact(chunk).expect("the chunk was sent");
}

#[inline(never)]
fn stage_records(path: &mut Path) {
    let Path { buffer, records, decompressor, .. } = path;
    records.clear();
    let start = buffer.as_ptr() as usize;
    let mut at = 0;
    while let Some(batch) = Batch::read(&mut buffer[at..], BATCH_BYTES_MAX).expect("sound") {
        at += batch.header.bytes;
        let mut open = batch.open(0, decompressor).expect("sound");
        while let Some(record) = open.next_record().expect("sound") {
            let value = record.value().expect("an event has a value");
            let from = value.as_ptr() as usize - start;
            let origin = RecordPosition { offset: record.offset, time_ms: record.timestamp_ms };
            records.push((origin, from..from + value.len()));
        }
    }
}

#[inline(never)]
fn stage_first_tier(
    shapes: &mut Shapes,
    buffer: &[u8],
    known: &[(RecordPosition, Range<usize>)],
    events: &mut Events,
) {
    for (origin, range) in known {
        if events.len() == BLOCK_EVENTS_MAX {
            events.clear();
        }
        black_box(shapes.read(*origin, buffer, range.clone(), events));
    }
}

#[inline(never)]
fn stage_last_tier(path: &mut Path) {
    let Path { buffer, records, json, .. } = path;
    let mut events = Events::with_capacity(BLOCK_EVENTS_MAX, 0);
    for (origin, range) in records.iter() {
        if events.len() == BLOCK_EVENTS_MAX {
            events.clear();
        }
        let read = json.read(*origin, &buffer[range.clone()], &mut events);
        black_box(read).expect("the load holds events");
    }
}

#[inline(never)]
fn stage_decode(path: &mut Path, blocks: &mut Vec<Box<Block>>) {
    let Path { buffer, records, decoder, pool, next_offset, .. } = path;
    let mut block = pool.take(0, 1, *next_offset);
    for (origin, range) in records.iter() {
        if !block.has_room() {
            blocks.push(std::mem::replace(&mut block, pool.take(0, 1, *next_offset)));
        }
        let decoded = decoder.decode_within(*origin, buffer, range.clone(), &mut block.events);
        decoded.expect("the load holds events");
        *next_offset = origin.offset + 1;
        block.next_offset = *next_offset;
    }
    blocks.push(block);
}

#[inline(never)]
fn stage_queue(
    (sender, receiver): &mut (Sender<Box<Block>>, Receiver<Box<Block>>),
    blocks: &mut Vec<Box<Block>>,
) {
    let mut passed = Vec::with_capacity(blocks.len());
    for block in blocks.drain(..) {
        assert!(sender.try_send(block).is_ok(), "the queue has room");
        passed.extend(receiver.try_receive());
    }
    *blocks = passed;
}

#[inline(never)]
fn stage_apply(path: &mut Path, block: &Block) {
    let Path { shard, framer, free_frames, .. } = path;
    if !framer.has_frame() {
        framer.supply(free_frames.pop().expect("frames go round"));
    }
    let updates = framer.updates().expect("a block's updates fit an empty frame");
    let applied = shard.apply_all(&block.events, 0..block.events.len(), updates, |_, _, _| {});
    assert_eq!(applied, block.events.len(), "a block's updates fit an empty frame");
}

#[inline(never)]
fn stage_seal(path: &mut Path, next_offset: i64) -> Option<Box<Frame>> {
    path.framer.advance(next_offset);
    match path.framer.seal(Instant::now()) {
        Sealed::Frame(frame) => Some(frame),
        Sealed::Nothing => None,
        Sealed::Diverged { .. } => unreachable!("nothing was published before"),
    }
}

#[inline(never)]
fn stage_encode_binary(frame: &Frame, bytes: &mut Vec<u8>) {
    encode(Format::Binary, &frame.header, frame.updates.as_slice(), bytes);
}

#[inline(never)]
fn stage_encode_json(frame: &Frame, bytes: &mut Vec<u8>) {
    encode(Format::Json, &frame.header, frame.updates.as_slice(), bytes);
}
