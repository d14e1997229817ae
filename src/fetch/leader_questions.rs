//! Decides when the leaders are asked for, and which broker is asked.

use crate::fetch::dialling::{DialError, Endpoint, MetadataLink};
use crate::fetch::leadership_claims::LeadershipClaim;
use crate::fetch::stage::SharedFetch;
use crate::fetch::witnesses::Witnesses;
use crate::kafka::message::Metadata;
use crate::kafka::metadata::NODE_UNKNOWN;
use crate::kafka::{LEADERLESS_MS_MAX, RECONNECT_MS_MAX, RECONNECT_MS_MIN};
use crate::ownership::event::{ToControl, TroubleSource};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Lower bound, in milliseconds, between two checks whether each partition has brought records. If
/// one has not, another broker is asked who leads it, although every Fetch is answered.
const QUIET_MS_MIN: u32 = 2_500;

/// Upper bound. Without ticks a silent partition is no symptom, and each question takes a
/// connection.
const QUIET_MS_MAX: u32 = 30_000;

/// Asks for the leaders whenever one is missing or a partition is quiet.
pub(super) struct LeaderQuestions {
    shared: Rc<SharedFetch>,
    /// When partitions are next checked for being quiet.
    quiet_check_at: Instant,
    /// The leader of a quiet partition that another broker was last asked about.
    quiet_leader: i32,
    witnesses: Witnesses,
    /// Milliseconds before the next question.
    wait_ms: u64,
}

/// Why a broker is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// The leader of some partition is unknown.
    Needed,
    /// A partition has brought nothing for a while, although every Fetch is answered. Its leader
    /// may have been replaced without saying so, or without knowing.
    Quiet { leader: i32 },
}

/// A broker that is asked about another broker.
struct Witness {
    about: i32,
    node_id: i32,
    endpoint: Endpoint,
    /// The claims that were pending when the question was sent. A later claim needs another
    /// question.
    claims: Vec<LeadershipClaim>,
}

impl LeaderQuestions {
    /// Creates the task; nothing has been asked yet.
    pub(super) fn new(shared: Rc<SharedFetch>) -> LeaderQuestions {
        LeaderQuestions {
            quiet_check_at: shared.context.turns.now(),
            quiet_leader: NODE_UNKNOWN,
            witnesses: Witnesses::default(),
            wait_ms: RECONNECT_MS_MIN,
            shared,
        }
    }

    /// Runs indefinitely.
    pub(super) async fn run(mut self) {
        let shared = self.shared.clone();
        let turns = &shared.context.turns;
        loop {
            let reason = turns.until(|| self.reason()).await;
            let witness = self.witness(reason);
            let link = match &witness {
                Some(witness) => MetadataLink::NewTo(witness.endpoint.clone()),
                None if reason == Reason::Needed && !self.needs_another() => MetadataLink::Kept,
                None => MetadataLink::New,
            };
            shared.dialling.ask_metadata(turns.now(), link);
            let answer = turns.until(|| shared.dialling.take_metadata()).await;
            if self.take(reason, witness, answer) {
                continue;
            }
            // Asking again at once would return the same answer: an election takes time.
            turns.sleep_until(turns.now() + Duration::from_millis(self.wait_ms)).await;
        }
    }

    /// Returns why a broker has to be asked now; `None` if there is no reason.
    fn reason(&mut self) -> Option<Reason> {
        let turns = &self.shared.context.turns;
        let now = turns.now();
        let is_due = self.quiet_check_at <= now;
        if is_due {
            self.quiet_check_at = now + quiet_max(self.shared.options.tick_every_ms);
        }
        turns.turn_at(self.quiet_check_at);
        let quiet = is_due.then(|| self.next_quiet_leader()).flatten();
        match self.is_needed() {
            true => Some(Reason::Needed),
            false => quiet.map(|leader| Reason::Quiet { leader }),
        }
    }

    /// Returns whether the broker that answered last cannot tell more.
    fn needs_another(&self) -> bool {
        let table = self.shared.table.borrow();
        let has_others = table.brokers().len() > 1;
        self.shared.doubts_topic()
            || table.lags()
            || has_others && !self.shared.unconfirmed(&table).is_empty()
    }

    fn is_needed(&self) -> bool {
        let table = self.shared.table.borrow();
        let mut is_needed = table.partition_count() == 0;
        self.shared.cursors.each(|cursor| is_needed |= table.leader(cursor.partition).is_none());
        is_needed
    }

    /// Returns the next leader whose partition could be fetched but has not moved since the last
    /// check. They take turns.
    fn next_quiet_leader(&mut self) -> Option<i32> {
        let table = self.shared.table.borrow();
        let mut leaders = Vec::new();
        self.shared.cursors.each(|cursor| {
            if cursor.take_quiet() {
                leaders.extend(table.leader(cursor.partition).map(|leader| leader.node_id));
            }
        });
        let behind = leaders.iter().filter(|leader| **leader > self.quiet_leader).min();
        let next = behind.or(leaders.iter().min()).copied()?;
        self.quiet_leader = next;
        Some(next)
    }

    /// Returns the broker to ask about another one. A name from the configuration is not a witness:
    /// it may resolve to that other broker.
    fn witness(&mut self, reason: Reason) -> Option<Witness> {
        let table = self.shared.table.borrow();
        let claims = self.shared.unconfirmed(&table);
        let quiet = match reason {
            Reason::Needed => None,
            Reason::Quiet { leader } => Some(leader),
        };
        let suspect = claims.first().map(|claim| claim.node_id).or(quiet)?;
        let witness = self.witnesses.next(&table, suspect)?;
        let (node_id, endpoint) = (witness.node_id, Endpoint::of(witness));
        Some(Witness { about: suspect, node_id, endpoint, claims })
    }

    /// Processes an answer. Returns whether another connection has to be asked at once.
    fn take(
        &mut self,
        reason: Reason,
        witness: Option<Witness>,
        answer: Result<Metadata, DialError>,
    ) -> bool {
        let shared = &self.shared;
        let is_final = matches!(&answer, Err(error) if error.is_final());
        let taken = match &answer {
            Ok(metadata) => shared.take_metadata(metadata).map(|()| metadata),
            Err(error) => Err(error.to_string()),
        };
        let is_opinion = reason != Reason::Needed && !shared.doubts_topic();
        if let (Some(witness), Err(_)) = (&witness, &taken) {
            self.witnesses.note_useless(witness.about);
        }
        match taken {
            Ok(metadata) => {
                if let Some(Witness { about, node_id, claims, .. }) = witness {
                    // If the witness has stale metadata, the broker in doubt does not: it leads in
                    // a later epoch.
                    let is_led = |partition| {
                        let mut leaders = metadata.partitions.iter();
                        leaders.any(|it| it.partition == partition && it.leader.is_some())
                    };
                    shared.leadership_claims.settle(&claims, node_id, is_led);
                    // All others may know of no leader. Then only this broker can name it.
                    let is_left = |it: &LeadershipClaim| shared.leadership_claims.contain(*it);
                    if claims.iter().any(|it| it.node_id == about && is_left(it)) {
                        self.witnesses.note_useless(about);
                    }
                }
                self.wait_ms = match self.is_needed() {
                    true => (self.wait_ms * 2).min(LEADERLESS_MS_MAX),
                    false => RECONNECT_MS_MIN,
                };
                // No shard can start before another connection has answered.
                return self.is_needed() && shared.doubts_topic();
            }
            // A broker that is only a witness may be unreachable.
            Err(_) if is_opinion && !is_final => {}
            Err(sentence) => {
                let source = TroubleSource::Leaders;
                shared.report(ToControl::Trouble { source, sentence });
                self.wait_ms = (self.wait_ms * 2).min(RECONNECT_MS_MAX);
                // Other brokers may know who leads the missing partitions.
                return witness.is_some() && !is_final;
            }
        }
        false
    }
}

/// How long a partition may be silent: two and a half tick intervals.
fn quiet_max(tick_every_ms: u32) -> Duration {
    let quiet_ms = match tick_every_ms.saturating_mul(5) / 2 {
        0 => QUIET_MS_MAX,
        quiet_ms => quiet_ms.clamp(QUIET_MS_MIN, QUIET_MS_MAX),
    };
    Duration::from_millis(quiet_ms.into())
}
