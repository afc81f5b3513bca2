//! Budgets: which search gets the next turn, and how many candidates it is asked for.
//!
//! Owns the rules by which a run divides its trials between the tasks of its models.
//! Pure: equal standings give equal turns. Which candidates a search proposes is its
//! strategy's decision ([`crate::Strategy`]).

mod gradient;
mod promise;
mod round_robin;
mod sequential;
mod survey;

pub use gradient::Gradient;
pub use promise::Promise;
pub use round_robin::RoundRobin;
pub use sequential::Sequential;
pub use survey::{Epoch, ModelEpoch, Spending, Survey, SurveyEnd, SurveyRule, WholeModel};

/// What is known of a search.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    /// Cost of one call, the best so far; none before the first measurement.
    pub best: Option<f64>,
    /// Cost of one call, before anything is known.
    pub guess: f64,
    /// No schedule costs less.
    pub bound: f64,
    /// Calls in one inference.
    pub uses: usize,
    /// What the cost of its model's inference is multiplied by, so that the models of a run
    /// count as they should; 1 where there is one model.
    pub weight: f64,
    /// Operations of one call; 0 where they are not known.
    pub operations: f64,
    /// Searches of equal numbers have similar tasks: their spaces have the same sketches.
    pub family: usize,
    /// Candidates asked for, those on their way included.
    pub asked: u64,
    /// Candidates that were answered, failures included.
    pub trials: u64,
    pub sketches: usize,
    /// Times told since the best improved.
    pub since_best: u64,
    /// Mean time of a trial.
    pub trial_ns: f64,
    /// Whether the search may be asked: it is not exhausted, and nobody suspended it.
    pub open: bool,
}

/// A search's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    pub search: usize,
    /// Candidates to ask for, at most; at least 1.
    pub asks: usize,
}

/// Divides the trials of a run between its searches.
pub trait Budget {
    /// The search that is asked next, and for how many candidates; `batches` says how many
    /// candidates each search's evaluator takes together. None if no search is open.
    fn turn(&mut self, searches: &[Standing], batches: &[usize]) -> Option<Turn>;

    /// Whether it sets the costs of searches against each other, so that all of them must be
    /// of one kind.
    fn compares_costs(&self) -> bool;

    /// The survey that this budget is, if it hears of whole models between its turns.
    fn survey(&mut self) -> Option<&mut Survey> {
        None
    }
}

/// Makes a budget for a run.
pub type MakeBudget = fn(SurveyRule) -> Box<dyn Budget + Send>;

/// Every budget: its name, and what makes one.
pub const BUDGETS: [(&str, MakeBudget); 5] = [
    ("gradient", |_| Box::new(Gradient::default())),
    ("promise", |_| Box::new(Promise)),
    ("round-robin", |_| Box::new(RoundRobin::default())),
    ("sequential", |_| Box::new(Sequential::default())),
    ("survey", |rule| Box::new(Survey::new(rule))),
];

/// Names of the budgets, for the command line.
pub fn budget_names() -> [&'static str; BUDGETS.len()] {
    BUDGETS.map(|(name, _)| name)
}

/// A budget by name; none if there is none of that name. The rule is that of a survey.
pub fn budget(name: &str, rule: SurveyRule) -> Option<Box<dyn Budget + Send>> {
    let (_, make) = BUDGETS.iter().find(|(known, _)| *known == name)?;
    Some(make(rule))
}

/// Candidates that a search is asked for, at most, while others have no measurement: every task
/// has its first before any has its tenth.
const FIRST_ASKS: u64 = 9;

impl Standing {
    /// Whether the search has no measurement, and has not had its fair number of asks.
    fn is_untried(&self) -> bool {
        self.best.is_none() && self.asked < FIRST_ASKS && self.open
    }
}

/// Searches that have no measurement, and have not had their fair number of asks.
pub fn untried(searches: &[Standing]) -> usize {
    searches.iter().filter(|s| s.is_untried()).count()
}

/// Answers of a search without a better one after which it is flat: `early_stopping` of AutoTVM's tutorial for GPUs.
const FLAT: u64 = 600;

/// The open searches that budgets which compare costs choose from: those that are not flat. Where all are, each may have as
/// many answers more: a run has the time that it was given.
fn lively(searches: &[Standing]) -> impl DoubleEndedIterator<Item = usize> + Clone + '_ {
    let times_flat = |s: &Standing| s.since_best / FLAT;
    let open = searches.iter().filter(|s| s.open);
    let least = open.map(times_flat).min().unwrap_or(0);
    let may = move |i: &usize| searches[*i].open && times_flat(&searches[*i]) == least;
    (0..searches.len()).filter(may)
}

#[cfg(test)]
mod tests {
    use super::promise::tests::START;
    use super::*;

    #[test]
    fn what_is_flat_waits_for_the_others_and_when_all_are_they_go_on() {
        let costly = Standing {
            best: Some(1e9),
            asked: 9,
            ..START
        };
        let cheap = Standing {
            best: Some(1e3),
            bound: 5e2,
            ..costly
        };
        for name in ["promise", "gradient"] {
            let mut budget = budget(name, SurveyRule::PAPER).unwrap();
            let mut searches = [costly, cheap];
            let mut turn = |searches: &[Standing]| budget.turn(searches, &[1; 2]).map(|t| t.search);
            // Each has its first turn.
            turn(&searches);
            turn(&searches);
            searches[0].since_best = FLAT - 1;
            assert_eq!(turn(&searches), Some(0), "{name}");
            searches[0].since_best = FLAT;
            assert_eq!(turn(&searches), Some(1), "{name}");
            // An open one of which nothing more comes is no reason to end.
            searches[1].since_best = FLAT;
            assert_eq!(turn(&searches), Some(0), "{name}");
            searches[0].since_best = 2 * FLAT;
            assert_eq!(turn(&searches), Some(1), "{name}");
            searches[1].open = false;
            assert_eq!(turn(&searches), Some(0), "{name}");
            // A better one brings it back.
            (searches[1].open, searches[0].since_best) = (true, 0);
            assert_eq!(turn(&searches), Some(0), "{name}");
        }
    }

    #[test]
    fn a_budget_is_found_by_its_name() {
        let budget = |name| budget(name, SurveyRule::PAPER);
        assert!(budget("promise").is_some_and(|b| b.compares_costs()));
        assert!(budget("gradient").is_some_and(|b| b.compares_costs()));
        assert!(budget("sequential").is_some_and(|b| !b.compares_costs()));
        assert!(budget("round-robin").is_some_and(|b| !b.compares_costs()));
        assert!(budget("fair").is_none());
    }
}
