//! The files of snapshots: one slot per snapshot, and one for the snapshot being written.
//!
//! A snapshot is written to a slot under a temporary name that no start reads. The file is renamed
//! once it is complete and on disk. The slot is a former snapshot's file, so a full disk does not
//! prevent the next one. No snapshot is removed before the newest has been read back.

use crate::kafka::checksum::crc32c;
use crate::kit::engine::ZoneDecoder;
use crate::output::mark::Mark;
use crate::snapshot::checkpoint::{Buffer, CheckpointHeader};
use crate::snapshot::disk::Disk;
use crate::snapshot::format::{HEADER_BYTES_MAX, Header, Origin, SnapshotError};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// The snapshots of all shards on one disk.
#[derive(Debug)]
pub struct Store<D> {
    disk: D,
    origin: Origin,
    keep: usize,
    /// Partition and sequence number of the snapshots that have been read in full.
    verified: BTreeSet<(i32, u64)>,
    /// How many reads in a row of a snapshot's header have failed, by partition and sequence
    /// number.
    failed_reads: BTreeMap<(i32, u64), u32>,
}

/// Reads of a snapshot that may fail in a row before it counts as damaged: by then the zone has
/// waited for some seconds, and the error does not pass.
pub(crate) const FAILED_READS_MAX: u32 = 10;

/// A snapshot being written.
#[derive(Debug)]
pub(crate) struct SnapshotDraft {
    header: Header,
}

impl SnapshotDraft {
    /// Returns whether the whole state is written.
    pub(crate) fn is_complete(&self) -> bool {
        self.header.block_crcs.len() == self.header.blocks() as usize
    }
}

/// A file with a snapshot's name.
#[derive(Debug)]
pub(crate) struct Found {
    /// The file's name.
    pub name: String,
    /// The sequence number in the name.
    pub sequence: u64,
    /// The header in the file.
    pub header: Result<Header, SnapshotError>,
}

impl<D: Disk> Store<D> {
    /// Opens the snapshots on a disk that belong to these topics; keeps this many per shard.
    pub fn new(disk: D, origin: Origin, keep: usize) -> Store<D> {
        let (verified, failed_reads) = (BTreeSet::new(), BTreeMap::new());
        Store { disk, origin, keep, verified, failed_reads }
    }

    /// Starts writing a checkpoint. An uncommitted earlier draft of this shard is lost.
    pub(crate) fn begin(&mut self, checkpoint: &CheckpointHeader) -> io::Result<SnapshotDraft> {
        let slots = slots(&self.disk.list()?, checkpoint.id.partition);
        let sequence = slots.first().map_or(1, |sequence| sequence + 1);
        let header = Header::new(self.origin.clone(), checkpoint, sequence);
        let bytes = (0..header.blocks()).map(|index| header.block_bytes(index) as u64).sum::<u64>();
        self.disk
            .preallocate(&writing(checkpoint.id.partition), HEADER_BYTES_MAX as u64 + bytes)?;
        Ok(SnapshotDraft { header })
    }

    /// Writes the next block of a draft.
    pub(crate) fn write_block(
        &mut self,
        draft: &mut SnapshotDraft,
        buffer: &mut Buffer,
    ) -> io::Result<()> {
        let index = draft.header.block_crcs.len() as u32;
        let bytes = buffer.with_head(draft.header.block_head(index));
        assert!(
            index < draft.header.blocks() && bytes.len() == draft.header.block_bytes(index),
            "a checkpoint has as many bytes as it announced"
        );
        draft.header.block_crcs.push(crc32c(bytes));
        let name = writing(draft.header.partition);
        self.disk.write_at(&name, block_offset(index), bytes).inspect_err(|_| self.lose(&name))
    }

    /// Commits a draft as the newest snapshot: everything before it is acknowledged, and `mark` is
    /// the position of an output reader. The oldest one is released once the newest has been read
    /// back.
    pub(crate) fn commit(
        &mut self,
        draft: SnapshotDraft,
        mark: Mark,
        taken_at_ms: i64,
    ) -> Result<Header, SnapshotError> {
        assert!(draft.is_complete(), "a snapshot is committed whole");
        let header = Header { mark, taken_at_ms, ..draft.header };
        let (slot, name) = (writing(header.partition), snapshot(header.partition, header.sequence));
        // After an error the file's pages count as written although they are not, so the file is
        // dropped, whichever name it has by now.
        self.finish(&header, &slot, &name).map_err(|error| {
            self.lose(&slot);
            self.lose(&name);
            unreadable(&error)
        })?;
        // A reader has only the header in the file.
        let stored = self.inspect(header.partition, header.sequence).header;
        if let Err(error) = stored.and_then(|stored| self.verify(&stored)) {
            self.lose(&name);
            return Err(error);
        }
        // Leftover files are harmless: the next snapshot tries again.
        let _left_over = self.retire(header.partition);
        Ok(header)
    }

    fn finish(&mut self, header: &Header, slot: &str, name: &str) -> io::Result<()> {
        self.disk.write_at(slot, 0, &header.encode())?;
        self.disk.sync(slot)?;
        self.disk.rename(slot, name)?;
        self.disk.sync_directory()
    }

    /// Removes a file. If that fails, too, the next snapshot overwrites it.
    fn lose(&mut self, name: &str) {
        let _gone = self.disk.remove(name);
    }

    /// Removes all but the newest `keep` complete snapshots. One of the old files becomes the slot
    /// for the next snapshot.
    fn retire(&mut self, partition: i32) -> io::Result<()> {
        let mut whole = 0;
        for Found { name, sequence, header } in self.found(partition)? {
            if whole == self.keep {
                self.verified.remove(&(partition, sequence));
                let slot = writing(partition);
                match self.disk.list()?.contains(&slot) {
                    true => self.disk.remove(&name)?,
                    false => self.disk.rename(&name, &slot)?,
                }
            } else {
                whole += usize::from(header.is_ok_and(|header| self.counts(&header)));
            }
        }
        Ok(())
    }

    /// Returns whether a snapshot belongs to this store's topics and is complete. Each is read
    /// once.
    fn counts(&mut self, header: &Header) -> bool {
        let key = (header.partition, header.sequence);
        header.origin.agrees(&self.origin)
            && (self.verified.contains(&key) || self.verify(header).is_ok())
    }

    /// Returns a shard's snapshots with valid headers for this store's topics, newest first. Fails
    /// if there may be some, and none can be read now. A header that could not be read
    /// [`FAILED_READS_MAX`] times in a row counts as damaged.
    pub fn candidates(&mut self, partition: i32) -> Result<Vec<Header>, SnapshotError> {
        let found = match self.found(partition) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            found => found.map_err(|error| unreadable(&error))?,
        };
        let (mut headers, mut why_unreadable) = (Vec::new(), None);
        for Found { name, sequence, header } in found {
            let failed_reads = self.failed_reads.remove(&(partition, sequence)).unwrap_or(0);
            match header {
                Ok(header) if header.origin.names_same(&self.origin) => headers.push(header),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(partition, file = name, "{error}");
                    if let SnapshotError::Unreadable(_) = error {
                        self.failed_reads.insert((partition, sequence), failed_reads + 1);
                        let is_lasting = failed_reads + 1 >= FAILED_READS_MAX;
                        why_unreadable = why_unreadable.or((!is_lasting).then_some(error));
                    }
                }
            }
        }
        match why_unreadable {
            Some(error) if headers.is_empty() => Err(error),
            _ => Ok(headers),
        }
    }

    /// The disk.
    pub(crate) fn disk(&self) -> &D {
        &self.disk
    }

    /// Returns all files of a shard with a snapshot's name, newest first.
    pub(crate) fn found(&mut self, partition: i32) -> io::Result<Vec<Found>> {
        let slots = slots(&self.disk.list()?, partition);
        Ok(slots.into_iter().map(|sequence| self.inspect(partition, sequence)).collect())
    }

    fn inspect(&mut self, partition: i32, sequence: u64) -> Found {
        let name = snapshot(partition, sequence);
        let mut bytes = vec![0; HEADER_BYTES_MAX];
        let read = self.disk.read_at(&name, 0, &mut bytes);
        let read = read.map_err(|error| read_error(&error, SnapshotError::File));
        let header = read.and_then(|()| Header::decode(&bytes)).and_then(|header| {
            match (header.partition, header.sequence) == (partition, sequence) {
                true => Ok(header),
                false => Err(SnapshotError::Header("it is another snapshot's")),
            }
        });
        Found { name, sequence, header }
    }

    /// Loads the zone from a snapshot.
    pub fn load<Z: ZoneDecoder>(
        &mut self,
        header: &Header,
        decoder: &Z,
    ) -> Result<Box<Z::Zone>, SnapshotError> {
        header.restore(&self.state(header)?, decoder)
    }

    /// Reads the state in a snapshot.
    pub(crate) fn state(&mut self, header: &Header) -> Result<Vec<u8>, SnapshotError> {
        let mut state = Vec::with_capacity(header.state_bytes as usize);
        self.blocks(header, |bytes| state.extend_from_slice(bytes))?;
        Ok(state)
    }

    /// Reads a whole snapshot and checks each block.
    pub(crate) fn verify(&mut self, header: &Header) -> Result<(), SnapshotError> {
        self.blocks(header, |_| {})?;
        self.verified.insert((header.partition, header.sequence));
        Ok(())
    }

    fn blocks(
        &mut self,
        header: &Header,
        mut take: impl FnMut(&[u8]),
    ) -> Result<(), SnapshotError> {
        for index in 0..header.blocks() {
            take(header.open_block(index, &self.read_block(header, index)?)?);
        }
        Ok(())
    }

    /// Reads a block of a snapshot, with its head. The block is not checked.
    pub(crate) fn read_block(
        &mut self,
        header: &Header,
        index: u32,
    ) -> Result<Vec<u8>, SnapshotError> {
        let name = snapshot(header.partition, header.sequence);
        let mut bytes = vec![0; header.block_bytes(index)];
        let read = self.disk.read_at(&name, block_offset(index), &mut bytes);
        read.map_err(|error| read_error(&error, |what| SnapshotError::Block { index, what }))?;
        Ok(bytes)
    }

    /// The partitions that have files, in ascending order.
    pub(crate) fn partitions(&mut self) -> io::Result<BTreeSet<i32>> {
        let names = self.disk.list()?;
        Ok(names.iter().filter_map(|name| Some(parse(name)?.0)).collect())
    }

    /// Removes all snapshots of a shard, and returns how many there were.
    pub(crate) fn remove_all(&mut self, partition: i32) -> io::Result<usize> {
        let names = self.disk.list()?;
        let ours = names.iter().filter(|name| parse(name).is_some_and(|(of, _)| of == partition));
        let mut removed = 0;
        for name in ours {
            self.disk.remove(name)?;
            removed += usize::from(name.ends_with(SNAPSHOT));
        }
        self.disk.sync_directory()?;
        Ok(removed)
    }
}

const SNAPSHOT: &str = ".snapshot";
const WRITING: &str = ".writing";

/// The temporary name of the slot being written.
fn writing(partition: i32) -> String {
    format!("shard-{partition:04}{WRITING}")
}

fn snapshot(partition: i32, sequence: u64) -> String {
    format!("shard-{partition:04}-{sequence:010}{SNAPSHOT}")
}

/// Parses a file name into partition and sequence number, or no number for the slot being written;
/// `None` for other files.
fn parse(name: &str) -> Option<(i32, Option<u64>)> {
    let rest = name.strip_prefix("shard-")?;
    if let Some(partition) = rest.strip_suffix(WRITING) {
        return Some((partition.parse().ok()?, None));
    }
    let (partition, sequence) = rest.strip_suffix(SNAPSHOT)?.split_once('-')?;
    Some((partition.parse().ok()?, Some(sequence.parse().ok()?)))
}

/// The sequence numbers of a shard's snapshots, newest first.
fn slots(names: &[String], partition: i32) -> Vec<u64> {
    let parsed = names.iter().filter_map(|name| {
        let (of, sequence) = parse(name)?;
        let sequence = sequence.filter(|_| of == partition)?;
        // A name in another form could not be found again by its number.
        (snapshot(of, sequence) == *name).then_some(sequence)
    });
    let mut slots: Vec<u64> = parsed.collect();
    slots.sort_unstable_by(|a, b| b.cmp(a));
    slots
}

fn block_offset(index: u32) -> u64 {
    HEADER_BYTES_MAX as u64
        + u64::from(index) * crate::snapshot::format::SNAPSHOT_BLOCK_BYTES as u64
}

/// Returns the error of a snapshot that a read has failed on. A snapshot that is gone, ends early
/// or is not a file is damaged. Any other error may pass.
fn read_error(
    error: &io::Error,
    damaged: impl FnOnce(&'static str) -> SnapshotError,
) -> SnapshotError {
    match error.kind() {
        io::ErrorKind::NotFound => damaged("gone"),
        io::ErrorKind::UnexpectedEof => damaged("cut short"),
        io::ErrorKind::InvalidData => damaged("not a regular file"),
        _ => unreadable(error),
    }
}

fn unreadable(error: &io::Error) -> SnapshotError {
    SnapshotError::Unreadable(error.to_string())
}
