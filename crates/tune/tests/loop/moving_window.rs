//! A run whose scores compare candidates with each other, cut off and begun again.

use crate::fakes::{Shared, cost_ns};
use crate::setting::{Setting, Wanted, options, search, wanted};
use analysis::{Features, Score};
use build::Read;
use search::Point;
use simulate::{FeatureSet, Method, Predictor, Sample, Statistics, TrainOptions, Window};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use store::RecordQuery;
use tune::evaluator::{Batch, Evaluator, Reading, Reply};
use tune::scorer::{Judge, Scorer, Simulator};
use tune::{AnswerPlace, EarlierTrial, Form, Run, Trial};

const CPU: &str = "fake";
const WHOLE: usize = usize::MAX;
const TRIALS: u64 = 60;

/// What a builder might read of a point.
fn read(p: &Point) -> Read {
    let cost = cost_ns(p) as f64;
    let statistics = Statistics {
        instructions: 3.0 * cost + 0.7,
        loads: cost.sqrt(),
        stores: (cost * 7.3) % 11.1,
        ..Statistics::default()
    };
    Read {
        features: Features {
            lines: [cost / 3.0; 3],
            ..Features::default()
        },
        statistics: Some(Ok(statistics)),
    }
}

/// Learned from made-up times of the same kind of point.
fn predictor() -> Predictor {
    let sample = |i: u64| {
        let values = vec![i % 9, i / 9 % 8, i % 7];
        let read = read(&Point { sketch: 0, values });
        let statistics = read.statistics.unwrap().unwrap();
        Sample {
            cpu: CPU.into(),
            group: format!("{}", i % 2),
            time_ns: Some(statistics.instructions + 40.0 * statistics.loads),
            code: Some(read.features),
            statistics,
            ..Sample::default()
        }
    };
    let samples: Vec<Sample> = (1..80).map(sample).collect();
    let options = TrainOptions {
        method: Method::named("linear").unwrap(),
        features: FeatureSet::Score,
        validation: 0.2,
        seed: 1,
    };
    Predictor::train(&samples.iter().collect::<Vec<_>>(), options).unwrap()
}

/// Scores points by fours as [`Reading`] does what builders read, and is cut off with its run when it is handed one batch
/// more.
struct Mortal {
    inner: Reading,
    left: usize,
    answered: Shared<Point>,
}

impl Mortal {
    fn new(left: usize, window: Window) -> Mortal {
        let target = crate::setting::x86();
        let scorer = Scorer {
            cpu: String::new(),
            levels: None,
            rates: Score::USUAL,
            simulator: Some(Simulator {
                name: CPU.into(),
                judge: Judge::Predictor(Arc::new(predictor()), window),
                ..Simulator::of(&target)
            }),
        };
        let place = AnswerPlace {
            target: tune::machine::target_key(&target).text(),
            machine: "fake machine".into(),
        };
        Mortal {
            inner: Reading::new(scorer, place),
            left,
            answered: Shared::default(),
        }
    }
}

impl Evaluator for Mortal {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn form(&self) -> Form {
        Form::Point
    }

    fn score_kind(&self, task: &str) -> Option<String> {
        self.inner.score_kind(task)
    }

    fn batch(&self) -> usize {
        4
    }

    fn go_on(&mut self, task: &Arc<str>, kind: &str, earlier: &[EarlierTrial]) {
        self.inner.go_on(task, kind, earlier);
    }

    fn submit(&mut self, batch: Batch) {
        assert!(self.left > 0, "killed");
        self.left -= 1;
        let points = batch.trials.iter().map(|t| t.point.clone());
        self.answered.lock().unwrap().extend(points);
        let with_code = |t: Trial| Trial {
            read: Some(Arc::new(read(&t.point))),
            ..t
        };
        self.inner.submit(Batch {
            trials: batch.trials.into_iter().map(with_code).collect(),
            ..batch
        });
    }

    fn poll(&mut self, wait: Duration, quiet: &mut dyn FnMut(bool)) -> Option<Reply> {
        self.inner.poll(wait, quiet)
    }
}

/// The points that are answered in a run of so many trials, which is killed after so many batches and goes on from
/// earlier runs, and the least cost of all runs so far.
fn answered(
    setting: &Setting,
    (strategy, window): (&str, Window),
    (run_id, earlier): (&str, &[String]),
    (trials, batches): (u64, usize),
) -> (Vec<Point>, Option<f64>) {
    let options = options(trials);
    let mut run = Run::new(setting.log(), &options).unwrap();
    let mortal = Mortal::new(batches, window);
    let answered = mortal.answered.clone();
    run.add_evaluator(Box::new(mortal));
    let wanted = Wanted {
        strategy,
        ..wanted(run_id, "table")
    };
    let mut s = setting.of_knobs(&wanted, &[9, 8, 7], &options);
    let goes_on = s.go_on(&setting.store, earlier).unwrap();
    assert_eq!(goes_on, !earlier.is_empty(), "{strategy}");
    run.add_searches(vec![s]);
    let whole = catch_unwind(AssertUnwindSafe(|| search(&mut run)));
    assert_eq!(whole.is_ok(), batches == WHOLE, "{strategy}");
    let s = &run.searches[0];
    let least = s.best_cost().into_iter().chain(s.before.best);
    let answered = answered.lock().unwrap();
    (answered.clone(), least.reduce(f64::min))
}

/// The scores that the store has in the end, by the decisions.
fn scores(setting: &Setting) -> BTreeMap<String, f64> {
    let records = setting.store.records_for(&RecordQuery::default()).unwrap();
    let one = |r: &store::Record| {
        let values: Vec<_> = r.decisions.iter().map(|d| d.index).collect();
        Some((format!("{values:?}"), r.outcome.cost()?.value()))
    };
    records.iter().filter_map(one).collect()
}

#[test]
fn a_run_that_is_killed_twice_goes_on_with_its_window() {
    for window in [Window::Dynamic, Window::Static(30)] {
        for strategy in search::strategy_names() {
            let what = (strategy, window);
            let whole = Setting::new();
            let (all, best) = answered(&whole, what, ("whole", &[]), (TRIALS, WHOLE));
            let setting = Setting::new();
            let (first, _) = answered(&setting, what, ("1", &[]), (TRIALS, 5));
            let runs = ["1".to_string()];
            let left = TRIALS - first.len() as u64;
            let (second, _) = answered(&setting, what, ("2", &runs), (left, 4));
            let runs = ["1".to_string(), "2".to_string()];
            let left = left - second.len() as u64;
            let (third, best_again) = answered(&setting, what, ("3", &runs), (left, WHOLE));
            assert_eq!((first.len(), second.len()), (20, 16), "{what:?}");
            assert_eq!([first, second, third].concat(), all, "{what:?}");
            assert_eq!(best_again, best, "{what:?}");
            let expected = scores(&whole);
            assert_eq!(expected.len() as u64, TRIALS, "{what:?}");
            assert_eq!(scores(&setting), expected, "{what:?}");
        }
    }
}
