//! Known names and what they stand for, found without comparing one after the other: a processor
//! that cannot foresee which of many names comes next loses more time than the comparing takes.

/// Places of a table: the fewest, as a power of two, at which no two names share one.
const PLACES: usize = 32;

/// Values by name, each in a place of its own.
pub(super) struct Names<T: 'static>([Option<(&'static str, T)>; PLACES]);

impl<T: Copy> Names<T> {
    /// A table of these names. It does not compile if two of them share a place.
    pub(super) const fn new(names: &[(&'static str, T)]) -> Names<T> {
        let mut table = [const { None }; PLACES];
        let mut at = 0;
        while at < names.len() {
            let place = place(names[at].0.as_bytes());
            assert!(table[place].is_none(), "two names share a place");
            table[place] = Some(names[at]);
            at += 1;
        }
        Names(table)
    }

    /// What a name stands for, if it is known.
    #[inline]
    pub(super) fn find(&self, name: &[u8]) -> Option<T> {
        let (known, value) = self.0[place(name)]?;
        (known.as_bytes() == name).then_some(value)
    }
}

const fn place(name: &[u8]) -> usize {
    match name {
        [] => 0,
        [only] => (1 + 3 * *only as usize) % PLACES,
        [first, .., last] => (name.len() + 2 * *first as usize + *last as usize) % PLACES,
    }
}
