//! The end of the process.

#![allow(unsafe_code)]

/// Ends the process at once. Exit handlers do not run: OpenSSL's takes away what librdkafka's
/// threads still use, and the process would die by a signal.
pub(crate) fn end_now(status: u8) -> ! {
    // SAFETY: the call does not return, and uses no memory of the process.
    unsafe { libc::_exit(status.into()) }
}
