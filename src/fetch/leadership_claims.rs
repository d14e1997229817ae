//! Claims of brokers about the partitions that they lead, until another broker confirms who leads.
//!
//! A broker that is cut off from the controllers regards itself as leader indefinitely, and its log
//! may end where it was cut off. Its claims about offsets count once another broker has said who
//! leads.

use std::cell::RefCell;

/// The unconfirmed claims, oldest first.
#[derive(Default)]
pub(crate) struct LeadershipClaims(RefCell<Vec<LeadershipClaim>>);

/// A broker that has made a claim about a partition.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeadershipClaim {
    /// The broker's number.
    pub node_id: i32,
    /// The partition that it says it leads.
    pub partition: i32,
}

impl LeadershipClaims {
    /// Records a claim. It is unconfirmed until another broker has been asked.
    pub(crate) fn add(&self, claim: LeadershipClaim) {
        if !self.contain(claim) {
            self.0.borrow_mut().push(claim);
        }
    }

    /// Returns whether this claim is still unconfirmed.
    pub(crate) fn contain(&self, claim: LeadershipClaim) -> bool {
        self.0.borrow().contains(&claim)
    }

    /// Returns the claims of brokers that are still in the cluster, and forgets the others.
    pub(crate) fn of(&self, is_there: impl Fn(i32) -> bool) -> Vec<LeadershipClaim> {
        let mut all = self.0.borrow_mut();
        all.retain(|claim| is_there(claim.node_id));
        all.clone()
    }

    /// Settles claims after `witness` was asked about them. An answer counts only if it names a
    /// leader of the partition. Claims that are not settled move to the end of the queue.
    pub(crate) fn settle(
        &self,
        asked: &[LeadershipClaim],
        witness: i32,
        is_led: impl Fn(i32) -> bool,
    ) {
        let mut all = self.0.borrow_mut();
        let is_asked = |claim: &LeadershipClaim| claim.node_id != witness && asked.contains(claim);
        all.retain(|claim| !(is_asked(claim) && is_led(claim.partition)));
        // The sort is stable.
        all.sort_by_key(is_asked);
    }
}
