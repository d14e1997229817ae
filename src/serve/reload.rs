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
            // In place of rules that the feed has not taken: keys must not wait for brokers.
            let _ended = self.games.force_send(rulebook.clone());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edition::edition;
    use crate::hunt::rules_file::BUILT_IN;
    use crate::hunt::state::TreasureHunt;
    use crate::service::config;
    use crate::service::reload::Reloading;
    use futures_lite::future;
    use smol::channel;
    use std::path::PathBuf;

    #[test]
    fn a_reload_never_waits_for_a_feed_that_takes_no_rules() {
        let folder = tempfile::tempdir().unwrap();
        let rules = |number: usize| {
            let file = folder.path().join(format!("rules-{number}.toml"));
            let health = format!("health = {}", 100 - number);
            std::fs::write(&file, BUILT_IN.replace("health = 100", &health)).unwrap();
            file
        };
        let rules: Vec<PathBuf> = (0..4).map(rules).collect();
        let file = folder.path().join("huntd.toml");
        let write = |count: usize| {
            std::fs::write(&file, format!("[rules]\nfiles = {:?}\n", &rules[..count])).unwrap();
        };
        write(1);
        let edition = edition::<TreasureHunt>();
        let mut config = config::load(&file, &[]).unwrap();
        config.edition = Some(edition);
        let rulebook = edition.rulebook(&config.rules_files).unwrap();
        let in_force = InForce::new(Reloading::Serve, &config, rulebook.rulesets()).unwrap();
        let (games, untaken) = channel::bounded(1);
        let (reloaded, taken) = channel::bounded(1);
        let mut reloader = ServingReloader { in_force, games, reloaded };
        for count in 2..=4 {
            write(count);
            let reload = smol::block_on(future::poll_once(reloader.reload()));
            assert_eq!(reload, Some(Ok(())));
            assert_eq!(taken.try_recv().unwrap().rulesets.len(), count);
        }
        assert_eq!(untaken.try_recv().unwrap().rulesets().len(), 4, "the last ones count");
    }
}
