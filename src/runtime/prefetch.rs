//! What will be read soon is asked for early, so that many reads wait for memory together and
//! nothing waits for them.

// A processor's instruction of its own; std offers it as unsafe only.
#![allow(unsafe_code)]

/// Bytes that come into the cache at once.
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;

/// Asks for a value and goes on at once. A hint: nothing but the time depends on it.
#[inline(always)]
pub(crate) fn prefetch<T>(value: &T) {
    ask_for(value);
}

/// Asks for a value of a list by its number. Nobody checks that there is one: where there is none,
/// it asks for what nobody needs, or for nothing.
#[inline(always)]
pub(crate) fn prefetch_at<T>(values: &[T], at: usize) {
    ask_for(values.as_ptr().wrapping_add(at));
}

#[inline(always)]
fn ask_for<T>(value: *const T) {
    #[cfg(target_arch = "x86_64")]
    for at in (0..size_of::<T>()).step_by(LINE_BYTES) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let line = value.cast::<i8>().wrapping_add(at);
        // SAFETY: every x86-64 has SSE, and no address makes a prefetch fail.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _unused = value;
}
