//! A version of a game as a program plays it: the one value by which the verbs know a game.

use crate::kit::bots::{BotOptions, Bots, SplitMix64};
use crate::kit::rulebook::{self, GameRules, Rulebook, RulesError};
use crate::kit::update::Update;
use crate::runtime::regular_file::{RegularFileError, read_text};
use crate::view::game::{ViewSchema, Viewed, ViewedGame};
use serde::de::DeserializeOwned;
use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Limit of a file of rules, or of a file that they name, in bytes: four times the map of the
/// largest zone that a game is expected to have.
const RULES_BYTES_MAX: u64 = 1 << 20;

/// A game that a program can play: what it needs beside the game itself.
pub trait Playable: Viewed<Rules: GameRules<Game = Self>> {
    /// The name of the game.
    const NAME: &'static str;

    /// The built-in rules, as the text of a rules file.
    const BUILT_IN_RULES: &'static str;

    /// Reads rules from the text of a rules file.
    fn read_rules(text: &str, beside: &RulesFolder) -> Result<Self::Rules, RulesFileError>;

    /// Returns players for `load` and `demo`; `None`: the game has none, so that the events come
    /// from a file.
    fn bots(
        _: &Rulebook<Self::Rules>,
        _: &BotOptions,
        _: &mut SplitMix64,
    ) -> Option<Box<dyn Bots>> {
        None
    }

    /// Describes an update for people who watch a demo, with its rarity: of several updates, the
    /// rarest is shown.
    fn describe(_: &Update) -> Option<(u8, String)> {
        None
    }
}

/// Reads the rules in files.
type ReadRulebook = fn(&[PathBuf]) -> Result<Arc<dyn ViewedGame>, String>;

/// Makes the players of a game, by its rules.
type MakeBots = fn(&dyn ViewedGame, &BotOptions, &mut SplitMix64) -> Option<Box<dyn Bots>>;

/// A version of a game, for holders that do not know the game.
#[derive(Clone, Copy, Debug)]
pub struct Edition {
    /// The name of the game.
    pub name: &'static str,
    /// The version of the game.
    pub version: u32,
    /// The tables of the game.
    pub schema: &'static ViewSchema,
    /// Describes an update in words, as in [`Playable::describe`].
    pub(crate) describe: fn(&Update) -> Option<(u8, String)>,
    rulebook: ReadRulebook,
    bots: MakeBots,
}

/// Returns this version of a game.
pub fn edition<G: Playable>() -> Edition {
    Edition {
        name: G::NAME,
        version: G::VERSION,
        schema: G::SCHEMA,
        describe: G::describe,
        rulebook: |files| Ok(Arc::new(rulebook::<G>(files)?)),
        bots: |rulebook, options, chance| {
            let rulebook = (rulebook as &dyn Any).downcast_ref::<Rulebook<G::Rules>>();
            G::bots(rulebook.expect("the rulebook is of this game"), options, chance)
        },
    }
}

impl PartialEq for Edition {
    /// Returns whether both are the same version of the same game.
    fn eq(&self, other: &Edition) -> bool {
        (self.name, self.version) == (other.name, other.version)
    }
}

impl Eq for Edition {}

impl Edition {
    /// Reads the rules in these files, the first for new zones; without files, the built-in ones.
    /// An error has a line for each invalid file.
    pub(crate) fn rulebook(&self, files: &[PathBuf]) -> Result<Arc<dyn ViewedGame>, String> {
        (self.rulebook)(files)
    }

    /// Returns players who play by these rules of the game, as in [`Playable::bots`].
    pub(crate) fn bots(
        &self,
        rulebook: &dyn ViewedGame,
        options: &BotOptions,
        chance: &mut SplitMix64,
    ) -> Option<Box<dyn Bots>> {
        (self.bots)(rulebook, options, chance)
    }
}

/// Reads the rules in these files, as in [`Edition::rulebook`].
fn rulebook<G: Playable>(files: &[PathBuf]) -> Result<Rulebook<G::Rules>, String> {
    let sentence = |(file, error): &(&Path, RulesFileError)| match error {
        RulesFileError::Read { .. } => error.to_string(),
        _ => format!("{}: {error}", file.display()),
    };
    load_all::<G>(files)
        .map_err(|errors| errors.iter().map(sentence).collect::<Vec<_>>().join("\n"))
}

/// Reads the rules in these files, as in [`Edition::rulebook`]. Each error comes with its file.
pub fn load_all<G: Playable>(
    files: &[PathBuf],
) -> Result<Rulebook<G::Rules>, Vec<(&Path, RulesFileError)>> {
    let mut rulebook = files.is_empty().then(|| Rulebook::of(built_in::<G>()));
    let mut errors = Vec::new();
    for file in files {
        let added = load::<G>(file).and_then(|rules| match &mut rulebook {
            Some(rulebook) => Ok(rulebook.add(rules)?),
            None => {
                rulebook = Some(Rulebook::of(rules));
                Ok(())
            }
        });
        errors.extend(added.err().map(|error| (file.as_path(), error)));
    }
    match rulebook {
        Some(rulebook) if errors.is_empty() => Ok(rulebook),
        _ => Err(errors),
    }
}

/// Returns the built-in rules of a game.
pub fn built_in<G: Playable>() -> G::Rules {
    parse::<G>(G::BUILT_IN_RULES, Path::new("")).expect("the built-in rules are valid")
}

/// Reads the rules in a file.
fn load<G: Playable>(path: &Path) -> Result<G::Rules, RulesFileError> {
    parse::<G>(&read(path)?, path.parent().unwrap_or(Path::new("")))
}

/// Reads and checks the rules in a text; they may name files in this folder.
pub(crate) fn parse<G: Playable>(text: &str, folder: &Path) -> Result<G::Rules, RulesFileError> {
    let rules = G::read_rules(text, &RulesFolder(folder.to_owned()))?;
    rulebook::check(&rules)?;
    Ok(rules)
}

fn read(path: &Path) -> Result<String, RulesFileError> {
    read_text(path, RULES_BYTES_MAX)
        .map_err(|source| RulesFileError::Read { path: path.to_owned(), source })
}

/// The folder of a rules file, which may name further files.
#[derive(Debug)]
pub struct RulesFolder(PathBuf);

impl RulesFolder {
    /// Returns the text of a file whose path is relative to the folder.
    pub fn read(&self, path: &Path) -> Result<String, RulesFileError> {
        read(&self.0.join(path))
    }
}

/// Why the rules cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RulesFileError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}; check the path and its permissions")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: RegularFileError,
    },
    /// The file is not valid TOML, or has other keys than the rules.
    #[error("line {line} of the rules is not valid: {message}; correct it in the rules file")]
    Syntax {
        /// Line number, from 1.
        line: usize,
        /// The parser's reason.
        message: String,
    },
    /// A value with which no game can be played.
    #[error("the rules are not valid: {0}; change it in the rules file")]
    Value(#[from] RulesError),
    /// What only this game demands of its rules, as a sentence.
    #[error("{0}; change it in the rules file")]
    Own(String),
}

/// Parses the text of a rules file, which is TOML.
pub fn from_toml<T: DeserializeOwned>(text: &str) -> Result<T, RulesFileError> {
    toml::from_str(text).map_err(|error| {
        let before = &text.as_bytes()[..error.span().map_or(0, |span| span.start)];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        // serde's message may have several lines.
        RulesFileError::Syntax { line, message: error.message().replace('\n', ", ") }
    })
}
