//! `huntd tap --dead-letters`: prints records that were not events, with the reason, and re-sends
//! them to the input.

use super::WhileRead;
use super::failure::ToolError;
use super::kafka::{self, Cluster, FETCH_WAIT_MS, Isolation, Read, TopicReader};
use super::load::EventSender;
use super::source::SourceRecord;
use super::tap::{check_reader, nearest, wanted_partitions};
use crate::decoder::reject::Reject;
use crate::decoder::{Decoder, RecordPosition};
use crate::edition::Edition;
use crate::kafka::right::Right;
use crate::kit::event::EventTable;
use crate::runtime::wall_clock::unix_ms;
use crate::service::cli::{TapArgs, TapFrom};
use crate::telemetry::printable::printable;
use rdkafka::message::{Headers, Message};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;
use std::str::FromStr;
use std::time::Duration;

/// Milliseconds by which a record's time may be ahead of now: Kafka's default for
/// `message.timestamp.after.max.ms`. A broker would refuse a later one, and everything after it.
const TIME_AHEAD_MS_MAX: i64 = 3_600_000;

/// Prints letters, a JSON object a line, or sends what they hold once more.
pub(super) fn run(args: &TapArgs, edition: &Edition, cluster: &Cluster) -> Result<(), ToolError> {
    let topic = args.topic.as_deref().unwrap_or(&cluster.dead_letter_topic);
    let client = &cluster.client;
    let partitions = kafka::topic_partitions(client, topic, Right::Read)?;
    let reader = TopicReader::connect(client, topic, Isolation::Uncommitted, FETCH_WAIT_MS)?;
    let (mut places, mut ends) = (Vec::new(), BTreeMap::new());
    for partition in wanted_partitions(topic, args.partition, partitions)? {
        let (start, end) = reader.bounds(partition)?;
        let place = match args.from {
            TapFrom::Offset(offset) => nearest(partition, offset, start..end)?,
            TapFrom::Start | TapFrom::Fence => start,
        };
        places.push((partition, place));
        ends.extend((place < end).then_some((partition, end)));
    }
    reader.start(&places)?;
    let stdout = std::io::stdout().lock();
    // An operator who sends letters again wants all of them sent.
    let mut out: Box<dyn Write> = match args.resend {
        true => Box::new(WhileRead(stdout)),
        false => Box::new(stdout),
    };
    let mut resend =
        args.resend.then(|| Resend::connect(edition.schema.game.events, cluster)).transpose()?;
    let mut left = args.count.unwrap_or(u64::MAX);
    let mut is_strange = false;
    // A record that is re-sent may come back as a letter, so only the letters that exist now are
    // re-sent.
    let until_end = args.until_end || args.resend;
    while left > 0 && !(until_end && ends.is_empty()) {
        match reader.next(Duration::from_millis(FETCH_WAIT_MS.into()))? {
            Read::Message(message) => {
                let partition = message.partition() as u16;
                let end = ends.get(&partition).copied();
                if until_end && end.is_none_or(|end| end <= message.offset()) {
                    continue;
                }
                if end.is_some_and(|end| end <= message.offset() + 1) {
                    ends.remove(&partition);
                }
                let Some(letter) = Letter::of(&message) else {
                    if !std::mem::replace(&mut is_strange, true) {
                        super::warn(&format!(
                            "partition {partition}, offset {}: it is no dead letter; is \
                             `{topic}` a dead-letter topic? (further warnings suppressed)",
                            message.offset()
                        ))?;
                    }
                    continue;
                };
                if args.zone.is_some_and(|zone| zone != letter.partition) {
                    continue;
                }
                left -= 1;
                if let Some(resend) = &mut resend {
                    resend.send(&letter)?;
                }
                writeln!(out, "{}", printable(&letter.json().to_string()))?;
            }
            Read::End(partition) => drop(ends.remove(&partition)),
            Read::Nothing if args.resend => {}
            Read::Nothing => check_reader()?,
        }
    }
    resend.map_or(Ok(()), Resend::finish)
}

/// Re-sends letters to the input.
struct Resend<'a> {
    input_topic: &'a str,
    partitions: u16,
    decoder: Decoder,
    sender: EventSender,
}

impl<'a> Resend<'a> {
    fn connect(events: &'static EventTable, cluster: &'a Cluster) -> Result<Resend<'a>, ToolError> {
        let Cluster { client, input_topic, .. } = cluster;
        Ok(Resend {
            input_topic,
            partitions: kafka::topic_partitions(client, input_topic, Right::Write)?,
            decoder: Decoder::new(events),
            sender: EventSender::connect(client, input_topic, "none", 0)?,
        })
    }

    /// Appends the letter's record to its original partition, or says why not.
    fn send(&mut self, letter: &Letter<'_>) -> Result<(), ToolError> {
        let Resend { input_topic, partitions, decoder, .. } = self;
        if let Some(sentence) = letter.why_not((input_topic, *partitions), decoder, unix_ms()) {
            return Ok(super::say(&format!("not sent: {sentence}"))?);
        }
        let Letter { partition, time_ms, value, .. } = *letter;
        self.sender.send(&SourceRecord { partition, offset: 0, time_ms, value })
    }

    fn finish(self) -> Result<(), ToolError> {
        self.sender.flush()?;
        Ok(super::say(&sent_again(self.sender.sent))?)
    }
}

fn sent_again(letters: u64) -> String {
    match letters {
        1 => "1 letter was sent to its partition again".to_owned(),
        _ => format!("{letters} letters were sent to their partitions again"),
    }
}

/// A header's text. `Some(None)`: there is no such header; `None`: it has no text.
fn text<'a>(name: &str, headers: &'a impl Headers) -> Option<Option<&'a str>> {
    match headers.iter().find(|header| header.key == name) {
        Some(header) => Some(Some(std::str::from_utf8(header.value?).ok()?)),
        None => Some(None),
    }
}

/// A header's number. `Some(None)`: there is no such header; `None`: it is no such number.
fn number<N: FromStr>(name: &str, headers: &impl Headers) -> Option<Option<N>> {
    match text(name, headers)? {
        Some(text) => Some(Some(text.parse().ok()?)),
        None => Some(None),
    }
}

/// A dead letter, as docs/PROTOCOL.md has it.
struct Letter<'a> {
    /// The letter's own partition and offset.
    place: (i32, i64),
    input_topic: &'a str,
    partition: u16,
    offset: i64,
    time_ms: i64,
    reason: &'a str,
    sentence: &'a str,
    value: Option<&'a [u8]>,
    /// Length of the whole value, if the letter holds only a part.
    value_bytes: Option<u64>,
    /// Number of records that the letter represents, and the offset of the last one, if it holds no
    /// bytes of them.
    run: Option<(u64, i64)>,
}

impl<'a> Letter<'a> {
    /// `None`: the record is no letter of huntd's.
    fn of(message: &'a impl Message) -> Option<Letter<'a>> {
        let headers = message.headers()?;
        let last_offset: Option<i64> = number("huntd.last_offset", headers)?;
        let records: Option<u64> = number("huntd.records", headers)?;
        if records.is_some() != last_offset.is_some() {
            return None;
        }
        Some(Letter {
            place: (message.partition(), message.offset()),
            input_topic: text("huntd.topic", headers)??,
            partition: number("huntd.partition", headers)??,
            offset: number("huntd.offset", headers)??,
            time_ms: number("huntd.timestamp_ms", headers)??,
            reason: text("huntd.reason", headers)??,
            sentence: text("huntd.sentence", headers)?.unwrap_or_default(),
            value: message.payload(),
            value_bytes: number("huntd.value_bytes", headers)?,
            run: records.zip(last_offset),
        })
    }

    /// Why the letter's record is not sent to this input with so many partitions. Any writer of
    /// the dead-letter topic chooses what a letter says, so a letter must not choose the topic. A
    /// record that is still not an event would only come back as another letter.
    fn why_not(
        &self,
        (input, partitions): (&str, u16),
        decoder: &mut Decoder,
        now_ms: i64,
    ) -> Option<String> {
        let Letter { input_topic, partition, offset, time_ms, value, .. } = *self;
        if input_topic != input {
            return Some(format!(
                "the letter is about the topic `{input_topic}`, and the input is `{input}`: name \
                 the configuration of its daemons with --config"
            ));
        }
        if partition >= partitions {
            return Some(format!("`{input_topic}` has no partition {partition}"));
        }
        if !(0..=now_ms.saturating_add(TIME_AHEAD_MS_MAX)).contains(&time_ms) {
            return Some(format!(
                "the record at offset {offset} of partition {partition} has the time {time_ms} ms, \
                 which brokers refuse"
            ));
        }
        self.why_not_whole().or_else(|| {
            let place = RecordPosition { offset: 0, time_ms };
            let reject = decoder.decode_plain(place, value).err()?;
            let sentence = decoder.explain(reject, value);
            Some(format!(
                "the record at offset {offset} of partition {partition} is still not an event: \
                 {sentence}"
            ))
        })
    }

    /// Returns why the letter cannot be re-sent, if it lacks a part of its record.
    fn why_not_whole(&self) -> Option<String> {
        let (zone, offset) = (self.partition, self.offset);
        if self.reason == Reject::UnreadableBatch.name() {
            return Some(format!(
                "the batch at offset {offset} of partition {zone} could not be read"
            ));
        }
        if let Some((records, last_offset)) = self.run {
            return Some(format!(
                "the letter represents {records} records between the offsets {offset} and \
                 {last_offset} of partition {zone}, and has the bytes of none: the input has them"
            ));
        }
        self.value_bytes.map(|bytes| {
            format!(
                "of the {bytes} bytes at offset {offset} of partition {zone}, the letter has the \
                 first only"
            )
        })
    }

    fn json(&self) -> serde_json::Value {
        let mut json = json!({
            "letter_partition": self.place.0,
            "letter_offset": self.place.1,
            "topic": self.input_topic,
            "partition": self.partition,
            "offset": self.offset,
            "timestamp_ms": self.time_ms,
            "reason": self.reason,
            "sentence": self.sentence,
            "value": self.value.map(String::from_utf8_lossy),
        });
        if let Some(bytes) = self.value_bytes {
            json["value_bytes"] = bytes.into();
        }
        if let Some((records, last_offset)) = self.run {
            json["records"] = records.into();
            json["last_offset"] = last_offset.into();
        }
        json
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hunt::event::{Action, EVENTS};
    use crate::output::dead_letter::{CutValue, DeadLetter, LETTER_HEAD_BYTES_MAX, LetterRun};
    use crate::testing::random::Random;
    use rdkafka::message::{Header, OwnedHeaders, OwnedMessage, Timestamp};

    const SEEDS: u64 = 20_000;
    const NOW_MS: i64 = 1_767_225_600_000;
    const INPUT: &str = "events";
    const PARTITIONS: u16 = 4;
    const LOOT: &[u8] = br#"{"type":"loot","player_id":1,"seq":1,"ts_us":1}"#;

    #[test]
    fn one_letter_is_no_letters() {
        assert_eq!(sent_again(1), "1 letter was sent to its partition again");
        assert_eq!(sent_again(0), "0 letters were sent to their partitions again");
    }

    fn any<T: Copy>(random: &mut Random, values: &[T]) -> T {
        values[random.below(values.len() as u64) as usize]
    }

    /// A letter as huntd writes it, of a record with absurd numbers.
    fn written(random: &mut Random) -> DeadLetter {
        let offset = any(random, &[0, 7, 1 << 62, i64::MAX - 1, i64::MAX]);
        let cut = CutValue { bytes: any(random, &[0, 1, u64::MAX]), crc32c: u32::MAX };
        let run = LetterRun { last_offset: i64::MAX, records: any(random, &[1, u64::MAX]) };
        let times = [NOW_MS, 0, -1, i64::MIN, i64::MAX - 1, i64::MAX, NOW_MS + TIME_AHEAD_MS_MAX];
        DeadLetter {
            partition: any(random, &[0, 3, 4, i32::from(u16::MAX)]),
            ownership_id: 1,
            offset,
            time_ms: any(random, &times),
            reason: any(random, &[Reject::UnreadableBatch.name(), "unknown_type", ""]),
            sentence: any(random, &[None, Some("no event \u{9b}\n")]).map(str::to_owned),
            key: any(random, &[None, Some(&b"\xff\0"[..])]).map(<[u8]>::to_vec),
            value: any(random, &[None, Some(&b""[..]), Some(LOOT), Some(LOOT)]).map(<[u8]>::to_vec),
            cut: any(random, &[None, None, Some(cut)]),
            run: any(random, &[None, None, Some(run)]),
        }
    }

    /// Its headers, or those that another program may write in their place.
    fn headers(random: &mut Random, letter: &DeadLetter, is_forged: bool) -> OwnedHeaders {
        let mut headers = letter.headers(INPUT);
        let numbers: [&[u8]; 9] = [
            b"",
            b"0",
            b"-1",
            b"+5",
            b" 7",
            b"1e3",
            b"18446744073709551615",
            b"18446744073709551616",
            b"-9223372036854775808",
        ];
        if is_forged {
            let at = random.below(headers.len() as u64) as usize;
            match random.below(4) {
                0 => drop(headers.remove(at)),
                1 => headers[at].1 = any(random, &numbers).to_vec(),
                2 => headers[at].1 = any(random, &[&b"\xff"[..], b"others"]).to_vec(),
                _ => headers
                    .push((any(random, &["huntd.records", "huntd.value_bytes"]), b"x".to_vec())),
            }
        }
        headers.into_iter().fold(OwnedHeaders::new(), |all, (key, value)| {
            all.insert(Header { key, value: Some(&value) })
        })
    }

    #[test]
    fn whatever_a_letter_says_only_a_whole_event_of_the_input_is_sent_again() {
        let mut decoder = Decoder::new(&EVENTS);
        let (mut sent, mut forged) = (0, 0);
        for seed in 0..SEEDS {
            let mut random = Random::new(seed);
            let letter = written(&mut random);
            let is_forged = random.below(2) == 0;
            let headers = headers(&mut random, &letter, is_forged);
            let has = |name: &str| headers.iter().any(|header| header.key == name);
            let is_in_part = has("huntd.records") || has("huntd.value_bytes");
            let time = Timestamp::NotAvailable;
            let topic = "letters".to_owned();
            let record =
                OwnedMessage::new(letter.value.clone(), None, topic, time, 2, 9, Some(headers));
            let Some(read) = Letter::of(&record) else {
                assert!(is_forged, "seed {seed}: huntd's own letter is not read");
                forged += 1;
                continue;
            };
            let shown = printable(&read.json().to_string()).into_owned();
            let json: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
            assert!(!shown.contains(char::is_control), "seed {seed}: {shown}");
            if !is_forged {
                let run = read.run.map(|(records, last_offset)| LetterRun { last_offset, records });
                let told = (i32::from(read.partition), read.time_ms, read.reason, run);
                let wanted = (letter.partition, letter.time_ms, letter.reason, letter.run);
                assert_eq!(told, wanted, "seed {seed}");
                assert_eq!(json["offset"].as_i64(), Some(letter.offset), "seed {seed}");
                assert_eq!(read.value_bytes, letter.cut.map(|cut| cut.bytes), "seed {seed}");
            }
            if read.why_not((INPUT, PARTITIONS), &mut decoder, NOW_MS).is_none() {
                sent += 1;
                assert!(!is_in_part && letter.value.as_deref() == Some(LOOT), "seed {seed}");
                assert!(read.input_topic == INPUT && read.partition < PARTITIONS, "seed {seed}");
                let times = 0..=NOW_MS + TIME_AHEAD_MS_MAX;
                assert!(times.contains(&read.time_ms), "seed {seed}: {}", read.time_ms);
            }
        }
        assert!(sent > SEEDS / 100 && forged > SEEDS / 100, "{sent} sent, {forged} not read");
    }

    #[test]
    fn the_head_of_a_letter_with_the_largest_numbers_and_names_is_bounded() {
        let value = format!(r#"{{"type":"{}","{}":1}}"#, "t".repeat(500), "k".repeat(500));
        let mut decoder = Decoder::new(&EVENTS);
        let position = RecordPosition { offset: i64::MAX, time_ms: i64::MIN };
        let decoded = decoder.decode::<Action>(position, Some(value.as_bytes()));
        let reject = decoded.expect_err("no event");
        let topic = "t".repeat(crate::kafka::TOPIC_NAME_CHARS_MAX);
        let letter = DeadLetter {
            partition: i32::MAX,
            ownership_id: u32::MAX,
            offset: i64::MAX,
            time_ms: i64::MIN,
            reason: reject.name(),
            sentence: Some(decoder.explain(reject, Some(value.as_bytes()))),
            key: None,
            value: None,
            cut: Some(CutValue { bytes: u64::MAX, crc32c: u32::MAX }),
            run: Some(LetterRun { last_offset: i64::MAX, records: u64::MAX }),
        };
        let headers = letter.headers(&topic);
        let bytes = headers.iter().map(|(name, value)| name.len() + value.len() + 10);
        let bytes = bytes.sum::<usize>() + letter.place(&topic).len();
        assert!(bytes < LETTER_HEAD_BYTES_MAX, "{bytes}");
    }
}
