//! A million players: how long a server takes from its start until it serves all of them from
//! snapshots, and its memory.

use crate::{Size, say, start};
use std::time::{Duration, Instant};
use support::daemon::Topics;
use support::kafka::Cluster;
use support::load::Load;
use support::process;
use support::scrape::{Page, get};
use support::serving::Serving;

/// Zones that the players are in.
const ZONES: i32 = 16;

/// Milliseconds between two snapshots.
const SNAPSHOT_EVERY_MS: u64 = 1_000;

/// Fills the zones, and starts servers beside their snapshots.
pub(crate) fn million(size: &Size, cluster: &Cluster) {
    let topics = Topics::create(cluster, "million", ZONES);
    let state = tempfile::tempdir().expect("a temporary folder");
    let directory = state.path().display();
    let snapshot = format!("directory = \"{directory}\"\nevery_ms = {SNAPSHOT_EVERY_MS}");
    let mut huntd = start(cluster, &topics, &[("snapshot", snapshot.as_str())]);
    Load::new(size.players_at_rest, ZONES).produce(cluster, &topics, size.players_at_rest);
    let address = huntd.address();
    huntd.wait_until("all are acknowledged", |_| {
        Page::of(&address).progress("acked") == size.players_at_rest
    });
    // Once nothing changes, each zone is stored once more.
    let mut before = 0;
    loop {
        let stored = huntd.metric("huntd_snapshots_stored_total");
        if stored >= ZONES as u64 && stored == before {
            break;
        }
        before = stored;
        std::thread::sleep(Duration::from_millis(3 * SNAPSHOT_EVERY_MS));
    }
    for _ in 0..3 {
        let begun = Instant::now();
        let serving = Serving::start(&huntd);
        while get(serving.address(), "/readyz").0 != 200 {
            std::thread::sleep(Duration::from_millis(10));
        }
        let took = begun.elapsed().as_secs_f64();
        let players = Page::of(serving.address()).value("huntd_view_players");
        say(&format!(
            "{players} players in {ZONES} zones: live {took:.2} s after the start, {} MiB \
             resident, {} at most",
            process::resident_bytes(serving.pid()) >> 20,
            process::resident_bytes_max(serving.pid()) >> 20
        ));
    }
}
