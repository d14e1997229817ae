//! Packs the values of an update into bits, and reads them back.

/// A type that a field can have.
pub trait Packed: Sized {
    /// The names of its values, if it has any.
    const NAMES: &'static [&'static str] = &[];

    /// The bits with the largest value, as a number: all up to these are values of the type.
    const MOST: u64;

    /// Returns the value's bits, the lowest ones of a part.
    fn to_bits(self) -> u64;

    /// Returns the value with these bits. `None` if they are not a value of the type.
    fn from_bits(bits: u64) -> Option<Self>;
}

macro_rules! packed_numbers {
    ($($type:ty),*) => {$(
        impl Packed for $type {
            const MOST: u64 = <$type>::MAX as u64;

            fn to_bits(self) -> u64 {
                self.into()
            }

            fn from_bits(bits: u64) -> Option<$type> {
                <$type>::try_from(bits).ok()
            }
        }
    )*};
}

packed_numbers!(u8, u16, u32, u64);

impl Packed for bool {
    const MOST: u64 = 1;

    fn to_bits(self) -> u64 {
        self.into()
    }

    fn from_bits(bits: u64) -> Option<bool> {
        (bits < 2).then_some(bits == 1)
    }
}

impl Packed for i32 {
    const MOST: u64 = u32::MAX as u64;

    fn to_bits(self) -> u64 {
        (self as u32).into()
    }

    fn from_bits(bits: u64) -> Option<i32> {
        u32::try_from(bits).ok().map(|bits| bits as i32)
    }
}

impl Packed for Option<u16> {
    const MOST: u64 = u16::MAX as u64 + 1;

    fn to_bits(self) -> u64 {
        self.map_or(0, |zone| u64::from(zone) + 1)
    }

    fn from_bits(bits: u64) -> Option<Option<u16>> {
        match bits.checked_sub(1) {
            None => Some(None),
            Some(zone) => u16::try_from(zone).ok().map(Some),
        }
    }
}

/// The id of a player, which is not 0.
impl Packed for Option<u64> {
    const MOST: u64 = u64::MAX;

    fn to_bits(self) -> u64 {
        assert_ne!(self, Some(0), "no player has the id 0");
        self.unwrap_or(0)
    }

    fn from_bits(bits: u64) -> Option<Option<u64>> {
        Some(Some(bits).filter(|id| *id != 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    #[test]
    fn an_id_is_packed_as_itself_and_0_is_none() {
        for id in [None, Some(1), Some(u64::MAX)] {
            assert_eq!(<Option<u64>>::from_bits(id.to_bits()), Some(id));
        }
        assert!(catch_unwind(|| Some(0_u64).to_bits()).is_err());
    }
}
