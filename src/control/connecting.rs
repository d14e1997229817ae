//! The way into the group: waits for brokers that do not answer, and ends the daemon for errors
//! that waiting cannot cure.

use super::certificates::Certificates;
use super::output_log::OutputLog;
use super::surveyor::Surveyor;
use super::topic_client::TopicClient;
use super::topic_rules::TopicProblem;
use super::{CONTROL_POLL_MS, ControlError, ControlOptions, Journal, journal};
use crate::fetch::dialling::DialError;
use crate::kafka::group::Membership;
use crate::kafka::{RECONNECT_MS_MAX, RECONNECT_MS_MIN};
use crate::ownership::group_session::TOPIC_MISSING_MS_MAX;
use crate::telemetry::long_wait::LongWait;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// Milliseconds that a try may still take once the daemon has to end: it may be about to say what
/// is wrong.
const ATTEMPT_END_MS_MAX: u64 = 1_000;

/// What asks about the output topic, and a membership that has begun. The files were read before
/// them.
pub(super) type Clients = (Certificates, Surveyor, OutputLog, Membership);

/// Checks the topics and begins to join the group; `None` if the daemon has to end before that.
pub(super) fn connect(
    options: &ControlOptions,
    stop: &AtomicBool,
) -> Result<Option<Clients>, ControlError> {
    let mut journal = Journal::new();
    let mut wait_ms = RECONNECT_MS_MIN;
    let mut missing_since = None;
    // One answer may be wrong. The next try gets its own, on other connections: the same sentence
    // has to come twice.
    let mut doubted = None;
    let mut tried = 0;
    // Threads that wait for a silent broker outlast their try, so later tries do not dial again.
    let mut are_brokers_checked = false;
    loop {
        let attempt = attempt(options, tried, are_brokers_checked, stop, &mut journal)?;
        let Some(attempt) = attempt else { return Ok(None) };
        are_brokers_checked = attempt.are_brokers_checked;
        let error = match attempt.clients {
            Ok(clients) => return Ok(Some(clients)),
            Err(error) => error,
        };
        if stop.load(Ordering::Acquire) {
            return if error.may_pass() { Ok(None) } else { Err(error) };
        }
        let missing_max = Duration::from_millis(TOPIC_MISSING_MS_MAX);
        missing_since =
            error.is_topic_missing().then(|| missing_since.unwrap_or_else(Instant::now));
        let is_missing_for_good =
            missing_since.is_some_and(|since: Instant| since.elapsed() >= missing_max);
        let is_final = !error.may_pass() && (missing_since.is_none() || is_missing_for_good);
        let said = is_final.then(|| error.to_string());
        if is_final && said == doubted {
            return Err(error);
        }
        doubted = said;
        match is_final {
            true => journal::start_doubted(&error),
            false => journal.waits_for_brokers(&error),
        }
        thread::sleep(Duration::from_millis(wait_ms));
        wait_ms = (wait_ms * 2).min(RECONNECT_MS_MAX);
        tried += 1;
    }
}

/// News from the thread of a try.
enum TryNews {
    /// It waits for this from now on.
    WaitsFor(&'static str),
    /// The try has ended.
    Ended(Box<Attempt>),
}

/// How one try has ended.
struct Attempt {
    clients: Result<Clients, ControlError>,
    are_brokers_checked: bool,
}

/// Tries once, on a thread of its own: a broker that says nothing takes ten seconds for each
/// question, and a stop cannot wait for that. `None`: the daemon has to end before the try does.
fn attempt(
    options: &ControlOptions,
    tried: usize,
    mut are_brokers_checked: bool,
    stop: &AtomicBool,
    journal: &mut Journal,
) -> Result<Option<Attempt>, ControlError> {
    let (sender, news) = mpsc::channel();
    let (its_options, bootstrap) = (options.clone(), &options.dial.bootstrap);
    let trying = move || {
        // Perhaps nobody waits any more.
        let waits_for = |what| drop(sender.send(TryNews::WaitsFor(what)));
        let clients = try_once(&its_options, tried, &mut are_brokers_checked, waits_for);
        let attempt = Attempt { clients, are_brokers_checked };
        drop(sender.send(TryNews::Ended(Box::new(attempt))));
    };
    let thread = thread::Builder::new().name("connecting".to_owned()).spawn(trying);
    thread.map_err(DialError::Resources)?;
    let mut until = None;
    let mut waits = None;
    loop {
        match news.recv_timeout(Duration::from_millis(CONTROL_POLL_MS)) {
            Ok(TryNews::Ended(attempt)) => return Ok(Some(*attempt)),
            Ok(TryNews::WaitsFor(what)) => waits = Some((what, LongWait::since(Instant::now()))),
            Err(RecvTimeoutError::Disconnected) => unreachable!("a panic ends the process"),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some((what, wait)) = &mut waits
            && let Some(waited_s) = wait.word(Instant::now())
        {
            journal.waits_for_answer(what, waited_s, bootstrap);
        }
        if stop.load(Ordering::Acquire) {
            let end = Instant::now() + Duration::from_millis(ATTEMPT_END_MS_MAX);
            if Instant::now() >= *until.get_or_insert(end) {
                return Ok(None);
            }
        }
    }
}

/// huntd's own client goes first: it has the best reason why a broker cannot be reached, and keeps
/// malformed answers from librdkafka (see decision 031).
fn try_once(
    options: &ControlOptions,
    tried: usize,
    are_brokers_checked: &mut bool,
    waits_for: impl Fn(&'static str),
) -> Result<Clients, ControlError> {
    waits_for("a connection, and an answer about the input topic");
    let mut client = TopicClient::connect(&options.dial, tried)?;
    if !*are_brokers_checked {
        waits_for("an answer of each broker where it advertises that it listens");
        check_brokers(&client)?;
        *are_brokers_checked = true;
    }
    waits_for("an answer about the topics and their settings");
    let risks = check_topics(&mut client, options)?;
    waits_for("an answer to librdkafka about the output topic");
    join(options, &client, risks).map_err(|error| match error.may_pass().then(no_descriptor_left) {
        Some(Some(resources)) => DialError::Resources(resources).into(),
        _ => error,
    })
}

/// Whether a client can do nothing because the process has no file descriptor left: librdkafka says
/// that no broker answers.
fn no_descriptor_left() -> Option<io::Error> {
    File::open("/dev/null").err()
}

fn join(
    options: &ControlOptions,
    client: &TopicClient,
    risks: Vec<String>,
) -> Result<Clients, ControlError> {
    let certificates = Certificates::read(&options.dial);
    let surveyor = client.surveyor(&options.output.output_topic);
    let output = OutputLog::connect(options.output.clone())?;
    let membership = Membership::join(&options.group)?;
    for risk in risks {
        tracing::warn!("{risk}");
    }
    Ok((certificates, surveyor, output, membership))
}

/// Dials each broker of the cluster. The log names those that cannot be used: others may lead most
/// zones.
fn check_brokers(client: &TopicClient) -> Result<(), ControlError> {
    for fault in client.dial_brokers()?.unless_final()? {
        journal::cannot_use_broker(&fault);
    }
    Ok(())
}

/// Looks for settings of topics with which the daemon cannot work, and gives those with which it
/// can as long as nothing fails.
fn check_topics(
    client: &mut TopicClient,
    options: &ControlOptions,
) -> Result<Vec<String>, ControlError> {
    let problems = client.problems(&options.topics)?;
    let (fatal, risks): (Vec<_>, Vec<_>) =
        problems.into_iter().partition(|problem| problem.is_fatal);
    let sentences = |problems: Vec<TopicProblem>| -> Vec<String> {
        problems.into_iter().map(|problem| problem.sentence).collect()
    };
    match fatal.is_empty() {
        true => Ok(sentences(risks)),
        false => Err(ControlError::TopicsWrong(sentences(fatal).join("; "))),
    }
}
