//! HTTP for monitoring: `/metrics`, `/livez`, `/readyz`.
//!
//! One request per connection, then close. Connections, bytes and time are bounded; any bytes get
//! an answer or a close.

use super::unready::Unready;
use super::{Observed, exposition};
use crate::http::head_lines;
use crate::http::monitoring::{self, CONTENT_TYPE, Page};
use crate::http::request::{ClientRequest, Parsed, Persistence, RequestMethod, parse};

use async_io::{Async, Timer};
use futures_lite::{AsyncReadExt, AsyncWriteExt, FutureExt};
use smol::{LocalExecutor, Task};
use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::rc::Weak;
use std::time::Duration;

/// Limit of concurrent HTTP connections. A further one replaces the oldest: clients that connect
/// and send nothing must not block a health check.
pub const HTTP_CONNECTIONS_MAX: usize = 16;

/// Milliseconds that one HTTP exchange may take, including a slow client.
const HTTP_EXCHANGE_MS_MAX: u64 = 5_000;

/// Bytes of a request's body that are read and discarded, so that the client sees the answer before
/// the close.
const HTTP_DRAIN_BYTES_MAX: usize = 64 * 1024;

/// The status for a method that no page accepts.
const NOT_ALLOWED: &str = "405 Method Not Allowed";

/// The listening socket.
pub(crate) struct Exporter {
    listener: Async<TcpListener>,
    address: SocketAddr,
}

impl Exporter {
    /// Starts to listen; requests wait until [`Exporter::serve`] runs.
    pub(crate) fn bind(listen: SocketAddr) -> io::Result<Exporter> {
        let listener = Async::<TcpListener>::bind(listen)?;
        let address = listener.get_ref().local_addr()?;
        Ok(Exporter { listener, address })
    }

    /// The address, with the actual port if port 0 was configured.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves connections as long as the executor runs.
    pub(crate) async fn serve(self, executor: Weak<LocalExecutor<'static>>, observed: Observed) {
        // Dropping a task closes its connection.
        let mut connections: VecDeque<Task<()>> = VecDeque::new();
        loop {
            let Ok((stream, _)) = self.listener.accept().await else {
                // Most likely no file descriptor is left: other connections must close first.
                Timer::after(Duration::from_millis(100)).await;
                continue;
            };
            let Some(executor) = executor.upgrade() else { return };
            connections.retain(|connection| !connection.is_finished());
            if connections.len() == HTTP_CONNECTIONS_MAX {
                connections.pop_front();
            }
            let observed = observed.clone();
            connections.push_back(executor.spawn(async move {
                let patience = async {
                    Timer::after(Duration::from_millis(HTTP_EXCHANGE_MS_MAX)).await;
                    Ok(())
                };
                // A client may disconnect at any time.
                let _ = exchange(stream, &observed).or(patience).await;
            }));
        }
    }
}

/// Handles one request.
async fn exchange(mut stream: Async<TcpStream>, observed: &Observed) -> io::Result<()> {
    // The parser limits what is received.
    let (mut piece, mut received) = ([0; 1024], Vec::new());
    let answer = loop {
        let read = stream.read(&mut piece).await?;
        if read == 0 {
            return Ok(());
        }
        received.extend_from_slice(&piece[..read]);
        if let Some(answer) = answer(&received, observed) {
            break answer;
        }
    };
    stream.write_all(&answer).await?;
    stream.get_ref().shutdown(Shutdown::Write)?;
    drain(&mut stream).await
}

/// Reads the rest of the client's bytes: closing with unread bytes would reset the connection and
/// lose the answer.
async fn drain(stream: &mut Async<TcpStream>) -> io::Result<()> {
    let mut scrap = [0; 1024];
    let mut drained = 0;
    while drained < HTTP_DRAIN_BYTES_MAX {
        let read = stream.read(&mut scrap).await?;
        if read == 0 {
            break;
        }
        drained += read;
    }
    Ok(())
}

/// Returns the answer to a request; `None` if more of it must arrive.
fn answer(received: &[u8], observed: &Observed) -> Option<Vec<u8>> {
    let (status, text) = match parse(received) {
        Parsed::More => return None,
        Parsed::Refused(error) => (error.status(), error.sentence().to_owned() + "\n"),
        // No page accepts a body.
        Parsed::Expects(request) | Parsed::Request(request, _) => respond(&request, observed),
    };
    let mut out = Vec::new();
    head_lines::begin(&mut out, status);
    if status == NOT_ALLOWED {
        out.extend_from_slice(b"Allow: GET, HEAD\r\n");
    }
    head_lines::describe(&mut out, CONTENT_TYPE, text.as_bytes());
    head_lines::end(&mut out, Persistence::Closes);
    if !received.starts_with(b"HEAD ") {
        out.extend_from_slice(text.as_bytes());
    }
    Some(out)
}

/// Returns the status and text for a request.
fn respond(request: &ClientRequest, observed: &Observed) -> (&'static str, String) {
    let Some(page) = Page::of(&request.path) else {
        return ("404 Not Found", "ask for /metrics, /livez or /readyz\n".to_owned());
    };
    if !matches!(request.method, RequestMethod::Get | RequestMethod::Head) {
        return (NOT_ALLOWED, "use GET or HEAD\n".to_owned());
    }
    match page {
        Page::Metrics => ("200 OK", exposition::render(observed)),
        Page::Live => {
            let stuck = observed.status.stuck_threads();
            let reasons = stuck.iter().map(|name| format!("the {name} thread does not turn"));
            monitoring::probe("live", reasons)
        }
        Page::Ready => {
            monitoring::probe("ready", observed.status.unready().iter().map(Unready::words))
        }
    }
}
