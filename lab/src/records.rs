//! The records of a recording: JSON lines, or the elements of one JSON array.

use crate::RecordingError;
use serde_json::value::RawValue;
use std::fs::File;
use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result};
use std::path::Path;

/// The records of a recording, one at a time: a recording may be longer than memory.
pub(crate) struct MatchRecords {
    input: Box<dyn BufRead + Send>,
    is_array: bool,
}

impl MatchRecords {
    /// Opens a recording, compressed or plain according to its name.
    pub(crate) fn open(path: &Path) -> std::result::Result<MatchRecords, RecordingError> {
        MatchRecords::of(open(path)?).map_err(|source| RecordingError::read(path, source))
    }

    /// Like [`MatchRecords::open`], but the recording ends after this many bytes.
    pub(crate) fn open_start(
        path: &Path,
        bytes: u64,
    ) -> std::result::Result<MatchRecords, RecordingError> {
        let start = Box::new(open(path)?.take(bytes));
        MatchRecords::of(start).map_err(|source| RecordingError::read(path, source))
    }

    fn of(mut input: Box<dyn BufRead + Send>) -> Result<MatchRecords> {
        while input.fill_buf()?.first().is_some_and(|byte| is_space(*byte)) {
            input.consume(1);
        }
        let is_array = input.fill_buf()?.first() == Some(&b'[');
        input.consume(usize::from(is_array));
        Ok(MatchRecords { input, is_array })
    }

    /// Reads the next record into an empty buffer, which stays empty after the last record.
    pub(crate) fn next(&mut self, record: &mut Vec<u8>) -> Result<()> {
        match self.is_array {
            true => self.next_element(record),
            false => self.input.read_until(b'\n', record).map(|_| ()),
        }
    }

    fn next_element(&mut self, record: &mut Vec<u8>) -> Result<()> {
        loop {
            let Some(byte) = self.input.fill_buf()?.first() else {
                return Err(Error::new(ErrorKind::UnexpectedEof, "the array does not end"));
            };
            match byte {
                b'{' => break,
                b']' => return Ok(()),
                b',' => self.input.consume(1),
                space if is_space(*space) => self.input.consume(1),
                _ => return Err(Error::new(ErrorKind::InvalidData, "an element is not an object")),
            }
        }
        let mut elements =
            serde_json::Deserializer::from_reader(&mut self.input).into_iter::<Box<RawValue>>();
        let element = elements.next().expect("something begins here")?;
        record.extend_from_slice(element.get().as_bytes());
        Ok(())
    }
}

/// JSON white space, or a byte of the mark that some editors put at the start of a file.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0xef | 0xbb | 0xbf)
}

fn open(path: &Path) -> std::result::Result<Box<dyn BufRead + Send>, RecordingError> {
    let file = File::open(path).map_err(|source| RecordingError::read(path, source))?;
    if path.extension().is_some_and(|extension| extension == "zst") {
        let decoder = zstd::Decoder::new(file);
        let decoder = decoder.map_err(|source| RecordingError::read(path, source))?;
        Ok(Box::new(BufReader::new(decoder)))
    } else {
        Ok(Box::new(BufReader::new(file)))
    }
}
