//! What a broker answers to Produce and InitProducerId: it knows the last batches of each producer,
//! takes none of them twice, and none before those that come before it.
//!
//! Source: Kafka's ProducerAppendInfo and ProducerStateEntry; KIP-98, KIP-360.

use crate::answers::{OUTPUT_TOPIC, Request, frame, throttle_ms};
use crate::broker::Broker;
use crate::chance::{Chance, Fault, Sight};
use huntd::kafka::wire::{WireError, WireReader, WireWriter};
use huntd::testing::batch_builder::read_batch;
use std::collections::VecDeque;

/// Batches of a producer that a broker knows of each partition.
const KNOWN_MAX: usize = 5;

const NONE: i16 = 0;
const NOT_LEADER: i16 = 6;
const OUT_OF_ORDER: i16 = 45;
const OLD_PRODUCER_EPOCH: i16 = 47;

/// What a broker knows of a producer's batches in one partition.
#[derive(Default)]
pub(crate) struct Producer {
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
    pub(crate) fn answer_producer_id(&mut self, request: &Request<'_>) -> Vec<u8> {
        self.next_producer_id += 1;
        frame(|writer| {
            writer.i32(request.correlation_id);
            writer.i32(0);
            writer.i16(0);
            writer.i64(self.next_producer_id);
            writer.i16(0);
        })
    }

    pub(crate) fn answer_produce(
        &mut self,
        chance: &mut Chance,
        node_id: i32,
        mut request: Request<'_>,
    ) -> Vec<u8> {
        let Request { version, correlation_id, .. } = request;
        let flexible = version >= 9;
        let batches = read_produce(&mut request).expect("huntd sends whole requests");
        let parts: Vec<(i32, i16, i64)> = batches
            .into_iter()
            .map(|(partition, batch)| {
                let (error, offset) = self.append_batch(chance, node_id, partition, batch);
                (partition, error, offset)
            })
            .collect();
        let throttle_ms = throttle_ms(chance);
        frame(|writer| {
            writer.i32(correlation_id);
            writer.no_tagged_fields(flexible);
            writer.array(1, flexible);
            writer.string(OUTPUT_TOPIC, flexible);
            writer.array(parts.len(), flexible);
            for part in parts {
                write_part(writer, version, part);
            }
            writer.no_tagged_fields(flexible);
            writer.i32(throttle_ms);
            writer.no_tagged_fields(flexible);
        })
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
        if self.inputs[partition as usize].leader != node_id {
            return (NOT_LEADER, -1);
        }
        if chance.strikes(Fault::ProducerForgotten) {
            self.producers.remove(&(partition, named.producer));
        }
        if chance.strikes(Fault::BatchRefused) {
            // With some errors the batch is there, and with some it is not known.
            let error = chance.pick(&[3, 5, 6, 7, 19, 20, 56, 87, u64::MAX]) as i16;
            if matches!(error, 20 | 7 | -1) && (error == 20 || chance.one_in(2)) {
                self.take_batch(chance, partition, named);
            }
            return (error, -1);
        }
        self.take_batch(chance, partition, named)
    }

    fn take_batch(&mut self, chance: &mut Chance, partition: i32, named: Named) -> (i16, i64) {
        let Named { producer, producer_epoch, sequence, values } = named;
        let key = (partition, producer);
        if let Some(state) = self.producers.get(&key) {
            let is_known =
                |known: &&Known| known.sequence == sequence && known.records == values.len();
            let is_of_it = state.producer_epoch == producer_epoch;
            let known = state.known.iter().filter(|_| is_of_it).find(is_known);
            if let Some(known) = known {
                chance.see(Sight::BatchKnown);
                return (NONE, known.offset);
            }
            if producer_epoch < state.producer_epoch {
                chance.see(Sight::BatchOfOldProducerEpoch);
                return (OLD_PRODUCER_EPOCH, -1);
            }
            let expected = if is_of_it { state.next_sequence } else { 0 };
            if sequence != expected {
                chance.see(Sight::BatchOutOfOrder);
                return (OUT_OF_ORDER, -1);
            }
        }
        let log = &mut self.outputs[partition as usize];
        let (offset, records) = (log.end(), values.len());
        values.into_iter().for_each(|value| {
            log.append(value);
        });
        let state = self.producers.entry(key).or_default();
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

fn write_part(
    writer: &mut WireWriter<'_>,
    version: i16,
    (partition, error, offset): (i32, i16, i64),
) {
    let flexible = version >= 9;
    writer.i32(partition);
    writer.i16(error);
    writer.i64(offset);
    writer.i64(-1);
    if version >= 5 {
        writer.i64(0);
    }
    if version >= 8 {
        writer.array(0, flexible);
        match flexible {
            true => writer.unsigned_varint(0),
            false => writer.i16(-1),
        }
    }
    writer.no_tagged_fields(flexible);
}

/// The partitions with their batches.
fn read_produce<'r>(request: &mut Request<'r>) -> Result<Vec<(i32, &'r [u8])>, WireError> {
    let flexible = request.version >= 9;
    let Request { reader, bytes, .. } = request;
    if flexible {
        reader.skip_tagged_fields()?;
    }
    assert_eq!(reader.nullable_string(flexible)?, None);
    assert_eq!(reader.i16()?, -1, "acknowledged by all replicas");
    let _timeout_ms = reader.i32()?;
    assert_eq!(reader.array(flexible)?, 1);
    assert_eq!(reader.string(flexible)?, OUTPUT_TOPIC);
    let batches = (0..reader.array(flexible)?).map(|_| {
        let partition = reader.i32()?;
        let length = reader.array(flexible)?;
        let batch = &bytes[reader.skip(length)?];
        if flexible {
            reader.skip_tagged_fields()?;
        }
        Ok((partition, batch))
    });
    batches.collect()
}
