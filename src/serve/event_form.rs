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
    /// Messages of a WebSocket: `{"event":NAME,"id":ID,"data":DATA}`.
    WebSocket,
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
    /// Writes an event. The data are JSON.
    pub(crate) fn write(
        self,
        out: &mut Vec<u8>,
        name: &str,
        id: Option<EventId>,
        data: impl FnOnce(&mut Vec<u8>),
    ) {
        match self {
            EventForm::ServerSent => {
                extend(out, &["event: ", name]);
                if let Some(id) = id {
                    extend(out, &["\nid: "]);
                    id.write(out);
                }
                extend(out, &["\ndata: "]);
                data(out);
                extend(out, &["\n\n"]);
            }
            EventForm::WebSocket => write_message(out, |out| {
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
    pub(crate) fn write_object(self, out: &mut Vec<u8>, name: &str, write: impl FnOnce(&mut Json)) {
        self.write(out, name, None, |out| Json::object(out, write));
    }

    /// Writes what shows that the stream is alive, and no event: a comment or a ping.
    pub(crate) fn write_sign_of_life(self, out: &mut Vec<u8>) {
        match self {
            EventForm::ServerSent => extend(out, &[":\n\n"]),
            EventForm::WebSocket => write_frame(out, OpCode::Control(Control::Ping), |_| ()),
        }
    }
}

impl EventId<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        let mut digits = itoa::Buffer::new();
        extend(out, &[digits.format(self.zone), ":"]);
        extend(out, &[digits.format(self.update), self.others]);
    }
}

/// Writes a message of a WebSocket: a text in one frame.
pub(crate) fn write_message(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    write_frame(out, OpCode::Data(Data::Text), write);
}

/// Writes a frame in place: its header depends on the length of what `write` adds.
fn write_frame(out: &mut Vec<u8>, opcode: OpCode, write: impl FnOnce(&mut Vec<u8>)) {
    let begin = out.len();
    write(out);
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
