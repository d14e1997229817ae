//! The layout tier: reads a record that has the same layout as an earlier one, without parsing
//! JSON.
//!
//! A producer repeats the same keys in the same order with the same spacing. A layout is what such
//! records have in common: the bytes between their values. It is learnt from a record that the JSON
//! tier has accepted. A record with the same bytes, and a plain value of the right kind in each
//! gap, differs from the accepted one only in those values, so it is valid, too. Any other record
//! is left to the JSON tier: nothing is rejected here.

use super::RecordPosition;
use super::digits::{after_plain_number, position, unsigned, word};
use super::fields::{integer_in, position_number};
use crate::kit::event::{EventTable, PlainEvent, RECORD_BYTES_MAX, subject_fields};
use crate::kit::event_list::Events;
use crate::kit::field::{ActionWords, FieldForm, FieldSet, PLAYER_ID, SEQ, TS_US};

/// Layouts that a decoder remembers beside one for each kind of action: some for producers that
/// write the common ones differently.
const LAYOUTS_EXTRA: usize = 4;

/// Segments of one layout: one per value, and another one for every 16 bytes between two values.
/// The longest type of event takes 10; the others are for unknown fields.
const LAYOUT_SEGMENTS_MAX: usize = 32;

/// Length of the shortest record that is tried: no event is shorter.
const RECORD_BYTES_MIN: usize = 16;

/// Number of layouts at the end of a full list that new ones replace, in turn.
const PROBATION: usize = 4;
const _: () = assert!(PROBATION <= LAYOUTS_EXTRA);

/// Hits of a layout at which all hit counts are halved.
const HITS_MAX: u32 = 1 << 16;

/// Upper limit of the consecutive records that are not examined while examining teaches nothing.
const PAUSE_MAX: u32 = 64;

/// The layouts of recent records, the most frequent first.
pub struct Layouts {
    table: &'static EventTable,
    list: Vec<Layout>,
    /// Number of layouts that have replaced an older one.
    replaced: usize,
    /// Records that will be skipped, and the last such number.
    pause: u32,
    last_pause: u32,
}

impl Layouts {
    /// Creates an empty list with memory for all layouts that it may hold.
    pub fn new(table: &'static EventTable) -> Layouts {
        let list = Vec::with_capacity(table.actions.len() + LAYOUTS_EXTRA);
        Layouts { table, list, replaced: 0, pause: 0, last_pause: 0 }
    }

    /// Decodes a record with a known layout and adds the event. `false` means that the layout is
    /// unknown; the record may still be valid.
    pub fn read(&mut self, origin: RecordPosition, value: &[u8], events: &mut Events) -> bool {
        if value.len() < RECORD_BYTES_MIN || value.len() > RECORD_BYTES_MAX {
            return false;
        }
        let head = word(&value[8..]);
        let tail = word(&value[value.len() - 8..]);
        for index in 0..self.list.len() {
            let layout = &self.list[index];
            let differs =
                (head & layout.head_mask ^ layout.head) | (tail & layout.tail_mask ^ layout.tail);
            if differs == 0
                && let Some(event) = layout.read(self.table, origin, value)
            {
                self.count_hit(index);
                events.push_plain(event);
                return true;
            }
        }
        false
    }

    /// Remembers the layout of a record that is an event, if all its values are plain.
    ///
    /// Records that are all different must neither evict the layouts in use nor cost much: a full
    /// list drops one of its last few, and while that brings no hit, ever fewer records are
    /// examined.
    pub fn learn(&mut self, value: &[u8]) {
        if self.pause > 0 {
            self.pause -= 1;
            return;
        }
        self.last_pause = (2 * self.last_pause + 1).min(PAUSE_MAX);
        self.pause = self.last_pause;
        let Some(layout) = Layout::of(value, self.table) else {
            return;
        };
        if self.list.iter().any(|known| known.has_texts_of(&layout)) {
            return;
        }
        if self.list.len() < self.table.actions.len() + LAYOUTS_EXTRA {
            self.list.push(layout);
        } else {
            let last = self.list.len() - 1;
            self.list[last - self.replaced % PROBATION] = layout;
            self.replaced = self.replaced.wrapping_add(1);
        }
    }

    /// Counts a hit and keeps the list in order of hits. Old hits decay, so the order follows
    /// recent records.
    #[inline]
    fn count_hit(&mut self, index: usize) {
        let hits = self.list[index].hits + 1;
        self.list[index].hits = hits;
        if hits == 1 {
            self.pause = 0;
            self.last_pause = 0;
        }
        if index > 0 && hits > self.list[index - 1].hits {
            self.list.swap(index - 1, index);
        }
        if hits == HITS_MAX {
            self.list.iter_mut().for_each(|layout| layout.hits /= 2);
        }
    }
}

/// The gap between two texts of a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LayoutSlot {
    /// The digits of a known field. The quotes of a player's id belong to the texts around it.
    Digits,
    /// A position, with or without a fraction.
    Position,
    /// The value of an unknown field.
    Unknown,
    /// No gap: the text continues, or the record ends.
    Nothing,
}

/// A text of at most 16 bytes and the gap after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    /// The text's first eight bytes, or all of a shorter text, and the mask of their bits.
    first: u64,
    mask: u64,
    /// The text's last eight bytes, if it is that long; they may overlap the first.
    last: u64,
    text_bytes: u8,
    slot: LayoutSlot,
    /// The known field of a gap with digits or a position, and the part of the event that it is.
    field: u8,
    part: EventPart,
}

/// Where an event's words hold a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EventPart {
    word: u8,
    shift: u8,
    mask: u64,
}

/// Words of an event: its origin and its head, then its action. Another one takes the numbers of
/// fields that the event does not have.
const EVENT_WORDS: usize = 8;
const ACTION_WORD: usize = 5;

impl EventPart {
    const NOWHERE: EventPart = EventPart { word: EVENT_WORDS as u8, shift: 0, mask: u64::MAX };

    /// Returns where events with this action hold a field.
    fn of(table: &EventTable, kind: u8, field: u8) -> EventPart {
        let action = &table.actions[usize::from(kind)];
        if let Some(place) = action.place_of(field) {
            let word = (ACTION_WORD + place.word()) as u8;
            return EventPart { word, shift: place.shift() as u8, mask: place.mask() };
        }
        let word = match field {
            PLAYER_ID => 2,
            SEQ => 3,
            TS_US => 4,
            _ => return EventPart::NOWHERE,
        };
        match subject_fields(action.subject).contains(field) {
            true => EventPart { word, ..EventPart::NOWHERE },
            false => EventPart::NOWHERE,
        }
    }
}

/// Length of the longest text of one segment: two words.
const TEXT_BYTES_MAX: usize = 16;

impl Segment {
    fn new(text: &[u8], slot: LayoutSlot, field: u8) -> Segment {
        assert!(text.len() <= TEXT_BYTES_MAX);
        let mask = first_bytes(text.len());
        let last = text.last_chunk().map_or(0, |last| u64::from_le_bytes(*last));
        let (text_bytes, part) = (text.len() as u8, EventPart::NOWHERE);
        Segment { first: word(text), mask, last, text_bytes, slot, field, part }
    }

    /// Returns the bytes after the text, which must come first.
    #[inline(always)]
    fn after_text<'v>(&self, bytes: &'v [u8]) -> Option<&'v [u8]> {
        if word(bytes) & self.mask != self.first {
            return None;
        }
        let (text, rest) = bytes.split_at_checked(self.text_bytes.into())?;
        match text.last_chunk() {
            Some(last) if u64::from_le_bytes(*last) != self.last => None,
            _ => Some(rest),
        }
    }
}

/// The bytes that records have in common, and the gaps between them.
struct Layout {
    /// Records with this layout, until the count is halved.
    hits: u32,
    kind: u8,
    present: FieldSet,
    /// The action's number, and which of its fields are present.
    action: ActionWords,
    /// The record's second eight bytes, up to the first value, and their mask: together with the
    /// tail, enough to exclude most other layouts.
    head: u64,
    head_mask: u64,
    /// The record's last eight bytes, from the last value on, and their mask.
    tail: u64,
    tail_mask: u64,
    segments: [Segment; LAYOUT_SEGMENTS_MAX],
    segment_count: usize,
}

impl Layout {
    /// Returns the layout of a record that is known to be an event.
    fn of(value: &[u8], table: &EventTable) -> Option<Layout> {
        if value.len() < RECORD_BYTES_MIN || value.contains(&b'\\') {
            return None;
        }
        let mut layout = Layout {
            hits: 0,
            kind: 0,
            present: FieldSet::default(),
            action: ActionWords::default(),
            head: 0,
            head_mask: 0,
            tail: 0,
            tail_mask: 0,
            segments: [Segment::new(b"", LayoutSlot::Nothing, 0); LAYOUT_SEGMENTS_MAX],
            segment_count: 0,
        };
        let mut text = value;
        let mut rest = past(b'{', value)?;
        loop {
            let key = past(b'"', rest)?;
            let key_bytes = key.iter().position(|byte| *byte == b'"')?;
            rest = without_blanks(past(b':', &key[key_bytes + 1..])?);
            rest = layout.add_field(table, &key[..key_bytes], rest, &mut text)?;
            match past(b',', rest) {
                Some(next) => rest = next,
                None => break,
            }
        }
        past(b'}', rest)?;
        let required = table.actions[usize::from(layout.kind)].required;
        assert!(layout.present.contains_all(required), "the record is an event");
        layout.add_segments(text, LayoutSlot::Nothing, 0)?;
        layout.place_fields(table);
        let first_text_bytes = layout.segments[0].text_bytes;
        layout.head_mask = first_bytes(usize::from(first_text_bytes).saturating_sub(8));
        layout.head = word(&value[8..]) & layout.head_mask;
        layout.tail_mask = !first_bytes(8 - text.len().min(8));
        layout.tail = word(&value[value.len() - 8..]) & layout.tail_mask;
        Some(layout)
    }

    /// Adds the field whose value starts `bytes`, and returns the bytes after it. `text` is
    /// everything after the previous value, and becomes everything after this one.
    fn add_field<'v>(
        &mut self,
        table: &EventTable,
        key: &[u8],
        bytes: &'v [u8],
        text: &mut &'v [u8],
    ) -> Option<&'v [u8]> {
        let field = table.field_names.find(key);
        if let Some(field) = field {
            self.present.insert(field);
        }
        let (slot, start, rest) = match field.map(|field| table.fields[usize::from(field)].form) {
            Some(FieldForm::TypeName) => {
                let rest = after_plain_value(bytes)?;
                let quoted = &bytes[..bytes.len() - rest.len()];
                self.kind =
                    table.type_names.find(quoted.strip_prefix(b"\"")?.strip_suffix(b"\"")?)?;
                return Some(rest);
            }
            Some(FieldForm::Handoff) => return None,
            Some(FieldForm::Id) if bytes.starts_with(b"\"") => {
                let digits = &bytes[1..];
                (LayoutSlot::Digits, digits, unsigned(digits)?.1)
            }
            Some(FieldForm::Position) => (LayoutSlot::Position, bytes, position(bytes)?.1),
            Some(FieldForm::Id | FieldForm::Integer) => {
                (LayoutSlot::Digits, bytes, unsigned(bytes)?.1)
            }
            // A nested value belongs to the texts around it.
            None if bytes.starts_with(b"{") || bytes.starts_with(b"[") => {
                return after_nested(bytes);
            }
            None => (LayoutSlot::Unknown, bytes, after_plain_value(bytes)?),
        };

        let before = &text[..text.len() - start.len()];
        self.add_segments(before, slot, field.unwrap_or(0))?;
        *text = rest;
        // Skips the quote after a player's digits.
        rest.get(bytes.len() - start.len()..)
    }

    fn add_segments(&mut self, mut text: &[u8], slot: LayoutSlot, field: u8) -> Option<()> {
        while text.len() > TEXT_BYTES_MAX {
            let (first, rest) = text.split_at(TEXT_BYTES_MAX);
            self.add_segment(Segment::new(first, LayoutSlot::Nothing, 0))?;
            text = rest;
        }
        self.add_segment(Segment::new(text, slot, field))
    }

    fn add_segment(&mut self, segment: Segment) -> Option<()> {
        *self.segments.get_mut(self.segment_count)? = segment;
        self.segment_count += 1;
        Some(())
    }

    fn has_texts_of(&self, other: &Layout) -> bool {
        self.segments[..self.segment_count] == other.segments[..other.segment_count]
    }

    /// Notes where the event holds each number, once its type is known.
    fn place_fields(&mut self, table: &EventTable) {
        for segment in &mut self.segments[..self.segment_count] {
            if matches!(segment.slot, LayoutSlot::Digits | LayoutSlot::Position) {
                segment.part = EventPart::of(table, self.kind, segment.field);
            }
        }
        self.action = ActionWords::new(self.kind);
        for field in table.actions[usize::from(self.kind)].fields {
            if self.present.contains(field.field) {
                self.action.mark(field.place);
            }
        }
    }

    #[inline]
    fn read(&self, table: &EventTable, origin: RecordPosition, value: &[u8]) -> Option<PlainEvent> {
        let mut words = [0; EVENT_WORDS + 1];
        let mut rest = value;
        for segment in &self.segments[..self.segment_count] {
            rest = segment.after_text(rest)?;
            let number;
            (number, rest) = match segment.slot {
                LayoutSlot::Digits => {
                    let (number, rest) = unsigned(rest)?;
                    let range = &table.reading(segment.field).range;
                    (integer_in(range, number.into()).ok()?, rest)
                }
                LayoutSlot::Position => {
                    let (centimetres, rest) = position(rest)?;
                    (position_number(centimetres), rest)
                }
                LayoutSlot::Unknown => (0, after_plain_value(rest)?),
                LayoutSlot::Nothing => (0, rest),
            };
            let EventPart { word, shift, mask } = segment.part;
            words[usize::from(word)] |= (number & mask) << shift;
        }
        let [_, _, player_id, seq, ts_us, first, second, third, _] = words;
        rest.is_empty().then(|| PlainEvent {
            offset: origin.offset,
            time_ms: origin.time_ms,
            player_id,
            seq,
            ts_us: ts_us as i64,
            action: ActionWords([first | self.action.0[0], second, third]),
        })
    }
}

/// A mask of a word's first `bytes` bytes.
#[inline]
fn first_bytes(bytes: usize) -> u64 {
    if bytes >= 8 { u64::MAX } else { (1 << (8 * bytes)) - 1 }
}

fn without_blanks(bytes: &[u8]) -> &[u8] {
    let is_blank = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    &bytes[bytes.iter().take_while(is_blank).count()..]
}

/// Returns the bytes after `byte`, which must come first, except for blanks.
fn past(byte: u8, bytes: &[u8]) -> Option<&[u8]> {
    without_blanks(bytes).strip_prefix(&[byte])
}

/// Returns the bytes after an object or array of a valid record without escapes.
fn after_nested(bytes: &[u8]) -> Option<&[u8]> {
    let (mut depth, mut is_text) = (0, false);
    let end = bytes.iter().position(|byte| {
        match byte {
            b'"' => is_text = !is_text,
            b'{' | b'[' if !is_text => depth += 1,
            b'}' | b']' if !is_text => depth -= 1,
            _ => {}
        }
        depth == 0
    })?;
    bytes.get(end + 1..)
}

/// Returns the bytes after a plain value: a number, a word, or an ASCII string without escapes.
fn after_plain_value(bytes: &[u8]) -> Option<&[u8]> {
    match bytes {
        [b'"', text @ ..] => {
            let is_plain = |byte: &u8| matches!(byte, b' '..=0x7f) && !matches!(byte, b'"' | b'\\');
            let end = text.iter().position(|byte| !is_plain(byte))?;
            text[end..].strip_prefix(b"\"")
        }
        [b't', ..] => bytes.strip_prefix(b"true"),
        [b'f', ..] => bytes.strip_prefix(b"false"),
        [b'n', ..] => bytes.strip_prefix(b"null"),
        _ => after_plain_number(bytes),
    }
}
