//! The board of a zone: who has how many points, and who had them first.

use super::script::{Game, rules};
use crate::engine::leaderboard::Rank;

/// Rank, player and score of each.
fn told(standings: impl IntoIterator<Item = Rank>) -> Vec<(u32, u64, u64)> {
    let told = |standing: Rank| (standing.rank, standing.player_id, standing.score);
    standings.into_iter().map(told).collect()
}

/// A game of four: 9 has 200 points, 5 and 3 have 100 each, in this order, 4 has none.
fn game() -> Game {
    let mut rules = rules();
    rules.weapons[0].damage = 100;
    let mut game = Game::new(rules);
    game.play("5 arrive x=15000 y=15000 crossing=1 score=100");
    game.play("3 arrive x=500 y=500 crossing=1 score=100");
    game.play("9 arrive x=15000 y=500 crossing=1 score=200");
    game.play("4 join x=1500 y=500");
    game
}

#[test]
fn of_equal_scores_the_one_that_was_reached_by_the_earlier_event_stands_higher() {
    let mut game = game();
    let all = |game: &Game| told(game.shard.standings(1, 10));
    assert_eq!(all(&game), [(1, 9, 200), (2, 5, 100), (3, 3, 100), (4, 4, 0)]);
    game.check(
        "3 shoot weapon=0 heading=0
         > 3 shot weapon=0 heading=0 distance_cm=1000 target=4
         > 4 damaged weapon=0 damage=100 health=0 by=3
         > 4 downed weapon=0 respawn_ms=5000 by=3
         > 3 scored cause=downed points=50 score=150",
    );
    assert_eq!(all(&game), [(1, 9, 200), (2, 3, 150), (3, 5, 100), (4, 4, 0)]);
    // Later than 3, to as many.
    game.play("5 arrive x=0 y=0 crossing=2 last_seq=1 score=50");
    assert_eq!(all(&game), [(1, 9, 200), (2, 3, 150), (3, 5, 150), (4, 4, 0)]);
}

#[test]
fn who_leaves_is_on_the_board_no_more_and_the_others_move_up() {
    let mut game = game();
    game.play("9 leave");
    assert_eq!(told(game.shard.standings(1, 10)), [(1, 5, 100), (2, 3, 100), (3, 4, 0)]);
    assert_eq!(game.shard.standing(9), None);
    assert_eq!(game.shard.players(), 3);
}

#[test]
fn a_page_begins_at_a_rank_and_ends_with_the_board() {
    let Game { shard, .. } = game();
    assert_eq!(told(shard.standings(2, 2)), [(2, 5, 100), (3, 3, 100)]);
    assert_eq!(told(shard.standings(4, 9)), [(4, 4, 0)]);
    assert_eq!(told(shard.standings(5, 9)), []);
}
