//! Rules about public names: what for they are public, and that each means one thing.

use super::form::Finding;
use super::source::{Source, Token, Tree, close};
use std::collections::{BTreeMap, BTreeSet};

/// Words between `pub` and the keyword of an item.
const QUALIFIERS: &[&str] = &["const", "async", "unsafe", "extern"];

/// Items that are called or read by their name.
const USED_BY_NAME: &[&str] = &["fn", "const", "static"];

const TYPES: &[&str] = &["struct", "enum", "trait", "type", "union"];

/// An item with a visibility of its own.
struct Item<'a> {
    source: &'a Source,
    keyword: &'a str,
    name: &'a str,
    line: usize,
    /// `pub` without a restriction.
    is_public: bool,
}

/// The items of a file's product code that other files can see: `pub`, `pub(crate)`, `pub(super)`.
fn items(source: &Source) -> Vec<Item<'_>> {
    let tokens = &source.product;
    let starts = (0..tokens.len()).filter(|&at| tokens[at].text == "pub");
    starts.filter_map(|at| item(source, tokens, at)).collect()
}

fn item<'a>(source: &'a Source, tokens: &'a [Token], at: usize) -> Option<Item<'a>> {
    let is_public = tokens.get(at + 1)?.text != "(";
    let mut at = if is_public { at + 1 } else { close(tokens, at + 1) };
    while tokens.get(at + 1).is_some_and(|next| is_keyword(&next.text))
        && QUALIFIERS.contains(&tokens[at].text.as_str())
    {
        at += 1;
    }
    let (keyword, name) = (tokens.get(at)?, tokens.get(at + 1)?);
    let is_named = name.text.starts_with(|c: char| c.is_alphabetic() || c == '_');
    let is_item = is_keyword(&keyword.text) && is_named;
    is_item.then_some(Item {
        source,
        keyword: &keyword.text,
        name: &name.text,
        line: keyword.line,
        is_public,
    })
}

fn is_keyword(word: &str) -> bool {
    USED_BY_NAME.contains(&word) || TYPES.contains(&word) || QUALIFIERS.contains(&word)
}

/// Whether a file belongs to another target than the library, or is what the library has for them.
fn is_outside(source: &Source) -> bool {
    !source.path.starts_with("src/")
        || source.path == "src/main.rs"
        || source.path.starts_with("src/testing/")
}

/// A function or a constant is visible only if another file names it, and `pub` only if that is
/// outside the library. (What a type needs its own visibility for, the compiler knows.)
pub(super) fn visibility(tree: &Tree) -> Vec<Finding> {
    let mut named: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut named_outside: BTreeSet<&str> = BTreeSet::new();
    for source in tree.rust() {
        for token in &source.tokens {
            named.entry(&token.text).or_default().insert(&source.path);
            if is_outside(source) {
                named_outside.insert(&token.text);
            }
        }
    }
    let library = tree.product().filter(|source| !is_outside(source));
    let items = library.flat_map(items).filter(|item| USED_BY_NAME.contains(&item.keyword));
    items
        .filter_map(|item| {
            let Item { source, name, line, is_public, .. } = item;
            let is_elsewhere = named[name].iter().any(|path| *path != source.path);
            let message = match is_public {
                _ if !is_elsewhere => format!("no other file names {name}: make it private"),
                true if !named_outside.contains(name) => {
                    format!("only the library names {name}: make it pub(crate)")
                }
                _ => return None,
            };
            Some(Finding::at(source, line, message))
        })
        .collect()
}

/// A type that other files can see, if only those of its folder, has a name of its own.
pub(super) fn one_meaning(tree: &Tree) -> Vec<Finding> {
    let mut first: BTreeMap<&str, &str> = BTreeMap::new();
    let mut findings = Vec::new();
    for source in tree.product() {
        for item in items(source).into_iter().filter(|item| TYPES.contains(&item.keyword)) {
            match first.get(item.name) {
                Some(path) => {
                    let message = format!("{} is the name of another type in {path}", item.name);
                    findings.push(Finding::at(source, item.line, message));
                }
                None => {
                    first.insert(item.name, &source.path);
                }
            }
        }
    }
    findings
}
