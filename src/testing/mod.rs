//! What the tests, benches and fuzz targets of huntd share. The daemon uses none of it.

pub mod proof;

pub mod random;

pub mod random_game;

pub mod hostile_zone;

pub mod viewed_world;

pub mod frame_maker;

pub mod batch_builder;

pub mod memory_disk;

#[cfg(test)]
pub(crate) mod resident;

pub mod vectors;

pub mod canary;

pub mod tls_peer;

pub(crate) mod tls_client;

pub mod tls_script;

pub mod turf;
