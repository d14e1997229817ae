//! What the tests, benches and fuzz targets of huntd share. The daemon uses none of it.

pub mod random;

pub mod random_game;
