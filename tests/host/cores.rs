//! Cores: the plan, and what the kernel says once it is carried out.
//!
//! The last test changes where this whole process may run, so it shares the process with none that
//! cares.

use huntd::runtime::RuntimeOptions;
use huntd::runtime::cpu::{
    self, CpuError, Plan, allowed_cores, list, parse_list, pin_this_thread, restrict_process,
    siblings, this_task, verify,
};
use huntd::runtime::ring::RingKind;
use std::sync::mpsc;
use support::needs;

fn options(hot_core: Option<usize>, helper_cores: Option<&[usize]>) -> RuntimeOptions {
    RuntimeOptions {
        hot_core,
        helper_cores: helper_cores.map(<[usize]>::to_vec),
        ring: RingKind::IoUring,
    }
}

fn plan(
    hot_core: Option<usize>,
    helper_cores: Option<&[usize]>,
    allowed: &[usize],
) -> Result<Plan, CpuError> {
    // Cores 2n and 2n + 1 are one physical core.
    cpu::plan(&options(hot_core, helper_cores), allowed, |core| vec![core & !1, core | 1])
}

fn pinned(hot_core: usize, helper_cores: &[usize]) -> Plan {
    Plan::Pinned { hot_core, helper_cores: helper_cores.to_vec() }
}

#[test]
fn lists_read_as_the_kernel_writes_them() {
    for (text, cores) in [("0", vec![0]), ("0-2,5", vec![0, 1, 2, 5]), ("1,3-4\n", vec![1, 3, 4])] {
        assert_eq!(parse_list(text), Some(cores.clone()));
        assert_eq!(list(&cores), text.trim());
    }
    for wrong in ["", "a", "1-", "-1", "2-1", "1,1", "0-1,1", "1024", "0-99999999999", "0,,1"] {
        assert_eq!(parse_list(wrong), None, "{wrong:?}");
    }
}

#[test]
fn left_to_choose_the_hot_thread_gets_the_last_core_and_its_sibling_stays_idle() {
    assert_eq!(plan(None, None, &[0, 1, 2, 3]).expect("a plan"), pinned(3, &[0, 1]));
    assert_eq!(plan(None, None, &[4, 6]).expect("a plan"), pinned(6, &[4]));
}

#[test]
fn siblings_share_the_work_when_no_other_core_is_left() {
    assert_eq!(plan(None, None, &[0, 1]).expect("a plan"), pinned(1, &[0]));
}

#[test]
fn configured_cores_are_taken_as_they_are() {
    let allowed = [0, 1, 2, 3];
    assert_eq!(plan(Some(2), None, &allowed).expect("a plan"), pinned(2, &[0, 1]));
    assert_eq!(plan(Some(2), Some(&[3]), &allowed).expect("a plan"), pinned(2, &[3]));
    assert_eq!(plan(None, Some(&[2, 3]), &allowed).expect("a plan"), pinned(1, &[2, 3]));
}

#[test]
fn with_one_allowed_core_nothing_is_pinned() {
    assert_eq!(plan(None, None, &[5]).expect("a plan"), Plan::Shared { core: 5 });
    assert_eq!(plan(Some(5), None, &[5]).expect("a plan"), Plan::Shared { core: 5 });
}

#[test]
fn a_core_that_is_not_allowed_is_named_with_its_key() {
    let hot = plan(Some(7), None, &[0, 1]).expect_err("7 is not allowed").to_string();
    assert!(hot.starts_with("core 7 of cpu.hot_core is not among the allowed cores 0-1"), "{hot}");
    let helper = plan(None, Some(&[0, 9]), &[0, 1]).expect_err("9 is not allowed").to_string();
    assert!(helper.contains("core 9 of cpu.helper_cores"), "{helper}");
}

#[test]
fn helpers_always_keep_a_core() {
    assert!(matches!(plan(None, Some(&[0, 1]), &[0, 1]), Err(CpuError::NoHelpers)));
    assert!(matches!(plan(Some(1), Some(&[1]), &[0, 1]), Err(CpuError::NoHelpers)));
}

#[test]
fn only_the_hot_thread_may_run_on_the_hot_core() {
    let allowed = allowed_cores().expect("the kernel tells");
    let plan = cpu::plan(&options(None, None), &allowed, siblings).expect("a plan");
    let Plan::Pinned { hot_core, .. } = plan else {
        needs::has("two cores", false);
        return;
    };
    let (stop, stopped) = mpsc::channel::<()>();
    let stopped = std::sync::Arc::new(std::sync::Mutex::new(stopped));
    let waiter = {
        let stopped = stopped.clone();
        move || {
            stopped.lock().expect("no panic").recv().expect_err("nothing is ever sent");
        }
    };
    // One thread exists before the restriction, one is made after it.
    let early = std::thread::spawn(waiter.clone());
    let unrestricted = verify(&plan, 0).expect_err("threads still run everywhere").to_string();
    assert!(unrestricted.contains(&format!("the hot core is {hot_core}")), "{unrestricted}");
    restrict_process(&plan).expect("the kernel lets it");
    let late = std::thread::spawn(waiter);
    verify(&plan, 0).expect("no thread may run on the hot core");

    let hot = std::thread::spawn({
        let plan = plan.clone();
        move || {
            pin_this_thread(&plan).expect("the kernel lets it");
            let hot = this_task();
            let placed = verify(&plan, hot);
            // What the hot thread starts inherits its core, and is found.
            let stray = std::thread::spawn(move || verify(&plan, hot));
            (placed, allowed_cores().expect("the kernel tells"), stray.join().expect("no panic"))
        }
    });
    let (placed, cores, stray) = hot.join().expect("no panic");
    placed.expect("all tasks are in place");
    assert_eq!(cores, [hot_core]);
    stray.expect_err("a thread of the hot thread's may run on the hot core");
    drop(stop);
    early.join().expect("no panic");
    late.join().expect("no panic");
}
