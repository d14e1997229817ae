//! Keeps in a file how often records panicked the engine: a record that does so in every process
//! has to be passed over, too.

use crate::ownership::panic_counts::PanicCounts;
use crate::runtime::regular_file::read_text;
use crate::snapshot::format::Origin;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Name of the file.
const NAME: &str = "poison";

/// Bytes of the file: a line of some 300 bytes for each partition, several times over.
const PANIC_BYTES_MAX: u64 = 1 << 20;

/// The file, with what it is about.
#[derive(Debug)]
pub(super) struct PanicFile {
    /// Name and id of the input topic. No topic's name has a slash.
    topic: String,
    /// `None`: there is no directory, and counts last as long as the process.
    path: Option<PathBuf>,
}

impl PanicFile {
    /// The file in a directory, for the origin's input.
    pub(super) fn new(directory: Option<&Path>, origin: &Origin) -> PanicFile {
        let id = u128::from_be_bytes(origin.input_id());
        let topic = format!("{}/{id:032x}", origin.input_topic);
        PanicFile { topic, path: directory.map(|directory| directory.join(NAME)) }
    }

    /// The counts in it. Without the file nothing has failed; a damaged line costs some more tries.
    pub(super) fn load(&self) -> PanicCounts {
        let mut counts = PanicCounts::new();
        let read = |path: &Path| read_text(path, PANIC_BYTES_MAX);
        let text = self.path.as_deref().map(read).and_then(Result::ok);
        for line in text.iter().flat_map(|text| text.lines()) {
            if let Some((partition, offset, count)) = self.parse(line) {
                counts.set(partition, offset, count);
            }
        }
        counts
    }

    /// Replaces the counts in it. What was there before is lost only when the new ones are stored.
    pub(super) fn store(&self, counts: &PanicCounts) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let unfinished = path.with_extension("new");
        let mut file = File::create(&unfinished)?;
        for (partition, offset, count) in counts.iter() {
            writeln!(file, "{} {partition} {offset} {count}", self.topic)?;
        }
        file.sync_all()?;
        fs::rename(&unfinished, path)
    }

    /// `topic/id partition offset count`.
    fn parse(&self, line: &str) -> Option<(i32, i64, u32)> {
        let mut words = line.strip_prefix(&self.topic)?.strip_prefix(' ')?.split(' ');
        let partition = words.next()?.parse().ok()?;
        let offset = words.next()?.parse().ok()?;
        let count = words.next()?.parse().ok()?;
        words.next().is_none().then_some((partition, offset, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::progress::TopicId;

    fn origin(input_topic: &str, id: u8) -> Origin {
        let input_topic_id = TopicId::new([id; 16].into());
        Origin { input_topic: input_topic.to_owned(), input_topic_id, ..Origin::default() }
    }

    #[test]
    fn counts_go_on_after_a_restart_and_belong_to_one_topic() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = PanicFile::new(Some(folder.path()), &origin("events", 1));
        let mut counts = file.load();
        assert_eq!(counts.add(2, 40), 1);
        assert_eq!(counts.add(2, 40), 2);
        assert_eq!(counts.add(1, 7), 1);
        file.store(&counts).expect("the folder is writable");
        let mut counts = PanicFile::new(Some(folder.path()), &origin("events", 1)).load();
        assert_eq!(counts.add(2, 40), 3);
        assert_eq!(counts.offsets(2, 3), [40]);
        assert!(counts.offsets(1, 3).is_empty());
        file.store(&counts).expect("the folder is writable");
        // Neither the counts of another topic, nor those of a topic that had the same name before.
        for other in [origin("event", 1), origin("events", 2)] {
            let counts = PanicFile::new(Some(folder.path()), &other).load();
            assert!(counts.offsets(2, 1).is_empty());
        }
    }

    #[test]
    fn a_damaged_file_and_a_missing_directory_lose_counts_only() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let id = "01".repeat(16);
        let lines = ["1 2\n", "1 5 9 9\n", "3 6 2\n", "\u{0}"];
        let text: String = lines.iter().map(|line| format!("events/{id} {line}")).collect();
        fs::write(folder.path().join(NAME), text).expect("the folder is writable");
        let counts = PanicFile::new(Some(folder.path()), &origin("events", 1)).load();
        assert_eq!((counts.offsets(1, 1), counts.offsets(3, 2)), (vec![], vec![6]));
        let nowhere = PanicFile::new(Some(&folder.path().join("gone")), &origin("events", 1));
        let mut counts = nowhere.load();
        assert_eq!(counts.add(0, 1), 1);
        assert!(nowhere.store(&counts).is_err());
        assert_eq!(counts.add(0, 1), 2);
    }
}
