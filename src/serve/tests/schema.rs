//! Whether a JSON value is what a schema says. It knows the keywords that the OpenAPI document uses
//! (JSON Schema 2020-12), and takes no other.

use serde_json::Value;
use std::collections::BTreeSet;

/// Keywords for readers.
const FOR_READERS: [&str; 3] = ["description", "default", "x-events"];

/// The schemas of a document.
pub(super) struct Schemas<'a> {
    pub(super) document: &'a Value,
    /// Where the properties that values have had are, as JSON pointers.
    pub(super) seen: BTreeSet<String>,
}

impl Schemas<'_> {
    /// Checks a value by the schema at a JSON pointer. An error says what is wrong with which part.
    pub(super) fn check(&mut self, at: &str, value: &Value) -> Result<(), String> {
        let document = self.document;
        let schema = document.pointer(at).unwrap_or_else(|| panic!("no schema at {at}"));
        let schema = schema.as_object().unwrap_or_else(|| panic!("no object at {at}"));
        for (keyword, wanted) in schema {
            let is_right = match keyword.as_str() {
                "$ref" => {
                    let named = wanted.as_str().and_then(|name| name.strip_prefix('#'));
                    self.check(named.expect("it is of this document"), value)?;
                    true
                }
                "type" => is_of_type(value, wanted.as_str().expect("a type has a name")),
                "const" => value == wanted,
                "enum" => wanted.as_array().expect("a list").contains(value),
                "format" => has_format(value, wanted.as_str().expect("a format has a name")),
                "minimum" => is_in_order(wanted, value),
                "maximum" => is_in_order(value, wanted),
                "exclusiveMinimum" => !value.is_number() || !is_in_order(value, wanted),
                "exclusiveMaximum" => !value.is_number() || !is_in_order(wanted, value),
                "minLength" => value.as_str().is_none_or(|text| size(wanted) <= text.len()),
                "maxLength" => value.as_str().is_none_or(|text| text.len() <= size(wanted)),
                "minItems" => value.as_array().is_none_or(|items| size(wanted) <= items.len()),
                "maxItems" => value.as_array().is_none_or(|items| items.len() <= size(wanted)),
                "items" => {
                    for item in value.as_array().into_iter().flatten() {
                        self.check(&format!("{at}/items"), item)?;
                    }
                    true
                }
                "prefixItems" => {
                    for (number, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.check(&format!("{at}/prefixItems/{number}"), item)?;
                    }
                    true
                }
                "required" => {
                    let has = |name: &Value| value.get(name.as_str().expect("a name")).is_some();
                    !value.is_object() || wanted.as_array().expect("a list").iter().all(has)
                }
                "properties" => {
                    for (name, part) in value.as_object().into_iter().flatten() {
                        if wanted.get(name).is_some() {
                            let property = format!("{at}/properties/{name}");
                            self.check(&property, part)?;
                            self.seen.insert(property);
                        }
                    }
                    true
                }
                "additionalProperties" => {
                    assert_eq!(wanted, false, "{at}");
                    let is_known = |name: &String| schema["properties"].get(name).is_some();
                    value.as_object().is_none_or(|object| object.keys().all(is_known))
                }
                "not" => self.alone(&format!("{at}/not"), value).is_err(),
                "oneOf" => self.is_one_of(at, wanted.as_array().expect("a list").len(), value)?,
                other => {
                    assert!(FOR_READERS.contains(&other), "{at}: unknown keyword {other}");
                    true
                }
            };
            if !is_right {
                return Err(format!("{at}: {keyword} {wanted} forbids {value}"));
            }
        }
        Ok(())
    }

    /// Checks a value by a schema that need not be right. Gives what it has seen.
    fn alone(&self, at: &str, value: &Value) -> Result<BTreeSet<String>, String> {
        let mut alone = Schemas { document: self.document, seen: BTreeSet::new() };
        alone.check(at, value).map(|()| alone.seen)
    }

    /// Whether exactly one of a list of schemas allows a value; an error if none does.
    fn is_one_of(&mut self, at: &str, count: usize, value: &Value) -> Result<bool, String> {
        let (mut allowed, mut refused) = (0, Vec::new());
        for number in 0..count {
            match self.alone(&format!("{at}/oneOf/{number}"), value) {
                Ok(seen) => {
                    allowed += 1;
                    self.seen.extend(seen);
                }
                Err(why) => refused.push(why),
            }
        }
        if allowed == 0 {
            return Err(refused.join("\n"));
        }
        Ok(allowed == 1)
    }
}

fn size(number: &Value) -> usize {
    number.as_u64().expect("a size") as usize
}

fn is_of_type(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        // serde_json reads `-0` as a double.
        "integer" => value.is_i64() || value.is_u64() || value.as_f64() == Some(0.0),
        other => panic!("unknown type {other}"),
    }
}

/// Whether a text, or a number, is one of this format.
fn has_format(value: &Value, name: &str) -> bool {
    let digits = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return true,
    };
    // Only one text of a number is right.
    match name {
        "uint64" => digits.parse::<u64>().is_ok_and(|number| number.to_string() == digits),
        "int64" => digits.parse::<i64>().is_ok_and(|number| number.to_string() == digits),
        other => panic!("unknown format {other}"),
    }
}

/// Whether the first number is not above the second one. What is no number is in any order.
fn is_in_order(first: &Value, second: &Value) -> bool {
    let whole =
        |value: &Value| value.as_u64().map(i128::from).or_else(|| value.as_i64().map(i128::from));
    match (whole(first), whole(second)) {
        (Some(first), Some(second)) => first <= second,
        _ => first.as_f64().zip(second.as_f64()).is_none_or(|(first, second)| first <= second),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What a schema allows, and what it forbids.
    #[test]
    fn each_keyword_forbids_what_it_says_and_nothing_else() {
        let pair = json!({
            "type": "object", "additionalProperties": false, "required": ["a"],
            "properties": {"a": {"const": 1}, "b": {"enum": ["x", "y"]}},
        });
        let row = json!({"type": "array", "minItems": 1, "maxItems": 2,
            "prefixItems": [{"type": "integer"}, {"type": "boolean"}]});
        let either = json!({"oneOf": [{"type": "integer"}, {"minimum": 5}]});
        let cases = [
            (&pair, vec![json!({"a": 1}), json!({"a": 1, "b": "y"})]),
            (&row, vec![json!([7]), json!([-7, true])]),
            (&either, vec![json!(4), json!(5.5), json!("no number is too small")]),
            (&json!({"items": {"type": "string"}}), vec![json!(["a"]), json!([]), json!(3)]),
            (&json!({"minimum": -2, "maximum": u64::MAX}), vec![json!(-2), json!(u64::MAX)]),
            (
                &json!({"exclusiveMinimum": -1.5, "exclusiveMaximum": 2}),
                vec![json!(-1), json!(1.9)],
            ),
            (&json!({"not": {"const": "0"}}), vec![json!("1"), json!(0)]),
            (&json!({"minLength": 1, "maxLength": 2}), vec![json!("a"), json!("ab"), json!(1)]),
            (&json!({"format": "uint64"}), vec![json!("0"), json!(u64::MAX.to_string())]),
            (&json!({"format": "int64"}), vec![json!("-1"), json!(i64::MIN), json!(null)]),
        ];
        let forbidden = [
            vec![json!({}), json!({"a": 2}), json!({"a": 1, "b": "z"}), json!({"a": 1, "c": 1})],
            vec![json!([]), json!([1.5]), json!([1, 1]), json!({})],
            vec![json!(5), json!(4.5)],
            vec![json!(["a", 1])],
            vec![json!(-3), json!(-2.5), json!(2e19)],
            vec![json!(-1.5), json!(2)],
            vec![json!("0")],
            vec![json!(""), json!("abc")],
            vec![json!("-1"), json!("01"), json!("18446744073709551616"), json!(1.5)],
            vec![json!("+1"), json!(u64::MAX)],
        ];
        for ((schema, allowed), forbidden) in cases.into_iter().zip(forbidden) {
            let document = json!({"of": schema, "named": {"$ref": "#/of"}});
            for at in ["/of", "/named"] {
                let check = |value| {
                    let mut schemas = Schemas { document: &document, seen: BTreeSet::new() };
                    schemas.check(at, value).is_ok()
                };
                allowed.iter().for_each(|value| assert!(check(value), "{schema}: {value}"));
                forbidden.iter().for_each(|value| assert!(!check(value), "{schema}: {value}"));
            }
        }
    }
}
