//! Several brokers are asked at once, and all together get one bound of time.

use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Milliseconds that a name, a connection, TLS, an authentication and answers may take together.
pub(crate) const ROLL_CALL_MS_MAX: u64 = 3_000;

/// What each of these brokers has answered, in their order; `None`: nothing in time. An error: no
/// thread is left to ask.
pub(crate) fn roll_call<Place: Send + 'static, Answer: Send + 'static>(
    places: impl IntoIterator<Item = Place>,
    ask: impl Fn(Place) -> Answer + Clone + Send + 'static,
) -> io::Result<Vec<Option<Answer>>> {
    let until = Instant::now() + Duration::from_millis(ROLL_CALL_MS_MAX);
    let (sender, answers) = mpsc::channel();
    let mut found = Vec::new();
    for (number, place) in places.into_iter().enumerate() {
        let (sender, ask) = (sender.clone(), ask.clone());
        // Not joined: nobody waits for a resolver or a broker that does not answer.
        let asking = move || drop(sender.send((number, ask(place))));
        thread::Builder::new().name("roll-call".to_owned()).spawn(asking)?;
        found.push(None);
    }
    drop(sender);
    while let Ok((number, answer)) =
        answers.recv_timeout(until.saturating_duration_since(Instant::now()))
    {
        found[number] = Some(answer);
    }
    Ok(found)
}
