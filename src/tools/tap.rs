//! `huntd tap`: prints the output topic as JSON lines, each update once.

use super::failure::ToolError;
use super::kafka::{self, Cluster, FETCH_WAIT_MS, Isolation, Read, TopicReader};
use super::letters;
use super::load::now_us;
use super::newest::{self, Newest};
use crate::edition::Edition;
use crate::kafka::right::Right;
use crate::kit::update::Update;
use crate::kit::update_json::UpdateTable;
use crate::output::encode::{FrameError, decode};
use crate::output::frame::{FrameHeader, FrameKind};
use crate::output::reader::{Reader, Verdict};
use crate::service::cli::{TapArgs, TapFrom};
use rdkafka::message::Message;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufWriter, ErrorKind, Write};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Milliseconds in which an owner writes a fence: it repeats one every ten seconds.
const FENCE_AGE_MS: i64 = 15_000;

/// The kind that is printed only if it is asked for: each second of each zone has one.
const HIDDEN: &str = "clock";

/// Records before the end that are read at least: clocks of hosts may differ.
const RECORDS_BACK: i64 = 100;

/// Prints updates until there are enough of them, or indefinitely.
pub fn run(args: &TapArgs, edition: &Edition) -> Result<(), ToolError> {
    let updates = edition.schema.game.updates;
    let cluster = Cluster::of(&args.cluster, "tap")?;
    if args.dead_letters {
        return letters::run(args, edition, &cluster);
    }
    let topic = args.topic.as_deref().unwrap_or(&cluster.output_topic);
    let partitions = kafka::topic_partitions(&cluster.client, topic, Right::Read)?;
    let reader =
        TopicReader::connect(&cluster.client, topic, Isolation::Uncommitted, FETCH_WAIT_MS)?;
    let wanted = wanted_partitions(topic, args.zone.or(args.partition), partitions)?;
    match newest::look(&cluster.client, updates, topic, wanted.iter().copied())? {
        Newest::Others => {
            return Err(ToolError::TopicWrong(format!(
                "`{topic}` holds records, and the newest are no frames; name the output topic"
            )));
        }
        Newest::Nothing if !args.until_end => {
            super::warn(&format!("`{topic}` is empty: waiting for the first frame"))?;
        }
        Newest::Nothing | Newest::Frames => {}
    }
    let mut tap = Tap {
        updates,
        out: BufWriter::new(std::io::stdout().lock()),
        line: Vec::new(),
        raw: args.raw,
        player: args.player,
        kinds: args.kind.iter().map(|kind| kind_words(kind)).collect(),
        hidden: kind_words(HIDDEN),
        left: args.count.unwrap_or(u64::MAX),
        shards: BTreeMap::new(),
        waiting: BTreeMap::new(),
        strange: BTreeSet::new(),
    };
    let places = tap.places(args, &wanted, &reader)?;
    let mut reading: BTreeSet<u16> = places.iter().map(|(partition, _)| *partition).collect();
    reader.start(&places)?;
    while tap.left > 0 && !(args.until_end && reading.is_empty()) {
        match reader.next(Duration::from_millis(100))? {
            Read::Message(message) => {
                let partition = message.partition() as u16;
                tap.frame(partition, message.offset(), message.payload().unwrap_or_default())?;
            }
            Read::End(partition) => {
                if reading.remove(&partition) && !args.until_end {
                    tap.say_if_waiting(partition)?;
                }
                tap.out.flush()?;
            }
            Read::Nothing => {
                tap.out.flush()?;
                tap.say_who_is_missing()?;
                check_reader()?;
            }
        }
    }
    tap.out.flush()?;
    Ok(())
}

/// Returns the bytes that every line of this kind contains.
fn kind_words(kind: &str) -> Vec<u8> {
    format!("\"kind\":\"{kind}\",").into_bytes()
}

/// A silent topic gives nothing to write, and so no other way to learn that the reader has gone.
pub(super) fn check_reader() -> std::io::Result<()> {
    let stdout = std::io::stdout();
    let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
    poll(&mut watched, Some(&Timespec::default()))?;
    if watched[0].revents().contains(PollFlags::ERR) {
        return Err(ErrorKind::BrokenPipe.into());
    }
    Ok(())
}

/// Returns the partitions to read: one, or all.
pub(super) fn wanted_partitions(
    topic: &str,
    only: Option<u16>,
    partitions: u16,
) -> Result<Vec<u16>, ToolError> {
    match only {
        Some(partition) if partition >= partitions => Err(ToolError::Usage(format!(
            "`{topic}` has partitions 0 to {}; partition {partition} does not exist",
            partitions - 1
        ))),
        Some(partition) => Ok(vec![partition]),
        None => Ok((0..partitions).collect()),
    }
}

/// Returns the offset to begin at for one that was asked for; says so if it is another one.
pub(super) fn nearest(partition: u16, offset: i64, there: Range<i64>) -> Result<i64, ToolError> {
    let Range { start, end } = there;
    let place = offset.clamp(start, end);
    if place != offset {
        super::warn(&format!(
            "partition {partition} has offsets from {start} to before {end}, and not {offset}: \
             reading begins at {place}"
        ))?;
    }
    Ok(place)
}

struct Tap<W: Write> {
    updates: &'static UpdateTable,
    out: W,
    line: Vec<u8>,
    raw: bool,
    /// The only player to print, if any.
    player: Option<u64>,
    /// What a line of each kind to print holds; none: all kinds but the hidden one.
    kinds: Vec<Vec<u8>>,
    /// The bytes that every line of the hidden kind contains.
    hidden: Vec<u8>,
    /// Lines that may still be printed.
    left: u64,
    shards: BTreeMap<u16, Reader>,
    /// Partitions in which no frame can be read before a fence comes, and since when.
    waiting: BTreeMap<u16, Instant>,
    /// Partitions that hold records which are no frames.
    strange: BTreeSet<u16>,
}

impl<W: Write> Tap<W> {
    fn places(
        &mut self,
        args: &TapArgs,
        wanted: &[u16],
        reader: &TopicReader,
    ) -> Result<Vec<(u16, i64)>, ToolError> {
        let recent = reader.offsets_since(wanted, now_us() / 1000 - FENCE_AGE_MS)?;
        let mut places = Vec::new();
        for (&partition, recent) in wanted.iter().zip(recent) {
            let (start, end) = reader.bounds(partition)?;
            let place = match args.from {
                TapFrom::Start => start,
                TapFrom::Fence => recent.unwrap_or(end).min(end - RECORDS_BACK).max(start),
                TapFrom::Offset(offset) => nearest(partition, offset, start..end)?,
            };
            // Only at the start of the log is it certain that nothing is missing.
            let reader = if place == 0 { Reader::new() } else { Reader::joining() };
            self.shards.insert(partition, reader);
            places.push((partition, place));
        }
        Ok(places)
    }

    /// Where no fence was near the end, the next one that comes is waited for. An owner's first
    /// fence does not say where in the input it stands, so nobody can join there.
    fn say_if_waiting(&mut self, partition: u16) -> Result<(), ToolError> {
        if self.shards[&partition].has_joined() {
            return Ok(());
        }
        self.waiting.insert(partition, Instant::now());
        super::warn(&format!(
            "partition {partition}: waiting for the next fence, which its owner writes every ten \
             seconds; --from start shows what is there"
        ))
    }

    /// Only once no fence has come for longer than an owner takes is it known that there is none.
    fn say_who_is_missing(&mut self) -> Result<(), ToolError> {
        let shards = &self.shards;
        self.waiting.retain(|partition, _| !shards[partition].has_joined());
        let longest = Duration::from_millis(FENCE_AGE_MS as u64);
        for (partition, _) in self.waiting.extract_if(.., |_, since| since.elapsed() > longest) {
            super::warn(&format!(
                "partition {partition}: no fence has come for {} s, so no huntd owns it",
                longest.as_secs()
            ))?;
        }
        Ok(())
    }

    fn frame(&mut self, partition: u16, offset: i64, bytes: &[u8]) -> Result<(), ToolError> {
        let (header, updates) = match decode(bytes, self.updates) {
            Ok(frame) => frame,
            Err(FrameError::NotAFrame) => {
                let is_first = self.strange.insert(partition);
                let sentence =
                    "this is not a frame; is it an output topic? (further warnings suppressed)";
                return if is_first { warn(partition, offset, sentence) } else { Ok(()) };
            }
            Err(error) => {
                return Err(ToolError::TopicWrong(format!(
                    "partition {partition}, offset {offset}: this version of huntd cannot read the \
                     frame: {error}; use the version that wrote it"
                )));
            }
        };
        let reader = self.shards.get_mut(&partition).expect("only wanted partitions are read");
        let had_joined = reader.has_joined();
        let verdict = reader.fold(&header, &updates);
        if self.raw {
            self.print_frame(partition, offset, &header)?;
        }
        match verdict {
            Verdict::Accepted { from } if !self.raw => {
                let first = header.first_update + from as u64;
                self.print_updates(partition, first, &updates[from..])
            }
            Verdict::Joined | Verdict::Waiting if had_joined => {
                let sentence = "reading began at a superseded fence: updates printed \
                                since then may be repeated";
                warn(partition, offset, sentence)
            }
            Verdict::Gap { missing } => {
                warn(partition, offset, &format!("{missing} updates before this frame are missing"))
            }
            Verdict::Halt => Err(ToolError::VerificationFailed(format!(
                "partition {partition}, offset {offset}: the chain does not match the updates, so \
                 nothing after this can be trusted; restore the topic"
            ))),
            _ => Ok(()),
        }
    }

    fn print_updates(
        &mut self,
        partition: u16,
        first: u64,
        updates: &[Update],
    ) -> Result<(), ToolError> {
        for (number, update) in (first..).zip(updates) {
            if self.left == 0 {
                break;
            }
            if self.player.is_some_and(|player| player != update.player_id()) {
                continue;
            }
            self.line.clear();
            write_update(&mut self.line, self.updates, (partition, number), update);
            let is_of = |kind: &Vec<u8>| self.line.windows(kind.len()).any(|part| part == kind);
            let is_wanted = match self.kinds.is_empty() {
                true => !is_of(&self.hidden),
                false => self.kinds.iter().any(is_of),
            };
            if is_wanted {
                self.left -= 1;
                self.out.write_all(&self.line)?;
            }
        }
        Ok(())
    }

    fn print_frame(
        &mut self,
        partition: u16,
        offset: i64,
        header: &FrameHeader,
    ) -> Result<(), ToolError> {
        if self.left == 0 {
            return Ok(());
        }
        self.left -= 1;
        let kind = match header.kind {
            FrameKind::Updates => "updates",
            FrameKind::Fence => "fence",
            FrameKind::Skip => "skip",
            FrameKind::Genesis => "genesis",
        };
        let FrameHeader {
            owner_epoch: epoch,
            first_update,
            count,
            next_offset,
            ruleset,
            chain,
            ..
        } = header;
        writeln!(
            self.out,
            "{{\"partition\":{partition},\"offset\":{offset},\"kind\":\"{kind}\",\
             \"epoch\":{epoch},\"first_update\":{first_update},\"count\":{count},\
             \"next_offset\":{next_offset},\"ruleset\":{ruleset},\"chain\":\"{:016x}\",\
             \"fence_id\":\"{:032x}\"}}",
            chain.0, header.fence_id
        )?;
        Ok(())
    }
}

fn warn(partition: u16, offset: i64, sentence: &str) -> Result<(), ToolError> {
    Ok(super::say(&format!("partition {partition}, offset {offset}: {sentence}"))?)
}

/// Appends one line: the update's JSON object, preceded by its partition and number.
pub(crate) fn write_update(
    line: &mut Vec<u8>,
    updates: &UpdateTable,
    (partition, number): (u16, u64),
    update: &Update,
) {
    line.extend_from_slice(b"{\"partition\":");
    line.extend_from_slice(itoa::Buffer::new().format(partition).as_bytes());
    line.extend_from_slice(b",\"number\":");
    line.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    line.push(b',');
    let object = line.len();
    updates.write(std::slice::from_ref(update), line);
    // The line already has the object's opening brace.
    line.remove(object);
    line.push(b'\n');
}
