//! The search whose next batch is expected to lower the cost of the models most comes next (Ansor: Zheng and others, OSDI
//! 2020, section 6; constants as in TVM's `auto_scheduler`).
//!
//! A search's expected fall is a mean of how its best fell lately and of how it may fall: by the share that one more batch
//! is of all its batches, or to what the rate of a similar task lets hope. Ansor's random choice, one turn
//! in twenty, is left out: a budget has no seed.

use super::{Budget, Standing, Turn, lively};

/// How much the past counts beside the hope.
const ALPHA: f64 = 0.2;
/// How many times as slow as the fastest similar task a task may stay.
const BETA: f64 = 2.0;
/// Batches that the past goes back.
const WINDOW: usize = 3;

/// Gives each turn, a whole batch, to the search of the steepest expected fall. Every search has one turn first, and
/// one that is flat waits for the others.
#[derive(Debug, Default)]
pub struct Gradient {
    /// Of each search, its cost when each of its turns began.
    costs: Vec<Vec<f64>>,
}

impl Budget for Gradient {
    fn turn(&mut self, searches: &[Standing], batches: &[usize]) -> Option<Turn> {
        self.costs.resize(searches.len(), vec![]);
        let first = lively(searches).find(|i| self.costs[*i].is_empty());
        let fall = |i: &usize| fall(&self.costs[*i], *i, searches);
        // Of equal falls that of the first search counts.
        let steepest = || {
            lively(searches)
                .rev()
                .max_by(|a, b| fall(a).total_cmp(&fall(b)))
        };
        let search = first.or_else(steepest)?;
        self.costs[search].push(cost(&searches[search]));
        let asks = batches[search].max(1);
        Some(Turn { search, asks })
    }

    fn compares_costs(&self) -> bool {
        true
    }
}

fn cost(s: &Standing) -> f64 {
    s.best.unwrap_or(s.guess)
}

/// By how much the cost of all models is expected to fall with one more batch of a search that had some; `costs` are its
/// costs when these began.
fn fall(costs: &[f64], search: usize, searches: &[Standing]) -> f64 {
    let s = &searches[search];
    let (turns, now) = (costs.len(), cost(s));
    // The cost before the first turn is a guess.
    let before = turns.checked_sub(WINDOW).filter(|at| *at > 0);
    let past = before.map_or(0.0, |at| (costs[at] - now) / WINDOW as f64);
    let alike = searches.iter().enumerate();
    let rates = alike.filter_map(|(i, other)| {
        let alike = i != search && other.family == s.family;
        other
            .best
            .filter(|_| alike)
            .map(|best| other.operations / best)
    });
    let rate = rates.fold(0.0, f64::max);
    let as_similar = match rate > 0.0 {
        true => now - BETA * s.operations / rate,
        false => 0.0,
    };
    let hope = as_similar.max(now / turns as f64);
    s.uses as f64 * s.weight * (ALPHA * past + (1.0 - ALPHA) * hope)
}

#[cfg(test)]
mod tests {
    use super::super::promise::tests::START;
    use super::*;

    const TURN: Turn = Turn { search: 0, asks: 4 };

    /// The searches of some turns, of searches that keep their costs.
    fn turns(budget: &mut Gradient, searches: &[Standing], n: usize) -> Vec<usize> {
        let batches = vec![4; searches.len()];
        let one = |_| {
            let turn = budget.turn(searches, &batches)?;
            assert_eq!(turn.asks, TURN.asks);
            Some(turn.search)
        };
        (0..n).map_while(one).collect()
    }

    fn costing(best: f64, family: usize) -> Standing {
        Standing {
            best: Some(best),
            family,
            ..START
        }
    }

    #[test]
    fn every_search_has_a_turn_before_any_has_two() {
        let mut budget = Gradient::default();
        let searches = [costing(1.0, 0), START, costing(1e9, 2)];
        assert_eq!(turns(&mut budget, &searches, 4), [0, 1, 2, 2]);
        assert!(
            turns(
                &mut budget,
                &[Standing {
                    open: false,
                    ..START
                }],
                1
            )
            .is_empty()
        );
    }

    #[test]
    fn searches_of_constant_cost_have_turns_in_proportion() {
        let searches = [costing(3e6, 0), costing(1e6, 1)];
        let all = turns(&mut Gradient::default(), &searches, 40);
        assert_eq!(all.iter().filter(|s| **s == 0).count(), 30);
        let twice = Standing {
            uses: 3,
            ..searches[1]
        };
        let all = turns(&mut Gradient::default(), &[searches[0], twice], 40);
        assert_eq!(all.iter().filter(|s| **s == 0).count(), 20);
    }

    #[test]
    fn what_fell_lately_is_expected_to_fall() {
        let now = [costing(1000.0, 0), costing(1000.0, 1)];
        let still = fall(&[1000.0; 8], 0, &now);
        let falling = fall(&[9e9, 9e9, 9e9, 9e9, 9e9, 1300.0, 1200.0, 1100.0], 0, &now);
        assert!((still - 0.8 * 1000.0 / 8.0).abs() < 1e-9, "{still}");
        assert!((falling - still - 0.2 * 100.0).abs() < 1e-9, "{falling}");
        // A guess is no past.
        assert_eq!(fall(&[9e9, 1e3, 1e3], 0, &now), fall(&[1e3; 3], 0, &now));
    }

    #[test]
    fn a_task_may_become_as_fast_as_a_similar_one() {
        let of = |best, family, operations| Standing {
            operations,
            ..costing(best, family)
        };
        // It has 10 operations a nanosecond, and the other 100.
        let slow = of(1000.0, 0, 1e4);
        let alike = [slow, of(100.0, 0, 1e4)];
        let other = [slow, of(100.0, 1, 1e4)];
        let costs = [1000.0; 20];
        assert!((fall(&costs, 0, &alike) - 0.8 * 800.0).abs() < 1e-9);
        assert!((fall(&costs, 0, &other) - 0.8 * 50.0).abs() < 1e-9);
        // The faster one hopes for nothing from the slower one.
        assert!((fall(&[100.0; 20], 1, &alike) - 0.8 * 5.0).abs() < 1e-9);
    }
}
