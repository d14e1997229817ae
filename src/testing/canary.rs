//! What the simulator's canaries break in the daemon, to see that its checks find out.

use crate::ownership::Ownership;
use crate::ownership::read_slots::ReadSlots;

/// The slots for reading output partitions.
pub fn read_slots(ownership: &mut Ownership) -> &mut ReadSlots {
    ownership.read_slots_mut()
}
