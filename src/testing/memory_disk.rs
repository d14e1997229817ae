//! A disk in memory that fails and loses power where a test says so.

use crate::snapshot::disk::Disk;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

/// A disk and its handles: clones are the same disk.
#[derive(Clone, Default)]
pub struct Memory(Rc<RefCell<DiskContents>>);

#[derive(Default)]
struct DiskContents {
    /// Contents by inode: as written, and as they are on the disk.
    inodes: BTreeMap<u64, (Vec<u8>, Vec<u8>)>,
    /// Names as they are, and as they are on the disk.
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    next_inode: u64,
    operations: u64,
    /// From this operation on, all fail: the power is gone.
    dead_from: Option<u64>,
    /// This operation alone fails.
    fails_at: Option<u64>,
    /// Bytes that all files together may have.
    room: Option<usize>,
    /// The operations that fail until a test ends the trouble.
    trouble: Option<DiskTrouble>,
}

/// What can fail on a disk for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskTrouble {
    /// No file can be read.
    Reading,
    /// Names cannot be made durable.
    SyncingNames,
}

impl Memory {
    /// Operations that change something, so far.
    pub fn operations(&self) -> u64 {
        self.0.borrow().operations
    }

    /// From the n-th operation from now on, all fail.
    pub fn die_in(&self, operations: u64) {
        let mut state = self.0.borrow_mut();
        state.dead_from = Some(state.operations + operations);
    }

    /// The n-th operation from now on fails, and the others do not.
    pub fn fail_in(&self, operations: u64) {
        let mut state = self.0.borrow_mut();
        state.fails_at = Some(state.operations + operations);
    }

    /// Files may have this many bytes from now on.
    pub fn set_room(&self, bytes: Option<usize>) {
        self.0.borrow_mut().room = bytes;
    }

    /// From now on, this fails.
    pub fn set_trouble(&self, trouble: Option<DiskTrouble>) {
        self.0.borrow_mut().trouble = trouble;
    }

    /// The power comes back. What was not brought to the disk is there in part: of each file some
    /// pages, of the names all or none.
    pub fn restart(&self, seed: u64) {
        let mut state = self.0.borrow_mut();
        let mut bits = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut toss = || {
            bits ^= bits << 13;
            bits ^= bits >> 7;
            bits ^= bits << 17;
            bits >> 60 & 1 == 1
        };
        let DiskContents { inodes, names, durable_names, dead_from, fails_at, .. } = &mut *state;
        if toss() {
            durable_names.clone_from(names);
        } else {
            names.clone_from(durable_names);
        }
        for (written, durable) in inodes.values_mut() {
            durable.resize(written.len(), 0);
            for (new, old) in written.chunks_mut(512).zip(durable.chunks_mut(512)) {
                if toss() {
                    old.copy_from_slice(new);
                } else {
                    new.copy_from_slice(old);
                }
            }
        }
        (*dead_from, *fails_at) = (None, None);
    }

    /// Changes a file behind everybody's back.
    pub fn with_file(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.0.borrow_mut();
        let inode = state.names[name];
        let (written, durable) = state.inodes.get_mut(&inode).expect("a name has an inode");
        change(written);
        durable.clone_from(written);
    }

    /// A file's bytes.
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        let state = self.0.borrow();
        state.inodes[&state.names[name]].0.clone()
    }
}

impl DiskContents {
    fn change(&mut self) -> io::Result<()> {
        let number = self.operations;
        self.operations += 1;
        if self.dead_from.is_some_and(|from| number >= from) || self.fails_at == Some(number) {
            return Err(io::Error::other("the disk fails"));
        }
        Ok(())
    }

    fn check(&self, operation: DiskTrouble) -> io::Result<()> {
        match self.trouble == Some(operation) {
            true => Err(io::Error::other("the disk fails")),
            false => Ok(()),
        }
    }

    fn file(&mut self, name: &str) -> io::Result<&mut (Vec<u8>, Vec<u8>)> {
        let inode = *self.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(self.inodes.get_mut(&inode).expect("a name has an inode"))
    }
}

impl Disk for Memory {
    fn list(&mut self) -> io::Result<Vec<String>> {
        Ok(self.0.borrow().names.keys().cloned().collect())
    }

    fn preallocate(&mut self, name: &str, bytes: u64) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.change()?;
        let own = state.file(name).map_or(0, |file| file.0.len());
        let linked: Vec<u64> = state.names.values().copied().collect();
        let used: usize = linked.iter().map(|inode| state.inodes[inode].0.len()).sum();
        let grows = (bytes as usize).saturating_sub(own);
        if grows > 0 && state.room.is_some_and(|room| used + grows > room) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if !state.names.contains_key(name) {
            let inode = state.next_inode;
            state.next_inode += 1;
            state.inodes.insert(inode, (Vec::new(), Vec::new()));
            state.names.insert(name.to_owned(), inode);
        }
        let (written, _) = state.file(name)?;
        let length = written.len().max(bytes as usize);
        written.resize(length, 0);
        Ok(())
    }

    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        let done = state.change();
        let (written, _) = state.file(name)?;
        // A write that fails has written a part.
        let part = if done.is_ok() { bytes.len() } else { bytes.len() / 2 };
        let end = offset as usize + part;
        assert!(end <= written.len(), "a write beyond what was preallocated");
        written[offset as usize..end].copy_from_slice(&bytes[..part]);
        done
    }

    fn read_at(&mut self, name: &str, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.check(DiskTrouble::Reading)?;
        let (written, _) = state.file(name)?;
        let end = offset as usize + bytes.len();
        let there = written.get(offset as usize..end).ok_or(io::ErrorKind::UnexpectedEof)?;
        bytes.copy_from_slice(there);
        Ok(())
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.change()?;
        let (written, durable) = state.file(name)?;
        durable.clone_from(written);
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.change()?;
        let inode = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.to_owned(), inode);
        Ok(())
    }

    fn sync_directory(&mut self) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.change()?;
        state.check(DiskTrouble::SyncingNames)?;
        let names = state.names.clone();
        state.durable_names = names;
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.change()?;
        state.names.remove(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(())
    }
}
