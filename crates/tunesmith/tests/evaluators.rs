//! Runs of a model whose candidates are judged by another evaluator than the default one, with
//! builders and runners.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;
use store::{Outcome, RecordQuery};
use tune::compile::Builders;
use tune::evaluator::{Batch, Evaluator, Reply};
use tune::{Answer, AnswerPlace, Form, Trial, tune_all_by};
use tunesmith::{
    Host, ImportOptions, Machine, Options, Request, Silent, StopRule, Store, Target, Workers, load,
};

/// Scores candidates by their size: of the code, or of the trace as text.
struct Size {
    form: Form,
    waiting: VecDeque<Batch>,
}

impl Size {
    fn judge(&self, t: &Trial) -> Outcome {
        let bytes = match self.form {
            Form::Code => t.kernel.as_ref().expect("it takes code").code.len(),
            _ => t.trace.len(),
        };
        Outcome::Scored {
            kind: "bytes".into(),
            value: bytes as f64,
        }
    }
}

impl Evaluator for Size {
    fn name(&self) -> &'static str {
        "size"
    }

    fn form(&self) -> Form {
        self.form
    }

    fn needs_data(&self) -> bool {
        false
    }

    fn score_kind(&self, _: &str) -> Option<String> {
        Some("bytes".into())
    }

    fn batch(&self) -> usize {
        2
    }

    fn submit(&mut self, batch: Batch) {
        assert!(batch.data.is_none(), "nobody asked for data");
        self.waiting.push_back(batch);
    }

    fn poll(&mut self, _: Duration, _: &mut dyn FnMut(bool)) -> Option<Reply> {
        let batch = self.waiting.pop_front()?;
        let answer = |trial: &Trial| Answer {
            outcome: self.judge(trial),
            spent: Default::default(),
            parts: Default::default(),
            place: batch.place.clone(),
            trial: trial.clone(),
        };
        Some(Reply {
            number: batch.number,
            answers: batch.trials.iter().map(answer).collect(),
            revised: vec![],
            events: vec![],
            setup: None,
            took: None,
        })
    }
}

/// A few trials, and a short comparison at the end.
fn options(host: &Host) -> Options {
    Options {
        comparing: Duration::from_millis(200),
        ..Options::new(host.machine.cpus, 1, StopRule::Trials(6))
    }
}

fn host() -> Host {
    let program = Path::new(env!("CARGO_BIN_EXE_tunesmith"));
    Host {
        machine: Machine::host(),
        workers: Workers::of_program(program).unwrap(),
    }
}

#[test]
fn candidates_are_scored_in_the_search_and_the_best_of_them_timed() {
    let host = host();
    let target = host.machine.target(1);
    let source = load("op:matmul(m=8,n=16,k=16)", &ImportOptions::default()).unwrap();
    for form in [Form::Schedule, Form::Code] {
        let store = Store::open_in_memory().unwrap();
        let options = options(&host);
        let request = Request {
            source: &source,
            target: &target,
            strategy: None,
        };
        let size = |_: &Target, _: &AnswerPlace| {
            let waiting = VecDeque::new();
            Ok(Box::new(Size { form, waiting }) as Box<dyn Evaluator>)
        };
        let tuned = tune_all_by(
            &[request],
            &host,
            &store,
            &options,
            Some(&size),
            &mut Silent,
        );
        let report = tuned.unwrap().remove(0).report;
        assert_eq!(report.trials, 6, "{form:?}");
        let records = store.records_for(&RecordQuery::default()).unwrap();
        let (timed, scored): (Vec<_>, Vec<_>) = records.iter().partition(|r| r.final_);
        assert_eq!(scored.len(), 6);
        assert!(scored.iter().all(|r| r.evaluator == "size"));
        assert!(!timed.is_empty(), "{form:?}");
        for r in timed {
            assert_eq!(r.evaluator, "timed");
            let ns = r.outcome.median_ns();
            assert!(ns.is_some_and(|ns| ns > 0), "{:?}", r.outcome);
            assert!(r.code_hash.is_some());
        }
        let ms = report.tasks[0].after_ms.unwrap();
        assert!(ms > 0.0 && ms < 1e3, "a time: {ms}");
    }
}

#[test]
fn a_task_of_two_models_is_searched_once() {
    let host = host();
    let target = host.machine.target(1);
    let source = load("op:matmul(m=8,n=16,k=16)", &ImportOptions::default()).unwrap();
    let store = Store::open_in_memory().unwrap();
    let options = options(&host);
    let request = Request {
        source: &source,
        target: &target,
        strategy: None,
    };
    let tuned = tune_all_by(
        &[request, request],
        &host,
        &store,
        &options,
        None,
        &mut Silent,
    );
    let reports: Vec<_> = tuned.unwrap().into_iter().map(|t| t.report).collect();
    assert_eq!((reports[0].trials, reports[1].trials), (6, 0));
    assert_eq!(reports[1].cached, 0);
    let records = store.records_for(&RecordQuery::default()).unwrap();
    let searched: Vec<_> = records.iter().filter(|r| !r.final_).collect();
    assert_eq!(searched.len(), 6);
    // Both models know what was found.
    for report in reports {
        assert_eq!(report.tasks.len(), 1);
        assert_eq!(report.tasks[0].trials, 6);
    }
}

/// The code of a candidate that is built to be measured at once.
fn code_of(r: &store::Record, plan: &plan::Plan, host: &Host, target: &Target) -> String {
    let candidate = search::Candidate {
        algorithm: r.algorithm.clone(),
        trace: schedule::parse(&r.trace).unwrap(),
    };
    let mut builders = Builders::new(&host.workers, 1).unwrap();
    let built = builders.build_all(&plan.tasks, &[candidate], target);
    tune::code_hash(&built.unwrap()[0])
}

#[test]
fn what_the_filter_of_scores_keeps_is_built_again_to_be_measured() {
    let host = host();
    let target = host.machine.target(1);
    let source = load("op:matmul(m=8,n=16,k=16)", &ImportOptions::default()).unwrap();
    let plan = source.plan(&target, options(&host).accuracy, &[]).unwrap();
    for overlap in [false, true] {
        let store = Store::open_in_memory().unwrap();
        let options = Options {
            filters: vec!["score".into()],
            overlap,
            ..options(&host)
        };
        let request = Request {
            source: &source,
            target: &target,
            strategy: None,
        };
        let tuned = tune_all_by(&[request], &host, &store, &options, None, &mut Silent);
        assert_eq!(tuned.unwrap().remove(0).report.trials, 6);
        let records = store.records_for(&RecordQuery::default()).unwrap();
        let timed = records.iter().filter(|r| r.outcome.median_ns().is_some());
        let first = timed.clone().next().expect("one is measured");
        let code = code_of(first, &plan, &host, &target);
        assert_eq!(first.code_hash, Some(code), "overlap {overlap}");
        assert!(timed.clone().all(|r| r.evaluator == "timed"));
    }
}
