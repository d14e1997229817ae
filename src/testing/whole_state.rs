//! A shard's state in one piece. The daemon writes it block by block.

use crate::hunt::Shard;
use crate::kit::checkpoint::CheckpointRead;

/// Appends the state as a snapshot holds it.
pub fn encode_state(shard: &mut Shard, out: &mut Vec<u8>) {
    shard.begin_checkpoint();
    while shard.write_checkpoint(out, usize::MAX) == CheckpointRead::More {}
}
