//! SIGHUP: the rules files, the keys of tokens and the log level are read again while clients are
//! served.
//!
//! A thread of its own reads the files: the serving thread may open none. systemd gets no messages
//! about this reload.

use super::gate::Gate;
use super::key_set::KeySet;
use crate::service::reload::{self, InForce};
use crate::service::shutdown::Reloads;
use crate::view::game::ViewedGame;
use smol::channel::{Receiver, Sender};
use std::rc::Rc;
use std::sync::Arc;

/// The result of a reload, for the serving thread.
pub(super) struct Reloaded {
    keys: Option<KeySet>,
    rulesets: Vec<u32>,
}

/// Reads the files again.
pub(super) struct ServingReloader {
    /// Configuration and rules.
    pub in_force: InForce,
    /// To the feed, which takes them before its next record.
    pub games: Sender<Arc<dyn ViewedGame>>,
    /// To the serving thread.
    pub reloaded: Sender<Reloaded>,
}

impl ServingReloader {
    /// Reads everything again at each signal, until the serving thread has ended.
    pub(super) async fn run(mut self, mut reloads: Reloads) {
        while !self.reloaded.is_closed() {
            reloads.next().await;
            reload::note(&self.reload().await);
        }
    }

    /// An error is a sentence; then nothing has changed.
    async fn reload(&mut self) -> Result<(), String> {
        let (config, rulebook) = self.in_force.read_again()?;
        let access = config.serve.access.as_ref();
        let keys = access.map(|access| KeySet::load(&access.keys)).transpose();
        let keys = keys.map_err(|error| error.to_string())?;
        let rulesets = rulebook.rulesets();
        // A receiver that is gone belongs to a thread that has ended, and serves no client any
        // more.
        if self.in_force.differs_from(&*rulebook) {
            let _ended = self.games.send(rulebook.clone()).await;
        }
        self.in_force.replace(config, &*rulebook);
        let _ended = self.reloaded.send(Reloaded { keys, rulesets }).await;
        Ok(())
    }
}

/// Lets the keys count that were read again, and says so.
pub(super) async fn take(reloads: Receiver<Reloaded>, gate: Rc<Gate>) {
    while let Ok(Reloaded { keys, rulesets }) = reloads.recv().await {
        if let Some(keys) = keys {
            gate.replace(keys);
        }
        tracing::info!(?rulesets, "reloaded");
    }
    std::future::pending().await
}
