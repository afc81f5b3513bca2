//! Two candidates of one task, compared count by count: a row for a learner of the ratio of their times.
//!
//! No number has a unit or a size: each is the logarithm of a ratio, or a share. So one learner serves tasks
//! of all sizes. It can learn what a sum of counts cannot say, such as that fewer lines help
//! little where computing hides them.

use crate::features::Features;
use crate::score::Score;

/// Version of the numbers of [`ratios`], for models that were learned from them.
pub const RATIOS: u32 = 2;

/// The rates of the costs that are compared. They belong to the version: models learned from rows of these
/// rates, and the usual rates may change.
const RATES: Score = Score {
    repeated: 0.16,
    alone: 0.02,
    load: 0.30,
    spill: 0.27,
    line: [0.96, 0.94, 0.6],
    page: 13.0,
    page_visit: 2.0,
    crowded: 20.0,
    fork: 5000.0,
};

/// A part of a cost is compared beside this share of the whole cost: the ratio of two small parts says nothing.
const FLOOR: f64 = 0.03;

/// Bytes that code is compared beside, for the same reason.
const FEW_BYTES: f64 = 100.0;

/// What an instruction counts as where classes of them are compared, in cycles.
const INSTRUCTION: f64 = 0.1;

/// Parts whose shares of the cost are told: the first of [`parts`], and the pages.
const SHARES: [usize; 7] = [0, 1, 2, 3, 4, 5, 7];

/// Compares a candidate with the default of its task. `from_memory` says whether constants are in
/// no cache when a kernel begins, `same_sketch` whether both differ in decisions only. None if the machine code of
/// one was not read.
pub fn ratios(
    own: &Features,
    default: &Features,
    from_memory: bool,
    same_sketch: bool,
) -> Option<Vec<f64>> {
    let cost = |f: &Features| match from_memory {
        true => RATES.cycles_from_memory(f),
        false => RATES.cycles(f),
    };
    let whole = cost(default).max(1.0);
    let floor = FLOOR * whole;
    let log = |a: f64, b: f64, floor: f64| ((a + floor) / (b + floor)).ln();
    let (of_own, of_default) = (parts(own, from_memory)?, parts(default, from_memory)?);
    let (mine, its) = (own.machine.as_ref()?, default.machine.as_ref()?);
    let mut row = vec![(cost(own).max(1.0) / whole).ln()];
    let both = of_own.iter().zip(&of_default);
    row.extend(both.map(|(a, b)| log(*a, *b, floor)));
    let classes = mine.classes.iter().zip(&its.classes);
    row.extend(classes.map(|(a, b)| log(INSTRUCTION * a, INSTRUCTION * b, floor)));
    row.push(log(mine.hot_bytes, its.hot_bytes, FEW_BYTES));
    row.push(f64::from(u8::from(!same_sketch)));
    row.extend(SHARES.map(|part| of_default[part] / whole));
    let instructions = its.classes.iter().sum::<f64>().max(1.0);
    let kinds = [its.classes.first().copied()?, its.loads, its.stores];
    row.extend(kinds.map(|n| n / instructions));
    Some(row)
}

/// What the cost is made of, in cycles; and the stores, which cost nothing of their own.
fn parts(f: &Features, from_memory: bool) -> Option<[f64; 12]> {
    let (m, rates) = (f.machine.as_ref()?, RATES);
    let [l1, l2, last] = [0, 1, 2].map(|level| rates.line[level] * f.lines[level]);
    Some([
        rates.repeated * m.repeated,
        rates.alone * m.alone,
        rates.load * m.loads,
        rates.spill * m.spills,
        l1,
        l2,
        last,
        rates.page * f.pages,
        rates.page_visit * f.page_visits,
        rates.crowded * f.crowded,
        if from_memory {
            Score::MEMORY * f.constants
        } else {
            0.0
        },
        rates.load * m.stores,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Class, MachineFeatures};

    fn features(cycles: f64, spills: f64, scale: f64) -> Features {
        Features {
            lines: [1e5 * scale, 1e4 * scale, 0.0],
            pages: 100.0 * scale,
            page_visits: 300.0 * scale,
            crowded: 50.0 * scale,
            constants: 1e4 * scale,
            forks: 0.0,
            machine: Some(MachineFeatures {
                repeated: cycles * scale,
                spills: spills * scale,
                loads: 1e5 * scale,
                hot_bytes: 500.0,
                classes: vec![1e5 * scale; Class::ALL.len()],
                ..MachineFeatures::default()
            }),
        }
    }

    #[test]
    fn ratios_have_no_size() {
        let row = |scale| {
            let (own, default) = (features(2e6, 1e5, scale), features(1e6, 0.0, scale));
            ratios(&own, &default, true, false).unwrap()
        };
        let (small, large) = (row(1.0), row(64.0));
        assert!(small.iter().zip(&large).all(|(a, b)| (a - b).abs() < 1e-9));
        // The cost, the cycles and the spills grow, the lines do not.
        assert!(small[0] > 0.0 && small[1] > 0.0 && small[4] > 0.0);
        assert_eq!(small[5], 0.0);
    }

    #[test]
    fn crowded_lines_and_visits_of_pages_are_compared_apart() {
        let default = features(1e6, 0.0, 1.0);
        let own = Features {
            page_visits: 3000.0,
            crowded: 5000.0,
            ..default.clone()
        };
        let row = ratios(&own, &default, false, true).unwrap();
        let differ: Vec<usize> = (0..row.len() - SHARES.len() - 3)
            .filter(|at| row[*at] != 0.0)
            .collect();
        // The cost, and one part each.
        assert_eq!(differ, [0, 9, 10]);
    }

    #[test]
    fn the_default_differs_from_itself_in_nothing() {
        let f = features(1e6, 0.0, 1.0);
        let row = ratios(&f, &f, false, true).unwrap();
        let (differences, shares) = row.split_at(row.len() - SHARES.len() - 3);
        assert!(differences.iter().all(|d| *d == 0.0), "{differences:?}");
        assert!(shares.iter().all(|s| (0.0..=1.0).contains(s)), "{shares:?}");
        let loops = Features { machine: None, ..f };
        assert_eq!(ratios(&loops, &loops, false, true), None);
    }
}
