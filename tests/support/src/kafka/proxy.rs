//! A proxy in front of a broker's listener, which damages what passes, either way.

use super::tls_records::RecordWalk;
use std::io::{self, Read, Write};
use std::iter;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// A piece from a broker with this many bytes or more has records in it: other answers are smaller.
const RECORDS_BYTES_MIN: usize = 8 * 1024;

/// Bytes that are received at once.
const PIECE_BYTES: usize = 64 * 1024;

/// Between the two parts of a piece that is split: enough for the first one to arrive alone.
const SPLIT_PAUSE: Duration = Duration::from_millis(2);

/// Where a batch has the epoch of its leader, and what stands there as long as nobody else has led.
const EPOCH_AT: usize = 12;
const EPOCH_AND_MAGIC: [u8; 5] = [0, 0, 0, 0, 2];

/// Where a request has its number: behind its length.
const API_KEY_AT: usize = 4;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From clients.
    ToBroker,
    /// To clients.
    FromBroker,
}

/// How a way passes bytes on for a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// At once.
    #[default]
    Whole,
    /// Each piece so much later.
    Delayed(Duration),
    /// Byte by byte.
    Dribbled,
    /// Each piece in two parts, the first of which is a byte longer than with the piece before.
    Split,
}

/// Kafka's number of the Fetch request.
const FETCH: i16 = 1;

/// What is done to the bytes of one way. Counts go down as it is done.
#[derive(Debug, Default)]
struct Orders {
    pace: Pace,
    /// Pieces with records in which a bit is flipped.
    flips: usize,
    /// Answers to Fetches in whose length a bit is flipped.
    length_flips: usize,
    /// The next piece of this API, or of any, in which these bytes stand has others in their place.
    replace: Option<(Option<i16>, Vec<u8>, Vec<u8>)>,
    /// Each piece in which these bytes stand has others in their place.
    replace_each: Option<(Vec<u8>, Vec<u8>)>,
    /// Pieces in which bytes were replaced.
    replaced: usize,
    /// Pieces that pass in part, and then the connection is closed.
    cuts: usize,
    /// Answers to these requests are zeros behind their correlation id.
    zeroed_api: Option<i16>,
    /// This many of the next answers to this request do not pass, and their connections are closed.
    withheld: (i16, usize),
}

/// What all connections share.
struct Shared {
    orders: [Mutex<Orders>; 2],
    connections: AtomicU64,
    /// Connections below this number pass nothing any more, if they are of this kind.
    frozen: Mutex<(u64, Frozen)>,
    lie: Mutex<Option<Lie>>,
    /// KeyUpdates of clients that have passed, on connections with TLS 1.3.
    key_updates: AtomicU64,
    /// Bytes of the longest first part of a piece that was split.
    split_bytes: AtomicUsize,
}

/// Which connections freeze.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frozen {
    /// Those whose last request was of this API.
    AskedLast(i16),
    /// Those on which records have come. Nothing else is to be seen of an encrypted one.
    HaveRead,
}

/// What some connections say to clients, and is not so.
struct Lie {
    /// Connections of these numbers say it.
    connections: Range<u64>,
    /// Only one of them says it: the one after so many others that would.
    one_after: Option<usize>,
    /// The connections that would say it, in the order of their answers.
    asked: Vec<u64>,
    /// In answers to this request.
    api: i16,
    truth: Truth,
    /// What stands there instead, be it longer.
    lie: Vec<u8>,
    /// How often it was said.
    told: usize,
}

/// Where a lie stands.
enum Truth {
    /// In the place of these bytes.
    Bytes(Vec<u8>),
    /// In the place of these bytes of the batch with this base offset.
    InBatch(i64, Range<usize>),
}

/// A connection through the proxy.
struct Passage {
    shared: Arc<Shared>,
    number: u64,
    /// Kafka's number of the last request, by the first piece that it came in.
    api: AtomicI16,
    /// Whether a piece with records has come from the broker.
    has_read: AtomicBool,
}

/// A running proxy. Its threads end with the process, or with their connections.
pub struct Proxy {
    shared: Arc<Shared>,
}

impl Proxy {
    /// Listens at one port, and passes everything on to another one of this host.
    pub fn start(port: u16, broker_port: u16) -> Proxy {
        Proxy::start_at((Ipv4Addr::LOCALHOST, port), broker_port)
    }

    /// Like [`Proxy::start`], at another address of this host.
    pub fn start_at(place: (Ipv4Addr, u16), broker_port: u16) -> Proxy {
        let listener = TcpListener::bind(place).expect("the port is free");
        let shared = Arc::new(Shared {
            orders: Default::default(),
            connections: AtomicU64::new(0),
            frozen: Mutex::new((0, Frozen::HaveRead)),
            lie: Mutex::new(None),
            key_updates: AtomicU64::new(0),
            split_bytes: AtomicUsize::new(0),
        });
        let proxy = Proxy { shared: shared.clone() };
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(broker) = TcpStream::connect((Ipv4Addr::LOCALHOST, broker_port)) else {
                    continue;
                };
                let number = shared.connections.fetch_add(1, Ordering::SeqCst);
                let (api, has_read) = (AtomicI16::new(-1), AtomicBool::new(false));
                let passage = Passage { shared: shared.clone(), number, api, has_read };
                let passage = Arc::new(passage);
                for end in [&client, &broker] {
                    end.set_nodelay(true).expect("a connected socket takes it");
                }
                let ends = [&client, &broker].map(|end| end.try_clone().expect("a descriptor"));
                let [client_end, broker_end] = ends;
                let back = passage.clone();
                thread::spawn(move || passage.copy(Way::ToBroker, client, broker_end));
                thread::spawn(move || back.copy(Way::FromBroker, broker, client_end));
            }
        });
        proxy
    }

    /// Flips a bit in this many of the next pieces with records.
    pub fn flip(&self, way: Way, count: usize) {
        self.shared.orders(way).flips = count;
    }

    /// Flips a bit in the lengths of this many of the next answers to Fetches.
    pub fn flip_lengths(&self, count: usize) {
        self.shared.orders(Way::FromBroker).length_flips = count;
    }

    /// Puts other bytes, as many, in the place of these, once.
    pub fn replace(&self, way: Way, these: &[u8], others: &[u8]) {
        self.replace_once(way, None, these, others);
    }

    /// Like [`Proxy::replace`], in a request of this API.
    pub fn replace_in_request(&self, api: i16, these: &[u8], others: &[u8]) {
        self.replace_once(Way::ToBroker, Some(api), these, others);
    }

    fn replace_once(&self, way: Way, api: Option<i16>, these: &[u8], others: &[u8]) {
        assert_eq!(these.len(), others.len());
        self.shared.orders(way).replace = Some((api, these.to_vec(), others.to_vec()));
    }

    /// Puts other bytes, as many, in the place of these, each time that they stand in a piece.
    pub fn replace_each(&self, way: Way, these: &[u8], others: &[u8]) {
        assert_eq!(these.len(), others.len());
        self.shared.orders(way).replace_each = Some((these.to_vec(), others.to_vec()));
    }

    /// Ends [`Proxy::replace_each`].
    pub fn replace_none(&self, way: Way) {
        self.shared.orders(way).replace_each = None;
    }

    /// In how many pieces bytes were replaced.
    pub fn replaced(&self, way: Way) -> usize {
        self.shared.orders(way).replaced
    }

    /// Passes only a part of this many of the next pieces, and closes their connections.
    pub fn cut(&self, way: Way, count: usize) {
        self.shared.orders(way).cuts = count;
    }

    /// From now on bytes pass at this pace.
    pub fn pace(&self, way: Way, pace: Pace) {
        self.shared.orders(way).pace = pace;
    }

    /// Whether answers to requests of this API are zeros, from now on.
    pub fn zero_answers(&self, api_key: Option<i16>) {
        self.shared.orders(Way::FromBroker).zeroed_api = api_key;
    }

    /// Closes the connections of this many of the next requests of this API instead of passing
    /// them on.
    pub fn withhold(&self, api_key: i16, count: usize) {
        self.shared.orders(Way::ToBroker).withheld = (api_key, count);
    }

    /// Connections that are there now, and of this kind, pass nothing any more, and stay open. New
    /// ones are not touched.
    pub fn freeze(&self, which: Frozen) {
        let there = self.connections();
        *self.shared.frozen.lock().expect("no holder panics") = (there, which);
    }

    /// At how many places, from the start of a piece on, pieces of one connection were split.
    pub fn split_places(&self) -> usize {
        self.shared.split_bytes.load(Ordering::SeqCst)
    }

    /// Connections that are there now say something else from now on, in answers to requests of
    /// this API in which these bytes stand. New ones tell the truth.
    pub fn lie(&self, api: i16, truth: Vec<u8>, lie: Vec<u8>) {
        self.let_lie(Lie::of(0..self.connections(), api, Truth::Bytes(truth), lie));
    }

    /// Like [`Proxy::lie`], but new connections say it, too.
    pub fn lie_always(&self, api: i16, truth: Vec<u8>, lie: Vec<u8>) {
        self.let_lie(Lie::of(0..u64::MAX, api, Truth::Bytes(truth), lie));
    }

    /// Like [`Proxy::lie`], but about the offset at which a fetched batch begins.
    pub fn lie_about_offset(&self, base_offset: i64, lie: i64) {
        self.lie_in_batch(base_offset, 0, lie.to_be_bytes().to_vec());
    }

    /// Like [`Proxy::lie`], but about the leader epoch of a fetched batch.
    pub fn lie_about_epoch(&self, base_offset: i64, lie: i32) {
        self.lie_in_batch(base_offset, EPOCH_AT, lie.to_be_bytes().to_vec());
    }

    fn lie_in_batch(&self, base_offset: i64, at: usize, lie: Vec<u8>) {
        let truth = Truth::InBatch(base_offset, at..at + lie.len());
        self.let_lie(Lie::of(0..self.connections(), FETCH, truth, lie));
    }

    /// Like [`Proxy::lie`], but only one connection says it: of the new ones that would, the one
    /// after so many others.
    pub fn lie_after(&self, skipped: usize, api: i16, truth: Vec<u8>, lie: Vec<u8>) {
        let new = self.connections()..u64::MAX;
        self.let_lie(Lie {
            one_after: Some(skipped),
            ..Lie::of(new, api, Truth::Bytes(truth), lie)
        });
    }

    /// How many connections there have been.
    fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// From now on every connection tells the truth.
    pub fn tell_the_truth(&self) {
        *self.shared.lie.lock().expect("no holder panics") = None;
    }

    fn let_lie(&self, lie: Lie) {
        *self.shared.lie.lock().expect("no holder panics") = Some(lie);
    }

    /// How often the last lie was told.
    pub fn lies_told(&self) -> usize {
        let lie = self.shared.lie.lock().expect("no holder panics");
        lie.as_ref().map_or(0, |lie| lie.told)
    }

    /// How many KeyUpdates clients have sent. They do when a broker has sent one and asks for it.
    pub fn key_updates(&self) -> u64 {
        self.shared.key_updates.load(Ordering::SeqCst)
    }

    /// Whether all that was ordered once has been done.
    pub fn is_done(&self) -> bool {
        [Way::ToBroker, Way::FromBroker].into_iter().all(|way| {
            let orders = self.shared.orders(way);
            let left = orders.flips + orders.length_flips + orders.cuts + orders.withheld.1;
            left == 0 && orders.replace.is_none()
        })
    }
}

impl Shared {
    fn orders(&self, way: Way) -> MutexGuard<'_, Orders> {
        self.orders[way as usize].lock().expect("no holder panics")
    }
}

impl Orders {
    /// Applies the ordered faults to a piece, and returns how many of its bytes pass. If not all
    /// pass, the connection ends.
    fn carry_out(&mut self, piece: &mut [u8], last_api: i16) -> usize {
        if let (api, count @ 1..) = self.withheld
            && apis(piece).any(|asked| asked == api)
        {
            self.withheld = (api, count - 1);
            return 0;
        }
        if self.flips > 0 && piece.len() >= RECORDS_BYTES_MIN {
            self.flips -= 1;
            piece[RECORDS_BYTES_MIN / 2] ^= 0x10;
        }
        // A short piece begins with a length.
        if self.length_flips > 0 && last_api == FETCH && piece.len() < RECORDS_BYTES_MIN {
            self.length_flips -= 1;
            piece[0] ^= 0x10;
        }
        if self.replace.as_ref().is_some_and(|(api, these, others)| {
            api.is_none_or(|api| api == last_api) && put(piece, these, others)
        }) {
            self.replace = None;
            self.replaced += 1;
        }
        if self.replace_each.as_ref().is_some_and(|(these, others)| put(piece, these, others)) {
            self.replaced += 1;
        }
        if self.zeroed_api == Some(last_api) && piece.len() > 8 {
            piece[8..].fill(0);
        }
        match self.cuts {
            0 => piece.len(),
            _ => {
                self.cuts -= 1;
                piece.len() / 2
            }
        }
    }
}

impl Lie {
    fn of(connections: Range<u64>, api: i16, truth: Truth, lie: Vec<u8>) -> Lie {
        Lie { connections, one_after: None, asked: Vec::new(), api, truth, lie, told: 0 }
    }

    /// Returns the bytes that a connection passes on instead of this piece. The piece begins with
    /// the length of the answer.
    fn instead_of(&mut self, number: u64, piece: &[u8]) -> Option<Vec<u8>> {
        let there = self.truth.find(piece)?;
        if !self.asked.contains(&number) {
            self.asked.push(number);
        }
        if self.one_after.is_some_and(|skipped| self.asked.get(skipped) != Some(&number)) {
            return None;
        }
        let (head, rest) = (&piece[..there.start], &piece[there.end..]);
        let mut said = [head, &self.lie, rest].concat();
        let length = i32::from_be_bytes(*said.first_chunk().expect("it has a length"));
        let longer = self.lie.len() as i32 - there.len() as i32;
        said[..4].copy_from_slice(&(length + longer).to_be_bytes());
        self.told += 1;
        Some(said)
    }
}

impl Truth {
    /// Where in a piece it stands.
    fn find(&self, piece: &[u8]) -> Option<Range<usize>> {
        match self {
            Truth::Bytes(these) => find(piece, these).map(|at| at..at + these.len()),
            Truth::InBatch(base_offset, field) => {
                let offset = base_offset.to_be_bytes();
                let is_batch = |window: &[u8]| {
                    window.starts_with(&offset) && window[EPOCH_AT..] == EPOCH_AND_MAGIC
                };
                let at = piece.windows(EPOCH_AT + EPOCH_AND_MAGIC.len()).position(is_batch)?;
                Some(at + field.start..at + field.end)
            }
        }
    }
}

/// Where bytes stand in a piece.
fn find(piece: &[u8], these: &[u8]) -> Option<usize> {
    piece.windows(these.len()).position(|window| window == these)
}

/// Puts bytes in the place of others, if these are there.
fn put(piece: &mut [u8], these: &[u8], others: &[u8]) -> bool {
    let at = find(piece, these);
    if let Some(at) = at {
        piece[at..at + others.len()].copy_from_slice(others);
    }
    at.is_some()
}

/// The APIs of the requests in a piece that begins with one: clients may send several at once.
fn apis(piece: &[u8]) -> impl Iterator<Item = i16> {
    let mut rest = piece;
    iter::from_fn(move || {
        let length = u32::from_be_bytes(*rest.first_chunk()?) as usize;
        let api = rest.get(API_KEY_AT..API_KEY_AT + 2)?;
        rest = rest.get(API_KEY_AT + length..).unwrap_or_default();
        Some(i16::from_be_bytes([api[0], api[1]]))
    })
}

impl Passage {
    fn copy(&self, way: Way, mut from: TcpStream, mut to: TcpStream) {
        let (mut buffer, mut records) = (vec![0; PIECE_BYTES], RecordWalk::default());
        let mut split = 0;
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let piece = &mut buffer[..count];
            if way == Way::ToBroker {
                self.shared.key_updates.fetch_add(records.key_updates(piece), Ordering::SeqCst);
            }
            if way == Way::ToBroker
                && let Some(api) = apis(piece).next()
            {
                self.api.store(api, Ordering::SeqCst);
            }
            if way == Way::FromBroker && count >= RECORDS_BYTES_MIN {
                self.has_read.store(true, Ordering::SeqCst);
            }
            self.wait_while_frozen(&to);
            if way == Way::FromBroker
                && let Some(said) = self.lie_instead_of(piece)
            {
                if to.write_all(&said).is_err() {
                    break;
                }
                continue;
            }
            let (passing, pace) = {
                let mut orders = self.shared.orders(way);
                let passing = orders.carry_out(piece, self.api.load(Ordering::SeqCst));
                (passing, orders.pace)
            };
            let passed = self.pass(&mut to, &piece[..passing], pace, &mut split);
            if passed.is_err() || passing < count {
                break;
            }
        }
        // Either end may be gone already.
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }

    fn lie_instead_of(&self, piece: &[u8]) -> Option<Vec<u8>> {
        let mut lie = self.shared.lie.lock().expect("no holder panics");
        let lie = lie.as_mut()?;
        let lies =
            lie.connections.contains(&self.number) && self.api.load(Ordering::SeqCst) == lie.api;
        if lies { lie.instead_of(self.number, piece) } else { None }
    }

    /// A frozen connection never goes on: its thread ends when the other end is closed.
    fn wait_while_frozen(&self, other: &TcpStream) {
        let is_frozen = || {
            let (below, which) = *self.shared.frozen.lock().expect("no holder panics");
            let is_meant = match which {
                Frozen::AskedLast(api) => self.api.load(Ordering::SeqCst) == api,
                Frozen::HaveRead => self.has_read.load(Ordering::SeqCst),
            };
            self.number < below && is_meant
        };
        while is_frozen() && other.peer_addr().is_ok() {
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// `split`: bytes of the first part of the last piece that was split.
    fn pass(
        &self,
        to: &mut TcpStream,
        piece: &[u8],
        pace: Pace,
        split: &mut usize,
    ) -> io::Result<()> {
        match pace {
            Pace::Whole => to.write_all(piece),
            Pace::Delayed(time) => {
                thread::sleep(time);
                to.write_all(piece)
            }
            Pace::Dribbled => piece.chunks(1).try_for_each(|byte| to.write_all(byte)),
            Pace::Split => {
                *split += 1;
                let (first, rest) = piece.split_at((*split).min(piece.len()));
                if !rest.is_empty() {
                    self.shared.split_bytes.fetch_max(*split, Ordering::SeqCst);
                }
                to.write_all(first)?;
                thread::sleep(SPLIT_PAUSE);
                to.write_all(rest)
            }
        }
    }
}
