//! Brokers whose claims about the partitions that they lead need confirmation.
//!
//! A broker that is cut off from the controllers regards itself as leader indefinitely, and its log
//! may end where it was cut off. Its claims about offsets count once another broker has said who
//! leads.

use std::cell::RefCell;

/// The pending claims, oldest first.
#[derive(Default)]
pub(crate) struct DoubtedBrokers(RefCell<Vec<DoubtedBroker>>);

/// A broker that has made a claim about a partition.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct DoubtedBroker {
    /// The broker's number.
    pub node_id: i32,
    /// The partition that it says it leads.
    pub partition: i32,
}

impl DoubtedBrokers {
    /// Records a claim of a broker; it is in doubt until another broker has been asked.
    pub(crate) fn doubt(&self, doubted: DoubtedBroker) {
        if !self.contain(doubted) {
            self.0.borrow_mut().push(doubted);
        }
    }

    /// Returns whether a claim of this broker about the partition is still unconfirmed by another
    /// broker.
    pub(crate) fn contain(&self, doubted: DoubtedBroker) -> bool {
        self.0.borrow().contains(&doubted)
    }

    /// Returns all pending claims of brokers that are still in the cluster, and forgets the others.
    pub(crate) fn of(&self, is_there: impl Fn(i32) -> bool) -> Vec<DoubtedBroker> {
        let mut all = self.0.borrow_mut();
        all.retain(|doubted| is_there(doubted.node_id));
        all.clone()
    }

    /// Settles claims after `witness` was asked about them. An answer counts only if it names a
    /// leader of the partition. Claims that are not settled move to the end of the queue.
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
