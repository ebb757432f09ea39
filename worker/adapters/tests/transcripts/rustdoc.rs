//! Documentation tests of every kind, recorded for the parser.
//!
//! ```
//! assert_eq!(dt::one(), 1);
//! ```

/// One.
///
/// ```
/// println!("hello from ok");
/// assert_eq!(dt::one(), 1);
/// ```
///
/// ```
/// println!("said before failing");
/// assert_eq!(dt::one(), 2, "one is not two");
/// ```
///
/// ```ignore
/// nothing
/// ```
///
/// ```no_run
/// loop {}
/// ```
///
/// ```compile_fail
/// let x: u8 = "a";
/// ```
///
/// ```compile_fail
/// let x = "a";
/// ```
///
/// ```should_panic
/// panic!("wanted");
/// ```
///
/// ```should_panic
/// let x = 1;
/// ```
///
/// ```
/// let x: u8 = 1;
/// ```
///
/// ```standalone_crate
/// std::process::abort();
/// ```
pub fn one() -> u8 { 1 }
/// Two.
/// ```
/// dt::two::<u8>();
/// ```
pub fn two<T>() {}
