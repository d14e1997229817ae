//! Frames with the updates of the hunt.

use crate::hunt::change::UPDATES;
use crate::kit::update::Update;
use crate::output::encode::{self, FrameError};
use crate::output::frame::{Format, FrameHeader};

/// Appends the encoded frame to `out`, which the caller has emptied.
pub fn encode(format: Format, header: &FrameHeader, updates: &[Update], out: &mut Vec<u8>) {
    encode::encode(format, UPDATES, (header, updates), out);
}

/// Decodes a frame in either encoding.
pub fn decode_frame(bytes: &[u8]) -> Result<(FrameHeader, Vec<Update>), FrameError> {
    encode::decode(bytes, UPDATES)
}
