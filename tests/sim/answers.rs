//! A broker's answers, byte by byte: ApiVersions, Metadata and Fetch, each in the version of the
//! request. `appends.rs` has what is appended.

use crate::asked_fetch::{Asked, AskedFetch};
use crate::broker::{BROKERS, Broker, InputLog};
use crate::chance::{Chance, Fault, Sight};
use crate::damage;
use huntd::kafka::wire::{WireError, WireReader, WireWriter};

/// The input topic.
pub(crate) const TOPIC: &str = "events";

/// The topic with the frames.
pub(crate) const OUTPUT_TOPIC: &str = "updates";

/// The newest Metadata that the brokers speak.
const METADATA_VERSION: i16 = 13;

/// The id of the topic with the frames.
const OUTPUT_TOPIC_ID: u128 = 7;

const UNKNOWN_TOPIC: i16 = 3;
const UNKNOWN_TOPIC_ID: i16 = 100;

/// The result of a request.
pub(crate) enum Answer {
    /// These bytes, length included.
    Bytes(Vec<u8>),
    /// Nothing yet, for this many milliseconds at most.
    Hold(u64),
}

pub(crate) struct Request<'a> {
    pub(crate) version: i16,
    pub(crate) correlation_id: i32,
    /// Behind the client's name.
    pub(crate) reader: WireReader<'a>,
    /// The whole request.
    pub(crate) bytes: &'a [u8],
}

impl Broker {
    /// Answers one request, its length left out. `is_late`: the time to hold it back is over.
    pub(crate) fn answer(
        &mut self,
        chance: &mut Chance,
        node_id: i32,
        request: &[u8],
        is_late: bool,
    ) -> Answer {
        let mut reader = WireReader::new(request);
        let key = reader.i16().expect("a request has a key");
        let version = reader.i16().expect("a request has a version");
        let correlation_id = reader.i32().expect("a request has an id");
        let _client = reader.nullable_string(false).expect("a request names its client");
        let request = Request { version, correlation_id, reader, bytes: request };
        match key {
            0 => self.answer_produce(chance, node_id, request, is_late),
            1 => self.answer_fetch(chance, node_id, request, is_late),
            2 => Answer::Bytes(self.answer_list_offsets(node_id, request)),
            3 => Answer::Bytes(self.answer_metadata(node_id, request)),
            18 => Answer::Bytes(self.answer_api_versions(&request)),
            22 => Answer::Bytes(self.answer_producer_id(chance, &request)),
            other => panic!("nobody asks for API {other}"),
        }
    }

    fn answer_api_versions(&self, request: &Request<'_>) -> Vec<u8> {
        let ranges = [
            (0, 0, self.produce_version),
            (22, 0, self.produce_version / 2),
            (1, 0, self.fetch_version),
            (3, 0, METADATA_VERSION),
            (18, 0, self.api_versions_version),
        ];
        let is_known = request.version <= self.api_versions_version;
        // An unknown version is answered in version 0 (KIP-511).
        let version = if is_known { request.version } else { 0 };
        frame(|writer| {
            writer.i32(request.correlation_id);
            writer.i16(if is_known { 0 } else { 35 });
            writer.array(ranges.len(), version >= 3);
            for (key, min, max) in ranges {
                [key, min, max].into_iter().for_each(|field| writer.i16(field));
                if version >= 3 {
                    writer.no_tagged_fields();
                }
            }
            if version >= 1 {
                writer.i32(0);
            }
            if version >= 3 {
                writer.no_tagged_fields();
            }
        })
    }

    fn answer_metadata(&self, node_id: i32, mut request: Request<'_>) -> Vec<u8> {
        let topic = read_metadata(&mut request).expect("huntd sends whole requests");
        frame(|writer| {
            writer.i32(request.correlation_id);
            writer.no_tagged_fields();
            writer.i32(0);
            writer.array(BROKERS as usize, true);
            for node_id in 1..=BROKERS {
                writer.i32(node_id);
                writer.string(&self.host(node_id), true);
                writer.i32(9092);
                writer.unsigned_varint(0); // no rack
                writer.no_tagged_fields();
            }
            writer.string("simulated", true);
            writer.i32(1);
            writer.array(1, true);
            self.write_topic(writer, node_id, topic);
            writer.no_tagged_fields();
        })
    }

    /// Partitions of the same number have the same leader in both topics.
    fn write_topic(&self, writer: &mut WireWriter<'_>, node_id: i32, topic: &str) {
        let (is_input, is_there) = (topic == TOPIC, topic != TOPIC || self.has_input());
        writer.i16(if is_there { 0 } else { UNKNOWN_TOPIC });
        writer.string(topic, true);
        let id = match is_input {
            true if is_there => self.input_topic.id,
            true => 0,
            false => OUTPUT_TOPIC_ID,
        };
        writer.raw(&id.to_be_bytes());
        writer.i8(0);
        let logs = if is_there { self.inputs_of(node_id) } else { &[] };
        writer.array(logs.len(), true);
        for (partition, log) in (0..).zip(logs) {
            writer.i16(0);
            writer.i32(partition);
            writer.i32(log.leader);
            let of_output = || self.output_leader_epoch_of(node_id, partition as usize);
            writer.i32(if is_input { log.leader_epoch } else { of_output() });
            for _replicas in 0..3 {
                writer.array(1, true);
                writer.i32(log.leader);
            }
            writer.no_tagged_fields();
        }
        writer.i32(0);
        writer.no_tagged_fields();
    }

    fn answer_list_offsets(&self, node_id: i32, mut request: Request<'_>) -> Vec<u8> {
        let reader = &mut request.reader;
        let mut read = || -> Result<Vec<(i32, i64)>, WireError> {
            let _replica = reader.i32()?;
            assert_eq!(reader.array(false)?, 1);
            assert_eq!(reader.string(false)?, TOPIC);
            (0..reader.array(false)?).map(|_| Ok((reader.i32()?, reader.i64()?))).collect()
        };
        let asked = read().expect("huntd sends whole requests");
        frame(|writer| {
            writer.i32(request.correlation_id);
            writer.array(1, false);
            writer.string(TOPIC, false);
            writer.array(asked.len(), false);
            for (partition, time) in asked {
                let log = &self.inputs_of(node_id)[partition as usize];
                writer.i32(partition);
                writer.i16(match log.leader == node_id {
                    _ if !self.has_input() => UNKNOWN_TOPIC,
                    true => 0,
                    false => 6,
                });
                writer.i64(-1);
                writer.i64(if time == -2 { log.start } else { log.end });
            }
        })
    }

    fn answer_fetch(
        &mut self,
        chance: &mut Chance,
        node_id: i32,
        mut request: Request<'_>,
        is_late: bool,
    ) -> Answer {
        let asked_fetch = AskedFetch::read(&mut request).expect("huntd sends whole requests");
        let AskedFetch { wait_ms, bytes_max, topic_id, partitions } = asked_fetch;
        let topic_error = (topic_id != self.input_topic.id).then_some(UNKNOWN_TOPIC_ID);
        let Request { correlation_id, .. } = request;
        let is_refused = chance.strikes(Fault::FetchRefused);
        if chance.strikes(Fault::BrokerMoves) {
            self.moves[chance.below(BROKERS as u64) as usize] += 1;
        }
        let throttle_ms = throttle_ms(chance);
        let mut parts = Vec::new();
        let (mut records, mut has_news) = (0, false);
        for asked in &partitions {
            let room = bytes_max.saturating_sub(records).max(usize::from(records == 0));
            let part = match topic_error {
                Some(error) => Part { error, ..self.empty_part(node_id, asked) },
                None => self.part(chance, node_id, asked, room),
            };
            records += part.records.len();
            has_news |= part.is_news();
            parts.push(part);
        }
        if !has_news && !is_refused && !is_late {
            return Answer::Hold(wait_ms);
        }
        Answer::Bytes(frame(|writer| {
            writer.i32(correlation_id);
            writer.no_tagged_fields();
            writer.i32(throttle_ms);
            writer.i16(if is_refused { chance.pick(&[7, 70, 71, 89]) as i16 } else { 0 });
            writer.i32(0);
            if is_refused {
                writer.array(0, true);
            } else {
                writer.array(1, true);
                writer.raw(&topic_id.to_be_bytes());
                writer.array(parts.len(), true);
                parts.iter().for_each(|part| part.write(writer));
                writer.no_tagged_fields();
            }
            writer.no_tagged_fields();
        }))
    }

    fn empty_part(&self, node_id: i32, asked: &Asked) -> Part {
        let log = &self.inputs_of(node_id)[asked.partition as usize];
        Part::new(asked.partition, log, asked.offset)
    }

    fn part(&self, chance: &mut Chance, node_id: i32, asked: &Asked, room: usize) -> Part {
        let log = &self.inputs_of(node_id)[asked.partition as usize];
        let mut part = self.empty_part(node_id, asked);
        let diverging = match asked.last_fetched_epoch {
            known if known >= 0 => log.diverges(known, asked.offset),
            _ => None,
        };
        part.error = if chance.strikes(Fault::PartitionRefused) {
            chance.pick(&[3, 5, 6, 7, 9, 13, 29, 56, 74, 75, 78, 100, 103, 106, 108]) as i16
        } else if chance.strikes_of(Fault::PartitionForbidden, 1) && chance.one_in(5) {
            chance.pick(&[2, 76]) as i16
        } else if log.leader != node_id {
            6
        } else if (0..log.leader_epoch).contains(&asked.leader_epoch) {
            74
        } else if asked.leader_epoch > log.leader_epoch {
            chance.see(Sight::LeaderEpochUnknown);
            75
        } else if diverging.is_none() && !(log.start..=log.end).contains(&asked.offset) {
            1
        } else {
            0
        };
        if part.error != 0 {
            part.leader =
                (part.error == 6 || part.error == 74).then_some((log.leader, log.leader_epoch));
        } else if diverging.is_some() {
            part.diverging = diverging;
        } else {
            part.records = log.read(asked.offset..log.end, asked.bytes_max.min(room));
            damage::flip_unchecked_bit(chance, &mut part.records);
            damage::flip_bit(chance, &mut part.records);
            if log.end < self.inputs[asked.partition as usize].end {
                chance.see(Sight::LedByCutOff);
            }
        }
        part
    }
}

/// What is answered of one partition.
struct Part {
    partition: i32,
    error: i16,
    high_watermark: i64,
    log_start: i64,
    aborted: Vec<(i64, i64)>,
    leader: Option<(i32, i32)>,
    diverging: Option<(i32, i64)>,
    records: Vec<u8>,
}

impl Part {
    fn new(partition: i32, log: &InputLog, offset: i64) -> Part {
        let aborted = log.aborted.iter().filter(|aborted| aborted.last >= offset);
        Part {
            partition,
            error: 0,
            high_watermark: log.end,
            log_start: log.start,
            aborted: aborted.map(|aborted| (aborted.producer_id, aborted.first)).collect(),
            leader: None,
            diverging: None,
            records: Vec::new(),
        }
    }

    /// Whether the Fetch is answered at once.
    fn is_news(&self) -> bool {
        let is_told = self.error != 0 || self.diverging.is_some();
        is_told || !self.records.is_empty()
    }

    fn write(&self, writer: &mut WireWriter<'_>) {
        writer.i32(self.partition);
        writer.i16(self.error);
        writer.i64(self.high_watermark);
        writer.i64(self.high_watermark);
        writer.i64(self.log_start);
        writer.array(self.aborted.len(), true);
        for (producer_id, first_offset) in &self.aborted {
            writer.i64(*producer_id);
            writer.i64(*first_offset);
            writer.no_tagged_fields();
        }
        // No preferred replica.
        writer.i32(-1);
        writer.unsigned_varint(self.records.len() as u32 + 1);
        writer.raw(&self.records);
        self.write_tags(writer);
    }

    fn write_tags(&self, writer: &mut WireWriter<'_>) {
        let tags = u32::from(self.diverging.is_some()) + u32::from(self.leader.is_some());
        writer.unsigned_varint(tags);
        if let Some((leader_epoch, end)) = self.diverging {
            writer.unsigned_varint(0);
            writer.unsigned_varint(13);
            writer.i32(leader_epoch);
            writer.i64(end);
            writer.no_tagged_fields();
        }
        if let Some((node_id, leader_epoch)) = self.leader {
            writer.unsigned_varint(1);
            writer.unsigned_varint(9);
            writer.i32(node_id);
            writer.i32(leader_epoch);
            writer.no_tagged_fields();
        }
    }
}

/// The topic that is asked for.
fn read_metadata<'r>(request: &mut Request<'r>) -> Result<&'r str, WireError> {
    let reader = &mut request.reader;
    reader.skip_tagged_fields()?;
    assert_eq!(reader.array(true)?, 1);
    let _unknown_id = reader.u128()?;
    reader.string(true)
}

/// For how long the broker asks to be left alone, if it does.
pub(crate) fn throttle_ms(chance: &mut Chance) -> i32 {
    match chance.strikes(Fault::Throttled) {
        true => chance.between(1, 300) as i32,
        false => 0,
    }
}

pub(crate) fn frame(write: impl FnOnce(&mut WireWriter<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = WireWriter::new(&mut out);
    let start = writer.begin_frame();
    write(&mut writer);
    writer.end_frame(start);
    out
}
