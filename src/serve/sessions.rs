//! The serving thread: folds what the feed gives, and answers clients between two folds.
//!
//! One thread has view and sockets, so that an answer needs no lock and is one state of its zone.

use crate::decoder::Decoder;
use crate::serve::answers::{Served, ZoneState};
use crate::serve::appender::Appender;
use crate::serve::command::{Appended, Command, Stamps, commands};
use crate::serve::exchange::{Exchange, ExchangeNeed};
use crate::serve::feed::FeedMessage;
use crate::serve::gate::{Gate, Pass};
use crate::serve::problem::Problem;
use crate::serve::stream::StreamTurn;
use async_io::{Async, Timer};
use futures_lite::{AsyncWriteExt, FutureExt, future};
use rustix::process::{Resource, getrlimit};
use smol::LocalExecutor;
use smol::channel::{Receiver, TryRecvError};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant, SystemTime};

/// Clients that are connected at once; further ones wait in the listen backlog.
const SESSIONS_MAX: u64 = 50_000;

/// Descriptors that are not for sessions: brokers, files, what librdkafka needs.
const DESCRIPTORS_KEPT: u64 = 256;

/// Milliseconds in which a request must have come whole, from its first byte on.
const REQUEST_MS_MAX: u64 = 5_000;

/// Milliseconds without a request after which a session is closed.
const IDLE_MS_MAX: u64 = 75_000;

/// Milliseconds in which a client must take some bytes of its answer.
const SEND_MS_MAX: u64 = 30_000;

/// Updates that are folded between two rounds of answers: some tens of microseconds.
const FOLD_UPDATES_MAX: usize = 512;

/// Milliseconds that folding takes at most where many answers are due: clients wait for it.
const FOLD_MS_MAX: u64 = 5;

/// What all sessions share.
struct Shared {
    served: RefCell<Served>,
    gate: Rc<Gate>,
    desk: RefCell<Desk>,
    /// `None`: clients may not post events.
    appender: Option<Appender>,
    /// Sessions that wait for the next frame, by number.
    waiting: RefCell<BTreeMap<u64, Waker>>,
    sessions: Cell<usize>,
    accepted: Cell<u64>,
    started: Instant,
}

/// What turns a client's events into records.
struct Desk {
    decoder: Decoder,
    stamps: Stamps,
}

/// Serves until the feed ends. `beside` runs beside everything else.
pub(crate) fn run(
    served: Served,
    gate: Rc<Gate>,
    appender: Option<Appender>,
    listener: Async<TcpListener>,
    feed: &Receiver<FeedMessage>,
    beside: impl Future<Output = ()> + 'static,
) {
    let shared = Rc::new(Shared {
        served: RefCell::new(served),
        gate,
        desk: RefCell::new(Desk { decoder: Decoder::new(), stamps: Stamps::default() }),
        appender,
        waiting: RefCell::new(BTreeMap::new()),
        sessions: Cell::new(0),
        accepted: Cell::new(0),
        started: Instant::now(),
    });
    let executor = Rc::new(LocalExecutor::new());
    let (accepting, all) = (executor.clone(), shared.clone());
    executor.spawn(async move { accept(&listener, &accepting, &all).await }).detach();
    executor.spawn(beside).detach();
    smol::block_on(executor.run(fold(feed, &shared)));
}

async fn accept(listener: &Async<TcpListener>, executor: &LocalExecutor<'_>, shared: &Rc<Shared>) {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let sessions_max = descriptors.saturating_sub(DESCRIPTORS_KEPT).min(SESSIONS_MAX) as usize;
    loop {
        if shared.sessions.get() >= sessions_max {
            Timer::after(Duration::from_millis(10)).await;
            continue;
        }
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file descriptors, most likely: others must close some first.
            Timer::after(Duration::from_millis(100)).await;
            continue;
        };
        let shared = shared.clone();
        shared.sessions.set(shared.sessions.get() + 1);
        let number = shared.accepted.replace(shared.accepted.get() + 1);
        let session = async move {
            // A client that breaks off is the client's matter.
            let _broken = session(stream, number, &shared).await;
            shared.waiting.borrow_mut().remove(&number);
            shared.sessions.set(shared.sessions.get() - 1);
        };
        executor.spawn(session).detach();
    }
}

/// When the sessions have their turn: after some updates, once folding had as much time as they.
struct FoldingTurn {
    begun: Instant,
    /// How long the sessions took before.
    answering: Duration,
    updates: usize,
}

impl FoldingTurn {
    fn start() -> FoldingTurn {
        FoldingTurn { begun: Instant::now(), answering: Duration::ZERO, updates: 0 }
    }

    /// Gives the sessions their turn if it is due with so many more updates.
    async fn take(&mut self, updates: usize, shared: &Shared) {
        self.updates += updates;
        let share = self.answering.min(Duration::from_millis(FOLD_MS_MAX));
        if self.updates > FOLD_UPDATES_MAX && self.begun.elapsed() >= share {
            self.give(future::yield_now(), shared).await;
            self.updates = updates;
        }
    }

    /// Gives the sessions their turn until this is there.
    async fn give<T>(&mut self, until: impl Future<Output = T>, shared: &Shared) -> T {
        shared.waiting.take().into_values().for_each(Waker::wake);
        let ended = Instant::now();
        let there = until.await;
        let begun = Instant::now();
        *self = FoldingTurn { begun, answering: begun - ended, updates: 0 };
        there
    }
}

/// Folds frame after frame, and lets the sessions have their turn in between.
async fn fold(feed: &Receiver<FeedMessage>, shared: &Shared) {
    let mut turn = FoldingTurn::start();
    loop {
        let message = match feed.try_recv() {
            Ok(message) => message,
            Err(TryRecvError::Empty) => match turn.give(feed.recv(), shared).await {
                Ok(message) => message,
                Err(_ended) => return,
            },
            Err(TryRecvError::Closed) => return,
        };
        match message {
            FeedMessage::Begun(begun) => shared.served.borrow_mut().view.put(*begun),
            FeedMessage::Frame { zone, updates, next_offset, owner_epoch, published_ms } => {
                for updates in updates.chunks(FOLD_UPDATES_MAX) {
                    turn.take(updates.len(), shared).await;
                    shared.served.borrow_mut().fold(zone, updates);
                }
                let lag_ms = (unix_us() / 1000).saturating_sub(published_ms).max(0).cast_unsigned();
                shared.served.borrow_mut().seal(zone, next_offset, owner_epoch, lag_ms);
            }
            FeedMessage::Live { zone, owner_epoch } => {
                shared.served.borrow_mut().live(zone, owner_epoch);
            }
            FeedMessage::Halted(zone, sentence) => {
                tracing::error!(zone, "halted: {sentence}");
                shared.served.borrow_mut().zones[usize::from(zone)] = ZoneState::Halted(sentence);
            }
        }
    }
}

async fn session(mut stream: Async<TcpStream>, number: u64, shared: &Shared) -> io::Result<()> {
    stream.get_ref().set_nodelay(true)?;
    let mut exchange = Exchange::default();
    loop {
        let now_ms = shared.started.elapsed().as_millis() as u64;
        let need = exchange.advance(&shared.served.borrow(), &shared.gate, now_ms);
        while !exchange.unsent().is_empty() {
            let count = within(SEND_MS_MAX, stream.write(exchange.unsent())).await?;
            exchange.sent(count);
        }
        match need {
            ExchangeNeed::Sending => {}
            ExchangeNeed::Close => return close(&stream).await,
            ExchangeNeed::Post => {
                let (body, zone, pass) = exchange.posted().expect("it asks for this");
                let appended = append(body, zone, &pass, shared).await;
                exchange.append(appended);
            }
            ExchangeNeed::Frame { until_ms } => {
                let patience = Duration::from_millis(until_ms.saturating_sub(now_ms));
                let timer = async { _ = Timer::after(patience).await };
                next_frame(number, shared).or(timer).await;
            }
            ExchangeNeed::Turn(StreamTurn { until_ms, or_frame }) => {
                let patience = Duration::from_millis(until_ms.saturating_sub(now_ms));
                let turn = async { _ = Timer::after(patience).await };
                let frame = async {
                    match or_frame {
                        true => next_frame(number, shared).await,
                        false => future::pending().await,
                    }
                };
                let goes_on = async {
                    frame.or(turn).await;
                    Ok(())
                };
                goes_on.or(ended(&stream)).await?;
            }
            ExchangeNeed::Bytes => {
                let wait_ms = match exchange.begun_ms() {
                    None => IDLE_MS_MAX,
                    Some(begun_ms) => (begun_ms + REQUEST_MS_MAX).saturating_sub(now_ms),
                };
                within(wait_ms, stream.readable()).await?;
                if !receive(&stream, &mut exchange)? {
                    return Ok(());
                }
            }
        }
    }
}

/// Waits until a client that listens to a stream ends it. What it still sends is no request.
async fn ended(stream: &Async<TcpStream>) -> io::Result<()> {
    let mut scrap = [0; 1024];
    loop {
        stream.readable().await?;
        match stream.get_ref().read(&mut scrap) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Appends the events of a body, and waits until the brokers have them.
async fn append(
    body: &[u8],
    zone: Option<u16>,
    pass: &Pass,
    shared: &Shared,
) -> Result<Vec<(Command, Appended)>, Problem> {
    let appender = shared.appender.as_ref().ok_or(Problem::Forbidden)?;
    let commands = {
        let Desk { decoder, stamps } = &mut *shared.desk.borrow_mut();
        let now_us = unix_us();
        commands(body, zone, &shared.served.borrow(), decoder, || stamps.next(now_us))?
    };
    let now_ms = shared.started.elapsed().as_millis() as u64;
    shared.gate.admit_commands(pass, &commands, now_ms)?;
    let reports: Vec<_> = commands.iter().map(|command| appender.append(command)).collect();
    let mut appended = Vec::with_capacity(commands.len());
    for (command, report) in commands.into_iter().zip(reports) {
        appended.push((command, report.recv().await.unwrap_or(Appended::Unknown)));
    }
    Ok(appended)
}

/// Microseconds since the Unix epoch.
fn unix_us() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_micros()).unwrap_or(i64::MAX)
}

/// Takes what has come; no buffer waits for it. False: the client has ended.
fn receive(stream: &Async<TcpStream>, exchange: &mut Exchange) -> io::Result<bool> {
    let mut buffer = [0; 4096];
    match stream.get_ref().read(&mut buffer) {
        Ok(0) => Ok(false),
        Ok(count) => {
            exchange.receive(&buffer[..count]);
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
        Err(error) => Err(error),
    }
}

/// Reads for a moment what the client still sends: closing with unread bytes would reset the
/// connection and take the answer with it.
async fn close(stream: &Async<TcpStream>) -> io::Result<()> {
    stream.get_ref().shutdown(Shutdown::Write)?;
    let mut scrap = [0; 1024];
    for _ in 0..64 {
        within(1_000, stream.readable()).await?;
        if stream.get_ref().read(&mut scrap)? == 0 {
            break;
        }
    }
    Ok(())
}

async fn within<T>(wait_ms: u64, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let patience = async {
        Timer::after(Duration::from_millis(wait_ms)).await;
        Err(io::ErrorKind::TimedOut.into())
    };
    work.or(patience).await
}

/// Waits until a frame was folded.
async fn next_frame(number: u64, shared: &Shared) {
    let mut has_waited = false;
    future::poll_fn(|context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        shared.waiting.borrow_mut().insert(number, context.waker().clone());
        Poll::Pending
    })
    .await;
}
