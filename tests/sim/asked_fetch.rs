//! What a Fetch asks for, in any version.

use crate::answers::{Request, TOPIC};
use huntd::kafka::wire::{WireError, WireReader};

/// What a Fetch asks for.
pub(crate) struct AskedFetch {
    pub(crate) wait_ms: u64,
    pub(crate) bytes_max: usize,
    /// The topic's id, if the Fetch names the topic by it.
    pub(crate) topic_id: Option<u128>,
    pub(crate) partitions: Vec<Asked>,
}

/// What a Fetch wants from one partition.
pub(crate) struct Asked {
    pub(crate) partition: i32,
    pub(crate) leader_epoch: i32,
    pub(crate) offset: i64,
    pub(crate) last_fetched_epoch: i32,
    pub(crate) bytes_max: usize,
}

impl AskedFetch {
    pub(crate) fn read(request: &mut Request<'_>) -> Result<AskedFetch, WireError> {
        let version = request.version;
        let flexible = version >= 12;
        let reader = &mut request.reader;
        if flexible {
            reader.skip_tagged_fields()?;
        }
        if version <= 14 {
            let _replica = reader.i32()?;
        }
        let (wait_ms, _bytes_min) = (reader.i32()?, reader.i32()?);
        let (bytes_max, _isolation) = (reader.i32()?, reader.i8()?);
        if version >= 7 {
            let _session = (reader.i32()?, reader.i32()?);
        }
        assert_eq!(reader.array(flexible)?, 1);
        let topic_id = match version {
            ..=12 => {
                assert_eq!(reader.string(flexible)?, TOPIC);
                None
            }
            _ => Some(reader.u128()?),
        };
        let partitions = (0..reader.array(flexible)?).map(|_| Asked::read(version, reader));
        let partitions = partitions.collect::<Result<_, WireError>>()?;
        if flexible {
            reader.skip_tagged_fields()?;
        }
        if version >= 7 {
            let forgotten = reader.array(flexible)?;
            assert_eq!(forgotten, 0);
        }
        if version >= 11 {
            // Else a leader may send the daemon to a follower, which it does not fetch from.
            assert_eq!(reader.string(flexible)?, "", "the rack");
        }
        let (wait_ms, bytes_max) = (wait_ms as u64, bytes_max as usize);
        Ok(AskedFetch { wait_ms, bytes_max, topic_id, partitions })
    }
}

impl Asked {
    fn read(version: i16, reader: &mut WireReader<'_>) -> Result<Asked, WireError> {
        let partition = reader.i32()?;
        let leader_epoch = if version >= 9 { reader.i32()? } else { -1 };
        let offset = reader.i64()?;
        let last_fetched_epoch = if version >= 12 { reader.i32()? } else { -1 };
        if version >= 5 {
            let _log_start = reader.i64()?;
        }
        let bytes_max = reader.i32()? as usize;
        if version >= 12 {
            reader.skip_tagged_fields()?;
        }
        Ok(Asked { partition, leader_epoch, offset, last_fetched_epoch, bytes_max })
    }
}
