//! From built candidates to told ones: batches, evaluators, records.

use super::Run;
use super::asking::told;
use super::outstanding::OpenBatch;
use crate::compile::Builders;
use crate::error::Result;
use crate::evaluator::{Batch, Reply};
use crate::known::constants_as_near;
use crate::record;
use crate::search::Search;
use crate::trial::{Answer, Trial};
use measure::Spent;
use runtime::BuiltKernel;
use search::untried;
use std::time::Duration;
use store::{Cost, Extra, NewEvent, Outcome, Record, RecordIdentity, Revised, Score};

/// What the log says of a new score.
fn revised_event(s: &Search, a: &Answer, evaluator: &str) -> NewEvent {
    if let (Some(run), Some(Cost::Score { kind, value })) = (&a.trial.run, a.outcome.cost()) {
        let event = Revised {
            run: run.to_string(),
            trial: a.trial.number,
            score: Score { kind, value },
            extra: Extra::new(),
        };
        return record::event(&s.run_id, &s.key, event);
    }
    let [_, tell] = told(s, &a.trial, evaluator, &a.outcome);
    tell
}

impl Run<'_> {
    /// A search whose waiting candidates are to be evaluated now: they fill a
    /// batch, or nothing comes that would.
    pub(super) fn due(&self) -> Option<usize> {
        let mut waiting = vec![0usize; self.searches.len()];
        for t in &self.ready {
            waiting[t.search] += 1;
        }
        let more = |search: usize| {
            let asked = self.turn.search == search && self.left > 0;
            let asking = self.asking.as_ref().is_some_and(|a| a.is_of(search));
            asked || asking || self.building.values().any(|t| t.search == search)
        };
        let is_due = |i: &usize| {
            let s = &self.searches[*i];
            let evaluator = &self.evaluators[s.evaluator];
            let has_data = s.subject.as_ref().is_some_and(|s| s.data.is_some());
            let ready = has_data || !self.needs_data(*i);
            let has_use = self.outstanding[s.evaluator].batches() < evaluator.most_batches();
            let full = waiting[*i] >= evaluator.batch();
            let alone = waiting[*i] > 0 && (self.building.is_empty() || !more(*i));
            ready && has_use && (full || alone)
        };
        (0..waiting.len()).find(is_due)
    }

    /// Hands the next batch of a search to its evaluator.
    pub(super) fn submit(&mut self, search: usize) -> Result<()> {
        let trials = self.next_batch(search)?;
        if trials.is_empty() {
            return Ok(());
        }
        let evaluator = self.searches[search].evaluator;
        let left = self.clock.left(self.afterwards());
        let sampling = self.clock.sampling(left, untried(&self.standings()));
        let batch = self.batch(search, trials, sampling);
        self.batches += 1;
        self.outstanding[evaluator].add(OpenBatch {
            number: batch.number,
            search,
            place: batch.place.clone(),
            trials: batch.trials.clone(),
        });
        self.evaluators[evaluator].submit(batch);
        Ok(())
    }

    /// Trials of a search as its evaluator takes them.
    pub fn batch(&self, search: usize, trials: Vec<Trial>, sampling: Duration) -> Batch {
        let s = &self.searches[search];
        Batch {
            number: self.batches,
            search,
            task: s.key.clone(),
            program: s.subject.as_ref().map(|s| s.program.clone()),
            target: s.subject.as_ref().map(|s| s.target.clone()),
            place: s.place.clone(),
            data: s.subject.as_ref().and_then(|s| s.data.clone()),
            seed: s.seed,
            trials,
            best: s.best_cost(),
            rotate_bytes: s.rotate_bytes,
            sampling,
        }
    }

    /// Takes the next candidates of a search that need to be evaluated; those whose
    /// code the store knows are told.
    fn next_batch(&mut self, search: usize) -> Result<Vec<Trial>> {
        let most = self.evaluators[self.searches[search].evaluator].batch();
        let mut batch: Vec<Trial> = Vec::new();
        let mut later = Vec::new();
        for t in std::mem::take(&mut self.ready) {
            let hash = |t: &Trial| t.kernel.as_ref().map(|k| k.code_hash());
            let same = |b: &Trial| b.kernel.is_some() && hash(b) == hash(&t);
            if t.search != search || batch.len() == most || batch.iter().any(same) {
                later.push(t);
                continue;
            }
            let known = match &t.kernel {
                Some(kernel) => self.known_code(search, kernel)?,
                None => None,
            };
            let Some(known) = known else {
                batch.push(t);
                continue;
            };
            let s = &mut self.searches[search];
            s.cached += 1;
            let events = told(s, &t, &known.evaluator, &known.outcome);
            self.log.append(&[], &events)?;
            s.tell(t, &known.outcome, false);
        }
        self.ready = later;
        Ok(batch)
    }

    /// What the store knows of equal code.
    fn known_code(&self, search: usize, kernel: &BuiltKernel) -> Result<Option<Record>> {
        let Some(store) = self.log.store.filter(|_| self.measures(search)) else {
            return Ok(None);
        };
        let s = &self.searches[search];
        let Some(subject) = &s.subject else {
            return Ok(None);
        };
        let same = |r: &Record| {
            r.outcome.within(self.options.tolerance)
                && constants_as_near(r, s.rotate_bytes, &subject.target)
        };
        let hash = record::code_hash(kernel);
        Ok(store.outcome_of_code(&s.stored_place(), &hash, same)?)
    }

    /// Takes what evaluators have answered. Where nothing else is on its way, waits for them.
    pub(super) fn collect_answers(&mut self, mut builders: Option<&mut Builders>) -> Result<()> {
        let busy = self.outstanding.iter().filter(|o| !o.is_empty()).count();
        let builds = !self.building.is_empty() || !self.oracles.is_empty();
        let mut wait = match !builds && self.due().is_none() {
            true => self.patience() / busy.max(1) as u32,
            false => Duration::ZERO,
        };
        for e in 0..self.evaluators.len() {
            while !self.outstanding[e].is_empty() {
                let mut quiet = |on: bool| {
                    if let Some(asking) = self.asking.as_mut().filter(|_| on) {
                        asking.wait();
                    }
                    if let Some(b) = builders.as_deref_mut() {
                        match on {
                            true => b.pool.pause(),
                            false => b.pool.resume(),
                        }
                    }
                };
                let Some(reply) = self.evaluators[e].poll(wait, &mut quiet) else {
                    self.conclude_lost(e)?;
                    break;
                };
                wait = Duration::ZERO;
                // A batch that was given up may be answered after all, and its trials have
                // been told.
                if let Some(batch) = self.outstanding[e].take(&reply) {
                    self.conclude(batch, reply, e)?;
                }
            }
        }
        Ok(())
    }

    /// Gives up what an evaluator has, if it has said nothing for too long.
    fn conclude_lost(&mut self, evaluator: usize) -> Result<()> {
        let silence = self.evaluators[evaluator].silence();
        for batch in self.outstanding[evaluator].take_lost(silence) {
            let nothing = Reply {
                number: batch.number,
                answers: vec![],
                revised: vec![],
                events: vec![],
                setup: None,
                took: None,
            };
            self.conclude(batch, nothing, evaluator)?;
        }
        self.replace_set(evaluator);
        Ok(())
    }

    /// Stores the answers of a batch, and tells them.
    fn conclude(&mut self, batch: OpenBatch, mut reply: Reply, evaluator: usize) -> Result<()> {
        let (search, trials) = (batch.search, batch.trials.len());
        let (answers, missing) = batch.answered(reply.answers);
        reply.answers = answers;
        if !missing.is_empty() {
            self.note_missing(search, missing.len(), trials);
        }
        let over = self.clock.left(self.after_ranking()).is_zero();
        let n = reply.answers.len().max(1) as u64;
        let each_ns = reply.took.map(|took| took.as_nanos() as u64 / n);
        self.note_set(evaluator, trials - missing.len(), reply.took);
        let name = self.evaluators[evaluator].name();
        self.note_warnings(evaluator);
        self.note_drift(search, reply.answers.iter().map(|a| &a.outcome))?;
        let s = &mut self.searches[search];
        s.setup = s.setup.or(reply.setup);
        let event = |kind| record::event(&s.run_id, &s.key, kind);
        let mut events: Vec<NewEvent> = reply.events.into_iter().map(event).collect();
        let mut records = Vec::new();
        let mut answers = Vec::new();
        for a in reply.answers {
            let s = &mut self.searches[search];
            let given = !missing.contains(&a.trial.number);
            let unanswered = matches!(a.outcome, Outcome::Unanswered { .. });
            if let (Outcome::Unanswered { reason }, true) = (&a.outcome, given) {
                s.why_unanswered.get_or_insert_with(|| reason.clone());
            }
            if over && unanswered {
                // The search is over, and nothing is known of the candidate.
                continue;
            }
            self.trials += u64::from(given && s.count(&a.outcome));
            self.worker_cpu_ns += a.spent.cpu_ns;
            s.building += a.trial.building;
            s.evaluating += a.spent;
            let (asking, building) = (a.trial.asking.wall_ns, a.trial.building.wall_ns);
            s.spent_ns += match each_ns {
                Some(each_ns) => a.spent.wall_ns.min(each_ns) + asking + building,
                None => a.spent.wall_ns,
            };
            if self.log.store.is_some() {
                let s = &self.searches[search];
                events.extend(told(s, &a.trial, name, &a.outcome));
                // A table without a row says nothing that is worth a record.
                if !unanswered || s.subject.is_some() {
                    records.push(self.record(&a, name, false));
                }
            }
            answers.push(a);
        }
        self.log.append(&records, &events)?;
        for a in answers {
            self.searches[search].tell(a.trial, &a.outcome, true);
        }
        self.revise(reply.revised, name)
    }

    /// Stores and tells the new scores of earlier trials.
    fn revise(&mut self, revised: Vec<Answer>, evaluator: &str) -> Result<()> {
        let of = |a: &Answer| {
            let s = &self.searches[a.trial.search];
            let run_id = a.trial.run.as_ref().unwrap_or(&s.run_id);
            let identity = RecordIdentity {
                run_id: run_id.to_string(),
                task: s.key.to_string(),
                trial: a.trial.number,
                final_: false,
                evaluator: evaluator.into(),
            };
            (
                (identity, a.outcome.clone()),
                revised_event(s, a, evaluator),
            )
        };
        let (records, events): (Vec<_>, Vec<_>) = revised.iter().map(of).unzip();
        self.log.revise(&records, &events)?;
        for a in revised {
            let s = &mut self.searches[a.trial.search];
            match (&a.trial.run, a.outcome.cost()) {
                (None, _) => s.revise(a.trial, &a.outcome),
                (Some(_), Some(cost)) => s.revise_earlier(&a.trial.point, cost.value()),
                (Some(_), None) => {}
            }
        }
        Ok(())
    }

    /// Says that an evaluator left trials of a batch without an answer.
    fn note_missing(&mut self, search: usize, missing: usize, trials: usize) {
        let s = &mut self.searches[search];
        let name = self.evaluators[s.evaluator].name();
        let title = &s.title;
        let mut warning = format!(
            "the evaluator `{name}` gave no answer to {missing} of a batch of {trials} candidates of {title}"
        );
        if s.lose_batch() {
            warning += "; the task is given up";
        }
        self.disturbances.warnings.push(warning);
    }

    /// Stores and tells what became of a trial that no evaluator sees.
    pub(super) fn conclude_unbuilt(&mut self, trial: Trial, outcome: Outcome) -> Result<()> {
        let s = &mut self.searches[trial.search];
        // Else a run of so many trials would not end where nothing can be built.
        self.trials += u64::from(s.count(&outcome));
        s.spent_ns += trial.asking.wall_ns + trial.building.wall_ns;
        let name = self.evaluators[s.evaluator].name();
        let events = told(s, &trial, name, &outcome);
        let search = trial.search;
        let answer = Answer {
            outcome,
            spent: Spent::default(),
            parts: Default::default(),
            place: s.place.clone(),
            trial,
        };
        let record = self.record(&answer, name, false);
        self.log.append(&[record], &events)?;
        let Answer { trial, outcome, .. } = answer;
        self.searches[search].tell(trial, &outcome, true);
        Ok(())
    }

    /// The record of an answer; `final_` if the candidate was a finalist.
    pub fn record(&self, a: &Answer, evaluator: &str, final_: bool) -> Record {
        let t = &a.trial;
        let s = &self.searches[t.search];
        let algorithm = match &t.candidate {
            Some(c) => &c.algorithm,
            None => &s.space.sketches[t.point.sketch].name,
        };
        Record {
            run_id: s.run_id.to_string(),
            trial: t.number,
            final_,
            task: s.key.to_string(),
            evaluator: evaluator.into(),
            target: a.place.target.clone(),
            machine: a.place.machine.clone(),
            strategy: s.strategy_name.clone(),
            seed: self.options.seed,
            toolchain: self.toolchain.into(),
            algorithm: algorithm.clone(),
            decisions: record::decisions(&s.space, &t.point),
            trace: t.trace.clone(),
            code_hash: t.kernel.as_ref().map(|k| record::code_hash(k)),
            code_size: t.kernel.as_ref().map(|k| k.code.len() as u64),
            outcome: a.outcome.clone(),
            outcome_extra: store::Extra::new(),
            spent: record::spent_by_stage(t.asking, t.building, a),
            created_unix_ms: record::unix_ms(),
            extra: store::Extra::new(),
        }
    }
}
