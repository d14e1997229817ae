//! Brokers whose word about the partitions that they lead is doubted.
//!
//! A broker that no controller reaches leads for ever by its own word, and its log may have ended
//! where it was cut off. What it says of an offset counts once another broker has said who leads.

use std::cell::RefCell;

/// The claims in doubt, in the order in which they were made.
#[derive(Default)]
pub(crate) struct DoubtedBrokers(RefCell<Vec<DoubtedBroker>>);

/// A broker has made a claim about a partition.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct DoubtedBroker {
    /// The broker's number.
    pub node_id: i32,
    /// The partition that it leads by its own word.
    pub partition: i32,
}

impl DoubtedBrokers {
    /// A broker has made a claim, and has to be doubted until another one has been asked.
    pub(crate) fn doubt(&self, doubted: DoubtedBroker) {
        if !self.contain(doubted) {
            self.0.borrow_mut().push(doubted);
        }
    }

    /// Whether no other broker has been asked since this one made a claim about the partition.
    pub(crate) fn contain(&self, doubted: DoubtedBroker) -> bool {
        self.0.borrow().contains(&doubted)
    }

    /// All claims in doubt of brokers that the cluster still has. The others are forgotten.
    pub(crate) fn of(&self, is_there: impl Fn(i32) -> bool) -> Vec<DoubtedBroker> {
        let mut all = self.0.borrow_mut();
        all.retain(|doubted| is_there(doubted.node_id));
        all.clone()
    }

    /// A broker was asked after these claims of others. That counts if it has said who leads the
    /// partition. The rest comes last the next time.
    pub(crate) fn settle(
        &self,
        asked: &[DoubtedBroker],
        witness: i32,
        is_led: impl Fn(i32) -> bool,
    ) {
        let is_asked =
            |doubted: &DoubtedBroker| doubted.node_id != witness && asked.contains(doubted);
        let mut all = self.0.borrow_mut();
        let (mut rest, mut others): (Vec<_>, Vec<_>) = all.iter().copied().partition(is_asked);
        rest.retain(|doubted| !is_led(doubted.partition));
        others.extend(rest);
        *all = others;
    }
}
