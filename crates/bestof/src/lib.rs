//! Choosing among implementations of one routine while the program runs.
//!
//! A program has several implementations of a routine, and which is fastest depends on the size of the
//! problem and on the machine. A [`BestOf`] runs them in turns, times the calls that the program makes
//! anyway, and after some rounds keeps the fastest for each problem size (Barrachina and others,
//! BestOf: an online implementation selector).
//!
//! ```
//! use bestof::{BestOf, Options};
//!
//! type Sum = fn(&[f32]) -> f32;
//! fn one_by_one(v: &[f32]) -> f32 { v.iter().sum() }
//! fn in_lanes(v: &[f32]) -> f32 {
//!     let mut lanes = [0.0; 8];
//!     for chunk in v.chunks(8) {
//!         for (lane, x) in lanes.iter_mut().zip(chunk) { *lane += x; }
//!     }
//!     lanes.iter().sum()
//! }
//!
//! let sums: [(&str, Sum); 2] = [("one by one", one_by_one), ("in lanes", in_lanes)];
//! let sum = BestOf::new("sum", sums, Options::default()).unwrap();
//! let data = vec![1.0; 4096];
//! for _ in 0..30 {
//!     assert_eq!(sum.call(&data.len(), |f| f(&data)), 4096.0);
//! }
//! assert!(sum.decision(&4096).is_some());
//! println!("{}", sum.report());
//! ```
//!
//! - **Groups.** Alternatives that have to be chosen together, such as the forward and the backward
//!   function of a convolution, are one alternative with several stages: [`BestOf::first`] gives a
//!   [`Ticket`] that binds [`BestOf::stage`] to the same alternative.
//! - **Nesting.** A selector that is called inside of another's alternative is found automatically. The
//!   outer one is not judged by calls in which an inner one still tried its alternatives.
//! - **Calls without a closure.** [`BestOf::enter`] and [`BestOf::leave`] stand around a call, for other languages.
//! - **Early drops.** With [`Options::early`] an alternative is dropped at the first call that shows that it has lost.
//! - **Decisions in files.** [`Decisions`] survive the program, so that the next run starts decided.

#![forbid(unsafe_code)]

mod decisions;
mod entry;
mod nest;
mod report;
mod running;
mod selector;
mod table;

pub use decisions::{Decision, Decisions, Refused, Validators};
pub use nest::{Context, Inside, depth};
pub use report::{AlternativeReport, KeyReport, Report, Status};
pub use running::Running;
pub use selector::{Begun, BestOf, Circumstances, Options, Ticket, Unfit, is_enabled, set_enabled};
