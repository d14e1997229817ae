//! The project's files as the rules see them: text, and Rust code as tokens without comments and
//! literals.

use std::fs;
use std::ops::Range;
use std::path::Path;

/// Files of the project, or of a sample.
pub(super) struct Tree {
    pub sources: Vec<Source>,
}

/// One file.
pub(super) struct Source {
    /// Relative to the project's root.
    pub path: String,
    /// Empty if the file is not text.
    pub text: String,
    /// All tokens of a Rust file.
    pub tokens: Vec<Token>,
    /// The tokens of a Rust file under `src/` that are not for tests alone.
    pub product: Vec<Token>,
}

/// An identifier, a number, `::` or one other character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub text: String,
    /// From 1.
    pub line: usize,
}

impl Tree {
    /// All files under a folder, except hidden version control and what builds leave behind.
    pub(super) fn read(root: &Path) -> Tree {
        let mut sources = Vec::new();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).expect("the source can be read") {
                let path = entry.expect("the source can be read").path();
                let name = path.strip_prefix(root).expect("it is inside").to_string_lossy();
                if path.is_dir() {
                    if !is_foreign(&path, &name) {
                        folders.push(path);
                    }
                } else if name != ".git" {
                    let bytes = fs::read(&path).expect("the source can be read");
                    let text = String::from_utf8(bytes).unwrap_or_default();
                    sources.push(Source::new(&name, text));
                }
            }
        }
        sources.sort_by(|a, b| a.path.cmp(&b.path));
        Tree { sources }
    }

    /// The Rust files.
    pub(super) fn rust(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(|source| source.path.ends_with(".rs"))
    }

    /// The Rust files of the product.
    pub(super) fn product(&self) -> impl Iterator<Item = &Source> {
        self.rust().filter(|source| source.path.starts_with("src/"))
    }

    /// The Markdown files.
    pub(super) fn documents(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(|source| source.path.ends_with(".md"))
    }

    /// One file.
    pub(super) fn get(&self, path: &str) -> Option<&Source> {
        self.sources.iter().find(|source| source.path == path)
    }

    /// Whether a file or a folder is there.
    pub(super) fn has(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        self.sources.iter().any(|source| source.path == path || source.path.starts_with(&folder))
    }
}

/// Whether a folder is not source: version control, or what Cargo and the fuzzer build.
fn is_foreign(path: &Path, name: &str) -> bool {
    path.join("CACHEDIR.TAG").exists()
        || [".git", "target", "fuzz/target", "fuzz/corpus", "fuzz/artifacts"].contains(&name)
}

impl Source {
    /// A file with its text.
    pub(super) fn new(path: &str, text: String) -> Source {
        let tokens = if path.ends_with(".rs") { tokens(&text) } else { Vec::new() };
        let for_tests = path.ends_with("/tests.rs") || path.contains("/tests/");
        let product = match path.starts_with("src/") && !for_tests {
            true => without_tests(&tokens),
            false => Vec::new(),
        };
        Source { path: path.to_owned(), text, tokens, product }
    }

    /// The top-level module of a file under `src/`: `src/hunt/event.rs` is in `hunt`.
    pub(super) fn module(&self) -> &str {
        let path = self.path.strip_prefix("src/").unwrap_or(&self.path);
        path.split('/').next().unwrap_or(path).trim_end_matches(".rs")
    }

    /// The lines with their numbers.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }
}

/// Where tokens spell this, given with a space between tokens: the index of each first one.
pub(super) fn find(tokens: &[Token], spelled: &str) -> Vec<usize> {
    let words: Vec<&str> = spelled.split(' ').collect();
    let matches = |window: &[Token]| window.iter().map(|token| &token.text).eq(words.iter());
    let windows = tokens.windows(words.len()).enumerate();
    windows.filter(|(_, window)| matches(window)).map(|(index, _)| index).collect()
}

/// The macros that programs of others may call: their names, and where their definitions are.
pub(super) fn exported_macros(tokens: &[Token]) -> Vec<(&str, Range<usize>)> {
    const DEFINITION: &str = "# [ macro_export ] macro_rules !";
    let definition = |start: usize| -> (&str, Range<usize>) {
        let name: usize = start + DEFINITION.split(' ').count();
        (tokens[name].text.as_str(), start..close(tokens, name + 1))
    };
    find(tokens, DEFINITION).into_iter().map(definition).collect()
}

/// Every path that begins with `root::`, without the root: `root::a::{b, c::d}` gives `a::b` and
/// `a::c::d`. With the line it stands on.
pub(super) fn paths(tokens: &[Token], root: &str) -> Vec<(Vec<String>, usize)> {
    let starts = find(tokens, &format!("{root} ::")).into_iter();
    starts.flat_map(|start| paths_at(tokens, start + 2)).collect()
}

/// The path that begins at an index, or the paths of the group there.
pub(super) fn paths_at(tokens: &[Token], start: usize) -> Vec<(Vec<String>, usize)> {
    let mut found = Vec::new();
    path_tree(tokens, start, &mut Vec::new(), &mut found);
    found
}

/// Reads one path or group from `at` and returns the index after it.
fn path_tree(
    tokens: &[Token],
    mut at: usize,
    prefix: &mut Vec<String>,
    found: &mut Vec<(Vec<String>, usize)>,
) -> usize {
    let Some(token) = tokens.get(at) else {
        return at;
    };
    if token.text == "{" {
        at += 1;
        while tokens.get(at).is_some_and(|token| token.text != "}") {
            at = match tokens[at].text == "," {
                true => at + 1,
                false => path_tree(tokens, at, prefix, found),
            };
        }
        return at + 1;
    }
    prefix.push(token.text.clone());
    let (next, after) = (tokens.get(at + 1), tokens.get(at + 2));
    let goes_on = next.is_some_and(|token| token.text == "::")
        && after.is_some_and(|token| token.text != "<");
    if goes_on {
        at = path_tree(tokens, at + 2, prefix, found);
    } else {
        found.push((prefix.clone(), token.line));
        at += 1;
        if tokens.get(at).is_some_and(|token| token.text == "as") {
            at += 2;
        }
    }
    prefix.pop();
    at
}

/// The index after the bracket that closes the one at `open`.
pub(super) fn close(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0;
    for (index, token) in tokens.iter().enumerate().skip(open) {
        match token.text.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return index + 1;
        }
    }
    tokens.len()
}

/// Tokens that are not behind `#[cfg(test)]`.
fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let mut kept = tokens.to_vec();
    let mut starts = find(tokens, "# [ cfg ( test )");
    starts.extend(find(tokens, "# [ cfg ( all ( test"));
    starts.sort_unstable();
    for start in starts.into_iter().rev() {
        let range = start..item_end(tokens, start);
        if range.end <= kept.len() {
            kept.drain(range);
        }
    }
    kept
}

/// The index after the item whose first attribute is at `start`.
fn item_end(tokens: &[Token], start: usize) -> usize {
    let mut at = start;
    while let Some(token) = tokens.get(at) {
        match token.text.as_str() {
            "{" => return close(tokens, at),
            "(" | "[" => at = close(tokens, at),
            ";" => return at + 1,
            _ => at += 1,
        }
    }
    at
}

/// The tokens of Rust code, without comments and literals.
fn tokens(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < chars.len() {
        let end = opaque_end(&chars, at).unwrap_or_else(|| word_end(&chars, at));
        let word: String = chars[at..end].iter().collect();
        if opaque_end(&chars, at).is_none() && !word.trim().is_empty() {
            tokens.push(Token { text: word, line });
        }
        line += chars[at..end].iter().filter(|&&c| c == '\n').count();
        at = end;
    }
    tokens
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Where the identifier, number or punctuation that begins here ends.
fn word_end(chars: &[char], at: usize) -> usize {
    match chars[at] {
        c if is_word(c) => span(chars, at, is_word).end,
        ':' if chars.get(at + 1) == Some(&':') => at + 2,
        _ => at + 1,
    }
}

fn span(chars: &[char], at: usize, within: impl Fn(char) -> bool) -> Range<usize> {
    at..at + chars[at..].iter().take_while(|&&c| within(c)).count()
}

/// Where the comment or literal that begins here ends.
fn opaque_end(chars: &[char], at: usize) -> Option<usize> {
    let next = |offset: usize| chars.get(at + offset).copied();
    match (chars[at], next(1)) {
        ('/', Some('/')) => Some(span(chars, at, |c| c != '\n').end),
        ('/', Some('*')) => Some(block_comment_end(chars, at)),
        ('"', _) => Some(string_end(chars, at)),
        ('\'', Some('\\')) => Some(span(chars, (at + 3).min(chars.len()), |c| c != '\'').end + 1),
        ('\'', _) if next(2) == Some('\'') => Some(at + 3),
        ('r' | 'b' | 'c', _) if at == 0 || !is_word(chars[at - 1]) => raw_string_end(chars, at),
        _ => None,
    }
    .map(|end| end.min(chars.len()))
}

fn block_comment_end(chars: &[char], mut at: usize) -> usize {
    let mut depth = 0;
    while at + 1 < chars.len() {
        match (chars[at], chars[at + 1]) {
            ('/', '*') => (depth, at) = (depth + 1, at + 2),
            ('*', '/') => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    chars.len()
}

fn string_end(chars: &[char], mut at: usize) -> usize {
    at += 1;
    while at < chars.len() && chars[at] != '"' {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// Where `r"..."`, `br#"..."#` and their like end.
fn raw_string_end(chars: &[char], at: usize) -> Option<usize> {
    let marks = span(chars, at, |c| "rbc".contains(c));
    if marks.len() > 2 || !chars[marks.clone()].contains(&'r') {
        return None;
    }
    let hashes = span(chars, marks.end, |c| c == '#').len();
    let mut at = marks.end + hashes;
    if chars.get(at) != Some(&'"') {
        return None;
    }
    loop {
        at += 1;
        let closed = chars[at.min(chars.len())..].iter().take(hashes + 1).enumerate();
        let closes = closed.filter(|&(n, &c)| c == if n == 0 { '"' } else { '#' }).count();
        if at >= chars.len() || closes == hashes + 1 {
            return Some(at + hashes + 1);
        }
    }
}
