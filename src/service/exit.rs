//! The closed list of exit codes, common to all verbs. docs/REFERENCE.md has the same table.

use super::log;
use crate::runtime::end::end_now;
use crate::telemetry::printable::printable;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, Write};

/// Generates the enum and the meanings from one table.
macro_rules! exit_codes {
    ($($code:ident = $number:literal, $meaning:literal;)*) => {
        /// How the process ended, for the program that started it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum ExitCode {
            $(#[doc = $meaning] $code = $number,)*
        }

        impl ExitCode {
            /// All codes, by number.
            pub const ALL: [ExitCode; [$($number),*].len()] = [$(ExitCode::$code),*];

            /// The meaning of the code and what to do, as in docs/REFERENCE.md.
            pub fn meaning(self) -> &'static str {
                match self { $(ExitCode::$code => $meaning),* }
            }
        }
    };
}

exit_codes! {
    Ok = 0,
        "All is well: the work is done, or a signal asked to stop.";
    Usage = 2,
        "The command line is wrong: see `--help`.";
    Config = 3,
        "The configuration is wrong, or names something missing or in use: see the message.";
    KafkaUnreachable = 4,
        "No broker answers or accepts frames: check `kafka.brokers` and the network.";
    TopicWrong = 5,
        "A topic is missing or has the wrong shape: `huntd topics` creates and checks them.";
    NotAuthorised = 6,
        "A broker refuses a topic or the group: grant the right that the message names.";
    RingUnavailable = 7,
        "The kernel refuses io_uring: check `kernel.io_uring_disabled` and seccomp filters, or set \
         `runtime.ring`.";
    CorePinning = 8,
        "The hot thread cannot have its core: check `[cpu]` and the allowed cores.";
    VerificationFailed = 9,
        "Verification failed: the message says what is lost, repeated, changed or damaged.";
    ShardHalted = 10,
        "A shard had halted when huntd was stopped: the log names partition and reason.";
    OutOfResources = 11,
        "File descriptors, threads or disk space ran out, or an address cannot be listened on yet: \
         the message says what to do.";
    TlsRefused = 12,
        "TLS verification failed or was refused: check certificates and `[kafka.tls]`.";
    NotAuthenticated = 13,
        "A broker refuses the user or the mechanism: check `[kafka.sasl]` and the secret.";
    ListenerDiffers = 14,
        "A listener has TLS or SASL that is not configured, or the reverse: check its port.";
    Bug = 70,
        "A bug: the message names the place. Please report it.";
    Interrupted = 130,
        "A second signal ended the process before it had drained.";
}

impl ExitCode {
    /// The code of a process that cannot listen on an address. One that is in use, or that the
    /// host does not have yet, may be free after a restart.
    pub(crate) fn of_listening(error: &io::Error) -> ExitCode {
        match error.kind() {
            io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable => ExitCode::OutOfResources,
            _ => ExitCode::Config,
        }
    }

    /// The exit status of the process.
    pub fn number(self) -> u8 {
        self as u8
    }
}

/// Makes a panic in any thread end the process with [`ExitCode::Bug`], after its message.
///
/// A daemon that has lost a thread could not keep its guarantees; the supervisor's restart goes
/// through recovery instead. `is_contained` returns, on the thread that panics, whether the panic
/// will be caught.
pub(crate) fn end_on_panic(is_contained: fn() -> bool) {
    std::panic::set_hook(Box::new(move |panic| {
        let thread = std::thread::current();
        let (name, trace) = (thread.name().unwrap_or("?"), Backtrace::capture());
        let text = match trace.status() {
            BacktraceStatus::Disabled => format!("thread '{name}' {panic}\n"),
            _ => format!("thread '{name}' {panic}\n{trace}\n"),
        };
        if is_contained() {
            return log::say(text);
        }
        log::say_last(text);
        let _unless_closed = std::io::stdout().flush();
        end_now(ExitCode::Bug.number());
    }));
}

/// Ends the process from any thread, once the log and standard output are written.
pub fn end(code: ExitCode) -> ! {
    log::flush();
    // Nobody may be there to read it.
    let _unless_closed = std::io::stdout().flush();
    end_now(code.number())
}

/// Writes errors to standard error, one per line.
pub fn say(sentences: &str) {
    log::say(sentences.lines().map(|line| format!("huntd: {}\n", printable(line))).collect());
}
