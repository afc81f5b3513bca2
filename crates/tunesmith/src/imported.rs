//! What is believed of records that come from elsewhere.
//!
//! A record of a store is taken for the best without being measured again, so a time
//! that nothing takes, or a task under another's key, would be compiled for ever.

use plan::Task;
use store::{Claim, Outcome};

/// Longest time of one call that is believed: a day.
const LONGEST_NS: u64 = 86_400_000_000_000;

/// Why a line of an import cannot be true, if it cannot.
pub fn judge(claim: Claim<'_>) -> Result<(), String> {
    match claim {
        Claim::Task(t) => judge_task(t),
        Claim::Record(r) => judge_outcome(&r.outcome),
    }
}

fn judge_task(t: &store::Task) -> Result<(), String> {
    let key = Task::key_of(&t.text);
    if t.key != key {
        return Err(format!(
            "the key of the task is `{}`, and by its text it is `{key}`",
            t.key
        ));
    }
    if !(t.flops.is_finite() && t.flops >= 0.0) {
        return Err(format!("the task has {} operations", t.flops));
    }
    Ok(())
}

fn judge_outcome(outcome: &Outcome) -> Result<(), String> {
    let Outcome::Timed {
        samples_ns,
        conditions,
        ..
    } = outcome
    else {
        return Ok(());
    };
    let odd = |ns: &&u64| !(1..=LONGEST_NS).contains(*ns);
    if let Some(ns) = samples_ns.iter().chain(&outcome.median_ns()).find(odd) {
        return Err(format!("no call takes {ns} ns"));
    }
    if let Some(scale) = conditions.scale.filter(|s| !(s.is_finite() && *s > 0.0)) {
        return Err(format!("its samples are corrected by the factor {scale}"));
    }
    if let Some(e) = conditions.rel_l2.filter(|e| !(e.is_finite() && *e >= 0.0)) {
        return Err(format!("its relative error is {e}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::{Clock, Conditions};

    fn timed(samples_ns: &[u64], scale: Option<f64>, rel_l2: Option<f64>) -> Outcome {
        Outcome::Timed {
            samples_ns: samples_ns.to_vec(),
            clock: Clock::ThreadCpu,
            conditions: Conditions {
                scale,
                rel_l2,
                ..Conditions::unproven(1, 1)
            },
        }
    }

    #[test]
    fn times_that_nothing_takes_are_not_believed() {
        let fine = [
            timed(&[1, LONGEST_NS], Some(0.9), Some(0.0)),
            timed(&[5], None, None),
            Outcome::Rejected {
                reason: String::new(),
            },
        ];
        for outcome in fine {
            assert_eq!(judge_outcome(&outcome), Ok(()));
        }
        for (outcome, why) in [
            (timed(&[5, 0], None, None), "0 ns"),
            (timed(&[5, u64::MAX], None, None), "ns"),
            (timed(&[5], Some(1e-9), None), "0 ns"),
            (timed(&[5], Some(1e300), None), "ns"),
            (timed(&[5], Some(-1.0), None), "0 ns"),
            (timed(&[5], Some(f64::NAN), None), "0 ns"),
            (timed(&[5], None, Some(-1e-6)), "error is -0.000001"),
            (timed(&[5], None, Some(f64::NAN)), "error is NaN"),
        ] {
            let said = judge_outcome(&outcome).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }
}
