//! Turf: two teams paint the fields of a square zone while a round runs. A small game that is not
//! the treasure hunt, in three editions: versions between which a state moves.
#![allow(unreachable_pub, reason = "the macros declare what other modules see")]

pub mod first;

pub mod second;

pub mod third;
