//! Random choices that depend on nothing but what is chosen.
//!
//! A sequence of random numbers has a state, which a run that goes on from another one would have to bring back. Here each
//! choice follows from a hash of the seed, the task and the point. So the order of the points does not matter.

use search::Point;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The choices of one chooser in one search.
#[derive(Clone, Copy, Debug)]
pub struct Draws {
    /// Made of the seed, the chooser and the task.
    seed: u64,
}

impl Draws {
    /// Choices of different choosers, tasks or seeds have nothing to do with each other.
    pub fn new(chooser: &str, task: &str, seed: u64) -> Draws {
        let of_task = xxh3_64_with_seed(task.as_bytes(), seed);
        Draws {
            seed: xxh3_64_with_seed(chooser.as_bytes(), of_task),
        }
    }

    /// Whether this point is among the share of all points that is chosen. A larger share has all
    /// points of a smaller one.
    pub fn picks(&self, point: &Point, share: f64) -> bool {
        let sketch = point.sketch as u64;
        let numbers = std::iter::once(&sketch).chain(&point.values);
        let bytes: Vec<u8> = numbers.flat_map(|n| n.to_le_bytes()).collect();
        // 53 bits are a number of 0 to 1 without rounding.
        let drawn = (xxh3_64_with_seed(&bytes, self.seed) >> 11) as f64 / (1u64 << 53) as f64;
        drawn < share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picked(draws: &Draws, share: f64) -> Vec<bool> {
        let point = |n: u64| Point {
            sketch: 1,
            values: vec![n % 50, n / 50],
        };
        (0..2000).map(|n| draws.picks(&point(n), share)).collect()
    }

    #[test]
    fn a_share_of_the_points_is_picked_and_stays_picked() {
        let draws = Draws::new("chance", "task", 1);
        let tenth = picked(&draws, 0.1);
        let count = tenth.iter().filter(|p| **p).count();
        assert!((150..250).contains(&count), "{count}");
        assert_eq!(picked(&Draws::new("chance", "task", 1), 0.1), tenth);
        let half = picked(&draws, 0.5);
        assert!(tenth.iter().zip(&half).all(|(tenth, half)| !tenth || *half));
        assert!(picked(&draws, 1.0).iter().all(|p| *p));
        assert!(picked(&draws, 0.0).iter().all(|p| !p));
    }

    #[test]
    fn choosers_tasks_and_seeds_pick_differently() {
        let others = [
            ("cold", "task", 1),
            ("chance", "other", 1),
            ("chance", "task", 2),
        ];
        let first = picked(&Draws::new("chance", "task", 1), 0.5);
        for (chooser, task, seed) in others {
            assert_ne!(
                picked(&Draws::new(chooser, task, seed), 0.5),
                first,
                "{chooser} {task} {seed}"
            );
        }
    }
}
