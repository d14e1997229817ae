//! Rules for tests of the engine, which reads no file.

use super::*;

/// What `config/rules.toml` says, in short.
pub(crate) fn sample() -> Rules {
    let effect = |lasts_ms, percent| EffectRules { lasts_ms, lasts_ms_max: 30_000, percent };
    let item = |does| Item { stack_max: 3, does };
    Rules {
        world: World {
            tile_cm: 1024,
            tiles_per_side: 256,
            speed_cm_per_s_max: 2500,
            speed_burst_ms: 2000,
            walls: Vec::new(),
        },
        actors: ActorRules {
            count_max: 131_072,
            per_tile_max: 64,
            health: 100,
            respawn_ms: 5000,
            downed_points: 50,
        },
        hunts: HuntRules {
            treasures_max: 4096,
            duration_ms_max: 3_600_000,
            reach_cm: 1536,
            finish_treasures: 3,
            prizes: [1000, 500, 250],
        },
        points: vec![Points { points: 100, weight: 3 }, Points { points: 250, weight: 1 }],
        finds: (0..6).map(|item| Find { item, weight: 10 }).collect(),
        weapons: vec![
            Weapon { damage: 20, range_cm: 4000, radius_cm: 60, reload_ms: 400 },
            Weapon { damage: 35, range_cm: 10_000, radius_cm: 50, reload_ms: 900 },
            Weapon { damage: 50, range_cm: 1500, radius_cm: 150, reload_ms: 1500 },
        ],
        items: vec![
            item(ItemUse::Start(Effect::Haste)),
            item(ItemUse::Start(Effect::Shield)),
            item(ItemUse::Start(Effect::Compass)),
            item(ItemUse::Start(Effect::DoubleLoot)),
            item(ItemUse::Heal(50)),
        ],
        effects: [effect(1000, 150), effect(2000, 50), effect(9000, 100), effect(3000, 200)],
    }
}

#[test]
fn the_hash_of_the_rules_is_the_same_on_every_machine() {
    assert_eq!(sample().hash(), sample().hash());
    let mut other = sample();
    other.effects[3].percent += 1;
    assert_ne!(other.hash(), sample().hash());
}
