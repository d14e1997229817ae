//! A whole input in memory, as a broker would have it on disk.

use huntd::decoder::{Decoder, RecordPosition};
use huntd::hunt::Shard;
use huntd::hunt::event::{Action, EVENTS};
use huntd::hunt::rules::rulebook::Rulebook;
use huntd::hunt::rules_file::built_in;
use huntd::kafka::codec::Decompressor;
use huntd::kafka::record_batch::Batch;
use huntd::kit::update::Updates;
use rustix::fs::{MemfdFlags, memfd_create, sendfile};
use std::fs::File;
use std::io::{self, Write};
use std::net::TcpStream;
use std::ops::Range;
use support::batch_load::{Load, Template};

/// Intended time of the first event.
const BASE_US: u64 = 1_767_225_600_000_000;

/// Bytes of a batch at most.
const BATCH_BYTES_MAX: usize = 8 << 20;

/// Where the leader epoch stands in a batch.
const LEADER_EPOCH_AT: usize = 12;

/// How records come to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// By sendfile(2) from a file in memory, as a broker sends them: page by page.
    Sendfile,
    /// By write(2) from one buffer.
    Write,
}

impl Delivery {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Delivery::Sendfile => "sendfile",
            Delivery::Write => "write",
        }
    }
}

/// The records of all partitions.
pub(crate) struct Feed {
    partitions: Vec<Partition>,
}

struct Partition {
    bytes: Bytes,
    /// Base offset of each batch and where it begins, then the ends of both.
    starts: Vec<(i64, usize)>,
}

enum Bytes {
    File(File),
    Buffer(Vec<u8>),
}

impl Feed {
    /// All joins, and so many ticks.
    pub(crate) fn new(load: &Load, ticks: u64, delivery: Delivery) -> Feed {
        let partition = |number| Partition::new(load, number, ticks, delivery);
        Feed { partitions: (0..load.shape.partitions).map(partition).collect() }
    }

    pub(crate) fn partitions(&self) -> usize {
        self.partitions.len()
    }

    /// Offset behind the last record.
    pub(crate) fn end(&self, partition: i32) -> i64 {
        let starts = &self.partitions[partition as usize].starts;
        starts.last().expect("the end is there").0
    }

    /// Where the batches lie from the one with this offset on: as many as fit, and at least one if
    /// any byte is asked for.
    pub(crate) fn range(&self, partition: i32, offset: i64, bytes_max: usize) -> Range<usize> {
        let starts = &self.partitions[partition as usize].starts;
        let first = starts.partition_point(|(base, _)| *base <= offset) - 1;
        let start = starts[first].1;
        let end_max = start.saturating_add(bytes_max);
        let last = starts.partition_point(|(_, at)| *at <= end_max) - 1;
        let last = if bytes_max > 0 { last.max(first + 1) } else { first };
        start..starts[last.min(starts.len() - 1)].1
    }

    /// Sends a part of a partition.
    pub(crate) fn send(
        &self,
        partition: i32,
        range: Range<usize>,
        mut client: &TcpStream,
    ) -> io::Result<()> {
        match &self.partitions[partition as usize].bytes {
            Bytes::Buffer(bytes) => client.write_all(&bytes[range]),
            Bytes::File(file) => {
                let mut at = range.start as u64;
                while at < range.end as u64 {
                    let left = range.end - at as usize;
                    if sendfile(client, file, Some(&mut at), left)? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Ok(())
            }
        }
    }

    /// Digest and updates of all partitions, from a feed by write: as `replay` has them.
    pub(crate) fn replay(&self) -> (u64, u64) {
        let rulebook = Rulebook::of(built_in());
        let (mut digest, mut updates) = (0_u64, 0);
        for (number, partition) in (0..).zip(&self.partitions) {
            let mut shard = Shard::new(number, &rulebook);
            updates += partition.replay(&mut shard);
            digest = digest.rotate_left(7) ^ shard.digest();
        }
        (digest, updates)
    }
}

impl Partition {
    fn new(load: &Load, number: usize, ticks: u64, delivery: Delivery) -> Partition {
        let (mut bytes, mut starts) = (Vec::new(), Vec::new());
        let mut offset = 0_i64;
        let mut add = |template: &Template, time_us| {
            let at = bytes.len();
            starts.push((offset, at));
            bytes.extend_from_slice(&template.bytes);
            let batch = &mut bytes[at..];
            template.patch(batch, time_us, offset as u64);
            // The broker sets both.
            batch[..8].copy_from_slice(&offset.to_be_bytes());
            batch[LEADER_EPOCH_AT..LEADER_EPOCH_AT + 4].fill(0);
            offset += template.events() as i64;
        };
        let shape = &load.shape;
        load.joins(number).iter().for_each(|joins| add(joins, BASE_US));
        for tick in 0..ticks {
            let time_us = BASE_US + shape.tick_us(tick);
            add(load.batch(number, tick), time_us);
        }
        starts.push((offset, bytes.len()));
        let bytes = match delivery {
            Delivery::Write => Bytes::Buffer(bytes),
            Delivery::Sendfile => {
                let file = memfd_create("feed", MemfdFlags::CLOEXEC).expect("a file in memory");
                let mut file = File::from(file);
                file.write_all(&bytes).expect("there is memory");
                Bytes::File(file)
            }
        };
        Partition { bytes, starts }
    }

    /// Updates of all events.
    fn replay(&self, shard: &mut Shard) -> u64 {
        let Bytes::Buffer(bytes) = &self.bytes else { unreachable!("the caller has chosen") };
        let (mut decoder, mut updates) = (Decoder::new(&EVENTS), Updates::new());
        let mut decompressor = Decompressor::new(BATCH_BYTES_MAX);
        let mut told = 0;
        for places in self.starts.windows(2) {
            let mut bytes = bytes[places[0].1..places[1].1].to_vec();
            let batch = Batch::read(&mut bytes, BATCH_BYTES_MAX).expect("sound");
            let batch = batch.expect("it is whole");
            let mut records = batch.open(0, &mut decompressor).expect("sound");
            while let Some(record) = records.next_record().expect("sound") {
                let origin = RecordPosition { offset: record.offset, time_ms: record.timestamp_ms };
                let event = decoder
                    .decode::<Action>(origin, record.value())
                    .expect("the load holds events");
                updates.clear();
                shard.apply(&event, &mut updates);
                told += updates.len() as u64;
            }
        }
        told
    }
}
