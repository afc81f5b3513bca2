//! Evaluators that work at the same time, each on a thread of its own: which models they serve, and what becomes of a run
//! when one of them disappears.

use crate::fakes::{Shared, answered, timed};
use crate::setting::{Setting, Wanted, options, search, wanted};
use search::SurveyRule;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use store::{EventKind, Outcome, SurveyEpoch};
use tune::evaluator::{Batch, CoreSet, Evaluator, Inbox, Reply};
use tune::{Form, Options, Run, State, Trial};

/// Batches of a turn, and of an evaluator.
const TURN: u64 = 4;

/// What the tuners of a model reach by batches of their own; the last value stays.
const TABLES: [(&str, &[u64]); 4] = [
    ("early", &[60, 50, 49]),
    ("late", &[80, 70, 40, 8, 7]),
    ("flat", &[100]),
    ("steady", &[90, 80, 70, 60, 50, 40, 30, 20, 10]),
];

/// The cost of a candidate by the table of its task.
fn by_table(batch: &Batch, t: &Trial) -> Outcome {
    let (_, table) = TABLES
        .iter()
        .find(|(task, _)| *task == &*batch.task)
        .unwrap();
    let at = (t.number / TURN) as usize;
    timed(1000 * table[at.min(table.len() - 1)])
}

/// Where evaluators wait until so many of them have a batch.
struct Meeting {
    present: Mutex<usize>,
    news: Condvar,
    wanted: usize,
}

impl Meeting {
    /// Whether all came.
    fn attend(&self) -> bool {
        let mut present = self.present.lock().unwrap();
        *present += 1;
        self.news.notify_all();
        let some_miss = |present: &mut usize| *present < self.wanted;
        let waited = self
            .news
            .wait_timeout_while(present, Duration::from_secs(20), some_miss);
        !waited.unwrap().1.timed_out()
    }
}

/// A set that takes its time for each batch.
#[derive(Default)]
struct FakeSet {
    takes: Duration,
    /// Its thread ends at this batch, counted from 0.
    ends_at: Option<usize>,
    /// It answers no batch before others have one, too.
    meeting: Option<Arc<Meeting>>,
    waiting: VecDeque<Batch>,
    seen: Shared<Batch>,
}

impl Evaluator for FakeSet {
    fn name(&self) -> &'static str {
        "fake-set"
    }

    fn form(&self) -> Form {
        Form::Point
    }

    fn score_kind(&self, _: &str) -> Option<String> {
        None
    }

    fn batch(&self) -> usize {
        2
    }

    fn submit(&mut self, batch: Batch) {
        self.seen.lock().unwrap().push(batch.clone());
        self.waiting.push_back(batch);
    }

    fn poll(&mut self, _: Duration, _: &mut dyn FnMut(bool)) -> Option<Reply> {
        let batch = self.waiting.pop_front()?;
        let seen = self.seen.lock().unwrap().len();
        assert!(self.ends_at.is_none_or(|at| seen <= at), "the set is gone");
        if let Some(meeting) = &self.meeting {
            assert!(meeting.attend(), "the others had no batch");
        }
        std::thread::sleep(self.takes);
        Some(answered(batch, by_table))
    }

    fn rank(&mut self, batch: Batch, _: u32) -> Option<Reply> {
        Some(answered(batch, by_table))
    }
}

/// What became of a run of models on sets.
struct Surveyed {
    /// Of each model its epochs.
    epochs: Vec<Vec<SurveyEpoch>>,
    /// Of each set the tasks that it had batches of.
    tasks: Vec<BTreeSet<String>>,
    /// Of each model how many candidates were answered, and what its first search is.
    trials: Vec<u64>,
    states: Vec<State>,
    warnings: Vec<String>,
    /// Of each set the candidates that it evaluated.
    candidates: Vec<u64>,
}

/// Surveys models, each named by its tasks with a `+` between them.
fn surveyed(models: &[&str], sets: Vec<FakeSet>) -> Surveyed {
    let options = Options {
        budget: "survey".into(),
        survey: SurveyRule {
            trials: TURN as usize,
            patience: 1,
            ..SurveyRule::PAPER
        },
        ..options(10_000)
    };
    let setting = Setting::new();
    let mut run = Run::new(setting.log(), &options).unwrap();
    let (inbox, mut first) = (Arc::new(Inbox::default()), None);
    let seen: Vec<Shared<Batch>> = sets.iter().map(|s| s.seen.clone()).collect();
    for (i, set) in sets.into_iter().enumerate() {
        let set = Box::new(CoreSet::new(set, &inbox));
        let at = run.add_set(i.to_string(), set, first);
        first.get_or_insert(at);
    }
    for model in models {
        let of_task = |task| {
            let wanted = Wanted {
                guess: 100_000.0,
                ..wanted(model, task)
            };
            setting.of_knobs(&wanted, &[30, 30], &options)
        };
        run.add_searches(model.split('+').map(of_task).collect());
    }
    search(&mut run);
    let epochs = |run_id: &&str| {
        let events = setting.events(run_id).into_iter();
        let epoch = events.filter_map(|(_, e)| match e {
            EventKind::SurveyEpoch(e) => Some(e),
            _ => None,
        });
        epoch.collect()
    };
    // Models are in the order of their runs.
    let mut sorted = models.to_vec();
    sorted.sort_unstable();
    let tasks = |seen: &Shared<Batch>| {
        let seen = seen.lock().unwrap();
        seen.iter().map(|b| b.task.to_string()).collect()
    };
    let of_model = |model: &&str| {
        let own = run.searches.iter().filter(|s| *s.run_id == **model);
        own.collect::<Vec<_>>()
    };
    let trials = |model: &&str| of_model(model).iter().map(|s| s.trials).sum();
    Surveyed {
        epochs: sorted.iter().map(epochs).collect(),
        tasks: seen.iter().map(tasks).collect(),
        trials: sorted.iter().map(trials).collect(),
        states: sorted.iter().map(|m| of_model(m)[0].state).collect(),
        warnings: run.disturbances.warnings.clone(),
        candidates: run.set_use().iter().map(|s| s.candidates).collect(),
    }
}

fn taking(millis: u64) -> FakeSet {
    FakeSet {
        takes: Duration::from_millis(millis),
        ..FakeSet::default()
    }
}

/// Which models had a batch after each epoch.
fn running(s: &Surveyed) -> Vec<Vec<usize>> {
    let n = s.epochs[0].len();
    let of_epoch = |e: usize| {
        let all = 0..s.epochs.len();
        all.filter(|m| s.epochs[*m][e].runs).collect()
    };
    (0..n).map(of_epoch).collect()
}

#[test]
fn models_are_evaluated_at_the_same_time_each_on_a_set_of_its_own() {
    let meeting = Arc::new(Meeting {
        present: Mutex::new(0),
        news: Condvar::new(),
        wanted: 3,
    });
    let set = || FakeSet {
        meeting: Some(meeting.clone()),
        ..FakeSet::default()
    };
    let s = surveyed(&["early", "late", "steady"], vec![set(), set(), set()]);
    assert_eq!(s.warnings, [""; 0]);
    let first: Vec<&[String]> = s.epochs.iter().map(|e| &e[0].core_sets[..]).collect();
    assert_eq!(first, [["0"], ["1"], ["2"]]);
    assert_eq!(
        s.candidates.iter().sum::<u64>(),
        s.trials.iter().sum::<u64>()
    );
    assert!(s.tasks.iter().all(|t| !t.is_empty()));
}

#[test]
fn a_survey_suspends_and_resumes_whichever_set_answers_first() {
    let of = |sets| surveyed(&["early", "late"], sets);
    let slow_first = of(vec![taking(8), taking(0)]);
    let slow_last = of(vec![taking(0), taking(8)]);
    // As of the same tables in `search::Survey`: the late one is suspended, and resumed when the other stands still.
    let expected: [&[usize]; 8] = [&[0, 1], &[0, 1], &[0], &[1], &[1], &[1], &[0], &[]];
    assert_eq!(running(&slow_first)[..4], expected[..4]);
    assert_eq!(slow_first.epochs, slow_last.epochs);
    let one = of(vec![taking(0)]);
    let courses = [&slow_first, &slow_last, &one].map(|s| {
        let runs = running(s);
        let (last, before) = runs.split_last().unwrap();
        assert!(last.is_empty() && before.iter().all(|r| !r.is_empty()));
        (runs, s.trials.clone())
    });
    assert!(courses.iter().all(|c| *c == courses[0]));
}

#[test]
fn what_is_suspended_leaves_its_set_to_the_tasks_of_the_others() {
    let s = surveyed(&["early+steady", "flat"], vec![taking(0), taking(0)]);
    let runs = running(&s);
    assert_eq!(runs[..3], [vec![0, 1], vec![0, 1], vec![0]]);
    let sets = |model: usize, epoch: usize| s.epochs[model][epoch].core_sets.join(" ");
    assert_eq!((sets(0, 1), sets(1, 1)), ("0".into(), "1".into()));
    assert_eq!((sets(0, 2), sets(1, 2)), ("0 1".into(), String::new()));
    let tasks: [BTreeSet<String>; 2] =
        [["early", "steady"], ["flat", "steady"]].map(|t| t.map(String::from).into());
    assert_eq!(s.tasks, tasks);
}

#[test]
fn more_models_than_sets_share_them() {
    let s = surveyed(
        &["early", "flat", "late", "steady"],
        vec![taking(1), taking(1)],
    );
    let runs = running(&s);
    assert_eq!(runs[0], [0, 1, 2, 3]);
    let sets: Vec<&[String]> = s.epochs.iter().map(|e| &e[0].core_sets[..]).collect();
    assert_eq!(sets, [["0"], ["1"], ["0"], ["1"]]);
    // The flat one is out first, and the last one is never suspended.
    assert!(runs[2..].iter().all(|r| !r.contains(&1)), "{runs:?}");
    assert!(runs.iter().rev().skip(1).all(|r| !r.is_empty()));
    assert!(s.trials[3] > s.trials[1]);
}

#[test]
fn a_set_that_disappears_loses_only_what_it_had() {
    let mut sets = vec![taking(1), taking(1)];
    sets[1].ends_at = Some(3);
    let s = surveyed(&["early", "steady"], sets);
    let unharmed = surveyed(&["early", "steady"], vec![taking(1), taking(1)]);
    let costs = |s: &Surveyed| {
        s.epochs[0]
            .iter()
            .map(|e| e.cost)
            .take(3)
            .collect::<Vec<_>>()
    };
    assert_eq!(costs(&s), costs(&unharmed), "the other set's model");
    assert_eq!(s.states, [State::Open; 2]);
    // The first set takes over.
    assert!(s.tasks[0].contains("steady"), "{:?}", s.tasks);
    assert_eq!(s.epochs[1].last().unwrap().core_sets, [""; 0]);
    assert!(
        s.epochs[1][3..]
            .iter()
            .all(|e| e.core_sets.iter().all(|s| s == "0"))
    );
    assert!(
        s.warnings
            .iter()
            .any(|w| w.contains("the core set 1 stopped")),
        "{:?}",
        s.warnings
    );
}

#[test]
fn a_run_without_sets_that_work_ends() {
    let mut sets = vec![taking(0), taking(0)];
    sets.iter_mut().for_each(|s| s.ends_at = Some(0));
    let s = surveyed(&["early", "late"], sets);
    assert_eq!(s.trials, [0, 0]);
    assert_eq!(s.states, [State::Exhausted; 2]);
}

#[test]
fn a_set_ranks_and_is_gone_when_its_thread_is() {
    let inbox = Arc::new(Inbox::default());
    let batch = || {
        let first = taking(0);
        let seen = first.seen.clone();
        surveyed(&["early"], vec![first]);
        let seen = seen.lock().unwrap();
        seen[0].clone()
    };
    let mut whole = CoreSet::new(taking(0), &inbox);
    let reply = whole.rank(batch(), 9).unwrap();
    assert_eq!(reply.answers.len(), 2);
    assert!(whole.works() && !whole.is_answered());
    let mut gone = CoreSet::new(
        FakeSet {
            ends_at: Some(0),
            ..FakeSet::default()
        },
        &inbox,
    );
    gone.submit(batch());
    // The wait ends with the thread.
    assert!(gone.poll(Duration::from_secs(20), &mut |_| {}).is_none());
    assert!(!gone.works() && gone.silence().is_zero());
    assert!(gone.rank(batch(), 9).is_none());
}
