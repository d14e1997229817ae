//! The input topic is deleted and, some time later, created again: its name and its offsets are the
//! same, but mean other records.

use crate::broker::{BROKERS, Broker, InputLog};
use crate::chance::Fault;
use crate::game::{Game, Record};
use crate::line::Lane;
use crate::mutation::Mutation;
use crate::sim::Sim;
use huntd::snapshot::format::Header;
use huntd::telemetry::progress::Progress;

/// Records of the new topic in one batch.
const BATCH_RECORDS_MAX: u64 = 20;

/// Which input topic there is.
pub(crate) struct InputTopic {
    pub(crate) id: u128,
    /// There is none, until then.
    pub(crate) created_at: Option<u64>,
    /// The logs of the topic that had the name before.
    before: Vec<InputLog>,
}

impl InputTopic {
    pub(crate) fn new(id: u128) -> InputTopic {
        InputTopic { id, created_at: None, before: Vec::new() }
    }
}

impl Broker {
    /// Whether there is an input topic now.
    pub(crate) fn has_input(&self) -> bool {
        self.input_topic.created_at.is_none()
    }

    /// Whether the input topic was deleted some time.
    pub(crate) fn was_input_deleted(&self) -> bool {
        !self.input_topic.before.is_empty()
    }

    /// Whether a log takes records now.
    pub(crate) fn takes(&self, lane: Lane) -> bool {
        self.has_input() || !matches!(lane, Lane::Input(_))
    }

    /// The logs that a partition's updates may be made of, the current one first.
    pub(crate) fn logs(&self, partition: i32) -> impl Iterator<Item = &InputLog> {
        let before = self.input_topic.before.get(partition as usize);
        self.inputs.get(partition as usize).into_iter().chain(before)
    }

    /// Whether a snapshot's offsets are those of the topic that there is now.
    pub(crate) fn is_about_this_input(&self, header: &Header) -> bool {
        !self.was_input_deleted() || header.origin.input_id() == self.input_topic.id.to_be_bytes()
    }

    /// Whether a daemon has begun with the topic that there is now.
    pub(crate) fn is_read_by(&self, progress: &Progress) -> bool {
        let id = self.input_topic.id.to_be_bytes();
        !self.was_input_deleted() || progress.input_topic_id.get() == Some(&id)
    }

    /// The leader epoch of an output partition. The topic stays when the input is deleted.
    pub(crate) fn output_leader_epoch(&self, partition: usize) -> i32 {
        let before = self.input_topic.before.get(partition).map_or(0, |log| log.leader_epoch + 1);
        before + self.inputs[partition].leader_epoch
    }

    fn delete_input(&mut self, id: u128, created_at: u64) {
        let new = (0..self.inputs.len()).map(|at| InputLog::new(1 + at as i32 % BROKERS)).collect();
        let before = std::mem::replace(&mut self.inputs, new);
        self.input_topic = InputTopic { id, created_at: Some(created_at), before };
        self.changes += 1;
    }
}

impl Sim {
    /// Somebody deletes the input topic, once. Whether that has happened now.
    pub(crate) fn strike_topic(&mut self) -> bool {
        let is_first = !self.broker.was_input_deleted();
        if !is_first || !self.chance.strikes(Fault::InputRecreated) {
            return false;
        }
        // In less time no broker has deleted a topic and created another one.
        let created_at = self.now + self.chance.pick(&[1_500_000, 3_000_000, 8_000_000]);
        self.trace(&format!("the input topic is deleted until {created_at}"));
        // To a daemon that ignores the id, the new topic is the old one.
        let is_told = self.mutation != Mutation::TopicIdIgnored;
        self.broker.delete_input(self.broker.input_topic.id + u128::from(is_told), created_at);
        true
    }

    /// The input topic is there again. Its players begin from nothing, with fewer records than the
    /// old logs had, or with more.
    pub(crate) fn create_input_again(&mut self) {
        self.trace("the input topic is created again");
        self.broker.input_topic.created_at = None;
        self.group.forget_commits();
        self.hosts.iter_mut().for_each(|host| host.seen_panics.clear());
        let zones = self.games.len();
        for zone in 0..zones {
            self.games[zone] = Game::new(zone as u16, zones as u16, &self.rulebook, self.weights);
            let before = self.broker.input_topic.before[zone].end as u64;
            let most = if self.chance.one_in(2) { before } else { before + 2 * BATCH_RECORDS_MAX };
            let mut left = self.chance.between(0, most);
            while left > 0 {
                let count = left.min(BATCH_RECORDS_MAX);
                let record = |_| self.games[zone].record(&mut self.chance, self.now);
                let records: Vec<Record> = (0..count).map(record).collect();
                self.broker.inputs[zone].append(&mut self.chance, &records);
                left -= count;
            }
        }
        self.broker.changes += 1;
    }
}
