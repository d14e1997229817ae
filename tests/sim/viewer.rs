//! Views of the world as `huntd serve` has them, beside the readers and compared with the replay.

use crate::broker::OutputLog;
use crate::chance::{Chance, Sight};
use crate::mutation::Mutation;
use crate::reader::{Follower as Reading, Replay};
use crate::sim::Sim;
use crate::surroundings::whole_store;
use huntd::hunt::Shard;
use huntd::hunt::change::Change;
use huntd::hunt::frames::{decode_frame, encode};
use huntd::hunt::rules::rulebook::Rulebook;
use huntd::kit::update::Update;
use huntd::output::frame::{Chain, Format, FrameHeader, FrameKind};
use huntd::output::mark::Mark;
use huntd::serve::answers::{Served, ZoneState};
use huntd::serve::exchange::Exchange;
use huntd::serve::follower::{Followed, Follower};
use huntd::serve::gate::Gate;
use huntd::snapshot::format::Header;
use huntd::view::game::ZoneImage;
use huntd::view::zone::{ZonePosition, ZoneView};
use std::sync::Arc;
use std::time::Duration;

/// A view of one zone.
pub(crate) struct Viewer {
    zone: u16,
    follower: Follower,
    served: Served,
    /// The output offset that is read next.
    next: i64,
    mutation: Mutation,
    /// Updates that [`Mutation::ViewAnswersEarly`] folds with the next frame.
    held: Vec<Update>,
    /// Why the log is not the one that the snapshot was taken in.
    other_log: Option<String>,
}

impl Viewer {
    /// A view from the log's start on.
    pub(crate) fn from_start(zone: u16, rulebook: &Rulebook, mutation: Mutation) -> Viewer {
        Viewer {
            zone,
            follower: Follower::from_start(zone, Arc::new(rulebook.clone())),
            served: Served::new(rulebook, usize::from(zone) + 1, Duration::from_secs(2)),
            next: 0,
            mutation,
            held: Vec::new(),
            other_log: None,
        }
    }

    /// A view that begins with a snapshot.
    fn from_snapshot(
        header: &Header,
        shard: &Shard,
        rulebook: &Rulebook,
        log: &OutputLog,
    ) -> Viewer {
        let game = Arc::new(rulebook.clone());
        let (follower, zone, next) =
            Follower::from_snapshot(ZoneImage::of(shard), header, game, log.start);
        let mut viewer = Viewer::from_start(shard.partition(), rulebook, Mutation::None);
        (viewer.follower, viewer.next) = (follower, next);
        viewer.served.begin(*zone);
        viewer
    }

    /// Follows another log than the snapshot's. Returns whether the snapshot is given up; if it is
    /// not, the view must be right.
    fn check_other_log(mut self, log: &OutputLog, expected: &str) -> Result<bool, String> {
        while self.next < log.end() && self.other_log.is_none() {
            self.take(&Mark::default(), log.records[self.next as usize].clone())?;
            self.next += 1;
        }
        if self.other_log.is_some() {
            return Ok(true);
        }
        match self.answers()? {
            found if found == expected => Ok(false),
            found => Err(first_difference(&found, expected)),
        }
    }

    /// Reads what has come. After each record a client must find it where the reader stands.
    pub(crate) fn follow(&mut self, log: &OutputLog, reading: &Reading) -> Result<(), String> {
        while self.next < log.end() {
            let offset = self.next;
            self.read(log, reading)?;
            let after = reading.marks.get(self.next as usize).copied();
            let after = after.unwrap_or(reading.mark());
            self.stands_at(&after)
                .map_err(|what| format!("a view behind output offset {offset}: {what}"))?;
        }
        Ok(())
    }

    fn read(&mut self, log: &OutputLog, reading: &Reading) -> Result<(), String> {
        let before = reading.marks.get(self.next as usize).copied();
        let bytes = log.records[self.next as usize].clone();
        let taken = self.take(&before.unwrap_or(reading.mark()), bytes);
        self.next += 1;
        taken
    }

    fn take(&mut self, mark: &Mark, bytes: Vec<u8>) -> Result<(), String> {
        let Some(bytes) = self.mutated(mark, bytes) else { return Ok(()) };
        let mut given = Vec::new();
        self.follower.take(self.next, &bytes, &mut |followed| given.push(followed));
        given.into_iter().try_for_each(|followed| self.apply(followed))
    }

    /// What a broken view takes the record for. `None`: it ignores the record.
    fn mutated(&self, mark: &Mark, bytes: Vec<u8>) -> Option<Vec<u8>> {
        let Ok((mut header, updates)) = decode_frame(&bytes) else { return Some(bytes) };
        let is_updates = header.kind == FrameKind::Updates;
        match self.mutation {
            Mutation::ViewFoldsStale if header.kind != FrameKind::Fence => {
                header.owner_epoch = header.owner_epoch.max(self.follower.owner_epoch());
            }
            Mutation::ViewSkipsGenesis if header.kind == FrameKind::Genesis => return None,
            Mutation::ViewUnchained if is_updates => {
                let known = mark.next_update.checked_sub(header.first_update)?;
                let new = updates.get(known as usize..)?;
                header.chain = new.iter().fold(mark.chain, |chain, update| chain.with(update));
            }
            _ => return Some(bytes),
        }
        Some(encoded(&header, &updates))
    }

    fn apply(&mut self, followed: Followed) -> Result<(), String> {
        let owner_epoch = self.follower.owner_epoch();
        match followed {
            Followed::Begun(zone) => self.served.begin(*zone),
            Followed::Updates(updates, next_offset) => {
                let updates = match self.mutation {
                    Mutation::ViewAnswersEarly => std::mem::replace(&mut self.held, updates),
                    _ => updates,
                };
                self.served.fold(self.zone, &updates);
                self.served.seal(self.zone, next_offset, owner_epoch, 0);
            }
            Followed::OwnerHeard => {}
            Followed::OtherLog(why) => {
                self.other_log = Some(why);
                return Ok(());
            }
            Followed::Halted(sentence) => return Err(format!("a view is halted: {sentence}")),
        }
        self.served.live(self.zone, owner_epoch, None);
        match &self.served.zones[usize::from(self.zone)] {
            ZoneState::Halted(sentence) => Err(format!("a view is halted: {sentence}")),
            _ => Ok(()),
        }
    }

    /// A client that waits for the reader's offset is answered, with the reader's position.
    fn stands_at(&self, mark: &Mark) -> Result<(), String> {
        let (zone, Mark { next_update, next_offset, .. }) = (self.zone, *mark);
        let path = format!("/v1/zones/{zone}/hunts?at={zone}:{next_offset}&wait_ms=0");
        let answer = answer(&self.served, &path);
        let at = format!("\r\nHuntd-At: {zone}:{next_update}:{next_offset}\r\n");
        let is_before_all = (next_update, next_offset) == (0, 0);
        match answer.contains(&at) || is_before_all {
            true => Ok(()),
            false => Err(format!("asked for {mark:?}, it answers {answer}")),
        }
    }

    /// Everything that a client can read of the zone, except what happened before a snapshot.
    fn answers(&mut self) -> Result<String, String> {
        if let Some(begun) = self.follower.at_end() {
            self.apply(begun)?;
        }
        self.served.live(self.zone, self.follower.owner_epoch(), None);
        Ok(answers(&self.served, self.zone))
    }

    /// Updates that nobody's chain was made of must halt it.
    fn check_chain(&self, mark: &Mark, ruleset: u32) -> Result<(), String> {
        let header = FrameHeader {
            kind: FrameKind::Updates,
            owner_epoch: mark.owner_epoch,
            first_update: mark.next_update,
            count: 1,
            next_offset: mark.next_offset + 1,
            ruleset,
            chain: Chain(!mark.chain.0),
            fence_id: 0,
        };
        let update = Update::new(1, 1, Change::Moved { tile: 9, x: 1, y: 1 });
        let (mut follower, mut is_halted) = (self.follower.clone(), false);
        if let Some(bytes) = self.mutated(mark, encoded(&header, &[update])) {
            follower.take(self.next, &bytes, &mut |followed| {
                is_halted |= matches!(followed, Followed::Halted(_));
            });
        }
        is_halted.then_some(()).ok_or_else(|| "a view folds what was not published".to_owned())
    }
}

impl Sim {
    /// All views are equal to the replay, wherever they began.
    pub(crate) fn check_views(&mut self, partition: i32, replay: &Replay) -> Result<(), String> {
        let reading = &self.followers[partition as usize];
        let log = &self.broker.outputs[partition as usize];
        let mark = reading.mark();
        let position = ZonePosition { update: mark.next_update, next_offset: mark.next_offset };
        let mut expected =
            Served::new(&self.rulebook, partition as usize + 1, Duration::from_secs(2));
        expected.begin(ZoneView::of_engine(
            ZoneImage::of(&replay.shard),
            Arc::new(self.rulebook.clone()),
            position,
        ));
        expected.live(partition as u16, mark.owner_epoch, None);
        let expected = answers(&expected, partition as u16);
        let differs = |found: String, from: &str| match found == expected {
            true => Ok(()),
            false => Err(format!("a view from {from} {}", first_difference(&found, &expected))),
        };
        let viewer = &mut self.viewers[partition as usize];
        differs(viewer.answers()?, "the log's start")?;
        viewer.check_chain(&mark, replay.shard.ruleset())?;
        let mut snapshots = Vec::new();
        if let Some((header, bytes)) = self.replicas.get(&partition) {
            let shard = Shard::decode_state(bytes, &self.rulebook).expect("its own bytes");
            snapshots.push((header.clone(), Box::new(shard)));
        }
        for host in &self.hosts {
            let mut store = whole_store(&host.disk);
            for header in store.candidates(partition).expect("it can be read") {
                let shard = store.load(&header, &self.rulebook).ok();
                snapshots.extend(shard.map(|shard| (header, shard)));
            }
        }
        for (header, shard) in snapshots {
            if !(log.start..=log.end()).contains(&header.mark.output_offset) {
                continue;
            }
            let from = format!("a snapshot with {:?}", header.mark);
            let mut viewer = Viewer::from_snapshot(&header, &shard, &self.rulebook, log);
            while viewer.next < log.end() {
                viewer.read(log, reading).map_err(|what| format!("{from}: {what}"))?;
            }
            if let Some(why) = viewer.other_log {
                return Err(format!("{from} is given up: {why}"));
            }
            differs(viewer.answers()?, &from)?;
            if replay.begin.next_update > 0 {
                continue;
            }
            let log = created_again(&mut self.chance, replay, &mark, &header.mark);
            let mut viewer = Viewer::from_snapshot(&header, &shard, &self.rulebook, &log);
            if self.mutation == Mutation::MarkTrusted {
                viewer.next = viewer.next.max(header.mark.output_offset);
            }
            let is_given_up = viewer.check_other_log(&log, &expected);
            if is_given_up.map_err(|what| format!("another output, {from}: it {what}"))? {
                self.chance.see(Sight::SnapshotOfOtherOutput);
            }
        }
        Ok(())
    }
}

/// An output that was created again and got the same updates up to this mark, in other frames. It
/// has a record before the mark of a snapshot.
fn created_again(chance: &mut Chance, replay: &Replay, end: &Mark, taken: &Mark) -> OutputLog {
    let mut log = OutputLog { records: Vec::new(), start: 0, forged: None, moved_at: 0 };
    let (mut chain, mut published) = (Chain::default(), 0);
    let owner_epoch = chance.pick(&[1, taken.owner_epoch, taken.owner_epoch]);
    let mut is_whole = false;
    // A frame whose updates are known does not say how far the input is. The last one has none.
    while !is_whole || log.end() <= taken.output_offset {
        is_whole = published == replay.updates.len();
        let left = &replay.updates[published..];
        let updates = &left[..left.len().min(chance.below(4) as usize)];
        let first_update = published as u64;
        chain = updates.iter().fold(chain, |chain, update| chain.with(update));
        published += updates.len();
        let header = FrameHeader {
            kind: FrameKind::Updates,
            owner_epoch,
            first_update,
            count: updates.len() as u32,
            next_offset: if published == replay.updates.len() { end.next_offset } else { 0 },
            ruleset: replay.shard.ruleset(),
            chain,
            fence_id: 0,
        };
        log.append(encoded(&header, updates));
    }
    log
}

/// Where two answers differ first, with what stands around there.
fn first_difference(found: &str, expected: &str) -> String {
    let equal = found.bytes().zip(expected.bytes()).take_while(|(a, b)| a == b).count();
    let around = |text: &str| {
        let from = equal.saturating_sub(100).min(text.len());
        text.get(from..(from + 200).min(text.len())).unwrap_or_default().to_owned()
    };
    format!("has {:?}, the replay {:?}", around(found), around(expected))
}

fn encoded(header: &FrameHeader, updates: &[Update]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(Format::Binary, header, updates, &mut bytes);
    bytes
}

fn answer(served: &Served, path: &str) -> String {
    let mut exchange = Exchange::default();
    exchange.receive(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
    exchange.advance(served, &Gate::open(), 0);
    String::from_utf8(exchange.unsent().to_vec()).expect("an answer is text")
}

fn answers(served: &Served, zone: u16) -> String {
    let mut all = answer(served, &format!("/v1/boards/{zone}?count=100"));
    all += &answer(served, &format!("/v1/zones/{zone}/tiles"));
    let hunts = answer(served, &format!("/v1/zones/{zone}/hunts"));
    // A snapshot does not have those that ended before it.
    let (_, hunts) = hunts.split_once("\"running\"").unwrap_or_default();
    all += hunts.split_once("\"past\"").unwrap_or_default().0;
    let ids = (0..3).flat_map(|zone| (1..=6).map(move |player| 100 * zone + player));
    for id in ids {
        let card = answer(served, &format!("/v1/players/{id}?zone={zone}"));
        all += card.split_once("\r\n\r\n").unwrap_or_default().1;
    }
    all
}
