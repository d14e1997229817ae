//! Records that took the engine down, and how often: kept in a file, so that restarts count on.
//!
//! A record is passed over only when it has failed often enough, and only by a record in the output
//! that every later owner reads. What is counted here is how often this host has tried. When the
//! topic is created again its offsets are other records, and the counts are forgotten.

use crate::snapshot::format::Origin;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// How often the record at an input offset took the engine down.
#[derive(Debug, Default)]
pub struct Poison {
    /// Name and id of the input topic.
    topic: String,
    counts: BTreeMap<(i32, i64), u32>,
    file: Option<PathBuf>,
}

impl Poison {
    /// The counts in a directory that are about the origin's input; without a directory, they last
    /// as long as the process.
    pub fn load(directory: Option<&Path>, origin: &Origin) -> Poison {
        let id = u128::from_be_bytes(origin.input_id());
        // No topic's name has a slash.
        let topic = format!("{}/{id:032x}", origin.input_topic);
        let file = directory.map(|directory| directory.join(NAME));
        // Without the file nothing has failed; a damaged line costs some more tries.
        let text = file.as_deref().map(fs::read_to_string).and_then(Result::ok);
        let counts =
            text.iter().flat_map(|text| text.lines().filter_map(|line| parse(line, &topic)));
        let counts = counts.collect();
        Poison { topic, counts, file }
    }

    /// The record has taken the engine down once more: how often it has by now.
    pub fn count(&mut self, partition: i32, offset: i64) -> u32 {
        let count = self.counts.entry((partition, offset)).or_default();
        *count += 1;
        let count = *count;
        if let Err(error) = self.store() {
            tracing::warn!(%error, "how often a record failed is not kept over a restart");
        }
        count
    }

    /// The input offsets of a partition that failed so often, in ascending order.
    pub fn offsets(&self, partition: i32, times: u32) -> Vec<i64> {
        let all = self.counts.range((partition, i64::MIN)..=(partition, i64::MAX));
        all.filter(|(_, count)| **count >= times).map(|((_, offset), _)| *offset).collect()
    }

    fn store(&self) -> io::Result<()> {
        let Some(path) = &self.file else { return Ok(()) };
        let unfinished = path.with_extension("new");
        let mut file = File::create(&unfinished)?;
        for ((partition, offset), count) in &self.counts {
            writeln!(file, "{} {partition} {offset} {count}", self.topic)?;
        }
        file.sync_all()?;
        fs::rename(&unfinished, path)
    }
}

/// Name of the file.
const NAME: &str = "poison";

/// `topic/id partition offset count`.
fn parse(line: &str, topic: &str) -> Option<((i32, i64), u32)> {
    let mut words = line.strip_prefix(topic)?.strip_prefix(' ')?.split(' ');
    let partition = words.next()?.parse().ok()?;
    let offset = words.next()?.parse().ok()?;
    let count = words.next()?.parse().ok()?;
    words.next().is_none().then_some(((partition, offset), count))
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
        let mut poison = Poison::load(Some(folder.path()), &origin("events", 1));
        assert_eq!(poison.count(2, 40), 1);
        assert_eq!(poison.count(2, 40), 2);
        assert_eq!(poison.count(1, 7), 1);
        let mut poison = Poison::load(Some(folder.path()), &origin("events", 1));
        assert_eq!(poison.count(2, 40), 3);
        assert_eq!(poison.offsets(2, 3), [40]);
        assert!(poison.offsets(1, 3).is_empty());
        // Neither another topic's nor those of one that was created again under the same name.
        for other in [origin("event", 1), origin("events", 2)] {
            assert!(Poison::load(Some(folder.path()), &other).offsets(2, 1).is_empty());
        }
    }

    #[test]
    fn a_damaged_file_and_a_missing_directory_lose_counts_only() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let id = "01".repeat(16);
        let lines = ["1 2\n", "1 5 9 9\n", "3 6 2\n", "\u{0}"];
        let text: String = lines.iter().map(|line| format!("events/{id} {line}")).collect();
        fs::write(folder.path().join(NAME), text).expect("the folder is writable");
        let poison = Poison::load(Some(folder.path()), &origin("events", 1));
        assert_eq!((poison.offsets(1, 1), poison.offsets(3, 2)), (vec![], vec![6]));
        let mut nowhere = Poison::load(Some(&folder.path().join("gone")), &origin("events", 1));
        assert_eq!(nowhere.count(0, 1), 1);
        assert_eq!(nowhere.count(0, 1), 2);
    }
}
