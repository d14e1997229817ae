//! The echo: fetches the input and appends its batches to the output as they are. No decoding, no
//! game: what it costs and how long it takes is the floor of the machine and its broker.

use crate::output;
use std::io::Read;
use std::process::exit;
use std::sync::mpsc::sync_channel;
use std::thread;
use support::wire::{self, Connection, ProduceRequest, check_produced};

/// Produce requests that wait for their acknowledgement.
const IN_FLIGHT_MAX: usize = 64;

/// Milliseconds that the broker may hold an empty answer back.
const WAIT_MS_MAX: i32 = 100;

/// Copies for ever; the process ends when its standard input is closed.
pub(crate) fn run(address: &str, input: &str, output_topic: &str, partitions: usize) -> ! {
    thread::spawn(|| {
        let mut scrap = [0; 64];
        while std::io::stdin().read(&mut scrap).is_ok_and(|read| read > 0) {}
        exit(0);
    });
    let mut source = Connection::open(address);
    let input_id = source.topic_id(input);
    let mut sink = Connection::open(address);
    let mut answers = sink.other_end();
    let (in_flight, sent) = sync_channel::<()>(IN_FLIGHT_MAX);
    thread::spawn(move || {
        while let Ok(()) = sent.recv() {
            check_produced(answers.receive());
        }
    });
    let mut offsets = vec![0; partitions];
    let mut copies: Vec<Vec<Vec<u8>>> = vec![Vec::new(); partitions];
    let mut request = Vec::new();
    loop {
        source.fetch(input_id, &mut offsets, WAIT_MS_MAX, |partition, bytes| {
            output::check(bytes);
            let copied = wire::batches(bytes).map(|(_, range)| bytes[range].to_vec());
            copies[partition].extend(copied);
        });
        // A request takes one batch of each partition.
        let rounds = copies.iter().map(Vec::len).max().unwrap_or(0);
        for round in 0..rounds {
            let mut batches = ProduceRequest::begin(&mut request, output_topic);
            for (partition, copies) in copies.iter().enumerate() {
                if let Some(batch) = copies.get(round) {
                    batches.add(partition, batch)[..8].fill(0);
                }
            }
            batches.finish();
            in_flight.send(()).expect("the other thread runs");
            sink.send(&request);
        }
        copies.iter_mut().for_each(Vec::clear);
    }
}
