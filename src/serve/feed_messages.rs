//! The messages from the feed thread to the serving thread, and the sender that wakes it.

use crate::kit::update::Update;
use crate::queue::bell::Bell;
use crate::telemetry::turning::{TurnCount, Turning};
use crate::view::game::ViewedGame;
use crate::view::zone::ZoneView;
use smol::channel::{Sender, TrySendError};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

/// Messages from the feed to the serving thread: a frame each, so at most 8 MiB of updates.
pub(crate) const FEED_MESSAGES_MAX: usize = 64;

/// Messages after which the serving thread is called, although more have been fetched: to wake it
/// for each would cost more than most of them do.
const MESSAGES_PER_CALL: usize = 8;

/// Milliseconds without a turn of the feed after which it counts as stuck: it waits for brokers and
/// the disk, but not for that long.
const FEED_STUCK_MS: u64 = 30_000;

/// A message about a zone to the serving thread.
#[derive(Debug)]
pub(crate) enum FeedMessage {
    /// It begins, in place of what was known of it.
    Begun(Box<ZoneView>),
    /// A frame: its new updates, and up to which input offset the zone has come with them.
    Frame {
        /// The zone.
        zone: u16,
        /// New updates, possibly none.
        updates: Vec<Update>,
        /// The first input offset that it has not seen.
        next_offset: i64,
        /// The owner epoch in force.
        owner_epoch: u64,
        /// When it was published.
        published: Instant,
    },
    /// Its owner has published nothing new.
    OwnerHeard {
        /// The zone.
        zone: u16,
        /// The owner epoch in force.
        owner_epoch: u64,
        /// When it was published.
        published: Instant,
    },
    /// It has reached its log's end, or has come as near as possible while a game goes on: its
    /// answers are up to date.
    Live {
        /// The zone.
        zone: u16,
        /// The owner epoch in force.
        owner_epoch: u64,
        /// When the last frame or fence of its owner that was read was published.
        owner_heard: Option<Instant>,
    },
    /// The messages before this one hold all that its log had before its end.
    Current {
        /// The zone.
        zone: u16,
        /// When the brokers were asked for that end.
        asked: Instant,
    },
    /// The input topic is another one than the zone is played from, or is that one again.
    Input {
        /// The zone.
        zone: u16,
        /// Which of the two.
        is_another: bool,
    },
    /// It cannot go on: why, and what to do.
    Halted(u16, String),
    /// The game has more rules, to which zones can change from now on.
    Rules(Arc<dyn ViewedGame>),
}

/// The feed's end of the way to the serving thread.
pub(crate) struct FeedSender {
    messages: Sender<FeedMessage>,
    /// Calls the serving thread.
    bell: Arc<Bell>,
    /// Messages that the serving thread was not called for.
    uncalled: Cell<usize>,
    turns: TurnCount,
}

/// Shows the serving thread whether the feed goes on.
#[derive(Debug, Default)]
pub(crate) struct FeedWatch {
    turns: TurnCount,
    seen: Turning,
}

impl FeedWatch {
    /// Notes whether the feed has turned.
    pub(super) fn note(&mut self, now: Instant) {
        self.seen.note(self.turns.get(), now);
    }

    /// Returns whether the feed has turned before, but does not any more.
    pub(super) fn is_stuck(&self, now: Instant) -> bool {
        self.seen.is_stuck(FEED_STUCK_MS, now)
    }
}

impl FeedSender {
    /// Creates the sender.
    pub(crate) fn new(messages: Sender<FeedMessage>, bell: Arc<Bell>) -> FeedSender {
        FeedSender { messages, bell, uncalled: Cell::new(0), turns: TurnCount::default() }
    }

    /// Counts a turn of the feed.
    pub(super) fn count_turn(&self) {
        self.turns.add_one();
    }

    /// Returns a watch of this feed.
    pub(super) fn watch(&self) -> FeedWatch {
        FeedWatch { turns: self.turns.clone(), seen: Turning::default() }
    }

    /// Returns whether nobody receives any more.
    pub(super) fn is_closed(&self) -> bool {
        self.messages.is_closed()
    }

    /// Sends a message, once there is room. It is lost if nobody receives any more.
    pub(super) fn send(&self, message: FeedMessage) {
        if let Err(TrySendError::Full(message)) = self.messages.try_send(message) {
            self.call();
            let _ended = self.messages.send_blocking(message);
        }
        self.uncalled.set(self.uncalled.get() + 1);
        if self.uncalled.get() >= MESSAGES_PER_CALL {
            self.call();
        }
    }

    /// Calls the serving thread for what it was not called for yet.
    pub(super) fn call(&self) {
        if self.uncalled.take() > 0 {
            self.bell.ring();
        }
    }
}

impl Drop for FeedSender {
    fn drop(&mut self) {
        self.messages.close();
        self.bell.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smol::channel;
    use std::time::Duration;

    #[test]
    fn the_serving_thread_is_called_for_some_messages_at_a_time_and_before_the_feed_waits() {
        let bell = Arc::new(Bell::new().unwrap());
        let (messages, receiver) = channel::bounded(MESSAGES_PER_CALL + 2);
        let sender = FeedSender::new(messages, bell.clone());
        let send = |count: usize| {
            (0..count).for_each(|_| {
                sender.send(FeedMessage::OwnerHeard {
                    zone: 0,
                    owner_epoch: 1,
                    published: Instant::now(),
                })
            });
        };
        let was_called = || {
            let is_called = bell.is_called();
            bell.wake_up();
            is_called
        };
        send(MESSAGES_PER_CALL - 1);
        assert!(!was_called());
        send(1);
        assert!(was_called());
        sender.call();
        assert!(!was_called(), "it was called for all of them");
        send(1);
        sender.call();
        assert!(was_called());
        send(1);
        assert!(!was_called() && sender.messages.is_full());
        let waiting =
            std::thread::spawn(move || sender.send(FeedMessage::Halted(0, String::new())));
        let until = Instant::now() + Duration::from_secs(60);
        while !bell.is_called() {
            assert!(Instant::now() < until, "nobody makes room");
            std::thread::yield_now();
        }
        let received: Vec<FeedMessage> =
            (0..MESSAGES_PER_CALL + 3).map(|_| receiver.recv_blocking().unwrap()).collect();
        assert!(matches!(received.last(), Some(FeedMessage::Halted(..))));
        assert!(receiver.recv_blocking().is_err());
        waiting.join().unwrap();
    }
}
