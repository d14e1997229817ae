//! The requests that the feeder answers in the broker's place, in all versions that a client may
//! choose. Source: Kafka's protocol guide, FetchRequest.json, ProduceRequest.json, their answers.

use crate::feed::Feed;
use huntd::kafka::wire::{FRAME_PREFIX_BYTES, WireError, WireReader, WireWriter};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::thread;
use std::time::Duration;
use support::wire;

pub(crate) const PRODUCE: i16 = 0;
pub(crate) const FETCH: i16 = 1;

/// First versions in the compact, tagged encoding.
const PRODUCE_FLEXIBLE: i16 = 9;
const FETCH_FLEXIBLE: i16 = 12;

/// The first version of Fetch that names topics by their ids.
const FETCH_BY_ID: i16 = 13;

/// The last version of Produce that names topics.
const PRODUCE_BY_NAME_MAX: i16 = 12;

/// Reads a message with its length.
pub(crate) fn read_message(from: &mut impl Read, bytes: &mut Vec<u8>) -> io::Result<()> {
    bytes.resize(FRAME_PREFIX_BYTES, 0);
    from.read_exact(bytes)?;
    let length = i32::from_be_bytes(*bytes.first_chunk().expect("four bytes"));
    bytes.resize(FRAME_PREFIX_BYTES + length as usize, 0);
    from.read_exact(&mut bytes[FRAME_PREFIX_BYTES..])
}

/// The head of any request.
pub(crate) struct Request {
    pub api: i16,
    pub version: i16,
    pub correlation_id: i32,
    /// Where the body begins, or the tagged fields before it.
    body: usize,
}

impl Request {
    pub(crate) fn read(bytes: &[u8]) -> Result<Request, WireError> {
        let mut reader = WireReader::resume(bytes, FRAME_PREFIX_BYTES);
        let (api, version) = (reader.i16()?, reader.i16()?);
        let correlation_id = reader.i32()?;
        reader.nullable_string(false)?;
        Ok(Request { api, version, correlation_id, body: reader.at() })
    }

    /// A reader of the body.
    fn body<'a>(&self, bytes: &'a [u8], flexible: bool) -> Result<WireReader<'a>, WireError> {
        let mut reader = WireReader::resume(bytes, self.body);
        if flexible {
            reader.skip_tagged_fields()?;
        }
        Ok(reader)
    }
}

/// Which topic a Fetch asks for.
enum Asked {
    Name(String),
    Id(u128),
}

/// A Fetch of one topic.
pub(crate) struct Fetch {
    topic: Option<Asked>,
    wait_max: Duration,
    bytes_max: usize,
    /// Partition, offset, and bytes at most.
    partitions: Vec<(i32, i64, usize)>,
}

impl Fetch {
    pub(crate) fn read(bytes: &[u8], request: &Request) -> Result<Fetch, WireError> {
        let version = request.version;
        let flexible = version >= FETCH_FLEXIBLE;
        let mut reader = request.body(bytes, flexible)?;
        if version <= 14 {
            reader.i32()?; // replica_id
        }
        let wait_max = Duration::from_millis(reader.i32()?.max(0) as u64);
        reader.i32()?; // bytes_min
        let bytes_max = reader.i32()? as usize;
        reader.i8()?; // isolation_level: no transaction is open or aborted
        if version >= 7 {
            reader.i64()?; // session_id, session_epoch
        }
        let mut fetch = Fetch { topic: None, wait_max, bytes_max, partitions: Vec::new() };
        if reader.array(flexible)? != 1 {
            return Ok(fetch);
        }
        fetch.topic = Some(match version {
            FETCH_BY_ID.. => Asked::Id(reader.u128()?),
            _ => Asked::Name(reader.string(flexible)?.to_owned()),
        });
        for _ in 0..reader.array(flexible)? {
            let partition = reader.i32()?;
            if version >= 9 {
                reader.i32()?; // current_leader_epoch
            }
            let offset = reader.i64()?;
            if version >= 12 {
                reader.i32()?; // last_fetched_epoch
            }
            if version >= 5 {
                reader.i64()?; // log_start_offset
            }
            fetch.partitions.push((partition, offset, reader.i32()? as usize));
            if flexible {
                reader.skip_tagged_fields()?;
            }
        }
        Ok(fetch)
    }

    /// Whether it asks for this topic.
    pub(crate) fn is_of(&self, topic: &str, topic_id: u128) -> bool {
        match &self.topic {
            Some(Asked::Name(name)) => name == topic,
            Some(Asked::Id(id)) => *id == topic_id,
            None => false,
        }
    }

    /// Waits as the broker does when there is nothing.
    pub(crate) fn wait_for(&self, feed: &Feed) {
        let is_at_end = |(partition, offset, _): &(i32, i64, usize)| {
            feed.range(*partition, *offset, usize::MAX).is_empty()
        };
        if self.partitions.iter().all(is_at_end) {
            thread::sleep(self.wait_max);
        }
    }

    /// Answers it from memory.
    pub(crate) fn answer(
        &self,
        request: &Request,
        client: &TcpStream,
        feed: &Feed,
    ) -> io::Result<()> {
        let version = request.version;
        let flexible = version >= FETCH_FLEXIBLE;
        let mut left = self.bytes_max;
        let (mut heads, mut ranges) = (Vec::new(), Vec::new());
        let mut head = Vec::new();
        let mut writer = WireWriter::new(&mut head);
        writer.i32(0); // the length, once it is known
        writer.i32(request.correlation_id);
        no_tagged_fields(&mut writer, flexible);
        writer.i32(0); // throttle_time_ms
        if version >= 7 {
            writer.i16(0); // error_code
            writer.i32(0); // session_id
        }
        writer.array(1, flexible);
        match &self.topic {
            Some(Asked::Name(name)) => writer.string(name, flexible),
            Some(Asked::Id(id)) => writer.raw(&id.to_be_bytes()),
            None => unreachable!("the topic was compared"),
        }
        writer.array(self.partitions.len(), flexible);
        for (partition, offset, bytes_max) in &self.partitions {
            // The first batch of the answer comes whole, however large it is.
            let room = if ranges.is_empty() { left.max(1) } else { left };
            let range = feed.range(*partition, *offset, room.min(*bytes_max));
            left = left.saturating_sub(range.len());
            let end = feed.end(*partition);
            let mut writer = WireWriter::new(&mut head);
            writer.i32(*partition);
            writer.i16(0); // error_code
            writer.i64(end); // high_watermark
            writer.i64(end); // last_stable_offset
            if version >= 5 {
                writer.i64(0); // log_start_offset
            }
            writer.array(0, flexible); // aborted_transactions
            if version >= 11 {
                writer.i32(-1); // preferred_read_replica
            }
            // Bytes are counted as the elements of an array are.
            writer.array(range.len(), flexible);
            heads.push(std::mem::take(&mut head));
            ranges.push((*partition, range));
            no_tagged_fields(&mut WireWriter::new(&mut head), flexible);
        }
        let mut writer = WireWriter::new(&mut head);
        no_tagged_fields(&mut writer, flexible); // of the topic
        no_tagged_fields(&mut writer, flexible);
        let length = heads.iter().map(Vec::len).sum::<usize>()
            + ranges.iter().map(|(_, range)| range.len()).sum::<usize>()
            + head.len()
            - FRAME_PREFIX_BYTES;
        heads[0][..FRAME_PREFIX_BYTES].copy_from_slice(&(length as i32).to_be_bytes());
        for (head, (partition, range)) in heads.iter().zip(ranges) {
            wire::send_more(client, head)?;
            feed.send(partition, range, client)?;
        }
        let mut client = client;
        client.write_all(&head)
    }
}

/// A Produce to one topic.
pub(crate) struct Produced {
    pub topic: String,
    /// Each partition, and where its batch stands.
    pub batches: Vec<(i32, Range<usize>)>,
}

impl Produced {
    pub(crate) fn read(bytes: &[u8], request: &Request) -> Result<Produced, WireError> {
        assert!(request.version <= PRODUCE_BY_NAME_MAX, "a topic has a name");
        let flexible = request.version >= PRODUCE_FLEXIBLE;
        let mut reader = request.body(bytes, flexible)?;
        reader.nullable_string(flexible)?; // transactional_id
        assert_ne!(reader.i16()?, 0, "an answer is asked for");
        reader.i32()?; // timeout_ms
        let topics = reader.array(flexible)?;
        assert_eq!(topics, 1, "huntd and librdkafka produce to one topic at a time");
        let topic = reader.string(flexible)?.to_owned();
        let mut batches = Vec::new();
        for _ in 0..reader.array(flexible)? {
            let partition = reader.i32()?;
            let range = reader.nullable_bytes(flexible)?.expect("a batch");
            batches.push((partition, range));
            if flexible {
                reader.skip_tagged_fields()?;
            }
        }
        Ok(Produced { topic, batches })
    }

    /// The answer that takes all batches, at these offsets.
    pub(crate) fn answer(&self, request: &Request, offsets: &[(i32, i64)]) -> Vec<u8> {
        let version = request.version;
        let flexible = version >= PRODUCE_FLEXIBLE;
        let mut out = Vec::new();
        let mut writer = WireWriter::new(&mut out);
        let start = writer.begin_frame();
        writer.i32(request.correlation_id);
        no_tagged_fields(&mut writer, flexible);
        writer.array(1, flexible);
        writer.string(&self.topic, flexible);
        writer.array(offsets.len(), flexible);
        for (partition, offset) in offsets {
            writer.i32(*partition);
            writer.i16(0); // error_code
            writer.i64(*offset);
            if version >= 2 {
                writer.i64(-1); // log_append_time_ms: the topic keeps the producer's
            }
            if version >= 5 {
                writer.i64(0); // log_start_offset
            }
            if version >= 8 {
                writer.array(0, flexible); // record_errors
                // error_message: null
                writer.raw(if flexible { &[0] } else { &[0xff, 0xff] });
            }
            no_tagged_fields(&mut writer, flexible);
        }
        no_tagged_fields(&mut writer, flexible);
        writer.i32(0); // throttle_time_ms
        no_tagged_fields(&mut writer, flexible);
        writer.end_frame(start);
        out
    }
}

/// Writes an empty list of tagged fields, in the versions that have them.
fn no_tagged_fields(writer: &mut WireWriter<'_>, flexible: bool) {
    if flexible {
        writer.no_tagged_fields();
    }
}
