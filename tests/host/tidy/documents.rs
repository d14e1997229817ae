//! Rules about documents, and their tests: widths, links, tables of what stands elsewhere.

use super::check;
use super::form::Finding;
use super::source::{Source, Tree, find};
use std::collections::BTreeSet;
use std::path::{Component, Path};

/// Of a document, which is read in a terminal too.
const DOCUMENT_COLUMNS_MAX: usize = 120;

/// This document has the method and the present figures, and is no record of all that was ever
/// measured. Its tables have to fit, too: a wide one holds too much for a reader.
const BENCHMARKS: &str = "docs/BENCHMARKS.md";

const BENCHMARKS_LINES_MAX: usize = 150;

/// The remedies for the sentences of the log that call for one.
const RUNBOOKS: &str = "docs/RUNBOOKS.md";

/// The contents of the book, in the form of mdBook.
const CONTENTS: &str = "docs/SUMMARY.md";

/// A document fits a terminal. A table's row, an entry of the contents and an address cannot be
/// broken, code is shown as it is, and decisions are history.
pub(super) fn document_columns(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_prose = |source: &&Source| !is_history(&source.path) && source.path != CONTENTS;
    for source in tree.documents().filter(is_prose) {
        let mut in_code = false;
        for (number, line) in source.lines() {
            in_code ^= line.starts_with("```");
            let is_row = line.starts_with('|') && source.path != BENCHMARKS;
            let columns = line.chars().count();
            if columns > DOCUMENT_COLUMNS_MAX && !in_code && !is_row && !line.contains("https://") {
                let message = format!("{columns} columns, more than {DOCUMENT_COLUMNS_MAX}");
                findings.push(Finding::at(source, number, message));
            }
        }
    }
    findings
}

/// What is measured is read at once: older figures go to `docs/figures/`, attempts to decisions.
pub(super) fn benchmarks_lines(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(source) = tree.get(BENCHMARKS) {
        let lines = source.text.lines().count();
        if lines > BENCHMARKS_LINES_MAX {
            let message = format!("{lines} lines, more than {BENCHMARKS_LINES_MAX}");
            findings.push(Finding::at(source, 1, message));
        }
    }
    findings
}

/// Links between documents lead somewhere.
pub(super) fn links(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in tree.documents() {
        for Link { line, path, heading } in document_links(source) {
            if !tree.has(&path) {
                findings.push(Finding::at(source, line, format!("{path} is not there")));
            } else if !heading.is_empty() && !has_heading(tree, &path, &heading) {
                let message = format!("{path} has no heading for #{heading}");
                findings.push(Finding::at(source, line, message));
            }
        }
    }
    findings
}

/// A link of a document to a file of the project.
struct Link {
    line: usize,
    /// The file, from the project's root.
    path: String,
    /// The heading's anchor in it, or nothing.
    heading: String,
}

/// Returns a document's links to files of the project, outside blocks of code.
fn document_links(source: &Source) -> Vec<Link> {
    let mut links = Vec::new();
    let mut in_code = false;
    for (number, line) in source.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        for rest in line.split("](").skip(1).filter(|_| !in_code) {
            let link = rest.split([')', ' ']).next().unwrap_or(rest);
            if !link.contains("://") && !link.starts_with("mailto:") {
                let (file, heading) = link.split_once('#').unwrap_or((link, ""));
                let path = match file.is_empty() {
                    true => source.path.clone(),
                    false => resolve(&source.path, file),
                };
                links.push(Link { line: number, path, heading: heading.to_owned() });
            }
        }
    }
    links
}

/// A link's target, from the project's root.
fn resolve(from: &str, link: &str) -> String {
    let mut parts: Vec<String> = Vec::new();
    let joined = Path::new(from).parent().unwrap_or(Path::new("")).join(link);
    for component in joined.components() {
        match component {
            Component::ParentDir => drop(parts.pop()),
            Component::Normal(part) => parts.push(part.to_string_lossy().into_owned()),
            _ => {}
        }
    }
    parts.join("/")
}

/// Headings' anchors are made as the usual viewers make them: lower case, `-` for spaces, no marks.
fn has_heading(tree: &Tree, path: &str, anchor: &str) -> bool {
    let anchor_of = |heading: &str| -> String {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
        kept.collect::<String>().trim().to_lowercase().replace(' ', "-")
    };
    let Some(source) = tree.get(path) else {
        return false;
    };
    let headings = source.text.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| line.trim_start_matches('#')).any(|heading| anchor_of(heading) == anchor)
}

/// Headings of documents that other files name, as in a line of the log, exist. The runbooks have
/// no other headings of their level: each belongs to a sentence, which names it.
pub(super) fn named_headings(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut named = BTreeSet::new();
    let names = tree.sources.iter().filter(|source| !source.path.starts_with("tests/host/tidy/"));
    for source in names.filter(|source| !source.path.ends_with(".md")) {
        for (number, line) in source.lines() {
            for rest in line.split("docs/").skip(1) {
                let is_end = |c: char| !(c.is_ascii_alphanumeric() || "/_-.#".contains(c));
                let name = rest.split(is_end).next().unwrap_or(rest).trim_end_matches('.');
                let Some((file, heading)) = name.split_once('#') else { continue };
                let path = format!("docs/{file}");
                if !has_heading(tree, &path, heading) {
                    let message = format!("{path} has no heading for #{heading}");
                    findings.push(Finding::at(source, number, message));
                }
                named.insert((path, heading.to_owned()));
            }
        }
    }
    let Some(runbooks) = tree.get(RUNBOOKS) else { return findings };
    for (number, line) in runbooks.lines() {
        let Some(heading) = line.strip_prefix("### ") else { continue };
        if !named.contains(&(RUNBOOKS.to_owned(), heading.to_owned())) {
            findings.push(Finding::at(runbooks, number, format!("nothing names {heading}")));
        }
    }
    findings
}

/// Everything under `docs/` is a page of the book that its contents list, each once, and links only
/// to what the book has: the pages are also rendered without the rest of the project.
pub(super) fn contents(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let Some(contents) = tree.get(CONTENTS) else { return findings };
    let listed = document_links(contents);
    for page in tree.documents().filter(|page| page.path.starts_with("docs/")) {
        let times = listed.iter().filter(|link| link.path == page.path).count();
        if page.path != CONTENTS && times != 1 {
            let message = format!("must list {} once, and lists it {times} times", page.path);
            findings.push(Finding::at(contents, 1, message));
        }
        let links = document_links(page);
        for Link { line, path, .. } in links.iter().filter(|link| !link.path.starts_with("docs/")) {
            findings.push(Finding::at(page, *line, format!("{path} is no part of the book")));
        }
    }
    findings
}

/// The table of decisions has each page's title, and adds it if a page was replaced.
pub(super) fn decisions(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let Some(table) = tree.get("docs/ARCHITECTURE.md") else { return findings };
    for page in tree.sources.iter().filter(|source| is_history(&source.path)) {
        let path = page.path.trim_start_matches("docs/");
        let title = page.text.lines().next().unwrap_or_default().trim_start_matches("# ");
        let listed = title.split_once(": ").is_some_and(|(number, title)| {
            let row = format!("| [{number}]({path}) | {title}").replace('`', "");
            table.text.lines().map(|line| line.replace('`', "")).any(|line| {
                let rest = line.strip_prefix(&row);
                rest.is_some_and(|rest| rest == " |" || rest.starts_with(" (replaced"))
            })
        });
        if !listed {
            findings.push(Finding::at(table, 1, format!("must list {path} as \"{title}\"")));
        }
    }
    findings
}

/// Types that the glossary names exist: its second column holds their paths.
pub(super) fn glossary(tree: &Tree) -> Vec<Finding> {
    let Some(source) = tree.get("docs/GLOSSARY.md") else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    for (number, line) in source.lines().filter(|(_, line)| line.starts_with("| ")) {
        let column = line.split('|').nth(2).unwrap_or("");
        for path in column.split('`').skip(1).step_by(2) {
            if !has_type(tree, path) {
                findings.push(Finding::at(source, number, format!("there is no type {path}")));
            }
        }
    }
    findings
}

/// Whether `hunt::event::Event` is a type in `src/hunt/event.rs`, or in its `mod.rs`.
fn has_type(tree: &Tree, path: &str) -> bool {
    let Some((module, name)) = path.rsplit_once("::") else {
        return false;
    };
    let file = format!("src/{}", module.replace("::", "/"));
    let candidates = [format!("{file}.rs"), format!("{file}/mod.rs")];
    candidates.iter().filter_map(|candidate| tree.get(candidate)).any(|source| {
        ["struct", "enum", "type", "trait"]
            .iter()
            .any(|kind| !find(&source.product, &format!("{kind} {name}")).is_empty())
    })
}

/// Decisions say what was true when they were made.
pub(super) fn is_history(path: &str) -> bool {
    path.starts_with("docs/decisions/")
}

#[test]
fn a_line_of_a_document_has_at_most_120_columns() {
    let wide = "a ".repeat(61);
    let row = format!("| {wide} |");
    check(
        document_columns,
        &[
            &[("docs/A.md", &wide)],
            &[("CHANGELOG.md", &wide)],
            &[("docs/BENCHMARKS.md", &row)],
            &[("docs/A.md", &format!("```\ncode\n```\n{wide}"))],
        ],
        &[
            &[("docs/A.md", &"é".repeat(120))],
            &[("docs/A.md", &row)],
            &[(CONTENTS, &wide)],
            &[("docs/A.md", &format!("```\n{wide}\n```\n"))],
            &[("docs/decisions/001-a.md", &wide)],
        ],
    );
}

#[test]
fn the_benchmarks_have_at_most_150_lines() {
    check(
        benchmarks_lines,
        &[&[("docs/BENCHMARKS.md", &"a\n".repeat(151))]],
        &[&[("docs/BENCHMARKS.md", &"a\n".repeat(150))], &[("docs/RULES.md", &"a\n".repeat(151))]],
    );
}

#[test]
fn links_between_documents_lead_somewhere() {
    let target = ("docs/B.md", "# What it is, in `short`\n");
    check(
        links,
        &[
            &[("docs/A.md", "[b](B.md)")],
            &[("docs/A.md", "[b](B.md#why)"), target],
            &[("README.md", "[b](B.md)"), target],
        ],
        &[
            &[
                ("docs/A.md", "[b](B.md#what-it-is-in-short) [r](../docs/) [s](https://a.b)"),
                target,
            ],
            &[("docs/A.md", "```\n[b](C.md)\n```\n")],
        ],
    );
}

#[test]
fn headings_that_the_log_names_exist_and_every_runbook_is_named() {
    let runbooks = (RUNBOOKS, "# Runbooks\n## Halted shards\n### input-gone\n");
    let line = "// See docs/RUNBOOKS.md#input-gone.";
    check(
        named_headings,
        &[
            &[("src/a.rs", "\"restore it (docs/RUNBOOKS.md#input-lost)\""), runbooks],
            &[("src/a.rs", line)],
            &[("config/a.yml", "# docs/A.md#why"), ("docs/A.md", "# What\n")],
            &[runbooks, ("README.md", "[a](docs/RUNBOOKS.md#input-gone)")],
        ],
        &[&[("src/a.rs", line), runbooks], &[("src/a.rs", "// docs/A.md, and docs/B.md.")]],
    );
}

#[test]
fn the_contents_list_every_page_once_and_no_page_links_out_of_the_book() {
    let list = |text| (CONTENTS, text);
    let page = ("docs/A.md", "[b](decisions/001-b.md#why) [c](https://a.b) ![d](d.png)");
    let decision = ("docs/decisions/001-b.md", "[a](../A.md) [here](#why)");
    check(
        contents,
        &[
            &[list("- [a](A.md)\n"), page, decision],
            &[list("- [a](A.md)\n- [a](A.md)\n- [b](decisions/001-b.md)\n"), page, decision],
            &[list("- [a](A.md)\n"), ("docs/A.md", "[changes](../CHANGELOG.md)")],
        ],
        &[
            &[list("- [a](A.md)\n  - [b](decisions/001-b.md)\n"), page, decision],
            &[list(""), ("README.md", "[a](docs/A.md)"), ("bench/peers/README.md", "")],
        ],
    );
}

#[test]
fn the_architecture_lists_the_decisions_by_their_titles() {
    let page = ("docs/decisions/001-a.md", "# 001: Why `a`\n\nText.\n");
    let row = |title| format!("| [001](decisions/001-a.md) | {title} |\n");
    check(
        decisions,
        &[
            &[("docs/ARCHITECTURE.md", &row("Why b")), page],
            &[("docs/ARCHITECTURE.md", &row("Why `a` and b")), page],
            &[("docs/ARCHITECTURE.md", ""), page],
        ],
        &[
            &[("docs/ARCHITECTURE.md", &row("Why `a`")), page],
            &[("docs/ARCHITECTURE.md", &row("Why a (replaced by 002)")), page],
        ],
    );
}

#[test]
fn types_of_the_glossary_exist() {
    let source = ("src/hunt/mod.rs", "pub struct Shard { a: u8 }");
    check(
        glossary,
        &[
            &[("docs/GLOSSARY.md", "| shard | `hunt::Shards` | state |\n"), source],
            &[("docs/GLOSSARY.md", "| shard | `hunt::state::Shard` | state |\n"), source],
        ],
        &[
            &[("docs/GLOSSARY.md", "| shard | `hunt::Shard` | state |\n"), source],
            &[("docs/GLOSSARY.md", "| tile | | a `cell` |\n"), source],
        ],
    );
}
