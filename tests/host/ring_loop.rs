//! The loop of a thread with a ring, without Kafka.
//!
//! The loop sleeps so long here that a test with a lost wake never ends.

use futures_lite::future::zip;
use huntd::queue::bell::Bell;
use huntd::queue::{self, Received, Sender};
use huntd::runtime::operations::{Handle, Operations};
use huntd::runtime::ring::{Ring, RingKind};
use huntd::runtime::ring_error::RingError;
use huntd::runtime::ring_loop::RingLoop;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::pin::Pin;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::thread;
use std::time::Duration;
use support::needs;

/// Longer than any test may take.
const FOREVER: Duration = Duration::from_secs(24 * 3600);

/// Set for a process in which a test takes a resource away.
const DEPRIVED: &str = "HUNTD_TEST_DEPRIVED";

fn hot_bell() -> Arc<Bell> {
    Arc::new(Bell::new().expect("a file descriptor"))
}

/// Runs a test on each kind of ring.
fn on_each_ring(test: impl Fn(RingLoop)) {
    for kind in [RingKind::IoUring, RingKind::Epoll] {
        // Fewer entries than some tests have operations.
        test(RingLoop::new(kind, 4, FOREVER, hot_bell()).expect("this kernel has both"));
    }
}

fn run<T>(ring_loop: &RingLoop, root: impl Future<Output = T>) -> T {
    ring_loop.run(root, |_| {}).expect("the ring works")
}

/// Two ends of a stream: one for the ring, one for the test.
fn pair() -> (Handle, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("a socket pair");
    (Arc::new(ours.into()), theirs)
}

#[test]
fn a_wake_from_another_thread_ends_the_sleep_every_time() {
    on_each_ring(|ring_loop| {
        // One item at a time and an answer to each: every item meets a loop that is about to sleep,
        // asleep, or has just woken.
        let rounds = 100_000;
        let turns = ring_loop.turns();
        let bell = Arc::new(Bell::new().expect("a file descriptor"));
        let (questions, mut asked) = queue::bounded_with_bell::<u64>(1, &bell);
        let (answers, mut answered) = queue::bounded_with_bell::<u64>(1, turns.bell());
        let other = thread::spawn(move || {
            loop {
                match asked.receive() {
                    Received::Item(question) => {
                        // Sometimes at once, sometimes after a while.
                        (0..question % 64).for_each(|_| std::hint::spin_loop());
                        assert_eq!(answers.try_send(question), Ok(()));
                    }
                    Received::Empty => bell.sleep(FOREVER).expect("a poll"),
                    Received::Ended => return,
                }
            }
        });
        run(&ring_loop, async {
            for round in 0..rounds {
                assert_eq!(questions.try_send(round), Ok(()));
                assert_eq!(turns.until(|| answered.try_receive()).await, round);
            }
        });
        drop(questions);
        other.join().expect("no panic");
    });
}

#[test]
fn many_threads_wake_one_loop_and_nothing_is_lost() {
    on_each_ring(|ring_loop| {
        let (sender, mut receiver) = queue::bounded_with_bell::<u64>(4, ring_loop.turns().bell());
        let spawn = |number: u64| {
            let sender: Sender<u64> = sender.clone();
            thread::spawn(move || {
                for item in 0..20_000 {
                    while sender.try_send(number + item).is_err() {
                        thread::yield_now();
                    }
                    if item % 100 == number {
                        thread::sleep(Duration::from_micros(50));
                    }
                }
            })
        };
        let threads: Vec<_> = (0..8).map(spawn).collect();
        drop(sender);
        let received = run(&ring_loop, async {
            let (mut count, mut sum) = (0_u64, 0_u64);
            let mut next = || match receiver.receive() {
                Received::Item(item) => Some(Some(item)),
                Received::Ended => Some(None),
                Received::Empty => None,
            };
            while let Some(item) = ring_loop.turns().until(&mut next).await {
                count += 1;
                sum += item;
            }
            (count, sum)
        });
        let all = 8 * 20_000;
        assert_eq!(received, (all, 8 * (20_000 * 19_999 / 2) + 20_000 * 28));
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
}

#[test]
fn sleepers_wake_in_the_order_of_their_deadlines_and_never_early() {
    on_each_ring(|ring_loop| {
        let driver = ring_loop.turns();
        let start = driver.now();
        let woken = RefCell::new(Vec::new());
        let sleeper = |ms: u64| {
            let woken = &woken;
            async move {
                let deadline = start + Duration::from_millis(ms);
                driver.sleep_until(deadline).await;
                assert!(driver.now() >= deadline);
                woken.borrow_mut().push(ms);
            }
        };
        run(&ring_loop, async {
            // Far enough apart that no busy machine wakes two of them in one turn.
            let late = zip(sleeper(900), sleeper(300));
            zip(late, zip(sleeper(600), sleeper(0))).await;
        });
        assert_eq!(woken.into_inner(), [0, 300, 600, 900]);
    });
}

#[test]
fn a_stage_that_yields_lets_the_others_have_their_turn() {
    on_each_ring(|ring_loop| {
        let driver = ring_loop.turns();
        let steps = RefCell::new(Vec::new());
        let stage = |name: &'static str| {
            let steps = &steps;
            async move {
                for _ in 0..3 {
                    steps.borrow_mut().push(name);
                    driver.yield_turn().await;
                }
            }
        };
        run(&ring_loop, zip(stage("a"), stage("b")));
        assert_eq!(steps.into_inner(), ["a", "b", "a", "b", "a", "b"]);
    });
}

#[test]
fn a_turn_submits_once_however_much_it_started() {
    on_each_ring(|ring_loop| {
        let driver = ring_loop.turns();
        let (socket, mut theirs) = pair();
        let enters = run(&ring_loop, async {
            let before = ring_loop.ring().enters();
            let first = driver.operations().send(&socket, vec![1; 10], 0);
            let second = driver.operations().send(&socket, vec![2; 10], 0);
            let (first, second) = zip(first, second).await;
            assert_eq!(first.result.and(second.result).ok(), Some(10));
            ring_loop.ring().enters() - before
        });
        assert_eq!(enters, 1);
        let mut received = [0; 20];
        theirs.read_exact(&mut received).expect("both were sent");
        assert_eq!(received, [[1; 10], [2; 10]].concat()[..]);
    });
}

#[test]
fn an_operation_that_is_dropped_early_is_cancelled_and_holds_its_socket_until_then() {
    on_each_ring(|ring_loop| {
        let driver = ring_loop.turns();
        let (socket, mut theirs) = pair();
        let received = run(&ring_loop, async {
            for round in 0..100 {
                let mut early = driver.operations().receive(&socket, vec![0; 64], 0);
                if round % 2 == 0 {
                    // The kernel has it, not only the queue.
                    poll_fn(|context| {
                        let Poll::Pending = Pin::new(&mut early).poll(context) else {
                            panic!("nothing was sent");
                        };
                        Poll::Ready(())
                    })
                    .await;
                    driver.yield_turn().await;
                }
                drop(early);
                // Handle and buffer are kept together, so the one tells of the other.
                assert_eq!(Arc::strong_count(&socket), 2, "the ring may still write");
                driver
                    .until(|| {
                        driver.turn_again();
                        (Arc::strong_count(&socket) == 1).then_some(())
                    })
                    .await;
            }
            theirs.write_all(b"whole").expect("the pair is open");
            let done = driver.operations().receive(&socket, vec![0; 64], 0).await;
            let count = done.result.expect("the pair is open");
            done.buffer[..count].to_vec()
        });
        assert_eq!(received, b"whole", "a cancelled operation takes nothing");
    });
}

#[test]
fn more_operations_than_the_submission_queue_holds_are_all_done() {
    on_each_ring(|ring_loop| {
        let pairs: Vec<_> = (0..64_u8).map(|_| pair()).collect();
        let operations = ring_loop.turns().operations();
        let mut receiving: Vec<_> =
            pairs.iter().map(|(socket, _)| operations.receive(socket, vec![0; 8], 0)).collect();
        for (number, (_, theirs)) in (0_u8..).zip(&pairs) {
            (&*theirs).write_all(&[number]).expect("the pair is open");
        }
        run(&ring_loop, async {
            for (number, operation) in (0_u8..).zip(&mut receiving) {
                let done = Pin::new(operation).await;
                assert_eq!((done.result.ok(), done.buffer[0]), (Some(1), number));
            }
        });
    });
}

#[test]
fn receive_all_gathers_many_small_sends_and_ends_early_only_with_the_stream() {
    on_each_ring(|ring_loop| {
        let driver = ring_loop.turns();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let bytes: Vec<u8> = (0..200_000_u32).map(|n| (n % 251) as u8).collect();
        let sent = bytes.clone();
        let sending = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("somebody connects");
            stream.set_nodelay(true).expect("TCP");
            for (number, piece) in sent.chunks(777).enumerate() {
                stream.write_all(piece).expect("the other end is open");
                if number % 16 == 0 {
                    thread::sleep(Duration::from_millis(1));
                }
            }
        });
        let stream = TcpStream::connect(address).expect("the thread listens");
        let socket: Handle = Arc::new(stream.into());
        let (half, all) = (100_000, 200_000);
        run(&ring_loop, async {
            let operations = driver.operations();
            let done = operations.receive_all(&socket, vec![0xff; half + 2], 1..half + 1).await;
            assert_eq!(done.result.expect("the stream is open"), half);
            assert_eq!(done.buffer[1..=half], bytes[..half]);
            assert_eq!((done.buffer[0], done.buffer[half + 1]), (0xff, 0xff), "beyond the range");
            let done = operations.receive_all(&socket, vec![0; all], 0..all).await;
            assert_eq!(done.result.expect("the stream ends in order"), all - half);
            assert_eq!(done.buffer[..all - half], bytes[half..]);
        });
        sending.join().expect("no panic");
    });
}

#[test]
fn a_thread_that_sleeps_at_a_bell_is_woken_through_the_ring() {
    on_each_ring(|ring_loop| {
        let driver = ring_loop.turns();
        let bell = Arc::new(Bell::new().expect("a file descriptor"));
        let handle: Handle =
            Arc::new(bell.as_fd().try_clone_to_owned().expect("a file descriptor"));
        let (work, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let rounds = 2_000;
        let sleeper = thread::spawn({
            let (bell, work, done) = (bell.clone(), work.clone(), done.clone());
            move || {
                for round in 1..=rounds {
                    while work.load(Ordering::SeqCst) < round {
                        bell.sleep(FOREVER).expect("a poll");
                    }
                    done.store(round, Ordering::SeqCst);
                }
            }
        });
        run(&ring_loop, async {
            for round in 1..=rounds {
                work.store(round, Ordering::SeqCst);
                if bell.call() {
                    driver.operations().ring_bell(&handle);
                }
                driver
                    .until(|| {
                        driver.turn_again();
                        (done.load(Ordering::SeqCst) == round).then_some(())
                    })
                    .await;
            }
        });
        sleeper.join().expect("no panic");
    });
}

#[test]
fn each_refusal_of_the_kernel_becomes_a_sentence_that_says_what_to_do() {
    let sentence = |code| RingError::from(io::Error::from_raw_os_error(code)).to_string();
    for code in [libc::EPERM, libc::EACCES, libc::ENOSYS] {
        assert!(sentence(code).contains("kernel.io_uring_disabled"), "{}", sentence(code));
        assert!(sentence(code).contains("seccomp"), "{}", sentence(code));
    }
    assert!(sentence(libc::EINVAL).contains("Linux 6.1"), "{}", sentence(libc::EINVAL));
    assert!(sentence(libc::ENOMEM).contains("LimitMEMLOCK"), "{}", sentence(libc::ENOMEM));
    for code in [libc::EMFILE, libc::ENFILE] {
        assert!(sentence(code).contains("LimitNOFILE"), "{}", sentence(code));
    }
}

/// Runs one test of this binary in a process of its own, in which it takes something away.
fn deprived(command: &mut Command, test: &str) -> Output {
    let test = format!("ring_loop::{test}");
    let output = command.args(["--exact", &test, "--nocapture"]).env(DEPRIVED, "1").output();
    output.expect("the child can be started")
}

fn is_deprived() -> bool {
    std::env::var_os(DEPRIVED).is_some()
}

fn assert_passed(output: &Output) {
    let text = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success() && output.status.signal().is_none(), "{text}");
    assert!(text.contains("1 passed"), "{text}");
}

#[test]
fn without_a_file_descriptor_the_error_says_which_limit_to_raise() {
    if !is_deprived() {
        let mut child = Command::new(std::env::current_exe().expect("this test"));
        let name = "without_a_file_descriptor_the_error_says_which_limit_to_raise";
        return assert_passed(&deprived(&mut child, name));
    }
    let limits = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(3), maximum: limits.maximum })
        .expect("a limit can be lowered");
    let Err(error) = Ring::new(RingKind::IoUring, Operations::new(), 8) else {
        panic!("a ring takes a file descriptor")
    };
    assert!(error.to_string().contains("LimitNOFILE"), "{error}");
}

#[test]
fn where_io_uring_is_forbidden_the_error_names_sysctl_and_seccomp() {
    if is_deprived() {
        let Err(error) = Ring::new(RingKind::IoUring, Operations::new(), 8) else {
            panic!("the kernel was made to refuse")
        };
        assert!(matches!(error, RingError::Forbidden(_)), "{error}");
        return;
    }
    if !needs::has_program("strace", "-V") {
        return;
    }
    // What a seccomp filter or the sysctl answers.
    let mut child = Command::new("strace");
    child.args(["-f", "-qq", "-e", "trace=io_uring_setup"]);
    child.args(["-e", "inject=io_uring_setup:error=EPERM"]);
    child.arg(std::env::current_exe().expect("this test"));
    let name = "where_io_uring_is_forbidden_the_error_names_sysctl_and_seccomp";
    assert_passed(&deprived(&mut child, name));
}
