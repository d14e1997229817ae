//! What a daemon finds of a shard that it acquires: where its logs begin and end, and its states.

use crate::chance::{Fault, Sight};
use crate::control::{Coming, Control, Loaded};
use crate::mutation::Mutation;
use crate::surroundings::{Surroundings, falsified, origin, whole_store};
use huntd::hunt::frames::decode_frame;
use huntd::kafka::topic_error::TopicError;
use huntd::kit::engine::Engine;
use huntd::output::frame::FrameKind;
use huntd::ownership::acquisition::Candidate;
use huntd::ownership::bounds::Bounds;
use huntd::ownership::event::{OwnershipEvent, Survey};
use huntd::snapshot::replicas::Replica;
use huntd::snapshot::stored_states::StoredState;

impl Control {
    /// Leaders answer each for itself. A result that is late does not count for a later survey.
    pub(crate) fn survey(&mut self, around: &mut Surroundings<'_>, partition: i32) {
        self.confirmed.remove(&partition);
        self.coming.retain(|(_, coming)| match coming {
            Coming::Surveyed { partition: surveyed, .. } => *surveyed != partition,
            _ => true,
        });
        let is_leaderless =
            around.chance.strikes_of(Fault::Leaderless, 5) || !around.broker.has_input();
        let bounds = match is_leaderless {
            true => Err(TopicError::Unreachable("no leader now".to_owned())),
            false => Ok(around.bounds(partition)),
        };
        let output_end = bounds.as_ref().map_or(i64::MAX, |bounds| bounds.output_end);
        self.surveyed_ends.insert(partition, output_end);
        let at = around.now + around.chance.delay_us();
        self.coming.push((at, Coming::Surveyed { partition, bounds }));
    }

    pub(crate) fn surveyed(
        &mut self,
        around: &mut Surroundings<'_>,
        partition: i32,
        bounds: Result<Bounds, TopicError>,
    ) {
        let snapshots = whole_store(around.disk).candidates(partition).expect("it can be read");
        let candidates = self.states.survey(partition, snapshots);
        let candidates = self.falsified(around, partition, candidates);
        let survey = bounds.map(|bounds| Survey { bounds, candidates });
        self.on(around, OwnershipEvent::Surveyed { partition, survey });
    }

    pub(crate) fn find(&mut self, around: &mut Surroundings<'_>, partition: i32) {
        if around.chance.strikes_of(Fault::SearchInterrupted, 20) {
            return self.on(around, OwnershipEvent::Interrupted { partition });
        }
        let is_unanswered = around.chance.strikes_of(Fault::ReplicasUnanswered, 20);
        let replica = around.replicas.get(&partition).map(|(header, _)| header);
        let replica =
            replica.filter(|header| !is_unanswered && self.states.is_replica_wanted(header));
        let mut replica = replica.map(|header| Replica { header: header.clone(), first_offset: 0 });
        if let (Mutation::StateLeftUnseen, Some(replica)) = (self.mutation, &mut replica) {
            let first = self.first_found.entry(partition);
            replica.header = first.or_insert_with(|| replica.header.clone()).clone();
        }
        self.found.remove(&partition);
        if let Some(Replica { header, .. }) = &replica {
            self.found.insert(partition, header.clone());
            if self.surveyed_ends[&partition] < header.mark.output_offset {
                around.chance.see(Sight::ReplicaAfterSurvey);
                replica = replica.filter(|_| self.mutation != Mutation::SurveyKept);
            }
        }
        let candidates = self.states.offer(partition, replica);
        let candidates = self.falsified(around, partition, candidates);
        let why_unknown = is_unanswered.then(|| "the topic of replicas is silent".to_owned());
        self.on(around, OwnershipEvent::Found { partition, candidates, why_unknown });
    }

    /// No shard passes over a replica that was found and is of this output, and begins with an
    /// older state.
    pub(crate) fn check_start(
        &mut self,
        around: &Surroundings<'_>,
        partition: i32,
        candidate: Option<usize>,
    ) {
        let Some(found) = self.found.remove(&partition) else { return };
        let origin = origin(&self.ends.progress.input_topic_id);
        let chosen = self.states.choose(partition, candidate);
        let is_older =
            chosen.is_none_or(|chosen| chosen.header().recency(&origin) < found.recency(&origin));
        let log = &around.broker.outputs[partition as usize].records;
        let headers = log.iter().map(|bytes| decode_frame(bytes).expect("owners write frames").0);
        let mut since = headers.skip((found.mark.output_offset - 1).max(0) as usize);
        let is_of_log = since.next().is_some_and(|header| found.mark.is_taken_at(&header));
        let starts_over = since.any(|header| header.kind == FrameKind::Genesis);
        if is_older && is_of_log && !starts_over {
            self.wrong = Some(format!(
                "partition {partition} begins with an older state than the replica of offset {}",
                found.next_offset
            ));
        }
    }

    pub(crate) fn load(
        &mut self,
        around: &mut Surroundings<'_>,
        partition: i32,
        candidate: Option<usize>,
        begun_by: u32,
    ) {
        let state = self.states.choose(partition, candidate);
        let engine = match &state {
            Some(state) => around.load(state, &self.rulebook),
            None => {
                let rulebook = self.rulebook.beginning_by(begun_by).expect("the brief has them");
                Some(rulebook.new_zone(partition as u16))
            }
        };
        self.load_ended(around, partition, state, engine);
    }

    /// A state was loaded, or it cannot be read.
    pub(crate) fn load_ended(
        &mut self,
        around: &mut Surroundings<'_>,
        partition: i32,
        state: Option<StoredState>,
        engine: Option<Box<dyn Engine>>,
    ) {
        let Some(engine) = engine else {
            around.chance.see(Sight::SnapshotUnreadable);
            state.iter().for_each(|state| self.states.set_damaged(state));
            let why = "it cannot be read".to_owned();
            return self.on(around, OwnershipEvent::NotLoaded { partition, why });
        };
        if let Some(state) = &state {
            around.chance.see(match state {
                StoredState::Here(_) => Sight::AcquiredFromSnapshot,
                StoredState::Elsewhere(_) => Sight::AcquiredFromReplica,
            });
        }
        let (ruleset, header) = (engine.ruleset(), state.map(|state| state.header().clone()));
        self.loaded.insert(partition, Loaded { engine, header });
        self.on(around, OwnershipEvent::Loaded { partition, ruleset });
    }

    fn falsified(
        &self,
        around: &Surroundings<'_>,
        partition: i32,
        candidates: Vec<Candidate>,
    ) -> Vec<Candidate> {
        let candidates = self.moved_to_end(around, partition, candidates).into_iter();
        candidates.map(|candidate| falsified(candidate, self.mutation)).collect()
    }
}
