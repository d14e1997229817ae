//! Which memory the system has given to this process already.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Bytes of an entry of the page map, and its bit for a page that is in memory (Linux,
/// `Documentation/admin-guide/mm/pagemap.rst`).
const ENTRY_BYTES: usize = 8;
const IS_PRESENT: u64 = 1 << 63;

/// Whether all memory that a vector has room for has been taken from the system.
pub(crate) fn is_resident<T>(list: &Vec<T>) -> bool {
    let page_bytes = rustix::param::page_size();
    let start = list.as_ptr() as usize;
    let end = start + list.capacity() * size_of::<T>();
    let map = File::open("/proc/self/pagemap").expect("a process may read its own page map");
    (start / page_bytes..end.div_ceil(page_bytes)).all(|page| {
        let mut entry = [0; ENTRY_BYTES];
        let at = (page * ENTRY_BYTES) as u64;
        map.read_exact_at(&mut entry, at).expect("each page has an entry");
        u64::from_le_bytes(entry) & IS_PRESENT != 0
    })
}

#[test]
fn memory_that_nobody_has_used_is_not_resident() {
    // The C library never takes that much from what was given back.
    const BYTES: usize = 64 << 20;
    let mut list: Vec<u8> = Vec::with_capacity(BYTES);
    assert!(!is_resident(&list));
    list.resize(BYTES, 1);
    assert!(is_resident(&list));
}
