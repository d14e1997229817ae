//! Names of brokers are looked up beside the control thread: a resolver whose servers do not answer
//! takes seconds to say so, and the group has to be heard meanwhile.

use crate::fetch::Resolved;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;

/// Names that are being looked up. The fetch path asks for each of them once at a time.
pub(super) struct Resolving {
    finder: mpsc::Sender<Resolved>,
    found: mpsc::Receiver<Resolved>,
}

impl Resolving {
    pub(super) fn new() -> Resolving {
        let (finder, found) = mpsc::channel();
        Resolving { finder, found }
    }

    /// Begins to look a name up.
    pub(super) fn begin(&self, host: String, port: u16) {
        let finder = self.finder.clone();
        let asked = host.clone();
        let find = move || {
            let address = look_up(&host, port);
            // The other end is gone only while the daemon ends.
            drop(finder.send(Resolved { host, port, address }));
        };
        if thread::Builder::new().name("resolver".to_owned()).spawn(find).is_err() {
            // Whoever asked asks again.
            drop(self.finder.send(Resolved { host: asked, port, address: None }));
        }
    }

    /// A name that was looked up, with its address if it has one.
    pub(super) fn next(&self) -> Option<Resolved> {
        self.found.try_recv().ok()
    }
}

/// Brokers that listen on both are rarer than hosts that resolve to both.
fn look_up(host: &str, port: u16) -> Option<SocketAddr> {
    let found = (host, port).to_socket_addrs().ok()?;
    found.min_by_key(SocketAddr::is_ipv6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_name_is_told_once_with_its_address_or_without() {
        let resolving = Resolving::new();
        resolving.begin("localhost".to_owned(), 9092);
        resolving.begin("no name".to_owned(), 9093);
        let patience = Duration::from_secs(30);
        let mut told = [(); 2].map(|()| resolving.found.recv_timeout(patience).expect("told"));
        told.sort_by_key(|resolved| resolved.port);
        let [known, unknown] = told;
        assert_eq!(known.address, Some("127.0.0.1:9092".parse().expect("an address")));
        assert_eq!((unknown.host.as_str(), unknown.address), ("no name", None));
        assert!(resolving.next().is_none());
    }
}
