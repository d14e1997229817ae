//! Leaders that may have been replaced without knowing it: other brokers are asked about each of
//! them in turn.

use std::collections::VecDeque;

/// Suspect leaders, each once, in the order of the questions about them.
#[derive(Default)]
pub(super) struct SuspectLeaders(VecDeque<i32>);

impl SuspectLeaders {
    /// Adds a leader that other brokers have to be asked about.
    pub(super) fn add(&mut self, node_id: i32) {
        if !self.0.contains(&node_id) {
            self.0.push_back(node_id);
        }
    }

    /// Removes a leader that has answered.
    pub(super) fn settle(&mut self, node_id: i32) {
        self.0.retain(|suspect| *suspect != node_id);
    }

    /// Takes the next leader to ask about.
    pub(super) fn take(&mut self) -> Option<i32> {
        self.0.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_that_is_suspect_all_the_time_leaves_others_their_turn() {
        let mut suspects = SuspectLeaders::default();
        let mut asked = Vec::new();
        for _ in 0..4 {
            [1, 1, 2].into_iter().for_each(|node_id| suspects.add(node_id));
            asked.extend(suspects.take());
            suspects.add(1);
        }
        assert_eq!(asked, [1, 2, 1, 2]);
        suspects.settle(1);
        assert_eq!(suspects.take(), None);
    }
}
