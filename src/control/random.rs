//! Bits that tell one process from all others. Nothing that an event means depends on them.

/// 128 bits that no other process has.
pub(crate) fn random_bits() -> u128 {
    let mut bits = [0; 16];
    // A request for so few bytes is never cut short (getrandom(2)).
    rustix::rand::getrandom(&mut bits, rustix::rand::GetRandomFlags::empty())
        .expect("every Linux has getrandom");
    u128::from_ne_bytes(bits)
}
