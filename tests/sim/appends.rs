//! What a broker answers to Produce and InitProducerId: it knows the last batches of each producer,
//! takes none of them twice, and none before those that come before it.
//!
//! Source: Kafka's ProducerAppendInfo and ProducerStateEntry; KIP-98, KIP-360.

use crate::answers::{Answer, OUTPUT_TOPIC, Request, frame, throttle_ms};
use crate::broker::{Broker, InputLog};
use crate::chance::{Chance, Fault, Sight};
use crate::mutation::Mutation;
use huntd::hunt::frames::decode_frame;
use huntd::kafka::wire::{WireError, WireReader, WireWriter};
use huntd::output::frame::FrameKind;
use huntd::testing::batch_builder::read_batch;
use std::collections::{BTreeMap, VecDeque};

/// Batches of a producer that a broker knows of each partition.
const KNOWN_MAX: usize = 5;

const NONE: i16 = 0;
const NOT_LEADER: i16 = 6;
const TIMED_OUT: i16 = 7;
const TOO_LARGE: i16 = 10;
const NOT_ENOUGH_REPLICAS_AFTER_APPEND: i16 = 20;
const OUT_OF_ORDER: i16 = 45;
const OLD_PRODUCER_EPOCH: i16 = 47;
const STORAGE_FAILED: i16 = 56;
const UNKNOWN: i16 = -1;

/// Errors with which a batch is refused that is none of the above.
const REFUSALS: [u64; 14] = [3, 5, 6, 7, 10, 19, 20, 29, 46, 56, 59, 74, 87, u64::MAX];

/// What the brokers know of all producers.
pub(crate) struct Appends {
    /// By partition and producer id.
    producers: BTreeMap<(i32, i64), Producer>,
    next_producer_id: i64,
    mutation: Mutation,
    /// How far the frames of each owner epoch of a partition have come that a producer has sent:
    /// the update and the input offset after its last frame.
    reached: BTreeMap<(i32, i64, u64), (u64, i64)>,
    wrong: Option<String>,
}

impl Appends {
    pub(crate) fn new(mutation: Mutation) -> Appends {
        Appends {
            producers: BTreeMap::new(),
            next_producer_id: 4_000,
            mutation,
            reached: BTreeMap::new(),
            wrong: None,
        }
    }

    /// Updates of an owner epoch reach the log once, in their order and without a gap, whatever is
    /// sent again.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.wrong.clone().map_or(Ok(()), Err)
    }

    /// A broker has lost what it knew of a producer: it may take batches twice.
    fn forget(&mut self, partition: i32, producer: i64) {
        self.producers.remove(&(partition, producer));
        self.reached.retain(|(of, by, _), _| (*of, *by) != (partition, producer));
    }

    fn note(&mut self, partition: i32, producer: i64, frame: &[u8]) {
        let (header, _) = decode_frame(frame).expect("owners write frames");
        if header.kind != FrameKind::Updates {
            // An owner says its fence again.
            return;
        }
        let here = (header.first_update + u64::from(header.count), header.next_offset);
        let key = (partition, producer, header.owner_epoch);
        if let Some(before) = self.reached.insert(key, here)
            && (here <= before || header.first_update != before.0)
        {
            let (owner_epoch, first) = (header.owner_epoch, header.first_update);
            let what = format!("a frame of owner epoch {owner_epoch} from {first} to {here:?}");
            self.wrong = Some(format!("partition {partition}: {what} comes after {before:?}"));
        }
    }
}

/// What a broker knows of a producer's batches in one partition.
#[derive(Default)]
struct Producer {
    producer_epoch: i16,
    next_sequence: i32,
    known: VecDeque<Known>,
}

struct Known {
    sequence: i32,
    records: usize,
    offset: i64,
}

/// A batch, as it says itself.
struct Named {
    producer: i64,
    producer_epoch: i16,
    sequence: i32,
    values: Vec<Vec<u8>>,
}

impl Named {
    fn read(batch: &[u8]) -> Named {
        let field = |at| WireReader::resume(batch, at);
        let records = read_batch(&mut batch.to_vec(), 0).expect("huntd sends whole batches");
        Named {
            producer: field(43).i64().expect("a header"),
            producer_epoch: field(51).i16().expect("a header"),
            sequence: field(53).i32().expect("a header"),
            values: records.into_iter().map(|record| record.value.expect("a frame")).collect(),
        }
    }
}

impl Broker {
    pub(crate) fn answer_producer_id(
        &mut self,
        chance: &mut Chance,
        request: &Request<'_>,
    ) -> Vec<u8> {
        // The coordinator loads, is not known or not this one, or the user lacks the right.
        let error = match chance.strikes_of(Fault::ProducerIdRefused, 25) {
            true => chance.pick(&[14, 15, 16, 31, u64::MAX]) as i16,
            false => NONE,
        };
        self.appends.next_producer_id += 1;
        let (id, epoch) = if error == NONE { (self.appends.next_producer_id, 0) } else { (-1, -1) };
        frame(|writer| {
            writer.i32(request.correlation_id);
            writer.i32(0);
            writer.i16(error);
            writer.i64(id);
            writer.i16(epoch);
        })
    }

    pub(crate) fn answer_produce(
        &mut self,
        chance: &mut Chance,
        node_id: i32,
        mut request: Request<'_>,
        is_late: bool,
    ) -> Answer {
        let Request { correlation_id, .. } = request;
        let (wait_ms, batches) = read_produce(&mut request).expect("huntd sends whole requests");
        if !is_late && batches.iter().any(|(partition, _)| !self.has_replicas(node_id, *partition))
        {
            return Answer::Hold(wait_ms);
        }
        let parts: Vec<(i32, i16, i64)> = batches
            .into_iter()
            .map(|(partition, batch)| {
                let (error, offset) = self.append_batch(chance, node_id, partition, batch);
                (partition, error, offset)
            })
            .collect();
        let throttle_ms = throttle_ms(chance);
        Answer::Bytes(frame(|writer| {
            writer.i32(correlation_id);
            writer.no_tagged_fields();
            writer.array(1, true);
            writer.string(OUTPUT_TOPIC, true);
            writer.array(parts.len(), true);
            for part in parts {
                write_part(writer, part);
            }
            writer.no_tagged_fields();
            writer.i32(throttle_ms);
            writer.no_tagged_fields();
        }))
    }

    /// Whether others follow a broker as the leader, if it takes itself for that. None follows one
    /// that is cut off.
    fn has_replicas(&self, node_id: i32, partition: i32) -> bool {
        let leads = |logs: &[InputLog]| logs[partition as usize].leader == node_id;
        leads(&self.inputs) || !leads(self.inputs_of(node_id))
    }

    /// Appends a batch, or not: the error, and the offset of its first record.
    fn append_batch(
        &mut self,
        chance: &mut Chance,
        node_id: i32,
        partition: i32,
        batch: &[u8],
    ) -> (i16, i64) {
        let named = Named::read(batch);
        if self.inputs_of(node_id)[partition as usize].leader != node_id {
            return (NOT_LEADER, -1);
        }
        if !self.has_replicas(node_id, partition) {
            return (TIMED_OUT, -1);
        }
        if chance.strikes(Fault::ProducerForgotten) {
            self.appends.forget(partition, named.producer);
        }
        if !chance.strikes(Fault::BatchRefused) {
            return self.take_batch(chance, partition, named);
        }
        let error = chance.pick(&REFUSALS) as i16;
        // No topic is made for a frame that is too large by itself.
        let error = if error == TOO_LARGE && named.values.len() == 1 { TIMED_OUT } else { error };
        // With some errors the batch is there, and with some it is not known.
        // A leader may cease to be one while it waits for its replicas.
        let is_taken = match error {
            NOT_ENOUGH_REPLICAS_AFTER_APPEND => true,
            NOT_LEADER | STORAGE_FAILED | TIMED_OUT | UNKNOWN => chance.one_in(2),
            _ => false,
        };
        if is_taken {
            self.take_batch(chance, partition, named);
        }
        match self.appends.mutation {
            Mutation::RefusalTakenForAck => {
                (NONE, self.outputs[partition as usize].end() - i64::from(is_taken))
            }
            _ => (error, -1),
        }
    }

    fn take_batch(&mut self, chance: &mut Chance, partition: i32, named: Named) -> (i16, i64) {
        let Named { producer, producer_epoch, sequence, values } = named;
        let key = (partition, producer);
        let Broker { appends, outputs, .. } = self;
        let is_sent_as_new = appends.mutation == Mutation::ResentAsNew;
        if let Some(state) = appends.producers.get(&key) {
            let is_known =
                |known: &&Known| known.sequence == sequence && known.records == values.len();
            let is_of_it = state.producer_epoch == producer_epoch;
            let known = state.known.iter().filter(|_| is_of_it).find(is_known);
            if let Some(known) = known.filter(|_| !is_sent_as_new) {
                chance.see(Sight::BatchKnown);
                return (NONE, known.offset);
            }
            if producer_epoch < state.producer_epoch {
                chance.see(Sight::BatchOfOldProducerEpoch);
                return (OLD_PRODUCER_EPOCH, -1);
            }
            let expected = if is_of_it { state.next_sequence } else { 0 };
            if sequence != expected && !is_sent_as_new {
                chance.see(Sight::BatchOutOfOrder);
                return (OUT_OF_ORDER, -1);
            }
        }
        let log = &mut outputs[partition as usize];
        let (offset, records) = (log.end(), values.len());
        values.into_iter().for_each(|value| {
            appends.note(partition, producer, &value);
            log.append(value);
        });
        let state = appends.producers.entry(key).or_default();
        if state.producer_epoch != producer_epoch {
            chance.see(Sight::ProducerEpochRaised);
            *state = Producer { producer_epoch, ..Producer::default() };
        }
        state.next_sequence = sequence.wrapping_add(records as i32) & i32::MAX;
        state.known.push_back(Known { sequence, records, offset });
        state.known.drain(..state.known.len().saturating_sub(KNOWN_MAX));
        (NONE, offset)
    }
}

fn write_part(writer: &mut WireWriter<'_>, (partition, error, offset): (i32, i16, i64)) {
    writer.i32(partition);
    writer.i16(error);
    writer.i64(offset);
    writer.i64(-1);
    writer.i64(0);
    writer.array(0, true);
    writer.unsigned_varint(0);
    writer.no_tagged_fields();
}

/// A request's partitions with their batches.
type Batches<'r> = Vec<(i32, &'r [u8])>;

/// Milliseconds that replicas may take, and the batches.
fn read_produce<'r>(request: &mut Request<'r>) -> Result<(u64, Batches<'r>), WireError> {
    let Request { reader, bytes, .. } = request;
    reader.skip_tagged_fields()?;
    assert_eq!(reader.nullable_string(true)?, None);
    assert_eq!(reader.i16()?, -1, "acknowledged by all replicas");
    let wait_ms = reader.i32()? as u64;
    assert_eq!(reader.array(true)?, 1);
    assert_eq!(reader.string(true)?, OUTPUT_TOPIC);
    let batches = (0..reader.array(true)?).map(|_| {
        let partition = reader.i32()?;
        let length = reader.array(true)?;
        let batch = &bytes[reader.skip(length)?];
        reader.skip_tagged_fields()?;
        Ok((partition, batch))
    });
    Ok((wait_ms, batches.collect::<Result<_, WireError>>()?))
}
