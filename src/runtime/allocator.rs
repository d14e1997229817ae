//! mimalloc, with counts of the allocations of the hot thread and of the serving thread.
//!
//! The hot thread must not allocate once it fetches, and the serving thread must not allocate per
//! request: the counts show whether they do. Other threads pay one thread-local read per
//! allocation.

// The allocator interface is unsafe by nature; std has no safe one.
#![allow(unsafe_code)]

use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

static HOT_ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

static SERVING_ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    // A constant initial value and no destructor: reading it never allocates, and works as long as
    // the thread runs.
    static COUNT: Cell<Option<&'static AtomicU64>> = const { Cell::new(None) };
}

#[cfg(test)]
thread_local! {
    static BYTES: Cell<i64> = const { Cell::new(0) };
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Bytes that this thread has allocated, minus those that it has freed.
#[cfg(test)]
pub(crate) fn thread_bytes() -> i64 {
    BYTES.get()
}

/// Number of allocations and reallocations of this thread.
#[cfg(test)]
pub(crate) fn thread_allocations() -> u64 {
    ALLOCATIONS.get()
}

/// Counts the allocations of this thread from now on. The hot thread calls it once it is warm.
pub fn count_this_thread() {
    COUNT.set(Some(&HOT_ALLOCATIONS));
}

/// Counts the allocations of this thread from now on as the serving thread's.
pub(crate) fn count_serving_thread() {
    COUNT.set(Some(&SERVING_ALLOCATIONS));
}

/// Number of allocations and reallocations of all threads counted as hot.
pub fn hot_allocations() -> u64 {
    HOT_ALLOCATIONS.load(Ordering::Relaxed)
}

/// Number of allocations and reallocations of the serving thread.
pub(crate) fn serving_allocations() -> u64 {
    SERVING_ALLOCATIONS.load(Ordering::Relaxed)
}

/// Disables transparent huge pages for this process.
///
/// Tables, frames and blocks are created before they are needed, and take memory only when they are
/// touched. With huge pages, which mimalloc asks for, the first touch takes 2 MiB.
pub fn refuse_huge_pages() {
    // A kernel without huge pages does not know the call and does not need it.
    let _unknown = rustix::thread::disable_transparent_huge_pages(true);
}

struct CountingAllocator;

impl CountingAllocator {
    #[inline]
    fn count() {
        #[cfg(test)]
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        if let Some(count) = COUNT.get() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records a change in the number of allocated bytes.
    #[inline]
    fn resize(_from: usize, _to: usize) {
        #[cfg(test)]
        BYTES.set(BYTES.get() + _to as i64 - _from as i64);
    }
}

// SAFETY: every method hands its arguments to mimalloc unchanged, and counting neither allocates
// nor unwinds, so mimalloc's own guarantees hold.
unsafe impl GlobalAlloc for CountingAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CountingAllocator::count();
        CountingAllocator::resize(0, layout.size());
        // SAFETY: the caller vouches for `layout`, by this method's own contract.
        unsafe { MiMalloc.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        CountingAllocator::count();
        CountingAllocator::resize(0, layout.size());
        // SAFETY: the caller vouches for `layout`, by this method's own contract.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        CountingAllocator::count();
        CountingAllocator::resize(layout.size(), bytes);
        // SAFETY: `block` came from mimalloc with `layout`, because this type has no other
        // allocator.
        unsafe { MiMalloc.realloc(block, layout, bytes) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        CountingAllocator::resize(layout.size(), 0);
        // SAFETY: `block` came from mimalloc with `layout`, because this type has no other
        // allocator.
        unsafe { MiMalloc.dealloc(block, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    // One test, because the counts are global to the process.
    #[test]
    fn only_allocations_of_counted_threads_are_counted_and_bytes_of_each() {
        let uncounted = || {
            let before = hot_allocations();
            black_box(Box::new(1_u64));
            hot_allocations() - before
        };
        let counted = || {
            count_this_thread();
            let before = hot_allocations();
            let mut list = black_box(Vec::<u64>::with_capacity(8));
            list.reserve_exact(black_box(1024));
            drop(list);
            black_box(vec![0_u8; 64]);
            hot_allocations() - before
        };
        let bytes = || {
            let before = thread_bytes();
            let mut block = black_box(Vec::<u8>::with_capacity(100));
            block.reserve_exact(black_box(300));
            let grown = thread_bytes() - before;
            drop(block);
            (grown, thread_bytes() - before)
        };
        assert_eq!(std::thread::spawn(bytes).join().expect("no panic"), (300, 0));
        assert_eq!(std::thread::spawn(uncounted).join().expect("no panic"), 0);
        assert_eq!(std::thread::spawn(counted).join().expect("no panic"), 3);
    }
}
