//! What a Fetch asks for.

use crate::answers::Request;
use huntd::kafka::wire::{WireError, WireReader};

/// What a Fetch asks for.
pub(crate) struct AskedFetch {
    pub(crate) wait_ms: u64,
    pub(crate) bytes_max: usize,
    pub(crate) topic_id: u128,
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
        let (version, reader) = (request.version, &mut request.reader);
        reader.skip_tagged_fields()?;
        if version <= 14 {
            let _replica = reader.i32()?;
        }
        let (wait_ms, _bytes_min) = (reader.i32()?, reader.i32()?);
        let (bytes_max, _isolation) = (reader.i32()?, reader.i8()?);
        let _session = (reader.i32()?, reader.i32()?);
        assert_eq!(reader.array(true)?, 1);
        let topic_id = reader.u128()?;
        let partitions = (0..reader.array(true)?).map(|_| Asked::read(reader));
        let partitions = partitions.collect::<Result<_, WireError>>()?;
        reader.skip_tagged_fields()?;
        assert_eq!(reader.array(true)?, 0, "forgotten topics");
        // Else a leader may send the daemon to a follower, which it does not fetch from.
        assert_eq!(reader.string(true)?, "", "the rack");
        let (wait_ms, bytes_max) = (wait_ms as u64, bytes_max as usize);
        Ok(AskedFetch { wait_ms, bytes_max, topic_id, partitions })
    }
}

impl Asked {
    fn read(reader: &mut WireReader<'_>) -> Result<Asked, WireError> {
        let (partition, leader_epoch) = (reader.i32()?, reader.i32()?);
        let (offset, last_fetched_epoch) = (reader.i64()?, reader.i32()?);
        let _log_start = reader.i64()?;
        let bytes_max = reader.i32()? as usize;
        reader.skip_tagged_fields()?;
        Ok(Asked { partition, leader_epoch, offset, last_fetched_epoch, bytes_max })
    }
}
