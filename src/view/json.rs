//! JSON into a buffer that is reused, field by field.

/// Numbers up to here are read exactly by every JSON reader; larger ones are written as texts.
const NUMBER_MAX: u64 = 1 << 53;

/// An object or array that is being written.
pub struct Json<'a> {
    out: &'a mut Vec<u8>,
    /// Whether the next value needs a comma before it.
    follows: bool,
}

impl<'a> Json<'a> {
    /// Writes one object.
    pub(crate) fn object(out: &'a mut Vec<u8>, write: impl FnOnce(&mut Json)) {
        nest(out, b'{', b'}', write);
    }

    /// Writes one list of numbers.
    pub(crate) fn row(out: &mut Vec<u8>, numbers: &[i64]) {
        out.push(b'[');
        for (at, number) in numbers.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            out.extend_from_slice(itoa::Buffer::new().format(*number).as_bytes());
        }
        out.push(b']');
    }

    /// Writes a number of up to 64 bits.
    pub fn number(&mut self, key: &str, number: u64) -> &mut Self {
        self.key(key);
        push_number(self.out, number);
        self
    }

    /// Writes a signed number.
    pub fn signed(&mut self, key: &str, number: i64) -> &mut Self {
        self.key(key);
        self.out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        self
    }

    /// Writes a number as a text, as players are written.
    pub(crate) fn id(&mut self, key: &str, id: u64) -> &mut Self {
        self.text(key, itoa::Buffer::new().format(id))
    }

    /// Writes a text.
    pub fn text(&mut self, key: &str, text: &str) -> &mut Self {
        self.key(key);
        push_text(self.out, text);
        self
    }

    /// Writes a value that is JSON already.
    pub(crate) fn json(&mut self, key: &str, value: &[u8]) -> &mut Self {
        self.key(key);
        self.out.extend_from_slice(value);
        self
    }

    /// Writes an object within.
    pub(crate) fn object_at(&mut self, key: &str, write: impl FnOnce(&mut Json)) -> &mut Self {
        self.key(key);
        nest(self.out, b'{', b'}', write);
        self
    }

    /// Writes a list of objects.
    pub(crate) fn objects<T>(
        &mut self,
        key: &str,
        items: impl Iterator<Item = T>,
        write: impl Fn(&mut Json, T),
    ) -> &mut Self {
        self.list(key, items, |out, item| nest(out, b'{', b'}', |json| write(json, item)))
    }

    /// Writes a list of lists of numbers.
    pub(crate) fn rows<const COUNT: usize>(
        &mut self,
        key: &str,
        rows: impl Iterator<Item = [i64; COUNT]>,
    ) -> &mut Self {
        self.list(key, rows, |out, row| Json::row(out, &row))
    }

    /// Writes a list whose items are written as JSON already.
    pub fn list<T>(
        &mut self,
        key: &str,
        items: impl Iterator<Item = T>,
        write: impl Fn(&mut Vec<u8>, T),
    ) -> &mut Self {
        self.key(key);
        self.out.push(b'[');
        for (at, item) in items.enumerate() {
            if at > 0 {
                self.out.push(b',');
            }
            write(self.out, item);
        }
        self.out.push(b']');
        self
    }

    fn key(&mut self, key: &str) {
        if std::mem::replace(&mut self.follows, true) {
            self.out.push(b',');
        }
        push_text(self.out, key);
        self.out.push(b':');
    }
}

fn nest(out: &mut Vec<u8>, open: u8, close: u8, write: impl FnOnce(&mut Json)) {
    out.push(open);
    write(&mut Json { out, follows: false });
    out.push(close);
}

fn push_number(out: &mut Vec<u8>, number: u64) {
    let mut digits = itoa::Buffer::new();
    match number > NUMBER_MAX {
        true => push_text(out, digits.format(number)),
        false => out.extend_from_slice(digits.format(number).as_bytes()),
    }
}

fn push_text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0..0x20 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_json_with_large_numbers_as_texts() {
        let mut out = Vec::new();
        Json::object(&mut out, |json| {
            json.number("a", NUMBER_MAX).number("b", NUMBER_MAX + 1).signed("c", -4);
            json.text("d", "say \"\\\n\u{e4}").id("f", 7);
            json.rows("g", [[1, -2], [3, 4]].into_iter());
            json.objects("h", 0..2, |json, at| {
                json.number("at", at);
            });
        });
        let expected = "{\"a\":9007199254740992,\"b\":\"9007199254740993\",\"c\":-4,\
                        \"d\":\"say \\\"\\\\\\u000a\u{e4}\",\"f\":\"7\",\
                        \"g\":[[1,-2],[3,4]],\"h\":[{\"at\":0},{\"at\":1}]}";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
