//! What standard error may show: a terminal moves its cursor and has colours, a file does not.

use std::io::{IsTerminal, stderr};

/// Whether standard error is a terminal that understands escape sequences.
pub(crate) fn moves_its_cursor() -> bool {
    stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// Whether text there may have colours: not where the user has set `NO_COLOR` (no-color.org).
pub(crate) fn has_colours() -> bool {
    moves_its_cursor() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
