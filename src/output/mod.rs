//! The contents of the output topic, pure: frames and their encodings, the reader rule, dead
//! letters, and handoffs to other zones.

pub mod frame;

pub mod encode;

pub mod event_json;

pub mod reader;

pub mod mark;

pub mod fence_id;

pub mod fold;

pub(crate) mod verified;

pub mod dead_letter;

pub mod handoff;

#[cfg(test)]
mod tests;
