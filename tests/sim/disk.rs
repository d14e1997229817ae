//! A host's disk: written bytes can be read at once, but are durable only after a sync. And the
//! disk lies.

use crate::chance::{Chance, Fault};
use huntd::snapshot::disk::Disk;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

const SECTOR_BYTES: usize = 512;

/// A host's disk, which lasts longer than the daemons that use it.
#[derive(Clone)]
pub(crate) struct HostDisk(Rc<RefCell<State>>);

struct State {
    chance: Chance,
    files: Vec<Contents>,
    names: BTreeMap<String, usize>,
    /// The names that a loss of power leaves.
    lasting_names: BTreeMap<String, usize>,
}

struct Contents {
    bytes: Vec<u8>,
    /// What a loss of power leaves for sure; `None`: the same.
    lasting: Option<Vec<u8>>,
}

impl HostDisk {
    pub(crate) fn new(chance: Chance) -> HostDisk {
        let names = BTreeMap::new();
        let state = State { chance, files: Vec::new(), names, lasting_names: BTreeMap::new() };
        HostDisk(Rc::new(RefCell::new(state)))
    }

    /// The host loses its power: of what was not synced, some sectors and some names are lost.
    pub(crate) fn lose_power(&self) {
        let state = &mut *self.0.borrow_mut();
        let State { chance, files, names, lasting_names } = state;
        for contents in files.iter_mut() {
            let Some(lasting) = contents.lasting.take() else { continue };
            let sectors = contents.bytes.chunks_mut(SECTOR_BYTES).zip(lasting.chunks(SECTOR_BYTES));
            for (sector, before) in sectors {
                if sector.len() == before.len() && sector != before && chance.one_in(2) {
                    chance.counts.faults[Fault::WriteTorn as usize] += 1;
                    sector.copy_from_slice(before);
                }
            }
        }
        if names != lasting_names && chance.one_in(2) {
            chance.counts.faults[Fault::RenameLost as usize] += 1;
            names.clone_from(lasting_names);
        }
        lasting_names.clone_from(names);
    }

    pub(crate) fn stop_faults(&self) {
        self.0.borrow_mut().chance.stop_faults();
    }

    /// How often each fault struck here.
    pub(crate) fn counts(&self) -> crate::chance::Counts {
        self.0.borrow().chance.counts.clone()
    }
}

impl State {
    fn file(&mut self, name: &str) -> io::Result<&mut Contents> {
        if self.chance.strikes_of(Fault::FileMissing, 1) && self.chance.one_in(20) {
            self.names.remove(name);
        }
        let file = *self.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(&mut self.files[file])
    }

    /// Another file or another place, where a write goes that is misdirected.
    fn astray(&mut self, name: &str, offset: u64) -> (String, u64) {
        let names: Vec<String> = self.names.keys().cloned().collect();
        match self.chance.one_in(2) {
            true => (names[self.chance.below(names.len() as u64) as usize].clone(), offset),
            false => (name.to_owned(), offset.saturating_sub(SECTOR_BYTES as u64)),
        }
    }
}

impl Contents {
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.lasting.get_or_insert_with(|| self.bytes.clone());
        let from = offset as usize;
        if self.bytes.len() < from + bytes.len() {
            self.bytes.resize(from + bytes.len(), 0);
        }
        self.bytes[from..from + bytes.len()].copy_from_slice(bytes);
    }
}

impl Disk for HostDisk {
    fn list(&mut self) -> io::Result<Vec<String>> {
        Ok(self.0.borrow().names.keys().cloned().collect())
    }

    fn preallocate(&mut self, name: &str, bytes: u64) -> io::Result<()> {
        let state = &mut *self.0.borrow_mut();
        if state.chance.strikes_of(Fault::DiskFull, 5) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let file = match state.names.get(name) {
            Some(file) => *file,
            None => {
                state.files.push(Contents { bytes: Vec::new(), lasting: None });
                state.files.len() - 1
            }
        };
        state.names.insert(name.to_owned(), file);
        let contents = &mut state.files[file].bytes;
        contents.resize(contents.len().max(bytes as usize), 0);
        Ok(())
    }

    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let state = &mut *self.0.borrow_mut();
        state.file(name)?;
        let (mut name, mut offset, mut bytes) = (name.to_owned(), offset, bytes.to_vec());
        if state.chance.strikes_of(Fault::WriteStale, 3) {
            return Ok(());
        }
        if state.chance.strikes_of(Fault::WriteTorn, 3) {
            bytes.truncate(state.chance.below(bytes.len() as u64) as usize);
        }
        if state.chance.strikes_of(Fault::WriteFlipped, 3) && !bytes.is_empty() {
            let at = state.chance.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << state.chance.below(8);
        }
        if state.chance.strikes_of(Fault::WriteMisdirected, 3) {
            (name, offset) = state.astray(&name, offset);
        }
        state.file(&name)?.write(offset, &bytes);
        Ok(())
    }

    fn read_at(&mut self, name: &str, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let state = &mut *self.0.borrow_mut();
        let contents = &state.file(name)?.bytes;
        let from = offset as usize;
        let found = contents.get(from..from + bytes.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        bytes.copy_from_slice(found);
        Ok(())
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        let state = &mut *self.0.borrow_mut();
        if state.chance.strikes_of(Fault::SyncFails, 5) {
            // From now on, unsynced bytes count as written although they are not.
            let contents = state.file(name)?;
            if let Some(lasting) = contents.lasting.take() {
                contents.bytes = lasting;
            }
            return Err(io::Error::from_raw_os_error(5));
        }
        state.file(name)?.lasting = None;
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let state = &mut *self.0.borrow_mut();
        let file = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.to_owned(), file);
        Ok(())
    }

    fn sync_directory(&mut self) -> io::Result<()> {
        let state = &mut *self.0.borrow_mut();
        if state.chance.strikes_of(Fault::SyncFails, 2) {
            return Err(io::Error::from_raw_os_error(5));
        }
        state.lasting_names.clone_from(&state.names);
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.0.borrow_mut().names.remove(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(())
    }
}
