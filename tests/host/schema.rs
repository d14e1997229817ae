//! The tables in the clients are those of `huntd schema`.

use serde_json::Value;
use std::fmt::Write as _;
use std::process::Command;
use support::generated;

/// Lines between which a client has its tables.
const BEGIN: &str = "schema: begin";
const END: &str = "schema: end";

/// Writes the tables of one client from the list of updates.
type WriteTables = fn(&[Value]) -> String;

/// The clients, and how each has its tables.
const CLIENTS: [(&str, WriteTables); 5] = [
    ("docs/clients/huntd.py", python),
    ("docs/clients/huntd.mjs", javascript),
    ("docs/clients/go/main.go", go),
    ("docs/clients/Huntd.java", java),
    ("docs/clients/huntd.hpp", cpp),
];

#[test]
fn the_clients_tables_are_those_of_the_schema() {
    let schema = Command::new(env!("CARGO_BIN_EXE_huntd")).arg("schema").output();
    let schema = schema.expect("the program runs").stdout;
    let schema: Value = serde_json::from_slice(&schema).expect("the schema is JSON");
    let updates = schema["updates"].as_array().expect("a list of updates");
    for (path, tables) in CLIENTS {
        generated::check(path, "schema", |client| {
            let begin = client.find(BEGIN).expect("the tables begin");
            let start = begin + client[begin..].find('\n').expect("the line ends") + 1;
            let end = start + client[start..].find(END).expect("the tables end");
            let end = client[..end].rfind('\n').expect("the end is on a line of its own");
            vec![(start..end, tables(updates))]
        });
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().expect("a text")
}

fn fields(update: &Value) -> &[Value] {
    update["fields"].as_array().expect("a list of fields")
}

/// A kind and its fields, as the clients that name them have it: `name:place[:form]`.
fn line(update: &Value) -> String {
    let mut line = text(update, "kind").to_owned();
    for field in fields(update) {
        write!(line, " {}:{}", text(field, "name"), text(field, "place")).expect("a string grows");
        match text(field, "form") {
            "number" => {}
            form => write!(line, ":{form}").expect("a string grows"),
        }
    }
    line
}

fn lines(updates: &[Value]) -> String {
    updates.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Each field that has names: its kind, the field, and the names in lines of at most 96 columns.
fn named(updates: &[Value]) -> impl Iterator<Item = (&str, &str, String)> {
    let fields = updates
        .iter()
        .flat_map(|update| fields(update).iter().map(move |field| (text(update, "kind"), field)));
    fields.filter_map(|(kind, field)| {
        let names = field.get("names")?.as_array().expect("a list of names");
        let (mut wrapped, mut columns) = (String::new(), 48);
        for name in names.iter().map(|name| name.as_str().expect("a name")) {
            columns += name.len() + 1;
            let is_first = wrapped.is_empty();
            if columns > 96 {
                columns = 4 + name.len();
                wrapped.push_str("\n    ");
            } else if !is_first {
                wrapped.push(' ');
            }
            wrapped.push_str(name);
        }
        Some((kind, text(field, "name"), wrapped))
    })
}

fn python(updates: &[Value]) -> String {
    let mut tables = String::from("NAMES = {\n");
    for (kind, field, names) in named(updates) {
        writeln!(tables, "    (\"{kind}\", \"{field}\"): \"\"\"{names}\"\"\".split(),").unwrap();
    }
    write!(tables, "}}\nKINDS = \"\"\"\n{}\n\"\"\"", lines(updates)).unwrap();
    tables
}

fn javascript(updates: &[Value]) -> String {
    let mut tables = String::from("/** @type {Record<string, string>} */\nconst NAME_LISTS = {\n");
    for (kind, field, names) in named(updates) {
        writeln!(tables, "  \"{kind}.{field}\": `{names}`,").unwrap();
    }
    write!(tables, "}};\nconst KIND_LINES = `\n{}\n`;", lines(updates)).unwrap();
    tables
}

/// For each kind, how many names its `code` and its `short` stand for: 0 if for none.
fn counts(updates: &[Value]) -> impl Iterator<Item = [usize; 2]> {
    updates.iter().map(|update| {
        ["code", "short"].map(|place| {
            let field = fields(update).iter().find(|field| text(field, "place") == place);
            let names = field.and_then(|field| field.get("names"));
            names.map_or(0, |names| names.as_array().expect("a list of names").len())
        })
    })
}

fn pairs(updates: &[Value], indent: &str) -> String {
    let pairs: Vec<String> =
        counts(updates).map(|[code, short]| format!("{{{code}, {short}}}")).collect();
    let rows = pairs.chunks(8).map(|row| format!("{indent}{},", row.join(", ")));
    rows.collect::<Vec<_>>().join("\n")
}

fn go(updates: &[Value]) -> String {
    format!("var nameCounts = [][2]uint16{{\n{}\n}}", pairs(updates, "\t"))
}

fn java(updates: &[Value]) -> String {
    format!("    static final int[][] NAME_COUNTS = {{\n{}\n    }};", pairs(updates, "        "))
}

fn cpp(updates: &[Value]) -> String {
    format!("inline constexpr std::uint16_t name_counts[][2] = {{\n{}\n}};", pairs(updates, "    "))
}
