//! Tests that need nothing but this host: the source, cores and ring, the program as a child,
//! systemd.

mod clients;
mod confinement;
mod cores;
mod decoder_allocations;
mod licences;
mod ring_loop;
mod monitoring;
mod package;
mod readme;
mod replay;
mod schema;
mod serve;
mod service;
mod systemd;
mod tidy;
mod tls;
mod tools;
