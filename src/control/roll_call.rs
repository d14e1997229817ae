//! Several brokers are asked at once, and all together get one bound of time.

use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Milliseconds that a name, a connection, TLS, an authentication and answers may take together.
pub(crate) const ROLL_CALL_MS_MAX: u64 = 3_000;

/// Brokers that are being asked.
pub(super) struct RollCall<Answer> {
    answers: mpsc::Receiver<(usize, Answer)>,
    until: Instant,
}

impl<Answer: Send + 'static> RollCall<Answer> {
    /// Begins to ask all of them. An error: no thread is left to ask.
    pub(super) fn begin<Place: Send + 'static>(
        places: impl IntoIterator<Item = Place>,
        ask: impl Fn(Place) -> Answer + Clone + Send + 'static,
        until: Instant,
    ) -> io::Result<RollCall<Answer>> {
        let (sender, answers) = mpsc::channel();
        for (number, place) in places.into_iter().enumerate() {
            let (sender, ask) = (sender.clone(), ask.clone());
            // Not joined: nobody waits for a resolver or a broker that does not answer.
            let asking = move || drop(sender.send((number, ask(place))));
            thread::Builder::new().name("roll-call".to_owned()).spawn(asking)?;
        }
        Ok(RollCall { answers, until })
    }

    /// Shortens the time.
    pub(super) fn end_by(&mut self, until: Instant) {
        self.until = self.until.min(until);
    }
}

/// The answers as they come, each with the place's number. It ends when all have come or the time
/// is over.
impl<Answer> Iterator for RollCall<Answer> {
    type Item = (usize, Answer);

    fn next(&mut self) -> Option<(usize, Answer)> {
        let left = self.until.saturating_duration_since(Instant::now());
        self.answers.recv_timeout(left).ok()
    }
}

/// What each of these brokers has answered, in their order; `None`: nothing in time. An error: no
/// thread is left to ask.
pub(crate) fn roll_call<Place: Send + 'static, Answer: Send + 'static>(
    places: Vec<Place>,
    ask: impl Fn(Place) -> Answer + Clone + Send + 'static,
) -> io::Result<Vec<Option<Answer>>> {
    let mut found: Vec<Option<Answer>> = places.iter().map(|_| None).collect();
    let until = Instant::now() + Duration::from_millis(ROLL_CALL_MS_MAX);
    for (number, answer) in RollCall::begin(places, ask, until)? {
        found[number] = Some(answer);
    }
    Ok(found)
}
