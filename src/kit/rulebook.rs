//! The rules that a zone may play by: those that it begins with, and those that an event can put
//! in their place.
//!
//! An event names rules by their hash. What an event means must not depend on who replays it. So a
//! zone stops at an event that names rules it does not have.

use std::fmt::Debug;
use std::sync::Arc;

/// Rules files that a daemon may know: those that its zones began with, and those that the input
/// has changed to since the oldest snapshot.
pub(crate) const RULES_FILES_MAX: usize = 16;

/// The numbers of a game that its designer may change.
pub trait GameRules: Clone + Debug {
    /// Returns an error if no game can be played by these rules.
    fn check(&self) -> Result<(), RulesError>;

    /// Returns an error if a game that began by `other` rules cannot go on by these: its map and
    /// its tables must not change.
    fn check_beside(&self, other: &Self) -> Result<(), RulesError>;

    /// Returns the hash of everything that decides what becomes of an event: every rule, the
    /// limits, and the versions of decoder and game.
    fn hash(&self) -> u32;
}

/// A value that no game can be played with, and the bound that it breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RulesError {
    /// The key as the rules file has it.
    pub key: &'static str,
    /// What it must be.
    pub must_be: &'static str,
}

impl std::fmt::Display for RulesError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} must be {}", self.key, self.must_be)
    }
}

impl std::error::Error for RulesError {}

/// Rules between which a zone can switch.
#[derive(Clone, Debug)]
pub struct Rulebook<R> {
    editions: Arc<[Edition<R>]>,
}

/// Rules with their hash.
#[derive(Debug)]
pub(crate) struct Edition<R> {
    pub(crate) ruleset: u32,
    pub(crate) rules: Arc<R>,
}

impl<R> Clone for Edition<R> {
    fn clone(&self) -> Edition<R> {
        Edition { ruleset: self.ruleset, rules: self.rules.clone() }
    }
}

impl<R: GameRules> Edition<R> {
    fn of(rules: R) -> Edition<R> {
        Edition { ruleset: rules.hash(), rules: Arc::new(rules) }
    }
}

impl<R: GameRules> Rulebook<R> {
    /// A book of the rules that a new zone plays by. Panics if [`GameRules::check`] refuses them.
    pub fn of(first: R) -> Rulebook<R> {
        if let Err(error) = first.check() {
            panic!("{error}");
        }
        Rulebook { editions: Arc::new([Edition::of(first)]) }
    }

    /// Adds rules that a game under the first can go on by.
    pub fn add(&mut self, rules: R) -> Result<(), RulesError> {
        rules.check()?;
        rules.check_beside(&self.first().rules)?;
        let editions = self.editions.iter().cloned();
        self.editions = editions.chain([Edition::of(rules)]).collect();
        Ok(())
    }

    /// Returns the hashes of all rules, that of a new zone's first.
    pub fn rulesets(&self) -> impl Iterator<Item = u32> {
        self.editions.iter().map(|edition| edition.ruleset)
    }

    /// Returns what a new zone plays by.
    pub(crate) fn first(&self) -> &Edition<R> {
        &self.editions[0]
    }

    /// Returns this book, reordered so that a new zone begins by the rules with this hash; `None`:
    /// it does not have them.
    pub fn beginning_by(&self, ruleset: u32) -> Option<Rulebook<R>> {
        let first = self.find(ruleset)?;
        let others = self.editions.iter().filter(|edition| edition.ruleset != ruleset);
        Some(Rulebook { editions: std::iter::once(first).chain(others).cloned().collect() })
    }

    /// Returns the first rules of this book that another one lacks; `None`: a game can go on with
    /// that one.
    pub(crate) fn missing_in(&self, other: &Rulebook<R>) -> Option<u32> {
        self.rulesets().find(|ruleset| other.find(*ruleset).is_none())
    }

    /// Returns the rules with this hash, if the book has them.
    pub(crate) fn find(&self, ruleset: u32) -> Option<&Edition<R>> {
        self.editions.iter().find(|edition| edition.ruleset == ruleset)
    }
}
