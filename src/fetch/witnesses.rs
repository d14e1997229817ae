//! The rotation over the brokers that are asked about another broker.

use crate::kafka::message::Broker;
use crate::kafka::metadata::{LeaderTable, NODE_UNKNOWN};
use std::collections::BTreeMap;

/// A rotation over the brokers that are asked whether another one still leads.
#[derive(Default)]
pub(crate) struct Witnesses {
    /// The last witness per broker in question. With a single turn for all, two brokers asked about
    /// alternately could each miss the same witness forever.
    asked: BTreeMap<i32, AskedWitness>,
}

/// The witness that was asked last.
struct AskedWitness {
    node_id: i32,
    /// True if it did not answer or could not help. Then any broker is asked next: if all have new
    /// addresses, only those in the configuration can name them.
    is_of_no_use: bool,
}

impl Witnesses {
    /// Returns the next broker to ask about `about`; `None` for any broker.
    pub(crate) fn next<'a>(&mut self, table: &'a LeaderTable, about: i32) -> Option<&'a Broker> {
        self.asked.retain(|known, _| *known == about || table.broker(*known).is_some());
        let nobody = AskedWitness { node_id: NODE_UNKNOWN, is_of_no_use: false };
        let asked = self.asked.entry(about).or_insert(nobody);
        if std::mem::take(&mut asked.is_of_no_use) {
            return None;
        }
        let others = || table.brokers().iter().filter(|broker| broker.node_id != about);
        let behind = others().filter(|broker| broker.node_id > asked.node_id);
        let next = behind.min_by_key(|broker| broker.node_id);
        let next = next.or_else(|| others().min_by_key(|broker| broker.node_id))?;
        asked.node_id = next.node_id;
        Some(next)
    }

    /// Records that the last witness for this broker did not answer or could not help.
    pub(crate) fn note_useless(&mut self, about: i32) {
        if let Some(asked) = self.asked.get_mut(&about) {
            asked.is_of_no_use = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::error_code::ErrorCode;
    use crate::kafka::message::Metadata;

    fn table(node_ids: &[i32]) -> LeaderTable {
        let broker = |node_id: &i32| Broker { node_id: *node_id, host: String::new(), port: 9092 };
        let mut table = LeaderTable::new();
        let metadata = Metadata {
            brokers: node_ids.iter().map(broker).collect(),
            cluster_id: None,
            controller: None,
            error: ErrorCode::NONE,
            topic_id: 0,
            partitions: Vec::new(),
            replicas: 1,
        };
        table.fold(&metadata).expect("nothing is wrong");
        table
    }

    fn asked_about(abouts: &[i32], node_ids: &[i32]) -> Vec<Option<i32>> {
        let (table, mut witnesses) = (table(node_ids), Witnesses::default());
        let asked = |about: &i32| witnesses.next(&table, *about).map(|it| it.node_id);
        abouts.iter().map(asked).collect()
    }

    #[test]
    fn each_other_broker_has_its_turn() {
        assert_eq!(asked_about(&[2, 2, 2], &[3, 1, 2]), [1, 3, 1].map(Some));
    }

    #[test]
    fn brokers_that_are_asked_about_in_turn_miss_no_witness() {
        let asked = asked_about(&[3, 1, 3, 1, 3, 1], &[1, 2, 3]);
        assert_eq!(asked, [1, 2, 2, 3, 1, 2].map(Some));
    }

    #[test]
    fn any_broker_is_asked_once_after_one_that_was_of_no_use_and_in_a_cluster_of_one() {
        assert_eq!(asked_about(&[1, 1], &[1]), [None, None]);
        let (table, mut witnesses) = (table(&[1, 2, 3]), Witnesses::default());
        let mut next = |about, is_useless: bool| {
            let next = witnesses.next(&table, about).map(|it| it.node_id);
            if is_useless {
                witnesses.note_useless(about);
            }
            next
        };
        assert_eq!(next(1, true), Some(2));
        assert_eq!(next(2, false), Some(1));
        assert_eq!(next(1, false), None);
        assert_eq!(next(1, false), Some(3));
    }

    #[test]
    fn brokers_that_the_cluster_has_no_more_are_forgotten() {
        let mut witnesses = Witnesses::default();
        for about in 0..10 {
            witnesses.next(&table(&[1, 2]), about);
        }
        assert_eq!(witnesses.asked.keys().collect::<Vec<_>>(), [&1, &2, &9]);
    }
}
