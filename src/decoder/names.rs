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

/// Where a name is looked for, by its length and its ends.
const fn place(name: &[u8]) -> usize {
    match name {
        [] => 0,
        [only] => (1 + 3 * *only as usize) % PLACES,
        [first, .., last] => (name.len() + 2 * *first as usize + *last as usize) % PLACES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_and_nothing_that_is_like_it() {
        const NAMES: Names<u8> =
            Names::new(&[("x", 1), ("hunt", 2), ("to_zone", 3), ("duration_ms", 4)]);
        for (name, value) in [("x", 1), ("hunt", 2), ("to_zone", 3), ("duration_ms", 4)] {
            assert_eq!(NAMES.find(name.as_bytes()), Some(value));
            for at in 0..name.len() {
                for byte in 0..=u8::MAX {
                    let mut other = name.as_bytes().to_vec();
                    other[at] = byte;
                    let expected = (byte == name.as_bytes()[at]).then_some(value);
                    assert_eq!(NAMES.find(&other), expected, "{}", other.escape_ascii());
                }
                assert_eq!(NAMES.find(&name.as_bytes()[at + 1..]), None);
            }
            assert_eq!(NAMES.find([name, "\0"].concat().as_bytes()), None);
        }
        assert_eq!(NAMES.find(b""), None);
        assert_eq!(NAMES.find(&[b'x'; 1000]), None);
    }
}
