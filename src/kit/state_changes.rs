//! The fields in which two stored states of a zone differ.

use crate::kit::stored_names::{NamedState, NamedTable, Section, bits_of, read_words};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A field of a stored row before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldChange {
    /// The table.
    pub table: String,
    /// The part of the table, if it has several.
    pub instance: Option<u8>,
    /// The row.
    pub row: RowName,
    /// The field.
    pub field: String,
    /// The value before; `None`: there was no such row.
    pub before: Option<FieldValue>,
    /// The value after; `None`: there is no such row any more.
    pub after: Option<FieldValue>,
}

/// What identifies a row in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RowName {
    /// The player that the row is about.
    Player(u64),
    /// The row's number.
    Number(u64),
}

/// The value of a field, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FieldValue {
    /// A number with a sign.
    Signed(i64),
    /// Any other value of at most a word.
    Bits(u64),
    /// Several words.
    Words(Vec<u64>),
}

/// The rows of a stored state, by table, part of the table and name.
type Rows<'a> = BTreeMap<(&'a str, u8, RowName), (&'a NamedTable, Vec<u64>)>;

/// Returns the fields in which two stored states of one version differ, in the order of their
/// tables' names. `None`: one of them is not a state with names.
pub(crate) fn changed_fields(before: &[u8], after: &[u8]) -> Option<Vec<FieldChange>> {
    let (before, after) = (NamedState::of(before)?, NamedState::of(after)?);
    let (names_before, names_after) = (before.parsed().ok()?, after.parsed().ok()?);
    let (was, is) = (names_before.sections(&before)?, names_after.sections(&after)?);
    // Rows that are not counted keep their numbers as long as there are as many.
    let is_numbered = |of: &Section| {
        let same = |it: &Section| {
            (&it.table.name, it.instance, it.rows) == (&of.table.name, of.instance, of.rows)
        };
        !of.is_counted && was.iter().any(same) && is.iter().any(same)
    };
    let (was, is) = (rows(&was, is_numbered), rows(&is, is_numbered));
    let keys: BTreeSet<_> = was.keys().chain(is.keys()).copied().collect();
    let divided: BTreeSet<_> =
        keys.iter().filter(|(_, instance, _)| *instance > 0).map(|(name, ..)| *name).collect();
    let mut changes = Vec::new();
    for key in keys {
        let (was, is) = (was.get(&key), is.get(&key));
        if was.map(|(_, words)| words) == is.map(|(_, words)| words) {
            continue;
        }
        let (table, _) = was.or(is).expect("the key is of one of them");
        for number in 0..table.fields.len() {
            let value = |row: Option<&(&NamedTable, Vec<u64>)>| {
                row.map(|(table, words)| value_of(table, number, words))
            };
            let (before, after) = (value(was), value(is));
            if before != after {
                let (name, instance, row) = key;
                let instance = divided.contains(name).then_some(instance);
                let (table, field) = (name.to_owned(), table.fields[number].name.clone());
                changes.push(FieldChange { table, instance, row, field, before, after });
            }
        }
    }
    Some(changes)
}

fn rows<'a>(sections: &[Section<'a>], is_numbered: impl Fn(&Section) -> bool) -> Rows<'a> {
    let mut rows = Rows::new();
    for section in sections {
        let Section { table, instance, rows: count, bytes, .. } = *section;
        let mut words = vec![0; table.words];
        for number in 0..count as usize {
            read_words(&bytes[number * 8 * table.words..], &mut words);
            let name = if is_numbered(section) { None } else { own_name(table, &words) };
            let name = name.unwrap_or(RowName::Number(number as u64));
            rows.insert((table.name.as_str(), instance, name), (table, words.clone()));
        }
    }
    rows
}

/// Returns the name that a row has in its first word: where rows are stored without gaps, they name
/// themselves.
fn own_name(table: &NamedTable, words: &[u64]) -> Option<RowName> {
    match table.fields.first()?.name.as_str() {
        "player_id" => Some(RowName::Player(words[0])),
        "row" => Some(RowName::Number(words[0])),
        _ => None,
    }
}

fn value_of(table: &NamedTable, number: usize, words: &[u64]) -> FieldValue {
    let field = &table.fields[number];
    if field.bits > 64 {
        let first = field.bit as usize / 64;
        return FieldValue::Words(words[first..][..field.bits as usize / 64].to_vec());
    }
    let bits = bits_of(words, field.bit, field.bits);
    match field.form.as_str() {
        "i8" => FieldValue::Signed(i64::from(bits as u8 as i8)),
        "i16" => FieldValue::Signed(i64::from(bits as u16 as i16)),
        "i32" => FieldValue::Signed(i64::from(bits as u32 as i32)),
        "i64" => FieldValue::Signed(bits as i64),
        _ => FieldValue::Bits(bits),
    }
}

impl fmt::Display for RowName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RowName::Player(player_id) => write!(out, "player {player_id}"),
            RowName::Number(number) => write!(out, "{number}"),
        }
    }
}

impl fmt::Display for FieldValue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldValue::Signed(number) => write!(out, "{number}"),
            FieldValue::Bits(bits) => write!(out, "{bits}"),
            FieldValue::Words(words) => write!(out, "{words:?}"),
        }
    }
}
