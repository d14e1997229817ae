//! A zone's state in one piece. The daemon writes it block by block.

use crate::kit::checkpoint::CheckpointRead;
use crate::kit::engine::Engine;

/// Appends the state as a snapshot holds it.
pub fn encode_state(zone: &mut (impl Engine + ?Sized), out: &mut Vec<u8>) {
    zone.begin_checkpoint();
    while zone.write_checkpoint(out, usize::MAX) == CheckpointRead::More {}
}
