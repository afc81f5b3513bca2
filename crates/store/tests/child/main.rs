//! A writer for the tests: `store-test-writer PATH RUN COUNT` appends records, each
//! with its event, to a run, which it continues, and prints `stored N` once the
//! store has returned from storing N.

use std::io::Write;
use store::{RecordQuery, Store};

#[path = "../store/samples.rs"]
#[allow(dead_code)]
mod samples;
use samples::{event, prepare, record, tell, timed};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, run, count] = &arguments[..] else {
        panic!("a path, a run and a count: {arguments:?}");
    };
    let count: u64 = count.parse().expect("a count");
    let store = Store::open(path).expect("a store");
    prepare(&store, run);
    let filter = RecordQuery {
        run: Some(run),
        ..RecordQuery::default()
    };
    let earlier = store.records_for(&filter).expect("records").len() as u64;
    for trial in earlier..earlier.saturating_add(count) {
        let record = record(run, trial, timed(&[100 + trial]));
        let event = event(run, tell(&record));
        store.append(&[record], &[event]).expect("it is stored");
        let mut out = std::io::stdout().lock();
        writeln!(out, "stored {trial}").expect("the parent reads");
        out.flush().expect("the parent reads");
    }
}
