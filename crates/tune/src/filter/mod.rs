//! Filters: what stands between a strategy and the evaluator of a search.
//!
//! Owns the interface of filters and their table. A filter sees the trials of one
//! search in batches. It may score trials, which puts those with lower scores
//! first, and it may drop trials. A dropped trial is `Skipped`: it is counted apart
//! from failures, and the strategy is told. Which filters a run has, and in which
//! order, is a setting of the run.

mod chance;
mod cold;
mod distinct;
mod draws;
mod loops;
mod neighbours;
mod promise;
mod rule;
mod score;
pub mod trained;

pub use chance::Chance;
pub use cold::{Cold, FRACTION, PASSES, Place};
pub use distinct::Distinct;
pub(crate) use draws::Draws;
pub use loops::Loops;
pub use neighbours::Neighbours;
pub use promise::Promise;
pub use rule::ColdRule;
pub use score::ByScore;

use crate::error::{Result, no_such};
use crate::trial::{Form, Trial};
use crate::{Options, SearchParts};
use build::{Read, ReadOptions};
use search::{Context, Point, Told};
use std::collections::HashMap;
use std::sync::Arc;

/// What a filter says of a trial.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The trial goes on, after those of the same ask with lower scores and before those with
    /// higher ones. Trials of equal scores, such as 0 for all, keep their order.
    Keep { score: f64 },
    /// The trial is not evaluated, for a reason that the log keeps.
    Drop { why: String },
}

/// Scores, reorders or drops trials before they are evaluated.
pub trait Filter {
    /// The name in the settings of a run, in its log, and in `Skipped`.
    fn name(&self) -> &'static str;

    /// The form in which the filter takes candidates. The cheaper forms come first: a trial
    /// that is dropped as a point is never built.
    fn form(&self) -> Form;

    /// What builders are to read off code. Filters that take [`Form::Read`] say so.
    fn reads_for(&self) -> Option<ReadOptions> {
        None
    }

    /// Of how many points each that goes on is chosen, if the filter takes points. So many are asked for.
    fn pool(&self) -> usize {
        1
    }

    /// One verdict a trial, in their order.
    fn judge(&mut self, context: &Context<'_>, trials: &[Trial]) -> Vec<Verdict>;

    /// A point whose candidate it has to see before it can judge others.
    fn first(&self) -> Option<&Point> {
        None
    }

    /// What became of a point that the filters kept.
    fn tell(&mut self, _told: &Told<'_>) {}

    /// CPU time that its models took to learn so far, which is part of what [`Filter::judge`] took.
    fn learning_cpu_ns(&self) -> u64 {
        0
    }

    /// Candidates with which it compares later ones from its last verdicts on, and what was read of them.
    fn noted(&mut self) -> Vec<(u64, Arc<Read>)> {
        vec![]
    }

    /// Takes what it did in the runs that the search goes on from, before it is told their answers and before it judges. It is not
    /// asked again about points that it judged there.
    fn go_on(&mut self, _context: &Context<'_>, _past: &Past) {}
}

/// What a filter did in earlier runs, each in the order of its doing.
#[derive(Debug, Default)]
pub struct Past {
    /// What it kept, with the scores.
    pub kept: Vec<(Point, f64)>,
    /// What was read of the candidates that it noted.
    pub noted: Vec<Arc<Read>>,
}

/// Makes a filter with the settings of the run, for the search that has these parts.
pub type MakeFilter = fn(&Options, &SearchParts) -> Result<Box<dyn Filter + Send>>;

/// Every filter: its name, and what makes one.
pub const FILTERS: [(&str, MakeFilter); 6] = [
    (Chance::NAME, |options, parts| {
        let share = options.chance;
        Ok(Box::new(Chance::new(&parts.key, parts.seed, share)))
    }),
    (Cold::NAME, |options, parts| {
        let trained = options.cold.clone().zip(parts.facts.clone());
        let rule = options.cold_rule;
        let least = options.cold_least;
        let cold = Cold::new(&parts.key, parts.seed, trained, rule, least);
        Ok(Box::new(cold))
    }),
    (Distinct::NAME, |_, _| Ok(Box::new(Distinct::default()))),
    (Loops::NAME, |_, _| Ok(Box::new(Loops))),
    (Neighbours::NAME, |_, parts| {
        Ok(Box::new(Neighbours::new(&parts.key, parts.seed)))
    }),
    (ByScore::NAME, |options, parts| {
        Ok(Box::new(ByScore::new(options, parts)?))
    }),
];

/// Names of the filters, for the command line.
pub fn filter_names() -> [&'static str; FILTERS.len()] {
    FILTERS.map(|(name, _)| name)
}

/// A filter by name, for the search that has these parts.
///
/// # Errors
/// If there is none of that name, or it does not work for the search.
pub fn filter(
    name: &str,
    options: &Options,
    parts: &SearchParts,
) -> Result<Box<dyn Filter + Send>> {
    let found = FILTERS.iter().find(|(known, _)| *known == name);
    let (_, make) = found.ok_or_else(|| no_such("filter", name, &filter_names()))?;
    make(options, parts)
}

/// The verdicts that the filters of earlier runs gave, by filter and point.
pub type Verdicts = HashMap<String, HashMap<Point, Verdict>>;

/// The trials that a filter keeps, in its order and with their scores, and those that it drops with its reasons.
pub(crate) type Sifted = (Vec<(f64, Trial)>, Vec<(Trial, String)>);

/// Has a filter judge trials, but for the points that it judged in an earlier run.
pub(crate) fn sift(
    filter: &mut dyn Filter,
    context: &Context<'_>,
    trials: Vec<Trial>,
    before: &Verdicts,
) -> Sifted {
    let before = before.get(filter.name());
    let known = |t: &Trial| before.and_then(|b| b.get(&t.point)).cloned();
    let new = trials.iter().filter(|t| known(t).is_none());
    let new: Vec<Trial> = new.cloned().collect();
    let verdicts = filter.judge(context, &new);
    assert_eq!(verdicts.len(), new.len(), "one verdict a trial");
    let mut verdicts = verdicts.into_iter();
    let (mut kept, mut dropped) = (Vec::new(), Vec::new());
    for trial in trials {
        let verdict = known(&trial).or_else(|| verdicts.next());
        match verdict.expect("one verdict a trial") {
            Verdict::Keep { score } => kept.push((score, trial)),
            Verdict::Drop { why } => dropped.push((trial, why)),
        }
    }
    kept.sort_by(|a, b| a.0.total_cmp(&b.0));
    (kept, dropped)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{AnswerPlace, StopRule};
    use runtime::BuiltKernel;
    use schedule::{Decision, DecisionKind};
    use search::{Sketch, Space};

    /// A space of two decisions with nine values each, without a program.
    pub fn space() -> Space {
        let decision = |name: &str| Decision {
            name: name.into(),
            kind: DecisionKind::Categorical {
                options: (0..9).collect(),
            },
            value: vec![0],
        };
        Space::of(vec![Sketch::of_knobs(
            "table",
            vec![decision("a"), decision("b")],
            vec![0, 0],
        )])
    }

    pub fn context(space: &Space) -> Context<'_> {
        Context::of(space)
    }

    /// Of the search of a table.
    pub fn parts() -> SearchParts {
        SearchParts {
            title: String::new(),
            run_id: "run".into(),
            key: "task".into(),
            uses: 1,
            evaluator: 0,
            place: Arc::new(AnswerPlace {
                target: String::new(),
                machine: String::new(),
            }),
            subject: None,
            facts: None,
            space: space(),
            strategy: "random".into(),
            seed: 1,
            rotate_bytes: 0,
            guess: 1.0,
            bound: 0.0,
        }
    }

    pub fn trial(number: u64, values: [u64; 2]) -> Trial {
        let values = values.to_vec();
        Trial::new(0, number, Point { sketch: 0, values })
    }

    /// The same as code of so many bytes.
    pub fn built_trial(number: u64, values: [u64; 2], code: Vec<u8>) -> Trial {
        Trial {
            kernel: Some(Arc::new(BuiltKernel::by_hand(code, vec![]))),
            ..trial(number, values)
        }
    }

    fn numbers(kept: &[(f64, Trial)]) -> Vec<u64> {
        kept.iter().map(|(_, t)| t.number).collect()
    }

    #[test]
    fn what_an_earlier_run_judged_is_not_judged_again() {
        let space = space();
        let trials: Vec<Trial> = (0..4).map(|n| trial(n, [n, 0])).collect();
        let verdict = |n: usize, verdict| (trials[n].point.clone(), verdict);
        let drop = Verdict::Drop { why: "old".into() };
        let of_even = [verdict(1, Verdict::Keep { score: -1.0 }), verdict(2, drop)];
        let before = Verdicts::from([("even".to_string(), of_even.into())]);
        let (kept, dropped) = sift(&mut Even, &context(&space), trials.clone(), &before);
        assert_eq!(numbers(&kept), [1, 0]);
        let dropped: Vec<(u64, &str)> = dropped.iter().map(|(t, why)| (t.number, &**why)).collect();
        assert_eq!(dropped, [(2, "old"), (3, "odd")]);
    }

    /// Drops odd numbers and turns the order of the others round.
    struct Even;

    impl Filter for Even {
        fn name(&self) -> &'static str {
            "even"
        }

        fn form(&self) -> Form {
            Form::Point
        }

        fn judge(&mut self, _: &Context<'_>, trials: &[Trial]) -> Vec<Verdict> {
            let one = |t: &Trial| match t.number % 2 {
                0 => Verdict::Keep {
                    score: -(t.number as f64),
                },
                _ => Verdict::Drop { why: "odd".into() },
            };
            trials.iter().map(one).collect()
        }
    }

    #[test]
    fn trials_are_dropped_and_put_in_the_order_of_their_scores() {
        let space = space();
        let trials = (0..5).map(|n| trial(n, [n, 0])).collect();
        let (kept, dropped) = sift(&mut Even, &context(&space), trials, &Verdicts::new());
        assert_eq!(numbers(&kept), [4, 2, 0]);
        let dropped: Vec<(u64, &str)> = dropped.iter().map(|(t, why)| (t.number, &**why)).collect();
        assert_eq!(dropped, [(1, "odd"), (3, "odd")]);
    }

    /// Puts small code first, and drops code of more than three bytes.
    struct Small;

    impl Filter for Small {
        fn name(&self) -> &'static str {
            "small"
        }

        fn form(&self) -> Form {
            Form::Code
        }

        fn judge(&mut self, _: &Context<'_>, trials: &[Trial]) -> Vec<Verdict> {
            let bytes = |t: &Trial| t.kernel.as_ref().expect("it takes code").code.len();
            let one = |t: &Trial| match bytes(t) {
                4.. => Verdict::Drop {
                    why: "large".into(),
                },
                bytes => Verdict::Keep {
                    score: bytes as f64,
                },
            };
            trials.iter().map(one).collect()
        }
    }

    #[test]
    fn code_is_judged() {
        let space = space();
        let trials = [3, 4, 1].into_iter().enumerate();
        let trials = trials.map(|(n, bytes)| built_trial(n as u64, [0, 0], vec![0; bytes]));
        let trials = trials.collect();
        let (kept, dropped) = sift(&mut Small, &context(&space), trials, &Verdicts::new());
        assert_eq!((numbers(&kept), dropped[0].0.number), (vec![2, 0], 1));
    }

    #[test]
    fn every_name_is_a_filter_of_that_name() {
        let options = Options::new(1, 1, StopRule::Trials(1));
        for name in filter_names() {
            let made = filter(name, &options, &parts());
            assert_eq!(made.map(|f| f.name()).ok(), Some(name));
        }
        assert!(filter("none", &options, &parts()).is_err());
    }
}
