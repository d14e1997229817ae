//! Files that a configuration names: regular, and of bounded length. A pipe would keep a start
//! waiting for ever, and a device would fill the memory.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The text of a regular file of at most so many bytes.
pub(crate) fn read_regular(path: &Path, bytes_max: u64) -> io::Result<String> {
    // To open a pipe would wait for its writer.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut text = String::new();
    file.take(bytes_max + 1).read_to_string(&mut text)?;
    match text.len() as u64 > bytes_max {
        true => Err(io::Error::other(format!("it is longer than {bytes_max} bytes"))),
        false => Ok(text),
    }
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
        assert_eq!(read_regular(&file, 4).expect("it is short enough"), "text");
        let sentence = |path: &Path, bytes_max| {
            read_regular(path, bytes_max).expect_err("it is refused").to_string()
        };
        assert_eq!(sentence(&file, 3), "it is longer than 3 bytes");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).expect("a pipe can be made");
        assert_eq!(sentence(&pipe, 3), "it is no regular file");
        assert_eq!(sentence(Path::new("/dev/zero"), 3), "it is no regular file");
        assert_eq!(sentence(folder.path(), 3), "it is no regular file");
    }
}
