//! Where the players of a zone are: those around a place are found without looking at the others.
//!
//! The plane is divided into square cells, which share a fixed number of lists.

use crate::kit::chunks::{CHUNK_ROWS, Chunks};

/// Bits of a coordinate within a cell: 41 m where coordinates are in cm, so that who looks 50 m far
/// looks into 16 cells at most.
const CELL_BITS: u32 = 12;

/// Lists of rows: some for each cell of a usual map.
const LISTS: usize = 4_096;

/// No row.
const NONE: u32 = u32::MAX;

/// A place on the plane.
pub(crate) type Spot = (i32, i32);

/// The rows of players, by cell.
#[derive(Debug)]
pub(super) struct Nearby {
    /// The first row of each list.
    first: Vec<u32>,
    /// By row.
    links: Chunks<ListLink, CHUNK_ROWS>,
}

/// A row's place in its list.
#[derive(Clone, Copy, Debug, Default)]
struct ListLink {
    before: u32,
    after: u32,
}

impl Nearby {
    /// Nobody is anywhere.
    pub(super) fn new(rows_max: usize) -> Nearby {
        Nearby { first: vec![NONE; LISTS], links: Chunks::new(rows_max) }
    }

    /// A player moves; `None` is outside of the zone.
    pub(super) fn step(&mut self, row: u32, from: Option<Spot>, to: Option<Spot>) {
        if from.map(cell) == to.map(cell) {
            return;
        }
        if let Some(from) = from {
            self.remove(row, list_of(cell(from)));
        }
        if let Some(to) = to {
            self.add(row, list_of(cell(to)));
        }
    }

    /// Visits the rows in all cells that touch the square around a place: each row once.
    pub(super) fn visit(
        &self,
        (x, y): Spot,
        radius: u32,
        spot_of: impl Fn(u32) -> Spot,
        mut visit: impl FnMut(u32),
    ) {
        let range = |at: i32| {
            let (least, most) =
                (i64::from(at) - i64::from(radius), i64::from(at) + i64::from(radius));
            (least >> CELL_BITS, most >> CELL_BITS)
        };
        let ((left, right), (low, high)) = (range(x), range(y));
        if (right - left + 1).saturating_mul(high - low + 1) >= LISTS as i64 {
            (0..LISTS).flat_map(|list| self.rows(list)).for_each(visit);
            return;
        }
        for cell_x in left..=right {
            for cell_y in low..=high {
                let here = (cell_x, cell_y);
                // Other cells may share the list.
                let rows = self.rows(list_of(here));
                rows.filter(|row| cell(spot_of(*row)) == here).for_each(&mut visit);
            }
        }
    }

    fn rows(&self, list: usize) -> impl Iterator<Item = u32> + '_ {
        let known = |row: u32| Some(row).filter(|row| *row != NONE);
        std::iter::successors(known(self.first[list]), move |row| known(self.links[*row].after))
    }

    fn add(&mut self, row: u32, list: usize) {
        self.links.reach(row);
        let after = std::mem::replace(&mut self.first[list], row);
        if after != NONE {
            self.links[after].before = row;
        }
        self.links[row] = ListLink { before: NONE, after };
    }

    fn remove(&mut self, row: u32, list: usize) {
        let ListLink { before, after } = self.links[row];
        match before {
            NONE => self.first[list] = after,
            _ => self.links[before].after = after,
        }
        if after != NONE {
            self.links[after].before = before;
        }
    }
}

/// A cell's numbers.
fn cell((x, y): Spot) -> (i64, i64) {
    (i64::from(x) >> CELL_BITS, i64::from(y) >> CELL_BITS)
}

/// The list of a cell: neighbours have different ones.
fn list_of((x, y): (i64, i64)) -> usize {
    (x.wrapping_mul(67) + y).rem_euclid(LISTS as i64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random::Random;

    #[test]
    fn rows_are_visited_once_that_are_in_the_square_wherever_they_have_been() {
        for seed in 0..40 {
            let mut random = Random::new(seed);
            let span = [200, 20_000, 3_000_000, 1 << 32][seed as usize % 4];
            let spot = |random: &mut Random| {
                let mut at = || (random.below(span) as i64 - span as i64 / 2) as i32;
                (at(), at())
            };
            let (mut nearby, mut spots) = (Nearby::new(64), vec![None; 64]);
            for _ in 0..2_000 {
                let row = random.below(64) as usize;
                let to = (random.below(5) > 0).then(|| spot(&mut random));
                nearby.step(row as u32, spots[row], to);
                spots[row] = to;
                let (centre, radius) = (spot(&mut random), random.below(span.min(1 << 20)) as u32);
                let mut visited = Vec::new();
                let spot_of = |row: u32| spots[row as usize].expect("only those are there");
                nearby.visit(centre, radius, spot_of, |row| visited.push(row));
                visited.sort_unstable();
                let count = visited.len();
                visited.dedup();
                assert_eq!(visited.len(), count, "seed {seed}: a row was visited twice");
                let reach = i64::from(radius);
                let is_near = |at: i32, from: i32| (i64::from(at) - i64::from(from)).abs() <= reach;
                for (row, spot) in (0..).zip(&spots) {
                    let is_in =
                        spot.is_some_and(|(x, y)| is_near(x, centre.0) && is_near(y, centre.1));
                    assert!(!is_in || visited.contains(&row), "seed {seed}: row {row} is missing");
                    assert!(spot.is_some() || !visited.contains(&row), "seed {seed}: row {row}");
                }
            }
        }
    }
}
