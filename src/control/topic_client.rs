//! Questions about topics, and their creation, over a connection as the dialler opens them.

use crate::control::advertised::{self, DialledBrokers};
use crate::control::control_error::ControlError;
use crate::control::dialler::DialOptions;
use crate::control::link::Link;
use crate::control::surveyor::Surveyor;
use crate::control::topic_rules::{TopicNames, TopicProblem};
use crate::fetch::dialling::{DialError, Endpoint, open_any};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::membership::MembershipError;
use crate::kafka::message::{Broker, MessageError, Metadata};
use crate::kafka::right::Right;
use crate::kafka::topic_error::TopicError;
use crate::kafka::topic_requests::{NewTopic, TopicSettings};
use crate::kafka::{BROKER_ANSWER_MS_MAX, NEXT_BROKER_MS};

/// Milliseconds that the controller may take to create a topic: less than its answer may take.
const CREATE_MS_MAX: u64 = BROKER_ANSWER_MS_MAX - 1_000;

/// Another program has created the topic.
const TOPIC_ALREADY_EXISTS: ErrorCode = ErrorCode(36);

/// A connection to a broker that is asked about topics.
pub(crate) struct TopicClient {
    options: DialOptions,
    link: Link,
    /// The cluster's brokers, as the first answer names them.
    brokers: Vec<Broker>,
}

/// A topic, as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoundTopic {
    /// Its id, which a topic of the same name that is created later does not have.
    pub id: u128,
    /// How many partitions it has.
    pub partitions: usize,
    /// Replicas of the partition that has the fewest.
    pub replicas: usize,
}

impl TopicClient {
    /// Connects to the first broker of the configuration that answers a question about the input.
    /// Each try begins with another broker than the one before it, whose answer may be in doubt.
    pub(crate) fn connect(options: &DialOptions, tried: usize) -> Result<TopicClient, DialError> {
        TopicClient::connect_in_haste(NEXT_BROKER_MS, options, tried)
    }

    fn connect_in_haste(
        haste_ms: u64,
        options: &DialOptions,
        tried: usize,
    ) -> Result<TopicClient, DialError> {
        let (skipped, first) = options.bootstrap.split_at(tried % options.bootstrap.len());
        let mut late = Vec::new();
        let in_haste = open_any(first.iter().chain(skipped), |endpoint| {
            let opened = Link::open_in_haste(haste_ms, endpoint, options);
            if matches!(opened, Err(DialError::Late { .. })) {
                late.push(endpoint);
            }
            TopicClient::ask_first(opened?, options)
        });
        let error = match in_haste.expect("the configuration names a broker") {
            Err(error) if !error.is_refused_login() => error,
            asked => return asked,
        };
        // No other has answered, so those that were late get their time.
        let in_time = open_any(late, |endpoint| {
            TopicClient::ask_first(Link::open(endpoint, options)?, options)
        });
        match in_time {
            None => Err(error),
            Some(Err(later)) if error.is_final() && !later.is_refused_login() => Err(error),
            Some(asked) => asked,
        }
    }

    fn ask_first(mut link: Link, options: &DialOptions) -> Result<TopicClient, DialError> {
        let Metadata { brokers, .. } = link.ask_metadata(options, &options.topic)?;
        Ok(TopicClient { options: options.clone(), link, brokers })
    }

    /// What there is of a topic, where the caller needs this right. Asking never creates it.
    pub(crate) fn find(
        &mut self,
        topic: &str,
        right: Right,
    ) -> Result<Option<FoundTopic>, ControlError> {
        let Metadata { error, partitions, replicas, topic_id: id, .. } =
            self.link.ask_metadata(&self.options, topic)?;
        match error {
            ErrorCode::NONE if partitions.is_empty() => Ok(None),
            ErrorCode::NONE => Ok(Some(FoundTopic { id, partitions: partitions.len(), replicas })),
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => Ok(None),
            ErrorCode::TOPIC_AUTHORIZATION_FAILED => Err(not_authorised(topic, right)),
            error => Err(TopicError::NotNow(format!("`{topic}`: {error}")).into()),
        }
    }

    /// Dials each broker of the cluster where it says that it listens.
    pub(crate) fn dial_brokers(&self) -> Result<DialledBrokers, DialError> {
        advertised::dial(&self.brokers, &self.options)
    }

    /// Asks the same cluster where the logs of the input and of the output begin and end.
    pub(crate) fn surveyor(&self, output_topic: &str) -> Surveyor {
        Surveyor::new(self.options.clone(), output_topic, &self.brokers)
    }

    /// Brokers that the cluster has now.
    pub(crate) fn broker_count(&mut self, topic: &str) -> Result<usize, DialError> {
        Ok(self.link.ask_metadata(&self.options, topic)?.brokers.len())
    }

    /// The broker that coordinates a group. The first question lets the cluster create the topic of
    /// its coordinators, so the answer may come a little later.
    pub(crate) fn coordinator(&mut self, group: &str) -> Result<Broker, ControlError> {
        let found = self.link.ask_coordinator(&self.options, group)?;
        found.map_err(|error| {
            let group = group.to_owned();
            let wrong = match error {
                ErrorCode::GROUP_AUTHORIZATION_FAILED => MembershipError::NotAuthorised {
                    what: format!("the group `{group}`"),
                    right: Right::Describe,
                },
                error => {
                    let brokers = self.brokers.len();
                    MembershipError::NoCoordinator { group, error, brokers }
                }
            };
            wrong.into()
        })
    }

    /// The settings of a topic that is there. A broker that does not tell any has none.
    pub(crate) fn settings(&mut self, topic: &str) -> Result<TopicSettings, ControlError> {
        let told = self.link.ask_settings(&self.options, topic);
        told.map_err(|error| match refused_with(&error) {
            Some(ErrorCode::TOPIC_AUTHORIZATION_FAILED) => {
                not_authorised(topic, Right::DescribeConfigs)
            }
            Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION) => {
                TopicError::Missing(topic.to_owned()).into()
            }
            _ => error.into(),
        })
    }

    /// Creates a topic, unless another program was quicker.
    pub(crate) fn create(&mut self, topic: &NewTopic<'_>) -> Result<(), ControlError> {
        let metadata = self.link.ask_metadata(&self.options, topic.name)?;
        let controller = |broker: &&Broker| Some(broker.node_id) == metadata.controller;
        let creation = match metadata.brokers.iter().find(controller) {
            Some(broker) => {
                let mut link = Link::open(&Endpoint::of(broker), &self.options)?;
                link.create_topic(&self.options, topic, CREATE_MS_MAX)?
            }
            None => self.link.create_topic(&self.options, topic, CREATE_MS_MAX)?,
        };
        match creation.error {
            ErrorCode::NONE | TOPIC_ALREADY_EXISTS => Ok(()),
            ErrorCode::TOPIC_AUTHORIZATION_FAILED | ErrorCode::CLUSTER_AUTHORIZATION_FAILED => {
                Err(not_authorised(topic.name, Right::Create))
            }
            error => {
                let (topic, sentence) = (topic.name.to_owned(), creation.sentence);
                Err(TopicError::NotCreated { topic, code: error.0, sentence }.into())
            }
        }
    }

    /// Whether the topics of the daemon are there and fit together, and what is wrong with their
    /// settings, as far as this user may know.
    pub(crate) fn problems(
        &mut self,
        names: &TopicNames,
    ) -> Result<Vec<TopicProblem>, ControlError> {
        let [input, output, _letters] = names.needed().map(|(name, right)| {
            let found = self.find(name, right)?;
            found.ok_or_else(|| ControlError::from(TopicError::Missing(name.clone())))
        });
        let (input, output, _letters) = (input?, output?, _letters?);
        TopicError::unless_too_many(&names.input, input.partitions)?;
        TopicError::unless_equal(
            (&names.input, input.partitions as i32),
            (&names.output, output.partitions as i32),
        )?;
        let mut problems = Vec::new();
        let replicas = [input, output].map(|topic| topic.replicas as u16);
        for wanted in names.wanted(input.partitions as u16, replicas) {
            match self.settings(&wanted.name) {
                Ok(settings) => problems.extend(wanted.problems(&settings)),
                Err(ControlError::Topic(
                    error @ (TopicError::NotAuthorised { .. } | TopicError::Missing(_)),
                )) => {
                    let sentence = format!("{error}; until then its settings are not checked");
                    problems.push(TopicProblem { sentence, is_fatal: false });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(problems)
    }
}

fn not_authorised(topic: &str, right: Right) -> ControlError {
    TopicError::not_authorised(topic, right).into()
}

/// The code by which a broker has refused a request.
fn refused_with(error: &DialError) -> Option<ErrorCode> {
    match error {
        DialError::Answer { error: MessageError::Refused { error, .. }, .. } => Some(*error),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::dialler::tests::{answer_late, listener, options};
    use std::sync::mpsc::{self, Receiver};
    use std::thread;

    /// Brokers that close each connection, and who was dialled, in order.
    fn brokers_that_close(count: usize) -> (Vec<Endpoint>, Receiver<usize>) {
        let (sender, dialled) = mpsc::channel();
        let closing = |number| {
            let (listener, endpoint) = listener();
            let sender = sender.clone();
            thread::spawn(move || {
                while let Ok(connection) = listener.accept()
                    && sender.send(number).is_ok()
                {
                    drop(connection);
                }
            });
            endpoint
        };
        ((0..count).map(closing).collect(), dialled)
    }

    #[test]
    fn a_broker_that_is_late_has_its_time_once_no_other_has_answered() {
        let ((late, first), (other, second)) = (listener(), listener());
        let (sender, asked) = mpsc::channel();
        let brokers = move || {
            let waits = late.accept();
            sender.send("late").expect("the test waits");
            let closed = other.accept().expect("it is asked next");
            // What kind of listener closes a connection is not asked of one that is gone.
            drop(other);
            sender.send("other").expect("the test waits");
            drop(closed);
            let (connection, _) = late.accept().expect("it is asked again");
            sender.send("late").expect("the test waits");
            answer_late(connection);
            drop(waits);
        };
        thread::spawn(brokers);
        let options = options(vec![first.clone(), second]);
        let error = TopicClient::connect_in_haste(50, &options, 0).err().expect("nobody answers");
        assert!(matches!(&error, DialError::TlsListener(said) if *said == first), "{error}");
        assert_eq!(asked.try_iter().collect::<Vec<_>>(), ["late", "other", "late"]);
    }

    #[test]
    fn each_try_begins_with_another_broker_and_asks_all() {
        let (bootstrap, dialled) = brokers_that_close(3);
        let options = options(bootstrap);
        for (tried, order) in [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]].into_iter().enumerate() {
            assert!(TopicClient::connect(&options, tried).is_err());
            // What kind of listener closes a connection is asked on another one.
            let mut dialled: Vec<usize> = dialled.try_iter().collect();
            dialled.dedup();
            assert_eq!(dialled, order);
        }
    }
}
