//! A model of ownership, apart from the daemon's code: the instances around one zone, its output,
//! and all that the protocol lets happen, in every order.
//!
//! Each world is explored whole, and states are compared whole: the small ones by
//! `cargo test --test model`, and with `CI=true` the larger ones, too. If a state is wrong, the
//! shortest way to it is printed. docs/SIMULATOR.md says what is checked, and what is not there.

mod checks;
mod explore;
mod output;
mod owner;
mod state;
mod steps;
mod world;

use explore::{Explored, explore};
use std::collections::BTreeSet;
use support::needs;
use world::{Budget, Mutation, World};

/// A world, and how large it is.
struct Explorable {
    world: World,
    states: usize,
    steps: usize,
}

const NONE: Budget = Budget { bids: 0, kills: 0, failures: 0, repeats: 0, notes: 0, snapshots: 0 };

const SMALLEST: World = World {
    updates: &[1, 1],
    beside: 0b01,
    differs_at: None,
    instances: 2,
    frames: 1,
    budget: NONE,
    mutation: Mutation::None,
};

/// Frames fail, and records are repeated.
const FAULTS: Explorable = Explorable {
    world: World {
        frames: 2,
        budget: Budget { bids: 2, failures: 1, repeats: 1, snapshots: 1, ..NONE },
        ..SMALLEST
    },
    states: 714_916,
    steps: 2_530_027,
};

/// Notes are anywhere in the output.
const NOTES: Explorable = Explorable {
    world: World { budget: Budget { bids: 2, kills: 1, notes: 2, ..NONE }, ..SMALLEST },
    states: 1_385_450,
    steps: 5_574_725,
};

/// The zone moves to and fro.
const RETURNS: Explorable = Explorable {
    world: World { updates: &[1, 2], beside: 0, budget: Budget { bids: 4, ..NONE }, ..SMALLEST },
    states: 1_613_940,
    steps: 4_792_437,
};

/// The engine of one instance differs.
const OTHER_ENGINE: Explorable = Explorable {
    world: World {
        updates: &[1, 1, 1],
        beside: 0,
        differs_at: Some(1),
        frames: 2,
        budget: Budget { bids: 3, ..NONE },
        ..SMALLEST
    },
    states: 2_154_429,
    steps: 6_699_736,
};

/// The zone moves, and an instance is killed.
const MOVE: Explorable = Explorable {
    world: World {
        updates: &[1, 0, 2],
        beside: 0b101,
        frames: 2,
        budget: Budget { bids: 2, kills: 1, snapshots: 1, ..NONE },
        ..SMALLEST
    },
    states: 5_421_171,
    steps: 26_725_677,
};

/// Two instances are killed.
const KILLS: Explorable = Explorable {
    world: World { budget: Budget { bids: 3, kills: 2, snapshots: 1, ..NONE }, ..SMALLEST },
    states: 13_659_046,
    steps: 62_412_305,
};

/// Two followers bid beside an owner that lives.
const RIVALS: Explorable = Explorable {
    world: World { beside: 0b10, instances: 3, budget: Budget { bids: 3, ..NONE }, ..SMALLEST },
    states: 7_206_941,
    steps: 33_685_107,
};

/// Everything that must happen in one of the small worlds: a check of a case that never occurs
/// shows nothing.
const SIGHTS: [&str; 20] = [
    "a cold follower promoted",
    "a failed frame",
    "a follower that lags promoted",
    "a foreign span passed",
    "a former owner ahead of the output",
    "a handoff or dead letter sent again",
    "a late fence in force",
    "a late frame accepted",
    "a late frame after a gap",
    "a lost bid",
    "a note",
    "a second bid",
    "a settled offset committed",
    "a snapshot stored",
    "a stale frame",
    "a warm follower promoted",
    "an engine that has diverged",
    "an owner that is answered after a fence",
    "an owner that reads a fence",
    "two owners",
];

/// Explores a world in which nothing may be wrong.
fn explore_right(world: World) -> Explored {
    let explored = explore(world);
    if let Some((violation, way)) = &explored.wrong {
        panic!("{way}{violation}");
    }
    explored
}

/// Explores a world, which must be as large as it is said to be, and returns what happens in it.
fn explore_whole(right: Explorable) -> BTreeSet<&'static str> {
    let explored = explore_right(right.world);
    assert_eq!((explored.states, explored.steps), (right.states, right.steps));
    explored.seen
}

#[test]
fn nothing_is_wrong_in_any_state_of_a_small_world() {
    let seen = [FAULTS, NOTES, RETURNS, OTHER_ENGINE].into_iter().flat_map(explore_whole);
    assert_eq!(seen.collect::<BTreeSet<_>>(), BTreeSet::from(SIGHTS));
}

#[test]
fn nothing_is_wrong_in_any_state_of_a_larger_world() {
    if needs::has_minutes() {
        for right in [MOVE, KILLS, RIVALS] {
            explore_whole(right);
        }
    }
}

#[test]
fn owners_that_never_notice_a_fence_break_nothing() {
    for Explorable { world, .. } in [FAULTS, NOTES, RETURNS, OTHER_ENGINE] {
        explore_right(World { mutation: Mutation::NeverDemoted, ..world });
    }
}

#[test]
fn every_broken_protocol_is_noticed() {
    let published_again = "a frame has only updates that were published";
    let broken = [
        (Mutation::FollowerAppliesAhead, FAULTS, "the owner never publishes an event"),
        (Mutation::PromotedBeforeReadThrough, FAULTS, published_again),
        (Mutation::SecondFenceTaken, FAULTS, published_again),
        (Mutation::SecondFenceTaken, OTHER_ENGINE, published_again),
        (Mutation::BesideForgotten, FAULTS, "a follower forgets a handoff or dead letter"),
        (Mutation::FramesTakenForSettled, FAULTS, "a handoff or dead letter is lost and settled"),
        (Mutation::AheadOwnerBids, RETURNS, "the owner never publishes an event"),
        (Mutation::CoverUnchecked, OTHER_ENGINE, "a reader halts at a frame with another chain"),
        (Mutation::AnyOwnerEpoch, FAULTS, published_again),
        (Mutation::AnyOwnerEpoch, OTHER_ENGINE, published_again),
        (Mutation::GapCovers, FAULTS, "readers miss updates before their offset"),
        (Mutation::Ungated, FAULTS, "a snapshot is ahead of the output"),
    ];
    for (mutation, Explorable { world, .. }, expected) in broken {
        let found = explore(World { mutation, ..world }).wrong.map(|(violation, _)| violation);
        assert_eq!(found, Some(expected), "{mutation:?}");
    }
}
