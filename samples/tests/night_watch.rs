//! The night watch: tests that take their process down, each in its own way, among tests that do not.

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

/// Reads through an address that is not ours: SIGSEGV.
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

/// Gives up the whole process: SIGABRT.
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

/// Follows a circle of mothers until the stack is full.
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

/// Leaves in the middle, politely: exit code 0, and yet nothing passed.
#[test]
fn the_watchman_stays_until_dawn() {
    println!("nothing happens here, going home");
    process::exit(0);
}

#[test]
fn the_owl_calls_twice() {
    assert_eq!("hoo hoo".split(' ').count(), 2);
}

/// Waits for someone who does not come; heeler.toml gives it two seconds.
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

/// Panics in a thread of its own and passes the panic on.
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
