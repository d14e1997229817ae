//! Fetch, versions 4 to 17: the request is written into a reused buffer, the response is read in
//! place.
//!
//! Requests are sessionless (KIP-227: session id 0, epoch -1): a session saves bytes of requests
//! that are small anyway, and brings its own faults. One request asks for partitions of one topic.
//! Versions from 13 on name it by its id (KIP-516), so that a topic that was deleted and created
//! again under its name is never read for the one before. Source: Kafka's protocol guide,
//! FetchRequest.json and FetchResponse.json.

use std::ops::Range;

use thiserror::Error;

use crate::kafka::aborted::AbortedTransaction;
use crate::kafka::error_code::ErrorCode;
use crate::kafka::message::Broker;
use crate::kafka::wire::{WireError, WireReader, WireWriter};

/// Kafka's number of the Fetch request.
const API_KEY: i16 = 1;

/// The oldest version that is spoken: the first that returns record batches of format 2.
pub const FETCH_VERSION_MIN: i16 = 4;

/// The newest version that is spoken.
pub const FETCH_VERSION_MAX: i16 = 17;

/// The last version that names topics by name; later ones do it by id.
pub const VERSION_BY_NAME_MAX: i16 = 12;

/// The first version in the compact, tagged encoding (KIP-482).
const VERSION_FLEXIBLE: i16 = 12;

/// A topic, as requests name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicKey<'a> {
    /// Its name, for versions up to [`VERSION_BY_NAME_MAX`].
    pub name: &'a str,
    /// Its id, for later versions.
    pub id: u128,
}

/// What one Fetch asks for.
#[derive(Clone, Copy, Debug)]
pub struct FetchRequest<'a> {
    /// Version of the request, from [`FETCH_VERSION_MIN`] to [`FETCH_VERSION_MAX`].
    pub version: i16,
    /// Comes back in the response.
    pub correlation_id: i32,
    /// Name of the client in the broker's logs and quotas.
    pub client_id: &'a str,
    /// The one topic.
    pub topic: TopicKey<'a>,
    /// How long the broker may wait for `bytes_min`, in milliseconds.
    pub wait_ms_max: i32,
    /// Bytes that the broker should gather before it answers.
    pub bytes_min: i32,
    /// Bytes of the whole answer; the first batch comes whole even if it is larger.
    pub bytes_max: i32,
    /// Leave out open transactions and name the aborted ones.
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
    /// The leader epoch as this client knows it, -1 if unknown (KIP-320).
    pub leader_epoch: i32,
    /// Leader epoch of the last batch read, -1 if unknown; lets the broker notice a truncation.
    pub last_fetched_epoch: i32,
    /// Bytes that the partition may take in the answer.
    pub bytes_max: i32,
}

/// Appends one Fetch, its length prefix included, to `out`.
pub fn encode(request: &FetchRequest<'_>, out: &mut Vec<u8>) {
    let version = request.version;
    assert!((FETCH_VERSION_MIN..=FETCH_VERSION_MAX).contains(&version));
    let flexible = version >= VERSION_FLEXIBLE;
    let mut writer = WireWriter::new(out);
    let start = writer.begin_frame();
    writer.i16(API_KEY);
    writer.i16(version);
    writer.i32(request.correlation_id);
    // The client id keeps its old form even in the flexible header (KIP-482).
    writer.string(request.client_id, false);
    writer.no_tagged_fields(flexible);
    if version <= 14 {
        writer.i32(-1); // replica_id: a consumer
    }
    writer.i32(request.wait_ms_max);
    writer.i32(request.bytes_min);
    writer.i32(request.bytes_max);
    writer.i8(i8::from(request.read_committed));
    if version >= 7 {
        writer.i32(0); // session_id: none
        writer.i32(-1); // session_epoch: do not open one
    }
    writer.array(1, flexible);
    if version <= VERSION_BY_NAME_MAX {
        writer.string(request.topic.name, flexible);
    } else {
        writer.raw(&request.topic.id.to_be_bytes());
    }
    writer.array(request.partitions.len(), flexible);
    for partition in request.partitions {
        encode_partition(partition, version, &mut writer);
    }
    writer.no_tagged_fields(flexible);
    if version >= 7 {
        writer.array(0, flexible); // forgotten_topics_data
    }
    if version >= 11 {
        // No rack: then a leader sends nobody to a follower (KIP-392).
        writer.string("", flexible);
    }
    writer.no_tagged_fields(flexible);
    writer.end_frame(start);
}

fn encode_partition(partition: &FetchPartition, version: i16, writer: &mut WireWriter<'_>) {
    writer.i32(partition.partition);
    if version >= 9 {
        writer.i32(partition.leader_epoch);
    }
    writer.i64(partition.offset);
    if version >= 12 {
        writer.i32(partition.last_fetched_epoch);
    }
    if version >= 5 {
        writer.i64(-1); // log_start_offset: only followers have one
    }
    writer.i32(partition.bytes_max);
    writer.no_tagged_fields(version >= VERSION_FLEXIBLE);
}

/// Why a response to a Fetch cannot be read. The connection must be closed: what follows on it
/// cannot be trusted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FetchError {
    /// The bytes are no Fetch response.
    #[error("the Fetch response is malformed: {0}")]
    Wire(#[from] WireError),
    /// The response belongs to another request.
    #[error("the broker answered request {found} when the answer to {expected} was due")]
    Correlation {
        /// The oldest request without an answer.
        expected: i32,
        /// What the response names.
        found: i32,
    },
    /// The response holds a topic that was not asked for.
    #[error("the broker sent records of another topic than the one asked for")]
    Topic,
}

/// The fields of a Fetch response that stand before the partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchResponse {
    /// How long the client must send no request, in milliseconds (KIP-219).
    pub throttle_ms: u32,
    /// An error of the whole request.
    pub error: ErrorCode,
    /// Where the partitions are read.
    pub partitions: Partitions,
}

/// Reads a response up to its first partition. `bytes` is the response without its length prefix.
pub fn parse(bytes: &[u8], version: i16, correlation_id: i32) -> Result<FetchResponse, FetchError> {
    assert!((FETCH_VERSION_MIN..=FETCH_VERSION_MAX).contains(&version));
    let flexible = version >= VERSION_FLEXIBLE;
    let mut reader = WireReader::new(bytes);
    let found = reader.i32()?;
    if found != correlation_id {
        return Err(FetchError::Correlation { expected: correlation_id, found });
    }
    if flexible {
        reader.skip_tagged_fields()?;
    }
    let throttle_ms = u32::try_from(reader.i32()?).unwrap_or(0);
    let mut error = ErrorCode::NONE;
    if version >= 7 {
        error = ErrorCode(reader.i16()?);
        let _session_id = reader.i32()?;
    }
    let topics_left = reader.array(flexible)?;
    let at = reader.at();
    let (place, left, endpoints) = (ResponsePlace::Topics, 0, EndpointList::EMPTY);
    let partitions = Partitions { version, at, place, topics_left, left, endpoints };
    Ok(FetchResponse { throttle_ms, error, partitions })
}

/// Walks the partitions of a response. It holds places, not bytes, so that the caller may change
/// the records in place between two steps; a copy of it walks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partitions {
    version: i16,
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
    /// Whether and why there are no records; see [`trouble`].
    pub error: ErrorCode,
    /// Offset after the last committed record.
    pub high_watermark: i64,
    /// Offset before which every transaction is decided; -1 when the broker does not say.
    pub last_stable_offset: i64,
    /// First offset of the log; -1 when the broker does not say (before version 5).
    pub log_start_offset: i64,
    /// The aborted transactions that the records may belong to.
    pub aborted: AbortedList,
    /// The leader sends the client to a follower (KIP-392), and no records.
    pub names_follower: bool,
    /// The present leader, when the broker names it beside an error.
    pub leader: Option<CurrentLeader>,
    /// The log was truncated: it agrees with what was read only up to this point (KIP-595).
    pub diverging: Option<EpochEnd>,
    /// Where the record batches lie in the response; empty when there are none.
    pub records: Range<usize>,
}

/// A partition's leader, as a response names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrentLeader {
    /// The broker.
    pub node_id: i32,
    /// Its leader epoch.
    pub leader_epoch: i32,
}

/// The end of a leader epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEnd {
    /// The largest leader epoch, not above the asked one, that the leader knows.
    pub leader_epoch: i32,
    /// Offset after its last record.
    pub end_offset: i64,
}

impl Partitions {
    /// The next partition; `None` after the last, once the response's end was checked. `bytes` is
    /// the response that was parsed, `topic` the topic that was asked for.
    pub fn next_partition(
        &mut self,
        bytes: &[u8],
        topic: TopicKey<'_>,
    ) -> Result<Option<FetchedPartition>, FetchError> {
        let flexible = self.version >= VERSION_FLEXIBLE;
        let mut reader = WireReader::resume(bytes, self.at);
        // Each turn passes one topic, whose header takes bytes, so the loop ends with them.
        loop {
            match self.place {
                ResponsePlace::End => return Ok(None),
                ResponsePlace::Topics if self.topics_left == 0 => {
                    if flexible {
                        self.endpoints = EndpointList::read(&mut reader)?;
                    }
                    reader.finish()?;
                    self.place = ResponsePlace::End;
                }
                ResponsePlace::Topics => {
                    self.topics_left -= 1;
                    let is_asked = match self.version {
                        ..=VERSION_BY_NAME_MAX => reader.string(flexible)? == topic.name,
                        _ => reader.u128()? == topic.id,
                    };
                    if !is_asked {
                        return Err(FetchError::Topic);
                    }
                    self.left = reader.array(flexible)?;
                    self.place = ResponsePlace::Topic;
                }
                ResponsePlace::Topic if self.left == 0 => {
                    if flexible {
                        reader.skip_tagged_fields()?;
                    }
                    self.place = ResponsePlace::Topics;
                }
                ResponsePlace::Topic => {
                    self.left -= 1;
                    let partition = read_partition(&mut reader, self.version)?;
                    self.at = reader.at();
                    return Ok(Some(partition));
                }
            }
        }
    }
}

impl Partitions {
    /// Where the leaders listen that the partitions name beside an error (KIP-951, from version 16
    /// on). Known after the last partition.
    pub fn endpoints<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = Broker> + 'a {
        let EndpointList { at, count } = self.endpoints;
        let mut reader = WireReader::resume(bytes, at);
        (0..count).map_while(move |_| EndpointList::read_one(&mut reader).ok())
    }
}

/// Where a response's endpoints lie. Their bytes were checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EndpointList {
    at: usize,
    count: usize,
}

impl EndpointList {
    const EMPTY: EndpointList = EndpointList { at: 0, count: 0 };

    /// Reads the tagged fields at the end of a response.
    fn read(reader: &mut WireReader<'_>) -> Result<EndpointList, WireError> {
        let mut list = EndpointList::EMPTY;
        for _ in 0..reader.tagged_fields()? {
            let (tag, mut value) = reader.tagged_field()?;
            if tag != 0 {
                continue;
            }
            list.count = value.array(true)?;
            list.at = value.at();
            for _ in 0..list.count {
                EndpointList::read_one(&mut value)?;
            }
        }
        Ok(list)
    }

    fn read_one(reader: &mut WireReader<'_>) -> Result<Broker, WireError> {
        let node_id = reader.i32()?;
        let host = reader.string(true)?.to_owned();
        let port = u16::try_from(reader.i32()?).unwrap_or(0);
        let _rack = reader.nullable_string(true)?;
        reader.skip_tagged_fields()?;
        Ok(Broker { node_id, host, port })
    }
}

fn read_partition(
    reader: &mut WireReader<'_>,
    version: i16,
) -> Result<FetchedPartition, WireError> {
    let flexible = version >= VERSION_FLEXIBLE;
    let partition = reader.i32()?;
    let error = ErrorCode(reader.i16()?);
    let high_watermark = reader.i64()?;
    let last_stable_offset = reader.i64()?;
    let log_start_offset = if version >= 5 { reader.i64()? } else { -1 };
    let aborted = AbortedList::read(reader, flexible)?;
    let preferred = if version >= 11 { reader.i32()? } else { -1 };
    let end = reader.at();
    let records = reader.nullable_bytes(flexible)?.unwrap_or(end..end);
    let (mut leader, mut diverging) = (None, None);
    if flexible {
        for _ in 0..reader.tagged_fields()? {
            match reader.tagged_field()? {
                (0, mut value) => {
                    let (leader_epoch, end_offset) = (value.i32()?, value.i64()?);
                    diverging = (end_offset >= 0).then_some(EpochEnd { leader_epoch, end_offset });
                }
                (1, mut value) => {
                    let (node_id, leader_epoch) = (value.i32()?, value.i32()?);
                    leader = (node_id >= 0).then_some(CurrentLeader { node_id, leader_epoch });
                }
                _ => {}
            }
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

/// Where a partition's aborted transactions lie in the response. Their bytes were checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedList {
    at: usize,
    count: usize,
    flexible: bool,
}

impl AbortedList {
    fn read(reader: &mut WireReader<'_>, flexible: bool) -> Result<AbortedList, WireError> {
        let count = reader.nullable_array(flexible)?.unwrap_or(0);
        let list = AbortedList { at: reader.at(), count, flexible };
        for _ in 0..count {
            AbortedList::read_one(reader, flexible)?;
        }
        Ok(list)
    }

    fn read_one(
        reader: &mut WireReader<'_>,
        flexible: bool,
    ) -> Result<AbortedTransaction, WireError> {
        let (producer_id, first_offset) = (reader.i64()?, reader.i64()?);
        if flexible {
            reader.skip_tagged_fields()?;
        }
        Ok(AbortedTransaction { producer_id, first_offset })
    }

    /// The transactions; `bytes` is the response that the list was read from.
    pub fn iter<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = AbortedTransaction> + 'a {
        let AbortedList { at, count, flexible } = *self;
        let mut reader = WireReader::resume(bytes, at);
        (0..count).map_while(move |_| AbortedList::read_one(&mut reader, flexible).ok())
    }
}

/// What to do about a partition's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchRemedy {
    /// It passes by itself: ask again after a pause.
    RetryLater,
    /// Someone else leads: learn who, then ask there.
    RefreshMetadata,
    /// The log has no such offset: ask for its bounds, then halt.
    OffsetOutOfRange,
    /// No retry helps: the shard stops with the error's sentence once another connection has given
    /// the same answer.
    Fatal,
}

/// What to do about the error code of a partition or of the whole response; `None` for no error.
pub fn trouble(error: ErrorCode) -> Option<FetchRemedy> {
    match error.0 {
        0 => None,
        // Server trouble, time-outs, quotas; a leader that is not yet up to date (78); a right that
        // is missing, which may be granted, or not loaded yet by a broker that has just started
        // (29); and session errors, which a sessionless client cannot cause.
        -1 | 7 | 13 | 29 | 70 | 71 | 78 | 89 | 106 => Some(FetchRemedy::RetryLater),
        // The topic may be new, its leader elsewhere, its log directory offline, its id changed;
        // the leader may be known from a broker that is ahead, or its leader epoch went back (75).
        3 | 5 | 6 | 9 | 56 | 74 | 75 | 100 | 103 | 108 => Some(FetchRemedy::RefreshMetadata),
        1 | 109 => Some(FetchRemedy::OffsetOutOfRange),
        _ => Some(FetchRemedy::Fatal),
    }
}
