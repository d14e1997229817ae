//! The runs of digits in a record that is an event: the meaning of each, and therefore its possible
//! values in other records with the same text.

use crate::kit::event::EventTable;
use crate::kit::field::{FieldSet, TYPE};
use std::ops::Range;

/// Limit of runs in a record: the longest type of event has five numbers, and a record may have two
/// more.
pub(super) const RUNS_MAX: usize = 7;

/// A run of digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Position in the record.
    pub range: Range<usize>,
    /// The meaning of the run.
    pub role: Role,
}

/// The meaning of a run of digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A known field's number.
    Field(u8),
    /// A known field's number after a minus.
    NegativeField(u8),
    /// The integer part of an unknown number.
    Number,
    /// Any digits: they are part of a text or follow a decimal point.
    Free,
}

/// The type and fields of a record, and the runs of digits in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RecordRuns {
    pub kind: u8,
    pub present: FieldSet,
    runs: [Run; RUNS_MAX],
    run_count: usize,
}

/// The parser's place in the outermost object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ObjectPlace {
    Key,
    Value(Option<u8>),
}

impl RecordRuns {
    /// Returns the runs of a record that is known to be an event. `None` if it has too many of
    /// them, or a part whose meaning could change with its digits.
    pub(super) fn of(value: &[u8], table: &EventTable) -> Option<RecordRuns> {
        if value.contains(&b'\\') {
            return None;
        }
        let mut kind = None;
        let mut found = RecordRuns {
            kind: 0,
            present: FieldSet::default(),
            runs: [const { Run { range: 0..0, role: Role::Free } }; RUNS_MAX],
            run_count: 0,
        };
        let (mut depth, mut place, mut key) = (0, ObjectPlace::Key, &value[..0]);
        let mut at = 0;
        while let Some(byte) = value.get(at) {
            let outer = if depth == 1 { place } else { ObjectPlace::Value(None) };
            let start = at;
            at += 1;
            match byte {
                b'"' => {
                    at += value[at..].iter().position(|byte| *byte == b'"')?;
                    let text = start + 1..at;
                    at += 1;
                    match outer {
                        ObjectPlace::Key => key = &value[text.clone()],
                        ObjectPlace::Value(Some(TYPE)) => {
                            let name = &value[text.clone()];
                            // Other digits make another type.
                            if name.iter().any(u8::is_ascii_digit) {
                                return None;
                            }
                            kind = Some(table.type_names.find(name)?);
                        }
                        ObjectPlace::Value(_) => {}
                    }
                    match outer {
                        ObjectPlace::Value(Some(field)) => {
                            found.add_all(value, text, Role::Field(field))?;
                        }
                        _ => found.add_all(value, text, Role::Free)?,
                    }
                }
                b'-' | b'0'..=b'9' => {
                    at = start + number_bytes(&value[start..]);
                    found.add_number(value, start..at, outer)?;
                }
                b'{' | b'[' if matches!(outer, ObjectPlace::Value(Some(_))) => return None,
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                b':' if depth == 1 => {
                    let field = table.field_names.find(key);
                    field.map(|field| found.present.insert(field));
                    place = ObjectPlace::Value(field);
                }
                b',' if depth == 1 => place = ObjectPlace::Key,
                _ => {}
            }
        }
        found.kind = kind?;
        let required = table.actions[usize::from(found.kind)].required;
        assert!(found.present.contains_all(required), "the record is an event");
        Some(found)
    }

    /// All runs, in order.
    pub(super) fn runs(&self) -> &[Run] {
        &self.runs[..self.run_count]
    }

    /// Adds the runs of an unquoted number.
    fn add_number(&mut self, value: &[u8], range: Range<usize>, place: ObjectPlace) -> Option<()> {
        let text = &value[range.clone()];
        let is_negative = text.starts_with(b"-");
        if text.iter().any(|byte| matches!(byte, b'e' | b'E')) {
            return None;
        }
        let role = match place {
            ObjectPlace::Value(Some(field)) if is_negative => Role::NegativeField(field),
            ObjectPlace::Value(Some(field)) => Role::Field(field),
            _ => Role::Number,
        };
        let whole_end = text.iter().position(|byte| *byte == b'.').unwrap_or(text.len());
        self.add_all(value, range.start..range.start + whole_end, role)?;
        if whole_end < text.len() && role != Role::Number {
            // Its rounding depends on the fraction.
            return None;
        }
        self.add_all(value, range.start + whole_end..range.end, Role::Free)
    }

    /// Adds all runs within a part of the record.
    fn add_all(&mut self, value: &[u8], range: Range<usize>, role: Role) -> Option<()> {
        let mut at = range.start;
        while at < range.end {
            let digits = value[at..range.end].iter().take_while(|byte| byte.is_ascii_digit());
            let end = at + digits.count();
            if end > at {
                *self.runs.get_mut(self.run_count)? = Run { range: at..end, role };
                self.run_count += 1;
            }
            at = end + 1;
        }
        Some(())
    }
}

/// Length of the number that starts here.
fn number_bytes(bytes: &[u8]) -> usize {
    let is_part = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'.' | b'-' | b'+' | b'e' | b'E');
    bytes.iter().take_while(is_part).count()
}
