//! The switch of all selectors: a program of its own, since other tests run beside.

use bestof::{BestOf, Options, set_enabled};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[test]
fn the_switch_runs_defaults_and_times_nothing() {
    let s: BestOf<u32, u64> = BestOf::new("s", [("a", 1), ("b", 2)], Options::default()).unwrap();
    let passed_us = Arc::new(AtomicU64::new(0));
    let clock = passed_us.clone();
    let s = s.timed_by(move || Duration::from_micros(clock.load(Ordering::SeqCst)));
    set_enabled(false);
    for _ in 0..60 {
        s.call(&1, |f| assert_eq!(*f, 1));
        assert_eq!(s.begin(&1).alternative(), 0);
    }
    assert_eq!(s.decision(&1), None);
    set_enabled(true);
    while s.decision(&1).is_none() {
        s.call(&1, |f| {
            passed_us.fetch_add(3000 / f, Ordering::SeqCst);
        });
    }
    assert_eq!(s.decision(&1), Some("b"));
    // Nor does a decided call select while the switch is off.
    set_enabled(false);
    s.call(&1, |f| assert_eq!(*f, 1));
    assert_eq!(s.begin(&1).alternative(), 0);
}
