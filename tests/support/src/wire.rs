//! The few Kafka requests that the bench makes itself, over a blocking socket: a client library
//! between the load and the broker would cost more than what is measured.

use huntd::kafka::fetch::{self, FetchPartition, FetchRequest};
use huntd::kafka::message;
use huntd::kafka::record_batch::BatchHeader;
use huntd::kafka::wire::{FRAME_PREFIX_BYTES, WireError, WireReader, WireWriter};
use rustix::net::{SendFlags, send};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::ops::Range;

const CLIENT_ID: &str = "huntd-bench";

/// Versions that every broker since Kafka 3.1 speaks.
const PRODUCE_VERSION: i16 = 7;
const FETCH_VERSION: i16 = 13;
const LIST_OFFSETS_VERSION: i16 = 1;

const PRODUCE: i16 = 0;
const LIST_OFFSETS: i16 = 2;

/// Milliseconds that the broker may take to acknowledge.
const ACK_MS_MAX: i32 = 60_000;

/// Bytes of a Fetch response at most, beside one larger batch.
const FETCH_BYTES_MAX: i32 = 8 << 20;

/// Bytes of a batch at most.
const BATCH_BYTES_MAX: usize = 64 << 20;

/// A connection to the one broker, which leads all partitions.
pub struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    response: Vec<u8>,
}

impl Connection {
    pub fn open(address: &str) -> Connection {
        let stream = TcpStream::connect(address).expect("the broker listens");
        stream.set_nodelay(true).expect("a TCP socket has this option");
        Connection { stream, request: Vec::new(), response: Vec::new() }
    }

    /// Another handle of the same connection, so that one thread sends and another receives.
    pub fn other_end(&self) -> Connection {
        let stream = self.stream.try_clone().expect("an open socket can be duplicated");
        Connection { stream, request: Vec::new(), response: Vec::new() }
    }

    pub fn send(&mut self, request: &[u8]) {
        self.stream.write_all(request).expect("the broker reads");
    }

    /// The next response, without its length.
    pub fn receive(&mut self) -> &mut [u8] {
        let mut prefix = [0; FRAME_PREFIX_BYTES];
        self.stream.read_exact(&mut prefix).expect("the broker answers");
        let length = usize::try_from(i32::from_be_bytes(prefix)).expect("a length");
        if self.response.len() < length {
            self.response.resize(length, 0);
        }
        self.stream.read_exact(&mut self.response[..length]).expect("the broker answers");
        &mut self.response[..length]
    }

    /// The id of a topic.
    pub fn topic_id(&mut self, topic: &str) -> u128 {
        let mut request = std::mem::take(&mut self.request);
        request.clear();
        message::metadata_request(0, CLIENT_ID, topic, &mut request);
        self.send(&request);
        self.request = request;
        let answer = self.receive();
        let metadata = message::parse_metadata(answer, 0, topic);
        metadata.expect("the broker answers what was asked").topic_id
    }

    /// The end of each partition of a topic.
    pub fn ends(&mut self, topic: &str, partitions: i32) -> Vec<i64> {
        const LATEST: i64 = -1;
        let mut request = std::mem::take(&mut self.request);
        request.clear();
        let mut writer = WireWriter::new(&mut request);
        let start = writer.begin_frame();
        write_header(&mut writer, LIST_OFFSETS, LIST_OFFSETS_VERSION);
        writer.i32(-1); // replica_id: a consumer
        writer.array(1, false);
        writer.string(topic, false);
        writer.array(partitions as usize, false);
        for partition in 0..partitions {
            writer.i32(partition);
            writer.i64(LATEST);
        }
        writer.end_frame(start);
        self.send(&request);
        self.request = request;
        let mut ends = vec![0; partitions as usize];
        let mut answer = WireReader::new(self.receive());
        let end = |partition, answer: &mut WireReader<'_>| {
            answer.i64()?;
            ends[partition] = answer.i64()?;
            Ok(())
        };
        read_partitions(&mut answer, end)
            .and_then(|()| answer.finish())
            .expect("the broker answers what was asked");
        ends
    }

    /// Fetches from each partition at its offset, waiting at most so long for the first record.
    /// Each partition's whole batches are handed to `take`; the offset moves behind them.
    pub fn fetch(
        &mut self,
        topic_id: u128,
        offsets: &mut [i64],
        wait_ms_max: i32,
        mut take: impl FnMut(usize, &mut [u8]),
    ) {
        let partition = |(partition, offset): (i32, &i64)| FetchPartition {
            partition,
            offset: *offset,
            leader_epoch: -1,
            last_fetched_epoch: -1,
            bytes_max: FETCH_BYTES_MAX,
        };
        let partitions: Vec<FetchPartition> = (0..).zip(&*offsets).map(partition).collect();
        let mut request = std::mem::take(&mut self.request);
        request.clear();
        let asked = FetchRequest {
            version: FETCH_VERSION,
            correlation_id: 0,
            client_id: CLIENT_ID,
            topic_id,
            wait_ms_max,
            bytes_min: 1,
            bytes_max: FETCH_BYTES_MAX,
            read_committed: false,
            partitions: &partitions,
        };
        fetch::encode(&asked, &mut request);
        self.send(&request);
        self.request = request;
        let bytes = self.receive();
        let answer = fetch::parse(bytes, 0).expect("the broker answers");
        assert_eq!(answer.error.0, 0, "the broker refuses to be read");
        let mut parts = answer.partitions;
        while let Some(part) = parts.next_partition(bytes, topic_id).expect("the broker answers") {
            assert_eq!(part.error.0, 0, "partition {} cannot be read", part.partition);
            let place = part.partition as usize;
            let whole = whole_batches(&bytes[part.records.clone()], &mut offsets[place]);
            let start = part.records.start;
            take(place, &mut bytes[start..start + whole]);
        }
    }
}

/// Sends bytes that more bytes will follow at once.
pub fn send_more(to: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = send(to, bytes, SendFlags::MORE | SendFlags::NOSIGNAL)?;
        bytes = &bytes[sent..];
    }
    Ok(())
}

/// Bytes of the whole batches; the offset moves behind them.
fn whole_batches(records: &[u8], next_offset: &mut i64) -> usize {
    let mut end = 0;
    while let Some(header) =
        BatchHeader::read(&records[end..], BATCH_BYTES_MAX).expect("the broker's batches are sound")
    {
        end += header.bytes;
        *next_offset = header.last_offset() + 1;
    }
    end
}

/// The ranges of the batches in what [`Connection::fetch`] hands out, with their headers.
pub fn batches(bytes: &[u8]) -> impl Iterator<Item = (BatchHeader, Range<usize>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let header = BatchHeader::read(&bytes[at..], BATCH_BYTES_MAX).expect("checked before")?;
        let start = at;
        at += header.bytes;
        Some((header, start..at))
    })
}

fn write_header(writer: &mut WireWriter<'_>, api: i16, version: i16) {
    writer.i16(api);
    writer.i16(version);
    writer.i32(0); // correlation_id: answers come in order
    writer.string(CLIENT_ID, false);
}

/// Writes one Produce request: a batch for each of some partitions.
pub struct ProduceRequest<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    count_at: usize,
    count: i32,
}

impl<'a> ProduceRequest<'a> {
    pub fn begin(out: &'a mut Vec<u8>, topic: &str) -> ProduceRequest<'a> {
        out.clear();
        let mut writer = WireWriter::new(out);
        writer.i32(0);
        write_header(&mut writer, PRODUCE, PRODUCE_VERSION);
        writer.i16(-1); // transactional_id: none
        writer.i16(-1); // acks: all
        writer.i32(ACK_MS_MAX);
        writer.array(1, false);
        writer.string(topic, false);
        let count_at = out.len();
        out.extend_from_slice(&0i32.to_be_bytes());
        ProduceRequest { out, start: 0, count_at, count: 0 }
    }

    /// Adds a partition's batch, which must be the request's only one of that partition, and gives
    /// its bytes to be patched.
    pub fn add(&mut self, partition: usize, batch: &[u8]) -> &mut [u8] {
        self.count += 1;
        let mut writer = WireWriter::new(self.out);
        writer.i32(partition as i32);
        writer.i32(batch.len() as i32);
        let at = self.out.len();
        self.out.extend_from_slice(batch);
        &mut self.out[at..]
    }

    pub fn finish(self) {
        let ProduceRequest { out, start, count_at, count } = self;
        out[count_at..count_at + 4].copy_from_slice(&count.to_be_bytes());
        let length = (out.len() - start - FRAME_PREFIX_BYTES) as i32;
        out[start..start + FRAME_PREFIX_BYTES].copy_from_slice(&length.to_be_bytes());
    }
}

/// The answer that takes a batch of each partition.
pub fn produced(topic: &str, partitions: i32) -> Vec<u8> {
    let mut answer = Vec::new();
    let mut writer = WireWriter::new(&mut answer);
    let start = writer.begin_frame();
    writer.i32(0); // correlation_id: answers come in order
    writer.array(1, false);
    writer.string(topic, false);
    writer.array(partitions as usize, false);
    for partition in 0..partitions {
        writer.i32(partition);
        writer.i16(0);
        // base_offset, log_append_time_ms, log_start_offset: nobody asks for them.
        (0..3).for_each(|_| writer.i64(-1));
    }
    writer.i32(0); // throttle_time_ms
    writer.end_frame(start);
    answer
}

/// Checks the answer to a Produce request.
pub fn check_produced(answer: &[u8]) {
    let mut answer = WireReader::new(answer);
    read_partitions(&mut answer, |_, answer| answer.skip(3 * size_of::<i64>()).map(drop))
        .and_then(|()| answer.i32())
        .and_then(|_| answer.finish())
        .expect("the broker answers what was asked");
}

/// Reads the answer about one topic up to the end of its partitions: what follows the number of
/// each, `rest` reads. The broker must have refused none of them.
fn read_partitions(
    answer: &mut WireReader<'_>,
    mut rest: impl FnMut(usize, &mut WireReader<'_>) -> Result<(), WireError>,
) -> Result<(), WireError> {
    answer.i32()?;
    answer.array(false)?;
    answer.string(false)?;
    for _ in 0..answer.array(false)? {
        let (partition, error) = (answer.i32()?, answer.i16()?);
        assert_eq!(error, 0, "the broker refuses partition {partition}");
        rest(partition as usize, answer)?;
    }
    Ok(())
}
