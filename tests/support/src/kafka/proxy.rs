//! A proxy in front of a broker's listener, which damages what passes.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Bytes in one piece from the broker from which on it is records that pass, and no small answer.
const RECORDS_BYTES_MIN: usize = 8 * 1024;

/// A running proxy. Its threads end with the process, or with their connections.
pub struct Proxy {
    flips: Arc<AtomicUsize>,
}

impl Proxy {
    /// Listens at one port, and passes everything on to another one of this host.
    pub fn start(port: u16, broker_port: u16) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("the port is free");
        let flips = Arc::new(AtomicUsize::new(0));
        let left = flips.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(broker) = TcpStream::connect((Ipv4Addr::LOCALHOST, broker_port)) else {
                    continue;
                };
                let ends = [&client, &broker].map(|end| end.try_clone().expect("a descriptor"));
                let [client_end, broker_end] = ends;
                thread::spawn(move || copy(client, broker_end, |_| {}));
                let left = left.clone();
                thread::spawn(move || copy(broker, client_end, |piece| flip(piece, &left)));
            }
        });
        Proxy { flips }
    }

    /// Flips a bit in so many of the next pieces with records.
    pub fn flip(&self, count: usize) {
        self.flips.store(count, Ordering::SeqCst);
    }

    /// Bits that are still to be flipped.
    pub fn flips_left(&self) -> usize {
        self.flips.load(Ordering::SeqCst)
    }
}

fn flip(piece: &mut [u8], left: &AtomicUsize) {
    let take = |left: usize| left.checked_sub(1);
    if piece.len() >= RECORDS_BYTES_MIN
        && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok()
    {
        piece[RECORDS_BYTES_MIN / 2] ^= 0x10;
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, mut change: impl FnMut(&mut [u8])) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        change(&mut buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    // Either end may be gone already.
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
