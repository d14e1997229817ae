//! Where brokers listen. Looked at every turn, so looking allocates nothing.

use std::net::SocketAddr;

/// The brokers' names with their addresses.
#[derive(Default)]
pub(crate) struct Addresses {
    known: Vec<Place>,
}

struct Place {
    host: String,
    port: u16,
    /// `None` while the name is being resolved.
    address: Option<SocketAddr>,
}

impl Addresses {
    /// Whether the name is resolved, or being resolved.
    pub(crate) fn has(&self, host: &str, port: u16) -> bool {
        self.place(host, port).is_some()
    }

    /// The address, once the name is resolved.
    pub(crate) fn get(&self, host: &str, port: u16) -> Option<SocketAddr> {
        self.known[self.place(host, port)?].address
    }

    /// All addresses, in the order in which the names became known.
    pub(crate) fn iter(&self) -> impl Iterator<Item = SocketAddr> {
        self.known.iter().filter_map(|place| place.address)
    }

    /// Notes a name, with its address or as one that is being resolved.
    pub(crate) fn put(&mut self, host: &str, port: u16, address: Option<SocketAddr>) {
        match self.place(host, port) {
            Some(place) => self.known[place].address = address,
            None => self.known.push(Place { host: host.to_owned(), port, address }),
        }
    }

    /// Forgets a name that could not be resolved, so that it is asked for again.
    pub(crate) fn remove(&mut self, host: &str, port: u16) {
        if let Some(place) = self.place(host, port) {
            self.known.remove(place);
        }
    }

    fn place(&self, host: &str, port: u16) -> Option<usize> {
        self.known.iter().position(|place| place.host == host && place.port == port)
    }
}
