//! A zone's state in one piece. The daemon writes it block by block.

use crate::kit::checkpoint::CheckpointRead;
use crate::kit::game::Game;
use crate::kit::zone::Zone;

/// Appends the state as a snapshot holds it.
pub fn encode_state<G: Game>(zone: &mut Zone<G>, out: &mut Vec<u8>) {
    zone.begin_checkpoint();
    while zone.write_checkpoint(out, usize::MAX) == CheckpointRead::More {}
}
