//! Rules for tests of the engine, which reads no file.

use super::*;

/// The rules of `config/rules.toml`, abridged.
pub(crate) fn sample() -> Rules {
    let effect = |lasts_ms, percent| EffectRules { lasts_ms, lasts_ms_max: 30_000, percent };
    let item = |does| Item { stack_max: 3, does };
    Rules {
        world: Map {
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
fn each_rule_changes_the_hash_in_a_way_of_its_own() {
    let changes: [fn(&mut Rules); 36] = [
        |_| {},
        |rules| rules.world.tile_cm *= 2,
        |rules| rules.world.tiles_per_side /= 2,
        |rules| rules.world.speed_cm_per_s_max += 1,
        |rules| rules.world.speed_burst_ms += 1,
        |rules| rules.world.walls = vec![0; 1024],
        |rules| rules.world.walls = vec![1; 1024],
        |rules| rules.actors.count_max -= 1,
        |rules| rules.actors.per_tile_max += 1,
        |rules| rules.actors.health += 1,
        |rules| rules.actors.respawn_ms += 1,
        |rules| rules.actors.downed_points += 1,
        |rules| rules.hunts.treasures_max -= 1,
        |rules| rules.hunts.duration_ms_max += 1,
        |rules| rules.hunts.reach_cm += 1,
        |rules| rules.hunts.finish_treasures += 1,
        |rules| rules.hunts.prizes[0] += 1,
        |rules| rules.hunts.prizes[1] += 1,
        |rules| rules.hunts.prizes[2] += 1,
        |rules| rules.points[1].points += 1,
        |rules| rules.points[1].weight += 1,
        |rules| rules.points.truncate(1),
        |rules| rules.finds[2].item += 1,
        |rules| rules.finds[2].weight += 1,
        |rules| rules.finds.truncate(5),
        |rules| rules.weapons[1].damage += 1,
        |rules| rules.weapons[1].range_cm += 1,
        |rules| rules.weapons[1].radius_cm += 1,
        |rules| rules.weapons[1].reload_ms += 1,
        |rules| rules.weapons.truncate(2),
        |rules| rules.items[0].stack_max += 1,
        |rules| rules.items[0].does = ItemUse::Start(Effect::Shield),
        |rules| rules.items[4].does = ItemUse::Heal(51),
        |rules| rules.effects[1].lasts_ms += 1,
        |rules| rules.effects[2].lasts_ms_max += 1,
        |rules| rules.effects[3].percent += 1,
    ];
    let mut hashes = changes.map(|change| {
        let mut rules = sample();
        change(&mut rules);
        rules.hash()
    });
    hashes.sort_unstable();
    assert!(hashes.array_windows().all(|[one, next]| one != next), "two have the same hash");
}
