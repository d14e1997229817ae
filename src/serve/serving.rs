//! The serving thread: folds what the feed sends, and lets the sessions have their turn between two
//! folds.
//!
//! One thread has view and sockets, so that an answer needs no lock and is one state of its zone.

use crate::kit::update::Update;
use crate::queue::bell::Bell;
use crate::runtime::allocator;
use crate::runtime::confinement::{Confinement, confine_this_thread};
use crate::runtime::ring::RingKind;
use crate::runtime::ring_error::RingError;
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

/// Milliseconds that folding takes at most while clients wait for it, and that answering takes at
/// most while updates may wait. Either may end later by one piece of its work: some updates, or
/// what a client asks for at once. The largest single answers show a whole zone.
const SHARE_MS_MAX: u64 = 1;

/// Serves until the feed ends. The bell calls this thread. `beside` runs beside everything else.
pub(crate) fn run(
    served: Served,
    sessions: Sessions,
    feed: Receiver<FeedMessage>,
    (bell, ring): (&Arc<Bell>, RingKind),
    beside: impl Future<Output = ()> + 'static,
) -> Result<(), RingError> {
    let executor = LocalExecutor::new();
    executor.spawn(beside).detach();
    let mut tasks = pin!(executor.run(future::pending::<()>()));
    let waker = Waker::from(bell.clone());
    let mut context = Context::from_waker(&waker);
    let mut serving = Serving::new(served, sessions, feed, bell.clone());
    confine_this_thread(Confinement::Serving, ring)?;
    allocator::count_serving_thread();
    let share = Duration::from_millis(SHARE_MS_MAX);
    while serving.turn(share, || _ = tasks.as_mut().poll(&mut context))? != FoldingTurn::Ended {}
    Ok(())
}

/// Folding and answering, turn by turn.
pub(crate) struct Serving {
    pub(super) served: Served,
    pub(super) sessions: Sessions,
    folding: Folding,
    bell: Arc<Bell>,
    /// The time that the sessions took: folding may take as long.
    answering: Duration,
}

impl Serving {
    /// Nothing is folded yet.
    pub(crate) fn new(
        served: Served,
        sessions: Sessions,
        feed: Receiver<FeedMessage>,
        bell: Arc<Bell>,
    ) -> Serving {
        let folding = Folding { feed, frame: None, has_news: false };
        Serving { served, sessions, folding, bell, answering: Duration::ZERO }
    }

    /// Folds, does what else there is `beside`, and answers. While both updates and clients wait,
    /// either takes about so long at most. Returns what there was to fold.
    pub(crate) fn turn(
        &mut self,
        share: Duration,
        beside: impl FnOnce(),
    ) -> Result<FoldingTurn, RingError> {
        let Serving { served, sessions, folding, bell, answering } = self;
        served.pass_time(Instant::now());
        let folded = folding.turn(served, sessions, share.min(*answering));
        if folded == FoldingTurn::Ended {
            return Ok(folded);
        }
        let begun = Instant::now();
        served.feed.note(begun);
        if std::mem::take(&mut folding.has_news) {
            sessions.frames_folded(served);
        }
        sessions.take_reports();
        sessions.times_passed();
        beside();
        served.counts.sessions = sessions.count();
        served.counts.streams = sessions.streams();
        served.counts.allocations = allocator::serving_allocations();
        let may_sleep = folded != FoldingTurn::Some && bell.try_sleep();
        sessions.turn(served, may_sleep.then(|| sessions.sleep_max()), share)?;
        bell.wake_up();
        *answering = if may_sleep { Duration::ZERO } else { begun.elapsed() };
        Ok(folded)
    }
}

/// The updates that there were to fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoldingTurn {
    /// There may be more.
    Some,
    /// All that there was.
    All,
    /// The feed has ended.
    Ended,
}

/// Folds the feed's messages, piece by piece.
struct Folding {
    feed: Receiver<FeedMessage>,
    /// A frame of which updates are left, and how many are folded.
    frame: Option<FrameToFold>,
    /// A zone's answers have changed, and the sessions do not know it yet.
    has_news: bool,
}

struct FrameToFold {
    zone: u16,
    updates: Vec<Update>,
    folded: usize,
    next_offset: i64,
    owner_epoch: u64,
    published: Instant,
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
            if self.frame.is_none() {
                match self.feed.try_recv() {
                    Ok(message) => self.frame = take(served, message),
                    Err(TryRecvError::Empty) => return FoldingTurn::All,
                    Err(TryRecvError::Closed) => return FoldingTurn::Ended,
                }
            }
            // What brings no updates counts as one.
            updates += self.fold_piece(served).max(1);
            if sessions.has_work() && begun.elapsed() >= share {
                return FoldingTurn::Some;
            }
        }
        FoldingTurn::Some
    }

    /// Folds some updates of the frame, if there is one. Returns how many.
    fn fold_piece(&mut self, served: &mut Served) -> usize {
        let Some(frame) = &mut self.frame else {
            self.has_news = true;
            return 0;
        };
        let piece = (frame.updates.len() - frame.folded).min(FOLD_UPDATES_PIECE);
        let part = &frame.updates[frame.folded..][..piece];
        settle(served, frame.zone, |served| served.fold(frame.zone, part));
        frame.folded += piece;
        if frame.folded == frame.updates.len() {
            frame.seal(served);
            (self.frame, self.has_news) = (None, true);
        }
        piece
    }
}

impl FrameToFold {
    fn seal(&self, served: &mut Served) {
        let age = served.now().saturating_duration_since(self.published);
        served.seal(self.zone, self.next_offset, self.owner_epoch, age.as_millis() as u64);
    }
}

/// Takes a message of the feed. Returns its frame, which is to be folded.
fn take(served: &mut Served, message: FeedMessage) -> Option<FrameToFold> {
    match message {
        FeedMessage::Begun(begun) => served.begin(*begun),
        FeedMessage::Frame { zone, updates, next_offset, owner_epoch, published } => {
            return Some(FrameToFold {
                zone,
                updates,
                folded: 0,
                next_offset,
                owner_epoch,
                published,
            });
        }
        FeedMessage::OwnerHeard { zone, owner_epoch, published } => {
            served.hear_owner(zone, owner_epoch, published);
        }
        FeedMessage::Live { zone, owner_epoch, owner_heard } => {
            settle(served, zone, |served| served.live(zone, owner_epoch, owner_heard));
        }
        FeedMessage::Current { zone, asked } => served.confirm(zone, asked),
        FeedMessage::Input { zone, is_another } => served.set_input(zone, is_another),
        FeedMessage::Rules(game) => served.view.know(&game),
        FeedMessage::Halted(zone, sentence) => {
            settle(served, zone, |served| served.halt(zone, sentence));
        }
    }
    None
}

/// Changes the state of a zone. Once no zone is being loaded any more, the log says so.
fn settle(served: &mut Served, zone: u16, change: impl FnOnce(&mut Served)) {
    let was_loading = served.zones[usize::from(zone)] == ZoneState::Loading;
    change(served);
    if !was_loading || served.zones.contains(&ZoneState::Loading) {
        return;
    }
    let live = served.zones.iter().filter(|zone| matches!(zone, ZoneState::Live { .. })).count();
    tracing::info!("loaded: {live} of {} zones are served", served.zones.len());
}
