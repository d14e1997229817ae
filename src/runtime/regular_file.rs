//! Reads files that an operator names: regular, and of bounded length. A pipe would block a start
//! forever, and a device would fill the memory.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Why a file cannot be read. The sentence follows the file's name.
#[derive(Debug, thiserror::Error)]
pub enum RegularFileError {
    /// It does not exist, or cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is a folder, a pipe, a device or a socket.
    #[error("it is not a regular file")]
    Irregular,
    /// It is longer than the limit for its kind.
    #[error("it is longer than {bytes_max} bytes")]
    TooLong {
        /// The limit.
        bytes_max: u64,
    },
    /// It contains bytes that are not text.
    #[error("it is not UTF-8 text")]
    NotText,
}

/// Reads a regular file of at most `bytes_max` bytes.
pub(crate) fn read_bytes(path: &Path, bytes_max: u64) -> Result<Vec<u8>, RegularFileError> {
    // Opening a pipe would wait for its writer.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(RegularFileError::Irregular);
    }
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > bytes_max {
        true => Err(RegularFileError::TooLong { bytes_max }),
        false => Ok(bytes),
    }
}

/// Reads the text of a regular file of at most `bytes_max` bytes.
pub(crate) fn read_text(path: &Path, bytes_max: u64) -> Result<String, RegularFileError> {
    let bytes = read_bytes(path, bytes_max)?;
    String::from_utf8(bytes).map_err(|_| RegularFileError::NotText)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    #[test]
    fn only_regular_files_of_bounded_length_are_read() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (file, pipe) = (folder.path().join("file"), folder.path().join("pipe"));
        std::fs::write(&file, "text").expect("it can be written");
        assert_eq!(read_text(&file, 4).expect("it is short enough"), "text");
        let sentence = |path: &Path, bytes_max| {
            read_text(path, bytes_max).expect_err("it is refused").to_string()
        };
        assert_eq!(sentence(&file, 3), "it is longer than 3 bytes");
        std::fs::write(&file, b"\xff").expect("it can be written");
        assert_eq!(read_bytes(&file, 1).expect("bytes need not be text"), b"\xff");
        assert_eq!(sentence(&file, 1), "it is not UTF-8 text");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).expect("a pipe can be made");
        assert_eq!(sentence(&pipe, 3), "it is not a regular file");
        assert_eq!(sentence(Path::new("/dev/zero"), 3), "it is not a regular file");
        assert_eq!(sentence(folder.path(), 3), "it is not a regular file");
    }
}
