//! Brokers that no controller reaches. They know of no election since then, go on as the leaders
//! that they were, and tell their clients so. Nothing but an election tells them better.

use crate::broker::{BROKERS, Broker, InputLog};

/// The brokers, and what they take for true.
pub(crate) struct CutOff {
    node_ids: Vec<i32>,
    inputs: Vec<InputLog>,
    output_leader_epochs: Vec<i32>,
}

impl Broker {
    /// Whether brokers can be cut off now.
    pub(crate) fn can_be_cut_off(&self) -> bool {
        self.cut_off.is_none()
    }

    /// No controller reaches these brokers any more: another one leads what they have led.
    pub(crate) fn cut_off(&mut self, node_ids: Vec<i32>) {
        let partitions = 0..self.inputs.len();
        let epochs = partitions.map(|partition| self.output_leader_epoch(partition));
        let output_leader_epochs = epochs.collect();
        let other = (1..=BROKERS).find(|node_id| !node_ids.contains(node_id)).expect("it is left");
        let inputs = self.inputs.clone();
        for log in self.inputs.iter_mut().filter(|log| node_ids.contains(&log.leader)) {
            log.elect(other);
        }
        self.cut_off = Some(CutOff { node_ids, inputs, output_leader_epochs });
        self.changes += 1;
    }

    /// A broker that was elected, or has lost records or partitions, has heard of it.
    pub(crate) fn reach_again(&mut self) {
        let has_input = self.has_input();
        let is_possible = |cut_off: &CutOff| {
            let is_before = |(then, now): (&InputLog, &InputLog)| {
                !cut_off.node_ids.contains(&now.leader)
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
        self.cut_off.as_ref().filter(|cut_off| cut_off.node_ids.contains(&node_id))
    }
}
