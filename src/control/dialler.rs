//! A dialler: opens connections for a thread with a ring, and keeps one of its own to ask who
//! leads. The hot thread has one for the input topic, the publisher one for the output topic.
//!
//! Everything here may block: name resolution, connecting, handshakes, authentication. Each
//! connection is opened by a short-lived thread, so that a broker that is silent holds up no other.

use crate::control::link::Link;
use crate::fetch::broker_rotation::BrokerRotation;
use crate::fetch::dialling::{
    DialEnds, DialError, Dialled, Endpoint, FromDialler, MetadataLink, QUESTIONS_MAX, ToDialler,
};
use crate::kafka::NEXT_BROKER_MS;
use crate::kafka::message::Metadata;
use crate::kafka::security::{Secret, Security, SecurityFileError};
use crate::kafka::tls::{self, TlsError};
use crate::queue::bell::Bell;
use crate::queue::{Received, Receiver, Sender, bounded, bounded_with_bell};
use crate::telemetry::long_wait::LongWait;
use std::io;
use std::sync::{Arc, Weak, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Milliseconds that the dialler sleeps at most before it checks whether the daemon ends, and
/// whether a question has been under way for long.
const SLEEP_MS_MAX: u64 = 1_000;

/// Brokers that are known to be slow at a time.
const LATE_BROKERS_MAX: usize = 64;

/// How brokers are reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DialOptions {
    /// Brokers to ask first; at least one.
    pub bootstrap: Vec<Endpoint>,
    /// How the daemon names itself to brokers.
    pub client_id: String,
    /// The topic whose leaders are asked for.
    pub topic: String,
    /// How connections are protected.
    pub security: Security,
}

/// The dialler's ends of what it shares with the thread that it dials for.
pub struct DiallerEnds {
    /// From the thread.
    pub questions: Receiver<ToDialler>,
    /// Rung by the thread.
    pub bell: Arc<Bell>,
    /// To the thread.
    pub answers: Sender<FromDialler>,
}

/// What a thread that is called with this bell shares with its dialler: both ends.
pub fn ends(bell: &Arc<Bell>) -> io::Result<(DialEnds, DiallerEnds)> {
    let dialler_bell = Arc::new(Bell::new()?);
    let (dialler, questions) = bounded(QUESTIONS_MAX);
    let (answers, dialled) = bounded_with_bell(QUESTIONS_MAX, bell);
    let ends = DialEnds { dialler, dialler_bell: dialler_bell.clone(), dialled };
    Ok((ends, DiallerEnds { questions, bell: dialler_bell, answers }))
}

/// Runs the dialler until the thread has ended.
pub fn run(options: DialOptions, ends: DiallerEnds) {
    let DiallerEnds { mut questions, bell, answers } = ends;
    let options = Arc::new(options);
    let (to_asker, asked) = mpsc::sync_channel(QUESTIONS_MAX);
    let (asker_options, asker_answers) = (options.clone(), answers.clone());
    let asker = move || ask_for_ever(&asker_options, &asked, &asker_answers);
    // Without it each question is answered with an error.
    drop(thread::Builder::new().name("metadata".to_owned()).spawn(asker));
    let mut under_way: Vec<UnderWay> = Vec::new();
    loop {
        match questions.receive() {
            Received::Item(ToDialler::Connect { task, endpoint }) => {
                let what = format!("a connection to broker {endpoint}");
                let answered = UnderWay::begin(&mut under_way, what);
                connect(options.clone(), answers.clone(), answered, task, endpoint);
            }
            Received::Item(ToDialler::AskMetadata(link)) => {
                let what = format!("an answer about who leads `{}`", options.topic);
                let answered = UnderWay::begin(&mut under_way, what);
                if to_asker.try_send((link, answered)).is_err() {
                    let error = io::Error::other("the thread for questions has not started");
                    answer(&answers, FromDialler::Metadata(Err(DialError::Resources(error))));
                }
            }
            Received::Empty => {
                let slept = bell.sleep(Duration::from_millis(SLEEP_MS_MAX));
                assert!(slept.is_ok(), "an eventfd can be waited for: {slept:?}");
                let now = Instant::now();
                under_way.retain(UnderWay::is_unanswered);
                for what in under_way.iter_mut().filter_map(|question| question.word(now)) {
                    tracing::warn!("{what}");
                }
            }
            Received::Ended => return,
        }
    }
}

/// A question that has no answer yet.
struct UnderWay {
    what: String,
    wait: LongWait,
    /// Gone once it is answered.
    unanswered: Weak<()>,
}

impl UnderWay {
    /// Adds a question. It counts as answered when the returned value is dropped.
    fn begin(under_way: &mut Vec<UnderWay>, what: String) -> Arc<()> {
        let answered = Arc::new(());
        let (wait, unanswered) = (LongWait::since(Instant::now()), Arc::downgrade(&answered));
        under_way.push(UnderWay { what, wait, unanswered });
        answered
    }

    fn is_unanswered(&self) -> bool {
        self.unanswered.strong_count() > 0
    }

    /// The sentence about it that is due now.
    fn word(&mut self, now: Instant) -> Option<String> {
        let (waited_s, what) = (self.wait.word(now)?, &self.what);
        Some(format!(
            "for {waited_s} s there has not been {what}: see whether the broker or the name server \
             hangs, and what is between them and this host"
        ))
    }
}

/// Opens one connection, beside the others.
fn connect(
    options: Arc<DialOptions>,
    answers: Sender<FromDialler>,
    answered: Arc<()>,
    task: usize,
    endpoint: Endpoint,
) {
    let unstarted = answers.clone();
    let dial = move || {
        let dialled = Link::open(&endpoint, &options).map(Link::into_dialled);
        drop(answered);
        answer(&answers, FromDialler::Connected { task, dialled });
    };
    if let Err(error) = thread::Builder::new().name("dial".to_owned()).spawn(dial) {
        let dialled: Result<Dialled, DialError> = Err(DialError::Resources(error));
        answer(&unstarted, FromDialler::Connected { task, dialled });
    }
}

fn answer(answers: &Sender<FromDialler>, answer: FromDialler) {
    // There is room for an answer to each question; a thread that is gone needs none.
    drop(answers.try_send(answer));
}

/// Asks a broker about the cluster whenever the hot thread wants to know.
fn ask_for_ever(
    options: &DialOptions,
    asked: &mpsc::Receiver<(MetadataLink, Arc<()>)>,
    answers: &Sender<FromDialler>,
) {
    let mut asker = MetadataAsker::new(options, NEXT_BROKER_MS);
    while let Ok((link, answered)) = asked.recv() {
        let metadata = asker.ask(&link);
        drop(answered);
        answer(answers, FromDialler::Metadata(metadata));
    }
}

/// Asks one broker after the other.
struct MetadataAsker<'a> {
    options: &'a DialOptions,
    rotation: BrokerRotation,
    /// The connection that has brought the last answer.
    kept: Option<Link>,
    /// Milliseconds for the first answer on a connection, and for the next one of the kept one: a
    /// broker that may be frozen is left soon.
    haste_ms: u64,
    /// Brokers that were late, and may be slow. They get the usual time until they answer.
    late: Vec<Endpoint>,
}

impl MetadataAsker<'_> {
    fn new(options: &DialOptions, haste_ms: u64) -> MetadataAsker<'_> {
        let rotation = BrokerRotation::new(options.bootstrap.clone());
        MetadataAsker { options, rotation, kept: None, haste_ms, late: Vec::new() }
    }

    fn ask(&mut self, link: &MetadataLink) -> Result<Metadata, DialError> {
        // A kept connection may have been closed meanwhile, which says nothing about the broker.
        if let Some(mut kept) = self.kept.take()
            && *link == MetadataLink::Kept
        {
            kept.hasten(self.haste_ms);
            if let Ok(metadata) = self.ask_over(kept) {
                return Ok(metadata);
            }
        }
        let endpoint = self.rotation.next(link);
        let was_late = self.late.contains(&endpoint);
        let opened = match was_late {
            true => Link::open(&endpoint, self.options),
            false => Link::open_in_haste(self.haste_ms, &endpoint, self.options),
        };
        match &opened {
            Ok(_) => self.late.retain(|late| *late != endpoint),
            Err(DialError::Late { .. }) => {
                self.late.truncate(LATE_BROKERS_MAX - 1);
                self.late.insert(0, endpoint);
            }
            Err(_) => {}
        }
        self.ask_over(opened?)
    }

    fn ask_over(&mut self, mut link: Link) -> Result<Metadata, DialError> {
        let metadata = link.ask_metadata(self.options, &self.options.topic)?;
        self.rotation.learn(&metadata.brokers);
        self.kept = Some(link);
        Ok(metadata)
    }
}

/// A file of `[kafka.tls]` or `[kafka.sasl]` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WrongFile {
    /// A certificate or a key.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The file with the password.
    #[error("kafka.sasl: {0}")]
    Secret(#[from] SecurityFileError),
}

/// Asks a broker which requests it knows: the first answer that there is to be had, after TLS. Each
/// of its steps has a bound of its own; a caller that has less time asks from another thread.
pub(crate) fn ask_versions(endpoint: &Endpoint, options: &DialOptions) -> Result<(), DialError> {
    Link::open(endpoint, options).map(drop)
}

/// Asks a broker about the topic, over a connection of its own.
pub(crate) fn ask_topic(endpoint: &Endpoint, options: &DialOptions) -> Result<Metadata, DialError> {
    Link::open(endpoint, options)?.ask_metadata(options, &options.topic)
}

/// Reads the files that dialling needs, to say before anything is dialled what is wrong with them.
pub(crate) fn check_files(security: &Security) -> Result<(), WrongFile> {
    if let Some(tls) = &security.tls {
        tls::client_config(tls)?;
    }
    if let Some(sasl) = &security.sasl {
        Secret::read(&sasl.secret_file)?;
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::telemetry::long_wait::WORDLESS_MS_MAX;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    /// A broker's listener, on a port of its own.
    pub(in crate::control) fn listener() -> (TcpListener, Endpoint) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        (listener, Endpoint { host: "127.0.0.1".to_owned(), port })
    }

    /// How these brokers are reached.
    pub(in crate::control) fn options(bootstrap: Vec<Endpoint>) -> DialOptions {
        let (client_id, topic) = ("huntd".to_owned(), "input".to_owned());
        DialOptions { bootstrap, client_id, topic, security: Security::default() }
    }

    /// Answers later than in haste: with an alert of TLS.
    pub(in crate::control) fn answer_late(mut connection: TcpStream) {
        thread::sleep(Duration::from_millis(200));
        connection.write_all(&[0x15, 3, 3, 0, 2, 2, 10]).expect("it is waited for");
    }

    #[test]
    fn a_question_that_is_under_way_for_long_is_named_until_it_is_answered() {
        let mut under_way = Vec::new();
        let answered = UnderWay::begin(&mut under_way, "a connection to broker b:9092".to_owned());
        let begun = Instant::now();
        let question = &mut under_way[0];
        assert!(question.is_unanswered() && question.word(begun).is_none());
        let word = question.word(begun + Duration::from_millis(WORDLESS_MS_MAX));
        let word = word.expect("it lasts");
        assert!(word.contains("for 4 s") && word.contains("broker b:9092: see"), "{word}");
        drop(answered);
        assert!(!question.is_unanswered());
    }

    #[test]
    fn a_broker_that_was_late_has_its_time_whatever_others_have_said_since() {
        let ((slow, first), (other, second)) = (listener(), listener());
        thread::spawn(move || {
            let waits = slow.accept();
            drop(other);
            answer_late(slow.accept().expect("it is asked again").0);
            drop(waits);
        });
        let options = options(vec![first.clone(), second]);
        let mut asker = MetadataAsker::new(&options, 50);
        let mut ask = || asker.ask(&MetadataLink::New).expect_err("nobody answers");
        assert!(matches!(ask(), DialError::Late { wait_ms: 50, .. }));
        assert!(!matches!(ask(), DialError::Late { .. }), "the other one is not there");
        assert!(matches!(ask(), DialError::TlsListener(said) if said == first));
    }
}
