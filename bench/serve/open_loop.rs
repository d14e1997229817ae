//! Requests that are due at their own times, over sessions that stay open.

use crate::ticks::Ticks;
use hdrhistogram::Histogram;
use rustix::event::epoll;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long the last answers may take.
const LAST_WAIT: Duration = Duration::from_secs(30);

/// How long streams run before their events count.
const STREAMS_WARM: Duration = Duration::from_secs(2);

/// How often what is due is sent. To wake up for each request would take more of the machine than
/// the servers do; by how much requests are late counts, and is told.
pub(crate) const SEND_EVERY: Duration = Duration::from_micros(250);

/// What the epoll gives for a tick; for a session it gives its number.
const TICKS: u64 = u64::MAX;

/// One session.
struct Session {
    stream: TcpStream,
    /// When the requests were due that are not answered, and when they were sent, the first one
    /// first.
    asked: VecDeque<(Instant, Instant)>,
    received: Vec<u8>,
}

/// Sessions, and the times of their answers.
pub(crate) struct OpenLoop {
    sessions: Vec<Session>,
    epoll: OwnedFd,
    /// Wakes the loop for what is due.
    ticks: Ticks,
    buffer: Vec<u8>,
}

/// What requests came to.
pub(crate) struct Measured {
    /// From when a request was due to when its answer was read.
    pub latency_us: Histogram<u64>,
    /// From when it was due to when it was sent: the generator's part.
    pub late_us: Histogram<u64>,
    /// From when it was sent to when its answer was read.
    pub answer_us: Histogram<u64>,
    /// Answers with another status than 200.
    pub failed: u64,
    /// Zone and offset of each command that was answered with them.
    pub appended: Vec<(u16, i64)>,
}

impl Measured {
    pub(crate) fn new() -> Measured {
        let new = || Histogram::new_with_bounds(1, 60_000_000, 3).expect("fine bounds");
        let (latency_us, late_us, answer_us) = (new(), new(), new());
        Measured { latency_us, late_us, answer_us, failed: 0, appended: Vec::new() }
    }

    /// Answers that do not say where in the log a command is.
    pub(crate) fn others(&self) -> u64 {
        self.latency_us.len() - self.appended.len() as u64
    }

    /// The histograms, which are all measured in microseconds.
    pub(crate) fn histograms(&mut self) -> [(&'static str, &mut Histogram<u64>); 3] {
        let Measured { latency_us, late_us, answer_us, .. } = self;
        [("latency_us", latency_us), ("late_us", late_us), ("answer_us", answer_us)]
    }
}

impl OpenLoop {
    /// Opens so many sessions, with one server after another.
    pub(crate) fn connect(addresses: &[&str], sessions: usize) -> OpenLoop {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll");
        let ticks = Ticks::new();
        let data = epoll::EventData::new_u64(TICKS);
        epoll::add(&epoll, &ticks, data, epoll::EventFlags::IN).expect("it is added");
        let open = |number: usize| {
            let address = addresses[number % addresses.len()];
            let stream = TcpStream::connect(address).expect("it listens");
            stream.set_nodelay(true).expect("a socket takes the option");
            stream.set_nonblocking(true).expect("a socket takes the option");
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&epoll, &stream, data, epoll::EventFlags::IN).expect("it is added");
            Session { stream, asked: VecDeque::new(), received: Vec::new() }
        };
        let sessions = (0..sessions).map(open).collect();
        OpenLoop { sessions, epoll, ticks, buffer: vec![0; 16 * 1024] }
    }

    /// Sends requests at a rate, one session after another, and reads their answers.
    pub(crate) fn run(
        &mut self,
        per_s: u64,
        time: Duration,
        request: &dyn Fn(u64) -> String,
    ) -> Measured {
        let mut measured = Measured::new();
        let (begun, count) = (Instant::now(), per_s * time.as_secs());
        let due = |number: u64| begun + Duration::from_nanos(number * 1_000_000_000 / per_s);
        let mut sent = 0;
        self.ticks.set(SEND_EVERY);
        while measured.latency_us.len() < count {
            while sent < count && due(sent) <= Instant::now() {
                let at = sent as usize % self.sessions.len();
                let session = &mut self.sessions[at];
                session.asked.push_back((due(sent), Instant::now()));
                session.stream.write_all(request(sent).as_bytes()).expect("it takes a request");
                sent += 1;
            }
            assert!(begun.elapsed() < time + LAST_WAIT, "answers are missing");
            self.read(&mut measured);
        }
        measured
    }

    /// Opens a stream on each session. What counts is by how much an event comes later than so long
    /// after the one before. Each event begins with the bytes of `event`.
    pub(crate) fn listen(
        &mut self,
        event: &[u8],
        every: Duration,
        time: Duration,
        request: &dyn Fn(u64) -> String,
    ) -> Measured {
        let (mut measured, count) = (Measured::new(), self.sessions.len() as u32);
        for (number, session) in (0..).zip(&mut self.sessions) {
            session.stream.write_all(request(number).as_bytes()).expect("it takes a request");
            // Streams are opened within the time that they have, so that their turns are spread.
            std::thread::sleep(every / count);
        }
        let begun = Instant::now();
        self.ticks.set(Duration::from_millis(10));
        while begun.elapsed() < STREAMS_WARM + time {
            let is_warm = begun.elapsed() >= STREAMS_WARM;
            self.receive(|session| {
                let now = Instant::now();
                while let Some(at) =
                    session.received.windows(event.len()).position(|part| part == event)
                {
                    session.received.drain(..at + event.len());
                    let before = session.asked.pop_front().filter(|_| is_warm);
                    if let Some((before, _)) = before {
                        let late = now.saturating_duration_since(before + every);
                        measured.latency_us.saturating_record(1 + late.as_micros() as u64);
                    }
                    session.asked.push_back((now, now));
                }
            });
        }
        measured
    }

    fn read(&mut self, measured: &mut Measured) {
        self.receive(|session| {
            let now = Instant::now();
            while let Some((is_fine, body)) = answer(&session.received) {
                measured.appended.extend(place(&session.received[body.clone()]));
                session.received.drain(..body.end);
                let (due, sent) = session.asked.pop_front().expect("an answer has its request");
                let us = |from: Instant, to: Instant| {
                    to.saturating_duration_since(from).as_micros().max(1) as u64
                };
                measured.latency_us.saturating_record(us(due, now));
                measured.late_us.saturating_record(us(due, sent));
                measured.answer_us.saturating_record(us(sent, now));
                measured.failed += u64::from(!is_fine);
            }
        });
    }

    /// Waits for bytes or a tick, and lets each session that got some be looked at.
    fn receive(&mut self, mut look: impl FnMut(&mut Session)) {
        let mut events = Vec::with_capacity(256);
        let spare = rustix::buffer::spare_capacity(&mut events);
        epoll::wait(&self.epoll, spare, None).expect("it waits");
        for event in events {
            if event.data.u64() == TICKS {
                self.ticks.wait();
                continue;
            }
            let session = &mut self.sessions[event.data.u64() as usize];
            match session.stream.read(&mut self.buffer) {
                Ok(0) => panic!("a session was closed"),
                Ok(count) => session.received.extend_from_slice(&self.buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(error) => panic!("{error}"),
            }
            look(session);
        }
    }
}

/// Where a command is in the log, as its answer begins.
fn place(body: &[u8]) -> Option<(u16, i64)> {
    let rest = std::str::from_utf8(body).ok()?.strip_prefix("{\"zone\":")?;
    let (zone, rest) = rest.split_once(",\"offset\":")?;
    let (offset, _) = rest.split_once(',')?;
    Some((zone.parse().ok()?, offset.parse().ok()?))
}

/// The first whole answer of these bytes: whether it is a 200, and where its body is.
fn answer(bytes: &[u8]) -> Option<(bool, Range<usize>)> {
    let head = bytes.windows(4).position(|part| part == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&bytes[..head]).expect("a head is text");
    let mut fields = text.lines().filter_map(|line| line.split_once(": "));
    let length = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length = length.map_or(0, |(_, length)| length.parse().expect("a length is a number"));
    let is_whole = bytes.len() >= head + length;
    is_whole.then(|| (text.starts_with("HTTP/1.1 200 "), head..head + length))
}
