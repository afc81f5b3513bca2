//! Candidates that are predicted to be much slower than the fastest known one are slow.

use super::draws::Draws;
use super::{Filter, Past, Verdict};
use crate::error::Result;
use crate::known::from_memory;
use crate::options::Options;
use crate::prediction::{DefaultRead, Scores, is_learned, point_of_default};
use crate::scorer::{Scorer, Seen};
use crate::search::SearchParts;
use crate::trial::{Form, Trial};
use build::{Read, ReadOptions};
use search::{Context, CostModel, Point, Predicted, Told};
use std::collections::HashMap;
use std::sync::Arc;

/// A candidate is dropped if its prediction is more than so many times that of the fastest known one (ADR 0034).
const WORSE: f64 = 1.3;
/// Of the candidates that would be dropped, this share is kept: the prediction may be wrong.
const KEPT: f64 = 1.0 / 16.0;
/// Puts candidates without a prediction last.
const NO_SCORE: f64 = f64::MAX;

/// Puts candidates of low predictions first, and drops those whose prediction is much worse than that of the
/// fastest candidate so far. A prediction is the time over the default's where trees know it, else a score. Both are of machine code,
/// so every candidate is built to be read, and those that are kept are built again.
#[derive(Debug)]
pub struct ByScore {
    /// None for tables, whose rows nobody builds.
    scorer: Option<Scorer>,
    /// Whether kernels find their constants in memory.
    from_memory: bool,
    /// The point of the default, where trees compare candidates with it. Scores count until it was read.
    default: Option<Point>,
    default_read: Option<DefaultRead>,
    /// Of points that were kept and are not told yet; none where it could not be computed.
    scores: HashMap<Point, Option<f64>>,
    /// The least cost that was told, and the prediction for its point.
    fastest: Option<(f64, f64)>,
    /// Which of the candidates that would be dropped are kept.
    draws: Draws,
    seen: Seen,
    /// What was added to these at the last verdicts.
    noted: Vec<(u64, Arc<Read>)>,
}

impl ByScore {
    pub const NAME: &str = "score";

    /// # Errors
    /// If LLVM has no scheduling model of the processor whose cycles count.
    pub fn new(options: &Options, parts: &SearchParts) -> Result<ByScore> {
        let target = parts.subject.as_ref().map(|s| &*s.target);
        let scorer = target.map(|t| Scorer::of(options, t));
        if let (Some(scorer), Some(target)) = (&scorer, target) {
            scorer.check(target)?;
        }
        let learned = scorer.as_ref().zip(parts.subject.as_ref());
        let learned = learned.filter(|(scorer, s)| is_learned(scorer, &s.target));
        let default = learned.and_then(|(_, s)| {
            let found = search::default_candidate(&s.program, &s.target, options.allowed()).ok()?;
            point_of_default(&parts.space, &s.program, &found.candidate)
        });
        Ok(ByScore {
            default,
            default_read: None,
            scorer,
            from_memory: target.is_some_and(|t| from_memory(parts.rotate_bytes, t)),
            scores: HashMap::new(),
            fastest: None,
            draws: Draws::new(ByScore::NAME, &parts.key, parts.seed),
            seen: Seen::default(),
            noted: vec![],
        })
    }

    /// The predicted times over the default's, or the scores.
    fn predictions(&self, trials: &[Trial], kind: &str) -> Vec<Predicted> {
        let asked: Vec<_> = trials.iter().map(Trial::asked).collect();
        match (&self.default_read, &self.scorer) {
            (Some(default), _) => default.predict(&asked),
            (None, Some(scorer)) => Scores {
                scorer,
                kind,
                from_memory: self.from_memory,
                seen: &self.seen,
            }
            .predict(&asked),
            (None, None) => vec![Err("a row of a table has no code".into()); trials.len()],
        }
    }

    /// Takes what was read of the default. Scores that were computed before do not compare with what is predicted now.
    fn compare_with(&mut self, read: &Arc<Read>) {
        self.default_read = self.default.as_ref().map(|point| DefaultRead {
            sketch: point.sketch,
            read: read.clone(),
            from_memory: self.from_memory,
        });
        self.scores.values_mut().for_each(|score| *score = None);
        self.fastest = None;
    }

    /// Learns a cost and its score.
    fn learn(&mut self, cost: f64, score: f64) {
        if self.fastest.is_none_or(|(least, _)| cost < least) {
            self.fastest = Some((cost, score));
        }
    }
}

impl Filter for ByScore {
    fn name(&self) -> &'static str {
        ByScore::NAME
    }

    fn form(&self) -> Form {
        Form::Read
    }

    fn reads_for(&self) -> Option<ReadOptions> {
        self.scorer.as_ref().map(Scorer::asks)
    }

    fn judge(&mut self, context: &Context<'_>, trials: &[Trial]) -> Vec<Verdict> {
        let kind = context.program.map_or("", |p| &p.name);
        if let Some(scorer) = &self.scorer {
            let read = trials
                .iter()
                .filter_map(|t| Some((t.number, t.read.as_ref()?)));
            let noted = read.filter(|(_, read)| scorer.see(read, kind, &mut self.seen));
            self.noted = noted.map(|(number, read)| (number, read.clone())).collect();
        }
        let of_default = trials
            .iter()
            .find(|t| self.default_read.is_none() && Some(&t.point) == self.default.as_ref());
        if let Some((t, read)) = of_default.and_then(|t| Some((t, t.read.as_ref()?))) {
            self.compare_with(read);
            self.noted.push((t.number, read.clone()));
        }
        let predictions = self.predictions(trials, kind);
        let mut one = |(t, predicted): (&Trial, Predicted)| {
            let Ok(score) = predicted else {
                self.scores.insert(t.point.clone(), None);
                return Verdict::Keep { score: NO_SCORE };
            };
            let worse = |(_, of_fastest)| score > WORSE * of_fastest;
            if self.fastest.is_some_and(worse) && !self.draws.picks(&t.point, KEPT) {
                return Verdict::Drop {
                    why: format!("its prediction is {score:.3e}"),
                };
            }
            self.scores.insert(t.point.clone(), Some(score));
            Verdict::Keep { score }
        };
        trials.iter().zip(predictions).map(&mut one).collect()
    }

    fn tell(&mut self, told: &Told<'_>) {
        let score = self.scores.remove(told.point).flatten();
        if let (Some(cost), Some(score)) = (told.cost, score) {
            self.learn(cost, score);
        }
    }

    fn noted(&mut self) -> Vec<(u64, Arc<Read>)> {
        std::mem::take(&mut self.noted)
    }

    fn first(&self) -> Option<&Point> {
        self.default
            .as_ref()
            .filter(|_| self.default_read.is_none())
    }

    fn go_on(&mut self, context: &Context<'_>, past: &Past) {
        let kind = context.program.map_or("", |p| &p.name);
        if let Some(scorer) = &self.scorer {
            for read in &past.noted {
                scorer.see(read, kind, &mut self.seen);
            }
        }
        let mut kept = &past.kept[..];
        if let (Some(default), Some(read)) = (self.default.clone(), past.noted.first()) {
            self.compare_with(read);
            let of_default = kept.iter().position(|(point, _)| *point == default);
            kept = &kept[of_default.unwrap_or(0)..];
        }
        let kept = kept.iter().map(|(point, score)| {
            let known = (*score != NO_SCORE).then_some(*score);
            (point.clone(), known)
        });
        self.scores.extend(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdicts;
    use super::super::tests::{context, parts, space, trial};
    use super::*;
    use crate::time_ratio;
    use analysis::{Features, Score};
    use std::slice::from_ref;
    use store::Outcome;

    fn filter() -> ByScore {
        let scorer = Scorer {
            cpu: "znver4".into(),
            levels: None,
            rates: Score::USUAL,
            simulator: None,
        };
        ByScore {
            scorer: Some(scorer),
            ..of_table()
        }
    }

    /// Of a task whose default is at the point of trial 0, for a processor that trees know.
    fn learned() -> ByScore {
        ByScore {
            default: Some(of_cycles(0, 1.0).point),
            ..filter()
        }
    }

    fn of_table() -> ByScore {
        let options = Options::new(1, 1, crate::StopRule::Trials(1));
        ByScore::new(&options, &parts()).unwrap()
    }

    /// A candidate that touches so many pages.
    fn read(number: u64, pages: f64) -> Trial {
        let features = Features {
            pages,
            ..Features::default()
        };
        let read = Read {
            features,
            statistics: None,
        };
        Trial {
            read: Some(Arc::new(read)),
            ..trial(number, [number % 9, number / 9])
        }
    }

    fn tell(filter: &mut ByScore, trial: &Trial, cost: Option<f64>) {
        let outcome = Outcome::Scored {
            kind: "test".into(),
            value: 0.0,
        };
        filter.tell(&Told {
            point: &trial.point,
            outcome: &outcome,
            cost,
        });
    }

    fn kept(filter: &mut ByScore, trials: &[Trial]) -> Vec<bool> {
        let space = space();
        let verdicts = filter.judge(&context(&space), trials);
        let keep = |v: &Verdict| matches!(v, Verdict::Keep { .. });
        verdicts.iter().map(keep).collect()
    }

    #[test]
    fn all_are_kept_in_the_order_of_their_scores_before_one_is_measured() {
        let space = space();
        let trials = [read(0, 90.0), read(1, 1.0), read(2, 50.0)];
        let mut filter = filter();
        let (kept, dropped) = super::super::sift(
            &mut filter,
            &context(&space),
            trials.into(),
            &Verdicts::new(),
        );
        let numbers: Vec<u64> = kept.iter().map(|(_, t)| t.number).collect();
        assert_eq!((numbers, dropped.len()), (vec![1, 2, 0], 0));
    }

    #[test]
    fn worse_scores_than_that_of_the_fastest_are_dropped() {
        let mut filter = filter();
        let first = [read(0, 100.0), read(1, 200.0), read(2, 10.0)];
        kept(&mut filter, &first);
        // The second one is the fastest although its score is worse. The third one failed.
        let costs = [Some(7.0), Some(5.0), None];
        for (t, cost) in first.iter().zip(costs) {
            tell(&mut filter, t, cost);
        }
        let later = [read(3, 200.0 * WORSE + 1.0), read(4, 200.0 * WORSE - 1.0)];
        assert_eq!(kept(&mut filter, &later), [false, true]);
        tell(&mut filter, &later[1], Some(6.0));
        assert_eq!(kept(&mut filter, &later), [false, true], "it is slower");
        tell(&mut filter, &later[1], Some(4.0));
        assert_eq!(kept(&mut filter, &later), [true, true], "it is faster");
    }

    fn of_cycles(number: u64, cycles: f64) -> Trial {
        Trial {
            read: Some(Arc::new(Read {
                features: time_ratio::tests::of_cycles(cycles),
                statistics: None,
            })),
            ..trial(number, [number % 9, number / 9])
        }
    }

    #[test]
    fn candidates_are_compared_with_the_default_once_it_was_read() {
        let mut filter = learned();
        assert_eq!(filter.first(), Some(&of_cycles(0, 1e6).point));
        let early = of_cycles(1, 1e6);
        kept(&mut filter, std::slice::from_ref(&early));
        let score = filter.scores[&early.point].unwrap();
        assert!(score > 1e5, "it is in cycles: {score}");
        let default = of_cycles(0, 1e6);
        kept(&mut filter, std::slice::from_ref(&default));
        let noted: Vec<u64> = filter.noted().iter().map(|(number, _)| *number).collect();
        assert_eq!((noted, filter.first()), (vec![0], None));
        tell(&mut filter, &early, Some(1.0));
        assert_eq!(filter.fastest, None, "scores and ratios do not compare");
        tell(&mut filter, &default, Some(2.0));
        let (_, ratio) = filter.fastest.unwrap();
        assert!((0.9..1.1).contains(&ratio), "{ratio}");
        let later = [of_cycles(2, 3e6), of_cycles(3, 1.01e6)];
        assert_eq!(kept(&mut filter, &later), [false, true]);
    }

    #[test]
    fn a_run_that_goes_on_compares_with_the_same_default() {
        let (early, default, other) = (of_cycles(1, 1e6), of_cycles(0, 1e6), of_cycles(2, 2e6));
        let mut filter = learned();
        let past = Past {
            kept: vec![
                (early.point.clone(), 5e5),
                (default.point.clone(), 1.0),
                (other.point.clone(), 1.4),
            ],
            noted: default.read.clone().into_iter().collect(),
        };
        filter.go_on(&context(&space()), &past);
        assert_eq!(filter.first(), None);
        tell(&mut filter, &early, Some(1.0));
        tell(&mut filter, &other, Some(2.0));
        assert_eq!(filter.fastest, Some((2.0, 1.4)));
    }

    #[test]
    fn a_few_of_the_worse_are_kept() {
        let mut filter = filter();
        let first = read(0, 1.0);
        kept(&mut filter, std::slice::from_ref(&first));
        tell(&mut filter, &first, Some(1.0));
        let worse: Vec<Trial> = (1..=400).map(|n| read(n, 1e3)).collect();
        let few = kept(&mut filter, &worse);
        let count = few.iter().filter(|k| **k).count();
        assert!((12..40).contains(&count), "{count}");
    }

    #[test]
    fn a_run_that_goes_on_knows_the_scores_of_what_was_kept() {
        let mut filter = filter();
        let (best, lost) = (read(0, 1.0), trial(9, [1, 2]));
        let score = filter.predictions(from_ref(&best), "").remove(0).unwrap();
        let past = Past {
            kept: vec![(best.point.clone(), score), (lost.point.clone(), NO_SCORE)],
            noted: vec![],
        };
        filter.go_on(&context(&space()), &past);
        tell(&mut filter, &lost, Some(1.0));
        assert_eq!(filter.fastest, None, "it has no score");
        tell(&mut filter, &best, Some(2.0));
        assert_eq!(filter.fastest, Some((2.0, score)));
    }

    #[test]
    fn rows_of_a_table_have_no_scores() {
        let mut filter = of_table();
        assert_eq!(filter.reads_for(), None);
        assert_eq!(kept(&mut filter, &[trial(0, [1, 2])]), [true]);
    }
}
