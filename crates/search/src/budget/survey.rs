//! Small batches of every operator, for as long as the whole model gains enough by them (Trimmer, section IV-C).
//!
//! Each model has a queue of its searches. In an epoch every search of the queue has one batch, and then the models are
//! measured whole. A model's rate is how much faster the epoch made it, over what the epoch cost. A run of one model ends
//! when that rate stays low. Of several models, or several tuners of one, that with the least latest gain is suspended
//! whenever one of them stands still. When the last one stands still, too, it hands over to the suspended one of the
//! best gain, if that gained more than the last one does now.

use super::{Budget, Standing, Turn};
use std::collections::VecDeque;

/// When a survey goes on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SurveyRule {
    /// Candidates of a batch.
    pub trials: usize,
    /// A rate is low if it is at most `1 + phi` times the one before.
    pub phi: f64,
    /// Epochs in a row with a low rate after which a model stands still.
    pub patience: u32,
    /// A search leaves the queue after more batches in a row than these without a new best.
    pub misses: u32,
}

impl SurveyRule {
    pub const PAPER: SurveyRule = SurveyRule {
        trials: 64,
        phi: -0.25,
        patience: 2,
        misses: 2,
    };

    /// The rule with changes, such as `trials=32,phi=-0.5`.
    ///
    /// # Errors
    /// If a change is not of that form, or names what there is not.
    pub fn with(mut self, changes: &str) -> Result<SurveyRule, String> {
        for change in changes.split(',').filter(|c| !c.is_empty()) {
            let (name, value) = change
                .split_once('=')
                .ok_or_else(|| format!("`{change}` is not NAME=VALUE"))?;
            let count = |least: u32| {
                let count = value.parse().ok().filter(|n: &u32| *n >= least);
                count.ok_or_else(|| format!("{name} is a whole number from {least}"))
            };
            match name {
                "trials" => self.trials = count(1)? as usize,
                "patience" => self.patience = count(1)?,
                "misses" => self.misses = count(0)?,
                "phi" => {
                    let phi = value.parse().ok().filter(|p| (-1.0..=1.0).contains(p));
                    self.phi = phi.ok_or("phi is a number from -1 to 1")?;
                }
                _ => {
                    return Err(format!(
                        "there is no `{name}`, only trials, phi, patience and misses"
                    ));
                }
            }
        }
        Ok(self)
    }
}

/// A model that was measured whole, with the best of its searches.
#[derive(Clone, Debug)]
pub struct WholeModel {
    /// Of one inference.
    pub cost: f64,
    pub searches: Vec<usize>,
    /// Whether it costs no more than wanted.
    pub suffices: bool,
    /// What its trials took so far; only shares of it mean anything.
    pub work: f64,
}

/// What a run spent until models were measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spending {
    /// Seconds or joules.
    pub spent: f64,
    /// Candidates that were answered, and those whose answer was known.
    pub fresh: u64,
    pub known: u64,
}

/// Why a survey ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SurveyEnd {
    /// What was wanted is reached.
    Goal,
    /// The rate stayed low.
    Rate,
    /// No search is left in the queues.
    Exhausted,
}

impl SurveyEnd {
    pub fn name(self) -> &'static str {
        match self {
            SurveyEnd::Goal => "goal",
            SurveyEnd::Rate => "rate",
            SurveyEnd::Exhausted => "exhausted",
        }
    }
}

/// What an epoch says of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelEpoch {
    pub cost: f64,
    /// How much faster it became for each second or joule; none of the first epoch, and of one whose answers were known.
    pub rate: Option<f64>,
    /// Whether it has a batch in the next epoch.
    pub runs: bool,
    /// Searches in its queue.
    pub queue: usize,
}

/// An epoch: what it says of every model, and whether it was the last.
#[derive(Clone, Debug, PartialEq)]
pub struct Epoch {
    pub models: Vec<ModelEpoch>,
    pub ended: Option<SurveyEnd>,
}

/// A model in the course of a survey.
#[derive(Debug)]
struct Surveyed {
    cost: f64,
    work: f64,
    rate: Option<f64>,
    /// Share by which its last epoch lowered the cost.
    gain: f64,
    /// Epochs in a row with a low rate.
    low: u32,
    runs: bool,
}

#[derive(Debug)]
pub struct Survey {
    rule: SurveyRule,
    models: Vec<Surveyed>,
    last: Spending,
    /// Searches that have their batch of this epoch before them.
    queue: VecDeque<usize>,
    /// Of each search its best when its last batch began, and batches in a row without a better one.
    searches: Vec<(Option<f64>, u32)>,
    /// Searches that had a batch in this epoch.
    asked: Vec<usize>,
    ended: bool,
}

impl Survey {
    pub fn new(rule: SurveyRule) -> Survey {
        Survey {
            rule,
            models: vec![],
            last: Spending::default(),
            queue: VecDeque::new(),
            searches: vec![],
            asked: vec![],
            ended: false,
        }
    }

    /// Whether an epoch is over: the models are to be measured once all that was asked is answered.
    pub fn is_epoch_over(&self, searches: &[Standing]) -> bool {
        !self.ended && !self.queue.iter().any(|s| searches[*s].open)
    }

    /// Hears how fast the models are now, before any batch and after each epoch, always in the same order.
    pub fn measured(
        &mut self,
        now: &[WholeModel],
        spending: Spending,
        searches: &[Standing],
    ) -> Epoch {
        self.searches.resize(searches.len(), (None, 0));
        let known = spending.known - self.last.known > spending.fresh - self.last.fresh;
        self.count_misses(searches, known);
        self.rate(now, spending.spent - self.last.spent, known);
        self.last = spending;
        let queues: Vec<Vec<usize>> = now.iter().map(|m| self.open(m, searches)).collect();
        for (model, queue) in self.models.iter_mut().zip(&queues) {
            model.runs &= !queue.is_empty();
        }
        let ended = self.end(now, &queues);
        self.ended = ended.is_some();
        self.fill_queue(&queues);
        let models = self.models.iter().zip(&queues);
        let model = |(m, queue): (&Surveyed, &Vec<usize>)| ModelEpoch {
            cost: m.cost,
            rate: m.rate,
            runs: m.runs && !self.ended,
            queue: queue.len(),
        };
        Epoch {
            models: models.map(model).collect(),
            ended,
        }
    }

    /// Answers that were known say nothing of how a search goes on.
    fn count_misses(&mut self, searches: &[Standing], known: bool) {
        for s in std::mem::take(&mut self.asked) {
            let (before, misses) = &mut self.searches[s];
            let better = match (searches[s].best, *before) {
                (Some(now), Some(before)) => now < before,
                (now, _) => now.is_some(),
            };
            *misses = if better || known { 0 } else { *misses + 1 };
        }
    }

    fn rate(&mut self, now: &[WholeModel], spent: f64, known: bool) {
        if self.models.is_empty() {
            let first = |m: &WholeModel| Surveyed {
                cost: m.cost,
                work: m.work,
                rate: None,
                gain: 0.0,
                low: 0,
                runs: true,
            };
            self.models = now.iter().map(first).collect();
            return;
        }
        let work = |(m, now): (&Surveyed, &WholeModel)| (now.work - m.work).max(0.0);
        let all: f64 = self.models.iter().zip(now).map(work).sum();
        for (m, now) in self.models.iter_mut().zip(now) {
            // A model without work in the epoch has another one's gain, if any.
            let share = match work((m, now)) {
                own if own > 0.0 => own / all,
                _ => 1.0,
            };
            let fell = m.cost - now.cost;
            (m.cost, m.work) = (now.cost, now.work);
            // A suspended one keeps what its own last epoch gained.
            if !m.runs {
                continue;
            }
            let rate = (!known && spent > 0.0).then(|| fell / (spent * share));
            m.gain = fell / (now.cost + fell).abs().max(f64::MIN_POSITIVE);
            // The first rate has none before it, so nothing is tested.
            let is_low = rate.zip(m.rate).is_some_and(|(rate, before)| {
                rate <= 0.0 || rate <= (1.0 + self.rule.phi) * before
            });
            m.low = if is_low { m.low + 1 } else { 0 };
            m.rate = rate;
        }
    }

    /// The searches of a model that may have another batch.
    fn open(&self, model: &WholeModel, searches: &[Standing]) -> Vec<usize> {
        let open = |s: &usize| searches[*s].open && self.searches[*s].1 <= self.rule.misses;
        model.searches.iter().copied().filter(open).collect()
    }

    /// Suspends a model, resumes one, or ends the survey.
    fn end(&mut self, now: &[WholeModel], queues: &[Vec<usize>]) -> Option<SurveyEnd> {
        if now.iter().all(|m| m.suffices) {
            return Some(SurveyEnd::Goal);
        }
        let running: Vec<usize> = (0..now.len()).filter(|m| self.models[*m].runs).collect();
        let stands_still = |m: &usize| self.models[*m].low >= self.rule.patience;
        match &running[..] {
            [] => (!self.resume(queues, 0.0)).then_some(SurveyEnd::Exhausted),
            [last] if stands_still(last) => {
                let gain = self.models[*last].gain.max(0.0);
                let resumed = self.resume(queues, gain);
                self.models[*last].runs = !resumed;
                (!resumed).then_some(SurveyEnd::Rate)
            }
            several if several.iter().any(stands_still) => {
                let gain = |m: &&usize| self.models[**m].gain;
                let least = several.iter().min_by(|a, b| gain(a).total_cmp(&gain(b)));
                least.inspect(|least| self.models[**least].runs = false);
                None
            }
            _ => None,
        }
    }

    /// Resumes the suspended model that gained most in its last epoch; false if none gained more than `gain`.
    fn resume(&mut self, queues: &[Vec<usize>], gain: f64) -> bool {
        let models = self.models.iter_mut().zip(queues);
        let suspended = models.filter(|(m, queue)| !m.runs && !queue.is_empty() && m.gain > gain);
        let best = suspended.max_by(|a, b| a.0.gain.total_cmp(&b.0.gain));
        best.map(|(m, _)| (m.runs, m.low) = (true, 0)).is_some()
    }

    /// A batch of each model in turn.
    fn fill_queue(&mut self, queues: &[Vec<usize>]) {
        self.queue.clear();
        let longest = queues.iter().map(Vec::len).max().unwrap_or(0);
        for at in 0..longest {
            for (model, queue) in self.models.iter().zip(queues) {
                let next = queue.get(at).filter(|_| model.runs);
                if let Some(search) = next.filter(|s| !self.queue.contains(s)) {
                    self.queue.push_back(*search);
                }
            }
        }
    }
}

impl Budget for Survey {
    fn turn(&mut self, searches: &[Standing], _batches: &[usize]) -> Option<Turn> {
        if self.ended {
            return None;
        }
        let search = loop {
            let next = self.queue.pop_front()?;
            if searches[next].open {
                break next;
            }
        };
        self.searches[search].0 = searches[search].best;
        self.asked.push(search);
        let asks = self.rule.trials;
        Some(Turn { search, asks })
    }

    /// Costs are compared as parts of one model's.
    fn compares_costs(&self) -> bool {
        true
    }

    fn survey(&mut self) -> Option<&mut Survey> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::super::promise::tests::START;
    use super::*;

    fn model(cost: f64, searches: &[usize], work: f64) -> WholeModel {
        WholeModel {
            cost,
            searches: searches.to_vec(),
            suffices: false,
            work,
        }
    }

    fn spending(spent: f64) -> Spending {
        Spending {
            spent,
            fresh: spent as u64,
            known: 0,
        }
    }

    fn turns(survey: &mut Survey, searches: &[Standing]) -> Vec<usize> {
        let mut all = vec![];
        while let Some(turn) = survey.turn(searches, &[4; 4]) {
            assert_eq!(turn.asks, 64);
            all.push(turn.search);
        }
        all
    }

    /// Epochs of one model of two searches, each of which costs 10: the rates and the end.
    fn epochs(
        survey: &mut Survey,
        costs: &[f64],
    ) -> (Vec<Option<f64>>, Option<(usize, SurveyEnd)>) {
        let mut searches = [START; 2];
        let mut rates = vec![];
        for (t, cost) in costs.iter().enumerate() {
            assert!(survey.is_epoch_over(&searches));
            let now = [model(*cost, &[0, 1], t as f64)];
            let epoch = survey.measured(&now, spending(10.0 * t as f64), &searches);
            rates.push(epoch.models[0].rate);
            if let Some(end) = epoch.ended {
                assert_eq!(turns(survey, &searches), [0usize; 0]);
                return (rates, Some((t, end)));
            }
            assert_eq!(turns(survey, &searches), [0, 1]);
            for s in &mut searches {
                s.best = Some(1e6 - t as f64);
            }
        }
        (rates, None)
    }

    #[test]
    fn a_rate_that_stays_low_for_two_epochs_ends_it() {
        let of = |costs: &[f64]| epochs(&mut Survey::new(SurveyRule::PAPER), costs);
        // Rates 5, 4, 4: one at 80% of the one before is not low.
        let (rates, ended) = of(&[100.0, 50.0, 10.0, -30.0]);
        assert_eq!(rates, [None, Some(5.0), Some(4.0), Some(4.0)]);
        assert_eq!(ended, None);
        // Rates 3, 2, 1: two low ones.
        assert_eq!(of(&[100.0, 70.0, 50.0, 40.0]).1, Some((3, SurveyEnd::Rate)));
        // A good one in between begins the count anew.
        assert_eq!(of(&[100.0, 70.0, 50.0, 20.0, 10.0]).1, None);
        // What becomes slower has a low rate, and the test begins with the second one.
        assert_eq!(
            of(&[100.0, 101.0, 101.0, 101.0]).1,
            Some((3, SurveyEnd::Rate))
        );
        assert_eq!(of(&[100.0, 101.0, 101.0]).1, None);
    }

    #[test]
    fn a_goal_ends_it_and_known_answers_have_no_rate() {
        let mut survey = Survey::new(SurveyRule::PAPER);
        let searches = [START];
        let mut suffices = model(9.0, &[0], 0.0);
        suffices.suffices = true;
        let epoch = survey.measured(&[suffices], spending(0.0), &searches);
        assert_eq!(epoch.ended, Some(SurveyEnd::Goal));
        assert!(!survey.is_epoch_over(&searches));
        let mut survey = Survey::new(SurveyRule::PAPER);
        survey.measured(&[model(9.0, &[0], 0.0)], spending(0.0), &searches);
        turns(&mut survey, &searches);
        let resumed = Spending {
            spent: 1.0,
            fresh: 3,
            known: 60,
        };
        let epoch = survey.measured(&[model(2.0, &[0], 1.0)], resumed, &searches);
        assert_eq!((epoch.models[0].rate, epoch.ended), (None, None));
        turns(&mut survey, &searches);
        let next = Spending {
            spent: 3.0,
            fresh: 67,
            known: 60,
        };
        let epoch = survey.measured(&[model(1.0, &[0], 2.0)], next, &searches);
        assert_eq!(epoch.models[0].rate, Some(0.5));
    }

    #[test]
    fn a_search_leaves_the_queue_after_three_batches_without_a_new_best_or_when_it_is_closed() {
        let mut survey = Survey::new(SurveyRule::PAPER);
        let mut searches = [START; 3];
        searches.iter_mut().for_each(|s| s.best = Some(5.0));
        let mut all = vec![];
        for t in 0..6 {
            let now = [model(100.0 - 10.0 * f64::from(t), &[0, 1, 2], f64::from(t))];
            survey.measured(&now, spending(f64::from(t)), &searches);
            all.push(turns(&mut survey, &searches));
            searches[1].best = searches[1].best.map(|b| b * 0.9);
            searches[2].open = t < 1;
        }
        let expected: [&[usize]; 6] = [&[0, 1, 2], &[0, 1, 2], &[0, 1], &[1], &[1], &[1]];
        assert_eq!(all, expected);
    }

    #[test]
    fn the_tuner_of_least_gain_is_suspended_and_the_last_one_is_not() {
        let mut survey = Survey::new(SurveyRule {
            patience: 1,
            ..SurveyRule::PAPER
        });
        let mut searches = [START; 4];
        let mut epoch = |costs: [f64; 2], work: [f64; 2], spent: f64| {
            for s in &mut searches {
                s.best = Some(1e6 - spent);
            }
            let now = [
                model(costs[0], &[0, 1], work[0]),
                model(costs[1], &[2, 3], work[1]),
            ];
            let epoch = survey.measured(&now, spending(spent), &searches);
            let runs = epoch.models.iter().map(|m| m.runs).collect::<Vec<_>>();
            (runs, turns(&mut survey, &searches), epoch)
        };
        assert_eq!(epoch([100.0; 2], [0.0; 2], 0.0).1, [0, 2, 1, 3]);
        let (_, _, first) = epoch([60.0, 50.0], [1.0, 3.0], 40.0);
        // A quarter of the work is a quarter of the cost.
        assert_eq!(first.models[0].rate, Some(4.0));
        let (runs, turns, _) = epoch([50.0, 49.0], [2.0, 4.0], 80.0);
        assert_eq!((runs, turns), (vec![true, false], vec![0, 1]));
        // The suspended one had gained 2%.
        let (runs, _, epoch_3) = epoch([50.0, 49.0], [3.0, 4.0], 90.0);
        assert_eq!((runs, epoch_3.ended), (vec![false, true], None));
        let (runs, _, last) = epoch([50.0, 49.0], [3.0, 5.0], 100.0);
        assert_eq!((runs, last.ended), (vec![false; 2], Some(SurveyEnd::Rate)));
    }

    /// What two tuners of one model reached, by batches of their own.
    const RECORDED: [[f64; 6]; 2] = [
        [100.0, 60.0, 50.0, 49.0, 49.0, 49.0],
        [100.0, 80.0, 70.0, 40.0, 8.0, 7.0],
    ];

    /// Searches the recorded tables until the survey ends: which tuners ran in each epoch, and why it ended.
    fn replayed(tables: [&[f64]; 2]) -> (Vec<Vec<usize>>, Option<SurveyEnd>) {
        let mut survey = Survey::new(SurveyRule {
            patience: 1,
            ..SurveyRule::PAPER
        });
        let (mut searches, mut batches, mut all) = ([START; 2], [0, 0], vec![]);
        loop {
            for (s, (table, batch)) in searches.iter_mut().zip(tables.iter().zip(batches)) {
                (s.best, s.open) = (Some(table[batch]), batch + 1 < table.len());
            }
            let of = |n: usize| model(tables[n][batches[n]], &[n], batches[n] as f64);
            let spent = 10.0 * (batches[0] + batches[1]) as f64;
            let epoch = survey.measured(&[of(0), of(1)], spending(spent), &searches);
            if epoch.ended.is_some() {
                return (all, epoch.ended);
            }
            let asked = turns(&mut survey, &searches);
            asked.iter().for_each(|n| batches[*n] += 1);
            all.push(asked);
        }
    }

    #[test]
    fn a_suspended_tuner_goes_on_when_the_last_one_stands_still_and_had_gained_less() {
        let [first, second] = &RECORDED;
        let (epochs, ended) = replayed([first, second]);
        let both = vec![0, 1];
        // After two epochs the second has the least gain and is suspended. The first stands still next, and goes on when
        // the table of the second is at its end.
        let one = |n: usize| vec![n];
        let expected = [both.clone(), both, one(0), one(1), one(1), one(1), one(0)];
        assert_eq!((&epochs[..], ended), (&expected[..], Some(SurveyEnd::Rate)));
        // One that gained nothing before it was suspended stays so.
        let (epochs, ended) = replayed([first, &[100.0; 6]]);
        assert_eq!(epochs, [vec![0, 1], vec![0, 1], vec![0]]);
        assert_eq!(ended, Some(SurveyEnd::Rate));
    }

    #[test]
    fn rules_are_changed_by_name() {
        let rule = SurveyRule::PAPER.with("trials=8,phi=-0.5").unwrap();
        assert_eq!((rule.trials, rule.phi, rule.misses), (8, -0.5, 2));
        for wrong in ["trials=0", "phi=2", "psi=1", "misses"] {
            assert!(SurveyRule::PAPER.with(wrong).is_err(), "{wrong}");
        }
    }
}
