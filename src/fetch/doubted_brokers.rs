//! Brokers whose word about the partitions that they lead is doubted.
//!
//! A broker that no controller reaches leads for ever by its own word, and its log may have ended
//! where it was cut off. What it says of an offset counts once another broker has said who leads.

use std::cell::RefCell;

/// The brokers in doubt, in the order in which they made a claim.
#[derive(Default)]
pub(crate) struct DoubtedBrokers(RefCell<Vec<DoubtedBroker>>);

#[derive(Clone, Copy)]
struct DoubtedBroker {
    node_id: i32,
    /// What it has made a claim about.
    partition: i32,
}

impl DoubtedBrokers {
    /// A broker has made a claim, and has to be doubted until another one has been asked.
    pub(crate) fn doubt(&self, node_id: i32, partition: i32) {
        if !self.contain(node_id) {
            self.0.borrow_mut().push(DoubtedBroker { node_id, partition });
        }
    }

    /// Another broker was asked about this one. That counts if it has said who leads the partition.
    pub(crate) fn settle(&self, node_id: i32, is_led: impl Fn(i32) -> bool) {
        let is_settled =
            |doubted: &DoubtedBroker| doubted.node_id == node_id && is_led(doubted.partition);
        self.0.borrow_mut().retain(|doubted| !is_settled(doubted));
    }

    /// Whether no other broker has been asked since this one made a claim.
    pub(crate) fn contain(&self, node_id: i32) -> bool {
        self.0.borrow().iter().any(|doubted| doubted.node_id == node_id)
    }

    /// The first broker in doubt that the cluster still has. Those that it has not are forgotten.
    pub(crate) fn first_of(&self, is_there: impl Fn(i32) -> bool) -> Option<i32> {
        let mut doubted = self.0.borrow_mut();
        doubted.retain(|doubted| is_there(doubted.node_id));
        doubted.first().map(|doubted| doubted.node_id)
    }
}
