//! A proxy in front of the broker that takes the broker's work away: it answers each Fetch of the
//! input from memory, and counts, acknowledges and discards the frames of the output. All else
//! passes, so the group, the metadata, the fences and what is read before a start are Kafka's.

use crate::feed::Feed;
use crate::output::{Fold, Head, fold_batch};
use crate::requests::{FETCH, Fetch, PRODUCE, Produced, Request, read_message};
use huntd::kafka::codec::Decompressor;
use huntd::kafka::record_batch::Batch;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Instant;
use support::wire::Connection;

/// Bytes of a batch at most.
const BATCH_BYTES_MAX: usize = 64 << 20;

/// What the proxy stands in for.
pub(crate) struct Topics {
    pub input: String,
    pub input_id: u128,
    pub output: String,
}

/// A running proxy. Its threads end with the process, or with their connections.
pub(crate) struct Feeder {
    broker_port: u16,
    job: Arc<Mutex<Option<Arc<Job>>>>,
}

/// What is fed, and what comes of it.
pub(crate) struct Job {
    topics: Topics,
    feed: Arc<Feed>,
    broker_port: u16,
    sink: Mutex<Sink>,
}

/// What came of the output.
pub(crate) struct Sink {
    decompressor: Decompressor,
    folds: Vec<Fold>,
    /// By partition: the offset of the next frame, once there was one.
    next_offsets: Vec<Option<i64>>,
    /// When how many input records were accounted for.
    pub steps: Vec<(Instant, u64)>,
}

impl Sink {
    /// Input records that are accounted for.
    pub(crate) fn covered(&self) -> u64 {
        self.folds.iter().map(|fold| fold.covered as u64).sum()
    }

    /// Updates that were told.
    pub(crate) fn updates(&self) -> u64 {
        self.folds.iter().map(|fold| fold.updates).sum()
    }

    /// Whether a batch is the fence before an owner's first frame.
    fn begins(&mut self, partition: usize, bytes: &mut [u8]) -> bool {
        let batch = Batch::read(bytes, BATCH_BYTES_MAX).expect("a sound batch");
        let batch = batch.expect("a whole batch");
        let mut records = batch.open(0, &mut self.decompressor).expect("a sound batch");
        let record = records.next_record().expect("a sound batch").expect("a record");
        let is_fence = Head::read(record.value().expect("a frame has a value")).is_none();
        is_fence && self.next_offsets[partition].is_none()
    }

    /// Takes a batch of frames, and gives it an offset behind what the broker has.
    fn take(&mut self, partition: usize, bytes: &mut [u8], end: impl FnOnce() -> i64) -> i64 {
        let records = fold_batch(&mut self.folds[partition], bytes, false, &mut self.decompressor);
        let next = &mut self.next_offsets[partition];
        let base_offset = next.unwrap_or_else(end);
        *next = Some(base_offset + records);
        self.steps.push((Instant::now(), self.covered()));
        base_offset
    }
}

impl Feeder {
    /// Listens at one port, which the broker's listener at the other port names to its clients.
    pub(crate) fn start(port: u16, broker_port: u16) -> Feeder {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("the port is free");
        let job: Arc<Mutex<Option<Arc<Job>>>> = Arc::default();
        let present = job.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let job = present.lock().expect("nobody fails with it").clone();
                let job = job.expect("clients are started after the job has begun");
                thread::spawn(move || job.serve(client));
            }
        });
        Feeder { broker_port, job }
    }

    /// From now on new connections are about these topics.
    pub(crate) fn begin(&self, topics: Topics, feed: Arc<Feed>) -> Arc<Job> {
        let partitions = feed.partitions();
        let sink = Mutex::new(Sink {
            decompressor: Decompressor::new(BATCH_BYTES_MAX),
            folds: vec![Fold::default(); partitions],
            next_offsets: vec![None; partitions],
            steps: Vec::new(),
        });
        let job = Arc::new(Job { topics, feed, broker_port: self.broker_port, sink });
        *self.job.lock().expect("nobody fails with it") = Some(job.clone());
        job
    }
}

/// What a client is owed, in the order of its requests.
enum Answer {
    /// The broker's next one.
    Passed,
    /// The proxy's own.
    Own(Vec<u8>),
}

/// The way back to a client.
struct Back {
    client: TcpStream,
    owed: VecDeque<Answer>,
}

impl Back {
    /// Answers in the place of the broker, once what was asked before is answered.
    fn answer(&mut self, answer: Vec<u8>) -> io::Result<()> {
        if self.owed.is_empty() {
            return self.client.write_all(&answer);
        }
        self.owed.push_back(Answer::Own(answer));
        Ok(())
    }

    /// Passes the broker's answer on, and what waited behind it.
    fn pass(&mut self, answer: &[u8]) -> io::Result<()> {
        let first = self.owed.pop_front();
        assert!(matches!(first, Some(Answer::Passed)), "the broker answers what it was asked");
        self.client.write_all(answer)?;
        while let Some(Answer::Own(own)) = self.owed.front() {
            self.client.write_all(own)?;
            self.owed.pop_front();
        }
        Ok(())
    }
}

impl Job {
    /// What came of the output so far.
    pub(crate) fn sink(&self) -> MutexGuard<'_, Sink> {
        self.sink.lock().expect("no connection has failed")
    }

    /// Serves one connection until an end of it is closed.
    fn serve(&self, client: TcpStream) {
        let Ok(broker) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.broker_port)) else {
            return;
        };
        for stream in [&client, &broker] {
            stream.set_nodelay(true).expect("a TCP socket has this option");
        }
        let end = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
        let back = Mutex::new(Back { client: end(&client), owed: VecDeque::new() });
        thread::scope(|scope| {
            scope.spawn(|| {
                // Until either end is gone.
                let _gone = pass_answers(&mut end(&broker), &back);
                let _gone = client.shutdown(Shutdown::Both);
            });
            let _gone = self.take_requests(&client, &mut end(&broker), &back);
            let _gone = broker.shutdown(Shutdown::Both);
        });
    }

    fn take_requests(
        &self,
        mut client: &TcpStream,
        broker: &mut TcpStream,
        back: &Mutex<Back>,
    ) -> io::Result<()> {
        let mut bytes = Vec::new();
        let back = || back.lock().expect("the other thread has not failed");
        loop {
            read_message(&mut client, &mut bytes)?;
            let request = Request::read(&bytes).expect("a client writes whole requests");
            match request.api {
                FETCH => {
                    let asked = Fetch::read(&bytes, &request).expect("a sound Fetch");
                    if asked.is_of(&self.topics.input, self.topics.input_id) {
                        assert!(back().owed.is_empty(), "a connection that fetches does only that");
                        asked.wait_for(&self.feed);
                        asked.answer(&request, client, &self.feed)?;
                        continue;
                    }
                }
                PRODUCE => {
                    let produced = Produced::read(&bytes, &request).expect("a sound Produce");
                    if let Some(answer) = self.take_frames(&request, &produced, &mut bytes) {
                        back().answer(answer)?;
                        continue;
                    }
                }
                _ => {}
            }
            back().owed.push_back(Answer::Passed);
            broker.write_all(&bytes)?;
        }
    }

    /// The answer to frames of the output; `None`: these are for the broker.
    fn take_frames(
        &self,
        request: &Request,
        produced: &Produced,
        bytes: &mut [u8],
    ) -> Option<Vec<u8>> {
        if produced.topic != self.topics.output {
            return None;
        }
        let mut sink = self.sink();
        let mut begins = |(partition, range): &(i32, Range<usize>)| {
            sink.begins(*partition as usize, &mut bytes[range.clone()])
        };
        if produced.batches.iter().all(&mut begins) {
            return None;
        }
        let offsets = produced.batches.iter().map(|(partition, range)| {
            let place = *partition as usize;
            let offset = sink.take(place, &mut bytes[range.clone()], || {
                let mut broker = Connection::open(&format!("127.0.0.1:{}", self.broker_port));
                broker.ends(&self.topics.output, self.feed.partitions() as i32)[place]
            });
            (*partition, offset)
        });
        let offsets: Vec<(i32, i64)> = offsets.collect();
        Some(produced.answer(request, &offsets))
    }
}

fn pass_answers(broker: &mut TcpStream, back: &Mutex<Back>) -> io::Result<()> {
    let mut bytes = Vec::new();
    loop {
        read_message(broker, &mut bytes)?;
        back.lock().expect("the other thread has not failed").pass(&bytes)?;
    }
}
