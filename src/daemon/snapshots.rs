//! The keeper's part of the wiring: the state directory, the buffers that go round, and who gets
//! which end.

use crate::control::MESSAGES_MAX;
use crate::daemon::failure::Failure;
use crate::daemon::hot::CheckpointEnds;
use crate::daemon::threads::{joined_within, spawn};
use crate::publisher::Gate;
use crate::queue::bell::Bell;
use crate::queue::{self, Sender, bounded};
use crate::service::config::Config;
use crate::service::{self, Observed};
use crate::snapshot::checkpoint::{Buffer, CHECKPOINT_BUFFERS};
use crate::snapshot::disk::{DirectoryError, Files, StateDirectory};
use crate::snapshot::format::{Header, Origin};
use crate::snapshot::replicator::REPLICAS_WAITING_MAX;
use crate::snapshot::slots::Store;
use crate::snapshot::writer::{self, SnapshotWriter, WRITER_END_MS_MAX, WRITER_MESSAGES_MAX};
use crate::snapshot::{replicas, replicator};
use crate::telemetry::progress::TopicId;
use std::iter;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// What each thread is given for snapshots.
pub struct SnapshotWiring {
    /// The hot thread's; `None`: there are no snapshots.
    pub hot: Option<CheckpointEnds>,
    /// The publisher's.
    pub gates: Sender<Gate>,
    /// Rung by the publisher after a gate.
    pub bell: Arc<Bell>,
    /// What the keeper's threads are given.
    pub keeper: Option<SnapshotParts>,
    /// Where the control thread looks for snapshots.
    pub snapshots: Option<Store<Files>>,
}

/// What the threads behind the hot thread's captures are given.
pub struct SnapshotParts {
    keeper: SnapshotWriter<Files>,
    ends: writer::WriterEnds,
    copier: Option<(replicas::ReplicaOptions, Store<Files>, mpsc::Receiver<Header>)>,
}

/// The threads behind the hot thread's captures.
pub struct SnapshotThreads {
    keeper: JoinHandle<()>,
    copier: Option<JoinHandle<()>>,
}

impl SnapshotParts {
    /// Starts the threads.
    pub fn start(self, stop: &Arc<AtomicBool>) -> Result<SnapshotThreads, Failure> {
        let SnapshotParts { keeper, ends, copier } = self;
        let metrics = ends.metrics.clone();
        let copier = match copier {
            Some((options, store, stored)) => {
                let ends = replicator::ReplicatorEnds { stored, stop: stop.clone(), metrics };
                Some(spawn("copier", stop, move || replicator::run(&options, store, &ends))?)
            }
            None => None,
        };
        let keeper = spawn("keeper", stop, || writer::run(keeper, ends))?;
        Ok(SnapshotThreads { keeper, copier })
    }
}

impl SnapshotThreads {
    /// Waits until the last snapshots are stored and copied, if disk and brokers let them be.
    pub fn wait(self) {
        let wait_max = Duration::from_millis(WRITER_END_MS_MAX);
        for thread in iter::once(self.keeper).chain(self.copier) {
            let name = thread.thread().name().unwrap_or_default().to_owned();
            if !joined_within(thread, wait_max) {
                tracing::warn!("the {name} is not waited for any longer: its last work is lost");
            }
        }
    }
}

impl SnapshotWiring {
    /// Takes the state directory. If it cannot be used, the daemon goes on without snapshots; if
    /// another daemon uses it, one of both is set up wrongly.
    pub fn new(config: &Config, observed: &Observed) -> Result<SnapshotWiring, Failure> {
        let (gates, keeper_gates) = bounded(MESSAGES_MAX);
        let bell = Arc::new(Bell::new().map_err(service::Error::Resources)?);
        let without = SnapshotWiring { hot: None, gates, bell, keeper: None, snapshots: None };
        let Some(directory) = &config.snapshot.directory else {
            tracing::warn!(
                "no snapshot.directory is set and systemd gives none: every start replays the \
                 input from its start"
            );
            return Ok(without);
        };
        match StateDirectory::take(directory) {
            Ok(directory) => Ok(without.with(&directory, keeper_gates, config, observed)),
            Err(error @ DirectoryError::InUse(_)) => Err(error.into()),
            Err(error @ DirectoryError::Unusable { .. }) => {
                tracing::warn!("{error}; until then there are no snapshots");
                Ok(without)
            }
        }
    }

    fn with(
        self,
        directory: &StateDirectory,
        gates: queue::Receiver<Gate>,
        config: &Config,
        observed: &Observed,
    ) -> SnapshotWiring {
        let (hot_messages, messages) = bounded(WRITER_MESSAGES_MAX);
        let (free_buffers, hot_free_buffers) = bounded(CHECKPOINT_BUFFERS);
        for _ in 0..CHECKPOINT_BUFFERS {
            let given = free_buffers.try_send(Buffer::new());
            assert!(given.is_ok(), "there is room for every buffer");
        }
        let origin = origin(config, &observed.progress.input_topic_id);
        let store = || Store::new(directory.files(), origin.clone(), config.snapshot.keep);
        let copier = copy_options(config, &origin).map(|options| {
            let (stored, stored_receiver) = sync_channel(REPLICAS_WAITING_MAX);
            (stored, (options, store(), stored_receiver))
        });
        let (stored, copier) = copier.unzip();
        let Observed { metrics, progress, .. } = observed.clone();
        let bell = self.bell.clone();
        let ends =
            writer::WriterEnds { messages, free_buffers, gates, bell, stored, progress, metrics };
        let hot = CheckpointEnds {
            messages: hot_messages,
            free_buffers: hot_free_buffers,
            bell: self.bell.clone(),
            every: Duration::from_millis(config.snapshot.every_ms),
        };
        let keeper = Some(SnapshotParts { keeper: SnapshotWriter::new(store()), ends, copier });
        SnapshotWiring { hot: Some(hot), keeper, snapshots: Some(store()), ..self }
    }
}

/// How copies of snapshots are reached; `None`: there are none.
pub fn copy_options(config: &Config, origin: &Origin) -> Option<replicas::ReplicaOptions> {
    Some(replicas::ReplicaOptions {
        client: config.group.client.clone(),
        topic: config.snapshot.topic.clone()?,
        origin: origin.clone(),
    })
}

/// The topics that the snapshots of this configuration are about.
pub fn origin(config: &Config, input_topic_id: &TopicId) -> Origin {
    Origin {
        cluster_id: String::new(),
        input_topic: config.fetch.input_topic.clone(),
        input_topic_id: input_topic_id.clone(),
        output_topic: config.publisher.output_topic.clone(),
    }
}
