//! The generator alone: how fast it is if whatever takes its requests is never in its way.

use crate::programs::thread_cpu_ns;
use crate::table::say;
use huntd::kafka::wire::FRAME_PREFIX_BYTES;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};
use support::batch_load::Load;
use support::generator::{Generator, Pace, now_us};
use support::wire::produced;

const TOPIC: &str = "sink";

/// Sends a load for so long at its rate, and then the same events as fast as they go, to what takes
/// everything and keeps nothing.
pub(crate) fn measure(load: &Load, time: Duration) {
    let shape = load.shape;
    let ticks = (time.as_micros() as u64).div_ceil(shape.tick_us(1).max(1));
    for pace in [Pace::Intended, Pace::Unpaced] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address").to_string();
        let answer = produced(TOPIC, shape.partitions as i32);
        let sink = thread::spawn(move || take_all(&listener, &answer));
        let mut generator = Generator::new(load, &address, TOPIC, pace);
        generator.send_joins(now_us());
        let (started, ran_ns) = (Instant::now(), thread_cpu_ns());
        let late = generator.send_ticks(now_us(), 0..ticks);
        let (took, ran_ns) = (started.elapsed().as_secs_f64(), thread_cpu_ns() - ran_ns);
        generator.finish();
        let bytes = sink.join().expect("the sink ends with its connection");
        let events = (ticks * shape.tick_events()) as f64;
        let what = match pace {
            Pace::Intended => format!("{} events/s asked of it", shape.rate),
            Pace::Unpaced => "as fast as it goes".to_owned(),
        };
        say(&format!(
            "the generator alone, {what}: {:.2} M events/s, {} MiB; its thread took {:.0} ns an \
             event, {:.2} of a core; the latest request left {:.1} ms after its time",
            events / took / 1e6,
            bytes >> 20,
            ran_ns as f64 / events,
            ran_ns as f64 / took / 1e9,
            late.as_secs_f64() * 1e3,
        ));
    }
}

/// Reads the requests of one connection and answers each; gives their bytes.
fn take_all(listener: &TcpListener, answer: &[u8]) -> u64 {
    let (mut stream, _) = listener.accept().expect("the generator connects");
    stream.set_nodelay(true).expect("a TCP socket has this option");
    let (mut request, mut bytes) = (Vec::new(), 0);
    while read_request(&mut stream, &mut request).is_ok() {
        bytes += request.len() as u64;
        // A program that has sent everything may be gone.
        if stream.write_all(answer).is_err() {
            break;
        }
    }
    bytes
}

fn read_request(stream: &mut TcpStream, request: &mut Vec<u8>) -> io::Result<()> {
    let mut prefix = [0; FRAME_PREFIX_BYTES];
    stream.read_exact(&mut prefix)?;
    request.resize(i32::from_be_bytes(prefix) as usize, 0);
    stream.read_exact(request)
}
