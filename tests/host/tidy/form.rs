//! Rules about form: sizes, names, what must not be left behind, plain English.

use super::documents::is_history;
use super::source::{Source, Tree, find};
use std::fmt;

const LINE_COLUMNS_MAX: usize = 100;

/// File names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] =
    &["utils", "util", "common", "helpers", "helper", "misc", "types", "manager", "managers"];

/// Words for work that is not done, split so that this file does not hold them.
const UNDONE_WORDS: &[&str] = &[concat!("FIX", "ME"), concat!("XX", "X"), concat!("TO", "DO")];

/// Attributes of tests that do not test. Clippy finds other half-done code.
const UNDONE_CODE: &[&str] = &["# [ ignore", "# [ should_panic"];

/// Folders of one developer's or one builder's machine, split like the words above.
const MACHINE_FOLDERS: &[&str] =
    &[concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/wo", "rk/")];

/// Hosts that packages come from: which one is the choice of the machine, not of the project.
const REGISTRY_HOSTS: &[&str] = &[
    concat!("crates", ".io/"),
    concat!("repo1", ".maven"),
    concat!("repo", ".maven"),
    concat!("jfr", "og."),
    concat!("deb.debian", ".org"),
];

/// The only source of crates that `Cargo.lock` may name: Cargo's own default.
const LOCK_SOURCE: &str =
    concat!("source = \"registry+https://github.com/rust-lang/crates", ".io-index\"");

/// One breach of a rule.
pub(super) struct Finding {
    path: String,
    line: usize,
    message: String,
}

impl Finding {
    /// A breach in a file, at a line from 1.
    pub(super) fn at(source: &Source, line: usize, message: String) -> Finding {
        Finding { path: source.path.clone(), line, message }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// Two files fit side by side. An address cannot be broken.
pub(super) fn line_columns(tree: &Tree) -> Vec<Finding> {
    each_line(tree.rust(), |line| {
        let columns = line.chars().count();
        let too_wide = columns > LINE_COLUMNS_MAX && !line.contains("https://");
        too_wide.then(|| format!("{columns} columns, more than {LINE_COLUMNS_MAX}"))
    })
}

/// How files that are not Rust begin to say what they are. JSON has no comments, a package's
/// manifest has its description, and `src/hunt/page/mod.rs` speaks for the page.
const HEADERS: &[(&str, &str)] = &[
    (".cpp", "// "),
    (".go", "// "),
    (".hpp", "// "),
    (".java", "// "),
    (".mjs", "// "),
    (".py", "\"\"\""),
    (".service", "# "),
    (".sh", "# "),
    (".toml", "# "),
    (".yml", "# "),
];

/// Every file says first what it is.
pub(super) fn file_headers(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in tree.sources.iter().filter(|source| !source.path.ends_with("Cargo.toml")) {
        let (interpreter, rest) = match source.text.strip_prefix("#!") {
            Some(text) if !source.path.ends_with(".rs") => {
                text.split_once('\n').unwrap_or_default()
            }
            _ => ("", source.text.as_str()),
        };
        let mut headers = HEADERS.iter().filter(|(ending, _)| source.path.ends_with(ending));
        let start = match headers.next() {
            Some((_, start)) => start,
            None if source.path.ends_with(".rs") => "//! ",
            None if !interpreter.is_empty() => "# ",
            None => continue,
        };
        if !rest.starts_with(start) {
            findings.push(Finding::at(source, 1, format!("must begin with a `{start}` sentence")));
        }
    }
    findings
}

/// Files and folders are named after what they hold.
pub(super) fn file_names(tree: &Tree) -> Vec<Finding> {
    tree.rust()
        .filter(|source| {
            source.path.split('/').any(|part| EMPTY_NAMES.contains(&part.trim_end_matches(".rs")))
        })
        .map(|source| Finding::at(source, 1, "name it after what it holds".to_owned()))
        .collect()
}

/// Nothing half done is left.
pub(super) fn undone(tree: &Tree) -> Vec<Finding> {
    let mut findings = each_line(own_text(tree), |line| {
        let mut words = line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        let word = words.find(|word| UNDONE_WORDS.contains(word))?;
        Some(format!("{word}: do it, or write an issue"))
    });
    for source in tree.rust() {
        for spelled in UNDONE_CODE {
            for start in find(&source.tokens, spelled) {
                let message = format!("`{}` is left", spelled.replace(' ', ""));
                findings.push(Finding::at(source, source.tokens[start].line, message));
            }
        }
    }
    findings
}

/// Lines end with their last word and files with a line end.
pub(super) fn white_space(tree: &Tree) -> Vec<Finding> {
    let mut findings = each_line(own_text(tree), |line| {
        let ends_blank = line.ends_with([' ', '\t', '\r']);
        ends_blank.then(|| "white space at the end".to_owned())
    });
    // Go is indented with tabs.
    let without_go = own_text(tree).filter(|source| !source.path.ends_with(".go"));
    findings.extend(each_line(without_go, |line| line.contains('\t').then(|| "a tab".to_owned())));
    for source in own_text(tree) {
        if !source.text.is_empty()
            && (!source.text.ends_with('\n') || source.text.ends_with("\n\n"))
        {
            let line = source.text.lines().count();
            findings.push(Finding::at(source, line, "must end with one line end".to_owned()));
        }
    }
    findings
}

/// No file depends on one machine.
pub(super) fn machines(tree: &Tree) -> Vec<Finding> {
    let texts = tree.sources.iter().filter(|source| source.path != "Cargo.lock");
    let mut findings = each_line(texts, |line| {
        let starts_a_path = |at: usize| {
            !line[..at].ends_with(|c: char| c.is_alphanumeric() || "/._-}~*".contains(c))
        };
        let folder = MACHINE_FOLDERS
            .iter()
            .find(|folder| line.match_indices(**folder).any(|(at, _)| starts_a_path(at)));
        let host = REGISTRY_HOSTS.iter().find(|host| line.contains(**host));
        let found = folder.or(host)?;
        Some(format!("{found} is the business of one machine"))
    });
    if let Some(source) = tree.get("Cargo.lock") {
        for (line, text) in source.lines() {
            if text.starts_with("source = ") && text != LOCK_SOURCE {
                findings.push(Finding::at(source, line, "a registry of one machine".to_owned()));
            }
        }
    }
    findings
}

/// The project speaks for itself and names nobody.
pub(super) fn people(tree: &Tree) -> Vec<Finding> {
    each_line(own_text(tree), |line| {
        let is_address = |word: &str| {
            let Some((name, host)) = word.split_once('@') else {
                return false;
            };
            let last = host.trim_end_matches(|c: char| !c.is_alphanumeric()).rsplit_once('.');
            name.ends_with(|c: char| c.is_alphanumeric())
                && last.is_some_and(|(_, top)| top.chars().all(|c| c.is_ascii_lowercase()))
                && !host.contains(".service")
        };
        let found = line.split_whitespace().find(|word| is_address(word))?;
        Some(format!("{found} is somebody's address"))
    })
}

/// How the names of files end that people of the project wrote.
const OWN_ENDINGS: &[&str] = &[
    ".cpp", ".css", ".go", ".hpp", ".html", ".java", ".js", ".md", ".mjs", ".py", ".rs",
    ".service", ".sh", ".toml", ".xml", ".yml",
];

/// Folders of which they wrote everything.
const OWN_FOLDERS: &[&str] = &[".ci/", "package/"];

/// What people of the project wrote: not licences, lock files or test data.
fn own_text(tree: &Tree) -> impl Iterator<Item = &Source> {
    tree.sources.iter().filter(|source| {
        OWN_ENDINGS.iter().any(|ending| source.path.ends_with(ending))
            || OWN_FOLDERS.iter().any(|folder| source.path.starts_with(folder))
    })
}

fn each_line<'a>(
    sources: impl Iterator<Item = &'a Source>,
    check: impl Fn(&str) -> Option<String>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        for (number, line) in source.lines() {
            if let Some(message) = check(line) {
                findings.push(Finding::at(source, number, message));
            }
        }
    }
    findings
}

/// Phrases that a reader has to read twice, and what to write instead. None is part of another.
pub(super) const PHRASES: &[(&str, &str)] = &[
    ("anew", "again"),
    ("at hand", "available, or loaded"),
    ("whoever", "the one who"),
    ("all the same", "still, or in any case"),
    ("but for", "except"),
    ("luggage", "handoff"),
    ("keeper", "snapshot writer"),
    ("copier", "snapshot replicator"),
    ("for the same, when", "the sentence itself"),
    ("a ownership", "an ownership"),
    ("of the hour", "current"),
    ("bridged", "passed over"),
    ("captured", "checkpointed"),
    ("a capture", "a checkpoint"),
    ("so late now", "the current time"),
    ("sees to it that", "makes sure that"),
    ("at most so many", "at most this many"),
    ("room for so many", "room for this many"),
    ("is heard of", "what is meant"),
    ("to who", "the one to whom, or what it is for"),
    ("nobody has told", "what is unknown, or too old"),
    ("whatever surprises", "any other record"),
    ("of which nobody says", "what is unknown"),
    ("hand-off", "handoff"),
    ("took the engine down", "panicked the engine"),
    ("is done without", "something goes on without it"),
    ("what strangers write", "untrusted bytes"),
];

/// What else than Rust and documents has prose: comments, descriptions, names of vectors.
const PROSE_ENDINGS: &[&str] = &[
    ".toml", ".service", ".json", ".yml", ".xml", ".sh", ".py", ".js", ".mjs", ".html", ".css",
    ".go", ".java", ".hpp", ".cpp",
];

/// Prose is plain English, and so are names.
pub(super) fn plain_english(tree: &Tree) -> Vec<Finding> {
    let is_read = |path: &str| {
        let endings = [PROSE_ENDINGS, &[".rs", ".md"]].concat();
        let is_rule = path.starts_with("tests/host/tidy/");
        let is_prose = endings.iter().any(|ending| path.ends_with(ending));
        is_prose && !is_rule && !is_history(path)
    };
    let mut findings = Vec::new();
    for source in tree.sources.iter().filter(|source| is_read(&source.path)) {
        let prose = Prose::of(source);
        for (phrase, better) in PHRASES {
            for line in prose.lines_with(phrase) {
                let message = format!("{phrase:?}: write {better:?}");
                findings.push(Finding::at(source, line, message));
            }
        }
    }
    findings
}

/// A file's words in lower case, with its line ends gone: a phrase may begin on one line and end on
/// the next.
struct Prose {
    text: String,
    /// Where each line begins in the text.
    starts: Vec<usize>,
}

impl Prose {
    fn of(source: &Source) -> Prose {
        let (mut text, mut starts) = (String::new(), Vec::new());
        for (_, line) in source.lines() {
            starts.push(text.len());
            // What begins a comment, a list's item or a quotation, and what goes on with a string.
            let is_mark = |c: char| c.is_whitespace() || "/!#*>|-".contains(c);
            let line = line.trim_start_matches(is_mark).trim_end_matches(['\\', ' ']);
            text.push_str(&words_of_names(line).to_lowercase());
            text.push(if line.is_empty() { '\n' } else { ' ' });
        }
        Prose { text, starts }
    }

    /// The lines on which these words begin, with nothing of a word before and after them.
    fn lines_with(&self, words: &str) -> impl Iterator<Item = usize> {
        let is_inside = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        let is_whole = move |at: &usize| {
            let after = &self.text[at + words.len()..];
            !is_inside(self.text[..*at].chars().next_back()) && !is_inside(after.chars().next())
        };
        let places = self.text.match_indices(words).map(|(at, _)| at).filter(is_whole);
        places.map(|at| self.starts.partition_point(|start| *start <= at))
    }
}

/// A line with the words of its names apart: `begins_anew` and `BeginsAnew` are two each.
fn words_of_names(line: &str) -> String {
    let mut words = String::with_capacity(line.len());
    let mut before = ' ';
    for c in line.chars() {
        if c.is_uppercase() && (before.is_lowercase() || before.is_numeric()) {
            words.push(' ');
        }
        words.push(if c == '_' { ' ' } else { c });
        before = c;
    }
    words
}
