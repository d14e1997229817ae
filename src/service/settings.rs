//! Configuration values as written, with the place where each was written.
//!
//! `config/huntd.toml` is compiled in: it is the only list of keys and of their defaults. The
//! operator's file overrides it, then the environment. Each layer may only contain existing keys,
//! with values of the default's type.

use crate::runtime::regular_file::read_text;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::{self, Display};
use std::path::Path;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

/// Every key with its default, as text.
pub const DEFAULTS: &str = include_str!("../../config/huntd.toml");

/// Environment variables with this prefix and `__` override keys: `HUNTD_KAFKA__GROUP` and
/// `HUNTD_KAFKA__TLS__CA_FILE`.
const VARIABLE_PREFIX: &str = "HUNTD_";

/// Minimum similarity, from 0 to 1, for a wrong name to count as a misspelling: `dir` is one of
/// `directory` (0.84), but `foo` is not one of `group_protocol` (0.60).
const LIKENESS_MIN: f64 = 0.75;

/// Advice for a name that resembles no key.
const SEE_ALL_KEYS: &str = "`huntd config` prints all of them";

/// Removed keys, with the reason.
const REMOVED_KEYS: &[(&str, &str)] = &[
    ("kafka.rack", "huntd fetches from leaders only"),
    ("publish.client", "huntd sends frames itself"),
];

/// Limit of a configuration file. One with every key and a comment takes a hundredth.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// An error in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {sentence}")]
pub struct ConfigError {
    /// Where it is written: file and line, or environment variable.
    pub place: SettingSource,
    /// The error and its remedy.
    pub sentence: String,
    /// Section and key of a refused value; `None` if the error is not about a value.
    pub(crate) value_of: Option<(String, String)>,
}

impl ConfigError {
    /// Creates an error that is not about a value.
    pub(crate) fn at(place: SettingSource, sentence: String) -> ConfigError {
        ConfigError { place, sentence, value_of: None }
    }
}

/// All errors in a configuration, one per line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ConfigError::to_string).collect::<Vec<_>>().join("\n"))]
pub struct ConfigErrors(pub Vec<ConfigError>);

/// Where a value is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingSource {
    /// In the built-in defaults.
    Default,
    /// In a file, at a line number from 1.
    Line(String, usize),
    /// In a file as a whole.
    File(String),
    /// In an environment variable.
    Variable(String),
    /// On the command line, as a `--set`.
    Argument(String),
}

impl Display for SettingSource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingSource::Default => write!(out, "built-in defaults"),
            SettingSource::Line(file, line) => write!(out, "{file}:{line}"),
            SettingSource::File(file) => write!(out, "{file}"),
            SettingSource::Variable(name) => write!(out, "environment variable {name}"),
            SettingSource::Argument(text) => write!(out, "--set {text}"),
        }
    }
}

/// Reads an operator's file.
pub(super) fn read_file(file: &Path) -> Result<String, ConfigErrors> {
    read_text(file, CONFIG_BYTES_MAX).map_err(|error| {
        let place = SettingSource::File(file.display().to_string());
        let sentence = format!("name a readable configuration file with --config: {error}");
        ConfigErrors(vec![ConfigError::at(place, sentence)])
    })
}

/// The merged values of all layers.
#[derive(Debug)]
pub(crate) struct Settings {
    values: Table,
    places: BTreeMap<(String, String), SettingSource>,
}

impl Settings {
    /// Creates the defaults.
    pub(crate) fn defaults() -> Settings {
        let whole: Table = DEFAULTS.parse().expect("config/huntd.toml is TOML: a test parses it");
        let mut values = Table::new();
        for (section, keys) in whole {
            flatten(section, keys, &mut values);
        }
        Settings { values, places: BTreeMap::new() }
    }

    /// Applies a file to the values so far, and returns its errors. `file` is its name in errors.
    pub(crate) fn lay_file(&mut self, file: &str, text: &str) -> Vec<ConfigError> {
        let document = match DeTable::parse(text) {
            Ok(document) => document,
            Err(error) => {
                let place = line_place(file, text, error.span().map_or(0, |span| span.start));
                let sentence = format!("write valid TOML here: {}", error.message());
                return vec![ConfigError::at(place, sentence)];
            }
        };
        let mut errors = Vec::new();
        for (section, keys) in document.get_ref() {
            let place = line_place(file, text, section.span().start);
            if let Err(error) = self.check_section(section.get_ref(), &place) {
                errors.push(error);
                continue;
            }
            let DeValue::Table(keys) = keys.get_ref() else {
                let sentence = format!("write [{}] as a section with keys", section.get_ref());
                errors.push(ConfigError::at(place, sentence));
                continue;
            };
            errors.extend(self.lay_section(file, text, section.get_ref(), keys));
        }
        errors
    }

    fn lay_section(
        &mut self,
        file: &str,
        text: &str,
        section: &str,
        keys: &DeTable<'_>,
    ) -> Vec<ConfigError> {
        let mut errors = Vec::new();
        for (key, value) in keys {
            let place = line_place(file, text, key.span().start);
            let inner = format!("{section}.{}", key.get_ref());
            match value.get_ref() {
                DeValue::Table(keys) if self.values.contains_key(&inner) => {
                    errors.extend(self.lay_section(file, text, &inner, keys));
                }
                _ => errors.extend(self.lay(section, key.get_ref(), plain(value), place).err()),
            }
        }
        errors
    }

    /// Applies `HUNTD_SECTION__KEY` variables to the values so far. Other variables are ignored,
    /// unless two underscores would make them a key's.
    pub(crate) fn lay_environment(
        &mut self,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Vec<ConfigError> {
        let mut errors = Vec::new();
        for (name, text) in variables {
            let Some(rest) = name.strip_prefix(VARIABLE_PREFIX) else { continue };
            let Some((section, key)) = rest.rsplit_once("__") else {
                errors.extend(self.meant_variable(rest).map(|meant| {
                    let sentence = format!("huntd ignores it: write {meant}, with two underscores");
                    ConfigError::at(SettingSource::Variable(name.clone()), sentence)
                }));
                continue;
            };
            let (section, key) = (section.to_lowercase().replace("__", "."), key.to_lowercase());
            let place = SettingSource::Variable(name.clone());
            errors.extend(self.lay_text(&section, &key, text, &place).err());
        }
        errors
    }

    /// Returns the variable of a key whose name differs only in its underscores.
    fn meant_variable(&self, rest: &str) -> Option<String> {
        let wanted = rest.to_lowercase();
        self.values.iter().find_map(|(section, keys)| {
            let is_meant = |key: &&String| format!("{section}_{key}").replace('.', "_") == wanted;
            let key = keys.as_table()?.keys().find(is_meant)?;
            let section = section.replace('.', "__");
            Some(format!("{VARIABLE_PREFIX}{section}__{key}").to_uppercase())
        })
    }

    /// Applies one `SECTION.KEY=VALUE` of the command line to the values so far.
    pub(crate) fn lay_argument(&mut self, argument: &str) -> Result<(), ConfigError> {
        let place = SettingSource::Argument(argument.to_owned());
        let parts = argument.split_once('=').and_then(|(path, text)| {
            let (section, key) = path.trim().rsplit_once('.')?;
            Some((section, key, text))
        });
        let Some((section, key, text)) = parts else {
            let sentence = "write section.key=value, as in snapshot.keep=5".to_owned();
            return Err(ConfigError::at(place, sentence));
        };
        self.lay_text(section, key, text.to_owned(), &place)
    }

    /// Applies one value as text, in the format of variables: lists are separated by commas.
    fn lay_text(
        &mut self,
        section: &str,
        key: &str,
        text: String,
        place: &SettingSource,
    ) -> Result<(), ConfigError> {
        self.check_section(section, place)?;
        let default = self.default_of(section, key, place)?;
        let value = parse_like(default, &text).unwrap_or(Value::String(text));
        self.lay(section, key, value, place.clone())
    }

    /// Resets a key to its default, so that other errors can be found.
    pub(crate) fn reset(&mut self, section: &str, key: &str) {
        let defaults = Settings::defaults().values;
        self.values[section][key] = defaults[section][key].clone();
    }

    /// All values, by section and key.
    pub(crate) fn values(&self) -> &Table {
        &self.values
    }

    /// All values as written, by `section.key`.
    pub(crate) fn by_path(&self) -> BTreeMap<String, String> {
        let keys = |(section, keys): (&String, &Value)| {
            let keys = keys.as_table().expect("the settings hold sections only").clone();
            let section = section.clone();
            keys.into_iter()
                .map(move |(key, value)| (format!("{section}.{key}"), value.to_string()))
        };
        self.values.iter().flat_map(keys).collect()
    }

    /// Returns an error about the value of a key, at the place where it is written; if it is a
    /// default, at the place of a related key of the same section, which then conflicts with the
    /// default.
    pub(crate) fn error(
        &self,
        section: &str,
        key: &str,
        related: &[&str],
        sentence: impl Display,
    ) -> ConfigError {
        let place = |key: &&str| self.places.get(&(section.to_owned(), (*key).to_owned()));
        let place = place(&key).or_else(|| related.iter().find_map(place));
        ConfigError {
            place: place.cloned().unwrap_or(SettingSource::Default),
            sentence: format!("{section}.{key} {sentence}"),
            value_of: Some((section.to_owned(), key.to_owned())),
        }
    }

    fn lay(
        &mut self,
        section: &str,
        key: &str,
        value: Value,
        place: SettingSource,
    ) -> Result<(), ConfigError> {
        let default = self.default_of(section, key, &place)?;
        if !same_shape(default, &value) {
            let sentence =
                format!("write {section}.{key} as {}, as in: {key} = {default}", kind(default));
            return Err(ConfigError::at(place, sentence));
        }
        self.places.insert((section.to_owned(), key.to_owned()), place);
        self.values[section][key] = value;
        Ok(())
    }

    fn check_section(&self, section: &str, place: &SettingSource) -> Result<(), ConfigError> {
        if self.values.contains_key(section) {
            return Ok(());
        }
        let meant = match nearest(section, self.values.keys()) {
            Some(name) => format!("did you mean [{name}]?"),
            None => SEE_ALL_KEYS.to_owned(),
        };
        Err(ConfigError::at(place.clone(), format!("there is no section [{section}]: {meant}")))
    }

    /// Returns the current value of a key, which has the key's type. The key must exist.
    fn default_of(
        &self,
        section: &str,
        key: &str,
        place: &SettingSource,
    ) -> Result<&Value, ConfigError> {
        let keys = self.values[section].as_table().expect("the defaults hold sections only");
        keys.get(key).ok_or_else(|| {
            let path = format!("{section}.{key}");
            let sentence = match REMOVED_KEYS.iter().find(|(removed, _)| *removed == path) {
                Some((_, why)) => format!("delete {path}, which was removed: {why}"),
                None => match nearest(key, keys.keys()) {
                    Some(name) => format!("there is no key {path}: did you mean {name}?"),
                    None => format!("there is no key {path}: {SEE_ALL_KEYS}"),
                },
            };
            ConfigError::at(place.clone(), sentence)
        })
    }
}

/// Moves a nested section to the top level under its full name: `kafka.tls`.
fn flatten(section: String, keys: Value, values: &mut Table) {
    let Value::Table(keys) = keys else {
        panic!("the defaults hold sections only");
    };
    let mut own = Table::new();
    for (key, value) in keys {
        match value {
            Value::Table(_) => flatten(format!("{section}.{key}"), value, values),
            value => drop(own.insert(key, value)),
        }
    }
    values.insert(section, Value::Table(own));
}

/// The place of a byte in a file.
fn line_place(file: &str, text: &str, offset: usize) -> SettingSource {
    let before = &text.as_bytes()[..offset.min(text.len())];
    SettingSource::Line(file.to_owned(), 1 + before.iter().filter(|byte| **byte == b'\n').count())
}

/// Returns the existing name most similar to a wrong one, if similar enough.
fn nearest<'a>(wrong: &str, names: impl Iterator<Item = &'a String>) -> Option<&'a str> {
    names
        .map(|name| (strsim::jaro_winkler(wrong, name), name.as_str()))
        .filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, name)| name)
}

/// A value without its position. Types that no key has stay strings, and fail the type check.
fn plain(value: &Spanned<DeValue<'_>>) -> Value {
    match value.get_ref() {
        DeValue::String(text) => Value::String(text.clone().into_owned()),
        DeValue::Boolean(truth) => Value::Boolean(*truth),
        DeValue::Integer(digits) => i64::from_str_radix(digits.as_str(), digits.radix())
            .map_or_else(|_| Value::Float(f64::INFINITY), Value::Integer),
        DeValue::Float(_) | DeValue::Datetime(_) => Value::Float(f64::NAN),
        DeValue::Array(items) => Value::Array(items.iter().map(plain).collect()),
        DeValue::Table(_) => Value::Table(Table::new()),
    }
}

/// Parses the text of an environment variable as the default's type.
fn parse_like(default: &Value, text: &str) -> Option<Value> {
    match default {
        Value::Integer(_) => text.trim().parse().ok().map(Value::Integer),
        Value::Boolean(_) => text.trim().parse().ok().map(Value::Boolean),
        Value::Array(_) => {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            Some(Value::Array(items.map(|item| Value::String(item.to_owned())).collect()))
        }
        _ => None,
    }
}

/// Returns whether a value has the type of the default.
fn same_shape(default: &Value, value: &Value) -> bool {
    match (default, value) {
        (Value::Array(_), Value::Array(items)) => items.iter().all(Value::is_str),
        _ => default.same_type(value),
    }
}

/// The name of a value's type, for errors.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Integer(_) => "a whole number",
        Value::Boolean(_) => "true or false",
        Value::Array(_) => "a list of texts",
        _ => "a text in quotes",
    }
}
/// Returns the variables as text. One of huntd's that is not valid text is an error.
pub(super) fn variables(
    all: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Vec<(String, String)>, ConfigErrors> {
    let (mut variables, mut errors) = (Vec::new(), Vec::new());
    for (name, text) in all {
        let (name, sentence) = match (name.into_string(), text.into_string()) {
            (Ok(name), Ok(text)) => {
                variables.push((name, text));
                continue;
            }
            (Ok(name), Err(_)) => (name, "is not UTF-8: write its value as text"),
            (Err(name), _) => {
                (name.to_string_lossy().into_owned(), "the name is not UTF-8: write it as text")
            }
        };
        if name.starts_with(VARIABLE_PREFIX) {
            errors.push(ConfigError::at(SettingSource::Variable(name), sentence.to_owned()));
        }
    }
    if errors.is_empty() { Ok(variables) } else { Err(ConfigErrors(errors)) }
}
