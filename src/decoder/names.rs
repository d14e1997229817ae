//! A table of known names that finds one without comparing them in turn. A branch that the
//! processor cannot predict would cost more time than the comparisons.

/// Size of the table, a power of two: about twice the number of names, so that a collision-free
/// spread exists.
const PLACES: usize = 32;

/// How a name's first and last bytes are hashed: each is multiplied by one of these.
#[derive(Clone, Copy)]
struct Spread {
    first: usize,
    last: usize,
}

/// Values by name, without collisions.
pub(super) struct Names<T: 'static> {
    spread: Spread,
    places: [Option<(&'static str, T)>; PLACES],
}

impl<T: Copy> Names<T> {
    /// Builds a table of these names with the first spread that has no collision. It does not
    /// compile if there is none.
    pub(super) const fn new(names: &[(&'static str, T)]) -> Names<T> {
        let mut at = 0;
        while at < PLACES * PLACES {
            let spread = Spread { first: at / PLACES, last: at % PLACES };
            if let Some(places) = places(names, spread) {
                return Names { spread, places };
            }
            at += 1;
        }
        panic!("two names share a place however they are spread: double PLACES")
    }

    /// Returns the value of a name, if it is known.
    #[inline]
    pub(super) fn find(&self, name: &[u8]) -> Option<T> {
        let (known, value) = self.places[place(name, self.spread)]?;
        (known.as_bytes() == name).then_some(value)
    }
}

/// Places the names, unless two of them collide.
const fn places<T: Copy>(
    names: &[(&'static str, T)],
    spread: Spread,
) -> Option<[Option<(&'static str, T)>; PLACES]> {
    let mut places = [const { None }; PLACES];
    let mut at = 0;
    while at < names.len() {
        let place = place(names[at].0.as_bytes(), spread);
        if places[place].is_some() {
            return None;
        }
        places[place] = Some(names[at]);
        at += 1;
    }
    Some(places)
}

/// Returns the place of a name, from its length and its first and last bytes.
#[inline]
const fn place(name: &[u8], spread: Spread) -> usize {
    match name {
        [] => 0,
        [first, ..] => {
            let last = name[name.len() - 1];
            (name.len() + spread.first * *first as usize + spread.last * last as usize) % PLACES
        }
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

    #[test]
    fn names_with_the_same_ends_are_kept_apart_by_their_lengths() {
        const NAMES: Names<usize> = Names::new(&[("abc", 3), ("abbc", 4), ("abbbc", 5), ("c", 1)]);
        for name in ["abc", "abbc", "abbbc", "c"] {
            assert_eq!(NAMES.find(name.as_bytes()), Some(name.len()));
        }
        assert_eq!(NAMES.find(b"abbbbc"), None);
    }
}
