//! The rules that a zone of the hunt may use.

use crate::hunt::Shard;
use crate::hunt::rules::Rules;
use crate::kit::checkpoint::StateError;
use crate::kit::engine::ZoneDecoder;

/// Rules of the hunt between which a zone can switch.
pub type Rulebook = crate::kit::rulebook::Rulebook<Rules>;

impl ZoneDecoder for Rulebook {
    type Zone = Shard;

    fn decode_zone(&self, bytes: &[u8]) -> Result<Box<Shard>, StateError> {
        Shard::decode_state(bytes, self).map(Box::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hunt::rules::tests::sample;
    use crate::kit::rulebook::GameRules;

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
