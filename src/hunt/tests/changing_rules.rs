//! Rules that change during a game.

use super::script::{Game, plain, rules};
use crate::hunt::event::Action;
use crate::hunt::rules::rulebook::Rulebook;
use crate::kit::rulebook::GameRules;

/// A game whose rules can change, and the rulesets before and after.
fn game() -> (Game, u32, u32) {
    let before = rules();
    let mut after = rules();
    after.actors.health = 80;
    after.weapons[0].damage = 70;
    after.items[4].does = crate::hunt::rules::ItemUse::Heal(5);
    let (first, second) = (before.hash(), after.hash());
    let mut rulebook = Rulebook::of(before);
    rulebook.add(after).expect("the map is the same");
    (Game::by(0, &rulebook), first, second)
}

#[test]
fn what_happens_after_a_change_happens_by_the_new_rules() {
    let (mut game, first, second) = game();
    game.check(&format!(
        "1 join x=5000 y=5000
         > 1 joined health=100 x=5000 y=5000
         2 join x=6000 y=5000
         > 2 joined health=100 x=6000 y=5000
         1 shoot weapon=0 heading=0
         > 1 shot weapon=0 heading=0 distance_cm=1000 target=2
         > 2 damaged weapon=0 damage=20 health=80 by=1
         0 rules_change ruleset={second}
         > 0 rules_changed ruleset={second}
         wait 1000
         1 shoot weapon=0 heading=0
         > 1 shot weapon=0 heading=0 distance_cm=1000 target=2
         > 2 damaged weapon=0 damage=70 health=10 by=1
         3 join x=100 y=100
         > 3 joined health=80 x=100 y=100
         # By these the game goes already.
         0 rules_change ruleset={second}
         0 rules_change ruleset={first}
         > 0 rules_changed ruleset={first}
         4 join x=100 y=100
         > 4 joined health=100 x=100 y=100"
    ));
}

#[test]
fn health_above_the_new_maximum_is_kept_and_needs_no_medkit() {
    let (mut game, _, second) = game();
    game.check(&format!(
        "1 arrive x=5000 y=5000 from_zone=1 crossing=1 last_seq=5 item=5 count=2
         > 1 arrived from_zone=1 crossing=1 x=5000 y=5000
         > 1 item_gained item=5 gained=2 held=2
         0 rules_change ruleset={second}
         > 0 rules_changed ruleset={second}
         1 use item=5 seq=6
         > 1 refused reason=item_useless action=use seq=6"
    ));
}

/// Treasures found before the change keep their points.
#[test]
fn a_hunt_under_way_goes_on_by_the_new_rules() {
    let before = plain();
    let mut after = plain();
    after.points[0].points = 500;
    after.hunts.finish_treasures = 1;
    after.hunts.prizes = [300, 0, 0];
    let ruleset = after.hash();
    let mut rulebook = Rulebook::of(before);
    rulebook.add(after).expect("the map is the same");
    Game::by(0, &rulebook).check(&format!(
        "1 join x=7000 y=3584
         > 1 joined health=100 x=7000 y=3584
         2 join x=13824 y=9728
         > 2 joined health=100 x=13824 y=9728
         0 hunt_start hunt=3 seed=9 treasures=2 duration_ms=60000
         > 0 hunt_started treasures=2 hunt=3 duration_ms=60000
         > 0 treasure_laid treasure=0 hunt=3 x=7680 y=3584
         > 0 treasure_laid treasure=1 hunt=3 x=13824 y=9728
         1 loot
         > 1 looted doubled=false treasure=0 hunt=3 points=100 elapsed_ms=0
         > 1 scored cause=loot points=100 score=100
         0 rules_change ruleset={ruleset}
         > 0 rules_changed ruleset={ruleset}
         2 loot
         > 2 looted doubled=false treasure=1 hunt=3 points=500 elapsed_ms=0
         > 2 scored cause=loot points=500 score=500
         > 0 hunt_ended cause=all_found opened=2 hunt=3 finishers=1 elapsed_ms=0
         > 2 finished found=1 hunt=3 rank=1 elapsed_ms=0
         > 2 scored cause=prize points=300 score=800"
    ));
}

#[test]
fn nothing_follows_a_change_to_rules_that_are_not_loaded() {
    let (mut game, first, _) = game();
    assert!(game.apply(0, 0, Action::RulesChange { ruleset: first ^ 1 }).is_empty());
    assert_eq!(game.shard.ruleset(), first);
}
