//! Rules about what may stand where: imports, unsafe code, purity, modules.

use super::form::Finding;
use super::source::{Source, Token, Tree, close, exported_macros, find, paths, paths_at};
use std::collections::BTreeSet;

/// The folders of `src/`, lowest first: each may import those before it, and no other.
const LAYERS: &[&str] = &[
    "queue",
    "telemetry",
    "runtime",
    "kafka",
    "kit",
    "view",
    "decoder",
    "output",
    "ownership",
    "fetch",
    "snapshot",
    "publisher",
    "shards",
    "edition",
    "hunt",
    "http",
    "service",
    "serve",
    "control",
    "daemon",
    "tools",
    "program",
    "testing",
    // Nobody imports it: it only compares the bounds of others.
    "limits",
];

/// Folders above the game that play any game: they know it by its tables.
const PLAYS_ANY_GAME: &[&str] =
    &["control", "daemon", "edition", "http", "limits", "program", "serve", "service", "tools"];

/// Folders without I/O, threads and clocks, and all that each of them may import.
const PURE: &[(&str, &[&str])] = &[
    ("kit", &["runtime::prefetch"]),
    ("view", &["kit"]),
    ("decoder", &["kit"]),
    ("output", &["kit"]),
    (
        "ownership",
        &[
            "kafka::READ_STALL_MS_MAX",
            "kafka::error_code",
            "kafka::membership",
            "kafka::metadata",
            "kafka::quiet_outputs",
            "kafka::topic_error",
            "kit::mix",
            "kit::update_json",
            "output",
            "telemetry::long_wait",
            "telemetry::progress::SHARDS_MAX",
        ],
    ),
    (
        "hunt",
        &[
            "edition",
            "kit",
            "view::card",
            "view::game",
            "view::json",
            "output::encode",
            "output::frame",
            "runtime::prefetch",
        ],
    ),
    ("http", &[]),
];

/// The crate's roots, which may import everything.
const ROOTS: &[&str] = &["lib", "main"];

/// Identifiers that have no place in the engine, whose results depend on its input alone.
const IMPURE: &[&str] = &[
    "async",
    "await",
    "f32",
    "f64",
    "HashMap",
    "HashSet",
    "RandomState",
    "Instant",
    "SystemTime",
    "Mutex",
    "RwLock",
    "println",
    "eprintln",
    "thread_local",
];

/// Parts of `std` that reach outside the process or depend on when and where it runs.
const IMPURE_STD: &[&str] = &["fs", "net", "time", "thread", "env", "process", "io", "os"];

/// Lines of code in `daemon/mod.rs`: the whole daemon on one screen.
const DAEMON_LINES_MAX: usize = 100;

/// Lines of `main.rs`.
const MAIN_LINES_MAX: usize = 60;

/// Imports point down.
pub(super) fn imports(tree: &Tree) -> Vec<Finding> {
    let macros: BTreeSet<&str> = tree
        .product()
        .flat_map(|source| exported_macros(&source.product))
        .map(|(name, _)| name)
        .collect();
    let mut findings = Vec::new();
    for source in tree.product() {
        let module = source.module();
        if ROOTS.contains(&module) {
            continue;
        }
        let Some(layer) = LAYERS.iter().position(|name| *name == module) else {
            let message = format!("{module} is in no layer: give it its place in LAYERS");
            findings.push(Finding::at(source, 1, message));
            continue;
        };
        let pure = PURE.iter().find(|(name, _)| *name == module).map(|(_, allowed)| *allowed);
        for (path, line) in crate_paths(source) {
            // A macro that is exported belongs to the root, wherever it is written.
            if path[0] == module || path.len() == 1 && macros.contains(path[0].as_str()) {
                continue;
            }
            if !LAYERS[..layer].contains(&path[0].as_str()) {
                let message = format!("{module} may not import {}, which is above it", path[0]);
                findings.push(Finding::at(source, line, message));
            }
            if path[0] == "hunt" && PLAYS_ANY_GAME.contains(&module) {
                let message = format!("{module} plays any game and may not import the hunt");
                findings.push(Finding::at(source, line, message));
            }
            let path = path.join("::");
            let within = |entry: &&str| {
                path.strip_prefix(*entry)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
            };
            if let Some(allowed) = pure.filter(|allowed| !allowed.iter().any(within)) {
                let message = format!("{module} is pure and may only import {allowed:?}");
                findings.push(Finding::at(source, line, message));
            }
        }
    }
    findings
}

/// Each layer is there, and a pure folder imports all that it may.
pub(super) fn unused_layers(tree: &Tree) -> Vec<Finding> {
    let Some(root) = tree.get("src/lib.rs") else { return Vec::new() };
    let modules: Vec<&str> = tree.product().map(Source::module).collect();
    let is_gone = |layer: &&&str| !modules.contains(*layer);
    let mut messages: Vec<String> =
        LAYERS.iter().filter(is_gone).map(|layer| format!("there is no layer {layer}")).collect();
    for (module, allowed) in PURE {
        let files = tree.product().filter(|source| source.module() == *module);
        let used: Vec<String> =
            files.flat_map(crate_paths).map(|(path, _)| path.join("::")).collect();
        let is_used = |entry: &&&str| used.iter().any(|path| path.starts_with(**entry));
        let unused = allowed.iter().filter(|entry| !is_used(entry));
        messages.extend(unused.map(|entry| format!("{module} may import {entry} and does not")));
    }
    messages.into_iter().map(|message| Finding::at(root, 1, message)).collect()
}

/// Paths from the crate's root, whether written `crate::` or with as many `super::` as lead there.
fn crate_paths(source: &Source) -> Vec<(Vec<String>, usize)> {
    let mut found = paths(&source.product, "crate");
    let inside = source.path.trim_start_matches("src/").trim_end_matches(".rs");
    let depth = inside.trim_end_matches("/mod").split('/').count();
    for (path, line) in paths(&source.product, "super") {
        let climbs = 1 + path.iter().take_while(|part| *part == "super").count();
        if climbs >= depth && path.len() >= climbs {
            found.push((path[climbs - 1..].to_vec(), line));
        }
    }
    found.into_iter().flat_map(|(path, line)| used_paths(source, path, line)).collect()
}

/// What a file uses of a module that it imports: `use crate::fetch` is as much as the paths that
/// begin with `fetch::` say.
fn used_paths(source: &Source, mut path: Vec<String>, line: usize) -> Vec<(Vec<String>, usize)> {
    if path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    let tokens = &source.product;
    let is_module = |name: &String| name.starts_with(|c: char| c.is_lowercase());
    let Some(name) = path.last().filter(|name| is_module(name)) else {
        return vec![(path, line)];
    };
    let starts = find(tokens, &format!("{name} ::")).into_iter();
    let uses: Vec<(Vec<String>, usize)> = starts
        .filter(|&start| start == 0 || tokens[start - 1].text != "::")
        .flat_map(|start| paths_at(tokens, start + 2))
        .map(|(rest, line)| ([path.clone(), rest].concat(), line))
        .collect();
    if uses.is_empty() { vec![(path, line)] } else { uses }
}

/// STYLE.md lists the files that are allowed unsafe code. The compiler denies it elsewhere.
pub(super) fn listed_unsafe_code(tree: &Tree) -> Vec<Finding> {
    let Some(style) = tree.get("docs/STYLE.md") else { return Vec::new() };
    let listed = style.text.split_once("**`unsafe` stands in ");
    let listed = listed.and_then(|(_, rest)| rest.split_once("**")).map(|(list, _)| list);
    let listed = listed.unwrap_or_default().split('`').skip(1).step_by(2);
    let allowing = tree.rust().filter(|source| {
        ["allow ( unsafe_code", "expect ( unsafe_code"]
            .iter()
            .any(|lint| !find(&source.tokens, lint).is_empty())
    });
    let allowing: BTreeSet<&str> =
        allowing.map(|source| source.path.trim_start_matches("src/")).collect();
    match listed.collect::<BTreeSet<&str>>() == allowing {
        true => Vec::new(),
        false => vec![Finding::at(style, 1, format!("must list the unsafe files: {allowing:?}"))],
    }
}

/// The folders whose results depend on their input alone.
const DETERMINISTIC: &[&str] = &["kit", "hunt"];

/// A file that reads the rules of a game before it begins.
const READS_RULES: &[&str] = &["src/hunt/rules_file.rs"];

/// A game and its kit depend on their input alone.
pub(super) fn purity(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_pure = |source: &&Source| {
        DETERMINISTIC.contains(&source.module()) && !READS_RULES.contains(&source.path.as_str())
    };
    for source in tree.product().filter(is_pure) {
        let tokens = &source.product;
        for token in tokens.iter().filter(|token| IMPURE.contains(&token.text.as_str())) {
            let message = format!("{} has no place in the pure game", token.text);
            findings.push(Finding::at(source, token.line, message));
        }
        for (path, line) in [paths(tokens, "std"), paths(tokens, "core")].concat() {
            if IMPURE_STD.contains(&path[0].as_str()) {
                let message = format!("std::{} has no place in the pure game", path[0]);
                findings.push(Finding::at(source, line, message));
            }
        }
        for (name, line) in outside_crates(tokens) {
            let message = format!("the engine imports no outside crate, and {name} is one");
            findings.push(Finding::at(source, line, message));
        }
    }
    findings
}

/// Crates that are neither std nor this one: what `use` begins with, and paths that end in a macro.
fn outside_crates(tokens: &[Token]) -> Vec<(&str, usize)> {
    let children: Vec<&str> =
        find(tokens, "mod").iter().map(|&at| tokens[at + 1].text.as_str()).collect();
    let is_outside = |name: &str| {
        !["std", "core", "crate", "self", "super"].contains(&name)
            && !children.contains(&name)
            && name.starts_with(|c: char| c.is_lowercase())
    };
    let used = find(tokens, "use").into_iter().map(|at| &tokens[at + 1]);
    let is_macro = |at: usize| {
        let path = &tokens[at..(at + 4).min(tokens.len())];
        path.len() == 4
            && path[1].text == "::"
            && path[3].text == "!"
            && (at == 0 || tokens[at - 1].text != "::")
    };
    let called = (0..tokens.len()).filter(|&at| is_macro(at)).map(|at| &tokens[at]);
    used.chain(called)
        .map(|token| (token.text.as_str(), token.line))
        .filter(|(name, _)| is_outside(name))
        .collect()
}

/// The folders that know no game.
const WITHOUT_GAME: &[&str] = &["edition", "kit", "program", "serve", "service", "tools", "view"];

/// Files in these folders that still import the hunt.
const NOT_YET_WITHOUT_GAME: &[&str] = &["src/serve/openapi.rs"];

/// Words of the hunt's tables that mean nothing in another game.
const WORDS_OF_THE_HUNT: &[&str] = &[
    "compass",
    "hunt",
    "hunts",
    "loot",
    "looted",
    "tile",
    "tiles",
    "treasure",
    "treasures",
    "weapon",
    "weapons",
];

/// The default names of topics, which any game may use.
const TOPIC_NAMES: [&str; 4] =
    ["hunt-dead-letters", "hunt-events", "hunt-snapshots", "hunt-updates"];

/// The hunt is known to its own folder and to those that choose it.
pub(super) fn games(tree: &Tree) -> Vec<Finding> {
    let is_free = |source: &&Source| {
        let is_listed = NOT_YET_WITHOUT_GAME.contains(&source.path.as_str());
        source.path.starts_with("src/") && !source.path.contains("/tests") && !is_listed
    };
    let free = tree.sources.iter().filter(is_free);
    let mut findings = Vec::new();
    for source in free.filter(|source| WITHOUT_GAME.contains(&source.module())) {
        let (product, _) =
            source.text.split_once("\n#[cfg(test)]\nmod ").unwrap_or((&source.text, ""));
        for (line, text) in (1..).zip(product.lines()) {
            let text =
                TOPIC_NAMES.iter().fold(text.to_owned(), |text, name| text.replace(name, ""));
            let words = words(&text);
            let known = words.iter().find(|word| WORDS_OF_THE_HUNT.contains(&word.as_str()));
            if let Some(word) = known {
                let message =
                    format!("{} knows no game, and `{word}` is the hunt's", source.module());
                findings.push(Finding::at(source, line, message));
            }
        }
    }
    findings
}

/// The words of a line in lower case, also those of identifiers: `HuntView` has two.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for letter in line.chars() {
        if !letter.is_alphabetic() || (letter.is_uppercase() && before.is_lowercase()) {
            words.push(String::new());
        }
        if letter.is_alphabetic() {
            words.last_mut().expect("there is a word").extend(letter.to_lowercase());
        }
        before = letter;
    }
    words
}

/// What `clippy.toml` disallows is denied in the engine, where it would break determinism.
pub(super) fn engine_lints(tree: &Tree) -> Vec<Finding> {
    let roots = DETERMINISTIC.iter().map(|module| format!("src/{module}/mod.rs"));
    roots.filter_map(|path| tree.get(&path)).flat_map(missing_lints).collect()
}

fn missing_lints(source: &Source) -> Vec<Finding> {
    let mut denied = Vec::new();
    for word in ["deny", "forbid"] {
        for start in find(&source.tokens, &format!("# ! [ {word} (")) {
            denied.extend_from_slice(&source.tokens[start..close(&source.tokens, start + 2)]);
        }
    }
    ["disallowed_methods", "disallowed_types", "float_arithmetic"]
        .iter()
        .filter(|lint| find(&denied, &format!("clippy :: {lint}")).is_empty())
        .map(|lint| Finding::at(source, 1, format!("must have #![deny(clippy::{lint})]")))
        .collect()
}

/// ARCHITECTURE.md lists the layers as they are.
pub(super) fn listed_layers(tree: &Tree) -> Vec<Finding> {
    let path = "docs/ARCHITECTURE.md";
    let Some(source) = tree.get(path) else { return Vec::new() };
    let listed = source.text.split_once("here lowest first: *");
    let listed = listed.and_then(|(_, rest)| rest.split_once('*')).map(|(list, _)| list);
    let listed = listed.unwrap_or_default().split(',').map(str::trim);
    match listed.eq(LAYERS.iter().copied()) {
        true => Vec::new(),
        false => vec![Finding::at(source, 1, format!("must list the layers: {LAYERS:?}"))],
    }
}

/// Callers write the path of the thing itself. A private inner module may gather names.
pub(super) fn re_exports(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in tree.product().filter(|source| source.path != "src/lib.rs") {
        let tokens = &source.product;
        let mut at = 0;
        while at < tokens.len() {
            let is_pub = tokens[at].text == "pub";
            at = match tokens[at].text.as_str() {
                "{" | "(" | "[" => close(tokens, at),
                _ => at + 1,
            };
            let after = match tokens.get(at).is_some_and(|token| token.text == "(") {
                true => close(tokens, at),
                false => at,
            };
            if is_pub && tokens.get(after).is_some_and(|token| token.text == "use") {
                let message = "only lib.rs may re-export".to_owned();
                findings.push(Finding::at(source, tokens[after].line, message));
            }
        }
    }
    findings
}

/// Every file under `src/` is a module of the one above it, so none is dead.
pub(super) fn modules(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in tree.product() {
        let inside = source.path.trim_start_matches("src/").trim_end_matches(".rs");
        let inside = inside.trim_end_matches("/mod");
        let (parent, name) = match inside.rsplit_once('/') {
            Some((folder, name)) => (format!("src/{folder}/mod.rs"), name),
            None if ["lib", "main"].contains(&inside) => continue,
            None => ("src/lib.rs".to_owned(), inside),
        };
        let listed = tree
            .get(&parent)
            .is_some_and(|parent| !find(&parent.tokens, &format!("mod {name} ;")).is_empty());
        if !listed {
            findings.push(Finding::at(source, 1, format!("{parent} has no `mod {name};`")));
        }
    }
    findings
}

/// The entry and the daemon can be read at a glance.
pub(super) fn short_files(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(source) = tree.get("src/main.rs") {
        let lines = source.text.lines().count();
        if lines > MAIN_LINES_MAX {
            let message = format!("{lines} lines, more than {MAIN_LINES_MAX}");
            findings.push(Finding::at(source, 1, message));
        }
    }
    if let Some(source) = tree.get("src/daemon/mod.rs") {
        let mut lines: Vec<usize> = source.product.iter().map(|token| token.line).collect();
        lines.dedup();
        if lines.len() > DAEMON_LINES_MAX {
            let message = format!("{} lines of code, more than a screen", lines.len());
            findings.push(Finding::at(source, 1, message));
        }
    }
    findings
}
