//! The two forms in which clients get the events of a stream: server-sent events, and messages of a
//! WebSocket.

use crate::view::json::Json;
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

/// A form of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventForm {
    /// Server-sent events: name, id and data have a line each.
    ServerSent,
    /// Messages of a WebSocket, each an array of events: `{"event":NAME,"id":ID,"data":DATA}`.
    WebSocket,
}

/// Events that are written together: to a WebSocket as one message, because a browser takes a busy
/// zone's updates only as fast as it takes messages.
pub(crate) struct EventBatch<'a> {
    form: EventForm,
    out: &'a mut Vec<u8>,
    /// The place where the batch begins in `out`.
    begin: usize,
}

/// The position after an event, with which a client can resume the stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventId<'a> {
    /// The zone.
    pub zone: u16,
    /// The number of the zone's update.
    pub update: u64,
    /// The positions of the stream's other zones, each after a comma.
    pub others: &'a str,
}

impl EventForm {
    /// Writes what shows that the stream is alive, and no event: a comment or a ping.
    pub(crate) fn write_sign_of_life(self, out: &mut Vec<u8>) {
        match self {
            EventForm::ServerSent => extend(out, &[":\n\n"]),
            EventForm::WebSocket => {
                let begin = out.len();
                frame(out, begin, OpCode::Control(Control::Ping));
            }
        }
    }
}

impl EventBatch<'_> {
    /// Begins a batch after what is in `out`.
    pub(crate) fn begin(form: EventForm, out: &mut Vec<u8>) -> EventBatch<'_> {
        let begin = out.len();
        EventBatch { form, out, begin }
    }

    /// Writes an event. The data are JSON.
    pub(crate) fn write(
        &mut self,
        name: &str,
        id: Option<EventId>,
        data: impl FnOnce(&mut Vec<u8>),
    ) {
        match self.form {
            EventForm::ServerSent => {
                extend(self.out, &["event: ", name]);
                if let Some(id) = id {
                    extend(self.out, &["\nid: "]);
                    id.write(self.out);
                }
                extend(self.out, &["\ndata: "]);
                data(self.out);
                extend(self.out, &["\n\n"]);
            }
            EventForm::WebSocket => self.write_element(|out| {
                extend(out, &["{\"event\":\"", name, "\","]);
                if let Some(id) = id {
                    extend(out, &["\"id\":\""]);
                    id.write(out);
                    extend(out, &["\","]);
                }
                extend(out, &["\"data\":"]);
                data(out);
                extend(out, &["}"]);
            }),
        }
    }

    /// Writes an event whose data are one object.
    pub(crate) fn write_object(&mut self, name: &str, write: impl FnOnce(&mut Json)) {
        self.write(name, None, |out| Json::object(out, write));
    }

    /// Writes an element of a message's array.
    pub(crate) fn write_element(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.out.push(if self.out.len() == self.begin { b'[' } else { b',' });
        write(self.out);
    }

    /// Ends the batch. Returns whether it has events.
    pub(crate) fn end(self) -> bool {
        let has_events = self.out.len() > self.begin;
        if has_events && self.form == EventForm::WebSocket {
            self.out.push(b']');
            frame(self.out, self.begin, OpCode::Data(Data::Text));
        }
        has_events
    }
}

impl EventId<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        let mut digits = itoa::Buffer::new();
        extend(out, &[digits.format(self.zone), ":"]);
        extend(out, &[digits.format(self.update), self.others]);
    }
}

/// Puts the header of a WebSocket's frame before the payload that begins at `begin`.
fn frame(out: &mut Vec<u8>, begin: usize, opcode: OpCode) {
    let payload = begin..out.len();
    let header = FrameHeader { opcode, ..FrameHeader::default() };
    let header_bytes = header.len(payload.len() as u64);
    out.resize(payload.end + header_bytes, 0);
    out.copy_within(payload.clone(), begin + header_bytes);
    let mut place = &mut out[begin..][..header_bytes];
    header.format(payload.len() as u64, &mut place).expect("there is room for the header");
}

fn extend(out: &mut Vec<u8>, parts: &[&str]) {
    parts.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
}
