//! The closed list of exit codes, common to all verbs. docs/REFERENCE.md has the same table.

use super::log;
use crate::telemetry::printable::printable;
use std::backtrace::{Backtrace, BacktraceStatus};

/// How the process ended, for the program that started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// Success.
    Ok = 0,
    /// The command line is wrong.
    Usage = 2,
    /// The configuration is wrong.
    Config = 3,
    /// No broker answers.
    KafkaUnreachable = 4,
    /// A topic is missing or has the wrong shape.
    TopicWrong = 5,
    /// A broker refuses a topic or the group.
    NotAuthorised = 6,
    /// io_uring is not available.
    RingUnavailable = 7,
    /// The hot thread cannot have a core of its own.
    CorePinning = 8,
    /// A verification failed.
    VerificationFailed = 9,
    /// A shard had halted when the process was stopped.
    ShardHalted = 10,
    /// The process has no file descriptor or thread left, or no room for its output.
    OutOfResources = 11,
    /// A TLS connection to a broker cannot be established.
    TlsRefused = 12,
    /// A broker does not authenticate this client.
    NotAuthenticated = 13,
    /// The listener's security differs from the configuration.
    ListenerDiffers = 14,
    /// A bug.
    Bug = 70,
    /// A second signal ended the process before it had drained.
    Interrupted = 130,
}

impl ExitCode {
    /// All codes, by number.
    pub const ALL: [ExitCode; 16] = [
        ExitCode::Ok,
        ExitCode::Usage,
        ExitCode::Config,
        ExitCode::KafkaUnreachable,
        ExitCode::TopicWrong,
        ExitCode::NotAuthorised,
        ExitCode::RingUnavailable,
        ExitCode::CorePinning,
        ExitCode::VerificationFailed,
        ExitCode::ShardHalted,
        ExitCode::OutOfResources,
        ExitCode::TlsRefused,
        ExitCode::NotAuthenticated,
        ExitCode::ListenerDiffers,
        ExitCode::Bug,
        ExitCode::Interrupted,
    ];

    /// The exit status of the process.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The meaning of the code and what to do, as in docs/REFERENCE.md.
    pub fn meaning(self) -> &'static str {
        match self {
            ExitCode::Ok => "All is well: the work is done, or a signal asked to stop.",
            ExitCode::Usage => "The command line is wrong: see `--help`.",
            ExitCode::Config => {
                "The configuration is wrong, or names something missing or in use: see the message."
            }
            ExitCode::KafkaUnreachable => {
                "No broker answers or accepts frames: check `kafka.brokers` and the network."
            }
            ExitCode::TopicWrong => {
                "A topic is missing or has the wrong shape: `huntd topics` creates and checks them."
            }
            ExitCode::NotAuthorised => {
                "A broker refuses a topic or the group: grant the right that the message names."
            }
            ExitCode::RingUnavailable => {
                "The kernel refuses io_uring: check `kernel.io_uring_disabled` and seccomp filters."
            }
            ExitCode::CorePinning => {
                "The hot thread cannot have its core: check `[cpu]` and the allowed cores."
            }
            ExitCode::VerificationFailed => {
                "Verification failed: the message says what is lost, repeated, changed or damaged."
            }
            ExitCode::ShardHalted => {
                "A shard had halted when huntd was stopped: the log names partition and reason."
            }
            ExitCode::OutOfResources => {
                "File descriptors, threads or disk space ran out: the message says what to do."
            }
            ExitCode::TlsRefused => {
                "TLS verification failed or was refused: check certificates and `[kafka.tls]`."
            }
            ExitCode::NotAuthenticated => {
                "A broker refuses the user or the mechanism: check `[kafka.sasl]` and the secret."
            }
            ExitCode::ListenerDiffers => {
                "A listener has TLS or SASL that is not configured, or the reverse: check its port."
            }
            ExitCode::Bug => "A bug: the message names the place. Please report it.",
            ExitCode::Interrupted => "A second signal ended the process before it had drained.",
        }
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> std::process::ExitCode {
        std::process::ExitCode::from(code.number())
    }
}

/// Makes a panic in any thread end the process with [`ExitCode::Bug`], after its message.
///
/// A daemon that has lost a thread could not keep its guarantees; the supervisor's restart goes
/// through recovery instead. `is_contained` returns, on the thread that panics, whether the panic
/// will be caught.
pub fn end_on_panic(is_contained: fn() -> bool) {
    std::panic::set_hook(Box::new(move |panic| {
        let thread = std::thread::current();
        let (name, trace) = (thread.name().unwrap_or("?"), Backtrace::capture());
        log::say(match trace.status() {
            BacktraceStatus::Disabled => format!("thread '{name}' {panic}\n"),
            _ => format!("thread '{name}' {panic}\n{trace}\n"),
        });
        if !is_contained() {
            end(ExitCode::Bug);
        }
    }));
}

/// Ends the process from any thread, once the log is written.
pub(crate) fn end(code: ExitCode) -> ! {
    log::flush();
    std::process::exit(i32::from(code.number()))
}

/// Writes errors to standard error, one per line.
pub fn say(sentences: &str) {
    log::say(sentences.lines().map(|line| format!("huntd: {}\n", printable(line))).collect());
}
