//! The file system operations that snapshots need, and the state directory that implements them.

use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A flat directory of files. A failed operation may have been done in part. Written bytes are
/// durable only after a successful [`Disk::sync`], names only after a successful
/// [`Disk::sync_directory`].
pub trait Disk {
    /// The names of all files.
    fn list(&mut self) -> io::Result<Vec<String>>;

    /// Creates a file if necessary, and reserves disk space for its first `bytes` bytes.
    fn preallocate(&mut self, name: &str, bytes: u64) -> io::Result<()>;

    /// Writes all bytes at an offset of an existing file.
    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Fills all of `bytes` from an offset of a file.
    fn read_at(&mut self, name: &str, offset: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// Makes the written bytes of a file durable.
    fn sync(&mut self, name: &str) -> io::Result<()>;

    /// Renames a file, replacing an existing one.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;

    /// Makes names durable.
    fn sync_directory(&mut self) -> io::Result<()>;

    /// Removes a file.
    fn remove(&mut self, name: &str) -> io::Result<()>;
}

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// Another process uses the directory.
    #[error(
        "the state directory {0} is in use by another huntd; give each instance its own \
         snapshot.directory"
    )]
    InUse(PathBuf),
    /// The directory does not exist, or is not writable.
    #[error(
        "the state directory {directory} cannot be used: {error}; make it writable, or set \
         snapshot.directory to another one"
    )]
    Unusable {
        /// The directory.
        directory: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

const LOCK_NAME: &str = "lock";

/// A directory on this host that no other process uses.
#[derive(Clone, Debug)]
pub(crate) struct StateDirectory {
    directory: PathBuf,
    /// Holds the lock while it is open.
    lock: Arc<File>,
}

impl StateDirectory {
    /// Creates the directory if necessary, and locks it for this process.
    pub(crate) fn take(directory: &Path) -> Result<StateDirectory, DirectoryError> {
        let unusable = |error| DirectoryError::Unusable { directory: directory.to_owned(), error };
        fs::create_dir_all(directory).map_err(unusable)?;
        let mut options = OpenOptions::new();
        let lock = options
            .create(true)
            .append(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(directory.join(LOCK_NAME));
        let lock = lock.map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => Ok(StateDirectory { directory: directory.to_owned(), lock: Arc::new(lock) }),
            Err(TryLockError::WouldBlock) => Err(DirectoryError::InUse(directory.to_owned())),
            Err(TryLockError::Error(error)) => Err(unusable(error)),
        }
    }

    /// The directory's files. The lock is held as long as they are in use.
    pub(crate) fn files(&self) -> Files {
        Files { lock: Some(self.lock.clone()), ..Files::of(&self.directory) }
    }
}

/// The files of a directory on this host.
#[derive(Debug)]
pub struct Files {
    directory: PathBuf,
    /// The file that was used last.
    open: Option<(String, File)>,
    /// The lock that this process holds on the directory; `None` if another process owns it.
    lock: Option<Arc<File>>,
}

impl Files {
    /// The files of a directory that another process may own, for reading.
    pub fn of(directory: &Path) -> Files {
        Files { directory: directory.to_owned(), open: None, lock: None }
    }

    /// The directory.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Fails if the directory at this path is no longer the one that this process has locked: it
    /// was removed and recreated, and another process may hold the lock of the new one.
    fn check_lock(&self) -> io::Result<()> {
        let Some(lock) = &self.lock else { return Ok(()) };
        let held = lock.metadata()?;
        let is_held = |there: fs::Metadata| (there.dev(), there.ino()) == (held.dev(), held.ino());
        match fs::metadata(self.directory.join(LOCK_NAME)).is_ok_and(is_held) {
            true => Ok(()),
            false => Err(io::Error::other(
                "it was removed or replaced while huntd ran; restart huntd, which makes it again",
            )),
        }
    }

    fn file(&mut self, name: &str) -> io::Result<&File> {
        if self.open.as_ref().is_none_or(|(open, _)| open != name) {
            let path = self.directory.join(name);
            // A process that only reads may lack write permission.
            let file = match open(&path, true) {
                Err(_) => open(&path, false)?,
                opened => opened?,
            };
            if !file.metadata()?.is_file() {
                let sentence = "it is not a regular file";
                return Err(io::Error::new(io::ErrorKind::InvalidData, sentence));
            }
            self.open = Some((name.to_owned(), file));
        }
        Ok(&self.open.as_ref().expect("it was opened").1)
    }
}

/// Opens a file; a pipe in its place must not block.
fn open(path: &Path, for_writing: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(for_writing).custom_flags(libc::O_NONBLOCK).open(path)
}

impl Disk for Files {
    fn list(&mut self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            // Names that are not UTF-8 are not snapshots.
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn preallocate(&mut self, name: &str, bytes: u64) -> io::Result<()> {
        self.check_lock()?;
        self.open = None;
        let path = self.directory.join(name);
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).custom_flags(libc::O_NONBLOCK);
        let file = options.open(path)?;
        match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            // Without this operation, the file system allocates space when it is written.
            Err(Errno::OPNOTSUPP) => file.set_len(bytes),
            allocated => Ok(allocated?),
        }
    }

    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file(name)?.write_all_at(bytes, offset)
    }

    fn read_at(&mut self, name: &str, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file(name)?.read_exact_at(bytes, offset)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        let file = self.file(name)?;
        file.sync_data()?;
        // The next read comes from the disk and not from the page cache, if the system supports
        // that.
        let _advice = fadvise(file, 0, None, Advice::DontNeed);
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.check_lock()?;
        self.open = None;
        fs::rename(self.directory.join(from), self.directory.join(to))
    }

    fn sync_directory(&mut self) -> io::Result<()> {
        match File::open(&self.directory)?.sync_all() {
            // Without this operation, the file system makes names durable by itself, or not at all.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            synced => synced,
        }
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.check_lock()?;
        self.open = None;
        fs::remove_file(self.directory.join(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Such as that of `/proc`.
    #[test]
    fn a_file_system_that_cannot_sync_a_directory_takes_snapshots() {
        let proc = File::open("/proc").expect("it is mounted");
        assert_eq!(proc.sync_all().map_err(|error| error.kind()), Err(io::ErrorKind::InvalidInput));
        Files::of(Path::new("/proc")).sync_directory().expect("it counts as done");
        assert!(Files::of(Path::new("/nowhere")).sync_directory().is_err());
    }

    #[test]
    fn a_directory_that_was_made_again_is_its_new_owner_s_alone() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let directory = folder.path().join("state");
        let first = StateDirectory::take(&directory).expect("nobody has it");
        let mut files = first.files();
        files.preallocate("0.a", 10).expect("it is ours");
        fs::remove_dir_all(&directory).expect("it can be removed");
        let second = StateDirectory::take(&directory).expect("the new one is nobody's");
        second.files().preallocate("0.a", 20).expect("it is the second one's");
        for result in [
            files.preallocate("0.a", 10),
            files.preallocate("0.b", 10),
            files.rename("0.a", "0.c"),
            files.remove("0.a"),
        ] {
            let error = result.expect_err("the directory is another's").to_string();
            assert!(error.starts_with("it was removed or replaced"), "{error}");
        }
        let names = second.files().list().expect("it is there");
        assert_eq!(names.len(), 2, "{names:?}");
        assert_eq!(fs::metadata(directory.join("0.a")).expect("it is there").len(), 20);
        fs::remove_dir_all(&directory).expect("it can be removed");
        assert!(files.preallocate("0.a", 10).is_err(), "nothing is there");
    }
}
