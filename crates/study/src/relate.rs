//! How the rows of a study are to each other: changes against serial, bounds,
//! errors, and differences of what was found.
//!
//! Pure. Like is compared with like: the same program, overlap and repetition.
//!
//! The bound is the least time that a policy needs which measures `n` candidates
//! at once and a share `z` again alone, where `serial` takes `W` for measuring
//! all, and `z` is what the policy did measure again:
//!
//! - nothing built meanwhile: `W (1/n + z)`, and for the tuning time also the time
//!   of building before and of the policy's own ranking;
//! - built meanwhile: `(B + M)/cpus + z M` or `B/builders`, whichever is more, and
//!   the ranking, with the CPU times `B` of builders and `M` of runners under
//!   `serial`. Builders pause while something is measured alone.
//!
//! It takes candidates for equally long and CPUs for undisturbed, so it is not
//! always within reach.

use super::cell::Finals;
use super::row::{Related, Row, mean};
use measure::Policy;
use std::collections::BTreeMap;

/// Rows in the order of the study with all that relates them, and after them the
/// sums of programs with several tasks. `tasks` has the number of each program.
pub fn related(rows: &[Row], finals: &[Finals], tasks: &BTreeMap<String, usize>) -> Vec<Row> {
    let mut rows = rows.to_vec();
    for r in &mut rows {
        r.related = Related::default();
        take_finals(r, finals);
    }
    let errors: Vec<Option<f64>> = rows.iter().map(|r| error(r, &rows)).collect();
    for (r, error) in rows.iter_mut().zip(errors) {
        r.related.error = error;
    }
    let sums = sums(&rows, tasks);
    rows.extend(sums);
    let others = rows.clone();
    for r in &mut rows {
        relate(r, &others);
        r.figures.clear();
    }
    rows
}

/// Tells a row what its best took in the final measurements.
fn take_finals(r: &mut Row, finals: &[Finals]) {
    let of_task = |f: &&Finals| f.key == r.key && f.program == r.program;
    let last = finals.iter().rev().find(of_task);
    let own = |f: &Finals| f.times.iter().find(|(i, _)| Some(*i) == r.best).cloned();
    let Some((_, all)) = last.and_then(own) else {
        return;
    };
    let ns = |v: Option<&u64>| v.map_or(0.0, |v| *v as f64);
    r.best_ns = mean(all.iter().map(|ns| *ns as f64));
    r.best_apart_ns = r
        .best_ns
        .map(|_| ns(all.iter().max()) - ns(all.iter().min()));
}

/// Whether another row is of the same program and task, and as overlapped.
fn beside(r: &Row, o: &Row) -> bool {
    (r.overlap, &r.key, &r.program) == (o.overlap, &o.key, &o.program)
}

fn error(r: &Row, rows: &[Row]) -> Option<f64> {
    let to = match r.is(Policy::Serial) {
        true => r.repetition.checked_sub(1)?,
        false => r.repetition,
    };
    let serial = |o: &&Row| o.is(Policy::Serial) && o.repetition == to && beside(r, o);
    let serial = rows.iter().find(serial)?;
    let both = r.figures.iter().zip(&serial.figures);
    let both = both.filter_map(|(a, b)| a.zip(*b));
    mean(both.map(|(a, b)| (a as f64 - b as f64).abs() / b.max(1) as f64))
}

/// The rows of each program with several tasks, summed where all are there.
fn sums(rows: &[Row], tasks: &BTreeMap<String, usize>) -> Vec<Row> {
    let mut sums: Vec<(Row, Vec<&Row>)> = Vec::new();
    for r in rows
        .iter()
        .filter(|r| tasks.get(&r.program).is_some_and(|n| *n > 1))
    {
        let same = |s: &&mut (Row, Vec<&Row>)| {
            let s = &s.0;
            (s.overlap, &s.program, s.repetition) == (r.overlap, &r.program, r.repetition)
                && (s.policy, &s.swept) == (r.policy, &r.swept)
        };
        match sums.iter_mut().find(same) {
            Some((_, parts)) => parts.push(r),
            None => sums.push((r.clone(), vec![r])),
        }
    }
    sums.retain(|(s, parts)| tasks.get(&s.program) == Some(&parts.len()));
    sums.into_iter().map(|(_, parts)| sum(&parts)).collect()
}

/// The sum over the tasks of a program. Means weigh by candidates.
fn sum(parts: &[&Row]) -> Row {
    let mut s = parts[0].clone();
    let total = |of: fn(&Row) -> usize| parts.iter().map(|r| of(r)).sum::<usize>();
    let candidates = total(|r| r.candidates);
    let weighted = |of: fn(&Row) -> Option<f64>| {
        let known = || {
            parts
                .iter()
                .filter_map(|r| Some((of(r)?, r.candidates as f64)))
        };
        let weight: f64 = known().map(|(_, n)| n).sum();
        (weight > 0.0).then(|| known().map(|(v, n)| v * n).sum::<f64>() / weight)
    };
    let calls = |of: fn(&Row) -> Option<f64>| {
        let one = |r: &&Row| Some(of(r)? * r.uses as f64);
        parts.iter().map(one).sum::<Option<f64>>()
    };
    for r in &parts[1..] {
        s.times.add(&r.times);
        for (kind, n) in &r.failures {
            *s.failures.entry(kind.clone()).or_default() += n;
        }
    }
    (s.task, s.key, s.tasks, s.uses) = (s.program.clone(), String::new(), parts.len(), 1);
    s.mean_dp = weighted(|r| r.mean_dp);
    s.delta = weighted(|r| r.delta);
    s.left_uniform = weighted(|r| r.left_uniform);
    s.left_signed = weighted(|r| r.left_signed);
    s.left_per_candidate = weighted(|r| r.left_per_candidate);
    s.related.error = weighted(|r| r.related.error);
    s.sampled = total(|r| r.sampled);
    s.failed_again = total(|r| r.failed_again);
    s.recovered = total(|r| r.recovered);
    s.ranked = total(|r| r.ranked);
    s.changed = parts.iter().any(|r| r.changed);
    s.best_ns = calls(|r| r.best_ns);
    s.best_apart_ns = calls(|r| r.best_apart_ns);
    (s.best, s.best_code, s.rounds, s.figures) = (None, None, vec![], vec![]);
    s.candidates = candidates;
    s
}

/// Fills in how a row is to the baselines.
fn relate(r: &mut Row, rows: &[Row]) {
    let base = |p: Policy| {
        let same = |o: &&Row| o.is(p) && o.repetition == r.repetition && beside(r, o);
        rows.iter().find(same)
    };
    let (serial, spawn) = (base(Policy::Serial), base(Policy::SerialSpawn));
    let change = |own: f64, of: Option<f64>| of.map(|of| 100.0 * (own / of - 1.0));
    let t = &r.times;
    let mut related = Related {
        against_serial: change(t.total_s, serial.map(|s| s.times.total_s)),
        against_serial_spawn: change(t.total_s, spawn.map(|s| s.times.total_s)),
        measuring_against_serial: change(t.measure_s, serial.map(|s| s.times.measure_s)),
        measuring_against_serial_spawn: change(t.measure_s, spawn.map(|s| s.times.measure_s)),
        ..r.related
    };
    if let Some(serial) = serial.filter(|_| r.policy.is_parallel()) {
        let (all, measuring) = bounds(r, serial);
        let share = |own: f64, of: f64, least: f64| (of > least).then(|| (of - own) / (of - least));
        related.bound_s = Some(all);
        related.of_bound = share(t.total_s, serial.times.total_s, all);
        related.measuring_bound_s = measuring;
        related.of_measuring_bound =
            measuring.and_then(|least| share(t.measure_s, serial.times.measure_s, least));
    }
    let bests: Vec<&Row> = rows
        .iter()
        .filter(|o| o.is(Policy::Serial) && beside(r, o))
        .collect();
    differences(r, &bests, &mut related);
    r.related = related;
}

/// The least tuning time, and the least time of measuring where nothing else
/// happens meanwhile; see the module.
fn bounds(r: &Row, serial: &Row) -> (f64, Option<f64>) {
    let again = (r.sampled + r.failed_again) as f64 / r.candidates.max(1) as f64;
    let (own, s) = (&r.times, &serial.times);
    if r.overlap {
        let side_by_side = (s.build_cpu_s + s.measure_cpu_s) / f64::from(r.cpus.max(1));
        let measured = side_by_side + again * s.measure_cpu_s;
        let built = s.build_cpu_s / f64::from(r.builders.max(1));
        return (measured.max(built) + own.rank_s, None);
    }
    let least = s.measure_s * (1.0 / f64::from(r.at_once.max(1)) + again);
    (own.built_before_s + least + own.rank_s, Some(least))
}

/// Compares what a row found with what `serial` found in all repetitions.
fn differences(r: &Row, serial: &[&Row], related: &mut Related) {
    let mut bests: Vec<f64> = serial.iter().filter_map(|s| s.best_ns).collect();
    bests.sort_by(f64::total_cmp);
    let (Some(own), Some(least)) = (r.best_ns, bests.first()) else {
        return;
    };
    let n = bests.len();
    let median = (bests[(n - 1) / 2] + bests[n / 2]) / 2.0;
    let difference = own / median - 1.0;
    related.best_difference = Some(difference);
    if n > 1 {
        let spread = (bests[n - 1] - least) / median;
        let apart = serial.iter().filter_map(|s| s.best_apart_ns);
        let noise = apart.chain(r.best_apart_ns).fold(0.0, f64::max) / median;
        related.spread = Some(spread);
        related.within_spread = Some(difference <= spread.max(noise));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Times;

    fn row(policy: &str, overlap: bool, repetition: usize, measure_s: f64) -> Row {
        let value = serde_json::json!({
            "program": "p", "task": "t", "key": "k", "tasks": 1, "uses": 1, "overlap": overlap,
            "policy": policy, "swept": null, "repetition": repetition, "candidates": 100,
            "failures": {}, "at_once": 2, "cpus": 2, "builders": 1, "sampled": 0, "failed_again": 0,
            "recovered": 0, "ranked": 1, "changed": false, "rounds": [],
            "built_before_s": 0.0, "wall_s": 0.0, "measure_s": 0.0, "rank_s": 0.0,
            "total_s": 0.0, "alone_s": 0.0, "build_s": 0.0, "load_s": 0.0, "check_s": 0.0,
            "run_s": 0.0, "build_cpu_s": 0.0, "measure_cpu_s": 0.0,
        });
        let mut r: Row = serde_json::from_value(value).unwrap();
        let built_before_s = if overlap { 0.0 } else { 5.0 };
        r.times = Times {
            built_before_s,
            wall_s: measure_s,
            measure_s,
            total_s: built_before_s + measure_s,
            build_cpu_s: 10.0,
            measure_cpu_s: 20.0,
            ..r.times
        };
        r
    }

    fn one() -> BTreeMap<String, usize> {
        BTreeMap::from([("p".into(), 1)])
    }

    #[test]
    fn bounds_follow_from_the_components() {
        let serial = row("serial", false, 0, 20.0);
        let mut doppler = row("doppler", false, 0, 14.0);
        doppler.sampled = 20;
        let rows = related(&[serial, doppler], &[], &one());
        let r = &rows[1].related;
        // 20 (1/2 + 1/5), and 5 of building.
        assert_eq!(r.measuring_bound_s, Some(14.0));
        assert_eq!(r.of_measuring_bound, Some(1.0));
        assert_eq!(r.bound_s, Some(19.0));
        assert_eq!(
            r.measuring_against_serial,
            Some(100.0 * (14.0 / 20.0 - 1.0))
        );
        assert_eq!(r.against_serial, Some(100.0 * (19.0 / 25.0 - 1.0)));
        assert_eq!(rows[0].related.against_serial, Some(0.0));
        assert_eq!(rows[0].related.bound_s, None);
    }

    #[test]
    fn like_is_compared_with_like() {
        let mut doppler = row("doppler", true, 1, 15.0);
        doppler.sampled = 10;
        let rows = [
            row("serial", false, 1, 10.0),
            row("serial", true, 0, 20.0),
            row("serial", true, 1, 30.0),
            doppler,
        ];
        let rows = related(&rows, &[], &one());
        let r = &rows[3].related;
        assert_eq!(r.against_serial, Some(-50.0));
        // (10 + 20) / 2, and a tenth of 20.
        assert_eq!((r.bound_s, r.measuring_bound_s), (Some(17.0), None));
        // One builder takes longer than what two CPUs would.
        let mut slow = [rows[2].clone(), rows[3].clone()];
        slow[0].times.build_cpu_s = 28.0;
        let rows = related(&slow, &[], &one());
        assert_eq!(rows[1].related.bound_s, Some(28.0));
    }

    #[test]
    fn differences_are_judged_by_serial_s_own_spread() {
        let mut rows: Vec<Row> = (0..3).map(|i| row("serial", false, i, 10.0)).collect();
        rows.extend((0..2).map(|i| row("doppler", false, i, 10.0)));
        for (i, r) in rows.iter_mut().enumerate() {
            r.best = Some(i);
        }
        let finals = |ns: [u64; 5]| Finals {
            program: "p".into(),
            key: "k".into(),
            times: ns
                .iter()
                .enumerate()
                .map(|(i, ns)| (i, vec![*ns, *ns]))
                .collect(),
        };
        let old = finals([1; 5]);
        let rows = related(&rows, &[old, finals([100, 102, 104, 104, 106])], &one());
        let of = |i: usize| &rows[i].related;
        assert!((of(3).spread.unwrap() - 4.0 / 102.0).abs() < 1e-9);
        assert_eq!(of(3).within_spread, Some(true));
        assert_eq!(of(4).within_spread, Some(false), "{:?}", of(4));
        assert_eq!(rows[4].best_ns, Some(106.0));
    }

    #[test]
    fn a_model_is_the_sum_of_its_tasks() {
        let task = |key: &str, uses: usize, best: f64| {
            let mut r = row("serial", false, 0, 10.0);
            (r.key, r.uses) = (key.into(), uses);
            r.best = Some(0);
            let finals = Finals {
                program: "p".into(),
                key: key.into(),
                times: vec![(0, vec![best as u64])],
            };
            (r, finals)
        };
        let ((a, fa), (b, fb)) = (task("a", 3, 10.0), task("b", 1, 100.0));
        let two = BTreeMap::from([("p".into(), 2)]);
        let rows = related(&[a.clone(), b], &[fa.clone(), fb], &two);
        let sum = &rows[2];
        assert_eq!((sum.tasks, sum.candidates), (2, 200));
        assert_eq!(sum.times.total_s, 30.0);
        assert_eq!(sum.best_ns, Some(130.0));
        // Without all tasks there is no sum.
        assert_eq!(related(&[a], &[fa], &two).len(), 1);
    }
}
