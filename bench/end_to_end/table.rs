//! Tables of plain text, columns aligned.

use std::io::Write;

/// Rows of cells, the first of which are the headings.
pub(crate) struct Table(Vec<Vec<String>>);

impl Table {
    pub(crate) fn new(headings: &[&str]) -> Table {
        Table(vec![headings.iter().map(|heading| (*heading).to_owned()).collect()])
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.0[0].len());
        self.0.push(cells);
    }

    pub(crate) fn print(&self) {
        let width = |column: usize| self.0.iter().map(|row| row[column].len()).max().unwrap_or(0);
        for (number, row) in self.0.iter().enumerate() {
            let cells = row.iter().enumerate().map(|(column, cell)| match column {
                0 => format!("{cell:<0$}", width(column)),
                _ => format!("{cell:>0$}", width(column)),
            });
            say(&format!("| {} |", cells.collect::<Vec<_>>().join(" | ")));
            if number == 0 {
                let rule = (0..row.len()).map(|column| "-".repeat(width(column)));
                say(&format!("| {} |", rule.collect::<Vec<_>>().join(" | ")));
            }
        }
    }
}

/// One line to the standard output.
pub(crate) fn say(line: &str) {
    writeln!(std::io::stdout(), "{line}").expect("standard output is open");
}
