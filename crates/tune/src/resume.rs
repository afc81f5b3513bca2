//! Going on from a run that was cut off.
//!
//! The log has what a strategy was asked and told, in that order. A search that goes on asks and tells its strategy
//! the same again, which takes no measurement, and so brings it to the state that it was in, models and random
//! numbers included. No strategy has to save anything. Promises that the points after that are those that the run
//! would have asked for; where the space or the strategy has changed, the search begins anew. Filters get to know what they
//! kept, are told the same answers, and do not judge again what they judged. What they choose by chance follows from the
//! point, so it is the same, too.
//!
//! A run holds a lock as long as its process lives. Nobody goes on from a run that is held.

use crate::error::{Result, no_such};
use crate::filter::{Past, Verdict, Verdicts};
use crate::proposer::Proposer;
use crate::search::{Before, Search, context};
use crate::trial::{AnswerPlace, EarlierTrial, Trial};
use build::Read;
use search::{Point, Space};
use serde_json::{Value, json};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use store::{
    Clock, Conditions, Cost, Draw, EventKind, Extra, HeldRun, Kept, Outcome, Run, Score, Seen,
    Skipped, Store, Tell,
};

/// Under which names a run says where its answers hold, who gives them and of what kind they are, which algorithms are
/// searched, and what run it goes on from.
const PLACE: &str = "place";
const EVALUATOR: &str = "evaluator";
const KINDS: &str = "score_kinds";
const ALGORITHMS: &str = "algorithms";
const EARLIER: &str = "goes_on_from";

/// What the answers of a run hold for.
pub struct Answers<'a> {
    pub place: &'a AnswerPlace,
    /// The name of the evaluator.
    pub evaluator: &'a str,
    /// The kinds of its scores; none of times.
    pub kinds: BTreeSet<String>,
    /// Those of the options.
    pub algorithms: &'a [String],
}

/// What a run adds to its entry in the store, so that later ones may go on from it.
pub fn noted(answers: &Answers<'_>, earlier: &[String]) -> Extra {
    let Answers {
        place,
        evaluator,
        kinds,
        algorithms,
    } = answers;
    let mut extra = Extra::new();
    let at = json!({"target": place.target, "machine": place.machine});
    extra.insert(PLACE.into(), at);
    extra.insert(EVALUATOR.into(), json!(evaluator));
    extra.insert(KINDS.into(), json!(kinds));
    extra.insert(ALGORITHMS.into(), json!(algorithms));
    if let Some(last) = earlier.last() {
        extra.insert(EARLIER.into(), json!(last));
    }
    extra
}

/// What a run goes on from.
#[derive(Debug, Default)]
pub struct Earlier {
    /// The first one first.
    pub runs: Vec<String>,
    /// The last of these, which no other run can go on from meanwhile.
    pub held: Option<HeldRun>,
    /// A run that it would go on from if its process did not live.
    pub live: Option<String>,
}

/// The runs that a run like this goes on from. The last one is the newest one of the same model, settings and answers that
/// was cut off or stopped, unless a run has gone on from it. The others are those that it went on from itself. A run whose
/// process lives was not cut off.
///
/// # Errors
/// If the store cannot be read, or a run cannot be locked.
pub fn earlier(store: &Store, new: &Run, answers: &Answers<'_>) -> Result<Earlier> {
    let runs: BTreeMap<String, Run> = store
        .runs()?
        .into_iter()
        .map(|r| (r.run_id.clone(), r))
        .collect();
    let before = |r: &Run| Some(r.extra.get(EARLIER)?.as_str()?.to_string());
    let gone_on_from: HashSet<String> = runs.values().filter_map(before).collect();
    let wanted = noted(answers, &[]);
    let same = |r: &&Run| {
        (&r.model, &r.strategy, r.seed, &r.options)
            == (&new.model, &new.strategy, new.seed, &new.options)
            && wanted.iter().all(|(name, v)| r.extra.get(name) == Some(v))
    };
    let stopped = |r: &Run| r.summary.get("stopped").and_then(Value::as_bool) == Some(true);
    let cut_off = |r: &&Run| r.ended_unix_ms.is_none() || stopped(r);
    let mut candidates: Vec<&Run> = runs.values().filter(same).filter(cut_off).collect();
    candidates.retain(|r| !gone_on_from.contains(&r.run_id));
    candidates.sort_by_key(|r| (r.started_unix_ms, &r.run_id));
    let mut earlier = Earlier::default();
    for candidate in candidates.into_iter().rev() {
        if let Some(held) = store.hold_run(&candidate.run_id)? {
            earlier.held = Some(held);
            let mut next = Some(candidate);
            while let Some(r) = next.filter(|r| !earlier.runs.contains(&r.run_id)) {
                earlier.runs.push(r.run_id.clone());
                next = before(r).and_then(|id| runs.get(&id));
            }
            earlier.runs.reverse();
            break;
        }
        earlier.live = Some(candidate.run_id.clone());
    }
    Ok(earlier)
}

/// An outcome as far as strategies look at it.
fn outcome(t: &Tell) -> Outcome {
    match (t.cost(), t.outcome.as_str()) {
        (Some(Cost::Time { ns }), _) => Outcome::Timed {
            samples_ns: vec![ns],
            clock: Clock::Other("replayed".into()),
            conditions: Conditions::unproven(1, 1),
        },
        (Some(Cost::Score { kind, value }), _) => Outcome::Scored { kind, value },
        (None, "skipped") => Outcome::Skipped {
            filter: String::new(),
        },
        (None, "unanswered") => Outcome::Unanswered {
            reason: String::new(),
        },
        (None, label) => Outcome::Rejected {
            reason: label.into(),
        },
    }
}

/// Whether a space has a point.
fn has(space: &Space, p: &Point) -> bool {
    space.sketches.get(p.sketch).is_some_and(|s| {
        let mut values = s.decisions.iter().zip(&p.values);
        s.decisions.len() == p.values.len() && values.all(|(d, v)| *v < d.cardinality())
    })
}

/// Whether nothing was measured.
fn unmeasured(o: &Outcome) -> bool {
    matches!(o, Outcome::Skipped { .. } | Outcome::Unanswered { .. })
}

/// What became of the points of earlier runs, while they are gone through.
#[derive(Default)]
struct Replay {
    /// Points by their numbers in the run that is gone through. What the runs before left open has the first numbers there.
    points: BTreeMap<u64, Point>,
    /// Points that the strategy proposed, by call, in their order.
    open: Vec<Vec<Point>>,
    /// Points that were answered before that run.
    before: HashSet<Point>,
    /// What the strategy was told.
    told: Vec<(Point, Outcome)>,
    /// The run that is gone through.
    run: Arc<str>,
    /// Points of the runs before that, by their numbers there.
    earlier: BTreeMap<String, BTreeMap<u64, Point>>,
    /// What was read of candidates that were not told yet.
    reads: BTreeMap<u64, Arc<Read>>,
    /// What filters said of the trials of the run that is gone through.
    said: Vec<Said>,
    /// What each filter did.
    past: BTreeMap<String, Past>,
}

/// What a filter said of a trial, which has a point once the trial was answered or left open.
struct Said {
    filter: String,
    trial: u64,
    verdict: Verdict,
}

impl Replay {
    /// Goes on to the next run, before which these points were answered.
    fn begin<'p>(&mut self, run: &str, before: impl Iterator<Item = &'p Point>) {
        self.before = before.cloned().collect();
        let open = self.open.iter().flatten();
        let open = open.filter(|p| !self.before.contains(p)).cloned();
        let points = std::mem::replace(&mut self.points, (0..).zip(open).collect());
        self.earlier.insert(self.run.to_string(), points);
        self.reads.clear();
        self.run = run.into();
    }

    /// Takes what was read of a candidate with which a filter, or else the evaluator, compares others.
    fn see(&mut self, seen: &Seen, read: Arc<Read>) {
        match &seen.filter {
            Some(filter) => {
                let past = self.past.entry(filter.clone()).or_default();
                past.noted.push(read);
            }
            None => {
                self.reads.insert(seen.trial, read);
            }
        }
    }

    /// Takes what a filter kept.
    fn keep(&mut self, kept: &Kept) {
        let infinite = |score: &Option<f64>| score.unwrap_or(f64::INFINITY);
        let scores = kept.scores.iter().map(infinite);
        // Without scores all are 0.
        let scores = scores.chain(std::iter::repeat(0.0));
        let said = kept.trials.iter().zip(scores).map(|(trial, score)| Said {
            filter: kept.filter.clone(),
            trial: *trial,
            verdict: Verdict::Keep { score },
        });
        self.said.extend(said);
    }

    /// Takes which candidates a filter would have dropped that were evaluated all the same.
    fn audit(&mut self, skipped: &Skipped) {
        let said = skipped.audited.iter().map(|trial| Said {
            filter: skipped.filter.clone(),
            trial: *trial,
            verdict: Verdict::Drop {
                why: "it was dropped before".into(),
            },
        });
        self.said.extend(said);
    }

    /// Puts what filters said in a run that was gone through beside what they said before.
    fn conclude(&mut self, verdicts: &mut Verdicts) {
        for said in std::mem::take(&mut self.said) {
            let Some(point) = self.points.get(&said.trial) else {
                continue;
            };
            if let Verdict::Keep { score } = said.verdict {
                let past = self.past.entry(said.filter.clone()).or_default();
                past.kept.push((point.clone(), score));
            }
            let of_filter = verdicts.entry(said.filter).or_default();
            of_filter.insert(point.clone(), said.verdict);
        }
    }
}

impl Search {
    /// Brings the strategy to the state that earlier runs left it in, the first one first; whether that could be
    /// done. What these asked for without an answer comes first then.
    ///
    /// # Errors
    /// If the store cannot be read, or there is no strategy of that name any more.
    pub fn go_on(&mut self, store: &Store, earlier: &[String]) -> Result<bool> {
        let mut replay = Replay::default();
        for run in earlier {
            replay.begin(run, self.replayed.keys());
            for event in store.events(run)? {
                let own = event.task.as_deref() == Some(&*self.key);
                if own && !self.again(&event.kind, &mut replay, store)? {
                    self.begin_anew()?;
                    return Ok(false);
                }
            }
            replay.conclude(&mut self.verdicts);
        }
        self.before.forecasts = self.strategy.forecasts().len();
        let context = context(&self.space, &self.subject, &self.records, &|| &[]);
        for f in &mut self.filters {
            let past = replay.past.get(f.name());
            past.into_iter().for_each(|past| f.go_on(&context, past));
        }
        for (point, outcome) in &replay.told {
            self.tell_filters(point, outcome);
        }
        for mut drawn in replay.open {
            drawn.retain(|p| !self.replayed.contains_key(p));
            self.known.retain(|p| !drawn.contains(p));
            if !drawn.is_empty() {
                self.open.push_back(drawn);
            }
        }
        for e in &mut self.earlier {
            e.score = self.replayed.get(&e.trial.point).copied().flatten();
        }
        Ok(!earlier.is_empty())
    }

    /// Up to `n` points of the first call whose points an earlier run left open; none if there is no such call.
    pub fn left_open(&mut self, n: usize) -> Option<Vec<Point>> {
        let mut points = self.open.pop_front()?;
        let rest = points.split_off(n.min(points.len()));
        if !rest.is_empty() {
            self.open.push_front(rest);
        }
        Some(points)
    }

    /// Asks or tells what an event says; false if the strategy proposes something else than it did, or the space has no
    /// such point any more.
    fn again(&mut self, event: &EventKind, replay: &mut Replay, store: &Store) -> Result<bool> {
        match event {
            EventKind::Draw(Draw {
                wanted,
                first,
                similar_until,
                ..
            }) => {
                self.similar_until = self.similar_until.or(*similar_until);
                let drawn = self.draw(*wanted as usize, Some(store))?;
                self.before.asked += drawn.len() as u64;
                replay.open.push(drawn.clone());
                replay.points.extend((*first..).zip(drawn));
            }
            EventKind::Ask(a) => {
                let point = Point {
                    sketch: a.sketch as usize,
                    values: a.values.clone(),
                };
                if !has(&self.space, &point) {
                    return Ok(false);
                }
                // Points of known records were not drawn.
                let drawn = replay
                    .points
                    .entry(a.trial)
                    .or_insert_with(|| point.clone());
                return Ok(*drawn == point);
            }
            EventKind::Seen(s) => {
                let Ok(read) = serde_json::from_value::<Read>(s.read.clone()) else {
                    return Ok(false);
                };
                replay.see(s, Arc::new(read));
            }
            EventKind::Kept(kept) => replay.keep(kept),
            EventKind::Skipped(skipped) => replay.audit(skipped),
            EventKind::Revised(r) => {
                let points = replay.earlier.get(&r.run);
                if let Some(point) = points.and_then(|p| p.get(&r.trial)).cloned() {
                    let Score { kind, value } = r.score.clone();
                    self.revise_again(&point, &Outcome::Scored { kind, value });
                }
            }
            EventKind::Tell(t) => {
                let point = replay.points.get(&t.trial).cloned();
                if let (Some(point), Some(read)) = (&point, replay.reads.remove(&t.trial)) {
                    let trial = Trial {
                        run: Some(replay.run.clone()),
                        read: Some(read),
                        ..Trial::new(0, t.trial, point.clone())
                    };
                    self.earlier.push(EarlierTrial { trial, score: None });
                }
                if let Some(point) = point.filter(|p| !replay.before.contains(p)) {
                    let outcome = outcome(t);
                    if self.replayed.contains_key(&point) {
                        self.revise_again(&point, &outcome);
                        return Ok(true);
                    }
                    let cost = self.tell_strategy(&point, &outcome);
                    self.before.trials += u64::from(!unmeasured(&outcome));
                    self.since_best += 1;
                    if let Some(cost) = cost.filter(|c| self.before.best.is_none_or(|b| *c < b)) {
                        (self.before.best, self.since_best) = (Some(cost), 0);
                    }
                    self.replayed.insert(point.clone(), cost);
                    replay.told.push((point, outcome));
                }
            }
            _ => {}
        }
        Ok(true)
    }

    /// Tells the strategy a cost that replaced an earlier one. Filters keep what they were told first.
    fn revise_again(&mut self, point: &Point, revised: &Outcome) {
        if let Some(Cost::Score { value, .. }) = revised.cost() {
            self.revise_earlier(point, value);
        }
    }

    /// Forgets what was replayed.
    fn begin_anew(&mut self) -> Result<()> {
        let name = &self.strategy_name;
        let strategy = search::strategy(name, self.seed)
            .ok_or_else(|| no_such("strategy", name, &search::strategy_names()))?;
        self.strategy = Proposer::new(strategy);
        self.replayed.clear();
        self.earlier.clear();
        self.verdicts.clear();
        self.first_cost = None;
        (self.similar, self.similar_until) = (OnceCell::new(), None);
        (self.before, self.since_best) = (Before::default(), 0);
        Ok(())
    }
}
