//! One search after the other, a batch each.

use super::{Budget, Standing, Turn};

/// Gives every open search a whole batch in turn, whatever it promises.
#[derive(Debug, Default)]
pub struct RoundRobin {
    /// The search that comes next, if it is open.
    next: usize,
}

impl Budget for RoundRobin {
    fn turn(&mut self, searches: &[Standing], batches: &[usize]) -> Option<Turn> {
        let n = searches.len();
        let order = (0..n).map(|i| (self.next + i) % n);
        let search = order.into_iter().find(|i| searches[*i].open)?;
        self.next = search + 1;
        let asks = batches[search].max(1);
        Some(Turn { search, asks })
    }

    fn compares_costs(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::promise::tests::START;
    use super::*;

    #[test]
    fn open_searches_take_turns() {
        let mut budget = RoundRobin::default();
        let closed = Standing {
            open: false,
            ..START
        };
        let mut searches = [START, closed, START];
        let mut turns = |searches: &[Standing], n: usize| -> Vec<Turn> {
            let one = |_| budget.turn(searches, &[4, 4, 0]);
            (0..n).map_while(one).collect()
        };
        let turn = |search, asks| Turn { search, asks };
        assert_eq!(turns(&searches, 3), [turn(0, 4), turn(2, 1), turn(0, 4)]);
        searches[2].open = false;
        assert_eq!(turns(&searches, 2), [turn(0, 4), turn(0, 4)]);
        searches[0].open = false;
        assert!(turns(&searches, 2).is_empty());
        assert!(turns(&[], 1).is_empty());
    }
}
