//! Fetch, versions 13 to 17. The request is written into a reused buffer; the response is read in
//! place.
//!
//! Requests are sessionless (KIP-227: session id 0, epoch -1): a session would save bytes of
//! requests that are small anyway, and has failure modes of its own. One request asks for
//! partitions of one topic. These versions name the topic by its id (KIP-516), so a topic that was
//! deleted and recreated is never mistaken for the old one. All are in the compact, tagged encoding
//! (KIP-482). Source: Kafka's protocol guide, FetchRequest.json and FetchResponse.json.

use std::ops::Range;

use thiserror::Error;

use crate::kafka::aborted::AbortedTransaction;
use crate::kafka::error_code::ErrorCode;
use crate::kafka::leader_hint::{CurrentLeader, EndpointList};
use crate::kafka::message::Broker;
use crate::kafka::wire::{WireError, WireReader, WireWriter};

/// Kafka's number of the Fetch request.
const API_KEY: i16 = 1;

/// The oldest supported version: the first that names topics by their ids, since Kafka 3.1.
pub const FETCH_VERSION_MIN: i16 = 13;

/// The newest supported version.
pub(crate) const FETCH_VERSION_MAX: i16 = 17;

/// The fields of a Fetch.
#[derive(Clone, Copy, Debug)]
pub struct FetchRequest<'a> {
    /// Version of the request, from [`FETCH_VERSION_MIN`] to [`FETCH_VERSION_MAX`].
    pub version: i16,
    /// Returned in the response.
    pub correlation_id: i32,
    /// Name of the client in the broker's logs and quotas.
    pub client_id: &'a str,
    /// The topic's id.
    pub topic_id: u128,
    /// How long the broker may wait for `bytes_min`, in milliseconds.
    pub wait_ms_max: i32,
    /// Bytes that the broker should collect before it answers.
    pub bytes_min: i32,
    /// Limit of the whole answer; the first batch is returned whole even if it is larger.
    pub bytes_max: i32,
    /// True if the broker should leave out open transactions and list the aborted ones.
    pub read_committed: bool,
    /// The partitions, in the order in which the broker should fill the answer.
    pub partitions: &'a [FetchPartition],
}

/// One partition of a Fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchPartition {
    /// The partition.
    pub partition: i32,
    /// Offset of the first record wanted.
    pub offset: i64,
    /// The leader epoch that this client knows, -1 if unknown (KIP-320).
    pub leader_epoch: i32,
    /// Leader epoch of the last batch read, -1 if unknown; lets the broker notice a truncation.
    pub last_fetched_epoch: i32,
    /// Limit of the partition's bytes in the answer.
    pub bytes_max: i32,
}

/// Appends a Fetch request, length prefix included, to `out`.
pub fn encode(request: &FetchRequest<'_>, out: &mut Vec<u8>) {
    let version = request.version;
    assert!((FETCH_VERSION_MIN..=FETCH_VERSION_MAX).contains(&version));
    let mut writer = WireWriter::new(out);
    let start = writer.begin_frame();
    writer.i16(API_KEY);
    writer.i16(version);
    writer.i32(request.correlation_id);
    // The client id keeps its old form even in the flexible header (KIP-482).
    writer.string(request.client_id, false);
    writer.no_tagged_fields();
    if version <= 14 {
        writer.i32(-1); // replica_id: a consumer
    }
    writer.i32(request.wait_ms_max);
    writer.i32(request.bytes_min);
    writer.i32(request.bytes_max);
    writer.i8(i8::from(request.read_committed));
    writer.i32(0); // session_id: none
    writer.i32(-1); // session_epoch: do not open one
    writer.array(1, true);
    writer.raw(&request.topic_id.to_be_bytes());
    writer.array(request.partitions.len(), true);
    for partition in request.partitions {
        writer.i32(partition.partition);
        writer.i32(partition.leader_epoch);
        writer.i64(partition.offset);
        writer.i32(partition.last_fetched_epoch);
        writer.i64(-1); // log_start_offset: only followers have one
        writer.i32(partition.bytes_max);
        writer.no_tagged_fields();
    }
    writer.no_tagged_fields();
    writer.array(0, true); // forgotten_topics_data
    // No rack: then no leader redirects the client to a follower (KIP-392).
    writer.string("", true);
    writer.no_tagged_fields();
    writer.end_frame(start);
}

/// Why a response to a Fetch cannot be read. The connection must be closed, because the bytes that
/// follow cannot be trusted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FetchError {
    /// The bytes are not a Fetch response.
    #[error("the Fetch response is malformed: {0}")]
    Wire(#[from] WireError),
    /// The response belongs to another request.
    #[error("the broker answered request {found} when the answer to {expected} was due")]
    Correlation {
        /// The oldest outstanding request.
        expected: i32,
        /// The correlation id of the response.
        found: i32,
    },
    /// The response holds a topic that was not asked for.
    #[error("the broker sent records of another topic than the one asked for")]
    Topic,
}

/// The fields of a Fetch response before the partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchResponse {
    /// The time for which the client must not send requests, in milliseconds (KIP-219).
    pub throttle_ms: u32,
    /// An error of the whole request.
    pub error: ErrorCode,
    /// An iterator over the partitions.
    pub partitions: Partitions,
}

/// Reads a response up to its first partition. `bytes` is the response without its length prefix.
pub fn parse(bytes: &[u8], correlation_id: i32) -> Result<FetchResponse, FetchError> {
    let mut reader = WireReader::new(bytes);
    let found = reader.i32()?;
    if found != correlation_id {
        return Err(FetchError::Correlation { expected: correlation_id, found });
    }
    reader.skip_tagged_fields()?;
    let throttle_ms = u32::try_from(reader.i32()?).unwrap_or(0);
    let error = ErrorCode(reader.i16()?);
    let _session_id = reader.i32()?;
    let topics_left = reader.array(true)?;
    let at = reader.at();
    let (place, left, endpoints) = (ResponsePlace::Topics, 0, EndpointList::EMPTY);
    let partitions = Partitions { at, place, topics_left, left, endpoints };
    Ok(FetchResponse { throttle_ms, error, partitions })
}

/// Iterates over the partitions of a response. It holds positions, not bytes, so the caller may
/// change the records in place between two steps. A copy starts over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partitions {
    at: usize,
    place: ResponsePlace,
    topics_left: usize,
    /// Partitions of the current topic still to be read.
    left: usize,
    endpoints: EndpointList,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponsePlace {
    /// Before a topic, or before the end.
    Topics,
    /// Before a partition of a topic, or before the topic's end.
    Topic,
    /// After everything.
    End,
}

/// One partition of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedPartition {
    /// The partition.
    pub partition: i32,
    /// The error, if there are no records; see [`trouble`].
    pub error: ErrorCode,
    /// Offset after the last committed record.
    pub high_watermark: i64,
    /// Offset before which every transaction is decided; -1 if the broker does not report it.
    pub last_stable_offset: i64,
    /// First offset of the log; -1 if the broker does not report it.
    pub log_start_offset: i64,
    /// The aborted transactions that the records may belong to.
    pub aborted: AbortedList,
    /// True if the leader redirects the client to a follower (KIP-392), without records.
    pub names_follower: bool,
    /// The current leader, if the broker names it along with an error.
    pub leader: Option<CurrentLeader>,
    /// The log was truncated: it matches what was read only up to this point (KIP-595).
    pub diverging: Option<EpochEnd>,
    /// Range of the record batches in the response; empty if there are none.
    pub records: Range<usize>,
}

/// The end of a leader epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEnd {
    /// The largest leader epoch known to the leader that is not above the requested one.
    pub leader_epoch: i32,
    /// Offset after its last record.
    pub end_offset: i64,
}

impl Partitions {
    /// Returns the next partition; `None` after the last, once the end of the response is checked.
    /// `bytes` is the parsed response, `topic_id` the requested topic.
    pub fn next_partition(
        &mut self,
        bytes: &[u8],
        topic_id: u128,
    ) -> Result<Option<FetchedPartition>, FetchError> {
        let mut reader = WireReader::resume(bytes, self.at);
        // Each iteration consumes the header of one topic, so the loop ends with the bytes.
        loop {
            match self.place {
                ResponsePlace::End => return Ok(None),
                ResponsePlace::Topics if self.topics_left == 0 => {
                    self.endpoints = EndpointList::read(&mut reader)?;
                    reader.finish()?;
                    self.place = ResponsePlace::End;
                }
                ResponsePlace::Topics => {
                    self.topics_left -= 1;
                    if reader.u128()? != topic_id {
                        return Err(FetchError::Topic);
                    }
                    self.left = reader.array(true)?;
                    self.place = ResponsePlace::Topic;
                }
                ResponsePlace::Topic if self.left == 0 => {
                    reader.skip_tagged_fields()?;
                    self.place = ResponsePlace::Topics;
                }
                ResponsePlace::Topic => {
                    self.left -= 1;
                    let partition = read_partition(&mut reader)?;
                    self.at = reader.at();
                    return Ok(Some(partition));
                }
            }
        }
    }
}

impl Partitions {
    /// The endpoints of the leaders that partitions name along with an error (KIP-951, from version
    /// 16 on). Available after the last partition.
    pub fn endpoints<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = Broker> + 'a {
        self.endpoints.of(bytes)
    }
}

fn read_partition(reader: &mut WireReader<'_>) -> Result<FetchedPartition, WireError> {
    let partition = reader.i32()?;
    let error = ErrorCode(reader.i16()?);
    let high_watermark = reader.i64()?;
    let last_stable_offset = reader.i64()?;
    let log_start_offset = reader.i64()?;
    let aborted = AbortedList::read(reader)?;
    let preferred = reader.i32()?;
    let end = reader.at();
    let records = reader.nullable_bytes(true)?.unwrap_or(end..end);
    let (mut leader, mut diverging) = (None, None);
    for _ in 0..reader.tagged_fields()? {
        match reader.tagged_field()? {
            (0, mut value) => {
                let (leader_epoch, end_offset) = (value.i32()?, value.i64()?);
                diverging = (end_offset >= 0).then_some(EpochEnd { leader_epoch, end_offset });
            }
            (1, mut value) => leader = CurrentLeader::read(&mut value)?,
            _ => {}
        }
    }
    Ok(FetchedPartition {
        partition,
        error,
        high_watermark,
        last_stable_offset,
        log_start_offset,
        aborted,
        names_follower: preferred >= 0 && records.is_empty(),
        leader,
        diverging,
        records,
    })
}

/// Position of a partition's aborted transactions in the response. Their bytes are checked already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedList {
    at: usize,
    count: usize,
}

impl AbortedList {
    fn read(reader: &mut WireReader<'_>) -> Result<AbortedList, WireError> {
        let count = reader.nullable_array(true)?.unwrap_or(0);
        let list = AbortedList { at: reader.at(), count };
        for _ in 0..count {
            AbortedList::read_one(reader)?;
        }
        Ok(list)
    }

    fn read_one(reader: &mut WireReader<'_>) -> Result<AbortedTransaction, WireError> {
        let (producer_id, first_offset) = (reader.i64()?, reader.i64()?);
        reader.skip_tagged_fields()?;
        Ok(AbortedTransaction { producer_id, first_offset })
    }

    /// Returns the transactions; `bytes` is the response that the list was read from.
    pub fn iter<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = AbortedTransaction> + 'a {
        let AbortedList { at, count } = *self;
        let mut reader = WireReader::resume(bytes, at);
        (0..count).map_while(move |_| AbortedList::read_one(&mut reader).ok())
    }
}

/// How to handle a partition's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchRemedy {
    /// The condition is temporary: retry after a pause.
    RetryLater,
    /// Another broker leads: refresh the metadata, then ask there.
    RefreshMetadata,
    /// The offset is out of range: ask for the log's bounds, then halt.
    OffsetOutOfRange,
    /// No retry helps: the shard stops with the error's sentence once another connection has
    /// confirmed it.
    Fatal,
}

/// How to handle the error code of a partition or of a whole response; `None` for no error.
pub fn trouble(error: ErrorCode) -> Option<FetchRemedy> {
    match error.0 {
        0 => None,
        // Server errors, time-outs, quotas; a new leader that is not up to date (78); a missing
        // right, which may be granted later, or not be loaded yet by a broker that has just started
        // (29); and session errors, which a sessionless client cannot cause.
        -1 | 7 | 13 | 29 | 70 | 71 | 78 | 89 | 106 => Some(FetchRemedy::RetryLater),
        // The topic may be new, its leader elsewhere, its log directory offline, its id changed; or
        // the known leader comes from a broker with newer metadata, or its leader epoch went back
        // (75).
        3 | 5 | 6 | 9 | 56 | 74 | 75 | 100 | 103 | 108 => Some(FetchRemedy::RefreshMetadata),
        1 | 109 => Some(FetchRemedy::OffsetOutOfRange),
        _ => Some(FetchRemedy::Fatal),
    }
}
