//! The records of a TLS connection, as somebody on the way sees them: their lengths.

/// Length of a client's KeyUpdate in TLS 1.3: five bytes, what the record holds, and the tag.
/// Every other record of a client is longer: it begins a request, or belongs to the handshake.
/// A broker's has zeros for padding, and could be mistaken for a short answer.
const KEY_UPDATE_BYTES: usize = 5 + 1 + 16;

/// Walks over records, which come in pieces.
#[derive(Default)]
pub(super) struct RecordWalk {
    /// What has come of the next header, whose last two bytes are the length of what follows.
    header: Vec<u8>,
    /// Bytes of the current record that have not come yet.
    left: usize,
}

impl RecordWalk {
    /// How many KeyUpdates begin with this piece.
    pub(super) fn key_updates(&mut self, mut piece: &[u8]) -> u64 {
        let mut count = 0;
        while !piece.is_empty() {
            if self.left > 0 {
                let passed = self.left.min(piece.len());
                self.left -= passed;
                piece = &piece[passed..];
                continue;
            }
            self.header.push(piece[0]);
            piece = &piece[1..];
            if let [_, _, _, high, low] = self.header[..] {
                self.left = usize::from(u16::from_be_bytes([high, low]));
                self.header.clear();
                count += u64::from(self.left == KEY_UPDATE_BYTES);
            }
        }
        count
    }
}
