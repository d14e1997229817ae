//! Which broker is asked about the cluster.

use crate::fetch::dialling::{Endpoint, MetadataLink};
use crate::kafka::message::Broker;

/// Which broker is asked about the cluster: the known ones, in turn with those of the
/// configuration, whose names may have other addresses now (KIP-899).
pub struct Candidates {
    bootstrap: Vec<Endpoint>,
    known: Vec<Endpoint>,
    turn: usize,
    /// The one that was asked last.
    last: Option<Endpoint>,
    /// Whether it has answered.
    has_answered: bool,
}

impl Candidates {
    /// At first only the brokers from the configuration, at least one.
    pub fn new(bootstrap: Vec<Endpoint>) -> Candidates {
        assert!(!bootstrap.is_empty(), "the configuration names a broker");
        Candidates { bootstrap, known: Vec::new(), turn: 0, last: None, has_answered: false }
    }

    /// The broker to ask over another connection.
    pub fn next(&mut self, link: &MetadataLink) -> Endpoint {
        let last = self.last.take();
        let endpoint = match link {
            MetadataLink::NewTo(endpoint) => endpoint.clone(),
            MetadataLink::Kept | MetadataLink::New => self.find_other(last.as_ref()),
        };
        self.last = Some(endpoint.clone());
        self.has_answered = false;
        endpoint
    }

    /// Another one than the last, which has failed or is doubted, if there is one. A known broker
    /// may stand in the configuration, too, and be one of those that a name there has. So a broker
    /// that has answered is followed by a known one.
    fn find_other(&mut self, last: Option<&Endpoint>) -> Endpoint {
        let prefers_known = self.has_answered;
        let is_other = |endpoint: &Endpoint| last != Some(endpoint);
        self.find(|endpoint, is_known| is_other(endpoint) && (is_known || !prefers_known))
            .or_else(|| self.find(|endpoint, _| is_other(endpoint)))
            .unwrap_or_else(|| self.next_in_turn().0)
    }

    fn find(&mut self, fits: impl Fn(&Endpoint, bool) -> bool) -> Option<Endpoint> {
        // After so many turns, each broker was offered.
        let turns = 2 * self.bootstrap.len().max(self.known.len());
        (0..turns).find_map(|_| {
            let (endpoint, is_known) = self.next_in_turn();
            fits(&endpoint, is_known).then_some(endpoint)
        })
    }

    /// The next one, and whether it is a known one.
    fn next_in_turn(&mut self) -> (Endpoint, bool) {
        let Candidates { bootstrap, known, .. } = self;
        let round = self.turn / 2;
        let is_known = self.turn.is_multiple_of(2) && !known.is_empty();
        self.turn = self.turn.wrapping_add(1);
        let list = if is_known { known } else { bootstrap };
        (list[round % list.len()].clone(), is_known)
    }

    /// Learns the brokers that a Metadata answer names. An answer without brokers changes nothing.
    pub fn learn(&mut self, brokers: &[Broker]) {
        if !brokers.is_empty() {
            self.has_answered = true;
            self.known = brokers.iter().map(Endpoint::of).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(host: &str) -> Endpoint {
        Endpoint { host: host.to_owned(), port: 9092 }
    }

    #[test]
    fn known_brokers_and_those_of_the_configuration_are_asked_in_turn() {
        let mut candidates = Candidates::new(vec![endpoint("one"), endpoint("two")]);
        let hosts = |candidates: &mut Candidates, count: usize| -> Vec<String> {
            (0..count).map(|_| candidates.next(&MetadataLink::New).host).collect()
        };
        assert_eq!(hosts(&mut candidates, 4), ["one", "two", "one", "two"]);
        let broker = |host: &str| Broker { node_id: 1, host: host.to_owned(), port: 9092 };
        candidates.learn(&[broker("a"), broker("b"), broker("c")]);
        candidates.learn(&[]);
        let asked = hosts(&mut candidates, 12);
        for host in ["a", "b", "c", "one", "two"] {
            assert!(asked.iter().any(|asked| asked == host), "{host} is not in {asked:?}");
        }
        let is_configured = |host: &String| host == "one" || host == "two";
        assert!(asked.chunks(2).all(|pair| is_configured(&pair[0]) != is_configured(&pair[1])));
    }

    /// A name of the configuration may lead to the broker that was asked last.
    #[test]
    fn after_an_answer_another_known_broker_is_asked() {
        let known = ["a", "b"].map(|host| Broker { node_id: 1, host: host.to_owned(), port: 9092 });
        let mut candidates = Candidates::new(vec![endpoint("one")]);
        candidates.next(&MetadataLink::New);
        let asked: Vec<String> = (0..6)
            .map(|_| {
                candidates.learn(&known);
                candidates.next(&MetadataLink::New).host
            })
            .collect();
        assert!(asked.windows(2).all(|pair| pair[0] != pair[1]), "{asked:?}");
        assert!(asked.iter().all(|host| host != "one"), "{asked:?}");
    }

    #[test]
    fn a_broker_that_is_asked_for_by_its_address_is_not_the_next_one_again() {
        let known = ["a", "b"].map(|host| Broker { node_id: 1, host: host.to_owned(), port: 9092 });
        let mut candidates = Candidates::new(vec![endpoint("a")]);
        candidates.learn(&known);
        for host in ["a", "b", "unknown", "b", "a"] {
            let asked = candidates.next(&MetadataLink::NewTo(endpoint(host)));
            assert_eq!(asked, endpoint(host));
            assert_ne!(candidates.next(&MetadataLink::New), endpoint(host));
        }
    }

    #[test]
    fn no_broker_is_asked_twice_in_a_row_if_there_is_another_one() {
        let broker = |host: &str| Broker { node_id: 1, host: host.to_owned(), port: 9092 };
        for (configured, known) in [
            ("a", "ab"),
            ("a", "abc"),
            ("ab", "a"),
            ("ab", "ab"),
            ("abc", "bac"),
            ("abc", "cab"),
            ("aab", "a"),
        ] {
            let hosts = |text: &str| text.chars().map(String::from).collect::<Vec<_>>();
            let configured = hosts(configured);
            let endpoints = configured.iter().map(|host| endpoint(host)).collect();
            let mut candidates = Candidates::new(endpoints);
            let first = candidates.next(&MetadataLink::New);
            let known: Vec<Broker> = hosts(known).iter().map(|host| broker(host)).collect();
            candidates.learn(&known);
            let asked: Vec<Endpoint> = [first]
                .into_iter()
                .chain((0..20).map(|_| candidates.next(&MetadataLink::New)))
                .collect();
            assert!(asked.windows(2).all(|pair| pair[0] != pair[1]), "{configured:?}: {asked:?}");
        }
        let mut alone = Candidates::new(vec![endpoint("a")]);
        assert_eq!(alone.next(&MetadataLink::New), alone.next(&MetadataLink::New));
    }
}
