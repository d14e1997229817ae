//! Straight lines over tiles, and directions, with integers only.

use crate::hunt::tiles::Tiles;

/// A full turn, in centidegrees.
pub(crate) const HEADINGS: u16 = 36_000;

/// Fractional bits of a sine.
const SINE_BITS: u32 = 30;

/// Sines of whole degrees, 0..=90, from their series in fixed point.
const SINES: [i64; 91] = {
    let mut sines = [0; 91];
    let mut degree = 0;
    while degree <= 90 {
        sines[degree] = sine_of_degree(degree as i128);
        degree += 1;
    }
    sines
};

const fn sine_of_degree(degree: i128) -> i64 {
    const BITS: u32 = 60;
    // Pi with 60 fractional bits.
    const PI: i128 = 3_622_009_729_038_561_421;
    let angle = PI * degree / 180;
    let square = (angle * angle) >> BITS;
    let (mut term, mut sum, mut at) = (angle, angle, 1);
    while at < 12 {
        term = -((term * square) >> BITS) / ((2 * at) * (2 * at + 1));
        sum += term;
        at += 1;
    }
    ((sum + (1 << (BITS - SINE_BITS - 1))) >> (BITS - SINE_BITS)) as i64
}

/// Sine of 0..=9000 centidegrees, linear between whole degrees, with an error of at most 0.004 %.
fn sine_of_quarter(centidegrees: usize) -> i64 {
    let (degree, part) = (centidegrees / 100, (centidegrees % 100) as i64);
    let next = SINES[(degree + 1).min(90)];
    SINES[degree] + (next - SINES[degree]) * part / 100
}

/// Returns the vector to a point `range_cm` away: heading 0 is along x, 9000 along y.
pub(crate) fn along(heading: u16, range_cm: u32) -> (i32, i32) {
    let angle = usize::from(heading % 9000);
    let (near, far) = (sine_of_quarter(angle), sine_of_quarter(9000 - angle));
    let scaled =
        |sine: i64| ((sine * i64::from(range_cm) + (1 << (SINE_BITS - 1))) >> SINE_BITS) as i32;
    let (near, far) = (scaled(near), scaled(far));
    match heading / 9000 {
        0 => (far, near),
        1 => (-near, far),
        2 => (-far, -near),
        _ => (near, -far),
    }
}

/// Square roots of 0, 256, 512 and so on.
const ROOTS: [u8; 256] = {
    let mut roots = [0; 256];
    let mut at = 0;
    while at < 256 {
        roots[at] = ((at as u32) << 8).isqrt() as u8;
        at += 1;
    }
    roots
};

/// Square root, rounded up: the table's root of the leading bits, at most one off.
#[inline]
fn short_root_up(square: u16) -> u32 {
    let shift = (square | 1).leading_zeros() & !1;
    let leading = (u32::from(square) << shift) >> 8;
    let least = u32::from(ROOTS[leading as usize % 256]);
    let root = (least + 1) >> (shift / 2);
    let square = u32::from(square);
    let root = root - u32::from(root * root > square);
    root + u32::from(root * root < square)
}

/// Square root of a larger number, rounded up: the table's root of its leading bits, improved by
/// one step of Newton's method.
#[inline]
fn middling_root_up(square: u32) -> u32 {
    let shift = (square | 1).leading_zeros() & !1;
    let scaled = square << shift;
    // Half as many bits, and half a step up: at most 256 off.
    let near = (u32::from(ROOTS[(scaled >> 24) as usize]) + 1) << 8;
    // Never below the root rounded down, and at most one above.
    let root = (near + scaled / near) / 2;
    let root = root - u32::from(u64::from(root) * u64::from(root) > scaled.into());
    let root = root >> (shift / 2);
    root + u32::from(root * root < square)
}

/// Distance in cm, rounded up.
#[inline]
pub(crate) fn distance_cm(x: i32, y: i32) -> u32 {
    let square = square_cm(x, y);
    // A walking step is short.
    match u16::try_from(square) {
        Ok(short) => short_root_up(short),
        Err(_) => long_root_up(square),
    }
}

fn long_root_up(square: u64) -> u32 {
    match u32::try_from(square) {
        Ok(middling) => middling_root_up(middling),
        Err(_) => {
            let root = square.isqrt();
            (root + u64::from(root * root < square)) as u32
        }
    }
}

/// Square of a distance.
#[inline]
pub(crate) fn square_cm(x: i32, y: i32) -> u64 {
    let (x, y) = (i64::from(x), i64::from(y));
    (x * x + y * y) as u64
}

/// The tiles on a straight line, from its start until it ends or leaves the map. Through a corner
/// it goes along x first.
pub(crate) struct Walk<'a> {
    tiles: &'a Tiles,
    column: i32,
    row: i32,
    step_x: i32,
    step_y: i32,
    /// Distance along x, and along y, to the next tile, times the other direction's length: the
    /// smaller one is crossed first.
    until_x: i64,
    until_y: i64,
    per_x: i64,
    per_y: i64,
    left: u32,
}

impl<'a> Walk<'a> {
    /// Creates the line from a position on the map along a vector of at most a zone's side in x and
    /// in y.
    pub(crate) fn new(tiles: &'a Tiles, x: i32, y: i32, way_x: i32, way_y: i32) -> Walk<'a> {
        let (size, shift) = (tiles.tile_cm(), tiles.tile_shift());
        let (column, row) = (x >> shift, y >> shift);
        let (end_column, end_row) = ((x + way_x) >> shift, (y + way_y) >> shift);
        let until = |at: i32, way: i32| {
            let into = at & (size - 1);
            i64::from(if way < 0 { into + 1 } else { size - into })
        };
        let (length_x, length_y) = (i64::from(way_x.abs()), i64::from(way_y.abs()));
        Walk {
            tiles,
            column,
            row,
            step_x: way_x.signum(),
            step_y: way_y.signum(),
            until_x: until(x, way_x) * length_y,
            until_y: until(y, way_y) * length_x,
            per_x: i64::from(size) * length_y,
            per_y: i64::from(size) * length_x,
            left: column.abs_diff(end_column) + row.abs_diff(end_row) + 1,
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        let tile = self.tiles.numbered(self.column, self.row)?;
        // Along x alone, nothing is left until the next tile; along y alone, something is.
        if self.until_x <= self.until_y {
            self.column += self.step_x;
            self.until_x += self.per_x;
        } else {
            self.row += self.step_y;
            self.until_y += self.per_y;
        }
        Some(tile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root_up(square: u32) -> u32 {
        let root = square.isqrt();
        root + u32::from(u64::from(root) * u64::from(root) < square.into())
    }

    #[test]
    fn a_short_root_is_rounded_up() {
        for square in 0..=u16::MAX {
            assert_eq!(short_root_up(square), root_up(square.into()), "{square}");
        }
    }

    /// The error of a root, and the start of its next one, are largest at the ends of the range of
    /// a table entry, and beside squares.
    #[test]
    fn a_middling_root_is_rounded_up() {
        let squares = (0..=u32::from(u16::MAX)).map(|root| root * root);
        let entries = (0..=u32::MAX >> 24)
            .flat_map(|entry| (0..32).step_by(2).map(move |shift| (entry << 24) >> shift));
        for square in squares.chain(entries).chain([u32::MAX]) {
            for near in [square.wrapping_sub(1), square, square.wrapping_add(1)] {
                assert_eq!(middling_root_up(near), root_up(near), "{near}");
            }
        }
    }
}
