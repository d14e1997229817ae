//! Wiring of the snapshots: the state directory, the buffers that circulate, and the threads that
//! store the hot thread's checkpoints.

use crate::daemon::failure::Failure;
use crate::daemon::threads::{joined_within, spawn};
use crate::queue::bell::Bell;
use crate::queue::{Receiver, Sender, bounded};
use crate::service::config::Config;
use crate::service::{self, Observed};
use crate::shards::checkpoints::CheckpointEnds;
use crate::snapshot::checkpoint::{Buffer, CHECKPOINT_BUFFERS, ToSnapshots};
use crate::snapshot::disk::{DirectoryError, Files, StateDirectory};
use crate::snapshot::format::{Header, Origin};
use crate::snapshot::replicator::{REPLICAS_WAITING_MAX, REPLICATOR_END_MS_MAX};
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

/// Each thread's ends for snapshots.
pub(crate) struct SnapshotWiring {
    /// The hot thread's; `None` if there are no snapshots.
    pub checkpoints: Option<CheckpointEnds>,
    /// The publisher's. Without snapshots it has no receiver.
    pub to_writer: Sender<ToSnapshots>,
    /// Wakes the writer.
    pub writer_bell: Arc<Bell>,
    /// The threads that store checkpoints.
    pub threads: Option<SnapshotThreads>,
    /// Where the control thread finds snapshots.
    pub store: Option<Store<Files>>,
}

/// The threads that store checkpoints, before they are started.
pub(crate) struct SnapshotThreads {
    writer: SnapshotWriter<Files>,
    ends: writer::WriterEnds,
    replicator: Option<(replicas::ReplicaOptions, Store<Files>, mpsc::Receiver<Header>)>,
}

/// The running threads that store checkpoints.
pub(crate) struct RunningSnapshotThreads {
    writer: JoinHandle<()>,
    replicator: Option<JoinHandle<()>>,
}

impl SnapshotThreads {
    /// Starts the threads.
    pub(crate) fn start(self, stop: &Arc<AtomicBool>) -> Result<RunningSnapshotThreads, Failure> {
        let SnapshotThreads { writer, ends, replicator } = self;
        let (metrics, progress) = (ends.metrics.clone(), ends.progress.clone());
        let replicator = match replicator {
            Some((options, store, stored)) => {
                let ends = replicator::ReplicatorEnds { stored, progress, metrics };
                Some(spawn("replicator", stop, move || replicator::run(&options, store, &ends))?)
            }
            None => None,
        };
        let writer = spawn("snapshots", stop, || writer::run(writer, ends))?;
        Ok(RunningSnapshotThreads { writer, replicator })
    }
}

impl RunningSnapshotThreads {
    /// Waits until the last snapshots are stored and replicated, as far as disk and brokers allow.
    pub(crate) fn wait(self) {
        let writer = iter::once((self.writer, WRITER_END_MS_MAX));
        let replicator = self.replicator.map(|thread| (thread, REPLICATOR_END_MS_MAX));
        for (thread, ms_max) in writer.chain(replicator) {
            let name = thread.thread().name().unwrap_or_default().to_owned();
            if !joined_within(thread, Duration::from_millis(ms_max)) {
                tracing::warn!("the thread `{name}` does not end in time: its last work is lost");
            }
        }
    }
}

impl SnapshotWiring {
    /// Opens the state directory. If it cannot be used, the daemon continues without snapshots. If
    /// another daemon uses it, the start fails, because one of them is misconfigured.
    pub(crate) fn new(config: &Config, observed: &Observed) -> Result<SnapshotWiring, Failure> {
        let (to_writer, messages) = bounded(WRITER_MESSAGES_MAX);
        let writer_bell = Arc::new(Bell::new().map_err(service::Error::Resources)?);
        let without = SnapshotWiring {
            checkpoints: None,
            to_writer,
            writer_bell,
            threads: None,
            store: None,
        };
        let Some(directory) = &config.snapshot.directory else {
            tracing::warn!(
                "no snapshot.directory is set and systemd provides none: every start replays the \
                 input from its start"
            );
            return Ok(without);
        };
        match StateDirectory::take(directory) {
            Ok(directory) => Ok(without.with(&directory, messages, config, observed)),
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
        messages: Receiver<ToSnapshots>,
        config: &Config,
        observed: &Observed,
    ) -> SnapshotWiring {
        let (free_buffers, hot_free_buffers) = bounded(CHECKPOINT_BUFFERS);
        for _ in 0..CHECKPOINT_BUFFERS {
            let given = free_buffers.try_send(Buffer::new());
            assert!(given.is_ok(), "there is room for every buffer");
        }
        let origin = origin(config, &observed.progress.input_topic_id);
        let store = || Store::new(directory.files(), origin.clone(), config.snapshot.keep);
        let replicator = replica_options(config, &origin).map(|options| {
            let (stored, stored_receiver) = sync_channel(REPLICAS_WAITING_MAX);
            (stored, (options, store(), stored_receiver))
        });
        let (stored, replicator) = replicator.unzip();
        let Observed { metrics, progress, .. } = observed.clone();
        let bell = self.writer_bell.clone();
        let checkpoints = CheckpointEnds {
            writer: self.to_writer.clone(),
            bell: bell.clone(),
            free_buffers: hot_free_buffers,
            every: Duration::from_millis(config.snapshot.every_ms),
        };
        let writer = SnapshotWriter::new(store());
        let ends = writer::WriterEnds { messages, bell, free_buffers, stored, progress, metrics };
        let threads = Some(SnapshotThreads { writer, ends, replicator });
        SnapshotWiring { checkpoints: Some(checkpoints), threads, store: Some(store()), ..self }
    }
}

/// How to reach the snapshot topic; `None` if there is none.
pub fn replica_options(config: &Config, origin: &Origin) -> Option<replicas::ReplicaOptions> {
    Some(replicas::ReplicaOptions {
        client: config.group.client.clone(),
        topic: config.snapshot.topic.clone()?,
        origin: origin.clone(),
    })
}

/// The topics that the snapshots of this configuration belong to.
pub fn origin(config: &Config, input_topic_id: &TopicId) -> Origin {
    Origin {
        cluster_id: String::new(),
        input_topic: config.fetch.input_topic.clone(),
        input_topic_id: input_topic_id.clone(),
        output_topic: config.publisher.output_topic.clone(),
    }
}
