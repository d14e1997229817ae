//! Whether each broker of the cluster can be used where it says that it listens. One of the
//! configuration's brokers may answer while clients are sent to another name or port.

use super::dialler::{self, DialOptions};
use super::roll_call::{ROLL_CALL_MS_MAX, roll_call};
use crate::fetch::dialling::{DialError, Endpoint};
use crate::fetch::stage::CONNECTIONS_MAX;
use crate::kafka::message::Broker;

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

/// What came of dialling the brokers.
pub(crate) struct DialledBrokers {
    /// Those that cannot be used.
    pub faults: Vec<AdvertisedFault>,
    /// How many can be used.
    pub usable: usize,
}

impl DialledBrokers {
    /// The faults, with which a start can go on or wait. An error: no broker can be used, and only
    /// the operator can help with each. One that is only away may come back and lead.
    pub(crate) fn unless_final(self) -> Result<Vec<AdvertisedFault>, AdvertisedFault> {
        let DialledBrokers { mut faults, usable } = self;
        let is_final = usable == 0 && faults.iter().all(|fault| fault.error.is_final());
        match is_final && !faults.is_empty() {
            true => Err(faults.swap_remove(0)),
            false => Ok(faults),
        }
    }
}

/// Dials each of these brokers once. No more are dialled than a daemon could be connected to.
pub(super) fn dial(brokers: &[Broker], options: &DialOptions) -> Result<DialledBrokers, DialError> {
    let brokers = &brokers[..brokers.len().min(CONNECTIONS_MAX)];
    let options = options.clone();
    let ask = move |endpoint: Endpoint| dialler::ask_topic(&endpoint, &options).err();
    let found =
        roll_call(brokers.iter().map(Endpoint::of).collect(), ask).map_err(DialError::Resources)?;
    let mut faults = Vec::new();
    for (broker, error) in brokers.iter().zip(found) {
        let endpoint = Endpoint::of(broker);
        let address = endpoint.to_string();
        let late = DialError::Late { endpoint, wait_ms: ROLL_CALL_MS_MAX };
        match error.unwrap_or(Some(late)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What is wrong with a broker: only the operator can help, or it may come back.
    fn fault(node_id: i32, is_final: bool) -> AdvertisedFault {
        let endpoint = Endpoint { host: "broker".to_owned(), port: 9092 };
        let address = endpoint.to_string();
        let error = match is_final {
            true => DialError::TlsListener(endpoint),
            false => DialError::Late { endpoint, wait_ms: ROLL_CALL_MS_MAX },
        };
        AdvertisedFault { node_id, address, error: Box::new(error) }
    }

    #[test]
    fn a_start_ends_only_if_no_broker_can_be_used_and_the_operator_has_to_help_with_each() {
        for (usable, are_final, ends) in [
            (0, &[true][..], true),
            (0, &[true, true], true),
            (0, &[true, false], false),
            (0, &[false, true], false),
            (0, &[false], false),
            (0, &[], false),
            (1, &[true], false),
        ] {
            let faults = (1..).zip(are_final).map(|(node_id, is_final)| fault(node_id, *is_final));
            let dialled = DialledBrokers { faults: faults.collect(), usable };
            let named = dialled.unless_final().map(|faults| faults.len());
            match ends {
                true => assert_eq!(named.expect_err("it ends").node_id, 1),
                false => assert_eq!(named.expect("it goes on"), are_final.len()),
            }
        }
    }
}
