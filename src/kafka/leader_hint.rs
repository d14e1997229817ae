//! The leaders that answers to Fetch and Produce name along with an error (KIP-951).

use crate::kafka::message::Broker;
use crate::kafka::wire::{WireError, WireReader};

/// A partition's leader as an answer names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrentLeader {
    /// The broker.
    pub node_id: i32,
    /// Its leader epoch.
    pub leader_epoch: i32,
}

impl CurrentLeader {
    /// Reads the value of a tagged field. `None`: the broker does not know the leader.
    pub(super) fn read(value: &mut WireReader<'_>) -> Result<Option<CurrentLeader>, WireError> {
        let (node_id, leader_epoch) = (value.i32()?, value.i32()?);
        Ok((node_id >= 0).then_some(CurrentLeader { node_id, leader_epoch }))
    }
}

/// The place in an answer of the endpoints of these leaders. Their bytes are checked already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EndpointList {
    at: usize,
    count: usize,
}

impl EndpointList {
    pub(super) const EMPTY: EndpointList = EndpointList { at: 0, count: 0 };

    /// Reads the tagged fields at the end of an answer.
    pub(super) fn read(reader: &mut WireReader<'_>) -> Result<EndpointList, WireError> {
        let mut list = EndpointList::EMPTY;
        for _ in 0..reader.tagged_fields()? {
            let (tag, mut value) = reader.tagged_field()?;
            if tag != 0 {
                continue;
            }
            list.count = value.array(true)?;
            list.at = value.at();
            for _ in 0..list.count {
                read_endpoint(&mut value)?;
            }
        }
        Ok(list)
    }

    /// The endpoints. `bytes` is the answer.
    pub(super) fn of(self, bytes: &[u8]) -> impl Iterator<Item = Broker> + '_ {
        let mut reader = WireReader::resume(bytes, self.at);
        (0..self.count).map_while(move |_| read_endpoint(&mut reader).ok())
    }
}

fn read_endpoint(reader: &mut WireReader<'_>) -> Result<Broker, WireError> {
    let node_id = reader.i32()?;
    let host = reader.string(true)?.to_owned();
    let port = u16::try_from(reader.i32()?).unwrap_or(0);
    let _rack = reader.nullable_string(true)?;
    reader.skip_tagged_fields()?;
    Ok(Broker { node_id, host, port })
}
