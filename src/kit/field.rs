//! The fields of events: their names and ranges in a record, and their places in an event.

use crate::kit::names::Names;

/// The JSON format of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldForm {
    /// A string: the name of an event type.
    TypeName,
    /// An integer.
    Integer,
    /// An integer, or a string of its digits.
    Id,
    /// A number of centimetres, rounded to an integer. The range is that of an i32.
    Position,
    /// An object: the data that a player carries from one zone to another.
    Handoff,
}

/// The public description of a field.
#[derive(Clone, Copy, Debug)]
pub struct FieldSpec {
    /// The name.
    pub key: &'static str,
    /// The format.
    pub form: FieldForm,
    /// The smallest value; 0 if the field is not a number.
    pub least: i128,
    /// The largest value; 0 if the field is not a number.
    pub most: i128,
}

/// Numbers of the fields that every game has.
pub(crate) const TYPE: u8 = 0;
pub(crate) const PLAYER_ID: u8 = 1;
pub(crate) const SEQ: u8 = 2;
pub(crate) const TS_US: u8 = 3;

/// Limit of a game's fields: a [`FieldSet`] has a bit for each.
pub(crate) const FIELDS_MAX: usize = u32::BITS as usize;

/// A set of fields, one bit each, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldSet(u32);

impl FieldSet {
    /// Creates the set of these fields.
    pub(crate) const fn of(fields: &[u8]) -> FieldSet {
        let mut set = FieldSet(0);
        let mut at = 0;
        while at < fields.len() {
            set.0 |= 1 << fields[at];
            at += 1;
        }
        set
    }

    /// Returns the union of two sets.
    pub(crate) const fn and(self, others: FieldSet) -> FieldSet {
        FieldSet(self.0 | others.0)
    }

    /// Adds a field. Returns false if it was already present.
    #[inline]
    pub(crate) fn insert(&mut self, field: u8) -> bool {
        let before = self.0;
        self.0 |= 1 << field;
        self.0 != before
    }

    /// Returns whether a field is in the set.
    #[inline]
    pub(crate) fn contains(self, field: u8) -> bool {
        self.0 >> field & 1 != 0
    }

    /// Returns whether any of these fields is in the set.
    #[inline]
    pub(crate) fn contains_any(self, others: FieldSet) -> bool {
        self.0 & others.0 != 0
    }

    /// Returns whether all of these fields are in the set.
    #[inline]
    pub(crate) fn contains_all(self, others: FieldSet) -> bool {
        self.0 & others.0 == others.0
    }
}

/// The action of an event as three words: its number and the fields that are present, then the
/// fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActionWords(pub(crate) [u64; 3]);

/// The first of the bits that say which fields are present.
const PRESENT_SHIFT: u32 = 8;

/// Halves of words that may hold a field: the number and the bits need the first one.
pub(crate) const HALVES: u8 = 5;

/// Where an action's words hold a field: half a word, or a whole one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldPlace {
    /// The half, counted from the second half of the first word.
    pub(crate) half: u8,
    pub(crate) is_wide: bool,
}

impl FieldPlace {
    /// Returns the place of a field among all fields of an action, given with their widths. Wide
    /// ones come from the end. It does not compile if an action has too many.
    pub const fn of(fields: &[(u8, bool)], field: u8) -> FieldPlace {
        let (mut half, mut end, mut at) = (0, HALVES, 0);
        let mut place = None;
        while at < fields.len() {
            let (number, is_wide) = fields[at];
            if is_wide {
                end -= 2;
            }
            let at_half = if is_wide { end } else { half };
            if !is_wide {
                half += 1;
            }
            assert!(half <= end, "the fields of an action fit two and a half words");
            if number == field {
                place = Some(FieldPlace { half: at_half, is_wide });
            }
            at += 1;
        }
        place.expect("the action has the field")
    }

    /// Index of the word.
    #[inline(always)]
    pub(crate) const fn word(self) -> usize {
        (self.half as usize).div_ceil(2)
    }

    /// Position of the lowest bit.
    #[inline(always)]
    pub(crate) const fn shift(self) -> u32 {
        32 * ((self.half as u32 + 1) % 2)
    }

    /// Mask of the bits, once shifted.
    #[inline(always)]
    pub(crate) const fn mask(self) -> u64 {
        if self.is_wide { u64::MAX } else { u32::MAX as u64 }
    }
}

impl ActionWords {
    /// Creates the words of an action without fields.
    pub const fn new(kind: u8) -> ActionWords {
        ActionWords([kind as u64, 0, 0])
    }

    /// Number of the action.
    #[inline(always)]
    pub fn kind(&self) -> u8 {
        self.0[0] as u8
    }

    /// Returns whether a field is present.
    #[inline(always)]
    pub(crate) fn has(&self, place: FieldPlace) -> bool {
        self.0[0] >> (PRESENT_SHIFT + u32::from(place.half)) & 1 != 0
    }

    /// Says that a field is present.
    #[inline(always)]
    pub(crate) fn mark(&mut self, place: FieldPlace) {
        self.0[0] |= 1 << (PRESENT_SHIFT + u32::from(place.half));
    }

    /// Returns a field; 0 if it is absent.
    #[inline(always)]
    pub(crate) fn get(&self, place: FieldPlace) -> u64 {
        self.0[place.word()] >> place.shift() & place.mask()
    }

    /// Adds a field, in two's complement.
    #[inline(always)]
    pub(crate) fn put(&mut self, place: FieldPlace, number: u64) {
        self.mark(place);
        let shifted = (number & place.mask()) << place.shift();
        // All words, so that they stay in registers where the place is not a constant.
        for (at, word) in self.0.iter_mut().enumerate() {
            *word |= if at == place.word() { shifted } else { 0 };
        }
    }
}

/// A type of an action's field. The range of the record's field ensures that its value fits.
pub trait FieldType: Sized {
    /// The smallest value that fits.
    const LEAST: i128;
    /// The largest value that fits.
    const MOST: i128;
    /// True if it takes a whole word.
    const IS_WIDE: bool = false;

    /// Reads the field. `carried` holds what arrivals carry.
    fn of(words: &ActionWords, place: FieldPlace, carried: &[u64]) -> Self;

    /// Adds the field.
    fn put(self, words: &mut ActionWords, place: FieldPlace, carried: &mut Vec<u64>);
}

macro_rules! number_types {
    ($($type:ty as $wide:ty, $is_wide:literal;)*) => {$(
        impl FieldType for $type {
            const LEAST: i128 = <$type>::MIN as i128;
            const MOST: i128 = <$type>::MAX as i128;
            const IS_WIDE: bool = $is_wide;

            #[inline(always)]
            fn of(words: &ActionWords, place: FieldPlace, _: &[u64]) -> $type {
                words.get(place) as $type
            }

            fn put(self, words: &mut ActionWords, place: FieldPlace, _: &mut Vec<u64>) {
                words.put(place, <$wide>::from(self) as u64);
            }
        }
    )*};
}

number_types! {
    u8 as u64, false;
    u16 as u64, false;
    u32 as u64, false;
    u64 as u64, true;
    i32 as i64, false;
}

impl<T: FieldType> FieldType for Option<T> {
    const LEAST: i128 = T::LEAST;
    const MOST: i128 = T::MOST;
    const IS_WIDE: bool = T::IS_WIDE;

    #[inline(always)]
    fn of(words: &ActionWords, place: FieldPlace, carried: &[u64]) -> Option<T> {
        words.has(place).then(|| T::of(words, place, carried))
    }

    fn put(self, words: &mut ActionWords, place: FieldPlace, carried: &mut Vec<u64>) {
        if let Some(value) = self {
            value.put(words, place, carried);
        }
    }
}

/// Limit of the words that a player carries to another zone.
pub(crate) const CARRIED_WORDS_MAX: usize = 12;

/// A field of the object that a player carries to another zone.
#[derive(Clone, Copy, Debug)]
pub struct CarriedField {
    /// The name.
    pub key: &'static str,
    /// True if the object must have it.
    pub is_required: bool,
    /// The value.
    pub form: CarriedForm,
}

/// The value of a carried field, and its place in the carried words.
#[derive(Clone, Copy, Debug)]
pub enum CarriedForm {
    /// An integer.
    Number(CarriedBits),
    /// A list of pairs, each in bits of its own from these on.
    Pairs {
        /// Limit of the pairs.
        count_max: usize,
        /// Pairs in one word.
        per_word: usize,
        /// The numbers of the first pair. A pair with a number below its range is absent.
        first: [CarriedBits; 2],
    },
}

/// A number in carried words.
#[derive(Clone, Copy, Debug)]
pub struct CarriedBits {
    /// The smallest and the largest value.
    pub range: (u64, u64),
    /// Index of the word.
    pub word: usize,
    /// Position of the lowest bit.
    pub shift: u32,
}

impl CarriedBits {
    /// Returns the bits of the pair at `index` in a list.
    pub(crate) fn at(self, index: usize, per_word: usize) -> CarriedBits {
        let (words, part) = (index / per_word, (index % per_word) as u32);
        let shift = self.shift + part * (u64::BITS / per_word as u32);
        CarriedBits { word: self.word + words, shift, ..self }
    }

    /// Returns the number.
    pub(crate) fn get(self, words: &[u64]) -> u64 {
        let bits = u64::BITS - self.range.1.leading_zeros();
        words[self.word] >> self.shift & u64::MAX >> (u64::BITS - bits)
    }

    /// Adds the number, which is in its range.
    pub(crate) fn put(self, words: &mut [u64], number: u64) {
        words[self.word] |= number << self.shift;
    }
}

/// Returns the number of the words that hold these fields.
pub(super) const fn carried_words(fields: &[CarriedField]) -> usize {
    let (mut words, mut at) = (0, 0);
    while at < fields.len() {
        let end = match fields[at].form {
            CarriedForm::Number(bits) => bits.word + 1,
            CarriedForm::Pairs { count_max, per_word, first } => {
                first[0].word + count_max.div_ceil(per_word)
            }
        };
        words = if end > words { end } else { words };
        at += 1;
    }
    assert!(words <= CARRIED_WORDS_MAX);
    words
}

/// The part of a field's specification that the decoder needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldReading {
    pub form: FieldForm,
    pub range: IntegerRange,
}

/// The integers that a field can hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IntegerRange {
    /// Largest magnitude below zero.
    pub negative_max: u64,
    pub least: u64,
    pub most: u64,
}

impl IntegerRange {
    /// Returns the range of a field. Panics, or does not compile, if the decoder would not hold it.
    const fn of(spec: &FieldSpec) -> IntegerRange {
        let FieldSpec { least, most, .. } = *spec;
        assert!(least <= most && 0 <= most, "a field has a range, with 0 or a number above it");
        assert!(i64::MIN as i128 <= least && least <= i64::MAX as i128 && most <= u64::MAX as i128);
        if let FieldForm::Position = spec.form {
            let is_whole = least == i32::MIN as i128 && most == i32::MAX as i128;
            assert!(is_whole, "the range of a position is [i32::MIN, i32::MAX]");
        }
        let is_signed = least < 0;
        IntegerRange {
            negative_max: if is_signed { -least as u64 } else { 0 },
            least: if is_signed { 0 } else { least as u64 },
            most: most as u64,
        }
    }
}

/// Returns how each field is read, by its number.
pub(super) const fn readings(fields: &[FieldSpec]) -> [FieldReading; FIELDS_MAX] {
    let range = IntegerRange { negative_max: 0, least: 0, most: 0 };
    let mut readings = [FieldReading { form: FieldForm::TypeName, range }; FIELDS_MAX];
    let mut at = 0;
    while at < fields.len() {
        let form = fields[at].form;
        readings[at] = FieldReading { form, range: IntegerRange::of(&fields[at]) };
        at += 1;
    }
    readings
}

/// Returns the fields of one form.
pub(super) const fn of_form(fields: &[FieldSpec], form: FieldForm) -> FieldSet {
    let (mut set, mut at) = (FieldSet(0), 0);
    while at < fields.len() {
        if fields[at].form as u8 == form as u8 {
            set.0 |= 1 << at;
        }
        at += 1;
    }
    set
}

/// Returns the fields by name.
pub(super) const fn field_names(fields: &[FieldSpec]) -> Names {
    let mut names = [""; FIELDS_MAX];
    let mut at = 0;
    while at < fields.len() {
        names[at] = fields[at].key;
        at += 1;
    }
    Names::new(&names)
}
