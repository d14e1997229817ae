//! A record that panics the engine in the running daemon: its shard goes down and comes back,
//! three times, and then the record is passed over for good.

use huntd::daemon::Daemon;
use huntd::decoder::{Decoder, RecordPosition};
use huntd::hunt::Shard;
use huntd::hunt::event::{Action, EVENTS};
use huntd::hunt::frames::decode_frame;
use huntd::hunt::rules::rulebook::Rulebook;
use huntd::hunt::rules_file::built_in;
use huntd::kit::update::Updates;
use huntd::output::frame::FrameKind;
use huntd::output::reader::{Reader, Verdict};
use huntd::ownership::PANICS_MAX;
use huntd::service::config::{self, Config};
use rdkafka::message::Message;
use std::path::Path;
use support::mock::{self, Cluster, append_all, header, read_partition, wait_for};
use support::poison;

/// Offset of the record that nobody can apply.
const POISON: i64 = 5;

fn config(cluster: &Cluster, directory: &Path) -> Config {
    let text = format!(
        "[kafka]\nbrokers = [\"{}\"]\ninput_topic = \"events\"\noutput_topic = \"updates\"\n\
         dead_letter_topic = \"dead\"\n[fetch]\nwait_ms_max = 1\n[input]\ntick_every_ms = 0\n\
         [snapshot]\ndirectory = \"{}\"\n[service]\nlisten = \"127.0.0.1:0\"\n",
        cluster.bootstrap_servers(),
        directory.display()
    );
    config::parse("huntd.toml", &text, std::iter::empty()).expect("the configuration is valid")
}

/// Players that join and turn, from this offset on; at [`POISON`] one leaves for its own zone.
fn append_events(cluster: &Cluster, offsets: std::ops::Range<i64>) {
    let event = |offset: i64| {
        let (player, seq) = (1 + offset % 3, 1 + offset / 3);
        let action = match offset {
            POISON => r#""type":"leave","to_zone":0"#,
            0..3 => r#""type":"join","x":1000,"y":2000"#,
            _ => r#""type":"rotate","heading":900"#,
        };
        format!(r#"{{"player_id":{player},"seq":{seq},"ts_us":{offset},{action}}}"#)
    };
    let events: Vec<String> = offsets.map(event).collect();
    append_all(cluster, "events", 0, events.iter().map(String::as_bytes));
}

/// Runs a daemon until it has published everything, and until `seen`.
fn run(daemon: Daemon, end: i64, seen: impl Fn(&Daemon) -> bool) {
    let progress = daemon.observed.progress.clone();
    wait_for("the end of the input", || progress.shard(0).acked.get() == end && seen(&daemon));
    assert!(!daemon.has_ended());
    daemon.stop();
    daemon.wait().expect("the daemon ends well");
}

/// The digest after all events but the one that is passed over.
fn digest(cluster: &Cluster) -> u64 {
    let (mut shard, mut decoder) =
        (Shard::new(0, &Rulebook::of(built_in())), Decoder::new(&EVENTS));
    for record in read_partition(cluster, "events", 0) {
        let offset = record.offset();
        let time_ms = record.timestamp().to_millis().expect("records have times");
        let event = decoder.decode::<Action>(RecordPosition { offset, time_ms }, record.payload());
        if offset != POISON {
            shard.apply(&event.expect("a valid event"), &mut Updates::new());
        }
    }
    shard.digest()
}

/// The letters that came so far, of which each is the poisonous record.
fn letters(cluster: &Cluster) -> usize {
    let letters = read_partition(cluster, "dead", 0);
    for letter in &letters {
        assert_eq!(letter.key(), Some(format!("events/0/{POISON}").as_bytes()));
        assert_eq!(header(letter, "huntd.reason").as_deref(), Some("skipped"));
        assert!(letter.payload().is_some_and(|value| value.ends_with(b"\"to_zone\":0}")));
    }
    letters.len()
}

#[test]
fn a_record_that_takes_the_engine_down_thrice_is_passed_over_by_this_daemon_and_the_next() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !huntd::shards::is_engine_at_work() {
            usual(panic);
        }
    }));
    let cluster = mock::cluster(&[("events", 1), ("updates", 1), ("dead", 1)]);
    let folders = [0, 1].map(|_| tempfile::tempdir().expect("a folder"));
    let rulebook = Rulebook::of(built_in());
    append_events(&cluster, 0..20);
    let config_here = config(&cluster, folders[0].path());
    let daemon = Daemon::start_counting(config_here, rulebook.clone(), poison::metrics());
    let daemon = daemon.expect("the daemon starts");
    let progress = daemon.observed.progress.clone();
    run(daemon, 20, |_| letters(&cluster) > 0);
    assert_eq!(progress.shard(0).digest.get(), digest(&cluster));
    let file = folders[0].path().join("poison");
    let counts = std::fs::read_to_string(file).expect("what failed is counted");
    assert!(counts.ends_with(&format!(" 0 {POISON} {PANICS_MAX}\n")), "{counts}");

    // Another host, whose engine would take the record, knows from the output not to.
    append_events(&cluster, 20..30);
    let config_there = config(&cluster, folders[1].path());
    let daemon = Daemon::start(config_there, rulebook).expect("the daemon starts");
    let (progress, metrics) = (daemon.observed.progress.clone(), daemon.observed.metrics.clone());
    let letters_before = letters(&cluster);
    run(daemon, 30, |_| true);
    assert_eq!(progress.shard(0).digest.get(), digest(&cluster));
    assert_eq!(metrics.refusals.total(), 0);
    assert_eq!(letters(&cluster), letters_before, "the group has committed that it is there");

    let (mut reader, mut skips) = (Reader::new(), Vec::new());
    for record in read_partition(&cluster, "updates", 0) {
        let (header, updates) = decode_frame(record.payload().expect("a frame")).expect("a frame");
        skips.extend((header.kind == FrameKind::Skip).then_some(header.next_offset - 1));
        let verdict = reader.fold(&header, &updates);
        assert!(!matches!(verdict, Verdict::Halt | Verdict::Gap { .. }), "{verdict:?}");
    }
    assert_eq!((skips, reader.position().next_offset), (vec![POISON], 30));
}
