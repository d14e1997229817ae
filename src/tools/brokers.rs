//! Finds out which brokers answer, and what is wrong with the others, which librdkafka does not
//! report.

use super::failure::ToolError;
use crate::control::dialler::{self, DialOptions};
use crate::control::roll_call::{ROLL_CALL_MS_MAX, roll_call};
use crate::daemon::failure::Failure;
use crate::fetch::dialling::{DialError, Endpoint};
use crate::kafka::client::ClientOptions;
use crate::kafka::message::MessageError;
use crate::kafka::sasl::SaslError;
use crate::kafka::security::Security;
use crate::kafka::topic_error::TopicError;

/// The result of asking all brokers.
pub(super) struct Reached {
    /// The brokers that answer, in the order of the configuration; at least one.
    pub answering: Vec<String>,
    /// A sentence that names the others, if any.
    pub warning: Option<String>,
}

/// Asks all brokers of this client at once, and returns those that answer. One is enough, as for
/// the daemon; the others are named on standard error.
pub(super) fn reach(client: &ClientOptions) -> Result<Vec<String>, ToolError> {
    let Reached { answering, warning } = reached(client)?;
    warning.map_or(Ok(()), |sentence| super::warn(&sentence))?;
    Ok(answering)
}

/// Like [`reach`], but returns the sentence instead of printing it.
pub(super) fn reached(client: &ClientOptions) -> Result<Reached, ToolError> {
    let brokers = &client.brokers;
    let options = without_authentication(client);
    let found = roll_call(brokers.clone(), move |broker| ask(&broker, &options))
        .map_err(|error| Failure::Control(DialError::Resources(error).into()))?;
    let late = || Err(format!("does not answer within {} s", ROLL_CALL_MS_MAX / 1000));
    let (mut answering, mut trouble) = (Vec::new(), Vec::new());
    for (broker, result) in brokers.iter().zip(found) {
        match result.unwrap_or_else(late) {
            Ok(()) => answering.push(broker.clone()),
            Err(sentence) => trouble.push(format!("{broker} {sentence}")),
        }
    }
    let trouble = trouble.join(", ");
    if answering.is_empty() {
        return Err(TopicError::Unreachable(trouble).into());
    }
    let warning = (!trouble.is_empty()).then(|| format!("another broker answers, but {trouble}"));
    Ok(Reached { answering, warning })
}

/// Asks each of these brokers about a topic before librdkafka does: a malformed answer would crash
/// the process there (decision 031), and librdkafka cannot tell what is wrong with certificates,
/// secrets or the kind of a listener. Other errors are left to the next request.
pub(super) fn ask_first(client: &ClientOptions, topic: &str) -> Result<(), ToolError> {
    let options = DialOptions {
        topic: topic.to_owned(),
        security: client.security.clone(),
        ..without_authentication(client)
    };
    let mut refused = None;
    let mut has_answered = false;
    for endpoint in client.brokers.iter().filter_map(|broker| Endpoint::parse(broker)) {
        match dialler::ask_topic(&endpoint, &options) {
            Ok(_) => has_answered = true,
            Err(error @ DialError::Answer { .. }) => {
                return Err(Failure::Control(error.into()).into());
            }
            // The other brokers would refuse the same password.
            Err(error @ DialError::Sasl { error: SaslError::Refused { .. }, .. }) => {
                refused.get_or_insert(error);
                break;
            }
            Err(error) if error.is_final() => {
                refused.get_or_insert(error);
            }
            Err(_) => {}
        }
    }
    match refused.filter(|_| !has_answered) {
        Some(error) => Err(Failure::Control(error.into()).into()),
        None => Ok(()),
    }
}

/// Omits SASL, so that a wrong password does not fail once per broker.
fn without_authentication(client: &ClientOptions) -> DialOptions {
    DialOptions {
        bootstrap: Vec::new(),
        client_id: client.client_id.clone(),
        topic: String::new(),
        security: Security { sasl: None, ..client.security.clone() },
    }
}

/// Asks one broker. Returns what went wrong, worded to follow the broker's name. A refusal counts
/// as an answer: the code that uses the broker next says what to do about it. Malformed bytes do
/// not, because further requests to such a listener are pointless.
fn ask(broker: &str, options: &DialOptions) -> Result<(), String> {
    let endpoint = Endpoint::parse(broker).ok_or("is not of the form host:port")?;
    match dialler::ask_versions(&endpoint, options) {
        Err(DialError::Unknown { error, .. }) => Err(format!("cannot be resolved ({error})")),
        Err(DialError::Io { error, .. }) => Err(format!("cannot be reached ({error})")),
        Err(DialError::Answer { error, .. }) if !is_of_a_broker(&error) => {
            Err(format!("does not answer as a broker ({error})"))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Returns whether an unusable answer came from a broker at all.
fn is_of_a_broker(error: &MessageError) -> bool {
    !matches!(
        error,
        MessageError::Malformed { .. }
            | MessageError::Correlation { .. }
            | MessageError::Length { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;
    use std::thread;

    fn client(brokers: &[&str]) -> ClientOptions {
        let brokers = brokers.iter().map(|broker| (*broker).to_owned()).collect();
        let name = "huntd-test".to_owned();
        let security = Security::default();
        ClientOptions { brokers, client_id: name.clone(), security, group: name }
    }

    /// A broker's refusal: the length, the request's id, and the error COORDINATOR_NOT_AVAILABLE.
    const REFUSAL: &[u8] = &[0, 0, 0, 6, 0, 0, 0, 0, 0, 15];

    /// A listener that sends this answer to any request, and then closes.
    fn answering_once(answer: &'static [u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            stream.write_all(answer).expect("the client reads");
            // Waits until the client is gone.
            std::io::copy(&mut stream, &mut std::io::sink())
        });
        address
    }

    #[test]
    fn brokers_that_cannot_be_reached_are_named_with_the_reason() {
        let (refused, alive) = ("127.0.0.1:1", answering_once(REFUSAL));
        let found = reached(&client(&[refused, &alive])).expect("one is enough");
        assert_eq!(found.answering, [alive]);
        assert!(
            found.warning.expect("one is away").contains("but 127.0.0.1:1 cannot be reached (")
        );
        let error = reach(&client(&[refused, "no-such-host.invalid:9092"]));
        let sentence = error.expect_err("none answers").to_string();
        assert!(sentence.contains("127.0.0.1:1 cannot be reached ("), "{sentence}");
        assert!(sentence.contains("no-such-host.invalid:9092 "), "{sentence}");
    }

    #[test]
    fn a_listener_of_another_protocol_is_no_broker_that_answers() {
        // A web server's answer, and bytes that match only the length prefix.
        for (answer, reason) in [
            (&b"HTTP/1.1 400 Bad Request"[..], "is a plaintext Kafka listener)"),
            (&[0, 0, 0, 6, 9, 9, 9, 9, 0, 0], "the broker answered request 151587081 "),
            (&[0, 0, 0, 4, 0, 0, 0, 0], "the broker's ApiVersions answer is malformed: "),
        ] {
            let (other, alive) = (answering_once(answer), answering_once(REFUSAL));
            let found = reached(&client(&[&other, &alive])).expect("one is enough");
            assert_eq!(found.answering, [alive]);
            let warning = found.warning.expect("one is no broker");
            let start =
                format!("another broker answers, but {other} does not answer as a broker (");
            assert!(warning.starts_with(&start) && warning.contains(reason), "{warning}");
            let error = reached(&client(&[&answering_once(answer)])).err().expect("none answers");
            assert!(error.to_string().contains(reason), "{error}");
        }
    }

    #[test]
    fn a_listener_that_accepts_and_stays_silent_is_no_broker_that_answers() {
        // The kernel accepts connections for it.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let silent = listener.local_addr().expect("bound").to_string();
        let alive = answering_once(REFUSAL);
        let found = reached(&client(&[&silent, &alive])).expect("one is enough");
        assert_eq!(found.answering, [alive]);
        let late = format!("another broker answers, but {silent} does not answer within 3 s");
        assert_eq!(found.warning, Some(late));
    }
}
