//! Which brokers are asked about another one: each has its turn.

use crate::kafka::message::Broker;
use crate::kafka::metadata::{LeaderTable, NODE_UNKNOWN};

/// Brokers that say whether another one still leads.
pub(crate) struct Witnesses {
    /// The one that was asked last.
    last: i32,
    /// It did not answer. Next, any broker is asked: if all have other addresses now, only those in
    /// the configuration can name them.
    is_away: bool,
}

impl Witnesses {
    /// None was asked yet.
    pub(crate) fn new() -> Witnesses {
        Witnesses { last: NODE_UNKNOWN, is_away: false }
    }

    /// The next one to be asked about a broker; `None`: any broker.
    pub(crate) fn next<'a>(&mut self, table: &'a LeaderTable, about: i32) -> Option<&'a Broker> {
        if self.is_away {
            return None;
        }
        let others = || table.brokers().iter().filter(|broker| broker.node_id != about);
        let behind = others().filter(|broker| broker.node_id > self.last);
        let next = behind.min_by_key(|broker| broker.node_id);
        let next = next.or_else(|| others().min_by_key(|broker| broker.node_id))?;
        self.last = next.node_id;
        Some(next)
    }

    /// Whether the last one that was asked did not answer.
    pub(crate) fn note_away(&mut self, is_away: bool) {
        self.is_away = is_away;
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

    #[test]
    fn each_other_broker_has_its_turn() {
        let (table, mut witnesses) = (table(&[3, 1, 2]), Witnesses::new());
        let asked = [2, 2, 2, 1, 3].map(|about| witnesses.next(&table, about).map(|it| it.node_id));
        assert_eq!(asked, [1, 3, 1, 2, 1].map(Some));
    }

    #[test]
    fn any_broker_is_asked_after_one_that_is_away_and_in_a_cluster_of_one() {
        let mut witnesses = Witnesses::new();
        assert!(witnesses.next(&table(&[1]), 1).is_none());
        assert!(witnesses.next(&table(&[1, 2]), 1).is_some());
        witnesses.note_away(true);
        assert!(witnesses.next(&table(&[1, 2]), 1).is_none());
        witnesses.note_away(false);
        assert!(witnesses.next(&table(&[1, 2]), 1).is_some());
    }
}
