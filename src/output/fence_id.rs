//! Fence ids: 128 bits that readers compare for equality, and that carry more for an owner.
//!
//! ```text
//! 16 bits      24 bits            24 bits             64 bits
//! FORM         deployment (hash   input topic (hash   counted from random bits
//!              of the group)      of its topic id)
//! ```
//!
//! By them, an owner recognizes fences of its own deployment, and whether an earlier owner
//! published from the same input. Ids of another form tell neither: other writers choose 128 random
//! bits.
//!
//! A *note* is a fence of owner epoch 0, which changes nothing for readers. Its id begins with a
//! form of its own: a probe asks whether the output takes records, a resignation says which owner
//! epoch is about to end, and a farewell says which one has ended.

use crate::kit::mix;

/// Marks ids of this form.
const FORM: u128 = 0x4854;

/// Marks the ids of probes.
const PROBE_FORM: u128 = 0x4850;

/// Marks the ids of resignations. They end with an owner epoch instead of a counted number.
const RESIGNATION_FORM: u128 = 0x4852;

/// Marks the ids of farewells. They end with an owner epoch, too.
const FAREWELL_FORM: u128 = 0x4846;

/// Bits of a hash in an id.
const TAG_BITS: u32 = 24;

/// A hash of an input topic's id, as contained in a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputTag(u32);

impl InputTag {
    /// The tag of the topic with this id.
    pub fn of_topic(topic_id: &[u8; 16]) -> InputTag {
        InputTag(tag(topic_id))
    }

    /// The input of the owner with this fence; `None` if its id does not tell.
    pub(crate) fn of_fence(fence_id: u128) -> Option<InputTag> {
        has_form(fence_id).then_some(InputTag((fence_id >> 64) as u32 & TAG_MAX))
    }
}

/// The largest tag.
const TAG_MAX: u32 = (1 << TAG_BITS) - 1;

/// Generates the fence ids of a process.
#[derive(Clone, Copy, Debug)]
pub struct FenceIds {
    deployment: u32,
    input: InputTag,
    last: u64,
}

impl FenceIds {
    /// Creates the ids of an instance of this consumer group. The random bits distinguish it from
    /// all others; the input is not known yet.
    pub fn new(group: &str, random: u64) -> FenceIds {
        FenceIds { deployment: tag(group.as_bytes()), input: InputTag(0), last: random }
    }

    /// Sets the topic that the instance reads.
    pub(crate) fn read_from(&mut self, topic_id: &[u8; 16]) {
        self.input = InputTag::of_topic(topic_id);
    }

    /// The input that the instance reads.
    pub(crate) fn input(&self) -> InputTag {
        self.input
    }

    /// Returns the id of the next fence. It is not 0.
    pub(crate) fn next(&mut self) -> u128 {
        self.last = self.last.wrapping_add(1);
        self.id(FORM, self.last)
    }

    /// Returns the id of the next probe.
    pub(crate) fn next_probe(&mut self) -> u128 {
        self.last = self.last.wrapping_add(1);
        self.id(PROBE_FORM, self.last)
    }

    /// Returns the id of the note by which the owner with this epoch resigns.
    pub(crate) fn resignation(&self, owner_epoch: u64) -> u128 {
        self.id(RESIGNATION_FORM, owner_epoch)
    }

    /// Returns the id of the note by which the owner with this epoch says that all its frames are
    /// published.
    pub(crate) fn farewell(&self, owner_epoch: u64) -> u128 {
        self.id(FAREWELL_FORM, owner_epoch)
    }

    fn id(&self, form: u128, number: u64) -> u128 {
        let high = (form << TAG_BITS | u128::from(self.deployment)) << TAG_BITS;
        (high | u128::from(self.input.0)) << 64 | u128::from(number)
    }

    /// Returns whether an instance of this deployment wrote the fence.
    pub(crate) fn are_of_deployment(&self, fence_id: u128) -> bool {
        has_form(fence_id) && (fence_id >> (64 + TAG_BITS)) as u32 & TAG_MAX == self.deployment
    }

    /// Returns whether another deployment wrote the fence. Nothing is known of the fence with id 0:
    /// it lies before the records that were read.
    pub(crate) fn are_of_another(&self, fence_id: u128) -> bool {
        fence_id != 0 && !self.are_of_deployment(fence_id)
    }
}

/// Returns whether an id is that of a resignation.
pub(crate) fn is_resignation(fence_id: u128) -> bool {
    fence_id >> (64 + 2 * TAG_BITS) == RESIGNATION_FORM
}

/// Returns the owner epoch that has ended, if an id is that of a farewell.
pub(crate) fn ended_epoch(fence_id: u128) -> Option<u64> {
    (fence_id >> (64 + 2 * TAG_BITS) == FAREWELL_FORM).then_some(fence_id as u64)
}

fn has_form(fence_id: u128) -> bool {
    fence_id >> (64 + 2 * TAG_BITS) == FORM
}

fn tag(bytes: &[u8]) -> u32 {
    let word = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    };
    let words = bytes.chunks(8).map(word);
    let hash = words.fold(bytes.len() as u64, |hash, word| mix::hash(&[word], hash));
    (hash >> (64 - TAG_BITS)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_tells_deployment_and_input_and_random_bits_tell_neither() {
        let mut ours = FenceIds::new("huntd", 7);
        ours.read_from(&[1; 16]);
        let (first, second) = (ours.next(), ours.next());
        assert_ne!(first, second);
        let beside = FenceIds::new("huntd", 9);
        let rival = FenceIds::new("huntd-staging", 7);
        assert!(beside.are_of_deployment(first) && !rival.are_of_deployment(first));
        assert_eq!(InputTag::of_fence(first), Some(InputTag::of_topic(&[1; 16])));
        assert_ne!(InputTag::of_fence(first), Some(InputTag::of_topic(&[2; 16])));
        let random = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef;
        assert!(!ours.are_of_deployment(random) && InputTag::of_fence(random).is_none());
    }

    #[test]
    fn the_number_of_an_id_may_wrap() {
        let mut ids = FenceIds::new("huntd", u64::MAX);
        let id = ids.next();
        assert_eq!(id as u64, 0);
        assert!(ids.are_of_deployment(id) && id != 0);
    }

    #[test]
    fn a_note_is_no_fence_of_the_deployment_and_a_resignation_names_an_epoch_of_it() {
        let mut ids = FenceIds::new("huntd", 7);
        assert!(!ids.are_of_deployment(ids.resignation(3)));
        assert_ne!(ids.resignation(3), ids.resignation(4));
        assert_ne!(ids.resignation(3), FenceIds::new("huntd-staging", 7).resignation(3));
        let probe = ids.next_probe();
        assert!(!ids.are_of_deployment(probe) && !is_resignation(probe));
        assert!(is_resignation(ids.resignation(3)) && !is_resignation(ids.next()));
        assert_eq!(ended_epoch(ids.farewell(3)), Some(3));
        assert!(ended_epoch(ids.resignation(3)).is_none() && !is_resignation(ids.farewell(3)));
    }
}
