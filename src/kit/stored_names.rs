//! The names in a stored state: its tables, their fields, and where the rows of each are. By them a
//! state moves to another version of its game.
//!
//! ```text
//! NAMED_STATE | bytes of the text | the text, padded to words | number of runs | runs | rows
//! ```

use crate::kit::checkpoint::{STATE_BYTES_MAX, STORED_ROW_WORDS_MAX, StateError};
use crate::kit::words::Words;
use std::fmt::Write;

/// First word of a state with names.
const NAMED_STATE: u64 = u64::from_le_bytes(*b"HNTNAME\x01");

/// Limit of the text with the names, in bytes.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// Limit of the words of a row in a stored state.
const NAMED_ROW_WORDS_MAX: usize = 4096;

/// Limit of the runs of rows in a stored state.
const RUNS_MAX: usize = 1024;

/// A field of a stored row: some of its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredField {
    /// The name.
    pub name: &'static str,
    /// The type. A field with another type is another field.
    pub form: &'static str,
    /// The first bit, counted from the lowest of the first word.
    pub bit: u32,
    /// The number of bits: some of one word, or whole words.
    pub bits: u32,
    /// The bits of the largest value, if the field has a word at most.
    pub most: u64,
}

/// A table of a stored state.
#[derive(Clone, Copy, Debug)]
pub struct StoredTable {
    /// The name.
    pub name: &'static str,
    /// The number of words of a row.
    pub words: usize,
    /// The fields of a row.
    pub fields: &'static [StoredField],
}

impl StoredField {
    /// Creates a field that can have any bits.
    pub const fn new(name: &'static str, form: &'static str, bit: u32, bits: u32) -> StoredField {
        let most = if bits < 64 { (1 << bits) - 1 } else { u64::MAX };
        StoredField { name, form, bit, bits, most }
    }
}

impl StoredTable {
    /// Creates a table. Fails to compile if a field does not lie within its row.
    pub const fn new(
        name: &'static str,
        words: usize,
        fields: &'static [StoredField],
    ) -> StoredTable {
        assert!(words > 0 && words <= NAMED_ROW_WORDS_MAX);
        let mut at = 0;
        while at < fields.len() {
            assert!(lies_within(fields[at].bit, fields[at].bits, words));
            at += 1;
        }
        StoredTable { name, words, fields }
    }

    /// Creates a table that a checkpoint reads row by row. Fails to compile if the rows are too
    /// long for that.
    pub const fn of_rows(
        name: &'static str,
        words: usize,
        fields: &'static [StoredField],
    ) -> StoredTable {
        assert!(words <= STORED_ROW_WORDS_MAX, "a stored row has 32 words at most");
        StoredTable::new(name, words, fields)
    }

    /// Returns whether the table has a field with this name, of a word at most.
    const fn has_short_field(&self, name: &str) -> bool {
        let mut at = 0;
        while at < self.fields.len() {
            if is_same(self.fields[at].name, name) {
                return self.fields[at].bits <= 64;
            }
            at += 1;
        }
        false
    }
}

/// Returns whether two texts are equal.
const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// Returns the fields of a row that has a word for each. `most` has the largest value of each.
pub const fn word_fields<const WORDS: usize>(
    names: [&'static str; WORDS],
    forms: [&'static str; WORDS],
    most: [u64; WORDS],
) -> [StoredField; WORDS] {
    let mut fields = [StoredField::new("", "", 0, 64); WORDS];
    let mut at = 0;
    while at < WORDS {
        fields[at] = StoredField::new(names[at], forms[at], at as u32 * 64, 64);
        fields[at].most = most[at];
        at += 1;
    }
    fields
}

/// Returns whether a field consists of bits of one word, or of whole words, of a row.
const fn lies_within(bit: u32, bits: u32, words: usize) -> bool {
    let is_whole = bit.is_multiple_of(64) && bits.is_multiple_of(64);
    bits > 0 && bit as u64 + bits as u64 <= words as u64 * 64 && (is_whole || bit % 64 + bits <= 64)
}

/// The tables that every state has.
pub(crate) const ZONE: u8 = 0;
pub(crate) const RING: u8 = 1;
pub(crate) const TOMBSTONES: u8 = 2;
pub(crate) const DIGEST: u8 = 3;

/// The number of a game's first table.
pub const GAME_TABLES: u8 = 4;

/// The words of a zone's row that are not taken from another version: the format and the ruleset.
const FORMAT_AND_RULESET: std::ops::Range<usize> = 0..2;

const KIT_TABLES: [StoredTable; GAME_TABLES as usize] = {
    const ZONE: &[StoredField] = &[
        StoredField::new("format", "u64", 0, 64),
        StoredField::new("ruleset", "u32", 64, 64),
        StoredField::new("partition", "u16", 128, 64),
        StoredField::new("recent_ms", "[i64; 8]", 192, 512),
        StoredField::new("records", "u64", 704, 64),
        StoredField::new("start_ms", "i64", 768, 64),
        StoredField::new("now_ms", "u64", 832, 64),
        StoredField::new("published_ms", "u64", 896, 64),
        StoredField::new("last_tick", "u64", 960, 64),
    ];
    const TOMBSTONE: &[StoredField] = &[
        StoredField::new("row", "u32", 0, 64),
        StoredField::new("player_id", "u64", 64, 64),
        StoredField::new("seq", "u64", 128, 64),
        StoredField::new("crossing_sent", "u32", 192, 32),
        StoredField::new("accepted_crossing", "u32", 224, 32),
        StoredField::new("accepted_seq", "u64", 256, 64),
    ];
    [
        StoredTable::new("zone", 16, ZONE),
        StoredTable::new("tombstone_ring", 1, &[StoredField::new("next", "u32", 0, 64)]),
        StoredTable::new("tombstones", 5, TOMBSTONE),
        StoredTable::new("digest", 1, &[StoredField::new("digest", "u64", 0, 64)]),
    ]
};

/// Rows of one table, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowRun {
    /// The table.
    pub table: u8,
    /// Which of the runs of this table.
    pub instance: u8,
    /// A word with the number of rows precedes them.
    pub is_counted: bool,
    /// The number of rows.
    pub rows: u32,
}

impl RowRun {
    /// Returns the run as a word.
    pub(crate) fn to_word(self) -> u64 {
        let RowRun { table, instance, is_counted, rows } = self;
        u64::from(table)
            | u64::from(instance) << 8
            | u64::from(is_counted) << 16
            | u64::from(rows) << 32
    }

    /// Returns the run that a word is.
    fn from_word(word: u64) -> Option<RowRun> {
        let [table, instance, is_counted, ..] = word.to_le_bytes();
        let run =
            RowRun { table, instance, is_counted: is_counted == 1, rows: (word >> 32) as u32 };
        (run.to_word() == word).then_some(run)
    }

    /// Returns the number of words of the run, if its rows have this many.
    fn words(&self, row_words: usize) -> usize {
        usize::from(self.is_counted) + self.rows as usize * row_words
    }
}

/// The words before the runs: the names of the tables of a game in this version.
pub(crate) fn names_words(version: u32, tables: &[StoredTable]) -> Vec<u64> {
    let mut text = format!("version {version}\n");
    for StoredTable { name, words, fields } in KIT_TABLES.iter().chain(tables) {
        let _never_fails = writeln!(text, "{name} {words}");
        for StoredField { name, form, bit, bits, .. } in *fields {
            let _never_fails = writeln!(text, " {name} {bit} {bits} {form}");
        }
    }
    assert!(text.len() <= TEXT_BYTES_MAX, "the names of a state take {} bytes", text.len());
    let bytes = text.len() as u64;
    text.extend(std::iter::repeat_n('\n', text.len().next_multiple_of(8) - text.len()));
    let words = text.as_bytes().chunks_exact(8);
    let words = words.map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
    [NAMED_STATE, bytes].into_iter().chain(words).collect()
}

/// Returns the number of words that these runs of a game's state have.
pub(crate) fn words_of_runs(runs: &[RowRun], tables: &[StoredTable]) -> u64 {
    let table = |number: u8| match number.checked_sub(GAME_TABLES) {
        None => &KIT_TABLES[usize::from(number)],
        Some(number) => &tables[usize::from(number)],
    };
    runs.iter().map(|run| run.words(table(run.table).words) as u64).sum()
}

/// A stored state, with its names if it has any.
#[derive(Debug)]
pub(crate) struct NamedState<'a> {
    /// The names and the runs; `None` if a version without names has stored it.
    names: Option<(&'a [u8], Vec<RowRun>)>,
    /// The rows.
    body: &'a [u8],
}

impl<'a> NamedState<'a> {
    /// Separates the names of a state from its rows. `None`: it is not one.
    pub(crate) fn of(bytes: &'a [u8]) -> Option<NamedState<'a>> {
        let words = &mut Words::new(bytes);
        if words.word()? != NAMED_STATE {
            return Some(NamedState { names: None, body: bytes });
        }
        let text_bytes = usize::try_from(words.word()?).ok()?;
        if text_bytes > TEXT_BYTES_MAX {
            return None;
        }
        let text = bytes.get(..16 + text_bytes.next_multiple_of(8))?;
        let words = &mut Words::new(&bytes[text.len()..]);
        let runs = usize::try_from(words.word()?).ok().filter(|runs| *runs <= RUNS_MAX)?;
        let body = bytes.get(text.len() + 8 * (1 + runs)..)?;
        let runs = (0..runs).map(|_| RowRun::from_word(words.word()?)).collect::<Option<_>>()?;
        Some(NamedState { names: Some((text, runs)), body })
    }

    /// Returns the rows.
    pub(crate) fn body(&self) -> &'a [u8] {
        self.body
    }

    /// Returns the runs of rows, if the state has names.
    pub(crate) fn runs(&self) -> Option<&[RowRun]> {
        self.names.as_ref().map(|(_, runs)| &runs[..])
    }

    /// Returns whether the state has these names, or none.
    pub(crate) fn is_named_by(&self, names: &[u64]) -> bool {
        let bytes = names.iter().flat_map(|word| word.to_le_bytes());
        self.names.as_ref().is_none_or(|(text, _)| text.iter().copied().eq(bytes))
    }

    /// Returns the rows of a new zone's state, with what they have of this one. Fields have the
    /// value of the stored field with the same name and type, or that of their migration, or that
    /// of a new zone. `tables` are the game's.
    pub(crate) fn moved_to(
        &self,
        new: &NamedState,
        migrations: &[Migration],
        tables: &[StoredTable],
    ) -> Result<Vec<u8>, StateError> {
        let names = self.parsed()?;
        let ours = new.parsed()?;
        let stored = names.sections(self).ok_or(StateError::Malformed)?;
        let mut moved = MovedRows { bytes: Vec::with_capacity(self.body.len()) };
        for begun in ours.sections(new).ok_or(StateError::Malformed)? {
            let is_same = |other: &&Section| {
                (&other.table.name, other.instance) == (&begun.table.name, begun.instance)
            };
            let is_digest = begun.table.name == KIT_TABLES[usize::from(DIGEST)].name;
            match stored.iter().find(is_same).filter(|_| !is_digest) {
                None => moved.append(&begun, &begun, &[])?,
                Some(found) => {
                    let ours = (begun.table, migrations, tables);
                    let moves = Move::between(&names, found.table, ours)?;
                    moved.append(&begun, found, &moves)?;
                }
            }
        }
        Ok(moved.bytes)
    }

    /// Reads the names.
    pub(super) fn parsed(&self) -> Result<StateNames, StateError> {
        let (text, _) = self.names.as_ref().ok_or(StateError::Unnamed)?;
        StateNames::parse(text).ok_or(StateError::Malformed)
    }
}

/// Computes a field that no stored field with the same name and type has.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// The table.
    pub table: &'static str,
    /// The field.
    pub field: &'static str,
    /// Returns the field's bits for a stored row; `None` if there is no such value.
    pub migrate: fn(&StoredRowView) -> Option<u64>,
}

/// Panics, or does not compile, if a migration names no field of these tables, or a field of
/// several words: no state would ever be moved by it.
pub(crate) const fn check_migrations(migrations: &[Migration], tables: &[StoredTable]) {
    let mut at = 0;
    while at < migrations.len() {
        let Migration { table: name, field, .. } = migrations[at];
        let (mut is_known, mut table) = (false, 0);
        while table < tables.len() {
            is_known |= is_same(tables[table].name, name) && tables[table].has_short_field(field);
            table += 1;
        }
        assert!(
            is_known,
            "each migration names a table of the state and a field of a word at most"
        );
        at += 1;
    }
}

/// Panics, or does not compile, if two of the tables of a state have the same name: rows move, and
/// are compared, by the names of their tables.
pub(crate) const fn check_names(tables: &[StoredTable]) {
    let mut at = 0;
    while at < tables.len() {
        let (mut kit, mut other) = (0, 0);
        while kit < KIT_TABLES.len() {
            let is_the_kit_s = is_same(tables[at].name, KIT_TABLES[kit].name);
            assert!(!is_the_kit_s, "no table is called zone, tombstone_ring, tombstones or digest");
            kit += 1;
        }
        while other < at {
            let is_taken = is_same(tables[at].name, tables[other].name);
            assert!(!is_taken, "each table has a name of its own");
            other += 1;
        }
        at += 1;
    }
}

/// A row of a stored state, by its own names.
#[derive(Debug)]
pub struct StoredRowView<'a> {
    table: &'a NamedTable,
    words: &'a [u64],
}

impl StoredRowView<'_> {
    /// Returns the bits of a field, if the row has one with this name, of at most a word.
    pub fn get(&self, field: &str) -> Option<u64> {
        let NamedField { bit, bits, .. } = *self.table.field(field)?;
        (bits <= 64).then(|| bits_of(self.words, bit, bits))
    }
}

/// The names of a stored state.
#[derive(Clone, Debug)]
pub(super) struct StateNames {
    version: u32,
    tables: Vec<NamedTable>,
}

/// A table of a stored state; see [`StoredTable`].
#[derive(Clone, Debug)]
pub(super) struct NamedTable {
    pub name: String,
    pub words: usize,
    pub fields: Vec<NamedField>,
}

/// A field of a stored row; see [`StoredField`].
#[derive(Clone, Debug)]
pub(super) struct NamedField {
    pub name: String,
    pub form: String,
    pub bit: u32,
    pub bits: u32,
}

/// The rows of a run.
#[derive(Debug)]
pub(super) struct Section<'a> {
    pub table: &'a NamedTable,
    pub instance: u8,
    pub is_counted: bool,
    pub rows: u32,
    pub bytes: &'a [u8],
}

impl StateNames {
    /// Reads what [`names_words`] has written. `None`: it has written something else.
    fn parse(text: &[u8]) -> Option<StateNames> {
        let mut lines = std::str::from_utf8(text.get(16..)?).ok()?.lines();
        let version = lines.next()?.strip_prefix("version ")?.parse().ok()?;
        let mut tables: Vec<NamedTable> = Vec::new();
        for line in lines.filter(|line| !line.is_empty()) {
            match line.strip_prefix(' ') {
                None => {
                    let (name, words) = line.split_once(' ')?;
                    let words = words.parse().ok()?;
                    if !(1..=NAMED_ROW_WORDS_MAX).contains(&words) {
                        return None;
                    }
                    let name = name.to_owned();
                    tables.push(NamedTable { name, words, fields: Vec::new() });
                }
                Some(field) => {
                    let table = tables.last_mut()?;
                    let (name, rest) = field.split_once(' ')?;
                    let (bit, rest) = rest.split_once(' ')?;
                    let (bits, form) = rest.split_once(' ')?;
                    let (bit, bits) = (bit.parse().ok()?, bits.parse().ok()?);
                    if !lies_within(bit, bits, table.words) {
                        return None;
                    }
                    let (name, form) = (name.to_owned(), form.to_owned());
                    table.fields.push(NamedField { name, form, bit, bits });
                }
            }
        }
        Some(StateNames { version, tables })
    }

    /// Divides the rows of a state into its runs. `None`: the rows are fewer, or more.
    pub(super) fn sections<'a>(&'a self, state: &NamedState<'a>) -> Option<Vec<Section<'a>>> {
        let mut left = state.body;
        let section = |run: &RowRun| {
            let table = self.tables.get(usize::from(run.table))?;
            let (mut bytes, after) = left.split_at_checked(8 * run.words(table.words))?;
            left = after;
            if run.is_counted {
                let (count, rows) = bytes.split_first_chunk()?;
                bytes = rows;
                (u64::from_le_bytes(*count) == u64::from(run.rows)).then_some(())?;
            }
            let RowRun { instance, is_counted, rows, .. } = *run;
            Some(Section { table, instance, is_counted, rows, bytes })
        };
        let sections = state.runs()?.iter().map(section).collect::<Option<_>>()?;
        left.is_empty().then_some(sections)
    }
}

impl NamedTable {
    fn field(&self, name: &str) -> Option<&NamedField> {
        self.fields.iter().find(|field| field.name == name)
    }
}

/// How a field gets its value.
struct Move<'a> {
    to: &'a NamedField,
    from: MoveFrom,
}

enum MoveFrom {
    /// The stored field that begins at this bit.
    Field(u32),
    /// A function of the stored row, and the largest value that the field can have.
    Migration(fn(&StoredRowView) -> Option<u64>, u64),
}

impl<'a> Move<'a> {
    /// Returns where the fields of a table get their values. Those without a move start as in a
    /// new row.
    fn between(
        names: &StateNames,
        stored: &NamedTable,
        (ours, migrations, tables): (&'a NamedTable, &[Migration], &[StoredTable]),
    ) -> Result<Vec<Move<'a>>, StateError> {
        let mut moves = Vec::new();
        let table = tables.iter().find(|table| table.name == ours.name);
        let most = |name: &str| {
            let field = table.and_then(|table| table.fields.iter().find(|of| of.name == name));
            field.expect("a migration names a field of the game").most
        };
        for to in &ours.fields {
            let found = stored.field(&to.name);
            let is_migrated =
                |migration: &&Migration| migration.table == ours.name && migration.field == to.name;
            let from = match (found, migrations.iter().find(is_migrated)) {
                (Some(found), _) if (&found.form, found.bits) == (&to.form, to.bits) => {
                    MoveFrom::Field(found.bit)
                }
                (_, Some(migration)) if to.bits <= 64 => {
                    MoveFrom::Migration(migration.migrate, most(&to.name))
                }
                (None, _) => continue,
                (Some(found), _) => {
                    return Err(StateError::OtherType {
                        version: names.version,
                        field: format!("{}.{}", ours.name, to.name).into(),
                        stored: found.form.as_str().into(),
                        ours: to.form.as_str().into(),
                    });
                }
            };
            moves.push(Move { to, from });
        }
        Ok(moves)
    }

    /// Sets the field in a row.
    fn make(&self, stored: &StoredRowView, row: &mut [u64]) -> Result<(), StateError> {
        let NamedField { bit, bits, name, .. } = self.to;
        match self.from {
            MoveFrom::Field(from) if *bits > 64 => {
                let words = *bits as usize / 64;
                row[*bit as usize / 64..][..words]
                    .copy_from_slice(&stored.words[from as usize / 64..][..words]);
            }
            MoveFrom::Field(from) => {
                set_bits(row, *bit, *bits, bits_of(stored.words, from, *bits));
            }
            MoveFrom::Migration(migrate, most) => {
                let value = migrate(stored).filter(|value| *value <= most);
                let value = value.ok_or_else(|| StateError::NotMigrated {
                    field: format!("{}.{name}", stored.table.name).into(),
                })?;
                set_bits(row, *bit, *bits, value);
            }
        }
        Ok(())
    }
}

/// Returns the bits of a field of at most a word.
pub(super) fn bits_of(words: &[u64], bit: u32, bits: u32) -> u64 {
    words[bit as usize / 64] >> (bit % 64) & u64::MAX >> (64 - bits)
}

fn set_bits(words: &mut [u64], bit: u32, bits: u32, value: u64) {
    let word = &mut words[bit as usize / 64];
    *word = *word & !(u64::MAX >> (64 - bits) << (bit % 64)) | value << (bit % 64);
}

/// The rows of a state that was moved.
struct MovedRows {
    bytes: Vec<u8>,
}

impl MovedRows {
    /// Appends the rows of a stored run, with these moves. Without moves, the run is one of a new
    /// zone.
    fn append(
        &mut self,
        begun: &Section,
        stored: &Section,
        moves: &[Move],
    ) -> Result<(), StateError> {
        // The rows of a numbered table exist from the start. If there are others, their numbers may
        // mean something else.
        if !begun.is_counted && begun.rows > 0 && begun.rows != stored.rows {
            return Err(StateError::Unfit);
        }
        let rows = stored.rows;
        if begun.is_counted {
            self.bytes.extend_from_slice(&u64::from(rows).to_le_bytes());
        }
        let (stored_bytes, row_bytes) = (8 * stored.table.words, 8 * begun.table.words);
        let is_zone = begun.table.name == KIT_TABLES[usize::from(ZONE)].name;
        let (mut words, mut row) = (vec![0; stored.table.words], vec![0; begun.table.words]);
        for number in 0..rows as usize {
            row.fill(0);
            read_words(begun.bytes.get(number * row_bytes..).unwrap_or_default(), &mut row);
            read_words(&stored.bytes[number * stored_bytes..], &mut words);
            let view = StoredRowView { table: stored.table, words: &words };
            moves.iter().try_for_each(|it| it.make(&view, &mut row))?;
            if is_zone {
                read_words(begun.bytes, &mut row[FORMAT_AND_RULESET]);
            }
            if self.bytes.len() + row_bytes > STATE_BYTES_MAX {
                return Err(StateError::TooLarge);
            }
            row.iter().for_each(|word| self.bytes.extend_from_slice(&word.to_le_bytes()));
        }
        Ok(())
    }
}

/// Reads as many words as there are bytes for.
pub(super) fn read_words(bytes: &[u8], words: &mut [u64]) {
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    }
}
