//! Where a zone begins: with its newest snapshot, from the state directory or the topic of
//! replicas, else at the start of its log.

use crate::hunt::Shard;
use crate::hunt::rules::rulebook::Rulebook;
use crate::kafka::client::ClientOptions;
use crate::output::mark::Mark;
use crate::serve::feed::FeedOptions;
use crate::serve::follower::Follower;
use crate::snapshot::SnapshotOptions;
use crate::snapshot::disk::Files;
use crate::snapshot::format::{Header, Origin};
use crate::snapshot::replicas::{ReplicaOptions, Replicas};
use crate::snapshot::slots::Store;
use crate::telemetry::progress::TopicId;
use crate::view::zone::{ZonePosition, ZoneView};
use std::cmp::Reverse;
use std::ops::ControlFlow;
use std::sync::OnceLock;

/// Where snapshots are looked for, and which are not taken.
pub(super) struct Beginnings {
    client: ClientOptions,
    snapshots: SnapshotOptions,
    /// The topics, as they are named, and the input's id when the feed began.
    origin: Origin,
    /// Marks of snapshots that are not of this output, and their zones.
    refused: Vec<(u16, Mark)>,
}

/// The beginning of one zone.
pub(super) struct Beginning {
    /// Takes what is read.
    pub follower: Follower,
    /// The zone as its snapshot has it; `None`: the log decides.
    pub begun: Option<Box<ZoneView>>,
    /// Offset of the record that is read first.
    pub next_record: i64,
}

impl Beginnings {
    /// Nothing is refused yet.
    pub(super) fn new(options: &FeedOptions) -> Beginnings {
        let FeedOptions { client, input_topic, output_topic, snapshots, .. } = options.clone();
        let origin = Origin { input_topic, output_topic, ..Origin::default() };
        Beginnings { client, snapshots, origin, refused: Vec::new() }
    }

    /// The input topic has this id.
    pub(super) fn know_input(&mut self, id: u128) {
        self.origin.input_topic_id = TopicId::new(OnceLock::from(id.to_be_bytes()));
    }

    /// The output does not confirm this mark: its snapshot is taken no more.
    pub(super) fn refuse(&mut self, zone: u16, mark: Mark) {
        self.refused.push((zone, mark));
    }

    /// Where a zone begins whose log reaches from start to end (exclusive); or why it cannot, and
    /// what to do.
    pub(super) fn find(
        &self,
        zone: u16,
        (log_start, log_end): (i64, i64),
        rulebook: &Rulebook,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Beginning, String> {
        // The output may have been created again with the input, so a log that is whole is read
        // instead.
        let is_usable = |header: &Header| {
            let is_there = (log_start..=log_end).contains(&header.mark.output_offset);
            let is_refused = self.refused.contains(&(zone, header.mark));
            is_there && !is_refused && (log_start > 0 || header.origin.agrees(&self.origin))
        };
        let stored = self.stored(zone, &is_usable, rulebook);
        let replicated = self.replicated(zone, &is_usable, rulebook, watch);
        let found = [stored, replicated].into_iter().flatten();
        match found.max_by_key(|(_, header)| header.recency(&self.origin)) {
            Some((shard, header)) => {
                let (follower, begun, next_record) =
                    Follower::from_snapshot(&shard, &header, rulebook, log_start);
                let ZonePosition { update: next_update, next_offset } = begun.position();
                tracing::info!(zone, next_update, next_offset, "began with a snapshot");
                Ok(Beginning { follower, begun: Some(begun), next_record })
            }
            None if log_start > 0 => Err(format!(
                "its log begins at offset {log_start} and there is no snapshot to begin \
                 with: set snapshot.directory or snapshot.topic as for huntd run"
            )),
            None => {
                let follower = Follower::from_start(zone, rulebook);
                Ok(Beginning { follower, begun: None, next_record: log_start })
            }
        }
    }

    fn stored(
        &self,
        zone: u16,
        is_usable: &dyn Fn(&Header) -> bool,
        rulebook: &Rulebook,
    ) -> Option<(Box<Shard>, Header)> {
        let SnapshotOptions { directory, keep, .. } = &self.snapshots;
        let files = Files::of(directory.as_deref()?);
        let mut store = Store::new(files, self.origin.clone(), *keep);
        let mut candidates = store.candidates(zone.into());
        candidates.retain(is_usable);
        candidates.sort_by_key(|header| Reverse(header.recency(&self.origin)));
        candidates.into_iter().find_map(|header| match store.load(&header, rulebook) {
            Ok(shard) => Some((shard, header)),
            Err(error) => {
                tracing::warn!(zone, "a snapshot is not used: {error}");
                None
            }
        })
    }

    fn replicated(
        &self,
        zone: u16,
        is_usable: &dyn Fn(&Header) -> bool,
        rulebook: &Rulebook,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Option<(Box<Shard>, Header)> {
        let topic = self.snapshots.topic.clone()?;
        let (client, origin) = (self.client.clone(), self.origin.clone());
        let replicas = Replicas::connect(ReplicaOptions { client, topic, origin });
        let loaded = replicas.and_then(|replicas| {
            let Some(newest) = replicas.newest(zone.into(), is_usable, watch)? else {
                return Ok(None);
            };
            let shard = replicas.load(&newest, rulebook, watch)?;
            Ok(Some((shard, newest.header)))
        });
        loaded.unwrap_or_else(|error| {
            tracing::warn!(zone, "no replica of a snapshot is used: {error}");
            None
        })
    }
}
