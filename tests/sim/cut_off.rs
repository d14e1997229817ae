//! A broker that no controller reaches. It knows of no election since then, goes on as the leader
//! that it was, and tells its clients so. Nothing but an election tells it better.

use crate::broker::{BROKERS, Broker, InputLog, METADATA_WITH_EPOCHS};

/// The broker, and what it takes for true.
pub(crate) struct CutOff {
    node_id: i32,
    inputs: Vec<InputLog>,
    output_leader_epochs: Vec<i32>,
}

impl Broker {
    /// Whether a broker can be cut off now. Only leader epochs tell which of two is right, so it is
    /// no fault that huntd stands if the brokers tell none.
    pub(crate) fn can_be_cut_off(&self) -> bool {
        self.cut_off.is_none() && self.metadata_version >= METADATA_WITH_EPOCHS
    }

    /// No controller reaches a broker any more: others lead what it has led.
    pub(crate) fn cut_off(&mut self, node_id: i32) {
        let partitions = 0..self.inputs.len();
        let epochs = partitions.map(|partition| self.output_leader_epoch(partition));
        let output_leader_epochs = epochs.collect();
        self.cut_off = Some(CutOff { node_id, inputs: self.inputs.clone(), output_leader_epochs });
        for log in self.inputs.iter_mut().filter(|log| log.leader == node_id) {
            log.elect(1 + node_id % BROKERS);
        }
        self.changes += 1;
    }

    /// A broker that was elected, or has lost records or partitions, has heard of it.
    pub(crate) fn reach_again(&mut self) {
        let has_input = self.has_input();
        let is_possible = |cut_off: &CutOff| {
            let is_before = |(then, now): (&InputLog, &InputLog)| {
                now.leader != cut_off.node_id
                    && now.truncated_to == then.truncated_to
                    && now.leader_epoch >= then.leader_epoch
                    && (now.leader == then.leader || now.leader_epoch > then.leader_epoch)
            };
            has_input
                && cut_off.inputs.len() == self.inputs.len()
                && cut_off.inputs.iter().zip(&self.inputs).all(is_before)
        };
        if self.cut_off.as_ref().is_some_and(|cut_off| !is_possible(cut_off)) {
            self.cut_off = None;
            self.changes += 1;
        }
    }

    /// The input's logs, as a broker knows them.
    pub(crate) fn inputs_of(&self, node_id: i32) -> &[InputLog] {
        self.view_of(node_id).map_or(&self.inputs, |view| &view.inputs)
    }

    /// The leader epoch of an output partition, as a broker knows it.
    pub(crate) fn output_leader_epoch_of(&self, node_id: i32, partition: usize) -> i32 {
        match self.view_of(node_id) {
            Some(view) => view.output_leader_epochs[partition],
            None => self.output_leader_epoch(partition),
        }
    }

    fn view_of(&self, node_id: i32) -> Option<&CutOff> {
        self.cut_off.as_ref().filter(|cut_off| cut_off.node_id == node_id)
    }
}
