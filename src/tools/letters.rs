//! `huntd tap --dead-letters`: prints records that were not events, with the reason, and re-sends
//! them to the input.

use super::failure::ToolError;
use super::kafka::{self, Cluster, Isolation, Read, TopicReader};
use super::load::EventSender;
use super::source::SourceRecord;
use super::tap::{FETCH_WAIT_MS, check_reader, wanted_partitions};
use crate::decoder::reject::Reject;
use crate::decoder::{Decoder, RecordPosition};
use crate::kafka::right::Right;
use crate::service::cli::{LoadCodec, TapArgs, TapFrom};
use crate::telemetry::printable::printable;
use rdkafka::message::{BorrowedMessage, Headers, Message};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

/// Prints letters, one JSON object per line, or re-sends their records.
pub(super) fn run(args: &TapArgs, cluster: &Cluster) -> Result<(), ToolError> {
    let topic = args.topic.as_deref().unwrap_or(&cluster.dead_letter_topic);
    let client = &cluster.client;
    let partitions = kafka::topic_partitions(client, topic, Right::Read)?;
    let reader = TopicReader::connect(client, topic, Isolation::Uncommitted, FETCH_WAIT_MS)?;
    let (mut places, mut ends) = (Vec::new(), BTreeMap::new());
    for partition in wanted_partitions(topic, args.partition, partitions)? {
        let (start, end) = reader.bounds(partition)?;
        let place = match args.from {
            TapFrom::Offset(offset) => offset.clamp(start, end),
            TapFrom::Start | TapFrom::Fence => start,
        };
        places.push((partition, place));
        ends.extend((place < end).then_some((partition, end)));
    }
    reader.start(&places)?;
    let mut out = std::io::stdout().lock();
    let mut resend = args.resend.then(|| Resend::connect(cluster)).transpose()?;
    let mut left = args.count.unwrap_or(u64::MAX);
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
                let Some(letter) = Letter::of(&message) else { continue };
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
    fn connect(cluster: &'a Cluster) -> Result<Resend<'a>, ToolError> {
        let Cluster { client, input_topic, .. } = cluster;
        Ok(Resend {
            input_topic,
            partitions: kafka::topic_partitions(client, input_topic, Right::Write)?,
            decoder: Decoder::new(),
            sender: EventSender::connect(client, input_topic, LoadCodec::None, 0)?,
        })
    }

    /// Appends the letter's record to its original partition, or says why not.
    fn send(&mut self, letter: &Letter<'_>) -> Result<(), ToolError> {
        if let Some(sentence) = self.why_not(letter) {
            return Ok(super::say(&format!("not sent: {sentence}"))?);
        }
        let Letter { partition, time_ms, value, .. } = *letter;
        self.sender.send(&SourceRecord { partition, offset: 0, time_ms, value })
    }

    /// Returns why a letter is not re-sent. Any writer of the dead-letter topic controls a letter's
    /// headers, so a letter must not choose the topic. A record that is still not an event would
    /// only come back as another letter.
    fn why_not(&mut self, letter: &Letter<'_>) -> Option<String> {
        let Letter { input_topic, partition, offset, time_ms, value, .. } = *letter;
        if input_topic != self.input_topic {
            return Some(format!(
                "the letter is about the topic `{input_topic}`, and the input is `{}`: name the \
                 configuration of its daemons with --config",
                self.input_topic
            ));
        }
        if partition >= self.partitions {
            return Some(format!("`{input_topic}` has no partition {partition}"));
        }
        letter.why_not_whole().or_else(|| {
            let position = RecordPosition { offset: 0, time_ms };
            let reject = self.decoder.decode(position, value).err()?;
            let sentence = self.decoder.explain(reject, value);
            Some(format!(
                "the record at offset {offset} of partition {partition} is still not an event: \
                 {sentence}"
            ))
        })
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

/// A dead letter in the format of docs/PROTOCOL.md.
struct Letter<'a> {
    /// The letter's own partition and offset.
    place: (i32, i64),
    input_topic: &'a str,
    partition: u16,
    offset: &'a str,
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
    /// Parses a letter; `None` if the record is not a letter of huntd.
    fn of(message: &'a BorrowedMessage<'_>) -> Option<Letter<'a>> {
        let headers = message.headers()?;
        let text = |name: &str| {
            let header = headers.iter().find(|header| header.key == name)?;
            std::str::from_utf8(header.value?).ok()
        };
        let last_offset = text("huntd.last_offset").and_then(|offset| offset.parse().ok());
        let number = |name: &str| text(name).and_then(|number| number.parse().ok());
        Some(Letter {
            place: (message.partition(), message.offset()),
            input_topic: text("huntd.topic")?,
            partition: text("huntd.partition")?.parse().ok()?,
            offset: text("huntd.offset")?,
            time_ms: text("huntd.timestamp_ms")?.parse().ok()?,
            reason: text("huntd.reason")?,
            sentence: text("huntd.sentence").unwrap_or_default(),
            value: message.payload(),
            value_bytes: number("huntd.value_bytes"),
            run: number("huntd.records").zip(last_offset),
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
            "offset": self.offset.parse::<i64>().unwrap_or(-1),
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
    use super::sent_again;

    #[test]
    fn one_letter_is_no_letters() {
        assert_eq!(sent_again(1), "1 letter was sent to its partition again");
        assert_eq!(sent_again(0), "0 letters were sent to their partitions again");
    }
}
