//! Brokers whose word about the partitions that they lead is doubted.
//!
//! A broker that no controller reaches leads for ever by its own word, and its log may have ended
//! where it was cut off. What it says of an offset counts once another broker has said who leads.

use std::cell::RefCell;

/// The brokers in doubt, in the order in which they made a claim.
#[derive(Default)]
pub(crate) struct DoubtedBrokers(RefCell<Vec<i32>>);

impl DoubtedBrokers {
    /// A broker has made a claim, and has to be doubted until another one has been asked.
    pub(crate) fn doubt(&self, node_id: i32) {
        if !self.contain(node_id) {
            self.0.borrow_mut().push(node_id);
        }
    }

    /// Another broker has said who leads, or the cluster does not have this one any more.
    pub(crate) fn settle(&self, node_id: i32) {
        self.0.borrow_mut().retain(|doubted| *doubted != node_id);
    }

    /// Whether no other broker has been asked since this one made a claim.
    pub(crate) fn contain(&self, node_id: i32) -> bool {
        self.0.borrow().contains(&node_id)
    }

    /// The first broker in doubt that the cluster still has. Those that it has not are forgotten.
    pub(crate) fn first_of(&self, is_there: impl Fn(i32) -> bool) -> Option<i32> {
        let mut doubted = self.0.borrow_mut();
        doubted.retain(|node_id| is_there(*node_id));
        doubted.first().copied()
    }
}
