//! Decodes a partition's record batches into blocks of events for the queue.

use crate::decoder::reject::Reject;
use crate::decoder::{Decoder, RecordPosition};
use crate::fetch::block::Block;
use crate::fetch::cursor::{Cursor, CursorState, UNKNOWN_EPOCH};
use crate::fetch::rejected::Rejected;
use crate::fetch::stage::SharedFetch;
use crate::kafka::aborted::{AbortedTransactions, Marker};
use crate::kafka::codec::Decompressor;
use crate::kafka::record::Records;
use crate::kafka::record_batch::{Batch, BatchError, BatchHeader, BatchStart, OpenBatch};
use crate::kafka::record_stream::{RecordStream, Step, StreamedRecord};
use crate::queue::Sender;
use crate::telemetry::metrics::Counter;
use std::ops::{Range, RangeInclusive};
use std::rc::Rc;
use std::time::Instant;

/// Blocks that one connection decodes before the other stages get their turn, so that the engine
/// works on blocks that are still in the cache.
pub(crate) const TURN_BLOCKS_MAX: usize = 8;

/// Decodes the responses of one connection.
pub(crate) struct Decoding {
    writer: BlockWriter,
    decoder: Decoder,
    decompressor: Decompressor,
}

impl Decoding {
    /// Creates the decoding path, which sends its blocks to `blocks`.
    pub(crate) fn new(shared: Rc<SharedFetch>, blocks: Sender<Box<Block>>) -> Decoding {
        let decoder = Decoder::new(shared.events);
        let decompressor = Decompressor::new(shared.options.batch_bytes_max);
        let writer = BlockWriter {
            shared,
            blocks,
            block: None,
            received_at: None,
            leader_epoch: UNKNOWN_EPOCH,
            batch_start: BatchStart::up_to(0),
            stamped_up_to: 0,
            blocks_this_turn: 0,
            blocks_sent: 0,
        };
        Decoding { writer, decoder, decompressor }
    }

    /// Blocks sent so far.
    pub(crate) fn blocks_sent(&self) -> u64 {
        self.writer.blocks_sent
    }

    /// Sets the arrival time of everything decoded from now on.
    pub(crate) fn received(&mut self, at: Instant) {
        self.writer.received_at = Some(at);
    }

    /// Decodes one partition's batches from the cursor's position on.
    ///
    /// Returns early, without an error, when the shard is closed or accepts no more. The cursor
    /// moves only when a block is sent: what is thrown away is fetched again. The records before a
    /// damaged batch are valid and are sent.
    pub(crate) async fn decode(
        &mut self,
        cursor: &Cursor,
        batches: &mut [u8],
        aborted: &mut AbortedTransactions,
    ) -> Result<(), UnreadableBatch> {
        self.writer.leader_epoch = cursor.leader_epoch.get();
        self.writer.batch_start = cursor.batch_start.get();
        self.writer.stamped_up_to = cursor.position.get();
        if !self.writer.begin(cursor).await {
            return Ok(());
        }
        let decoded = self.decode_batches(cursor, batches, aborted).await;
        self.writer.send(cursor).await;
        decoded
    }

    async fn decode_batches(
        &mut self,
        cursor: &Cursor,
        batches: &mut [u8],
        aborted: &mut AbortedTransactions,
    ) -> Result<(), UnreadableBatch> {
        let bytes_max = self.decompressor.batch_bytes_max();
        let (mut rest, mut start) = (batches, cursor.batch_start.get());
        while let Some(mut header) = BatchHeader::read(rest, bytes_max)? {
            start.pass(&header)?;
            let before = self.writer.leader_epoch;
            header.leader_epoch = cursor.plausible_epoch(before, header.leader_epoch);
            let (bytes, behind) = rest.split_at_mut(header.bytes);
            rest = behind;
            match self.decode_whole(cursor, header, bytes, aborted).await {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => {
                    let first = self.writer.next_offset().max(header.base_offset);
                    let offsets = Some(first..=header.last_offset());
                    return Err(UnreadableBatch { error, offsets });
                }
            }
        }
        Ok(())
    }

    /// Returns whether the whole batch was decoded, or had nothing left to decode.
    async fn decode_whole(
        &mut self,
        cursor: &Cursor,
        header: BatchHeader,
        bytes: &mut [u8],
        aborted: &mut AbortedTransactions,
    ) -> Result<bool, BatchError> {
        let batch = Batch::checked(header, bytes)?;
        let next_offset = header.last_offset() + 1;
        if next_offset <= self.writer.next_offset() {
            return Ok(true);
        }
        if header.is_control() {
            let mut markers = batch.open(self.writer.next_offset(), &mut self.decompressor)?;
            while let Some(record) = markers.next_record()? {
                if let Some(marker) = record.key.and_then(Marker::from_key) {
                    aborted.pass(&header, marker);
                }
            }
        } else if !aborted.covers(&header) && !self.decode_batch(cursor, batch).await? {
            return Ok(false);
        }
        self.writer.reach(next_offset);
        self.writer.stamp(cursor, &header);
        Ok(true)
    }

    /// Skips the rest of a batch that cannot be read, from the cursor's position on, with one dead
    /// letter. Returns whether the letter was sent. The batches after it are fetched again in any
    /// case, because it is unknown which transactions are open there.
    pub(crate) async fn pass_over(
        &mut self,
        cursor: &Cursor,
        offsets: &RangeInclusive<i64>,
        sentence: &str,
    ) -> bool {
        // The epoch of the record before the next position is unknown, and the batch may not end
        // where its damaged header says.
        self.writer.leader_epoch = UNKNOWN_EPOCH;
        self.writer.batch_start = BatchStart::up_to(offsets.end() + 1);
        if !self.writer.begin(cursor).await {
            return false;
        }
        let block = self.writer.block();
        block.rejects.push(Rejected::batch(*offsets.start(), sentence));
        block.next_offset = offsets.end() + 1;
        self.writer.send(cursor).await;
        cursor.rewind();
        true
    }

    /// Returns whether the batch was decoded to its end.
    async fn decode_batch(
        &mut self,
        cursor: &Cursor,
        batch: Batch<'_>,
    ) -> Result<bool, BatchError> {
        let header = batch.header;
        let opened = batch.open_any(self.writer.next_offset(), &mut self.decompressor)?;
        let skips = cursor.skips_from(header.base_offset);
        let mut records = match opened {
            OpenBatch::Whole(records) => records,
            OpenBatch::Stream(records) => {
                let Decoding { writer, decoder, .. } = self;
                return decode_stream(cursor, &header, records, decoder, writer).await;
            }
        };
        loop {
            let filled = fill(&mut self.decoder, &mut records, self.writer.block(), cursor, skips);
            // The records before a damaged one are sent as well.
            self.writer.stamp(cursor, &header);
            if filled? == Filled::Records {
                return Ok(true);
            }
            self.writer.send(cursor).await;
            if !self.writer.begin(cursor).await {
                return Ok(false);
            }
        }
    }
}

/// A batch that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnreadableBatch {
    /// The error.
    pub error: BatchError,
    /// The offsets that are not decoded, if the header can be read.
    pub offsets: Option<RangeInclusive<i64>>,
}

impl From<BatchError> for UnreadableBatch {
    fn from(error: BatchError) -> UnreadableBatch {
        UnreadableBatch { error, offsets: None }
    }
}

/// Why the filling of a block ended.
#[derive(PartialEq, Eq)]
enum Filled {
    /// The block is full.
    Block,
    /// All records are read.
    Records,
}

fn fill(
    decoder: &mut Decoder,
    records: &mut Records<'_>,
    block: &mut Block,
    cursor: &Cursor,
    skips: &[i64],
) -> Result<Filled, BatchError> {
    let known_before = decoder.tier_counts().unparsed();
    let filled = fill_room(decoder, records, block, cursor, skips);
    block.of_known_layout += decoder.tier_counts().unparsed() - known_before;
    filled
}

fn fill_room(
    decoder: &mut Decoder,
    records: &mut Records<'_>,
    block: &mut Block,
    cursor: &Cursor,
    skips: &[i64],
) -> Result<Filled, BatchError> {
    while block.has_room() {
        let Some(record) = records.next_record()? else { return Ok(Filled::Records) };
        let origin = RecordPosition { offset: record.offset, time_ms: record.timestamp_ms };
        let value = record.value_range.clone().map(|range| (record.records, range));
        if let Err(reject) = decode(decoder, origin, value, skips, block) {
            match may_have_bytes(reject, cursor) {
                true => keep(block, cursor, Rejected::of(reject, decoder, &record)),
                false => gather(block, reject, origin, || decoder.explain(reject, record.value())),
            }
            if block.is_heavy() {
                break;
            }
        }
    }
    Ok(Filled::Block)
}

/// Decodes a batch that is larger than the buffer record by record, giving the other stages their
/// turns. Returns whether it was decoded to its end.
async fn decode_stream(
    cursor: &Cursor,
    header: &BatchHeader,
    mut records: Box<RecordStream<'_>>,
    decoder: &mut Decoder,
    writer: &mut BlockWriter,
) -> Result<bool, BatchError> {
    let skips = cursor.skips_from(header.base_offset);
    loop {
        match records.step()? {
            Step::End => return Ok(true),
            Step::Unfinished => {
                let shared = writer.shared.clone();
                shared.context.turns.yield_turn().await;
            }
            Step::Record(record) => {
                let block = writer.block();
                decode_streamed(decoder, &record, cursor, skips, block);
                let is_full = block.is_heavy() || !block.has_room();
                writer.stamp(cursor, header);
                if is_full {
                    writer.send(cursor).await;
                    if !writer.begin(cursor).await {
                        return Ok(false);
                    }
                }
            }
        }
        if cursor.state.get() == CursorState::Closed {
            return Ok(false);
        }
    }
}

fn decode_streamed(
    decoder: &mut Decoder,
    record: &StreamedRecord<'_>,
    cursor: &Cursor,
    skips: &[i64],
    block: &mut Block,
) {
    let StreamedRecord { offset, timestamp_ms: time_ms, value, .. } = *record;
    // If a value is longer than an event may be, the kept bytes are enough to show it.
    let value = value.map(|value| (&value.head[..], 0..value.head.len()));
    let origin = RecordPosition { offset, time_ms };
    let head = value.as_ref().map(|(head, _)| *head);
    if let Err(reject) = decode(decoder, origin, value, skips, block) {
        match may_have_bytes(reject, cursor) {
            true => keep(block, cursor, Rejected::of_streamed(reject, decoder, record)),
            false => gather(block, reject, origin, || decoder.explain(reject, head)),
        }
    }
}

/// Returns whether a reject gets its own letter with the record's bytes. A record that an operator
/// skips always does: only the letter preserves it.
fn may_have_bytes(reject: Reject, cursor: &Cursor) -> bool {
    reject == Reject::Skipped || cursor.letter_credit.is_left()
}

/// Adds a reject to the block, with its bytes.
fn keep(block: &mut Block, cursor: &Cursor, rejected: Rejected) {
    cursor.letter_credit.spend(&rejected);
    block.rejects.push(rejected);
}

/// Adds a reject to the block's run for the same reason, without its bytes.
fn gather(
    block: &mut Block,
    reject: Reject,
    origin: RecordPosition,
    explain: impl FnOnce() -> String,
) {
    let RecordPosition { offset, time_ms } = origin;
    let mut runs = block.rejects.iter_mut().filter(|rejected| rejected.reject == reject);
    if let Some(run) = runs.find_map(|rejected| rejected.run.as_mut()) {
        run.records += 1;
        run.last_offset = offset;
    } else {
        block.rejects.push(Rejected::run(reject, (offset, time_ms), explain()));
    }
}

/// Decodes a record's event into the block. `value` is a range of some bytes, or null.
#[inline]
fn decode(
    decoder: &mut Decoder,
    origin: RecordPosition,
    value: Option<(&[u8], Range<usize>)>,
    skips: &[i64],
    block: &mut Block,
) -> Result<(), Reject> {
    block.next_offset = origin.offset + 1;
    if skips.binary_search(&origin.offset).is_ok() {
        return Err(Reject::Skipped);
    }
    let (bytes, range) = value.ok_or(Reject::NullValue)?;
    decoder.decode_within(origin, bytes, range, &mut block.events)
}

/// Fills blocks and sends them to the queue, one at a time.
struct BlockWriter {
    shared: Rc<SharedFetch>,
    blocks: Sender<Box<Block>>,
    /// The block that is being filled.
    block: Option<Box<Block>>,
    /// When the response being decoded began to arrive.
    received_at: Option<Instant>,
    /// Leader epoch of the last record that the block covers.
    leader_epoch: i32,
    /// Where the batch that the block has reached begins.
    batch_start: BatchStart,
    /// The offset up to which batches have added letter credit.
    stamped_up_to: i64,
    /// Blocks sent since the other stages had their turn.
    blocks_this_turn: usize,
    blocks_sent: u64,
}

impl BlockWriter {
    fn block(&mut self) -> &mut Block {
        self.block.as_mut().expect("a block was begun")
    }

    fn next_offset(&self) -> i64 {
        self.block.as_ref().expect("a block was begun").next_offset
    }

    fn reach(&mut self, next_offset: i64) {
        self.block().next_offset = next_offset;
    }

    /// Records a batch's letter credit, its leader epoch, and where the next batch begins, or where
    /// this one begins if the block ends within its records.
    fn stamp(&mut self, cursor: &Cursor, header: &BatchHeader) {
        let next_offset = self.next_offset();
        if next_offset > header.base_offset {
            let new = next_offset - self.stamped_up_to.max(header.base_offset);
            cursor.letter_credit.earn(header, new);
            self.stamped_up_to = next_offset;
            self.leader_epoch = header.leader_epoch;
            self.batch_start = BatchStart::at(match next_offset > header.last_offset() {
                true => next_offset,
                false => header.base_offset,
            });
        }
    }

    /// Begins a block, waiting until the shard may have one. Returns false if the shard is closed,
    /// or so far behind that it must not hold up the others; its next Fetch then begins at its
    /// position.
    async fn begin(&mut self, cursor: &Cursor) -> bool {
        let SharedFetch { context, pool, .. } = &*self.shared;
        self.block = context
            .turns
            .until(|| match cursor.state.get() {
                CursorState::Closed | CursorState::Stalled => Some(None),
                CursorState::Flowing if cursor.has_credit() => Some(Some(cursor.take_block(pool))),
                CursorState::Flowing => {
                    // The shards get their turn next: they return blocks, or stall the cursor.
                    context.turns.turn_again();
                    None
                }
            })
            .await;
        match &mut self.block {
            Some(block) => block.received_at = self.received_at,
            None => cursor.rewind(),
        }
        self.block.is_some()
    }

    /// Sends a block if the queue has room. If not, the shards make room later in this turn.
    fn try_send(&self, block: &mut Option<Box<Block>>) -> Option<()> {
        *block = self.blocks.try_send(block.take()?).err();
        if block.is_none() {
            return Some(());
        }
        assert!(!self.blocks.receiver_gone(), "the shards receive as long as there are cursors");
        self.shared.context.turns.turn_again();
        None
    }

    /// Sends the block, if there is one that covers any input and the shard is still open.
    async fn send(&mut self, cursor: &Cursor) {
        // The shard may have refused another block in the middle of a batch.
        let Some(block) = self.block.take() else { return };
        if block.next_offset == cursor.position.get() || cursor.state.get() == CursorState::Closed {
            cursor.give_block(&self.shared.pool, block);
            return;
        }
        let next_offset = block.next_offset;
        let (events, rejects) = (block.events.len() as u64, block.rejected_records());
        let (of_known_layout, is_heavy) = (block.of_known_layout, block.is_heavy());
        cursor.position.set(next_offset);
        cursor.leader_epoch.set(self.leader_epoch);
        cursor.batch_start.set(self.batch_start);
        let mut unsent = Some(block);
        self.shared.context.turns.until(|| self.try_send(&mut unsent)).await;
        self.shared.context.progress.shard(cursor.partition).decoded.set(next_offset);
        self.shared.context.metrics.add(Counter::RecordsReceived, events + rejects);
        self.shared.context.metrics.add(Counter::RecordsOfKnownLayout, of_known_layout);
        self.blocks_sent += 1;
        self.blocks_this_turn += 1;
        if self.blocks_this_turn >= TURN_BLOCKS_MAX || is_heavy {
            self.blocks_this_turn = 0;
            self.shared.context.turns.yield_turn().await;
        }
    }
}
