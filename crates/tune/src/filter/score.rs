//! Candidates that score much worse than the fastest known one are slow.

use super::draws::Draws;
use super::{Filter, Past, Verdict};
use crate::error::Result;
use crate::known::from_memory;
use crate::options::Options;
use crate::scorer::{Scorer, Seen};
use crate::search::SearchParts;
use crate::trial::{Form, Trial};
use build::{Read, ReadOptions};
use search::{Context, Point, Told};
use std::collections::HashMap;
use std::sync::Arc;

/// A candidate is dropped if its score is more than so many times that of the fastest known one.
const WORSE: f64 = 1.3;
/// Of the candidates that would be dropped, this share is kept: the score may be wrong.
const KEPT: f64 = 1.0 / 16.0;
/// Puts candidates whose score cannot be computed last.
const NO_SCORE: f64 = f64::MAX;

/// Puts candidates of low score first, and drops those whose score is much worse than that of the
/// fastest candidate so far. Scores are of machine code, so every candidate is built to be read, and
/// those that are kept are built again.
#[derive(Debug)]
pub struct ByScore {
    /// None for tables, whose rows nobody builds.
    scorer: Option<Scorer>,
    /// Whether kernels find their constants in memory.
    from_memory: bool,
    /// Of points that were kept and are not told yet; none where it could not be computed.
    scores: HashMap<Point, Option<f64>>,
    /// The least cost that was told, and the score of its point.
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
        Ok(ByScore {
            scorer,
            from_memory: target.is_some_and(|t| from_memory(parts.rotate_bytes, t)),
            scores: HashMap::new(),
            fastest: None,
            draws: Draws::new(ByScore::NAME, &parts.key, parts.seed),
            seen: Seen::default(),
            noted: vec![],
        })
    }

    fn score(&self, trial: &Trial, kind: &str) -> Option<f64> {
        let (read, scorer) = (trial.read.as_ref()?, self.scorer.as_ref()?);
        let score = scorer.score(read, kind, self.from_memory, &self.seen);
        score.ok()
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
        let mut one = |t: &Trial| {
            let Some(score) = self.score(t, kind) else {
                self.scores.insert(t.point.clone(), None);
                return Verdict::Keep { score: NO_SCORE };
            };
            let worse = |(_, of_fastest)| score > WORSE * of_fastest;
            if self.fastest.is_some_and(worse) && !self.draws.picks(&t.point, KEPT) {
                return Verdict::Drop {
                    why: format!("its score is {score:.3e}"),
                };
            }
            self.scores.insert(t.point.clone(), Some(score));
            Verdict::Keep { score }
        };
        trials.iter().map(&mut one).collect()
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

    fn go_on(&mut self, context: &Context<'_>, past: &Past) {
        let kind = context.program.map_or("", |p| &p.name);
        if let Some(scorer) = &self.scorer {
            for read in &past.noted {
                scorer.see(read, kind, &mut self.seen);
            }
        }
        let kept = past.kept.iter().map(|(point, score)| {
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
    use analysis::{Features, Score};
    use store::Outcome;

    fn filter() -> ByScore {
        let scorer = Scorer {
            cpu: "znver4".into(),
            rates: Score::USUAL,
            simulator: None,
        };
        ByScore {
            scorer: Some(scorer),
            ..of_table()
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
        let score = filter.score(&best, "").unwrap();
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
