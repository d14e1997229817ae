//! All states of a world, breadth first.

use crate::checks::Violation;
use crate::state::Model;
use crate::world::World;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

/// The result of exploring a world.
pub(crate) struct Explored {
    pub states: usize,
    pub steps: usize,
    /// Everything that has happened in it.
    pub seen: BTreeSet<&'static str>,
    /// The first violation, and the states on the shortest way to it.
    pub wrong: Option<(Violation, String)>,
}

/// Explores a world until all states are known, or something is wrong.
pub(crate) fn explore(world: World) -> Explored {
    let mut model = Model::new(world);
    // Each state, and the one from which it was reached first.
    let mut origins = HashMap::from([(model.from, model.from)]);
    let (mut level, mut steps, mut wrong) = (vec![model.from], 0, None);
    while !level.is_empty() && wrong.is_none() {
        let mut reached = Vec::new();
        for from in level {
            model.step(from);
            steps += model.next.len();
            for &to in &model.next {
                let Entry::Vacant(entry) = origins.entry(to) else { continue };
                entry.insert(from);
                reached.push(to);
                if let Err(violation) = model.check(&to) {
                    wrong = wrong.or(Some((violation, to)));
                }
            }
        }
        level = reached;
    }
    let wrong = wrong.map(|(violation, mut state)| {
        let mut way = model.describe(&state);
        while origins[&state] != state {
            state = origins[&state];
            way.insert_str(0, &model.describe(&state));
        }
        (violation, way)
    });
    Explored { states: origins.len(), steps, seen: model.seen, wrong }
}
