//! A frame of updates as JSON, the bytes that huntd writes too.

/// Updates in one frame at most, as in huntd.
const UPDATES_MAX: u64 = 4096;

/// Room for the fields that stand before the updates and are known last.
const HEAD_BYTES: usize = 256;

/// The frame of one partition that is being filled.
pub struct Frame {
    bytes: Vec<u8>,
    count: u64,
    first_update: u64,
}

impl Frame {
    /// An empty frame before the first update.
    pub fn new() -> Frame {
        Frame { bytes: vec![b' '; HEAD_BYTES], count: 0, first_update: 0 }
    }

    /// Whether there is anything to send.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether no further update fits.
    pub fn is_full(&self) -> bool {
        self.count == UPDATES_MAX
    }

    /// Begins an update.
    pub fn begin(&mut self, kind: &str, player_id: u64, ts_us: i64) {
        if self.count > 0 {
            self.bytes.push(b',');
        }
        self.count += 1;
        self.text("{\"kind\":\"");
        self.text(kind);
        self.text("\",\"player_id\":\"");
        self.number(player_id);
        self.text("\",\"ts_us\":");
        self.number(ts_us);
    }

    /// A number of the update.
    pub fn field(&mut self, name: &str, value: u64) {
        self.name(name);
        self.number(value);
    }

    /// A number of the update that may be negative.
    pub fn signed(&mut self, name: &str, value: i64) {
        self.name(name);
        self.number(value);
    }

    /// Ends an update.
    pub fn end(&mut self) {
        self.bytes.push(b'}');
    }

    /// The frame for all input up to `next_offset`; the next one follows it.
    pub fn seal(&mut self, next_offset: i64) -> Vec<u8> {
        let Frame { count, first_update, .. } = *self;
        let head = format!(
            "{{\"version\":2,\"kind\":\"updates\",\"epoch\":1,\
             \"first_update\":{first_update},\"count\":{count},\
             \"next_offset\":{next_offset},\"ruleset\":0,\
             \"chain\":\"0000000000000000\",\"updates\":["
        );
        self.text("]}");
        let size = self.bytes.len();
        let mut sealed = std::mem::replace(&mut self.bytes, Vec::with_capacity(size));
        self.bytes.resize(HEAD_BYTES, b' ');
        // White space before a JSON value means nothing, but no frame of huntd's has it.
        let start = HEAD_BYTES - head.len();
        sealed[start..HEAD_BYTES].copy_from_slice(head.as_bytes());
        sealed.drain(..start);
        self.first_update += count;
        self.count = 0;
        sealed
    }

    fn name(&mut self, name: &str) {
        self.text(",\"");
        self.text(name);
        self.text("\":");
    }

    fn text(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
    }

    fn number(&mut self, number: impl itoa::Integer) {
        self.text(itoa::Buffer::new().format(number));
    }
}

impl Default for Frame {
    fn default() -> Frame {
        Frame::new()
    }
}
