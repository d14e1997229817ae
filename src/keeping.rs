//! The keeper's part of the wiring: the state directory, the buffers that go round, and who gets
//! which end.

use crate::failure::Failure;
use crate::hot::KeeperEnds;
use crate::limits::{
    CAPTURE_BUFFERS, CAPTURE_MESSAGES_MAX, COPIES_WAITING_MAX, KEEPER_END_MS_MAX, MESSAGES_MAX,
};
use crate::progress::TopicId;
use crate::publisher::Gate;
use crate::publisher::bell::Bell;
use crate::queue::{self, Sender, bounded};
use crate::recovery::capture::Buffer;
use crate::recovery::disk::{DirectoryError, Files, StateDirectory};
use crate::recovery::keeper::{self, Keeper};
use crate::recovery::slots::Store;
use crate::recovery::snapshot::{Header, Origin};
use crate::recovery::{copier, copies};
use crate::service::config::Config;
use crate::service::{self, Observed};
use crate::threads::{joined_within, spawn};
use std::iter;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// What each thread is given for snapshots.
pub struct Keeping {
    /// The hot thread's; `None`: there are no snapshots.
    pub hot: Option<KeeperEnds>,
    /// The publisher's.
    pub gates: Sender<Gate>,
    /// Rung by the publisher after a gate.
    pub bell: Arc<Bell>,
    /// What the keeper's threads are given.
    pub keeper: Option<KeeperParts>,
    /// Where the control thread looks for snapshots.
    pub snapshots: Option<Store<Files>>,
}

/// What the threads behind the hot thread's captures are given.
pub struct KeeperParts {
    keeper: Keeper<Files>,
    ends: keeper::Ends,
    copier: Option<(copies::Options, Store<Files>, mpsc::Receiver<Header>)>,
}

/// The threads behind the hot thread's captures.
pub struct KeeperThreads {
    keeper: JoinHandle<()>,
    copier: Option<JoinHandle<()>>,
}

impl KeeperParts {
    /// Starts the threads.
    pub fn start(self, stop: &Arc<AtomicBool>) -> Result<KeeperThreads, Failure> {
        let KeeperParts { keeper, ends, copier } = self;
        let metrics = ends.metrics.clone();
        let copier = match copier {
            Some((options, store, stored)) => {
                let ends = copier::Ends { stored, stop: stop.clone(), metrics };
                Some(spawn("copier", stop, move || copier::run(&options, store, &ends))?)
            }
            None => None,
        };
        let keeper = spawn("keeper", stop, || keeper::run(keeper, ends))?;
        Ok(KeeperThreads { keeper, copier })
    }
}

impl KeeperThreads {
    /// Waits until the last snapshots are stored and copied, if disk and brokers let them be.
    pub fn wait(self) {
        let wait_max = Duration::from_millis(KEEPER_END_MS_MAX);
        for thread in iter::once(self.keeper).chain(self.copier) {
            let name = thread.thread().name().unwrap_or_default().to_owned();
            if !joined_within(thread, wait_max) {
                tracing::warn!("the {name} is not waited for any longer: its last work is lost");
            }
        }
    }
}

impl Keeping {
    /// Takes the state directory. If it cannot be used, the daemon goes on without snapshots; if
    /// another daemon uses it, one of both is set up wrongly.
    pub fn new(config: &Config, observed: &Observed) -> Result<Keeping, Failure> {
        let (gates, keeper_gates) = bounded(MESSAGES_MAX);
        let bell = Arc::new(Bell::new().map_err(service::Error::Resources)?);
        let without = Keeping { hot: None, gates, bell, keeper: None, snapshots: None };
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
    ) -> Keeping {
        let (hot_messages, messages) = bounded(CAPTURE_MESSAGES_MAX);
        let (free_buffers, hot_free_buffers) = bounded(CAPTURE_BUFFERS);
        for _ in 0..CAPTURE_BUFFERS {
            let given = free_buffers.try_send(Buffer::new());
            assert!(given.is_ok(), "there is room for every buffer");
        }
        let origin = origin(config, &observed.progress.input_topic_id);
        let store = || Store::new(directory.files(), origin.clone(), config.snapshot.keep);
        let copier = copy_options(config, &origin).map(|options| {
            let (stored, stored_receiver) = sync_channel(COPIES_WAITING_MAX);
            (stored, (options, store(), stored_receiver))
        });
        let (stored, copier) = copier.unzip();
        let Observed { metrics, progress, .. } = observed.clone();
        let bell = self.bell.clone();
        let ends = keeper::Ends { messages, free_buffers, gates, bell, stored, progress, metrics };
        let hot = KeeperEnds {
            messages: hot_messages,
            free_buffers: hot_free_buffers,
            bell: self.bell.clone(),
            every: Duration::from_millis(config.snapshot.every_ms),
        };
        let keeper = Some(KeeperParts { keeper: Keeper::new(store()), ends, copier });
        Keeping { hot: Some(hot), keeper, snapshots: Some(store()), ..self }
    }
}

/// How copies of snapshots are reached; `None`: there are none.
pub fn copy_options(config: &Config, origin: &Origin) -> Option<copies::Options> {
    Some(copies::Options {
        brokers: config.consumer.brokers.clone(),
        client_id: config.consumer.client_id.clone(),
        group: config.consumer.group.clone(),
        topic: config.snapshot.topic.clone()?,
        origin: origin.clone(),
    })
}

/// The topics that the snapshots of this configuration are about.
pub fn origin(config: &Config, input_topic_id: &TopicId) -> Origin {
    Origin {
        cluster_id: String::new(),
        input_topic: config.consumer.input_topic.clone(),
        input_topic_id: input_topic_id.clone(),
        output_topic: config.publisher.output_topic.clone(),
    }
}
