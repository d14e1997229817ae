//! The configuration as a JSON Schema, for editors, generated from the shipped file and the checks.

use super::config;
use super::settings::DEFAULTS;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Limits of values beyond their type, by key path.
pub(super) type Limits = BTreeMap<String, Limit>;

/// The limits of one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// The lower and the upper limit of a number.
    Range(String, String),
    /// Any value of its type.
    None,
    /// One of these words.
    OneOf(Vec<String>),
}

/// Returns the JSON Schema, draft 2020-12, of a configuration file read as JSON.
pub(crate) fn json_schema() -> Value {
    let defaults: toml::Table = DEFAULTS.parse().expect("a test parses the defaults");
    let limits = config::limits();
    let mut sections = Map::new();
    for (section, keys) in &defaults {
        let keys = keys.as_table().expect("the defaults hold sections only");
        sections.insert(section.clone(), of_section(section, keys, &limits));
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "huntd's configuration",
        "type": "object",
        "additionalProperties": false,
        "properties": sections,
    })
}

/// The schema of a section, with its subsections.
fn of_section(section: &str, keys: &toml::Table, limits: &Limits) -> Value {
    let mut properties = Map::new();
    for (key, default) in keys {
        let path = format!("{section}.{key}");
        if let toml::Value::Table(keys) = default {
            properties.insert(key.clone(), of_section(&path, keys, limits));
            continue;
        }
        let mut property = of_default(default);
        property.insert("description".to_owned(), comment(section, key).into());
        match limits.get(&path) {
            Some(Limit::Range(least, most)) => {
                let number = |text: &String| json!(text.parse::<i64>().expect("a number"));
                property.insert("minimum".to_owned(), number(least));
                property.insert("maximum".to_owned(), number(most));
            }
            Some(Limit::OneOf(words)) => {
                property.insert("enum".to_owned(), json!(words));
            }
            Some(Limit::None) => {}
            None => unreachable!("{path} is read by no check"),
        }
        properties.insert(key.clone(), property.into());
    }
    json!({"type": "object", "additionalProperties": false, "properties": properties})
}

/// The type of a value, derived from its default.
fn of_default(default: &toml::Value) -> Map<String, Value> {
    let schema = match default {
        toml::Value::Integer(number) => json!({"type": "integer", "default": number}),
        toml::Value::Boolean(truth) => json!({"type": "boolean", "default": truth}),
        toml::Value::Array(items) => {
            let items: Vec<&str> = items.iter().filter_map(toml::Value::as_str).collect();
            json!({"type": "array", "items": {"type": "string"}, "default": items})
        }
        other => json!({"type": "string", "default": other.as_str().unwrap_or_default()}),
    };
    schema.as_object().expect("each is an object").clone()
}

/// The comment above a key in the shipped file.
fn comment(section: &str, key: &str) -> String {
    let header = format!("[{section}]");
    let (header, assignment) = (header.as_str(), format!("{key} = "));
    let mut lines = Vec::new();
    for line in DEFAULTS.lines().skip_while(|line| *line != header).skip(1) {
        match line.strip_prefix("# ") {
            Some(words) => lines.push(words),
            None if line.starts_with(&assignment) => break,
            None => lines.clear(),
        }
    }
    lines.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether a value conforms to the schema, for the keywords that it uses.
    fn fits(schema: &Value, value: &Value) -> bool {
        let is_of_type = match schema["type"].as_str().expect("a type") {
            "object" => value.as_object().is_some_and(|object| {
                let properties = &schema["properties"];
                object.iter().all(|(key, value)| {
                    properties.get(key).is_some_and(|property| fits(property, value))
                })
            }),
            "array" => value
                .as_array()
                .is_some_and(|items| items.iter().all(|item| fits(&schema["items"], item))),
            "integer" => value.is_i64(),
            "boolean" => value.is_boolean(),
            "string" => value.is_string(),
            other => panic!("no word of this schema: {other}"),
        };
        let is_in_range = value.as_i64().is_none_or(|number| {
            schema["minimum"].as_i64().is_none_or(|least| least <= number)
                && schema["maximum"].as_i64().is_none_or(|most| number <= most)
        });
        let is_known =
            schema.get("enum").is_none_or(|words| words.as_array().unwrap().contains(value));
        is_of_type && is_in_range && is_known
    }

    fn json_of(toml: &str) -> Value {
        serde_json::to_value(toml.parse::<toml::Table>().expect("TOML")).expect("JSON")
    }

    #[test]
    fn the_shipped_files_fit_the_schema_and_what_the_daemon_refuses_does_not() {
        let schema = json_schema();
        assert!(fits(&schema, &json_of(DEFAULTS)));
        let test = std::fs::read_to_string("config/test.toml").expect("the repository has it");
        assert!(fits(&schema, &json_of(&test)));
        for wrong in [
            "[kafak]",
            "[snapshot]\nkep = 3",
            "[snapshot]\nkeep = 0",
            "[snapshot]\nkeep = \"3\"",
            "[publish]\nformat = \"jsno\"",
            "[kafka]\nbrokers = [1]",
            "[fetch]\nread_committed = 1",
        ] {
            assert!(!fits(&schema, &json_of(wrong)), "{wrong}");
        }
    }

    #[test]
    fn every_key_is_described_and_every_number_has_its_limits() {
        is_described("", &json_schema());
    }

    fn is_described(section: &str, schema: &Value) {
        for (key, property) in schema["properties"].as_object().expect("keys or sections") {
            let path = format!("{section}{key}");
            if property["type"] == "object" {
                is_described(&format!("{path}."), property);
                continue;
            }
            let words = property["description"].as_str().unwrap_or_default();
            assert!(words.ends_with('.') && words.len() > 20, "{path}: {words}");
            let has_limits = property.get("minimum").is_some();
            assert_eq!(has_limits, property["type"] == "integer", "{path}");
        }
    }
}
