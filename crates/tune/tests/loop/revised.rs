//! Answers that an evaluator revises.

use crate::fakes::{SpiedStrategy, cost_ns, scored};
use crate::setting::{Setting, options, search, wanted};
use search::Point;
use std::collections::VecDeque;
use std::time::Duration;
use store::EventKind;
use tune::evaluator::{Batch, Evaluator, Reply};
use tune::{Answer, Form, Run, Trial};

/// Scores fours of points by how many points it has seen: each new batch turns the order of the earlier ones round.
#[derive(Default)]
struct Moving {
    waiting: VecDeque<Batch>,
    seen: Vec<Trial>,
    batches: u32,
}

impl Moving {
    fn value(&self, p: &Point) -> f64 {
        match self.batches % 2 {
            0 => 1e9 - cost_ns(p) as f64,
            _ => cost_ns(p) as f64,
        }
    }
}

impl Evaluator for Moving {
    fn name(&self) -> &'static str {
        "moving"
    }

    fn form(&self) -> Form {
        Form::Point
    }

    fn score_kind(&self, _: &str) -> Option<String> {
        Some("steps".into())
    }

    fn batch(&self) -> usize {
        4
    }

    fn submit(&mut self, batch: Batch) {
        self.waiting.push_back(batch);
    }

    fn poll(&mut self, _: Duration, _: &mut dyn FnMut(bool)) -> Option<Reply> {
        let batch = self.waiting.pop_front()?;
        self.batches += 1;
        let answer = |trial: &Trial| Answer {
            outcome: scored("steps", self.value(&trial.point)),
            spent: Default::default(),
            parts: Default::default(),
            place: batch.place.clone(),
            trial: trial.clone(),
        };
        let reply = Reply {
            number: batch.number,
            answers: batch.trials.iter().map(answer).collect(),
            revised: self.seen.iter().map(answer).collect(),
            events: vec![],
            setup: None,
            took: None,
        };
        self.seen.extend(batch.trials);
        Some(reply)
    }
}

#[test]
fn everybody_has_the_last_cost_of_a_trial() {
    let (setting, options) = (Setting::new(), options(12));
    let mut run = Run::new(setting.log(), &options).unwrap();
    run.add_evaluator(Box::new(Moving::default()));
    let mut of_knobs = setting.of_knobs(&wanted("revised", "knobs"), &[8, 8], &options);
    let spy = SpiedStrategy::spy(&mut of_knobs);
    run.add_searches(vec![of_knobs]);
    search(&mut run);
    let s = &run.searches[0];
    let heard = spy.lock().unwrap();
    let asked = &heard.asked[..];
    assert_eq!((s.trials, s.told, asked.len()), (12, 12, 12));
    // Three batches: the last one says what each costs.
    let costs: Vec<f64> = asked.iter().map(|p| cost_ns(p) as f64).collect();
    let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
    assert_eq!(s.best_cost(), Some(least));
    assert!(s.best.windows(2).all(|b| b[0].cost <= b[1].cost));
    // Told once each, and revised with every later batch.
    assert_eq!((heard.told.len(), heard.revised.len()), (12, 4 + 8));
    assert_eq!(
        heard.revised[4..].iter().map(|r| r.1).collect::<Vec<_>>(),
        costs[..8]
    );
    let stored = setting.records("revised");
    assert_eq!(stored.len(), 12);
    for r in &stored {
        let expected = scored("steps", costs[r.trial as usize]);
        assert_eq!(r.outcome, expected, "{}", r.trial);
    }
    let tells = setting.events("revised").into_iter();
    let tells = tells.filter(|(_, e)| matches!(e, EventKind::Tell(_)));
    assert_eq!(tells.count(), 12 + 12);
    // A search that goes on tells its strategy the same.
    let mut again = setting.of_knobs(&wanted("again", "knobs"), &[8, 8], &options);
    let spy = SpiedStrategy::spy(&mut again);
    assert!(
        again
            .go_on(setting.log().store.unwrap(), &["revised".into()])
            .unwrap()
    );
    let replayed = spy.lock().unwrap();
    assert_eq!(replayed.asked, heard.asked);
    assert_eq!(replayed.told, heard.told);
    assert_eq!(replayed.revised, heard.revised);
    assert_eq!(again.before.best, Some(least));
    assert_eq!(again.before.trials, 12);
}
