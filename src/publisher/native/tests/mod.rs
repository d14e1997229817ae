//! The producer of frames: its lanes alone, and its leaders beside a dialler that a test plays.

mod bench;
mod lanes;
mod leaders;
mod producer_ids;
