//! The producer of frames: its lanes alone, and its leaders beside a dialler that a test plays.

mod lanes;
mod leaders;
