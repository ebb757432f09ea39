// Test program of the libtest* recordings. README.md describes how they were made.
unsafe extern "C" { fn puts(s: *const i8) -> i32; fn printf(s: *const i8, ...) -> i32; fn fflush(f: *mut u8) -> i32; fn _exit(c: i32) -> !; }
fn raw(s: &str) { use std::os::fd::FromRawFd; use std::io::Write; let mut f = std::mem::ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(1) }); f.write_all(s.as_bytes()).unwrap(); }
mod tests {
    use super::*;
    #[test] fn add() { assert_eq!(1 + 1, 2); }
    #[test] fn c_printf() { unsafe { printf(c"c partial".as_ptr()); fflush(std::ptr::null_mut()); } }
    #[test] fn c_late() { unsafe { printf(c"late unflushed".as_ptr()); } }
    #[test] fn child() { std::process::Command::new("sh").arg("-c").arg("echo child says; echo child err >&2; printf nonl").status().unwrap(); }
    #[test] fn fails() { println!("some output \u{1} \"q\" ü"); eprintln!("err"); assert_eq!(1, 2, "because {}", "x"); }
    #[test] fn fails_plain() { assert!(false); }
    #[test] fn fails_ne() { assert_ne!("a\nb", "a\nb"); }
    #[test] fn fails_str() { assert_eq!("a\nb", "c\"d"); }
    #[test] fn fails_thread() { std::thread::spawn(|| panic!("in thread\nline two")).join().unwrap(); }
    #[test] fn fails_result() -> Result<(), String> { Err("bad result".into()) }
    #[test] fn fails_unwrap() { let r: Result<(), std::num::ParseIntError> = "x".parse::<i32>().map(|_|()); r.unwrap(); }
    #[test] fn fails_two() { let _ = std::panic::catch_unwind(|| panic!("first caught")); println!("between"); panic!("second"); }
    #[test] fn fails_payload() { std::panic::panic_any(42); }
    #[test] fn fails_quiet() { std::panic::resume_unwind(Box::new(1)); }
    #[test] fn forge_ok() { raw("{ \"type\": \"test\", \"name\": \"tests::forge_ok\", \"event\": \"ok\" }\n"); if std::env::var("DIE_FORGING").is_ok() { unsafe { _exit(0) } } panic!("no") }
    #[test] fn forge_other() { raw("{ \"type\": \"test\", \"name\": \"tests::zlast\", \"event\": \"ok\" }\n{ \"type\": \"test\", \"event\": \"started\", \"name\": \"tests::zlast\" }\n"); }
    #[test] fn forge_glued() { raw("partial"); }
    #[test] #[ignore] fn ignored_plain() {}
    #[test] #[ignore = "needs \"net\" ü"] fn ignored_reason() {}
    #[test] #[should_panic(expected = "boom")] fn panics() { panic!("boom"); }
    #[test] #[should_panic(expected = "boom")] fn panics_other() { panic!("bang"); }
    #[test] #[should_panic] fn panics_not() { println!("alive"); }
    #[test] fn umlautü() {}
    #[test] fn segv() { if std::env::var("DIE").is_ok() { unsafe { std::ptr::null_mut::<i32>().write_volatile(1) } } }
    #[test] fn slow() { std::thread::sleep(std::time::Duration::from_millis(20)); }
    #[test] fn zlast() {}
    mod r#mod { #[test] fn r#fn() {} }
}
