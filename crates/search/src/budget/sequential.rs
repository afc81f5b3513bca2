//! One search after the other, each until it stands still (AutoTVM tunes the tasks of a model like this, with `early_stopping`).

use super::{Budget, Standing, Turn};

/// Answers without a better one after which a search stands still: two batches of 64.
const PATIENCE: u64 = 128;

/// Gives whole batches to the first open search that does not stand still. When all do, each may stand still for as many
/// answers more.
#[derive(Debug)]
pub struct Sequential {
    patience: u64,
    /// Searches before this one had their time.
    at: usize,
}

impl Default for Sequential {
    fn default() -> Sequential {
        Sequential {
            patience: PATIENCE,
            at: 0,
        }
    }
}

impl Budget for Sequential {
    fn turn(&mut self, searches: &[Standing], batches: &[usize]) -> Option<Turn> {
        if !searches.iter().any(|s| s.open) {
            return None;
        }
        loop {
            let moves = |s: &Standing| s.open && s.since_best < self.patience;
            let next = (self.at..searches.len()).find(|i| moves(&searches[*i]));
            if let Some(search) = next {
                self.at = search;
                let asks = batches[search].max(1);
                return Some(Turn { search, asks });
            }
            self.at = 0;
            self.patience += PATIENCE;
        }
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
    fn a_search_has_all_turns_until_it_stands_still() {
        let mut budget = Sequential::default();
        let mut searches = [START; 3];
        let mut turn = |searches: &[Standing]| budget.turn(searches, &[4; 3]).map(|t| t.search);
        assert_eq!([turn(&searches), turn(&searches)], [Some(0), Some(0)]);
        searches[0].since_best = PATIENCE;
        searches[1].open = false;
        assert_eq!(turn(&searches), Some(2));
        // A late answer to the first search does not bring it back.
        searches[0].since_best = 0;
        assert_eq!(turn(&searches), Some(2));
        // When the last one stands still, they have as many answers more.
        searches[2].since_best = PATIENCE;
        assert_eq!(turn(&searches), Some(0));
        searches[0].since_best = 2 * PATIENCE;
        assert_eq!(turn(&searches), Some(2));
        searches[2].since_best = 9 * PATIENCE;
        assert_eq!(turn(&searches), Some(0));
        searches.iter_mut().for_each(|s| s.open = false);
        assert_eq!(turn(&searches), None);
        assert_eq!(turn(&[]), None);
    }
}
