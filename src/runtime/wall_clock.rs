//! The time of day. A clock that is set before 1970 says 0.

use std::time::SystemTime;

/// Microseconds since the Unix epoch.
pub(crate) fn unix_us() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_micros()).unwrap_or(i64::MAX)
}

/// Milliseconds since the Unix epoch.
pub(crate) fn unix_ms() -> i64 {
    unix_us() / 1_000
}
