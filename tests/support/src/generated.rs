//! Parts of files that follow from the code: a test compares them, or writes them when it is asked
//! to.

use std::cmp::Reverse;
use std::ops::Range;

/// Compares parts of a file with what they must be. With `HUNTD_REGENERATE=true` it writes them
/// instead. `test` names the test for the sentence that says so.
pub fn check(path: &str, test: &str, parts: impl FnOnce(&str) -> Vec<(Range<usize>, String)>) {
    let mut text = std::fs::read_to_string(path).expect("the file is part of the source");
    let regenerates = std::env::var("HUNTD_REGENERATE").as_deref() == Ok("true");
    let mut parts = parts(&text);
    // From the last one on, so that the places of the others stay.
    parts.sort_by_key(|(range, _)| Reverse(range.start));
    for (range, wanted) in parts {
        if regenerates {
            text.replace_range(range, &wanted);
            continue;
        }
        let how = format!("HUNTD_REGENERATE=true cargo test --test host {test} writes it");
        assert_eq!(text[range], *wanted, "{path} is stale: {how}");
    }
    if regenerates {
        std::fs::write(path, text).expect("the file is writable");
    }
}

/// Returns the place of a table's rows. The line below the table's head begins at `rule`.
pub fn rows(text: &str, rule: usize) -> Range<usize> {
    let start = rule + text[rule..].find('\n').expect("the line ends") + 1;
    let lines = text[start..].split_inclusive('\n').take_while(|line| line.starts_with('|'));
    start..start + lines.map(str::len).sum::<usize>()
}
