//! The records of a recording: JSON lines, or the elements of one JSON array.

use crate::tools::source::SourceError;
use serde_json::value::RawValue;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Result};
use std::path::Path;

/// Records, one after the other: a recording may be longer than memory.
pub struct Records {
    input: Box<dyn BufRead + Send>,
    is_array: bool,
}

impl Records {
    /// Opens a recording, which is compressed if its name says so.
    pub fn open(path: &Path) -> std::result::Result<Records, SourceError> {
        Records::of(open(path)?).map_err(|source| SourceError::read(path, source))
    }

    /// As [`Records::open`], but the recording ends after so many bytes.
    pub fn open_start(path: &Path, bytes: u64) -> std::result::Result<Records, SourceError> {
        let start = Box::new(open(path)?.take(bytes));
        Records::of(start).map_err(|source| SourceError::read(path, source))
    }

    fn of(mut input: Box<dyn BufRead + Send>) -> Result<Records> {
        let is_array = input.fill_buf()?.first() == Some(&b'[');
        Ok(Records { input, is_array })
    }

    /// Reads the next record into an empty text, which stays empty after the last one.
    pub fn next(&mut self, text: &mut String) -> Result<()> {
        match self.is_array {
            true => self.next_element(text),
            false => self.input.read_line(text).map(|_| ()),
        }
    }

    fn next_element(&mut self, text: &mut String) -> Result<()> {
        // What stands between two elements.
        while let Some(byte) = self.input.fill_buf()?.first() {
            if *byte == b'{' {
                let mut elements = serde_json::Deserializer::from_reader(&mut self.input)
                    .into_iter::<Box<RawValue>>();
                let element = elements.next().expect("something begins here")?;
                text.push_str(element.get());
                break;
            }
            self.input.consume(1);
        }
        Ok(())
    }
}

fn open(path: &Path) -> std::result::Result<Box<dyn BufRead + Send>, SourceError> {
    let file = File::open(path).map_err(|source| SourceError::read(path, source))?;
    if path.extension().is_some_and(|extension| extension == "zst") {
        let decoder = zstd::Decoder::new(file);
        let decoder = decoder.map_err(|source| SourceError::read(path, source))?;
        Ok(Box::new(BufReader::new(decoder)))
    } else {
        Ok(Box::new(BufReader::new(file)))
    }
}
