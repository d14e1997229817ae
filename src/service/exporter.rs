//! HTTP for monitoring: `/metrics`, `/livez`, `/readyz`.
//!
//! One request a connection, then close. Connections, bytes and time are bounded; whatever bytes
//! come, they get an answer or a close.

use super::{Observed, exposition};

use async_io::{Async, Timer};
use futures_lite::{AsyncReadExt, AsyncWriteExt, FutureExt};
use smol::{LocalExecutor, Task};
use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::rc::Weak;
use std::time::Duration;

/// HTTP connections served at once. A further one takes the place of the oldest: clients that
/// connect and say nothing must not keep a health check waiting.
pub const HTTP_CONNECTIONS_MAX: usize = 16;

/// Bytes of a request line and its headers.
pub const HTTP_HEAD_BYTES_MAX: usize = 4096;

/// Headers of one request.
const HTTP_HEADERS_MAX: usize = 64;

/// Milliseconds that one HTTP exchange may take, a slow client included.
const HTTP_EXCHANGE_MS_MAX: u64 = 5_000;

/// Bytes of a request's body that are read, and thrown away, so that the client sees the answer
/// before the close.
const HTTP_DRAIN_BYTES_MAX: usize = 64 * 1024;

/// The listening socket.
pub(crate) struct Exporter {
    listener: Async<TcpListener>,
    address: SocketAddr,
}

impl Exporter {
    /// Listens from now on; requests wait until [`Exporter::serve`] runs.
    pub(crate) fn bind(listen: SocketAddr) -> io::Result<Exporter> {
        let listener = Async::<TcpListener>::bind(listen)?;
        let address = listener.get_ref().local_addr()?;
        Ok(Exporter { listener, address })
    }

    /// The address, with the port that a port 0 became.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves connections as long as the executor runs.
    pub(crate) async fn serve(self, executor: Weak<LocalExecutor<'static>>, observed: Observed) {
        // Dropping a task closes its connection.
        let mut connections: VecDeque<Task<()>> = VecDeque::new();
        loop {
            let Ok((stream, _)) = self.listener.accept().await else {
                // Out of file descriptors, most likely: others must close some first.
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
                // A client may break off at any time.
                let _ = exchange(stream, &observed).or(patience).await;
            }));
        }
    }
}

/// What the bytes of a request ask for, as far as they have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpRequest {
    /// Nothing yet: the head is incomplete.
    More,
    /// A page.
    Page(Page, Method),
    /// Something that is refused.
    Refused(Refused),
}

/// What is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// Everything that is measured, for Prometheus.
    Metrics,
    /// Whether the process lives: if not, restart it.
    Live,
    /// Whether it should get work.
    Ready,
}

/// Whether the body is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Head and body.
    Get,
    /// The head alone.
    Head,
}

/// Why a request gets no page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is no HTTP/1 request.
    Malformed,
    /// There is no such page.
    NotFound,
    /// The page cannot be written to.
    Method,
    /// Its head is too long.
    TooLarge,
}

/// Reads a request's head. `bytes` are all that came so far.
pub fn asked(bytes: &[u8]) -> HttpRequest {
    let mut headers = [httparse::EMPTY_HEADER; HTTP_HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if bytes.len() < HTTP_HEAD_BYTES_MAX => {
            return HttpRequest::More;
        }
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return HttpRequest::Refused(Refused::TooLarge);
        }
        Err(_) => return HttpRequest::Refused(Refused::Malformed),
    }
    let path = request.path.unwrap_or_default();
    let page = match path.split('?').next().unwrap_or_default() {
        "/metrics" => Page::Metrics,
        "/livez" => Page::Live,
        "/readyz" => Page::Ready,
        _ => return HttpRequest::Refused(Refused::NotFound),
    };
    match request.method {
        Some("GET") => HttpRequest::Page(page, Method::Get),
        Some("HEAD") => HttpRequest::Page(page, Method::Head),
        _ => HttpRequest::Refused(Refused::Method),
    }
}

/// One request and its answer.
async fn exchange(mut stream: Async<TcpStream>, observed: &Observed) -> io::Result<()> {
    let mut head = [0; HTTP_HEAD_BYTES_MAX];
    let mut filled = 0;
    let asked = loop {
        let read = stream.read(&mut head[filled..]).await?;
        if read == 0 {
            return Ok(());
        }
        filled += read;
        match asked(&head[..filled]) {
            HttpRequest::More => {}
            asked => break asked,
        }
    };
    stream.write_all(&answer(asked, observed)).await?;
    stream.get_ref().shutdown(Shutdown::Write)?;
    drain(&mut stream).await
}

/// Reads what the client still sends: closing with unread bytes would reset the connection and take
/// the answer with it.
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

fn answer(asked: HttpRequest, observed: &Observed) -> Vec<u8> {
    let refused = |status, sentence: &str| (status, format!("{sentence}\n"));
    let (status, body) = match asked {
        HttpRequest::More => unreachable!("an answer waits for the whole head"),
        HttpRequest::Page(Page::Metrics, _) => ("200 OK", exposition::render(observed)),
        HttpRequest::Page(Page::Live, _) => match &observed.status.stuck_threads()[..] {
            [] => ("200 OK", "live\n".to_owned()),
            stuck => {
                let lines = stuck.iter().map(|name| format!("the {name} thread does not turn\n"));
                ("503 Service Unavailable", lines.collect())
            }
        },
        HttpRequest::Page(Page::Ready, _) => match &observed.status.unready()[..] {
            [] => ("200 OK", "ready\n".to_owned()),
            reasons => {
                let lines = reasons.iter().map(|reason| reason.in_full() + "\n");
                ("503 Service Unavailable", lines.collect())
            }
        },
        HttpRequest::Refused(Refused::Malformed) => refused("400 Bad Request", "send HTTP/1.1"),
        HttpRequest::Refused(Refused::NotFound) => {
            refused("404 Not Found", "ask for /metrics, /livez or /readyz")
        }
        HttpRequest::Refused(Refused::Method) => refused("405 Method Not Allowed", "use GET"),
        HttpRequest::Refused(Refused::TooLarge) => {
            refused("431 Request Header Fields Too Large", "send a shorter request")
        }
    };
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nCache-Control: no-store\r\nConnection: close\r\n",
        body.len()
    );
    if asked == HttpRequest::Refused(Refused::Method) {
        answer += "Allow: GET, HEAD\r\n";
    }
    answer += "\r\n";
    if !matches!(asked, HttpRequest::Page(_, Method::Head)) {
        answer += &body;
    }
    answer.into_bytes()
}
