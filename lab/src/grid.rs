//! The map of a match, divided into zones.

/// A square map around the origin, divided into equal cells, one per zone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    half_cm: i64,
    columns: i64,
    rows: i64,
}

impl Grid {
    /// Creates a map that extends `half_cm` from its centre to each side, divided into `zones`
    /// cells as square as the number allows: 8 zones are 2 columns of 4.
    pub(crate) fn new(half_cm: i64, zones: u16) -> Grid {
        assert!(half_cm > 0 && zones > 0);
        let zones = i64::from(zones);
        let columns = (1..=zones)
            .take_while(|columns| columns * columns <= zones)
            .filter(|columns| zones % columns == 0)
            .last()
            .expect("one column always divides");
        Grid { half_cm, columns, rows: zones / columns }
    }

    /// Number of cells.
    pub(crate) fn zones(&self) -> u16 {
        (self.columns * self.rows) as u16
    }

    /// Converts a position relative to the map's centre to one relative to its corner, and finds
    /// its zone; `None` if it is off the map.
    pub(crate) fn place(&self, x: i64, y: i64) -> Option<(i64, i64, u16)> {
        let side = 2 * self.half_cm;
        let (x, y) = (x + self.half_cm, y + self.half_cm);
        let on_map = (0..side).contains(&x) && (0..side).contains(&y);
        on_map.then(|| {
            let column = x * self.columns / side;
            let row = y * self.rows / side;
            (x, y, (row * self.columns + column) as u16)
        })
    }

    /// Converts a position relative to the map's corner to one relative to the corner of its zone.
    pub(crate) fn within_zone(&self, zone: u16, x: i64, y: i64) -> (i32, i32) {
        let side = 2 * self.half_cm;
        let (column, row) = (i64::from(zone) % self.columns, i64::from(zone) / self.columns);
        let left = (column * side + self.columns - 1) / self.columns;
        let top = (row * side + self.rows - 1) / self.rows;
        ((x - left) as i32, (y - top) as i32)
    }
}

#[cfg(test)]
mod tests {
    use super::Grid;

    #[test]
    fn every_position_of_the_map_is_in_one_zone_and_not_negative_there() {
        for zones in [1, 2, 3, 4, 6, 7, 8, 16, 64] {
            let grid = Grid::new(1_000, zones);
            assert_eq!(grid.zones(), zones);
            let mut seen = vec![false; usize::from(zones)];
            for x in (-1_000..1_000).step_by(7) {
                for y in (-1_000..1_000).step_by(11) {
                    let (map_x, map_y, zone) = grid.place(x, y).expect("the position is inside");
                    let (zone_x, zone_y) = grid.within_zone(zone, map_x, map_y);
                    assert!(zone_x >= 0 && zone_y >= 0, "{zones} zones, at {x},{y}");
                    seen[usize::from(zone)] = true;
                }
            }
            assert!(seen.iter().all(|seen| *seen), "{zones} zones");
        }
    }

    #[test]
    fn a_position_off_the_map_has_no_zone() {
        let grid = Grid::new(1_000, 4);
        assert!(grid.place(-1_001, 0).is_none());
        assert!(grid.place(0, 1_000).is_none());
        assert!(grid.place(-1_000, 999).is_some());
    }
}
