//! The log of an instance while another version plays its zones, and while it cannot load the state
//! that the other version has left.

use crate::kafka::membership::MembershipEvent;
use crate::output::frame::FENCE_EVERY_MS;
use crate::ownership::START_ERROR_MS_MAX;
use crate::ownership::acquisition::Candidate;
use crate::ownership::action::{Note, OwnershipAction};
use crate::ownership::history::REACQUIRE_MS;
use crate::ownership::tests::log::{Log, VERSION, owned_log, snapshot};
use crate::ownership::tests::owning::Daemon;
use crate::testing::frame_maker::FrameMaker;

/// Frames that the version before has published after its last state.
const FRAMES: u32 = 2;

/// A log that the version before has published, and its last state.
fn left_by_another_version() -> (Log, FrameMaker, Candidate) {
    let (log, owner) = owned_log(9);
    let left = Candidate { version: VERSION - 1, ruleset: 6, ..snapshot(&log, &owner) };
    (log, owner, left)
}

/// The daemon finds this log in the output.
fn show(daemon: &mut Daemon, log: &Log) {
    let records = log.records.iter().map(|(_, payload)| payload.clone());
    daemon.outputs.insert(0, records.collect());
}

/// Returns what the daemon has logged: the lines about waiting, and the warnings.
fn said(daemon: &Daemon) -> (Vec<&str>, Vec<&str>) {
    let (mut waits, mut warnings) = (Vec::new(), Vec::new());
    for action in &daemon.done {
        match action {
            OwnershipAction::Log(Note::AwaitsVersion { sentence, .. }) => waits.push(&**sentence),
            OwnershipAction::Log(Note::Waiting { sentence, .. }) => warnings.push(&**sentence),
            OwnershipAction::Log(note @ (Note::CannotStart { .. } | Note::Halted { .. })) => {
                panic!("{note:?}")
            }
            _ => {}
        }
    }
    (waits, warnings)
}

#[test]
fn an_upgrade_that_waits_says_so_once_and_names_a_remedy_only_if_nobody_plays() {
    let (mut log, mut owner, left) = left_by_another_version();
    let mut daemon = Daemon::new();
    daemon.candidates = vec![left];
    log.publish(&mut owner, FRAMES);
    show(&mut daemon, &log);
    daemon.group(MembershipEvent::Assigned(vec![0]));
    let waits = "waiting for version 2 of the game to stop: it plays the zone, and leaves its \
                 state at the end";
    for _ in 0..100 {
        daemon.pass(REACQUIRE_MS, 0, false);
        assert_eq!(said(&daemon), (vec![waits], vec![]));
        let awaited: Vec<_> = daemon.ownership.awaited(daemon.now).into_iter().collect();
        assert!(awaited.is_empty() || awaited == [0]);
        log.publish(&mut owner, FRAMES);
        show(&mut daemon, &log);
    }
    assert_eq!(daemon.ownership.setbacks().collect::<Vec<_>>(), [(0, waits)]);
    // It is killed. An attempt learns where the output ends, and the next ones whether it stays so.
    for _ in 0..3 {
        daemon.pass(START_ERROR_MS_MAX + FENCE_EVERY_MS, 0, false);
    }
    let (waiting, warnings) = said(&daemon);
    assert_eq!(waiting, [waits]);
    assert!(!warnings.is_empty() && warnings[0].contains("start the version that published last"));
    assert_eq!(daemon.ownership.awaited(daemon.now).len(), 0);
    let why = daemon.ownership.setbacks().next().expect("the zone is not played");
    assert!(why.1.contains("--genesis"), "{why:?}");
}

#[test]
fn a_state_that_cannot_be_loaded_is_what_an_operator_learns_of() {
    let why = "runners.field is text: add a migration";
    let (log, _, left) = left_by_another_version();
    let mut daemon = Daemon::new();
    daemon.candidates = vec![left];
    daemon.load_fails = Some(why);
    show(&mut daemon, &log);
    daemon.group(MembershipEvent::Assigned(vec![0]));
    for _ in 0..100 {
        daemon.pass(REACQUIRE_MS, 0, false);
        let (waits, warnings) = said(&daemon);
        assert!(waits.is_empty() && warnings[0] == format!("partition 0: {why}"));
        assert_eq!(daemon.ownership.setbacks().collect::<Vec<_>>(), [(0, why)]);
    }
}
