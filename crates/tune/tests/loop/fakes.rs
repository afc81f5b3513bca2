//! Evaluators, filters and strategies that exist only in tests.

use measure::{PartTimes, Spent};
use search::{Context, Point, Strategy, Told};
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::{Clock, Conditions, Outcome, Stage};
use tune::evaluator::{Batch, Evaluator, Reply};
use tune::filter::{Filter, Verdict};
use tune::{Answer, Form, Proposer, Trial};

pub type Shared<T> = Arc<Mutex<Vec<T>>>;

/// What an evaluator says of a trial of a batch.
pub type Judge = fn(&Batch, &Trial) -> Outcome;

/// Answers at once, by a function of the decisions.
pub struct FakeEvaluator {
    name: &'static str,
    form: Form,
    batch: usize,
    judge: Judge,
    /// What kind of scores it answers with, if not with times.
    pub score_kind: Option<&'static str>,
    waiting: VecDeque<Batch>,
    /// The batches that it was handed.
    pub seen: Shared<Batch>,
}

impl FakeEvaluator {
    pub fn new(name: &'static str, form: Form, batch: usize, judge: Judge) -> FakeEvaluator {
        FakeEvaluator {
            name,
            form,
            batch,
            judge,
            score_kind: None,
            waiting: VecDeque::new(),
            seen: Shared::default(),
        }
    }

    /// Takes points by fours, and answers with times.
    pub fn of_points() -> FakeEvaluator {
        FakeEvaluator::new("fake-times", Form::Point, 4, |_, t| {
            timed(cost_ns(&t.point))
        })
    }
}

/// Answers of one batch, each of which says that it took a millisecond.
pub fn answered(batch: Batch, judge: Judge) -> Reply {
    let outcomes: Vec<Outcome> = batch.trials.iter().map(|t| judge(&batch, t)).collect();
    let answer = |(trial, outcome): (Trial, Outcome)| Answer {
        trial,
        outcome,
        spent: Spent {
            wall_ns: 1_000_000,
            cpu_ns: 1_000_000,
        },
        parts: PartTimes::default(),
        place: batch.place.clone(),
    };
    Reply {
        number: batch.number,
        answers: batch.trials.into_iter().zip(outcomes).map(answer).collect(),
        revised: vec![],
        events: vec![],
        setup: None,
        took: None,
    }
}

impl Evaluator for FakeEvaluator {
    fn name(&self) -> &'static str {
        self.name
    }

    fn form(&self) -> Form {
        self.form
    }

    fn score_kind(&self, _: &str) -> Option<String> {
        self.score_kind.map(str::to_string)
    }

    fn batch(&self) -> usize {
        self.batch
    }

    fn submit(&mut self, batch: Batch) {
        self.seen.lock().unwrap().push(batch.clone());
        self.waiting.push_back(batch);
    }

    fn poll(&mut self, _: Duration, _: &mut dyn FnMut(bool)) -> Option<Reply> {
        Some(answered(self.waiting.pop_front()?, self.judge))
    }
}

/// What becomes of a batch that [`LossyEvaluator`] was handed.
#[derive(Clone, Copy, PartialEq)]
pub enum Fate {
    Answered,
    /// It has so many answers only, the last ones of the batch.
    Short(usize),
    /// It never has a reply.
    Lost,
}

/// Loses batches, or answers to some of their trials, by their position among all batches.
pub struct LossyEvaluator {
    pub fate: fn(u64) -> Fate,
    handed: u64,
    waiting: VecDeque<Reply>,
}

impl LossyEvaluator {
    pub fn new(fate: fn(u64) -> Fate) -> LossyEvaluator {
        LossyEvaluator {
            fate,
            handed: 0,
            waiting: VecDeque::new(),
        }
    }
}

impl Evaluator for LossyEvaluator {
    fn name(&self) -> &'static str {
        "fake-lossy"
    }

    fn form(&self) -> Form {
        Form::Point
    }

    fn score_kind(&self, _: &str) -> Option<String> {
        None
    }

    fn batch(&self) -> usize {
        4
    }

    fn submit(&mut self, batch: Batch) {
        let fate = (self.fate)(self.handed);
        self.handed += 1;
        let mut reply = answered(batch, |_, t| timed(cost_ns(&t.point)));
        match fate {
            Fate::Answered => {}
            Fate::Short(n) => drop(reply.answers.drain(..reply.answers.len().saturating_sub(n))),
            Fate::Lost => return,
        }
        self.waiting.push_back(reply);
    }

    fn poll(&mut self, _: Duration, _: &mut dyn FnMut(bool)) -> Option<Reply> {
        self.waiting.pop_front()
    }

    /// It answers at once, or never.
    fn silence(&self) -> Duration {
        Duration::ZERO
    }
}

enum Message {
    Take(Batch),
    /// Somebody waits for what was taken.
    Answer,
}

/// Answers on a thread of its own, not before somebody waits, and the last batch first.
pub struct LateEvaluator {
    messages: Sender<Message>,
    replies: Receiver<Reply>,
    /// Numbers of the batches in the order of their answers.
    pub order: Shared<u64>,
}

impl LateEvaluator {
    pub fn new(judge: Judge) -> LateEvaluator {
        let (messages, inbox) = channel();
        let (outbox, replies) = channel();
        let order = Shared::default();
        let answered_in = Arc::clone(&order);
        std::thread::spawn(move || {
            let mut held: Vec<(u64, Batch)> = Vec::new();
            let mut number = 0;
            for message in inbox {
                match message {
                    Message::Take(batch) => {
                        held.push((number, batch));
                        number += 1;
                    }
                    Message::Answer => {
                        for (number, batch) in held.drain(..).rev() {
                            answered_in.lock().unwrap().push(number);
                            if outbox.send(answered(batch, judge)).is_err() {
                                return;
                            }
                        }
                    }
                }
            }
        });
        LateEvaluator {
            messages,
            replies,
            order,
        }
    }
}

impl Evaluator for LateEvaluator {
    fn name(&self) -> &'static str {
        "fake-late"
    }

    fn form(&self) -> Form {
        Form::Point
    }

    fn score_kind(&self, _: &str) -> Option<String> {
        None
    }

    fn batch(&self) -> usize {
        4
    }

    fn submit(&mut self, batch: Batch) {
        self.messages.send(Message::Take(batch)).unwrap();
    }

    fn poll(&mut self, wait: Duration, _: &mut dyn FnMut(bool)) -> Option<Reply> {
        if wait.is_zero() {
            return self.replies.try_recv().ok();
        }
        self.messages.send(Message::Answer).unwrap();
        self.replies.recv_timeout(wait).ok()
    }
}

/// A cost that depends on every decision, and on the target and the task by nothing.
pub fn cost_ns(p: &Point) -> u64 {
    let mix = |n: u64, v: &u64| n.wrapping_mul(31).wrapping_add(*v + 1) % 9_973;
    1_000 + p.values.iter().fold(p.sketch as u64, mix)
}

pub fn timed(ns: u64) -> Outcome {
    Outcome::Timed {
        samples_ns: vec![ns],
        clock: Clock::Other("fake".into()),
        conditions: Conditions::unproven(1, 1),
    }
}

pub fn scored(kind: &str, value: f64) -> Outcome {
    Outcome::Scored {
        kind: kind.into(),
        value,
    }
}

pub fn unanswered() -> Outcome {
    Outcome::Unanswered {
        reason: "nobody is there".into(),
    }
}

pub fn crashed() -> Outcome {
    Outcome::Crashed {
        stage: Stage::Run,
        signal: Some(11),
        stderr: String::new(),
    }
}

/// A filter by a function of the trial.
pub struct FakeFilter {
    pub form: Form,
    pub verdict: fn(&Trial) -> Verdict,
}

impl Filter for FakeFilter {
    fn name(&self) -> &'static str {
        "fake-filter"
    }

    fn form(&self) -> Form {
        self.form
    }

    fn judge(&mut self, _: &Context<'_>, trials: &[Trial]) -> Vec<Verdict> {
        trials.iter().map(self.verdict).collect()
    }
}

/// What a strategy was asked and told: the points, and with each answer its label and cost.
#[derive(Default)]
pub struct Heard {
    pub asked: Vec<Point>,
    pub told: Vec<(Point, &'static str, Option<f64>)>,
    pub revised: Vec<(Point, f64)>,
}

/// Notes what another strategy is asked and told.
pub struct SpiedStrategy {
    inner: Box<dyn Strategy + Send>,
    heard: Arc<Mutex<Heard>>,
}

impl SpiedStrategy {
    /// Puts a spy into a search.
    pub fn spy(search: &mut tune::Search) -> Arc<Mutex<Heard>> {
        let heard = Arc::new(Mutex::new(Heard::default()));
        let new = search::strategy(&search.strategy_name, search.seed).unwrap();
        search.strategy = Proposer::new(Box::new(SpiedStrategy {
            inner: new,
            heard: Arc::clone(&heard),
        }));
        heard
    }
}

impl Strategy for SpiedStrategy {
    fn ask(&mut self, context: &Context<'_>, n: usize) -> Vec<Point> {
        let points = self.inner.ask(context, n);
        self.heard.lock().unwrap().asked.extend(points.clone());
        points
    }

    fn tell(&mut self, told: &Told<'_>) {
        let heard = (told.point.clone(), told.outcome.label(), told.cost);
        self.heard.lock().unwrap().told.push(heard);
        self.inner.tell(told);
    }

    fn revise(&mut self, point: &Point, cost: f64) {
        let heard = (point.clone(), cost);
        self.heard.lock().unwrap().revised.push(heard);
        self.inner.revise(point, cost);
    }
}
