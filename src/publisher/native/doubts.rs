//! Leaders that do not do what leaders do: others are asked about each of them in turn.

use std::collections::VecDeque;

/// Leaders in doubt, each once, in the order in which the others are to be asked about them.
#[derive(Default)]
pub(super) struct Doubts(VecDeque<i32>);

impl Doubts {
    /// Others have to be asked about this leader.
    pub(super) fn add(&mut self, node_id: i32) {
        if !self.0.contains(&node_id) {
            self.0.push_back(node_id);
        }
    }

    /// The leader has answered.
    pub(super) fn settle(&mut self, node_id: i32) {
        self.0.retain(|doubted| *doubted != node_id);
    }

    /// The next one to ask about. It is in doubt no more until it is added again.
    pub(super) fn take(&mut self) -> Option<i32> {
        self.0.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_that_is_doubted_all_the_time_leaves_others_their_turn() {
        let mut doubts = Doubts::default();
        let mut asked = Vec::new();
        for _ in 0..4 {
            [1, 1, 2].into_iter().for_each(|node_id| doubts.add(node_id));
            asked.extend(doubts.take());
            doubts.add(1);
        }
        assert_eq!(asked, [1, 2, 1, 2]);
        doubts.settle(1);
        assert_eq!(doubts.take(), None);
    }
}
