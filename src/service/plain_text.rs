//! Foreign text for a log line, a terminal or a status line.
//!
//! Brokers, records and files supply text. A line feed in it would forge a line, and an escape
//! sequence would reach the operator's terminal.

use std::fmt::{self, Display, Write};

/// Shows control characters, U+0080 to U+009F included, by the escapes that JSON has for them.
pub(crate) struct Plain<T>(pub T);

impl<T: Display> Display for Plain<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping(out), "{}", self.0)
    }
}

struct Escaping<'o, 'f>(&'o mut fmt::Formatter<'f>);

impl Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some((at, control)) = rest.char_indices().find(|(_, char)| char.is_control()) {
            self.0.write_str(&rest[..at])?;
            match control {
                '\n' => self.0.write_str("\\n")?,
                '\r' => self.0.write_str("\\r")?,
                '\t' => self.0.write_str("\\t")?,
                other => write!(self.0, "\\u{:04x}", u32::from(other))?,
            }
            rest = &rest[at + control.len_utf8()..];
        }
        self.0.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_all_others_are_kept() {
        let foreign = "a\nb\r\tc\u{1b}[31m\u{9b}2J\u{7f}\0 d\u{e9}\u{a0}\u{1f600}";
        let plain = "a\\nb\\r\\tc\\u001b[31m\\u009b2J\\u007f\\u0000 d\u{e9}\u{a0}\u{1f600}";
        assert_eq!(Plain(foreign).to_string(), plain);
        let all = (0..=0x10_ffff).filter_map(char::from_u32).collect::<String>();
        assert!(!Plain(all).to_string().chars().any(char::is_control));
    }
}
