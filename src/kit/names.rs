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

/// Numbers by name, without collisions.
pub(crate) struct Names {
    spread: Spread,
    places: [Option<(&'static str, u8)>; PLACES],
}

impl Names {
    /// Numbers these names in their order with the first spread that has no collision. Empty ones
    /// are passed over. It does not compile if there is none.
    pub(crate) const fn new(names: &[&'static str]) -> Names {
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

    /// Returns the number of a name, if it is known.
    #[inline]
    pub(crate) fn find(&self, name: &[u8]) -> Option<u8> {
        let (known, number) = self.places[place(name, self.spread)]?;
        (known.as_bytes() == name).then_some(number)
    }
}

/// Places the names, unless two of them collide.
const fn places(
    names: &[&'static str],
    spread: Spread,
) -> Option<[Option<(&'static str, u8)>; PLACES]> {
    let mut places = [None; PLACES];
    let mut at = 0;
    while at < names.len() {
        if !names[at].is_empty() {
            let place = place(names[at].as_bytes(), spread);
            if places[place].is_some() {
                return None;
            }
            places[place] = Some((names[at], at as u8));
        }
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
        const NAMES: Names = Names::new(&["x", "hunt", "", "to_zone", "duration_ms"]);
        for (name, value) in [("x", 0), ("hunt", 1), ("to_zone", 3), ("duration_ms", 4)] {
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
        const NAMES: Names = Names::new(&["abc", "abbc", "abbbc", "c"]);
        for (number, name) in (0..).zip(["abc", "abbc", "abbbc", "c"]) {
            assert_eq!(NAMES.find(name.as_bytes()), Some(number));
        }
        assert_eq!(NAMES.find(b"abbbbc"), None);
    }
}
