//! What Kernel Tuner's strategies for exhaustive tables have in common: neighbours of a point, and costs that a search
//! may read again for nothing.

use crate::space::{Point, Space};
use rand::Rng;
use rand::seq::IndexedRandom;

/// Draws of a neighbour within the limits.
const RETRIES: usize = 50;

/// A point that differs in one decision; the sketch counts as one. The point itself where there is none.
pub fn hamming(space: &Space, p: &Point, rng: &mut impl Rng) -> Point {
    let decisions = &space.sketches[p.sketch].decisions;
    let others = u32::from(space.sketches.len() > 1);
    let open: Vec<usize> = (0..decisions.len())
        .filter(|d| decisions[*d].cardinality() > 1)
        .collect();
    for _ in 0..RETRIES {
        if others > 0 && rng.random_ratio(others, open.len() as u32 + others) {
            let other = space.sample(rng);
            if other.sketch != p.sketch {
                return other;
            }
            continue;
        }
        let Some(at) = open.choose(rng) else {
            return p.clone();
        };
        let mut near = p.clone();
        // Every value but its own.
        let value = rng.random_range(0..decisions[*at].cardinality() - 1);
        near.values[*at] = value + u64::from(value >= p.values[*at]);
        if space.within_limits(&near) {
            return near;
        }
    }
    p.clone()
}

/// A point whose decisions are each at most one value away. The point itself where there is none.
pub fn adjacent(space: &Space, p: &Point, rng: &mut impl Rng) -> Point {
    let decisions = &space.sketches[p.sketch].decisions;
    for _ in 0..RETRIES {
        let mut near = p.clone();
        for (value, d) in near.values.iter_mut().zip(decisions) {
            let least = value.saturating_sub(1);
            let most = (*value + 1).min(d.cardinality().saturating_sub(1));
            *value = rng.random_range(least..=most.max(least));
        }
        if near != *p && space.within_limits(&near) {
            return near;
        }
    }
    p.clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::Sketch;
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;
    use schedule::{Decision, DecisionKind};
    use std::collections::HashSet;

    fn space(sketches: usize) -> Space {
        let decision = |n: i64| Decision {
            name: format!("of{n}"),
            kind: DecisionKind::Categorical {
                options: (0..n).collect(),
            },
            value: vec![0],
        };
        let one = |i: usize| {
            let decisions = [1, 2, 5].map(decision).to_vec();
            Sketch::of_knobs(&format!("s{i}"), decisions, vec![0; 3])
        };
        Space::of((0..sketches).map(one).collect())
    }

    fn point(values: [u64; 3]) -> Point {
        Point {
            sketch: 0,
            values: values.to_vec(),
        }
    }

    #[test]
    fn neighbours_are_all_those_and_no_others() {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let here = point([0, 1, 2]);
        let space = space(1);
        let found: HashSet<Point> = (0..500).map(|_| hamming(&space, &here, &mut rng)).collect();
        let expected = [[0, 0, 2], [0, 1, 0], [0, 1, 1], [0, 1, 3], [0, 1, 4]];
        assert_eq!(found, expected.map(point).into());
        let found: HashSet<Point> = (0..500)
            .map(|_| adjacent(&space, &here, &mut rng))
            .collect();
        let expected = [[0, 0, 1], [0, 0, 2], [0, 0, 3], [0, 1, 1], [0, 1, 3]];
        assert_eq!(found, expected.map(point).into());
    }

    #[test]
    fn another_sketch_is_a_change_as_well() {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let (space, here) = (space(2), point([0, 1, 2]));
        let near = |_| hamming(&space, &here, &mut rng);
        let other = (0..9_000).map(near).filter(|p| p.sketch == 1).count();
        // Half of what is drawn there is of the same sketch, and is drawn again.
        assert!((1_600..2_000).contains(&other), "{other}");
    }
}
