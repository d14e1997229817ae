//! The serving thread: folds what the feed gives, and lets the sessions have their turn between two
//! folds.
//!
//! One thread has view and sockets, so that an answer needs no lock and is one state of its zone.

use crate::engine::update::Update;
use crate::queue::bell::Bell;
use crate::runtime::allocator;
use crate::runtime::confinement::{Confinement, confine_this_thread};
use crate::runtime::ring_error::RingError;
use crate::runtime::wall_clock::unix_ms;
use crate::serve::answers::{Served, ZoneState};
use crate::serve::feed_messages::FeedMessage;
use crate::serve::sessions::Sessions;
use futures_lite::future;
use smol::LocalExecutor;
use smol::channel::{Receiver, TryRecvError};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

/// Updates that are folded between two turns of the sessions while no client waits: some tens of
/// microseconds.
const FOLD_UPDATES_MAX: usize = 512;

/// Updates that are folded between two checks whether a client waits: some microseconds.
const FOLD_UPDATES_PIECE: usize = 32;

/// Milliseconds that folding takes at most while clients wait for it.
const FOLD_MS_MAX: u64 = 1;

/// Serves until the feed ends. The bell calls this thread. `beside` runs beside everything else.
pub(crate) fn run(
    mut served: Served,
    mut sessions: Sessions,
    feed: Receiver<FeedMessage>,
    bell: &Arc<Bell>,
    beside: impl Future<Output = ()> + 'static,
) -> Result<(), RingError> {
    let executor = LocalExecutor::new();
    executor.spawn(beside).detach();
    let mut tasks = pin!(executor.run(future::pending::<()>()));
    let waker = Waker::from(bell.clone());
    let mut context = Context::from_waker(&waker);
    let mut folding = Folding { feed, frame: None, has_news: false };
    // How long the sessions took: folding may take as long.
    let mut answering = Duration::ZERO;
    confine_this_thread(Confinement::Serving)?;
    allocator::count_serving_thread();
    loop {
        let share = answering.min(Duration::from_millis(FOLD_MS_MAX));
        let folded = match folding.turn(&mut served, &mut sessions, share) {
            FoldingTurn::Ended => return Ok(()),
            folded => folded,
        };
        let begun = Instant::now();
        if std::mem::take(&mut folding.has_news) {
            sessions.frames_folded(&mut served);
        }
        sessions.take_reports(&mut served);
        sessions.times_passed(&mut served);
        _ = tasks.as_mut().poll(&mut context);
        served.counts.sessions = sessions.count();
        served.counts.streams = sessions.streams();
        served.counts.allocations = allocator::serving_allocations();
        let may_rest = folded != FoldingTurn::Some && bell.try_rest();
        sessions.turn(&mut served, may_rest.then(|| sessions.sleep_max()))?;
        bell.wake_up();
        answering = if may_rest { Duration::ZERO } else { begun.elapsed() };
    }
}

/// What there was to fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FoldingTurn {
    /// There may be more.
    Some,
    /// All that there was.
    All,
    /// The feed has ended.
    Ended,
}

/// What the feed gives, piece by piece.
struct Folding {
    feed: Receiver<FeedMessage>,
    /// A frame of which updates are left, and how many are folded.
    frame: Option<Frame>,
    /// A zone's answers have changed, and the sessions do not know it yet.
    has_news: bool,
}

struct Frame {
    zone: u16,
    updates: Vec<Update>,
    folded: usize,
    next_offset: i64,
    owner_epoch: u64,
    published_ms: i64,
}

impl Folding {
    /// Folds some updates. While clients wait, that takes no longer than `share` says, or than a
    /// piece does.
    fn turn(
        &mut self,
        served: &mut Served,
        sessions: &mut Sessions,
        share: Duration,
    ) -> FoldingTurn {
        let (begun, mut updates) = (Instant::now(), 0);
        while updates < FOLD_UPDATES_MAX {
            let frame = match self.frame.take() {
                Some(frame) => frame,
                None => match self.feed.try_recv() {
                    Ok(message) => match take(served, message) {
                        Some(frame) => frame,
                        None => {
                            self.has_news = true;
                            continue;
                        }
                    },
                    Err(TryRecvError::Empty) => return FoldingTurn::All,
                    Err(TryRecvError::Closed) => return FoldingTurn::Ended,
                },
            };
            let frame = self.frame.insert(frame);
            let piece = (frame.updates.len() - frame.folded).min(FOLD_UPDATES_PIECE);
            let part = &frame.updates[frame.folded..][..piece];
            settle(served, frame.zone, |served| served.fold(frame.zone, part));
            (frame.folded, updates) = (frame.folded + piece, updates + piece.max(1));
            if frame.folded == frame.updates.len() {
                frame.seal(served);
                (self.frame, self.has_news) = (None, true);
            }
            if sessions.has_work() && begun.elapsed() >= share {
                return FoldingTurn::Some;
            }
        }
        FoldingTurn::Some
    }
}

impl Frame {
    fn seal(&self, served: &mut Served) {
        let frame_ms = unix_ms().saturating_sub(self.published_ms).max(0).cast_unsigned();
        served.seal(self.zone, self.next_offset, self.owner_epoch, frame_ms);
    }
}

/// Takes what the feed says. Gives a frame, which is to be folded.
fn take(served: &mut Served, message: FeedMessage) -> Option<Frame> {
    match message {
        FeedMessage::Begun(begun) => served.view.put(*begun),
        FeedMessage::Frame { zone, updates, next_offset, owner_epoch, published_ms } => {
            return Some(Frame {
                zone,
                updates,
                folded: 0,
                next_offset,
                owner_epoch,
                published_ms,
            });
        }
        FeedMessage::Live { zone, owner_epoch } => {
            settle(served, zone, |served| served.live(zone, owner_epoch));
        }
        FeedMessage::Current { zone, asked } => served.confirm(zone, asked),
        FeedMessage::Rules(rulebook) => served.view.know(&rulebook),
        FeedMessage::Halted(zone, sentence) => {
            tracing::error!(zone, "halted: {sentence}");
            let halted = ZoneState::Halted(sentence);
            settle(served, zone, |served| served.zones[usize::from(zone)] = halted);
        }
    }
    None
}

/// Gives a zone a new state. Once none is being loaded any more, the log says so.
fn settle(served: &mut Served, zone: u16, change: impl FnOnce(&mut Served)) {
    let was_loading = served.zones[usize::from(zone)] == ZoneState::Loading;
    change(served);
    if !was_loading || served.zones.contains(&ZoneState::Loading) {
        return;
    }
    let live = served.zones.iter().filter(|zone| matches!(zone, ZoneState::Live { .. })).count();
    tracing::info!("loaded: {live} of {} zones are served", served.zones.len());
}
