//! The rules that a shard may play by: those that it begins with, and those that an event can put
//! in their place.
//!
//! An event names rules by their hash. What an event means must not depend on who replays it. So a
//! shard stops at an event that names rules it does not have.

use crate::hunt::change::Change;
use crate::hunt::rules::motion::Allowance;
use crate::hunt::rules::{Rules, RulesError};
use crate::hunt::{EventOutput, Outcome, Shard};
use std::sync::Arc;

/// Rules files that a daemon may know: those that its zones began with, and those that the input
/// has changed to since the oldest snapshot.
pub(crate) const RULES_FILES_MAX: usize = 16;

/// Rules that a shard can go from one to another of.
#[derive(Clone, Debug)]
pub struct Rulebook {
    editions: Arc<[Edition]>,
}

/// Rules with their hash.
#[derive(Clone, Debug)]
pub(crate) struct Edition {
    pub(crate) ruleset: u32,
    pub(crate) rules: Arc<Rules>,
}

impl Edition {
    fn of(rules: Rules) -> Edition {
        Edition { ruleset: rules.hash(), rules: Arc::new(rules) }
    }
}

impl Rulebook {
    /// A book of the rules that a new zone plays by. Panics if [`Rules::check`] finds fault with
    /// them.
    pub fn of(first: Rules) -> Rulebook {
        if let Err(error) = first.check() {
            panic!("{error}");
        }
        Rulebook { editions: Arc::new([Edition::of(first)]) }
    }

    /// Adds rules that a game under the first can go on by.
    pub fn add(&mut self, rules: Rules) -> Result<(), RulesError> {
        rules.check()?;
        rules.check_beside(&self.first().rules)?;
        let editions = self.editions.iter().cloned();
        self.editions = editions.chain([Edition::of(rules)]).collect();
        Ok(())
    }

    /// The hashes of all rules, that of a new zone's first.
    pub fn rulesets(&self) -> impl Iterator<Item = u32> {
        self.editions.iter().map(|edition| edition.ruleset)
    }

    /// What a new zone plays by.
    pub(crate) fn first(&self) -> &Edition {
        &self.editions[0]
    }

    /// This book, reordered so that a new zone begins by the rules with this hash; `None`: they are
    /// not in it.
    pub fn beginning_by(&self, ruleset: u32) -> Option<Rulebook> {
        let first = self.find(ruleset)?;
        let others = self.editions.iter().filter(|edition| edition.ruleset != ruleset);
        Some(Rulebook { editions: std::iter::once(first).chain(others).cloned().collect() })
    }

    /// The first rules of this book that another one lacks; `None`: a game can go on with that one.
    pub(crate) fn missing_in(&self, other: &Rulebook) -> Option<u32> {
        self.rulesets().find(|ruleset| other.find(*ruleset).is_none())
    }

    /// The rules with this hash; `None`: they are not in the book.
    pub(crate) fn find(&self, ruleset: u32) -> Option<&Edition> {
        self.editions.iter().find(|edition| edition.ruleset == ruleset)
    }
}

impl Shard {
    pub(crate) fn on_rules_change(&mut self, ruleset: u32, out: &mut EventOutput) -> Outcome {
        if ruleset == self.ruleset {
            return Outcome::NoOp;
        }
        let Some(edition) = self.rulebook.find(ruleset).cloned() else {
            return Outcome::RulesMissing { ruleset };
        };
        self.play_by(edition);
        out.push(0, Change::RulesChanged { ruleset });
        Outcome::Applied
    }

    pub(crate) fn play_by(&mut self, Edition { ruleset, rules }: Edition) {
        self.paces = Allowance::both(&rules);
        (self.ruleset, self.rules) = (ruleset, rules);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hunt::rules::tests::sample;

    #[test]
    fn rules_of_another_map_do_not_fit_into_one_book() {
        let mut faster = sample();
        faster.world.speed_cm_per_s_max += 100;
        let mut book = Rulebook::of(sample());
        assert_eq!(book.add(faster.clone()), Ok(()));
        let mut larger = faster.clone();
        larger.world.tiles_per_side *= 2;
        assert_eq!(book.add(larger).unwrap_err().key, "world.tiles_per_side");
        assert_eq!(book.rulesets().collect::<Vec<_>>(), [sample().hash(), faster.hash()]);
    }

    #[test]
    fn a_game_can_go_on_with_a_book_that_lacks_none_of_its_rules() {
        let with_health = |health: u16| {
            let mut rules = sample();
            rules.actors.health = health;
            rules
        };
        let book = |healths: &[u16]| {
            let mut book = Rulebook::of(with_health(healths[0]));
            healths[1..].iter().for_each(|health| book.add(with_health(*health)).unwrap());
            book
        };
        let before = book(&[100, 90]);
        for (after, missing) in
            [(&[100, 90][..], None), (&[80, 90, 100], None), (&[100, 80], Some(90))]
        {
            let missing = missing.map(|health| with_health(health).hash());
            assert_eq!(before.missing_in(&book(after)), missing, "{after:?}");
        }
    }
}
