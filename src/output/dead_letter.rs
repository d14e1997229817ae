//! Dead letters: records that are not valid events, kept with their origin and the reason.
//!
//! They are delivered at least once. The key is the record's position in the input, so a reader
//! that keeps one letter per key has each of them once.

/// Header with the input topic.
const HEADER_TOPIC: &str = "huntd.topic";
/// Header with the input partition, in decimal.
const HEADER_PARTITION: &str = "huntd.partition";
/// Header with the record's offset, in decimal.
const HEADER_OFFSET: &str = "huntd.offset";
/// Header with the record's timestamp in milliseconds, in decimal.
const HEADER_TIMESTAMP_MS: &str = "huntd.timestamp_ms";
/// Header with the name of the reason, as in metrics.
const HEADER_REASON: &str = "huntd.reason";
/// Header with a sentence about what is wrong.
const HEADER_SENTENCE: &str = "huntd.sentence";
/// Header with the length of a value that is too long for a letter, in decimal. Absent if the
/// letter holds the whole value.
const HEADER_VALUE_BYTES: &str = "huntd.value_bytes";
/// Header with the CRC-32C of that value, in eight hexadecimal digits.
const HEADER_VALUE_CRC32C: &str = "huntd.value_crc32c";
/// Header with the number of records that a letter represents, in decimal. Absent for a single
/// record.
const HEADER_RECORDS: &str = "huntd.records";
/// Header with the offset of the last of these records, in decimal.
const HEADER_LAST_OFFSET: &str = "huntd.last_offset";
/// Header with the record's own key. Absent if it had none.
const HEADER_KEY: &str = "huntd.key";

/// Upper limit of a letter's size without its record's key and value: its own key, the headers with
/// two names of the input, and Kafka's framing.
pub(crate) const LETTER_HEAD_BYTES_MAX: usize = 4 * 1024;

/// Describes a value of which a letter holds only the first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutValue {
    /// Length of the whole value.
    pub bytes: u64,
    /// CRC-32C of the whole value.
    pub crc32c: u32,
}

/// The records that one letter represents. Other records may lie between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LetterRun {
    /// Offset of the last of these records.
    pub last_offset: i64,
    /// Number of these records.
    pub records: u64,
}

/// A record that is not a valid event, or a run of such records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Input partition.
    pub partition: i32,
    /// The ownership within this process in which the record was read.
    pub ownership_id: u32,
    /// The record's input offset, or that of the first record of a run.
    pub offset: i64,
    /// The record's timestamp, in milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// The reason, from the decoder's closed list.
    pub reason: &'static str,
    /// The reason in words.
    pub sentence: Option<String>,
    /// The record's key.
    pub key: Option<Vec<u8>>,
    /// The record's value, unchanged.
    pub value: Option<Vec<u8>>,
    /// Length and checksum of the whole value, if `value` holds only its first bytes.
    pub cut: Option<CutValue>,
    /// The run of records that the letter represents, if it holds no bytes of them.
    pub run: Option<LetterRun>,
}

impl DeadLetter {
    /// `topic/partition/offset`: equal for every delivery of the same letter.
    pub fn place(&self, input_topic: &str) -> String {
        format!("{input_topic}/{}/{}", self.partition, self.offset)
    }

    /// All headers by name, without the absent ones.
    pub(crate) fn headers(&self, input_topic: &str) -> Vec<(&'static str, Vec<u8>)> {
        let mut headers = vec![
            (HEADER_TOPIC, input_topic.as_bytes().to_vec()),
            (HEADER_PARTITION, self.partition.to_string().into_bytes()),
            (HEADER_OFFSET, self.offset.to_string().into_bytes()),
            (HEADER_TIMESTAMP_MS, self.time_ms.to_string().into_bytes()),
            (HEADER_REASON, self.reason.as_bytes().to_vec()),
        ];
        if let Some(sentence) = &self.sentence {
            headers.push((HEADER_SENTENCE, sentence.as_bytes().to_vec()));
        }
        if let Some(CutValue { bytes, crc32c }) = self.cut {
            headers.push((HEADER_VALUE_BYTES, bytes.to_string().into_bytes()));
            headers.push((HEADER_VALUE_CRC32C, format!("{crc32c:08x}").into_bytes()));
        }
        if let Some(LetterRun { last_offset, records }) = self.run {
            headers.push((HEADER_RECORDS, records.to_string().into_bytes()));
            headers.push((HEADER_LAST_OFFSET, last_offset.to_string().into_bytes()));
        }
        if let Some(key) = &self.key {
            headers.push((HEADER_KEY, key.clone()));
        }
        headers
    }
}
