//! The rules that a zone may use: those that it begins with, and those that an event can switch to.
//!
//! An event names rules by their hash. The meaning of an event must not depend on who replays it,
//! so a zone stops at an event with rules that it does not have.

use crate::kit::PLAYERS_MAX;
use crate::kit::checkpoint::state_fits;
use crate::kit::clock::CLOCK_RECORDS;
use crate::kit::event::{DECODER_VERSION, JSON_DEPTH_MAX, RECORD_BYTES_MAX};
use crate::kit::game::Game;
use crate::kit::mix;
use crate::kit::state::GameState;
use crate::kit::tombstones::TOMBSTONES_MAX;
use std::fmt::Debug;
use std::sync::Arc;

/// Limit of rules files in a daemon: those that its zones began with, and those that the input has
/// switched to since the oldest snapshot.
pub(crate) const RULES_FILES_MAX: usize = 16;

/// The values of a game that its designer may change.
pub trait GameRules: Clone + Debug + Send + Sync + 'static {
    /// The game that is played by these rules.
    type Game: Game<Rules = Self>;

    /// Returns an error if no game can be played with these rules.
    fn check(&self) -> Result<(), RulesError>;

    /// Returns an error if a game that began with `other` cannot continue with these rules: its map
    /// and its tables must not change.
    fn check_beside(&self, other: &Self) -> Result<(), RulesError>;

    /// Returns the hash of everything that decides the outcome of an event: every rule, the limits
    /// and the version of the game, and [`kit_hash`].
    fn hash(&self) -> u32;
}

/// Returns the hash of everything in the kit that decides the outcome of an event: the version of
/// the decoder, and the limits.
pub fn kit_hash() -> u64 {
    let deciding = [
        DECODER_VERSION,
        RECORD_BYTES_MAX as u64,
        JSON_DEPTH_MAX as u64,
        TOMBSTONES_MAX as u64,
        CLOCK_RECORDS as u64,
    ];
    mix::hash(&deciding, 0)
}

/// A value with which no game can be played, and the constraint that it violates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RulesError {
    /// The key in the rules file.
    pub key: &'static str,
    /// The constraint.
    pub must_be: &'static str,
}

impl std::fmt::Display for RulesError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} must be {}", self.key, self.must_be)
    }
}

impl std::error::Error for RulesError {}

/// Returns an error if no game can be played with these rules, or if the state of a zone that is
/// full by them could not be stored.
pub(crate) fn check<R: GameRules>(rules: &R) -> Result<(), RulesError> {
    rules.check()?;
    check_sizes::<R::Game>(rules)
}

/// Returns the limit of players by these rules, and the rows of the numbered tables.
fn sizes<S: GameState>(rules: &S::Rules) -> (u32, Vec<u32>) {
    (S::players_max(rules), S::numbered_rows(rules))
}

/// Returns an error if the tables of a state by these rules would be empty, or too large.
pub(crate) fn check_sizes<S: GameState>(rules: &S::Rules) -> Result<(), RulesError> {
    let must_be = |key, must_be| Err(RulesError { key, must_be });
    let (players_max, numbered_rows) = sizes::<S>(rules);
    if !(1..=PLAYERS_MAX as u32).contains(&players_max) {
        return must_be("the number of players in a zone", "1..=131072");
    }
    if numbered_rows.contains(&0) {
        return must_be("the number of rows in a table", "at least 1");
    }
    if !state_fits(S::row_words_max(rules)) {
        return must_be("the state of a full zone", "at most 64 MiB");
    }
    Ok(())
}
const _: () = assert!(PLAYERS_MAX == 131_072);

/// Rules between which a zone can switch.
#[derive(Clone, Debug)]
pub struct Rulebook<R> {
    all: Arc<[HashedRules<R>]>,
}

/// Rules with their hash.
#[derive(Debug)]
pub(crate) struct HashedRules<R> {
    pub(crate) ruleset: u32,
    pub(crate) rules: Arc<R>,
}

impl<R> Clone for HashedRules<R> {
    fn clone(&self) -> HashedRules<R> {
        HashedRules { ruleset: self.ruleset, rules: self.rules.clone() }
    }
}

impl<R: GameRules> HashedRules<R> {
    fn of(rules: R) -> HashedRules<R> {
        HashedRules { ruleset: rules.hash(), rules: Arc::new(rules) }
    }
}

impl<R: GameRules> Rulebook<R> {
    /// Creates a book with the rules of new zones. Panics if [`GameRules::check`] refuses them, or
    /// if the state of a full zone could not be stored.
    pub fn of(first: R) -> Rulebook<R> {
        if let Err(error) = check(&first) {
            panic!("{error}");
        }
        Rulebook { all: Arc::new([HashedRules::of(first)]) }
    }

    /// Adds rules with which a game under the first rules can continue.
    pub fn add(&mut self, rules: R) -> Result<(), RulesError> {
        check(&rules)?;
        rules.check_beside(&self.first().rules)?;
        if sizes::<R::Game>(&rules) != sizes::<R::Game>(&self.first().rules) {
            return Err(RulesError {
                key: "the sizes of tables",
                must_be: "as in the first rules",
            });
        }
        let all = self.all.iter().cloned();
        self.all = all.chain([HashedRules::of(rules)]).collect();
        Ok(())
    }

    /// Returns the hashes of all rules, that of new zones first.
    pub fn rulesets(&self) -> impl Iterator<Item = u32> {
        self.all.iter().map(|one| one.ruleset)
    }

    /// Returns the rules of new zones.
    pub fn rules(&self) -> &R {
        &self.all[0].rules
    }

    /// Returns the rules of new zones, with their hash.
    pub(crate) fn first(&self) -> &HashedRules<R> {
        &self.all[0]
    }

    /// Returns this book, reordered so that new zones begin with the rules with this hash; `None`
    /// if it does not contain them.
    pub fn beginning_by(&self, ruleset: u32) -> Option<Rulebook<R>> {
        let first = self.find(ruleset)?;
        let others = self.all.iter().filter(|one| one.ruleset != ruleset);
        Some(Rulebook { all: std::iter::once(first).chain(others).cloned().collect() })
    }

    /// Returns the first rules of this book that another one lacks; `None` if a game can continue
    /// with that one.
    pub(crate) fn missing_in(&self, other: &Rulebook<R>) -> Option<u32> {
        self.rulesets().find(|ruleset| other.find(*ruleset).is_none())
    }

    /// Returns the rules with this hash, if the book contains them.
    pub(crate) fn find(&self, ruleset: u32) -> Option<&HashedRules<R>> {
        self.all.iter().find(|one| one.ruleset == ruleset)
    }
}
