//! Random traces of random programs: every step that is accepted leaves a
//! well-formed program that computes the same values (but for what large tiles
//! of `winograd` round), and every one that is refused leaves no trace of itself.
//!
//! `TUNESMITH_FUZZ` sets the number of pairs, `TUNESMITH_FUZZ_SEED` the first
//! seed. A failure names its seed, the step and the programs before and after.

use ir::text::print;
use ir::verify::verify;
use ir::{Program, interpret};
use schedule::{Trace, replay};
use std::collections::BTreeMap;
use tensor::{Tensor, compare};
use testkit::filtering::{agrees, tolerances};
use testkit::traces::{Tried, observed_trace};
use testkit::{Distribution, random_args, random_program, setting};

const STEPS: usize = 18;

fn outputs(p: &Program, args: &[Tensor]) -> Result<Vec<Tensor>, String> {
    let mut args = args.to_vec();
    interpret::run(p, &mut args).map_err(|e| e.to_string())?;
    Ok(args)
}

/// Arguments, and what they hold after the unscheduled program has run.
struct Case {
    seed: u64,
    args: Vec<Tensor>,
    expected: Vec<Tensor>,
    /// For each argument.
    tolerances: Vec<f64>,
}

/// What is wrong with a scheduled program, if anything.
fn fault(p: &Program, case: &Case) -> Option<String> {
    let broken = verify(p);
    if !broken.is_empty() {
        let broken: Vec<String> = broken.iter().map(ToString::to_string).collect();
        return Some(broken.join("; "));
    }
    match outputs(p, &case.args) {
        Err(e) => Some(e),
        Ok(found) => {
            // Zeros of two signs are one value: min and max may give either.
            let mut pairs = found.iter().zip(&case.expected).zip(&case.tolerances);
            let all = pairs.all(|((a, b), t)| agrees(&compare(a, b), *t));
            (!all).then(|| "it computes something else".into())
        }
    }
}

/// The shortest prefix of the trace with a fault, told in full.
fn first_fault(raw: &Program, trace: &Trace, case: &Case) -> String {
    let seed = case.seed;
    let mut before = raw.clone();
    for n in 1..=trace.steps.len() {
        let mut prefix = trace.clone();
        prefix.steps.truncate(n);
        let after = replay(raw, &prefix).expect("each step was accepted");
        if let Some(why) = fault(&after, case) {
            let step = &trace.steps[n - 1];
            let (before, after) = (print(&before), print(&after));
            return format!("seed {seed}: `{step}`: {why}\n{before}\n{after}\n{prefix}");
        }
        before = after;
    }
    format!("seed {seed}: only the whole trace has a fault\n{trace}")
}

#[derive(Default)]
struct Count {
    tried: u64,
    accepted: u64,
}

#[test]
fn scheduled_programs_compute_the_same() {
    let pairs = setting("TUNESMITH_FUZZ", 300);
    let first = setting("TUNESMITH_FUZZ_SEED", 0);
    let mut counts: BTreeMap<&str, Count> = BTreeMap::new();
    let mut faults = Vec::new();
    for seed in first..first + pairs {
        let raw = random_program(seed, &Distribution::all());
        let args = random_args(&raw, seed);
        let expected = outputs(&raw, &args).expect("random programs run");
        let mut seen = |tried: Tried<'_>| {
            let step = tried.step;
            let count = counts.entry(step.name()).or_default();
            count.tried += 1;
            count.accepted += u64::from(tried.result.is_ok());
            assert!(
                tried.result.is_ok() || tried.before == tried.after,
                "seed {seed}: `{step}` changed what it refused"
            );
        };
        let (trace, scheduled) = observed_trace(&raw, seed, STEPS, &mut seen);
        let case = Case {
            seed,
            tolerances: tolerances(&raw, &trace, &args),
            args,
            expected,
        };
        let text = trace.to_string();
        let back: Trace = text.parse().expect("its own text");
        assert_eq!(back, trace, "seed {seed}");
        let again = replay(&raw, &trace).expect("each step was accepted");
        assert!(
            again == scheduled,
            "seed {seed}: the replay differs\n{text}"
        );
        if fault(&scheduled, &case).is_some() {
            faults.push(first_fault(&raw, &trace, &case));
        }
    }
    for (name, count) in &counts {
        println!(
            "{name:24} {:6} tried {:6} accepted",
            count.tried, count.accepted
        );
    }
    let first_lines: Vec<&str> = faults.iter().filter_map(|f| f.lines().next()).collect();
    let list = first_lines.join("\n");
    let shown = faults.get(..2).unwrap_or(&faults).join("\n\n");
    let n = faults.len();
    assert!(n == 0, "{n} faults\n{list}\n\n{shown}");
    if pairs >= 300 {
        for kind in schedule::steps::STEPS {
            let accepted = counts.get(kind.name).map_or(0, |c| c.accepted);
            assert!(
                accepted >= 5,
                "`{}` was accepted {accepted} times",
                kind.name
            );
        }
    }
}
