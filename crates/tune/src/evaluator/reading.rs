//! Scores by reading and by simulating: nothing is run.
//!
//! Builders read the loops and the machine code of what they build, and simulate it if they are asked to. Here a score is made of what
//! they told. So candidates of any target are evaluated, on any machine.

use super::{Batch, Evaluator, Reply};
use crate::known::from_memory;
use crate::prediction::Scores;
use crate::record;
use crate::scorer::{Scorer, Seen};
use crate::trial::{Answer, AnswerPlace, EarlierTrial, Form, Trial};
use build::ReadOptions;
use measure::{PartTimes, Spent};
use search::{CostModel, Predicted};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use store::{EventKind, Outcome, SIMULATE, STATIC};

/// Trials of a search that are answered together: a score takes no time.
const BATCH: usize = 64;

/// Scores what builders have read.
pub struct Reading {
    scorer: Scorer,
    place: Arc<AnswerPlace>,
    waiting: VecDeque<Batch>,
    /// Of each task.
    seen: HashMap<Arc<str>, Seen>,
    /// The trials of each task that have a score, with it, if scores move.
    scored: HashMap<Arc<str>, Vec<(Trial, f64)>>,
}

impl Reading {
    /// By the scores of `scorer`; the answers hold in a place.
    pub fn new(scorer: Scorer, place: AnswerPlace) -> Reading {
        Reading {
            scorer,
            place: Arc::new(place),
            waiting: VecDeque::new(),
            seen: HashMap::new(),
            scored: HashMap::new(),
        }
    }

    fn answers(&self, trials: Vec<Trial>, scores: &Scores<'_>) -> Vec<Answer> {
        let asked: Vec<_> = trials.iter().map(Trial::asked).collect();
        let predicted = scores.predict(&asked);
        let one = |(trial, score): (Trial, Predicted)| Answer {
            trial,
            outcome: match score {
                Ok(value) => Outcome::Scored {
                    kind: self.scorer.kind(scores.from_memory),
                    value,
                },
                Err(reason) => Outcome::Unanswered {
                    reason: reason.into(),
                },
            },
            spent: Spent::default(),
            parts: PartTimes::default(),
            place: self.place.clone(),
        };
        trials.into_iter().zip(predicted).map(one).collect()
    }
}

/// The value of a score.
fn score(outcome: &Outcome) -> Option<f64> {
    match outcome {
        Outcome::Scored { value, .. } => Some(*value),
        _ => None,
    }
}

impl Reading {
    /// Scores earlier trials of a task again; those whose scores moved. The new answers are kept with them.
    fn revise(&mut self, task: &Arc<str>, new: &[Answer], scores: &Scores<'_>) -> Vec<Answer> {
        if !self.scorer.revises() {
            return vec![];
        }
        let mut scored = self.scored.remove(task).unwrap_or_default();
        let mut revised = Vec::new();
        let again = scored.iter().map(|(trial, _)| trial.clone()).collect();
        for ((_, old), answer) in scored.iter_mut().zip(self.answers(again, scores)) {
            if let Some(now) = score(&answer.outcome).filter(|now| now != old) {
                *old = now;
                revised.push(answer);
            }
        }
        let with_scores = new
            .iter()
            .filter_map(|a| Some((&a.trial, score(&a.outcome)?)));
        scored.extend(with_scores.map(|(t, value)| (t.clone(), value)));
        self.scored.insert(task.clone(), scored);
        revised
    }
}

impl Evaluator for Reading {
    fn name(&self) -> &'static str {
        match self.scorer.simulator {
            Some(_) => SIMULATE,
            None => STATIC,
        }
    }

    fn form(&self) -> Form {
        Form::Read
    }

    fn reads_for(&self) -> Option<ReadOptions> {
        Some(self.scorer.asks())
    }

    /// Cycles, wherever constants come from: budgets compare these.
    fn score_kind(&self, _task: &str) -> Option<String> {
        Some(self.scorer.kind(false))
    }

    fn batch(&self) -> usize {
        BATCH
    }

    fn go_on(&mut self, task: &Arc<str>, kind: &str, earlier: &[EarlierTrial]) {
        let seen = self.seen.entry(task.clone()).or_default();
        for read in earlier.iter().filter_map(|e| e.trial.read.as_ref()) {
            self.scorer.see(read, kind, seen);
        }
        if self.scorer.revises() {
            let scored = earlier
                .iter()
                .filter_map(|e| Some((e.trial.clone(), e.score?)));
            let all = self.scored.entry(task.clone()).or_default();
            all.extend(scored);
        }
    }

    fn submit(&mut self, batch: Batch) {
        self.waiting.push_back(batch);
    }

    fn poll(&mut self, _wait: Duration, _quiet: &mut dyn FnMut(bool)) -> Option<Reply> {
        let batch = self.waiting.pop_front()?;
        let target = batch.target.as_ref();
        let from_memory = target.is_some_and(|t| from_memory(batch.rotate_bytes, t));
        let kind = batch.program.as_ref().map_or("", |p| &p.name);
        let mut seen = self.seen.remove(&batch.task).unwrap_or_default();
        let mut events = Vec::new();
        for trial in &batch.trials {
            let read = trial.read.as_ref();
            let read = read.filter(|read| self.scorer.see(read, kind, &mut seen));
            let seen = read.and_then(|read| record::seen(trial.number, read, None));
            events.extend(seen.map(EventKind::from));
        }
        let scorer = self.scorer.clone();
        let scores = Scores {
            scorer: &scorer,
            kind,
            from_memory,
            seen: &seen,
        };
        let answers = self.answers(batch.trials, &scores);
        let revised = self.revise(&batch.task, &answers, &scores);
        self.seen.insert(batch.task, seen);
        Some(Reply {
            number: batch.number,
            answers,
            revised,
            events,
            setup: None,
            took: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::tests::trial;
    use analysis::{Features, Score};
    use build::Read;
    use ir::{Isa, Target};

    #[test]
    fn constants_come_from_memory_where_they_rotate_through_more_than_the_last_level() {
        let target = Arc::new(Target::generic(Isa::X86Avx2));
        let features = Features {
            constants: 100.0,
            ..Features::default()
        };
        let place = AnswerPlace {
            target: String::new(),
            machine: String::new(),
        };
        let scorer = Scorer {
            cpu: "znver3".into(),
            levels: None,
            rates: Score::USUAL,
            simulator: None,
        };
        let mut reading = Reading::new(scorer, place);
        for (more, kind, value) in [
            (0, "cycles znver3", 0.0),
            (1, "cycles znver3 plus memory", 100.0 * Score::MEMORY),
        ] {
            reading.submit(Batch {
                number: 0,
                search: 0,
                task: "task".into(),
                program: None,
                target: Some(target.clone()),
                place: reading.place.clone(),
                data: None,
                seed: 1,
                trials: vec![Trial {
                    read: Some(Arc::new(Read {
                        features: features.clone(),
                        statistics: None,
                    })),
                    ..trial(0, [0, 0])
                }],
                best: None,
                rotate_bytes: target.llc_bytes() + more,
                sampling: Duration::ZERO,
            });
            let reply = reading.poll(Duration::ZERO, &mut |_| ()).expect("a reply");
            let kind = kind.to_string();
            assert_eq!(reply.answers[0].outcome, Outcome::Scored { kind, value });
        }
    }
}
