//! A strategy that may propose on a thread of its own.
//!
//! Owns where the strategy of a search is: here, or away with a question. Promises that the strategy hears of all answers
//! in the order in which they come: what comes while it is away it hears when it is back.

use crate::error::Result;
use crate::search::{Search, similar_once};
use crate::similar::{Wanted, read_columns};
use crate::watch::Watch;
use crate::{Log, record};
use ir::{Program, Target};
use measure::Spent;
use search::{Context, Forecast, Learner, Point, SimilarTask, Space, Strategy, Told};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use store::{Draw, Extra, Outcome, Record, Store};

/// The strategy of a search.
pub struct Proposer {
    /// None while it is away.
    strategy: Option<Box<dyn Strategy + Send>>,
    /// What it is to hear when it is back.
    late: Vec<Late>,
}

enum Late {
    Told {
        point: Point,
        outcome: Box<Outcome>,
        cost: Option<f64>,
    },
    Revised {
        point: Point,
        cost: f64,
    },
}

/// What a strategy is asked, with all that it may look at: no part of it is borrowed, so that it can go to another thread.
pub struct Question {
    /// Points that are wanted, at most.
    pub n: usize,
    pub space: Arc<Space>,
    pub program: Option<Arc<Program>>,
    pub target: Option<Arc<Target>>,
    pub known: Arc<[Record]>,
    pub similar: Arc<[SimilarTask]>,
    /// Whether models read lowered programs.
    pub reads: bool,
    pub learner: Learner,
}

/// A strategy that is away, or back and not yet taken in.
pub enum Away {
    Thread(JoinHandle<Back>),
    Back(Back),
}

/// A strategy with what it proposes, and what that took.
pub struct Back {
    strategy: Box<dyn Strategy + Send>,
    pub points: Vec<Point>,
    pub spent: Spent,
}

impl Question {
    fn put(self, mut strategy: Box<dyn Strategy + Send>) -> Back {
        let watch = Watch::start();
        let context = Context {
            space: &self.space,
            program: self.program.as_deref(),
            target: self.target.as_deref(),
            known: &self.known,
            columns: self.reads.then_some(&read_columns),
            learner: self.learner,
            look_up_similar: &|| &self.similar,
        };
        let points = strategy.ask(&context, self.n);
        Back {
            strategy,
            points,
            spent: watch.spent(),
        }
    }
}

impl Away {
    pub fn is_back(&self) -> bool {
        match self {
            Away::Thread(thread) => thread.is_finished(),
            Away::Back(_) => true,
        }
    }

    /// Waits until the strategy is back.
    pub fn back(self) -> Back {
        match self {
            Away::Thread(thread) => match thread.join() {
                Ok(back) => back,
                Err(panic) => std::panic::resume_unwind(panic),
            },
            Away::Back(back) => back,
        }
    }
}

impl Proposer {
    pub fn new(strategy: Box<dyn Strategy + Send>) -> Proposer {
        Proposer {
            strategy: Some(strategy),
            late: vec![],
        }
    }

    /// Whether it looks at [`Context::similar`].
    pub fn reads_similar(&self) -> bool {
        self.strategy.as_ref().is_some_and(|s| s.reads_similar())
    }

    /// What its model said of points before they were measured; nothing while it is away.
    pub fn forecasts(&self) -> &[Forecast] {
        self.strategy.as_ref().map_or(&[], |s| s.forecasts())
    }

    /// Asks the strategy: on a thread of its own if `aside`, and else here and now.
    pub fn send(&mut self, question: Question, aside: bool) -> Away {
        let strategy = self.strategy.take();
        let strategy = strategy.expect("a strategy is asked once at a time");
        match aside {
            true => Away::Thread(thread::spawn(|| question.put(strategy))),
            false => Away::Back(question.put(strategy)),
        }
    }

    /// Takes the strategy back, and tells it what came meanwhile; its points, and what these took.
    pub fn take_back(&mut self, away: Away) -> (Vec<Point>, Spent) {
        let back = away.back();
        self.strategy = Some(back.strategy);
        for late in std::mem::take(&mut self.late) {
            match late {
                Late::Told {
                    point,
                    outcome,
                    cost,
                } => self.tell(&Told {
                    point: &point,
                    outcome: &outcome,
                    cost,
                }),
                Late::Revised { point, cost } => self.revise(&point, cost),
            }
        }
        (back.points, back.spent)
    }

    pub fn tell(&mut self, told: &Told<'_>) {
        match &mut self.strategy {
            Some(strategy) => strategy.tell(told),
            None => self.late.push(Late::Told {
                point: told.point.clone(),
                outcome: Box::new(told.outcome.clone()),
                cost: told.cost,
            }),
        }
    }

    pub fn revise(&mut self, point: &Point, cost: f64) {
        match &mut self.strategy {
            Some(strategy) => strategy.revise(point, cost),
            None => self.late.push(Late::Revised {
                point: point.clone(),
                cost,
            }),
        }
    }
}

impl Search {
    /// Begins to ask for up to `n` points: what an earlier run left open, or else those of known records and for the rest a
    /// question to the strategy. That one is in the log before it is put, so that the log has questions and answers in the
    /// order in which the strategy hears of them.
    ///
    /// # Errors
    /// If the strategy looks at similar tasks and the store cannot be read, or it cannot be written.
    pub fn begin_ask(&mut self, n: usize, log: Log<'_>) -> Result<(Vec<Point>, Option<Question>)> {
        if let Some(points) = self.left_open(n) {
            return Ok((points, None));
        }
        let first = n.min(self.known.len());
        let points: Vec<Point> = self.known.drain(..first).collect();
        if points.len() == n {
            return Ok((points, None));
        }
        let question = self.question(n - points.len(), log.store)?;
        let similar = self.similar.get().and_then(|s| s.as_ref().ok());
        let drawn = Draw {
            wanted: question.n as u64,
            first: self.asked + points.len() as u64,
            similar_until: similar.map(|s| s.until),
            extra: Extra::new(),
        };
        log.append(&[], &[record::event(&self.run_id, &self.key, drawn)])?;
        Ok((points, Some(question)))
    }

    /// What the strategy is asked to propose up to `n` points.
    ///
    /// # Errors
    /// If it looks at similar tasks and the store cannot be read.
    fn question(&mut self, n: usize, store: Option<&Store>) -> Result<Question> {
        if self.strategy.reads_similar() {
            let wanted = Wanted {
                task: &self.key,
                subject: self.subject.as_ref(),
                place: &self.place,
                allowed: self.allowed,
                tolerance: self.tolerance,
                until: self.similar_until,
            };
            similar_once(&self.similar, store, &wanted);
            self.check_similar()?;
        }
        let similar = self.similar.get().and_then(|s| s.as_ref().ok());
        let subject = self.subject.as_ref();
        Ok(Question {
            n,
            space: self.space.clone(),
            program: subject.map(|s| s.program.clone()),
            target: subject.map(|s| s.target.clone()),
            known: self.records.clone(),
            similar: similar.map(|s| s.tasks.clone()).unwrap_or_default(),
            reads: self.reads,
            learner: self.learner,
        })
    }

    /// Has the strategy propose up to `n` points here and now.
    ///
    /// # Errors
    /// If it looks at similar tasks and the store cannot be read.
    pub fn draw(&mut self, n: usize, store: Option<&Store>) -> Result<Vec<Point>> {
        let question = self.question(n, store)?;
        let away = self.strategy.send(question, false);
        Ok(self.strategy.take_back(away).0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, channel};

    /// Proposes nothing until it may, and notes what it hears.
    struct Slow {
        may: Mutex<Receiver<()>>,
        heard: Arc<Mutex<Vec<String>>>,
    }

    impl Strategy for Slow {
        fn ask(&mut self, _: &Context<'_>, n: usize) -> Vec<Point> {
            self.may.lock().unwrap().recv().unwrap();
            self.heard.lock().unwrap().push(format!("ask {n}"));
            vec![]
        }

        fn tell(&mut self, told: &Told<'_>) {
            let heard = format!("tell {:?}", told.cost);
            self.heard.lock().unwrap().push(heard);
        }

        fn revise(&mut self, _: &Point, cost: f64) {
            self.heard.lock().unwrap().push(format!("revise {cost}"));
        }
    }

    #[test]
    fn a_strategy_hears_what_came_while_it_was_away_when_it_is_back() {
        let (let_go, may) = channel();
        let heard = Arc::new(Mutex::new(vec![]));
        let mut proposer = Proposer::new(Box::new(Slow {
            may: Mutex::new(may),
            heard: heard.clone(),
        }));
        let question = Question {
            n: 3,
            space: Arc::new(Space {
                sketches: vec![],
                refused: vec![],
            }),
            program: None,
            target: None,
            known: Arc::new([]),
            similar: Arc::new([]),
            reads: false,
            learner: Learner::default(),
        };
        let point = Point {
            sketch: 0,
            values: vec![],
        };
        let outcome = Outcome::Unanswered {
            reason: String::new(),
        };
        let told = |cost| Told {
            point: &point,
            outcome: &outcome,
            cost,
        };
        proposer.tell(&told(Some(1.0)));
        let away = proposer.send(question, true);
        proposer.tell(&told(Some(2.0)));
        proposer.revise(&point, 0.5);
        proposer.tell(&told(None));
        assert!(!away.is_back());
        assert_eq!(*heard.lock().unwrap(), ["tell Some(1.0)"]);
        let_go.send(()).unwrap();
        assert!(proposer.take_back(away).0.is_empty());
        let after = [
            "tell Some(1.0)",
            "ask 3",
            "tell Some(2.0)",
            "revise 0.5",
            "tell None",
        ];
        assert_eq!(*heard.lock().unwrap(), after);
    }
}
