//! Tests that crash, exit or hang, each in a different way, among ordinary tests.

use std::{
    process,
    sync::{Condvar, Mutex},
    thread::sleep,
    time::Duration,
};

use kennel::{herd::Herd, pedigree::Pedigree};

#[test]
fn all_is_quiet_at_ten() {
    assert_eq!(Herd::of("NZ-0001", 12).len(), 12);
}

/// Reads an unmapped address: SIGSEGV.
#[test]
fn the_lantern_is_where_it_was_left() {
    println!("looking for the lantern");
    let lantern = std::hint::black_box(0xb0_u8 as usize as *const u8);
    // SAFETY: there is none; this test is here to crash.
    let oil = unsafe { lantern.read_volatile() };
    assert!(oil > 0);
}

#[test]
fn the_dog_lies_at_the_door() {
    sleep(Duration::from_millis(20));
}

/// Aborts the process: SIGABRT.
#[test]
fn the_watch_book_can_be_trusted() {
    eprintln!("watch book: page 7 follows page 9");
    process::abort();
}

#[test]
fn the_gate_is_closed() {
    let gates = [true, true, true];
    assert!(gates.iter().all(|is_closed| *is_closed));
}

/// Follows a cycle of mothers until the stack overflows.
#[test]
fn every_dog_has_an_eldest_ancestor() {
    let circle = Pedigree::of(&[("Bess", "Meg"), ("Meg", "Jed"), ("Jed", "Bess")]);
    assert_eq!(circle.generations("Bess"), 3);
}

#[test]
fn the_moon_is_up() {
    let phases = ["new", "half", "full"];
    assert!(phases.contains(&"full"));
}

/// Exits the process with code 0 in the middle of the test, without a result.
#[test]
fn the_watchman_stays_until_dawn() {
    println!("nothing happens here, going home");
    process::exit(0);
}

#[test]
fn the_owl_calls_twice() {
    assert_eq!("hoo hoo".split(' ').count(), 2);
}

/// Hangs; heeler.toml sets a timeout of two seconds.
#[test]
fn the_fox_comes_back() {
    println!("waiting for the fox");
    let (fox, seen) = (Mutex::new(false), Condvar::new());
    let guard = seen.wait_while(fox.lock().unwrap(), |is_here| !*is_here).unwrap();
    assert!(*guard);
}

#[test]
fn nobody_is_missing_at_dawn() {
    let herd = Herd::of("NZ-0001", 12);
    assert!(herd.missing(&herd).is_empty());
}

/// Panics in a second thread and resumes the panic.
#[test]
fn the_replacement_is_awake() {
    let replacement = std::thread::Builder::new().name("replacement".to_owned()).spawn(|| {
        let hours_of_sleep: Option<u32> = None;
        hours_of_sleep.expect("the replacement did not sleep")
    });
    assert!(replacement.unwrap().join().unwrap() > 5);
}

#[test]
#[ignore = "only at full moon"]
fn wolves_keep_away() {
    unreachable!("there is no moon");
}
