//! What the control thread of a simulated daemon learns about the topics.

use crate::control::Control;
use crate::surroundings::Surroundings;
use huntd::ownership::event::OwnershipEvent;
use huntd::ownership::panic_counts::PanicCounts;

/// Microseconds between two counts of the input's partitions.
const COUNTED_EVERY_US: u64 = 2_500_000;

impl Control {
    pub(crate) fn hear_which_input(&mut self, around: &Surroundings<'_>) {
        let topic_id = self.ends.progress.input_topic_id.get().filter(|_| !self.is_input_known);
        let Some(topic_id) = topic_id else { return };
        let counts = match around.panics.topic_id == *topic_id {
            true => around.panics.counts.clone(),
            false => PanicCounts::new(),
        };
        let topic_id = *topic_id;
        self.is_input_known = true;
        self.on(around, OwnershipEvent::InputKnown { topic_id, panics: counts });
    }

    pub(crate) fn hear_topics(&mut self, around: &mut Surroundings<'_>) {
        if self.counted_at <= around.now {
            self.counted_at = around.now + COUNTED_EVERY_US;
            let partitions = around.broker.inputs.len() as i32;
            self.on(around, OwnershipEvent::InputCounted(partitions));
        }
        if self.is_output_recreated {
            self.on(around, OwnershipEvent::OutputRecreated);
            if self.ownership.summary().open > 0 {
                self.wrong = Some("a shard goes on although its output was recreated".to_owned());
            }
        }
    }
}
