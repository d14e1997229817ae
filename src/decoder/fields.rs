//! Sets the numeric fields of an event, so that ranges are checked in one place.

use super::quantity::Integer;
use super::reject::Reject;
use crate::kit::field::IntegerRange;

/// Returns an integer in two's complement, if it is in the field's range.
#[inline]
pub(super) fn integer_in(range: &IntegerRange, value: Integer) -> Result<u64, Reject> {
    let IntegerRange { negative_max, least, most } = *range;
    let Integer { magnitude, negative } = value;
    let fits = if negative {
        magnitude <= negative_max && least <= magnitude
    } else {
        least <= magnitude && magnitude <= most
    };
    let number = if negative { magnitude.wrapping_neg() } else { magnitude };
    if fits { Ok(number) } else { Err(Reject::OutOfRange) }
}

/// Returns a position in centimetres in two's complement.
#[inline]
pub(super) fn position_number(centimetres: i32) -> u64 {
    i64::from(centimetres) as u64
}
