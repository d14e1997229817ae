//! The published stack in Rust: hyper on tokio in front of Redis. Cards and polls are texts by
//! player, the world's board is a sorted set, and an event is a write to it.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::error::Error;
use tokio::net::TcpListener;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Failure = Box<dyn Error + Send + Sync>;

#[derive(Serialize)]
struct Place {
    rank: isize,
    player_id: String,
    score: i64,
}

#[derive(Serialize)]
struct Board {
    places: Vec<Place>,
}

#[derive(Deserialize)]
struct Event<'a> {
    player_id: &'a str,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let store = std::env::args().nth(1).ok_or("the first argument is the address of Redis")?;
    let store = redis::Client::open(format!("redis://{store}/"))?;
    // One connection for all: requests that wait at the same time share their round trips.
    let store = store.get_multiplexed_async_connection().await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    std::thread::spawn(|| {
        // Who started it closes its input in the end.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let store = store.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| answer(store.clone(), request));
            let connection = hyper::server::conn::http1::Builder::new();
            // A client that goes away ends its connection, and nothing else.
            let _ = connection.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(
    store: MultiplexedConnection,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, body) = match body(store, request).await {
        Ok(Some(body)) => (StatusCode::OK, body),
        Ok(None) => (StatusCode::NOT_FOUND, Vec::new()),
        Err(failure) => (StatusCode::INTERNAL_SERVER_ERROR, failure.to_string().into_bytes()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(response)
}

async fn body(
    mut store: MultiplexedConnection,
    request: Request<Incoming>,
) -> Result<Option<Vec<u8>>, Failure> {
    let path = request.uri().path();
    if let Some(player) = path.strip_prefix("/v1/players/") {
        let key = match player.strip_suffix("/poll") {
            Some(id) => format!("poll:{id}"),
            None => format!("card:{player}"),
        };
        return Ok(store.get(key).await?);
    }
    if path == "/v1/boards/world" {
        let query = request.uri().query().unwrap_or_default();
        let number = |name: &str| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let mut values = pairs.filter(|(key, _)| *key == name).map(|(_, value)| value.parse());
            values.next().and_then(Result::ok).unwrap_or(1)
        };
        let (from, count): (isize, isize) = (number("from"), number("count"));
        let last = from + count - 2;
        let found: Vec<(String, f64)> = store.zrevrange_withscores("world", from - 1, last).await?;
        let places = (from..).zip(found);
        let place = |(rank, (player_id, score))| Place { rank, player_id, score: score as i64 };
        let board = Board { places: places.map(place).collect() };
        return Ok(Some(serde_json::to_vec(&board)?));
    }
    if path == "/v1/events" && request.method() == Method::POST {
        let body = request.into_body().collect().await?.to_bytes();
        let event: Event<'_> = serde_json::from_slice(&body)?;
        let score: f64 = store.zincr("world", event.player_id, 1).await?;
        return Ok(Some(format!(r#"{{"score":{}}}"#, score as i64).into_bytes()));
    }
    Ok(None)
}
