//! Makes foreign text safe for a terminal.

use std::borrow::Cow;
use std::fmt::Write;

/// Replaces each character that a terminal may interpret by its JSON escape, so that a JSON string
/// stays one. These are the control characters of ASCII and Latin-1, and those that change the
/// direction of text.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_acted_on) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            other if is_acted_on(other) => {
                write!(shown, "\\u{:04x}", u32::from(other)).expect("a string takes it");
            }
            other => shown.push(other),
        }
    }
    shown.into()
}

fn is_acted_on(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(character, '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::printable;
    use std::borrow::Cow;

    #[test]
    fn what_a_terminal_acts_on_is_shown_by_its_number() {
        for (text, shown) in [
            ("\u{1b}[2J\u{9b}2J", r"\u001b[2J\u009b2J"),
            ("a\nb\r\tc\u{7f}", r"a\nb\r\tc\u007f"),
            ("\u{202e}txt\u{2066}", r"\u202etxt\u2066"),
        ] {
            assert_eq!(printable(text), shown);
        }
        for code in (0..0x20).chain(0x7f..0xa0) {
            let text = char::from_u32(code).expect("a character").to_string();
            let shown = printable(&text);
            assert!(shown.starts_with('\\') && !shown.contains(&text), "{code:#x}: {shown}");
        }
    }

    #[test]
    fn other_text_stays_as_it_is() {
        let text = "a zone, \"ein Gebiet\", une zone \u{e9}, \u{5730}\u{533a} \u{1f5fa}";
        assert!(matches!(printable(text), Cow::Borrowed(shown) if shown == text));
    }

    #[test]
    fn a_json_string_still_means_the_same() {
        let text = "\u{9b}31m \u{7f} \u{202e} \\ \" \n";
        let json = serde_json::to_string(text).expect("a string");
        let shown = printable(&json);
        assert!(!shown.chars().any(char::is_control));
        assert_eq!(serde_json::from_str::<String>(&shown).expect("JSON"), text);
    }
}
