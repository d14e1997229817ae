//! The rotation over the brokers that are asked about the cluster.

use crate::fetch::dialling::{Endpoint, MetadataLink};
use crate::kafka::message::Broker;

/// A rotation over the brokers to ask about the cluster. Once a broker has answered, every fourth
/// question goes to a broker in the configuration, whose name may resolve to another address by now
/// (KIP-899), and the others to known brokers.
pub struct BrokerRotation {
    bootstrap: InTurn,
    known: InTurn,
    questions: usize,
    /// The broker that was asked last.
    last: Option<Endpoint>,
    /// True if any broker has answered.
    has_answered: bool,
}

/// A round robin over brokers.
struct InTurn {
    brokers: Vec<Endpoint>,
    turn: usize,
}

impl InTurn {
    fn new(brokers: Vec<Endpoint>) -> InTurn {
        InTurn { brokers, turn: 0 }
    }

    /// The next broker that differs from the one asked last. Skipping more than one could skip the
    /// same broker every time.
    fn next_but(&mut self, last: Option<&Endpoint>) -> Option<Endpoint> {
        (0..self.brokers.len()).find_map(|_| {
            let next = &self.brokers[self.turn % self.brokers.len()];
            self.turn = self.turn.wrapping_add(1);
            Some(next).filter(|next| last != Some(*next)).cloned()
        })
    }
}

impl BrokerRotation {
    /// Starts with the brokers from the configuration. There must be at least one.
    pub fn new(bootstrap: Vec<Endpoint>) -> BrokerRotation {
        assert!(!bootstrap.is_empty(), "the configuration names a broker");
        let (bootstrap, known) = (InTurn::new(bootstrap), InTurn::new(Vec::new()));
        BrokerRotation { bootstrap, known, questions: 0, last: None, has_answered: false }
    }

    /// Returns the broker to ask over another connection.
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

    /// Returns another broker than the last one, which has failed or is in doubt, if there is one.
    /// A configured name may resolve to a broker that has already answered, so most turns go to a
    /// known broker; but all known brokers may have stale metadata.
    fn find_other(&mut self, last: Option<&Endpoint>) -> Endpoint {
        let question = self.questions;
        self.questions = question.wrapping_add(1);
        let is_by_name = match self.has_answered {
            true => question % 4 == 3,
            false => question % 2 == 1,
        };
        let BrokerRotation { bootstrap, known, .. } = self;
        let (first, second) = if is_by_name { (bootstrap, known) } else { (known, bootstrap) };
        let other = first.next_but(last).or_else(|| second.next_but(last));
        other.unwrap_or_else(|| self.bootstrap.brokers[0].clone())
    }

    /// Learns the brokers named in a Metadata answer, sorted by id because each broker lists them
    /// in its own order. An answer without brokers changes nothing.
    pub fn learn(&mut self, brokers: &[Broker]) {
        if !brokers.is_empty() {
            self.has_answered = true;
            let mut brokers: Vec<&Broker> = brokers.iter().collect();
            brokers.sort_by_key(|broker| broker.node_id);
            self.known.brokers = brokers.into_iter().map(Endpoint::of).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn endpoint(host: &str) -> Endpoint {
        Endpoint { host: host.to_owned(), port: 9092 }
    }

    #[test]
    fn known_brokers_and_those_of_the_configuration_are_asked_in_turn() {
        let mut rotation = BrokerRotation::new(vec![endpoint("one"), endpoint("two")]);
        let hosts = |rotation: &mut BrokerRotation, count: usize| -> Vec<String> {
            (0..count).map(|_| rotation.next(&MetadataLink::New).host).collect()
        };
        assert_eq!(hosts(&mut rotation, 4), ["one", "two", "one", "two"]);
        rotation.learn(&brokers(&["a", "b", "c"]));
        rotation.learn(&[]);
        let asked = hosts(&mut rotation, 12);
        for host in ["a", "b", "c", "one", "two"] {
            assert!(asked.iter().any(|asked| asked == host), "{host} is not in {asked:?}");
        }
        let is_configured = |host: &String| host == "one" || host == "two";
        assert!(asked.chunks(2).all(|pair| is_configured(&pair[0]) != is_configured(&pair[1])));
    }

    /// Known brokers, numbered from 1.
    fn brokers(hosts: &[&str]) -> Vec<Broker> {
        let broker = |(node_id, host): (i32, &&str)| Broker {
            node_id,
            host: (*host).to_owned(),
            port: 9092,
        };
        (1..).zip(hosts).map(broker).collect()
    }

    /// A configured name may resolve to the broker that was asked last.
    #[test]
    fn after_an_answer_another_known_broker_is_asked_mostly() {
        let mut rotation = BrokerRotation::new(vec![endpoint("one")]);
        let asked: Vec<String> = (0..100)
            .map(|_| {
                rotation.learn(&brokers(&["a", "b"]));
                rotation.next(&MetadataLink::New).host
            })
            .collect();
        assert!(asked.windows(2).all(|pair| pair[0] != pair[1]), "{asked:?}");
        assert_eq!(asked.iter().filter(|host| *host == "one").count(), 25);
    }

    /// The broker with the right answer is asked soon, whichever of the others answer with stale
    /// metadata.
    #[test]
    fn each_broker_is_asked_whichever_others_answer() {
        let known = ["k1", "k2", "k3"];
        for names in [&["k1", "good"][..], &["alias", "good"], &["k1", "k2", "good"], &["good"]] {
            for count in 1..=known.len() {
                for (answering, reversed) in
                    (0..1 << count).flat_map(|it| [(it, false), (it, true)])
                {
                    let names = names.iter().map(|host| endpoint(host)).collect();
                    let mut rotation = BrokerRotation::new(names);
                    rotation.learn(&brokers(&known[..count]));
                    let mut asked: BTreeSet<String> = BTreeSet::new();
                    for number in 0..60 {
                        let link = match number % 3 {
                            2 if reversed => MetadataLink::NewTo(endpoint("k1")),
                            _ => MetadataLink::New,
                        };
                        let host = rotation.next(&link).host;
                        let place = known.iter().position(|known| *known == host);
                        if place.map_or(host == "alias", |place| answering >> place & 1 != 0) {
                            let mut listed = brokers(&known[..count]);
                            if reversed && number % 2 == 0 {
                                listed.reverse();
                            }
                            rotation.learn(&listed);
                        }
                        asked.insert(host);
                    }
                    let all = known[..count].iter().chain(&["good"]);
                    for host in all {
                        assert!(asked.contains(*host), "{answering:b} of {count}: {asked:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_broker_that_is_asked_for_by_its_address_is_not_the_next_one_again() {
        let mut rotation = BrokerRotation::new(vec![endpoint("a")]);
        rotation.learn(&brokers(&["a", "b"]));
        for host in ["a", "b", "unknown", "b", "a"] {
            let asked = rotation.next(&MetadataLink::NewTo(endpoint(host)));
            assert_eq!(asked, endpoint(host));
            assert_ne!(rotation.next(&MetadataLink::New), endpoint(host));
        }
    }

    #[test]
    fn no_broker_is_asked_twice_in_a_row_if_there_is_another_one() {
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
            let mut rotation = BrokerRotation::new(endpoints);
            let first = rotation.next(&MetadataLink::New);
            let known = hosts(known);
            rotation.learn(&brokers(&known.iter().map(String::as_str).collect::<Vec<_>>()));
            let asked: Vec<Endpoint> = [first]
                .into_iter()
                .chain((0..20).map(|_| rotation.next(&MetadataLink::New)))
                .collect();
            assert!(asked.windows(2).all(|pair| pair[0] != pair[1]), "{configured:?}: {asked:?}");
        }
        let mut alone = BrokerRotation::new(vec![endpoint("a")]);
        assert_eq!(alone.next(&MetadataLink::New), alone.next(&MetadataLink::New));
    }
}
