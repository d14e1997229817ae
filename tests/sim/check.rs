//! What must hold in the end.

use crate::broker::InputLog;
use crate::chance::Sight;
use crate::game::{Record, farewells};
use crate::mutation::Mutation;
use crate::node::Node;
use crate::reader::{Era, Follower, Replay};
use crate::sim::Sim;
use huntd::decoder::{Decoder, RecordPosition};
use huntd::hunt::event::{Action, EVENTS};
use huntd::hunt::frames::decode_frame;
use huntd::kit::engine::Departure;
use huntd::output::reader::{Reader, Verdict};
use huntd::ownership::start_error::StartError;
use huntd::snapshot::format::Header;
use std::collections::BTreeSet;

/// Microseconds without faults after which zones that are not caught up are taken for full.
pub(crate) const CROWDED_US: u64 = 60_000_000;

impl Sim {
    /// Two full zones pass a player back and forth until one has room. So the players that began in
    /// a zone leave it.
    pub(crate) fn make_room(&mut self) {
        for partition in 0..self.followers.len() as i32 {
            for record in farewells(partition as u16, self.now) {
                self.broker.append_plain(partition, record);
            }
        }
    }

    /// Readers and views take what has come.
    pub(crate) fn follow(&mut self) -> Result<(), String> {
        for (partition, follower) in self.followers.iter_mut().enumerate() {
            let output = &mut self.broker.outputs[partition];
            let before = follower.mark();
            let followed = follower.follow(output, &mut self.chance);
            let after = follower.mark();
            if (before.next_update, before.next_offset) != (after.next_update, after.next_offset) {
                output.moved_at = self.now;
            }
            let viewed = followed.and_then(|()| self.viewers[partition].follow(output, follower));
            viewed.map_err(|what| format!("partition {partition}: {what}"))?;
            for offset in &follower.era.skips {
                if let Some(is_seen) = self.asked_skips.get_mut(&(partition as i32, *offset))
                    && !std::mem::replace(is_seen, true)
                {
                    self.chance.see(Sight::SkippedAsAsked);
                }
            }
        }
        Ok(())
    }

    /// Whether every shard that can catch up has done so, and nothing is on its way any more.
    pub(crate) fn is_caught_up(&self) -> bool {
        let partitions = 0..self.followers.len() as i32;
        self.late_outputs() == 0
            && self.are_ready()
            && self.have_one_version()
            && partitions
                .into_iter()
                .all(|partition| self.is_hopeless(partition) || self.is_live(partition))
    }

    /// Whether an owner has acknowledged all of the input.
    pub(crate) fn is_live(&self, partition: i32) -> bool {
        let end = self.broker.inputs[partition as usize].end;
        let owned = self.hosts.iter().filter_map(|host| host.node.as_ref()).any(|node| {
            let progress = node.progress.shard(partition);
            let idle = progress.sent.get() == progress.settled.get();
            let offsets = [&progress.applied, &progress.published, &progress.acked];
            progress.ownership_id.get() != 0
                && progress.following.get() == 0
                && self.broker.is_read_by(&node.progress)
                && offsets.iter().all(|offset| offset.get() == end)
                && idle
        });
        owned && self.followers[partition as usize].mark().next_offset >= end
    }

    /// Whether huntd was right to refuse to guess: records that it needs of this partition are
    /// gone, and the operator does not let it start over.
    pub(crate) fn is_hopeless(&self, partition: i32) -> bool {
        let input = &self.broker.inputs[partition as usize];
        let output = &self.broker.outputs[partition as usize];
        let has_lost_records = input.truncated_to.is_some() || self.broker.was_input_deleted();
        match self.start_errors.get(&partition) {
            // Without them, it is not known where to start over either.
            Some(StartError::StartGone) => output.start > 0,
            _ if self.starts_over => false,
            Some(StartError::InputGone { wanted, input_start }) => {
                wanted < input_start && *input_start <= input.start
            }
            Some(StartError::InputLost { .. } | StartError::InputDiverged { .. }) => {
                has_lost_records
            }
            Some(StartError::InputRecreated) => self.broker.was_input_deleted(),
            Some(StartError::Diverged { .. }) => has_lost_records || self.has_lost_skips(partition),
            _ => false,
        }
    }

    /// Whether retention has taken a skip that no later owner can know of. A replay from the start
    /// then makes other updates.
    fn has_lost_skips(&self, partition: i32) -> bool {
        let output = &self.broker.outputs[partition as usize];
        let mut reader = Reader::joining();
        let mut skips = BTreeSet::new();
        for bytes in &output.records[output.start as usize..] {
            let (header, updates) = decode_frame(bytes).expect("owners write frames");
            match reader.fold(&header, &updates) {
                Verdict::Skip { offset } => _ = skips.insert(offset),
                Verdict::Joined | Verdict::Genesis => skips.clear(),
                _ => {}
            }
        }
        output.start > 0 && skips != self.followers[partition as usize].era.skips
    }

    /// What is missing, in words.
    pub(crate) fn stuck(&self) -> String {
        let mut words = "not caught up:".to_owned();
        for partition in 0..self.followers.len() as i32 {
            let end = self.broker.inputs[partition as usize].end;
            let mark = self.followers[partition as usize].mark();
            words += &format!(" partition {partition} ends at {end}, readers are at {mark:?}");
            for node in self.hosts.iter().filter_map(|host| host.node.as_ref()) {
                let progress = node.progress.shard(partition);
                words += &format!(
                    "; node {} has ownership {} applied {} acked {} sent {} settled {}",
                    node.name,
                    progress.ownership_id.get(),
                    progress.applied.get(),
                    progress.acked.get(),
                    progress.sent.get(),
                    progress.settled.get(),
                );
            }
        }
        words + &format!("; start errors {:?}", self.start_errors)
    }

    pub(crate) fn check_end(&mut self) -> Result<(), String> {
        self.broker.appends.check()?;
        for partition in 0..self.followers.len() as i32 {
            self.check_partition(partition)
                .map_err(|what| format!("partition {partition}: {what}"))?;
        }
        Ok(())
    }

    fn check_partition(&mut self, partition: i32) -> Result<(), String> {
        let follower = &self.followers[partition as usize];
        let input = &self.broker.inputs[partition as usize];
        if !follower.past.is_empty() && !self.is_genesis_asked {
            return Err("the zone starts over, and nobody has asked for that".to_owned());
        }
        for era in follower.past.iter().chain([&follower.era]) {
            self.check_skips(partition, era)?;
            self.common.check_takeovers(&era.takeovers)?;
            // No era has updates of two topics.
            let checked =
                self.broker.logs(partition).map(|log| self.check_era(partition, era, log));
            checked.reduce(Result::or).expect("there is an input")?;
        }
        if input.truncated_to.is_some() || self.is_hopeless(partition) {
            return Ok(());
        }
        let replay = Replay::of(input, partition, &follower.era, &self.rulebook);
        let made = replay.begin.next_update + replay.updates.len() as u64;
        let published = follower.next_update();
        if made != published || follower.mark().chain != replay.chain {
            return Err(format!("{published} updates are published of {made}"));
        }
        self.check_snapshots(partition, &replay)?;
        self.check_commits(partition, &replay)?;
        self.check_letters(partition, &replay)?;
        self.check_handoffs(&replay)?;
        self.check_digest(partition, &replay)?;
        self.check_views(partition, &replay)?;
        self.check_late_readers(partition, &replay)
    }

    /// What is published was made of this log.
    fn check_era(&self, partition: i32, era: &Era, input: &InputLog) -> Result<(), String> {
        if let Some(kept) = input.truncated_to {
            // Updates of records that are lost cannot be checked. Those before them must be right.
            let records = input.records.range(..kept).map(|(at, record)| (*at, record.clone()));
            let before = Replay::of_records(&records.collect(), partition, era, &self.rulebook);
            era.agrees_as_far(&before)
        } else {
            era.agrees(&Replay::of(input, partition, era, &self.rulebook))
        }
    }

    /// Records of all partitions that the engine fails at.
    pub(crate) fn poison_count(&self) -> u64 {
        let poison = |partition: i32| {
            let logs = self.broker.logs(partition);
            let values =
                logs.flat_map(|log| log.records.values()).flat_map(|it| it.value.as_deref());
            values.filter(|value| is_poison(partition, value)).count() as u64
        };
        (0..self.followers.len() as i32).map(poison).sum()
    }

    /// A skipped record is poison, or an operator has asked for the skip.
    fn check_skips(&self, partition: i32, era: &Era) -> Result<(), String> {
        let is_poisoned = |log: &InputLog, offset: &i64| {
            let record = log.records.get(offset).and_then(|record| record.value.as_deref());
            let is_lost = log.truncated_to.is_some_and(|kept| kept <= *offset);
            is_lost || record.is_some_and(|value| is_poison(partition, value))
        };
        let is_right = |offset: &&i64| {
            self.asked_skips.contains_key(&(partition, **offset))
                || self.broker.logs(partition).any(|log| is_poisoned(log, offset))
        };
        match era.skips.iter().find(|offset| !is_right(offset)) {
            Some(offset) => Err(format!("the record at {offset} is passed over")),
            None => Ok(()),
        }
    }

    /// A snapshot was stored: everything before it must be there already, and its mark must be
    /// where a reader of the log stood.
    pub(crate) fn check_snapshot(&mut self, header: Header) -> Result<(), String> {
        let follower = &mut self.followers[header.partition as usize];
        let output = &self.broker.outputs[header.partition as usize];
        follower.follow(output, &mut self.chance)?;
        let Header { partition, next_update, mark, .. } = header;
        let published = follower.mark().next_update;
        // With the filter gone as well, the checks have to notice the consequences.
        if next_update > published && self.mutation != Mutation::UngatedAndUnfiltered {
            let what = format!("a snapshot has made {next_update} updates of {published}");
            return Err(format!("partition {partition}: {what}"));
        }
        let stood = follower.marks.get(mark.output_offset as usize).copied();
        let stood = stood.unwrap_or(follower.mark());
        if stood != mark {
            return Err(format!(
                "partition {partition}: a snapshot's mark is {mark:?}, not {stood:?}"
            ));
        }
        self.snapshots.push((header, self.broker.letters.len()));
        Ok(())
    }

    fn check_snapshots(&self, partition: i32, replay: &Replay) -> Result<(), String> {
        let is_of_this_era = |header: &Header| {
            header.partition == partition
                && replay.begin.next_update <= header.next_update
                && self.broker.is_about_this_input(header)
        };
        for (header, letters) in self.snapshots.iter().filter(|(header, _)| is_of_this_era(header))
        {
            let there = self.letters(partition, *letters);
            let mut before = replay.letters.range(..header.next_offset);
            if let Some(lost) = before.find(|offset| !there.contains(offset)) {
                return Err(format!(
                    "a snapshot is past the dead letter {lost}, which is not there"
                ));
            }
        }
        Ok(())
    }

    /// Input offsets of a partition whose dead letters are among the first ones.
    pub(crate) fn letters(&self, partition: i32, count: usize) -> BTreeSet<i64> {
        let prefix = format!("{}/{partition}/", crate::answers::TOPIC);
        let keys = self.broker.letters[..count].iter().filter_map(|key| key.strip_prefix(&prefix));
        keys.map(|offset| offset.parse().expect("an offset")).collect()
    }

    fn check_letters(&self, partition: i32, replay: &Replay) -> Result<(), String> {
        let letters = self.letters(partition, self.broker.letters.len());
        // An era that is gone may have letters of its own, and so may an input.
        let past = &self.followers[partition as usize].past;
        let is_first = past.is_empty() && !self.broker.was_input_deleted();
        let is_of_this_era = |offset: &&i64| is_first || replay.letters.contains(*offset);
        let counted: BTreeSet<i64> = letters.iter().filter(is_of_this_era).copied().collect();
        match counted == replay.letters {
            true => Ok(()),
            false => Err(format!("dead letters {letters:?}, and not {:?}", replay.letters)),
        }
    }

    /// Every player that has left for another zone is on its way there, no matter which process has
    /// died.
    fn check_handoffs(&self, replay: &Replay) -> Result<(), String> {
        for handoff in &replay.handoffs {
            let mut value = Vec::new();
            handoff.write(&EVENTS, &mut value);
            let arrives = |record: &Record| record.value.as_ref() == Some(&value);
            let takes =
                |to: &InputLog| to.truncated_to.is_some() || to.records.values().any(arrives);
            if !self.broker.logs(handoff.to_partition()).any(takes) {
                let Departure { player_id, .. } = handoff.departure;
                return Err(format!("player {player_id} is lost on its way: {handoff:?}"));
            }
        }
        Ok(())
    }

    fn check_digest(&self, partition: i32, replay: &Replay) -> Result<(), String> {
        let nodes = || self.hosts.iter().filter_map(|host| host.node.as_ref());
        let plays = |node: &&Node| {
            let progress = node.progress.shard(partition);
            progress.ownership_id.get() != 0 && progress.following.get() == 0
        };
        // One of several was fenced and does not know it; its zone may have started over since.
        let is_disputed = nodes().filter(plays).count() > 1;
        for node in nodes().filter(|node| !(is_disputed && plays(node))) {
            let progress = node.progress.shard(partition);
            let end = self.broker.inputs[partition as usize].end;
            // A copy of another edition keeps the state of its own.
            let is_of_other_edition =
                node.control.rulebook.version() != self.common.version_of(replay.shard.ruleset());
            // Before the first event nothing has told the digest.
            if end > 0
                && !is_of_other_edition
                && progress.ownership_id.get() != 0
                && progress.published.get() == end
                && progress.acked.get() == end
                && progress.digest.get() != replay.shard.digest()
            {
                return Err(format!("node {} has another state", node.name));
            }
        }
        Ok(())
    }

    /// Readers that join later end in the same state.
    fn check_late_readers(&mut self, partition: i32, replay: &Replay) -> Result<(), String> {
        let output = &self.broker.outputs[partition as usize];
        for _ in 0..3 {
            let at = self.chance.below(output.end() as u64 + 1) as i64;
            let mut reader = Follower::joining(at);
            reader.follow(output, &mut self.chance)?;
            let whole = &self.followers[partition as usize];
            // Where it does not, it may have taken what an owner made that was fenced before.
            if reader.stands_with(whole) {
                reader
                    .era
                    .agrees(replay)
                    .map_err(|what| format!("a reader that came at {at}: {what}"))?;
            }
            if !reader.has_come_to(whole, output, at) {
                let (mark, whole) = (reader.mark(), whole.mark());
                return Err(format!(
                    "a reader that came at {at} stands at {mark:?}, not {whole:?}"
                ));
            }
        }
        Ok(())
    }
}

/// Whether a record is what a simulated engine fails at (`game.rs`).
fn is_poison(partition: i32, value: &[u8]) -> bool {
    let event = Decoder::new(&EVENTS)
        .decode::<Action>(RecordPosition { offset: 0, time_ms: 0 }, Some(value));
    let zone = Some(partition as u16);
    event.is_ok_and(|event| matches!(event.action, Action::Leave { to_zone } if to_zone == zone))
}
