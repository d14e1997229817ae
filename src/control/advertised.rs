//! Whether each broker of the cluster can be used where it says that it listens. One of the
//! configuration's brokers may answer while clients are sent to another name or port.

use super::dialler::{self, DialOptions};
use super::roll_call::{ROLL_CALL_MS_MAX, roll_call};
use crate::fetch::dialling::{DialError, Endpoint};
use crate::fetch::stage::CONNECTIONS_MAX;
use crate::kafka::message::Broker;
use std::io;

/// A broker that cannot be used at its advertised address.
#[derive(Debug, thiserror::Error)]
#[error(
    "broker {node_id} advertises {address}, where huntd cannot use it: {error}; correct \
     `advertised.listeners` of broker {node_id}, or the network"
)]
pub struct AdvertisedFault {
    node_id: i32,
    address: String,
    /// What came of dialling it.
    pub(crate) error: Box<DialError>,
}

impl AdvertisedFault {
    /// Which broker it is.
    pub(crate) fn node_id(&self) -> i32 {
        self.node_id
    }
}

/// What came of dialling the brokers.
pub(crate) struct DialledBrokers {
    /// Those that cannot be used.
    pub faults: Vec<AdvertisedFault>,
    /// How many can be used.
    pub usable: usize,
}

/// Dials each of these brokers once. No more are dialled than a daemon could be connected to.
pub(super) fn dial(brokers: &[Broker], options: &DialOptions) -> Result<DialledBrokers, DialError> {
    let brokers = &brokers[..brokers.len().min(CONNECTIONS_MAX)];
    let options = options.clone();
    let ask = move |endpoint: Endpoint| dialler::ask_topic(&endpoint, &options).err();
    let found = roll_call(brokers.iter().map(Endpoint::of), ask).map_err(DialError::Resources)?;
    let mut faults = Vec::new();
    for (broker, error) in brokers.iter().zip(found) {
        let endpoint = Endpoint::of(broker);
        let address = endpoint.to_string();
        match error.unwrap_or_else(|| Some(late(endpoint))) {
            None => {}
            Some(error @ DialError::Resources(_)) => return Err(error),
            Some(error) => {
                let (node_id, error) = (broker.node_id, Box::new(error));
                faults.push(AdvertisedFault { node_id, address, error });
            }
        }
    }
    let usable = brokers.len() - faults.len();
    Ok(DialledBrokers { faults, usable })
}

fn late(endpoint: Endpoint) -> DialError {
    let sentence = format!("it does not answer within {} s", ROLL_CALL_MS_MAX / 1000);
    DialError::Io { endpoint, error: io::Error::new(io::ErrorKind::TimedOut, sentence) }
}
