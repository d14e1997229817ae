//! What some tests share while at least one of them uses it. A static that is started once lives
//! as long as the process, and a broker that idles takes three hundredths of a core.

use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A value that its first user starts and its last user drops. A later user starts another one.
pub(crate) struct WhileUsed<T>(Mutex<Weak<T>>);

impl<T> WhileUsed<T> {
    pub(crate) const fn unused() -> WhileUsed<T> {
        WhileUsed(Mutex::new(Weak::new()))
    }

    /// The value that others use now, or a new one.
    pub(crate) fn get(&self, start: impl FnOnce() -> T) -> Arc<T> {
        // After a start that panicked, the next user starts one.
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        used.upgrade().unwrap_or_else(|| {
            let started = Arc::new(start());
            *used = Arc::downgrade(&started);
            started
        })
    }
}
