//! A host whose engine does not make the updates that are published: its memory, or what was
//! installed there, is wrong. Such a host must never take a zone over.
//!
//! The engine differs as long as it follows, where it plays only what others have published. So
//! nothing wrong is ever published of which nobody could have known.

use crate::chance::Sight;
use crate::control::Control;
use crate::editions::LEFT_OUT;
use crate::mutation::Mutation;
use crate::sim::Sim;
use crate::surroundings::Surroundings;
use huntd::kit::checkpoint::CheckpointRead;
use huntd::kit::engine::{AnyRulebook, BlockReport, COUNTS_MAX, Engine};
use huntd::kit::event_list::Events;
use huntd::kit::update::Updates;
use huntd::output::frame::Chain;
use huntd::output::mark::Mark;
use huntd::ownership::event::ShardFacts;
use huntd::shards::framer::Grant;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The host with such an engine.
const OTHER_HOST: usize = 2;

/// Of so many simulations, one has such a host.
const OTHER_IN: u64 = 16;

/// What the control thread and an engine that differs know of each other.
#[derive(Default)]
pub(crate) struct OtherEngine {
    has_become_owner: AtomicBool,
    has_differed: AtomicBool,
    /// Whether it had differed when the takeover was decided. What it makes later cannot keep the
    /// fence from being appended.
    had_differed: AtomicBool,
    /// The group was asked before the fence.
    is_asked_for: AtomicBool,
    /// Number of the first update that the output does not cover.
    covered: AtomicU64,
}

struct OtherZone {
    inner: Box<dyn Engine>,
    shared: Arc<OtherEngine>,
}

impl Engine for OtherZone {
    fn partition(&self) -> u16 {
        self.inner.partition()
    }

    fn version(&self) -> u32 {
        self.inner.version()
    }

    fn ruleset(&self) -> u32 {
        self.inner.ruleset()
    }

    fn digest(&self) -> u64 {
        self.inner.digest()
    }

    fn last_seq(&self, player_id: u64) -> u64 {
        self.inner.last_seq(player_id)
    }

    fn counts(&self) -> [u64; COUNTS_MAX] {
        self.inner.counts()
    }

    fn know(&mut self, rulebook: &AnyRulebook) {
        self.inner.know(rulebook);
    }

    fn apply_part(
        &mut self,
        events: &Events,
        part: Range<usize>,
        updates: &mut Updates,
        report: &mut BlockReport,
    ) {
        if self.shared.has_become_owner.load(Ordering::Relaxed) {
            return self.inner.apply_part(events, part, updates, report);
        }
        let mut lost = Updates::new();
        self.inner.apply_part(events, part, &mut lost, report);
        if !lost.as_slice().is_empty() {
            self.shared.has_differed.store(true, Ordering::Relaxed);
        }
    }

    fn begin_checkpoint(&mut self) -> u64 {
        self.inner.begin_checkpoint()
    }

    fn write_checkpoint(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> CheckpointRead {
        self.inner.write_checkpoint(out, bytes_max)
    }

    fn end_checkpoint(&mut self) {
        self.inner.end_checkpoint();
    }
}

/// Returns whether a simulation has such a host.
pub(crate) fn is_there(seed: u64, mutation: Mutation) -> bool {
    mutation == Mutation::CoverUnchecked || seed % OTHER_IN == OTHER_IN - 1
}

impl Sim {
    /// Only what others have published shows that an engine differs: it is not to be lost.
    pub(crate) fn bring_other_engine(&mut self) {
        self.common.other_host = Some(OTHER_HOST);
        self.chance.leave_out(LEFT_OUT);
        self.starts_over = false;
    }

    /// The operator brings the right engine.
    pub(crate) fn bring_right_engine(&mut self) {
        if let Some(host) = self.common.other_host.take() {
            self.end(host);
        }
    }
}

impl Control {
    /// The engine with which a shard follows.
    pub(crate) fn following_engine(
        &mut self,
        partition: i32,
        inner: Box<dyn Engine>,
        covered: u64,
    ) -> Box<dyn Engine> {
        if !self.has_other_engine {
            return inner;
        }
        let shared = OtherEngine { covered: covered.into(), ..OtherEngine::default() };
        let shared = Arc::new(shared);
        self.other_engines.insert(partition, shared.clone());
        Box::new(OtherZone { inner, shared })
    }

    /// It was decided to take a zone over. Then the group is asked or, by a copy, the fence is
    /// appended at once.
    pub(crate) fn note_other_engine(&self, partition: i32, asks: bool) {
        let Some(shared) = self.other_engines.get(&partition) else { return };
        if !shared.is_asked_for.swap(asks, Ordering::Relaxed) || asks {
            let has_differed = shared.has_differed.load(Ordering::Relaxed);
            shared.had_differed.store(has_differed, Ordering::Relaxed);
        }
    }

    /// An engine has followed until it was warm, and the output is ours.
    pub(crate) fn check_promoted_engine(&mut self, partition: i32) {
        let Some(shared) = self.other_engines.get(&partition) else { return };
        shared.has_become_owner.store(true, Ordering::Relaxed);
        if shared.had_differed.load(Ordering::Relaxed) {
            let wrong = "is taken over, and its engine does not make what is published";
            self.wrong = Some(format!("partition {partition} {wrong}"));
        }
    }

    /// A follower has shown that its engine differs.
    pub(crate) fn see_divergence(&mut self, around: &mut Surroundings<'_>, partition: i32) {
        if self.other_engines.remove(&partition).is_some() {
            around.chance.see(Sight::OtherEngineNoticed);
        }
    }

    /// What the mutation makes of the cover of a follower at its start, and later.
    pub(crate) fn uncheck_start(&self, grant: &mut Grant) {
        if self.mutation == Mutation::CoverUnchecked {
            (grant.published, grant.published_chain) = (grant.start_update, grant.start_chain);
        }
    }

    pub(crate) fn uncheck_cover(&self, partition: i32, mark: &mut Mark) {
        if self.mutation == Mutation::CoverUnchecked {
            if let Some(shared) = self.other_engines.get(&partition) {
                shared.covered.store(mark.next_update, Ordering::Relaxed);
            }
            (mark.next_update, mark.chain) = (0, Chain::default());
        }
    }

    pub(crate) fn uncheck_facts(&self, facts: &mut ShardFacts) {
        if self.mutation == Mutation::CoverUnchecked
            && let Some(shared) = self.other_engines.get(&facts.partition)
            && !shared.has_become_owner.load(Ordering::Relaxed)
        {
            facts.next_update = shared.covered.load(Ordering::Relaxed);
        }
    }
}
