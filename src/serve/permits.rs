//! The permits of tokens that were verified, so that a client's next request costs one digest
//! instead of a signature.

use crate::serve::access::Permit;
use crate::serve::signatures::sha256;
use std::collections::HashMap;

/// Permits of one age. With those of the age before, there is room for more clients than can be
/// connected.
const PERMITS_MAX: usize = 65_536;

/// The permits that are remembered, by the SHA-256 of their tokens.
#[derive(Default)]
pub(crate) struct Permits {
    recent: HashMap<[u8; 32], Permit>,
    /// Those that were not shown since `recent` was begun.
    earlier: HashMap<[u8; 32], Permit>,
}

impl Permits {
    /// The permit of a token: the one that is remembered, or the result of `verify`.
    pub(crate) fn of<E>(
        &mut self,
        token: &str,
        verify: impl FnOnce() -> Result<Permit, E>,
    ) -> Result<Permit, E> {
        let key = sha256(token.as_bytes());
        if let Some(permit) = self.recent.get(&key) {
            return Ok(*permit);
        }
        let permit = match self.earlier.get(&key) {
            Some(permit) => *permit,
            None => verify()?,
        };
        if self.recent.len() == PERMITS_MAX {
            self.earlier = std::mem::take(&mut self.recent);
        }
        self.recent.insert(key, permit);
        Ok(permit)
    }

    /// No token is verified yet.
    pub(crate) fn clear(&mut self) {
        *self = Permits::default();
    }
}
