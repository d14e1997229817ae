//! Rules about the source that no compiler knows. Each is first shown to refuse something bad.

mod architecture;
mod documents;
mod doors;
mod form;
mod names;
mod source;

use form::Finding;
use source::{Source, Tree};
use std::path::Path;
use std::sync::OnceLock;

type Rule = fn(&Tree) -> Vec<Finding>;

/// A small project: paths and texts.
type Sample<'a> = &'a [(&'a str, &'a str)];

/// The rule finds something in each bad sample, nothing in the good ones, nothing in the project.
fn check(rule: Rule, bad: &[Sample], good: &[Sample]) {
    for sample in bad {
        assert!(!rule(&tree_of(sample)).is_empty(), "the rule does not refuse {sample:?}");
    }
    for sample in good {
        let findings = listed(&rule(&tree_of(sample)));
        assert!(findings.is_empty(), "the rule refuses {sample:?}:\n{findings}");
    }
    let findings = rule(project());
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), listed(&findings));
}

fn tree_of(sample: Sample) -> Tree {
    let source = |(path, text): &(&str, &str)| Source::new(path, (*text).to_owned());
    Tree { sources: sample.iter().map(source).collect() }
}

/// Files that rules name. In a bad sample they may be absent.
const SINGLED_OUT: &[&str] = &[
    "Cargo.lock",
    "Cargo.toml",
    "docs/ARCHITECTURE.md",
    "docs/BENCHMARKS.md",
    "docs/GLOSSARY.md",
    "docs/RUNBOOKS.md",
    "docs/STYLE.md",
    "docs/SUMMARY.md",
    "src/daemon/mod.rs",
    "src/hunt/mod.rs",
    "src/lib.rs",
    "src/main.rs",
];

fn project() -> &'static Tree {
    static PROJECT: OnceLock<Tree> = OnceLock::new();
    PROJECT.get_or_init(|| {
        // Cargo says at run time where the package is: the folder may have moved since the build.
        let root = std::env::var("CARGO_MANIFEST_DIR");
        let tree = Tree::read(Path::new(root.as_deref().unwrap_or(env!("CARGO_MANIFEST_DIR"))));
        for path in SINGLED_OUT {
            assert!(tree.has(path), "there is no {path}, which a rule is about");
        }
        tree
    })
}

fn listed(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("{finding}\n")).collect()
}

#[test]
fn tokens_leave_out_comments_and_literals() {
    let text = r##"let a = "unsafe"; // unsafe
        /* unsafe /* nested */ unsafe */ let b = r#"unsafe " "#; let c = '"'; let d = b'\'';
        fn f<'a>(x: &'a str) -> char { '\u{1F600}' } let e = b"unsafe \" unsafe";"##;
    let source = Source::new("src/a.rs", text.to_owned());
    let words: Vec<&str> = source.tokens.iter().map(|token| token.text.as_str()).collect();
    assert_eq!(
        words.join(" "),
        "let a = ; let b = ; let c = ; let d = b ; \
         fn f < ' a > ( x : & ' a str ) - > char { } let e = b ;"
    );
    assert_eq!(source.tokens.last().unwrap().line, 3);
}

#[test]
fn imports_point_down_from_layer_to_layer() {
    check(
        architecture::imports,
        &[
            &[("src/hunt/mod.rs", "use crate::telemetry::metrics::Metrics;")],
            &[("src/hunt/rules/hunt.rs", "use super::super::super::telemetry::Metrics;")],
            &[("src/kafka/wire.rs", "use super::super::fetch::FetchOptions;")],
            &[("src/decoder/json.rs", "use crate::{runtime, hunt::{event::Event, Shard}};")],
            &[("src/decoder/json.rs", "use crate::hunt;")],
            &[("src/queue/mod.rs", "fn f() { crate::telemetry::progress::Progress::new(); }")],
            &[("src/publisher/mod.rs", "use crate::shards::framer::Framer;")],
            &[("src/daemon/mod.rs", "use crate::tools::demo;")],
            &[("src/daemon/mod.rs", "use crate::hunt::Shard;")],
            &[("src/shards/mod.rs", "use crate::hunt::Shard;")],
            &[("src/shards/mod.rs", "use crate::limits::SHARDS_MAX;")],
            &[("src/new_module.rs", "")],
        ],
        &[
            &[("src/decoder/json.rs", "use crate::kit::event::{Event as E, PlainEvent};")],
            &[("src/hunt/rules/hunt.rs", "use super::super::path::Path; use super::shot;")],
            &[("src/hunt/state.rs", "#[cfg(test)] mod tests { use crate::service::Service; }")],
            &[("src/hunt/tests.rs", "use crate::decoder::Decoder;")],
            &[(
                "src/service/config.rs",
                "use crate::{fetch::FetchOptions, kafka::NAME_CHARS_MAX};",
            )],
            &[("src/service/config.rs", "use crate::fetch; fn f(a: fetch::FetchOptions) {}")],
            &[("src/tools/demo.rs", "use crate::daemon::Daemon;")],
            &[("src/limits.rs", "use crate::control::RELEASE_MS_MAX;")],
        ],
    );
}

#[test]
fn the_style_lists_the_files_with_unsafe_code() {
    let ring = ("src/runtime/ring.rs", "#![allow(unsafe_code)] fn f() { unsafe { g() } }");
    let style = |list: &str| format!("**`unsafe` stands in {list}.** Its comment says why.\n");
    check(
        architecture::listed_unsafe_code,
        &[
            &[ring, ("docs/STYLE.md", "Where `unsafe` stands.\n")],
            &[ring, ("docs/STYLE.md", &style("`queue/mod.rs`"))],
            &[ring, ("docs/STYLE.md", &style("`runtime/ring.rs` and `queue/mod.rs`"))],
            &[("tests/hot.rs", "#![expect(unsafe_code)]"), ("docs/STYLE.md", &style(""))],
        ],
        &[&[ring, ("docs/STYLE.md", &style("`runtime/ring.rs`"))]],
    );
}

#[test]
fn the_engine_has_no_clock_file_thread_float_log_or_hash_order() {
    check(
        architecture::purity,
        &[
            &[("src/hunt/a.rs", "use std::{collections::BTreeMap, time::Duration};")],
            &[("src/hunt/a.rs", "use std::collections::HashMap;")],
            &[("src/hunt/a.rs", "async fn f() {}")],
            &[("src/hunt/a.rs", "fn f(x: f64) {}")],
            &[("src/hunt/a.rs", "use serde::Serialize;")],
            &[("src/hunt/a.rs", "fn f() { tracing::info!(\"x\"); }")],
            &[("src/hunt/a.rs", "fn f() { std::fs::read(\"x\"); }")],
        ],
        &[
            &[("src/hunt/a.rs", "mod b; use b::B; use std::sync::Arc;")],
            &[("src/hunt/a.rs", "#[cfg(test)] mod tests { use std::collections::HashMap; }")],
            &[("src/service/a.rs", "use std::time::Instant;")],
        ],
    );
}

#[test]
fn the_kit_and_the_read_side_know_no_game() {
    check(
        architecture::games,
        &[
            &[("src/view/zone.rs", "use crate::hunt::Shard;")],
            &[("src/serve/answers.rs", "fn write(view: &HuntView) {}")],
            &[("src/kit/zone.rs", "// Treasures are laid here.")],
            &[("src/serve/openapi.json", "{\"tile_cm\": 5}")],
            &[("src/tools/replay.rs", "use crate::hunt::event::EVENTS;")],
            &[("src/service/exposition.rs", "page.family(\"huntd_treasures\")")],
        ],
        &[
            &[("src/serve/mod.rs", "//! `huntd serve` answers what hunters ask.")],
            &[("src/view/zone.rs", "\n#[cfg(test)]\nmod tests { use crate::hunt::Shard; }")],
            &[("src/serve/tests/mod.rs", "use crate::hunt::Shard;")],
            &[("src/hunt/tiles.rs", "struct Tile;")],
        ],
    );
}

#[test]
fn the_engine_denies_what_clippy_toml_disallows() {
    let all = "#![deny(clippy::disallowed_methods, clippy::disallowed_types)]\n\
               #![deny(clippy::float_arithmetic)]";
    check(
        architecture::engine_lints,
        &[
            &[("src/hunt/mod.rs", "//! Pure.")],
            &[("src/hunt/mod.rs", "#![deny(clippy::float_arithmetic)]")],
        ],
        &[&[("src/hunt/mod.rs", all)]],
    );
}

#[test]
fn only_the_crate_root_re_exports() {
    check(
        architecture::re_exports,
        &[
            &[("src/hunt/mod.rs", "pub use event::Event;")],
            &[("src/hunt/mod.rs", "mod event; pub(crate) use event::Event;")],
        ],
        &[
            &[("src/lib.rs", "pub use hunt::Shard;")],
            &[("src/queue/mod.rs", "mod sync { pub use std::sync::Arc; } pub fn f() {}")],
        ],
    );
}

#[test]
fn what_other_files_do_not_name_is_private_and_what_only_the_library_names_is_not_public() {
    check(
        names::visibility,
        &[
            &[("src/hunt/a.rs", "pub fn f() {} fn g() { f() }")],
            &[("src/hunt/a.rs", "pub(crate) fn f() {}")],
            &[("src/hunt/a.rs", "pub const F: u8 = 1;"), ("src/hunt/b.rs", "use super::F;")],
            &[("src/hunt/a.rs", "impl A { pub async fn f() {} }"), ("src/b.rs", "A::f();")],
            &[("src/hunt/a.rs", "pub(crate) struct A; fn f(a: A) {}")],
            &[("src/hunt/a.rs", "pub struct A;"), ("src/b.rs", "use a::A;")],
            &[("src/hunt/a.rs", "pub enum A {} pub(crate) fn f() -> A {}"), ("src/b.rs", "f")],
            &[("src/hunt/a.rs", "pub(crate) fn f() {}"), ("src/b.rs", "fn f(f: u8) { a.f = f }")],
        ],
        &[
            &[("src/hunt/a.rs", "pub(crate) fn f() {}"), ("src/hunt/b.rs", "a::f();")],
            &[("src/hunt/a.rs", "pub(crate) fn f() {}"), ("src/b.rs", "use a::{b, f}; g(f)")],
            &[("src/hunt/a.rs", "pub(crate) fn f<A>() {}"), ("src/b.rs", "f::<u8>()")],
            &[("src/hunt/a.rs", "pub fn f() {}"), ("tests/a.rs", "f();")],
            &[("src/hunt/a.rs", "pub fn f() {}"), ("src/main.rs", "f();")],
            &[("src/hunt/a.rs", "pub struct A { pub f: u8 }"), ("tests/a.rs", "A")],
            &[("src/hunt/a.rs", "pub struct A; pub fn f() -> A {}"), ("tests/a.rs", "f().g")],
            &[
                (
                    "src/hunt/a.rs",
                    "pub(crate) struct A; pub(crate) struct B { pub a: Vec<(u8, A)> }",
                ),
                ("src/b.rs", "fn f(b: B) { b.a }"),
            ],
            &[("src/hunt/a.rs", "pub enum A {} impl B for C { type D = A; }"), ("tests/a.rs", "C")],
            &[("src/testing/a.rs", "pub fn f() {}")],
        ],
    );
}

#[test]
fn a_type_or_a_visible_constant_has_a_name_of_its_own() {
    let event = ("src/hunt/event.rs", "pub struct Event;");
    let bytes = ("src/output/encode.rs", "pub const HEADER_BYTES: usize = 64;");
    check(
        names::one_meaning,
        &[
            &[event, ("src/ownership/event.rs", "pub(crate) enum Event {}")],
            &[event, ("src/tools/a.rs", "pub type Event = u8;")],
            &[event, ("src/tools/a.rs", "pub(super) struct Event;")],
            &[event, ("src/tools/a.rs", "struct Event;")],
            &[event, ("src/tools/a.rs", "impl A { fn f() { enum Event {} } }")],
            &[event, ("src/tools/a.rs", "trait Event { fn f(); }")],
            &[event, ("src/tools/a.rs", "list! { /// What.\nEvent { A = 0 \"a\", } }")],
            &[("src/tools/a.rs", "mod b { struct Event; } mod c { type Event = u8; }")],
            &[bytes, ("src/kafka/a.rs", "pub(crate) const HEADER_BYTES: usize = 61;")],
            &[bytes, ("src/kafka/a.rs", "impl A {} pub(super) static HEADER_BYTES: u8 = 6;")],
        ],
        &[
            &[event, ("src/ownership/event.rs", "struct Events; enum E { Event }")],
            &[event, ("src/a.rs", "#[cfg(test)] mod tests { struct Event; }")],
            &[event, ("src/a.rs", "trait A { type Event; } impl A for B { type Event = u8; }")],
            &[bytes, ("src/kafka/a.rs", "const HEADER_BYTES: usize = 61;")],
            &[bytes, ("src/kafka/a.rs", "impl A { pub const HEADER_BYTES: usize = 61; }")],
            &[bytes, ("src/kafka/a.rs", "pub(crate) const fn header_bytes() -> usize {}")],
        ],
    );
}

#[test]
fn two_modules_share_a_name_only_if_the_list_says_why() {
    let decoder = ("src/decoder/layout.rs", "");
    check(
        names::module_names,
        &[
            &[decoder, ("src/hunt/layout.rs", "")],
            &[decoder, ("src/hunt/layout/mod.rs", "")],
            &[("src/view/mod.rs", ""), ("src/serve/view.rs", "")],
        ],
        &[
            &[("src/decoder/mod.rs", ""), ("src/hunt/mod.rs", "")],
            &[("src/output/tests.rs", ""), ("src/queue/tests.rs", "")],
            &[decoder, ("src/hunt/tests/layout.rs", ""), ("tests/host/layout.rs", "")],
            &[decoder, ("src/tools/layout.rs", "")],
            &[("src/hunt/handoff.rs", ""), ("src/output/handoff.rs", "")],
        ],
    );
}

#[test]
fn lists_of_rules_name_nothing_that_is_not_there() {
    for rule in [architecture::unused_layers, names::unshared_modules] {
        check(rule, &[&[("src/lib.rs", "")]], &[&[("src/main.rs", "")]]);
    }
}

#[test]
fn every_source_file_is_a_module_of_the_one_above_it() {
    check(
        architecture::modules,
        &[
            &[("src/lib.rs", "pub mod hunt;"), ("src/limits.rs", "")],
            &[("src/lib.rs", "pub mod hunt;"), ("src/hunt/state.rs", "")],
            &[("src/lib.rs", "//! mod hunt;"), ("src/hunt/mod.rs", "")],
        ],
        &[&[
            ("src/lib.rs", "pub mod hunt;"),
            ("src/main.rs", ""),
            ("src/hunt/mod.rs", "mod rules;"),
            ("src/hunt/rules/mod.rs", "#[cfg(test)] mod tests;"),
            ("src/hunt/rules/tests.rs", ""),
        ]],
    );
}

#[test]
fn the_entry_and_the_daemon_fit_a_screen() {
    check(
        architecture::short_files,
        &[
            &[("src/main.rs", &"\n".repeat(61))],
            &[("src/daemon/mod.rs", &"fn f() {}\n".repeat(101))],
        ],
        &[
            &[("src/main.rs", &"\n".repeat(60))],
            &[("src/daemon/mod.rs", &"fn f() {}\n\n// why\n".repeat(100))],
        ],
    );
}

#[test]
fn a_line_has_at_most_100_columns() {
    let address = format!("// https://{}", "a".repeat(100));
    check(
        form::line_columns,
        &[&[("src/a.rs", &"x".repeat(101))]],
        &[&[("src/a.rs", &"é".repeat(100))], &[("src/a.rs", &address)]],
    );
}

#[test]
fn every_file_begins_with_what_it_is() {
    check(
        form::file_headers,
        &[
            &[("tests/a.rs", "use std::fs;\n//! Late.")],
            &[("src/a.rs", "")],
            &[("a.toml", "[a]\n# Late.")],
            &[("docs/a.go", "package main\n// Late.")],
            &[("a.py", "#!/usr/bin/env python3\nimport sys\n")],
            &[("build", "#!/bin/sh\nset -e\n")],
        ],
        &[
            &[("src/a.rs", "//! What it is.")],
            &[("Cargo.toml", "[package]"), ("a.json", "{}"), ("LICENSE", "")],
            &[("a.py", "#!/usr/bin/env python3\n\"\"\"What it is.")],
            &[("build", "#!/bin/sh\n# What it is.")],
        ],
    );
}

#[test]
fn files_are_named_after_what_they_hold() {
    check(
        form::file_names,
        &[&[("src/kafka/utils.rs", "")], &[("src/common/mod.rs", "")]],
        &[&[("src/kafka/wire.rs", "")]],
    );
}

#[test]
fn nothing_half_done_is_left() {
    let word = format!("// {}ME: later", "FIX");
    check(
        form::undone,
        &[
            &[("src/a.rs", &word)],
            &[("tests/a.rs", "#[test] #[ignore] fn f() {}")],
            &[("tests/a.rs", "#[test] #[should_panic(expected = \"x\")] fn f() {}")],
        ],
        &[&[("src/a.rs", "fn f() { unreachable!(\"todo!\") } // the fixmes")]],
    );
}

#[test]
fn prose_has_no_phrase_that_is_read_twice() {
    check(
        form::plain_english,
        &[
            &[("src/a.rs", "// Begins anew.\n")],
            &[("docs/A.md", "Whoever reads\n")],
            &[("src/a.rs", "fn luggage_comes_later() {}\n")],
            &[("README.md", "all but for one\n")],
            &[("CHANGELOG.md", "- All the same, it ends.\n")],
            &[("src/a.rs", "// A ownership begins.\n")],
            &[("src/a.rs", "/// It is so late now: what there is to say.\n")],
            &[("src/a.rs", "/// Sees to it that it is there.\n")],
            &[("src/a.rs", "/// No rows, and at most so many later.\n")],
            &[("src/a.rs", "enum Note { BeginsAnew }\n")],
            &[("systemd/a.service", "# Begins anew.\n")],
            &[("docs/a.json", "\"but for one\"\n")],
            &[("docs/a.go", "// nextAnew\n")],
            &[("docs/A.md", "- all the\n  same\n")],
            &[("src/a.rs", "    /// There is room for so\n    /// many.\n")],
            &[("src/a.rs", "\"it is all the \\\n same\"\n")],
        ],
        &[
            &[("src/a.rs", "// A newer housekeeper.\n"), ("docs/decisions/1.md", "anew\n")],
            &[("docs/A.md", "all the\n\nsame\n")],
        ],
    );
}

#[test]
fn each_phrase_is_found_by_itself() {
    for (phrase, _) in form::PHRASES {
        let findings = form::plain_english(&tree_of(&[("docs/A.md", phrase)]));
        assert_eq!(findings.len(), 1, "{phrase:?} holds another one:\n{}", listed(&findings));
    }
}

#[test]
fn lines_and_files_end_cleanly() {
    check(
        form::white_space,
        &[
            &[("src/a.rs", "fn f() {} \n")],
            &[("docs/a.md", "text")],
            &[("docs/a.md", "text\n\n")],
            &[(".ci/run", "\tcargo test\n")],
        ],
        &[&[("src/a.rs", "fn f() {}\n")], &[("data/a.json", "{} ")]],
    );
}

#[test]
fn no_file_depends_on_one_machine() {
    let lock = |host: &str| format!("source = \"registry+https://{host}\"\n");
    check(
        form::machines,
        &[
            &[("docs/a.md", &format!("see {}me/x", "/ho"))],
            &[("src/a.rs", &format!("\"{}ot/.cargo\"", "/ro"))],
            &[("pom.xml", &format!("https://{}.maven.example/", "repo"))],
            &[("Cargo.lock", &lock("example.org/index"))],
        ],
        &[
            &[("docs/a.md", "target/work/a and $HOME/x")],
            &[("Cargo.lock", &lock(&format!("github.com/rust-lang/crates{}index", ".io-")))],
        ],
    );
}

#[test]
fn no_file_names_people() {
    check(
        form::people,
        &[&[("docs/a.md", &format!("ask someone{}example.org", "@"))]],
        &[&[("docs/a.md", "huntd@.service huntd@1.service 1@127.0.0.1:9092 group@3")]],
    );
}

#[test]
fn the_architecture_lists_the_layers() {
    check(
        architecture::listed_layers,
        &[
            &[("docs/ARCHITECTURE.md", "Imports point down the layers.\n")],
            &[("docs/ARCHITECTURE.md", "down, here lowest first: *telemetry, queue*.\n")],
        ],
        &[&[("docs/STYLE.md", "here lowest first: *telemetry, queue*.\n")]],
    );
}
