//! Rules about names: what public ones are public for, and that each means one thing.

use super::form::Finding;
use super::source::{Source, Token, Tree, close, exported_macros, find};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Modules that may share their name, and what it means in each. What `src/tools/` has is named
/// after the verbs, and what `src/testing/` has after what it stands in for.
const SHARED_MODULES: &[(&str, &str)] = &[
    ("checkpoint", "the engine's state at one moment; its header and its gate"),
    ("event", "what players do; what ownership hears of, named by its function there"),
    ("fetch", "the layer; the broker's request that it sends"),
    ("game", "what every game has to say; what the hunt says; what a view knows of a game"),
    ("handoff", "what a player carries; its bytes"),
    ("json", "a decoder of records; an encoder of answers"),
    ("log_ends", "where input logs end; where output logs end"),
    ("reload", "what every process reads again; what `huntd serve` reads besides"),
    ("rulebook", "the rules of any game; those of the hunt"),
    ("rules", "the game's; the verb that lists them"),
    ("security", "what a client of brokers needs; the part of the configuration that says it"),
    ("state", "what the state of every game has; that of the hunt"),
    ("zone", "the state of a zone; what a view shows of one"),
];

/// Folders whose modules are named after what is elsewhere.
const NAMED_AFTER_OTHERS: &[&str] = &["src/tools/", "src/testing/"];

/// Words between `pub` and the keyword of an item.
const QUALIFIERS: &[&str] = &["const", "async", "unsafe", "extern"];

/// Items that are called or read by their name.
const USED_BY_NAME: &[&str] = &["fn", "const", "static"];

const CONSTANTS: &[&str] = &["const", "static"];

const TYPES: &[&str] = &["struct", "enum", "trait", "type", "union"];

/// An item with a visibility of its own.
struct Item<'a> {
    keyword: &'a str,
    name: &'a str,
    /// Index of the name among the product's tokens.
    name_at: usize,
    line: usize,
    /// `pub` without a restriction.
    is_public: bool,
}

/// The items of a file's product code that other files can see: `pub`, `pub(crate)`, `pub(super)`.
fn items(source: &Source) -> Vec<Item<'_>> {
    let tokens = &source.product;
    // What a macro declares belongs to whoever calls it.
    let macros = exported_macros(tokens);
    let is_in_macro = |at: &usize| macros.iter().any(|(_, range)| range.contains(at));
    let starts = (0..tokens.len()).filter(|at| tokens[*at].text == "pub" && !is_in_macro(at));
    starts.filter_map(|at| item(tokens, at)).collect()
}

fn item<'a>(tokens: &'a [Token], at: usize) -> Option<Item<'a>> {
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
        keyword: &keyword.text,
        name: &name.text,
        name_at: at + 1,
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

/// The words of a source by which its visible items show types: signatures, fields, variants,
/// aliases. With them, whether everybody sees the item.
fn shown(source: &Source) -> BTreeSet<(&str, bool)> {
    let tokens = &source.product;
    let mut shown = BTreeSet::new();
    let mut show = |range: Range<usize>, is_public| {
        shown.extend(tokens[range].iter().map(|token| (token.text.as_str(), is_public)));
    };
    for at in (0..tokens.len()).filter(|&at| tokens[at].text == "pub") {
        match item(tokens, at) {
            Some(item) => {
                let from = item.name_at + 1;
                show(from..item_interface_end(tokens, item.keyword, from), item.is_public);
            }
            None => {
                let is_public = tokens.get(at + 1).is_some_and(|token| token.text != "(");
                let from = if is_public { at + 1 } else { close(tokens, at + 1) };
                show(from..field_end(tokens, from), is_public);
            }
        }
    }
    // Who sees a trait also sees the types that its implementations name.
    for range in implementations(tokens) {
        for at in range.clone().filter(|&at| tokens[at].text == "type") {
            let end = (at..range.end).find(|&at| tokens[at].text == ";").unwrap_or(range.end);
            show(at + 2..end.max(at + 2), true);
        }
    }
    shown
}

/// Where the part of an item that shows types ends. A struct's fields have a visibility each.
fn item_interface_end(tokens: &[Token], keyword: &str, from: usize) -> usize {
    let ends: &[&str] = match keyword {
        "fn" => &["{", ";"],
        "struct" => &["{", "(", ";"],
        "enum" | "trait" | "union" => &["{"],
        _ => &[";"],
    };
    let mut at = from;
    while let Some(token) = tokens.get(at).filter(|token| !ends.contains(&token.text.as_str())) {
        let is_open = ["(", "[", "{"].contains(&token.text.as_str());
        at = if is_open { close(tokens, at) } else { at + 1 };
    }
    match keyword {
        "enum" | "trait" | "union" if at < tokens.len() => close(tokens, at),
        _ => at,
    }
}

/// Where a field's type ends.
fn field_end(tokens: &[Token], from: usize) -> usize {
    let (mut at, mut depth) = (from, 0);
    while let Some(token) = tokens.get(at) {
        let is_arrow = at > from && tokens[at - 1].text == "-";
        match token.text.as_str() {
            "<" => depth += 1,
            ">" if !is_arrow => depth -= 1,
            "," | ")" | "}" | ";" if depth <= 0 => break,
            "(" | "[" => {
                at = close(tokens, at);
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    at
}

/// Blocks of `impl`, as ranges of tokens.
fn implementations(tokens: &[Token]) -> Vec<Range<usize>> {
    let is_item = |at: usize| {
        at.checked_sub(1).is_none_or(|before| {
            ["}", "{", ";", "]", "unsafe"].contains(&tokens[before].text.as_str())
        })
    };
    let starts = (0..tokens.len()).filter(|&at| tokens[at].text == "impl" && is_item(at));
    let block = |at: usize| (at..tokens.len()).find(|&at| tokens[at].text == "{");
    starts.filter_map(|at| block(at).map(|open| open..close(tokens, open))).collect()
}

/// The words by which a file may use items of others. A variable, a field or a function of its own
/// is no use of another file's function that has the same name.
fn used(source: &Source) -> BTreeSet<&str> {
    let tokens = &source.tokens;
    let imports: Vec<Range<usize>> = find(tokens, "use")
        .into_iter()
        .map(|start| {
            start..(start..tokens.len()).find(|&at| tokens[at].text == ";").unwrap_or(start)
        })
        .collect();
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let is_use = |&at: &usize| {
        let before = if at == 0 { "" } else { text(at - 1) };
        let is_variable_like = text(at).starts_with(|c: char| c.is_lowercase() || c == '_');
        let is_called = text(at + 1) == "(" || text(at + 1) == "::" && text(at + 2) == "<";
        !is_variable_like
            || before == "::"
            || is_called && before != "fn"
            || imports.iter().any(|range| range.contains(&at))
    };
    (0..tokens.len()).filter(is_use).map(|at| tokens[at].text.as_str()).collect()
}

/// Every visible item has a user: another file that names it or, for a type, a visible item of its
/// own file that shows it. It is `pub` only if a user is outside the library, or is `pub` itself.
///
/// Names are all that it compares: a function counts as used where another one of its name is
/// called, and a constant or a type where anything has its name.
pub(super) fn visibility(tree: &Tree) -> Vec<Finding> {
    let mut named: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut named_outside: BTreeSet<&str> = BTreeSet::new();
    for source in tree.rust() {
        for name in used(source) {
            named.entry(name).or_default().insert(&source.path);
            if is_outside(source) {
                named_outside.insert(name);
            }
        }
        // Programs that call a macro name what it names.
        for (_, range) in exported_macros(&source.tokens) {
            named_outside.extend(source.tokens[range].iter().map(|token| token.text.as_str()));
        }
    }
    let library: Vec<&Source> = tree.product().filter(|source| !is_outside(source)).collect();
    let shown_to_all: BTreeSet<&str> = library
        .iter()
        .flat_map(|source| shown(source))
        .filter_map(|(name, is_public)| is_public.then_some(name))
        .collect();
    let mut findings = Vec::new();
    for source in library {
        let shown = shown(source);
        for Item { keyword, name, line, is_public, .. } in items(source) {
            let is_type = TYPES.contains(&keyword);
            if !is_type && !USED_BY_NAME.contains(&keyword) {
                continue;
            }
            let is_shown = is_type && [true, false].iter().any(|all| shown.contains(&(name, *all)));
            let is_elsewhere =
                named.get(name).is_some_and(|paths| paths.iter().any(|path| *path != source.path));
            let is_outside = named_outside.contains(name) || is_type && shown_to_all.contains(name);
            let message = match is_public {
                _ if !is_elsewhere && !is_shown => {
                    format!("no other file names {name}: make it private")
                }
                true if !is_outside => {
                    format!("only the library names {name}: make it pub(crate)")
                }
                _ => continue,
            };
            findings.push(Finding::at(source, line, message));
        }
    }
    findings
}

/// A type has a name that no other type has, whoever may see it: a reader who searches for it finds
/// one thing. So does a constant that other files can see.
pub(super) fn one_meaning(tree: &Tree) -> Vec<Finding> {
    let mut first: BTreeMap<&str, &str> = BTreeMap::new();
    let mut findings = Vec::new();
    for source in tree.product() {
        let mut named = types(&source.product);
        named.extend(visible_constants(source));
        for Token { text: name, line } in named {
            match first.get(name.as_str()) {
                Some(path) => {
                    let message = format!("{name} has another meaning in {path}");
                    findings.push(Finding::at(source, *line, message));
                }
                None => {
                    first.insert(name, &source.path);
                }
            }
        }
    }
    findings
}

/// So has a module, unless its name is a shared one.
pub(super) fn module_names(tree: &Tree) -> Vec<Finding> {
    let mut first: BTreeMap<&str, &str> = BTreeMap::new();
    let mut findings = Vec::new();
    let is_named_after =
        |source: &&Source| NAMED_AFTER_OTHERS.iter().any(|folder| source.path.starts_with(folder));
    for source in tree.product().filter(|source| !is_named_after(source)) {
        let path = source.path.trim_end_matches(".rs").trim_end_matches("/mod");
        let name = path.rsplit('/').next().unwrap_or(path);
        let is_for_tests = name == "tests" || path.contains("/tests/");
        if is_for_tests || SHARED_MODULES.iter().any(|(shared, _)| *shared == name) {
            continue;
        }
        if let Some(other) = first.insert(name, &source.path) {
            let message = format!("{other} has its name: another one says what differs");
            findings.push(Finding::at(source, 1, message));
        }
    }
    findings
}

/// A shared name is the name of two modules at least.
pub(super) fn unshared_modules(tree: &Tree) -> Vec<Finding> {
    let Some(root) = tree.get("src/lib.rs") else { return Vec::new() };
    let count = |name: &str| {
        let files = tree.product().map(|source| source.path.trim_end_matches(".rs"));
        let names = files.map(|path| path.trim_end_matches("/mod").rsplit('/').next());
        names.filter(|last| *last == Some(name)).count()
    };
    let unshared = SHARED_MODULES.iter().map(|(name, _)| name).filter(|name| count(name) < 2);
    let message = |name: &&str| format!("{name} is not the name of two modules");
    unshared.map(|name| Finding::at(root, 1, message(name))).collect()
}

/// The names of all types, traits and aliases. A type that a trait has, or an implementation of it,
/// is named with the trait.
fn types(tokens: &[Token]) -> Vec<&Token> {
    let owners = [implementations(tokens), traits(tokens)].concat();
    let is_owned = |at: usize| owners.iter().any(|range| range.contains(&at));
    let is_type = |&at: &usize| {
        let keyword = tokens[at].text.as_str();
        let is_alias = || {
            let alias = tokens[at..].split(|token| token.text == ";").next().unwrap_or_default();
            alias.iter().filter(|token| token.text == tokens[at + 1].text).count() > 1
        };
        TYPES.contains(&keyword) && !(keyword == "type" && (is_owned(at) || is_alias()))
    };
    let spelled = (0..tokens.len()).filter(is_type).map(|at| at + 1);
    // The name of a closed list is the first word of the macro that makes it.
    let listed = find(tokens, "list ! {").into_iter().map(|at| at + 3);
    let names = spelled.chain(listed).filter_map(|at| tokens.get(at));
    names.filter(|name| name.text.starts_with(char::is_uppercase)).collect()
}

/// The names of constants that other files can see. A constant of a type is named with the type.
fn visible_constants(source: &Source) -> impl Iterator<Item = &Token> {
    let of_types = implementations(&source.product);
    let is_own = move |item: &Item<'_>| {
        CONSTANTS.contains(&item.keyword)
            && !of_types.iter().any(|range| range.contains(&item.name_at))
    };
    items(source).into_iter().filter(is_own).map(|item| &source.product[item.name_at])
}

/// Blocks of traits, as ranges of tokens.
fn traits(tokens: &[Token]) -> Vec<Range<usize>> {
    let block = |at: usize| (at..tokens.len()).find(|&at| tokens[at].text == "{");
    let blocks = find(tokens, "trait").into_iter().filter_map(block);
    blocks.map(|open| open..close(tokens, open)).collect()
}
