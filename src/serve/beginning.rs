//! Where a zone begins: with its newest snapshot, from the state directory or the topic of
//! replicas, else at the start of its log.

use crate::kafka::client::ClientOptions;
use crate::output::mark::Mark;
use crate::serve::feed::FeedOptions;
use crate::serve::follower::Follower;
use crate::snapshot::SnapshotOptions;
use crate::snapshot::disk::Files;
use crate::snapshot::format::{Header, Origin, SnapshotError};
use crate::snapshot::replicas::{ReplicaError, ReplicaOptions, Replicas};
use crate::snapshot::slots::Store;
use crate::telemetry::progress::TopicId;
use crate::view::game::{ViewedGame, ZoneImage};
use crate::view::zone::{ZonePosition, ZoneView};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

/// Finds the snapshots with which zones begin.
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

/// Why there is no beginning, and what to do.
pub(super) enum NoBeginning {
    /// No broker says now where the log starts and ends, or has the replica that the zone needs.
    NotNow(String),
    /// The log has lost what the zone needs.
    Never(String),
}

impl Beginnings {
    /// Creates the finder. No snapshot is refused yet.
    pub(super) fn new(options: &FeedOptions) -> Beginnings {
        let FeedOptions { client, input_topic, output_topic, snapshots, .. } = options.clone();
        let origin = Origin { input_topic, output_topic, ..Origin::default() };
        Beginnings { client, snapshots, origin, refused: Vec::new() }
    }

    /// Notes the id of the input topic.
    pub(super) fn know_input(&mut self, id: u128) {
        self.origin.input_topic_id = TopicId::new(OnceLock::from(id.to_be_bytes()));
    }

    /// Notes that the output does not confirm this mark. Its snapshot is not used again.
    pub(super) fn refuse(&mut self, zone: u16, mark: Mark) {
        self.refused.push((zone, mark));
    }

    /// Returns the beginning of a zone, and where its log ends (exclusive). `survey` says where the
    /// log starts and ends, or why nobody does now.
    pub(super) fn find(
        &self,
        zone: u16,
        survey: &dyn Fn() -> Result<(i64, i64), String>,
        game: &Arc<dyn ViewedGame>,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<(Beginning, i64), NoBeginning> {
        let (log_start, log_end) = survey().map_err(NoBeginning::NotNow)?;
        let log_end = RefCell::new(Ok(log_end));
        let reaches = |offset: i64| {
            let is_short = log_end.borrow().as_ref().is_ok_and(|end| *end < offset);
            // The snapshot may have been stored since.
            if is_short {
                *log_end.borrow_mut() = survey().map(|(_, end)| end);
            }
            log_end.borrow().as_ref().is_ok_and(|end| offset <= *end)
        };
        // The output may have been created again with the input, so a log that is whole is read
        // instead.
        let is_usable = |header: &Header| {
            let Mark { output_offset, .. } = header.mark;
            let is_there = log_start <= output_offset && reaches(output_offset);
            let is_refused = self.refused.contains(&(zone, header.mark));
            is_there && !is_refused && (log_start > 0 || header.origin.agrees(&self.origin))
        };
        let stored = self.stored(zone, &is_usable, &**game);
        let replicated = match self.replicated(zone, &is_usable, &**game, watch) {
            Ok(replicated) => replicated,
            Err(error @ (ReplicaError::Topic { .. } | ReplicaError::GivenUp))
                if log_start > 0 && stored.is_none() =>
            {
                return Err(NoBeginning::NotNow(error.to_string()));
            }
            Err(error) => {
                tracing::warn!(zone, "no replica of a snapshot is used: {error}");
                None
            }
        };
        let found = [stored, replicated].into_iter().flatten();
        let log_end = log_end.borrow().clone().map_err(NoBeginning::NotNow)?;
        match found.max_by_key(|(_, header)| header.recency(&self.origin)) {
            Some((image, header)) => {
                let (follower, begun, next_record) =
                    Follower::from_snapshot(image, &header, game.clone(), log_start);
                let ZonePosition { update: next_update, next_offset } = begun.position();
                tracing::info!(zone, next_update, next_offset, "began with a snapshot");
                Ok((Beginning { follower, begun: Some(begun), next_record }, log_end))
            }
            None if log_start > 0 => Err(NoBeginning::Never(format!(
                "its log begins at offset {log_start} and there is no snapshot to begin \
                 with: set snapshot.directory or snapshot.topic as for huntd run"
            ))),
            None => {
                let follower = Follower::from_start(zone, game.clone());
                Ok((Beginning { follower, begun: None, next_record: log_start }, log_end))
            }
        }
    }

    fn stored(
        &self,
        zone: u16,
        is_usable: &dyn Fn(&Header) -> bool,
        game: &dyn ViewedGame,
    ) -> Option<(ZoneImage, Header)> {
        let SnapshotOptions { directory, keep, .. } = &self.snapshots;
        let files = Files::of(directory.as_deref()?);
        let mut store = Store::new(files, self.origin.clone(), *keep);
        let found = store.candidates(zone.into()).inspect_err(|error| {
            tracing::warn!(zone, "the snapshots of this host are not used: {error}");
        });
        let mut candidates = found.ok()?;
        candidates.retain(is_usable);
        candidates.sort_by_key(|header| Reverse(header.recency(&self.origin)));
        candidates.into_iter().find_map(|header| {
            let image = store.state(&header).and_then(|state| restore(game, &header, &state));
            match image {
                Ok(image) => Some((image, header)),
                Err(error) => {
                    tracing::warn!(zone, "a snapshot is not used: {error}");
                    None
                }
            }
        })
    }

    fn replicated(
        &self,
        zone: u16,
        is_usable: &dyn Fn(&Header) -> bool,
        game: &dyn ViewedGame,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Option<(ZoneImage, Header)>, ReplicaError> {
        let Some(topic) = self.snapshots.topic.clone() else { return Ok(None) };
        let (client, origin) = (self.client.clone(), self.origin.clone());
        let replicas = Replicas::connect(ReplicaOptions { client, topic, origin })?;
        let Some(newest) = replicas.newest(zone.into(), is_usable, watch)? else {
            return Ok(None);
        };
        let state = replicas.state(&newest, watch)?;
        Ok(Some((restore(game, &newest.header, &state)?, newest.header)))
    }
}

/// Restores the zone of a snapshot.
fn restore(
    game: &dyn ViewedGame,
    header: &Header,
    state: &[u8],
) -> Result<ZoneImage, SnapshotError> {
    let image = game.restore(state)?;
    header.check(image.partition(), image.digest())?;
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::security::Security;
    use crate::testing::hostile_zone::rulebook;
    use rdkafka::mocking::MockCluster;

    #[test]
    fn a_zone_that_needs_a_replica_waits_for_the_leader_that_has_it() {
        let cluster = MockCluster::new(1).expect("a mock cluster");
        cluster.create_topic("snapshots", 1, 1).expect("a topic");
        let client = ClientOptions {
            brokers: vec![cluster.bootstrap_servers()],
            client_id: "test".to_owned(),
            security: Security::default(),
            group: "test".to_owned(),
        };
        let topic = Some("snapshots".to_owned());
        let snapshots = SnapshotOptions { directory: None, every_ms: 1, keep: 1, topic };
        let (origin, refused) = (Origin::default(), Vec::new());
        let beginnings = Beginnings { client, snapshots, origin, refused };
        let game: Arc<dyn ViewedGame> = Arc::new(rulebook(false));
        let find = |log_start| {
            let survey = || Ok((log_start, 9));
            beginnings.find(0, &survey, &game, &mut || ControlFlow::Continue(()))
        };
        assert!(matches!(find(5), Err(NoBeginning::Never(_))), "there is no replica");
        cluster.partition_leader("snapshots", 0, None).expect("a partition");
        assert!(matches!(find(5), Err(NoBeginning::NotNow(_))), "there may be one");
        let (beginning, _) = find(0).ok().expect("the whole log is there");
        assert!(beginning.begun.is_none() && beginning.next_record == 0);
    }
}
