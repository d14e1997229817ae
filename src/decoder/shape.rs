//! The shape tier: reads a short record that has the text of an earlier one all at once, instead of
//! from start to end.
//!
//! A shape is a record without the digits of its numbers. It is learnt from a record that another
//! tier has accepted. A record with exactly these texts, and a number in the right range in each
//! gap, differs from the accepted one only in those numbers, so it is valid, too. Any other record
//! is left to the other tiers: nothing is rejected here.

use super::RecordPosition;
use super::numbers::EventLanes;
use super::runs::{RUNS_MAX, RecordRuns, Role};
use super::simd::Processor;
use crate::kit::event::{ActionSpec, EventTable, subject_fields};
use crate::kit::event_list::Events;
use crate::kit::field::{ActionWords, FieldSpec, HALVES, PLAYER_ID, SEQ, TS_US};
use std::cell::Cell;
use std::ops::Range;

/// Shapes that a decoder remembers: half a dozen producers with each common type of event, and
/// positions on both sides of zero.
const SHAPES_MAX: usize = 64;

/// Length of the longest record with a shape: a bit per byte fits two words.
pub(super) const SHAPE_BYTES_MAX: usize = 128;

/// Bytes that are read before a record: digits are loaded backwards from the last one.
pub(super) const BYTES_BEFORE: usize = 16;

/// Bytes of a text that are compared at once.
pub(super) const TEXT_BYTES: usize = 32;

/// Size of a record with the bytes around it that may be read.
const WINDOW_BYTES: usize = BYTES_BEFORE + SHAPE_BYTES_MAX + TEXT_BYTES;

/// A record and the bytes around it, which do not affect the result.
pub(super) type RecordWindow = [u8; WINDOW_BYTES];

/// Numbers that are converted together. The last lane is for the player's digits before the last
/// 16.
pub(super) const LANES: usize = 8;
pub(super) const HIGH_LANE: usize = LANES - 1;
const _: () = assert!(RUNS_MAX == HIGH_LANE);

/// The lane of a field's number.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(super) enum RunLane {
    First,
    Second,
    Third,
    Fourth,
    Fifth,
    Sixth,
    Seventh,
    /// The field is absent: its number is 0.
    Absent = LANES as u8,
}

/// The lanes of the runs, in order.
const RUN_LANES: [RunLane; RUNS_MAX] = [
    RunLane::First,
    RunLane::Second,
    RunLane::Third,
    RunLane::Fourth,
    RunLane::Fifth,
    RunLane::Sixth,
    RunLane::Seventh,
];

/// Maximum digits of one lane, and of the player's two lanes together.
const LANE_DIGITS: u8 = 16;
const PLAYER_DIGITS: u8 = 19;

/// Defaults for four lanes, a bit per byte: a lane may have a zero only at its end, and a run must
/// begin in its lane. The player's digits before the last 16 are followed by others.
const NO_ZEROS: u64 = 0x7fff_7fff_7fff_7fff;
const NO_LONGER: u64 = 0x0001_0001_0001_0001;
pub(super) const LAST_LANE: u64 = 0xffff << 48;

/// Number of texts compared for each record, and of pieces of longer texts.
const TEXTS: usize = RUNS_MAX + 1;
const PIECES_MAX: usize = SHAPE_BYTES_MAX / TEXT_BYTES;

/// Size of the table that finds a shape.
const PLACES: usize = 256;

/// No shape has this index.
const NONE: u8 = u8::MAX;
const _: () = assert!(SHAPES_MAX <= NONE as usize);

/// Upper limit of the consecutive records that are not examined while examining teaches nothing.
const PAUSE_MAX: u32 = 255;

/// A text of at most 32 bytes, and the mask of its bytes.
#[repr(C, align(32))]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct ShapeText {
    pub bytes: [u8; TEXT_BYTES],
    pub mask: [u8; TEXT_BYTES],
}

impl ShapeText {
    const NONE: ShapeText = ShapeText { bytes: [0; TEXT_BYTES], mask: [0; TEXT_BYTES] };

    /// Pads a text of at most 32 bytes.
    fn new(text: &[u8]) -> ShapeText {
        let mut padded = ShapeText::NONE;
        padded.bytes[..text.len()].copy_from_slice(text);
        padded.mask[..text.len()].fill(0xff);
        padded
    }
}

/// A part of a text after its first 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    /// The run before the text, if any, and the bytes between the run and the piece.
    pub after: Option<u8>,
    pub skip: u8,
    pub text: ShapeText,
}

/// The common text of records, and the permitted values of their numbers.
#[repr(C, align(32))]
pub(super) struct Shape {
    /// The text before each run and the one after the last.
    pub texts: [ShapeText; TEXTS],
    /// The range of each lane's number, and its sign: all ones if negative, otherwise 0.
    pub least: [[i64; 4]; 2],
    pub most: [[i64; 4]; 2],
    pub sign: [[i64; 4]; 2],
    /// Maximum digits of each run, and length of the text before it, as vectors.
    pub digits_max: [u8; 16],
    pub text_lengths: [u8; 16],
    pub text_bytes: u8,
    pub last_text_bytes: u8,
    pub run_count: u8,
    /// Index of the player's run; [`HIGH_LANE`] if its digits are not split.
    pub player_run: u8,
    /// Distance from the previous run to the end of the player's digits before the last 16, plus
    /// those 16; the largest number if its digits are not split.
    pub before_high_digits: u8,
    /// Bit mask of the runs that may begin with a zero.
    pub free: u8,
    /// All texts, concatenated.
    pub skeleton: [u8; SHAPE_BYTES_MAX],
    /// Bit mask of the skeleton's bytes that are followed by a run.
    pub before_runs: [u64; 2],
    /// Bit masks of the bytes where a lane must not begin with a zero, and where no digit may
    /// precede it.
    pub no_zeros: [u64; 2],
    pub no_longer: [u64; 2],
    piece_count: u8,
    /// The next shape in the same table entry.
    pub next: u8,
    /// How an event is made from the numbers.
    pub event: EventLanes,
    /// Position of the first run; 64 if it is not in the first half.
    pub first: u8,
    /// Records with this shape, until the count is halved.
    hits: Cell<u64>,
    pieces: [Piece; PIECES_MAX],
}

impl Shape {
    /// Returns the shape of a record that is known to be an event.
    pub(super) fn of(value: &[u8], table: &EventTable) -> Option<Shape> {
        if value.len() > SHAPE_BYTES_MAX {
            return None;
        }
        let record = RecordRuns::of(value, table)?;
        let action = &table.actions[usize::from(record.kind)];
        let mut words = ActionWords::new(record.kind);
        let present = action.fields.iter().filter(|of| record.present.contains(of.field));
        present.for_each(|of| words.mark(of.place));
        let runs = record.runs();
        // The reader looks for it only up to this position.
        let first = runs.first()?.range.start.min(64) as u8;
        let no_piece = Piece { after: None, skip: 0, text: ShapeText::NONE };
        let mut shape = Shape {
            texts: [ShapeText::NONE; TEXTS],
            least: [[0; 4]; 2],
            most: [[i64::MAX; 4]; 2],
            sign: [[0; 4]; 2],
            digits_max: [u8::MAX; 16],
            text_lengths: [0; 16],
            text_bytes: 0,
            last_text_bytes: 0,
            run_count: runs.len() as u8,
            player_run: HIGH_LANE as u8,
            before_high_digits: u8::MAX,
            free: 0,
            skeleton: [0; SHAPE_BYTES_MAX],
            before_runs: [0; 2],
            no_zeros: [NO_ZEROS, NO_ZEROS | LAST_LANE],
            no_longer: [NO_LONGER, NO_LONGER & !LAST_LANE],
            piece_count: 0,
            next: NONE,
            event: EventLanes {
                player_id: RunLane::Absent,
                seq: RunLane::Absent,
                ts_us: RunLane::Absent,
                halves: [RunLane::Absent; HALVES as usize],
                masks: [u32::MAX.into(); 2],
                base: words.0[0],
            },
            first,
            hits: Cell::new(0),
            pieces: [no_piece; PIECES_MAX],
        };
        let mut text_start = 0;
        for (index, run) in runs.iter().enumerate() {
            shape.add_text(index, &value[text_start..run.range.start]);
            shape.mark_run()?;
            shape.add_run(index, run.role, (table, action))?;
            text_start = run.range.end;
        }
        shape.add_text(runs.len(), &value[text_start..]);
        shape.last_text_bytes = (value.len() - text_start) as u8;
        Some(shape)
    }

    fn add_text(&mut self, index: usize, text: &[u8]) {
        let start = usize::from(self.text_bytes);
        self.skeleton[start..start + text.len()].copy_from_slice(text);
        self.text_bytes += text.len() as u8;
        self.text_lengths[index] = text.len() as u8;
        let (first, rest) = text.split_at(text.len().min(TEXT_BYTES));
        self.texts[index] = ShapeText::new(first);
        for (skipped, part) in (1..).zip(rest.chunks(TEXT_BYTES)) {
            let after = index.checked_sub(1).map(|run| run as u8);
            let (skip, text) = ((skipped * TEXT_BYTES) as u8, ShapeText::new(part));
            self.pieces[usize::from(self.piece_count)] = Piece { after, skip, text };
            self.piece_count += 1;
        }
    }

    /// Records that a run follows the text so far.
    fn mark_run(&mut self) -> Option<()> {
        let last = usize::from(self.text_bytes).checked_sub(1)?;
        self.before_runs[last / 64] |= 1 << (last % 64);
        Some(())
    }

    /// Adds a run of a record with this action.
    fn add_run(
        &mut self,
        index: usize,
        role: Role,
        (table, action): (&EventTable, &ActionSpec),
    ) -> Option<()> {
        self.digits_max[index] = LANE_DIGITS;
        let (field, is_negative) = match role {
            Role::Field(field) => (field, false),
            Role::NegativeField(field) => (field, true),
            Role::Number => return Some(()),
            Role::Free => {
                self.digits_max[index] = u8::MAX;
                self.free |= 1 << index;
                self.no_zeros[index / 4] &= !lane_bytes(index);
                self.no_longer[index / 4] &= !lane_bytes(index);
                return Some(());
            }
        };
        let FieldSpec { least, most, .. } = table.fields[usize::from(field)];
        // A minus before a number that cannot be negative can only have been part of `-0`.
        let may_be_negative = least < 0;
        if is_negative && !may_be_negative {
            return None;
        }
        let farthest = if may_be_negative { most.min(-least) } else { most };
        let (half, lane) = (index / 4, index % 4);
        self.least[half][lane] = if may_be_negative { 0 } else { least as i64 };
        self.most[half][lane] = farthest.min(i64::MAX.into()) as i64;
        self.sign[half][lane] = if is_negative { -1 } else { 0 };
        self.place_run(index, field, action);
        Some(())
    }

    /// Notes which part of the event a field's number is. Fields that the event does not have are
    /// checked but not stored.
    fn place_run(&mut self, index: usize, field: u8, action: &ActionSpec) {
        let lane = RUN_LANES[index];
        let is_of_subject = subject_fields(action.subject).contains(field);
        match field {
            PLAYER_ID if is_of_subject => {
                self.event.player_id = lane;
                self.player_run = index as u8;
                self.digits_max[index] = PLAYER_DIGITS;
                self.before_high_digits = self.text_lengths[index] + LANE_DIGITS;
                self.no_longer[index / 4] &= !lane_bytes(index);
            }
            SEQ if is_of_subject => self.event.seq = lane,
            TS_US if is_of_subject => self.event.ts_us = lane,
            _ => {
                let Some(place) = action.place_of(field) else { return };
                self.event.halves[usize::from(place.half)] = lane;
                if place.is_wide {
                    self.event.masks[place.word() - 1] = place.mask();
                }
            }
        }
    }

    /// Returns whether one of these zeros, given as a bit mask, begins a number that must not begin
    /// with one. `starts` is the mask of the runs' starts.
    #[cold]
    pub(super) fn forbids_zeros(&self, zeros: u128, starts: u128) -> bool {
        let mut zeros = zeros;
        while zeros != 0 {
            let place = zeros.trailing_zeros();
            let run = (starts & ((1 << place) - 1)).count_ones();
            if self.free >> run & 1 == 0 {
                return true;
            }
            zeros &= zeros - 1;
        }
        false
    }

    fn has_texts_of(&self, other: &Shape) -> bool {
        self.texts == other.texts && self.pieces() == other.pieces()
    }

    /// The parts of long texts after their first 32 bytes.
    #[inline]
    pub(super) fn pieces(&self) -> &[Piece] {
        match self.piece_count {
            // Most shapes: there is no range to check.
            0 => &[],
            count => &self.pieces[..usize::from(count)],
        }
    }

    /// Counts a record with this shape. Returns whether it is the first.
    #[inline]
    fn count_hit(&self) -> bool {
        let before = self.hits.get();
        self.hits.set(before + 1);
        before == 0
    }

    fn place(&self) -> usize {
        place(self.text_bytes.into(), self.first.into())
    }
}

/// Bit mask of one lane among four.
fn lane_bytes(lane: usize) -> u64 {
    0xffff << (16 * (lane % 4))
}

/// Returns the table entry of a shape, from the number of its text bytes and the position of its
/// first digit.
#[inline]
fn place(text_bytes: usize, first: usize) -> usize {
    text_bytes.wrapping_add(first.wrapping_mul(37)) % PLACES
}

/// The shapes, and the table that finds them.
pub(super) struct ShapeList {
    shapes: Vec<Shape>,
    /// The first shape of each table entry.
    heads: [u8; PLACES],
}

impl ShapeList {
    /// Returns the first shape to compare with a record that has this many text bytes and this
    /// first digit.
    #[inline]
    pub(super) fn head(&self, text_bytes: usize, first: usize) -> u8 {
        self.heads[place(text_bytes, first)]
    }

    /// Returns a shape by its index.
    #[inline]
    pub(super) fn get(&self, number: u8) -> Option<&Shape> {
        self.shapes.get(usize::from(number))
    }

    /// Reads a record near the edge of its buffer by copying it.
    #[inline(never)]
    fn read_copy(
        &self,
        processor: Processor,
        origin: RecordPosition,
        value: &[u8],
        events: &mut Events,
    ) -> Option<&Shape> {
        let mut window = [0; WINDOW_BYTES];
        window[BYTES_BEFORE..BYTES_BEFORE + value.len()].copy_from_slice(value);
        processor.read(self, origin, &window, value.len(), events)
    }

    /// Adds a shape. A full list drops the one with the fewest hits; old hits decay, so shapes that
    /// are no longer used are dropped, too.
    fn add(&mut self, shape: Shape) {
        if self.shapes.len() == SHAPES_MAX {
            let fewest = (0..SHAPES_MAX).min_by_key(|number| self.shapes[*number].hits.get());
            self.shapes.swap_remove(fewest.expect("the list is full"));
            self.shapes.iter_mut().for_each(|shape| *shape.hits.get_mut() /= 2);
        }
        self.shapes.push(shape);
        self.heads = [NONE; PLACES];
        for (number, shape) in (0..).zip(&mut self.shapes) {
            shape.next = std::mem::replace(&mut self.heads[shape.place()], number);
        }
    }
}

/// The shapes of recent records, on a processor that supports them.
pub struct Shapes {
    table: &'static EventTable,
    processor: Option<Processor>,
    list: ShapeList,
    /// Records that will be skipped, and the last such number.
    pause: u32,
    last_pause: u32,
}

impl Shapes {
    /// Creates an empty list with memory for all shapes that it may hold.
    pub fn new(table: &'static EventTable) -> Shapes {
        Shapes::on(Processor::detect().next(), table)
    }

    /// Creates an empty list for this processor's instructions.
    pub(super) fn on(processor: Option<Processor>, table: &'static EventTable) -> Shapes {
        let shapes = Vec::with_capacity(SHAPES_MAX);
        let list = ShapeList { shapes, heads: [NONE; PLACES] };
        Shapes { table, processor, list, pause: 0, last_pause: 0 }
    }

    /// Decodes a record with a known shape, which is at this range of the buffer, and adds the
    /// event. `false` means that the shape is unknown; the record may still be valid.
    #[inline(always)]
    pub fn read(
        &mut self,
        origin: RecordPosition,
        buffer: &[u8],
        range: Range<usize>,
        events: &mut Events,
    ) -> bool {
        let Some(processor) = self.processor else { return false };
        // A range that ends before it starts also exceeds the limit.
        let bytes = range.end.wrapping_sub(range.start);
        if bytes > SHAPE_BYTES_MAX {
            return false;
        }
        let around = range.start.checked_sub(BYTES_BEFORE).and_then(|start| buffer.get(start..));
        let shape = match around.and_then(<[u8]>::first_chunk) {
            Some(window) => processor.read(&self.list, origin, window, bytes, events),
            None => self.list.read_copy(processor, origin, &buffer[range], events),
        };
        let Some(shape) = shape else { return false };
        if shape.count_hit() {
            (self.pause, self.last_pause) = (0, 0);
        }
        true
    }

    /// Remembers the shape of a record that is an event, if it has one.
    ///
    /// Records that are all different must not cost much: while new shapes bring no hit, ever fewer
    /// records are examined.
    pub fn learn(&mut self, value: &[u8]) {
        if self.processor.is_none() || self.pause > 0 {
            self.pause = self.pause.saturating_sub(1);
            return;
        }
        self.last_pause = (2 * self.last_pause + 1).min(PAUSE_MAX);
        self.pause = self.last_pause;
        if let Some(shape) = Shape::of(value, self.table)
            && !self.list.shapes.iter().any(|known| known.has_texts_of(&shape))
        {
            self.list.add(shape);
        }
    }
}
