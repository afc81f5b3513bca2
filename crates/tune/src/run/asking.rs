//! From the budget to built candidates: turns, asks, filters and builders.

use super::{PATIENCE_ASKING, Run};
use crate::StopRule;
use crate::compile::{Builders, named};
use crate::error::{Error, Result};
use crate::filter::{Draws, Filter, sift};
use crate::proposer::Away;
use crate::record;
use crate::search::{Filtering, Search, State, context, similar_once};
use crate::similar::Wanted;
use crate::trial::{Form, Trial};
use crate::watch::Watch;
use build::{BuildResult, ReadOptions};
use measure::{Spent, death_outcome};
use search::{Point, Turn};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::{CandidateKey, EventKind, Extra, Kept, NewEvent, Outcome, Skipped, Stage, Tell};
use worker::Death;

/// Candidates of a search in a row that are illegal or that filters drop, before the search is
/// given up.
const MOST_FRUITLESS: u64 = 10_000;

/// How often what filters of points drop is asked for again within one ask (Trimmer, Algorithm 1).
const REFILLS: usize = 3;

/// A search that is asked for candidates.
pub(super) struct Asking {
    search: usize,
    /// Candidates that are wanted.
    pub(super) n: usize,
    /// Those that filters of points kept so far, and how many more are wanted.
    kept: Vec<Trial>,
    missing: usize,
    /// Points that were asked for so far, and how often.
    asked: usize,
    rounds: usize,
    /// What that took.
    spent: Spent,
    round: Round,
}

/// One call for points.
struct Round {
    /// Points that do not come from the strategy.
    points: Vec<Point>,
    /// Whether they are what an earlier run left open.
    were_open: bool,
    /// The strategy, if it proposes the others.
    away: Option<Away>,
}

impl Asking {
    pub(super) fn is_of(&self, search: usize) -> bool {
        self.search == search
    }

    fn is_answered(&self) -> bool {
        self.round.away.as_ref().is_none_or(Away::is_back)
    }

    /// Waits until nothing is computed for it.
    pub(super) fn wait(&mut self) {
        let away = self.round.away.take();
        self.round.away = away.map(|away| Away::Back(away.back()));
    }
}

impl Run<'_> {
    /// Asks for candidates as far ahead as the builders, or the evaluators, have use for. A strategy proposes on a thread of
    /// its own while others are built and evaluated.
    pub(super) fn ask_ahead(&mut self, builders: &mut Option<&mut Builders>) -> Result<()> {
        // Without overlap a whole batch is built before any of it is measured;
        // with it the next one is built meanwhile.
        let (ahead, batches) = if self.options.overlap { (1, 2) } else { (4, 1) };
        // Where nothing is built, equal seeds give equal runs on machines of any size.
        let least = match builders {
            Some(_) => self.options.builders * ahead + 2,
            None if self.in_flight() == 0 && !self.has_turn()? => return Ok(()),
            None => 1,
        };
        let sets = self.sets.len().max(1);
        let depth = least.max(batches * self.turn.asks * sets);
        // What is measured beside the run is measured before more is built.
        let measured_first = builders.is_some() && !self.options.overlap;
        if measured_first && (self.measures_beside() || self.due().is_some()) {
            return Ok(());
        }
        // So they do only if answers come between the same questions, and without overlap nothing
        // runs beside a measurement.
        let aside = builders.is_some() && self.options.overlap;
        while !self.spent() {
            if let Some(asking) = self.asking.take() {
                if aside && !asking.is_answered() && self.in_flight() > 0 {
                    self.asking = Some(asking);
                    break;
                }
                let search = asking.search;
                if let Some(trials) = self.answered(asking, aside)? {
                    self.pass_asked(search, trials, builders)?;
                }
                continue;
            }
            let Some(room) = self.room(depth) else {
                break;
            };
            let Some((search, n)) = self.next_asks(room)? else {
                break;
            };
            self.asking = Some(self.begin(search, n, aside)?);
        }
        Ok(())
    }

    /// Hands candidates of a search to the builders, or to its evaluator.
    fn pass_asked(
        &mut self,
        search: usize,
        trials: Vec<Trial>,
        builders: &mut Option<&mut Builders>,
    ) -> Result<()> {
        for trial in trials {
            if self.form(search) < Form::Read {
                self.ready.push(trial);
                continue;
            }
            let builders = builders.as_deref_mut().ok_or_else(|| {
                Error::new("candidates are to be measured, and the run has no builders")
            })?;
            if self.needs_data(search) {
                self.ask_oracle(search, builders)?;
            }
            self.build(trial, builders);
        }
        Ok(())
    }

    /// Candidates that may be asked for, so that `depth` are on their way; none if those are.
    fn room(&self, depth: usize) -> Option<usize> {
        let in_flight = self.in_flight();
        let mut room = depth.saturating_sub(in_flight);
        if let StopRule::Trials(n) = self.options.stop {
            let left = n.saturating_sub(self.trials + in_flight as u64);
            room = room.min(usize::try_from(left).unwrap_or(usize::MAX));
        }
        (room > 0).then_some(room)
    }

    /// The form in which a search's evaluator and all of its filters can take candidates.
    fn form(&self, search: usize) -> Form {
        let s = &self.searches[search];
        let filters = s.filters.iter().map(|f| f.form());
        filters.fold(self.evaluators[s.evaluator].form(), Form::max)
    }

    /// The processor whose cycles are read off candidates of a search; none if nobody takes these as
    /// [`Form::Read`].
    fn reads_for(&self, search: usize) -> Option<ReadOptions> {
        let s = &self.searches[search];
        let mut filters = s.filters.iter();
        let evaluator = self.evaluators[s.evaluator].reads_for();
        evaluator.or_else(|| filters.find_map(|f| f.reads_for()))
    }

    /// Whether candidates of a search wait for the data that they are measured with.
    pub(super) fn needs_data(&self, search: usize) -> bool {
        let evaluator = &self.evaluators[self.searches[search].evaluator];
        evaluator.form() == Form::Code && evaluator.needs_data()
    }

    /// Whether what the store knows of candidates of a search was measured as its evaluator
    /// would measure it.
    pub(super) fn measures(&self, search: usize) -> bool {
        let name = self.evaluators[self.searches[search].evaluator].name();
        store::MEASURING.contains(&name)
    }

    /// Whether it is the turn of an open search. One whose turn is over, or that is not open
    /// any more, hands over to the next one.
    fn has_turn(&mut self) -> Result<bool> {
        let open = |s: Option<&Search>| s.is_some_and(Search::is_open);
        if self.left == 0 || !open(self.searches.get(self.turn.search)) {
            if !self.survey()? {
                return Ok(false);
            }
            let batch = |s: &Search| self.evaluators[s.evaluator].batch();
            let batches: Vec<usize> = self.searches.iter().map(batch).collect();
            let turn = match self.of_tuners.is_empty() {
                true => self.budget.turn(&self.standings(), &batches),
                false => self.turn_of_tuners(&batches),
            };
            let Some(turn) = turn else {
                return Ok(false);
            };
            (self.turn, self.left) = (turn, turn.asks);
            self.log_turn()?;
        }
        Ok(true)
    }

    /// The next turn where several tuners take turns: that of the tuner which was asked for the fewest candidates. Of a
    /// number of trials each tuner gets its part, however few there are.
    fn turn_of_tuners(&mut self, batches: &[usize]) -> Option<Turn> {
        let standings = self.standings();
        let models = self.models();
        let each = self.finished(models.len()).max(1);
        let tuners = models.chunks(each).map(|models| {
            let tasks = models.iter().flatten();
            tasks.map(|t| t.search).collect::<BTreeSet<usize>>()
        });
        let tuners: Vec<BTreeSet<usize>> = tuners.collect();
        let asked = |tuner: &usize| -> u64 {
            let searches = tuners[*tuner].iter();
            searches.map(|s| standings[*s].asked).sum()
        };
        let is_open = |tuner: &usize| tuners[*tuner].iter().any(|s| standings[*s].open);
        let mut open: Vec<usize> = (0..tuners.len()).filter(is_open).collect();
        open.sort_by_key(asked);
        let part = match self.options.stop {
            StopRule::Trials(n) => {
                let left = n.saturating_sub(self.trials + self.in_flight() as u64);
                let part = left.div_ceil(open.len().max(1) as u64).max(1);
                usize::try_from(part).unwrap_or(usize::MAX)
            }
            StopRule::Time(_) | StopRule::Energy(_) => usize::MAX,
        };
        open.into_iter().find_map(|tuner| {
            let mut own = standings.clone();
            for (i, s) in own.iter_mut().enumerate() {
                s.open &= tuners[tuner].contains(&i);
            }
            let Turn { search, asks } = self.of_tuners.get_mut(tuner)?.turn(&own, batches)?;
            let asks = asks.min(part);
            Some(Turn { search, asks })
        })
    }

    /// The search that is asked next and for how many candidates, at most `room`.
    fn next_asks(&mut self, room: usize) -> Result<Option<(usize, usize)>> {
        if !self.has_turn()? {
            return Ok(None);
        }
        let n = room.min(self.left);
        self.left -= n;
        Ok(Some((self.turn.search, n)))
    }

    /// Logs the budget's decision, where there is more than one search to choose from.
    fn log_turn(&self) -> Result<()> {
        if self.searches.len() < 2 {
            return Ok(());
        }
        let event = store::Budget {
            search: self.turn.search as u64,
            asks: self.turn.asks as u64,
            reason: self.options.budget.clone(),
            extra: Extra::new(),
        };
        let s = &self.searches[self.turn.search];
        let key = &s.key;
        let event = record::event(&s.run_id, key, event);
        self.log.append(&[], &[event])
    }

    /// Begins to ask a search for candidates.
    fn begin(&mut self, search: usize, n: usize, aside: bool) -> Result<Asking> {
        Ok(Asking {
            search,
            n,
            kept: vec![],
            missing: n,
            asked: 0,
            rounds: 0,
            spent: Spent::default(),
            round: self.begin_round(search, n, aside)?,
        })
    }

    /// Calls for points, of which that many are to pass the filters of points.
    fn begin_round(&mut self, search: usize, missing: usize, aside: bool) -> Result<Round> {
        let log = self.log;
        let s = &mut self.searches[search];
        let were_open = !s.open.is_empty();
        let (points, question) = s.begin_ask(missing * s.pool(), log)?;
        let away = question.map(|q| s.strategy.send(q, aside));
        Ok(Round {
            points,
            were_open,
            away,
        })
    }

    /// The points of a call, with the strategy back, and what the strategy took.
    fn end_round(&mut self, search: usize, round: Round) -> (Vec<Point>, Spent) {
        let (mut points, mut spent) = (round.points, Spent::default());
        if let Some(away) = round.away {
            let (proposed, took) = self.searches[search].strategy.take_back(away);
            points.extend(proposed);
            spent = took;
        }
        (points, spent)
    }

    /// Takes up the points that a search was asked for: the candidates that pass its filters, and are not known. None if it
    /// is asked again, a few times, as filters of points dropped some.
    fn answered(&mut self, mut asking: Asking, aside: bool) -> Result<Option<Vec<Trial>>> {
        let watch = Watch::start();
        let search = asking.search;
        let were_open = asking.round.were_open;
        let (points, spent) = self.end_round(search, asking.round);
        asking.spent += spent;
        asking.rounds += 1;
        asking.asked += points.len();
        let s = &mut self.searches[search];
        if points.is_empty() {
            s.state = State::Exhausted;
        }
        let proposing_cpu_ns = spent.cpu_ns / points.len().max(1) as u64;
        let new = |point: Point| {
            let number = s.asked;
            s.asked += 1;
            Trial {
                proposing_cpu_ns,
                ..Trial::new(search, number, point)
            }
        };
        let new: Vec<Trial> = points.into_iter().map(new).collect();
        // Points of several calls may be open, of which each has less than is missing.
        if !were_open {
            asking.missing = new.len().div_ceil(s.pool());
        }
        let passed = self.filter(search, Form::Point, new)?;
        // Some that a pool dropped may be audited.
        asking.missing = asking.missing.saturating_sub(passed.len());
        asking.kept.extend(passed);
        if asking.missing > 0 && asking.rounds <= REFILLS {
            // What the strategy takes for the round is added when it is back.
            asking.spent += watch.spent();
            let round = self.begin_round(search, asking.missing, aside)?;
            self.asking = Some(Asking { round, ..asking });
            return Ok(None);
        }
        let mut trials = asking.kept;
        if self.form(search) >= Form::Schedule {
            trials = self.replay(search, trials)?;
            trials = self.filter(search, Form::Schedule, trials)?;
        }
        self.note_fruitless(search, asking.asked, trials.is_empty());
        if self.form(search) >= Form::Schedule {
            trials = self.unknown(search, trials)?;
        }
        asking.spent += watch.spent();
        let share = |ns: u64| ns / trials.len().max(1) as u64;
        let each = Spent {
            wall_ns: share(asking.spent.wall_ns),
            cpu_ns: share(asking.spent.cpu_ns),
        };
        trials.iter_mut().for_each(|t| t.asking = each);
        Ok(Some(trials))
    }

    /// Ends an ask whose candidates nobody takes any more. Whoever searches next gets its points first.
    pub(super) fn give_up_asking(&mut self) {
        if let Some(asking) = self.asking.take() {
            let (points, _) = self.end_round(asking.search, asking.round);
            self.searches[asking.search].open.push_back(points);
        }
    }

    /// Counts candidates none of which came through. A search of which nothing does is given
    /// up: a run of so many trials would never end.
    fn note_fruitless(&mut self, search: usize, asked: usize, none_left: bool) {
        let s = &mut self.searches[search];
        s.fruitless = match none_left {
            true => s.fruitless + asked as u64,
            false => 0,
        };
        if s.fruitless >= MOST_FRUITLESS && s.is_open() {
            s.state = State::Exhausted;
            let (title, n) = (&s.title, s.fruitless);
            let warning = format!(
                "the last {n} candidates of {title} were illegal or dropped by filters; it is given up"
            );
            self.disturbances.warnings.push(warning);
        }
    }

    /// What the filters of a form keep; that is logged. What they drop is logged and told.
    pub(super) fn filter(
        &mut self,
        search: usize,
        form: Form,
        mut trials: Vec<Trial>,
    ) -> Result<Vec<Trial>> {
        let evaluator = self.evaluators[self.searches[search].evaluator].name();
        let mut events: Vec<NewEvent> = Vec::new();
        let s = &mut self.searches[search];
        let (store, tolerance) = (self.log.store, self.options.tolerance);
        // Which of the candidates that filters drop are evaluated all the same.
        let audits = Draws::new("audit", &s.key, s.seed);
        let mut filters = std::mem::take(&mut s.filters);
        s.filtering.resize(filters.len(), Filtering::default());
        let mut audited: Vec<Trial> = trials.extract_if(.., |t| t.audited.is_some()).collect();
        let of_form = |(_, f): &(usize, &mut Box<dyn Filter + Send>)| f.form() == form;
        for (at, f) in filters.iter_mut().enumerate().filter(of_form) {
            let (watch, learnt_ns) = (Watch::start(), f.learning_cpu_ns());
            let wanted = Wanted {
                task: &s.key,
                subject: s.subject.as_ref(),
                place: &s.place,
                allowed: s.allowed,
                tolerance,
                until: s.similar_until,
            };
            let look_up = || similar_once(&s.similar, store, &wanted);
            let context = context(&s.space, &s.subject, &s.records, &look_up);
            let (kept, dropped) = sift(&mut **f, &context, trials, &s.verdicts);
            events.extend(remembered(s, &mut **f, &kept));
            let name = f.name().to_string();
            trials = kept.into_iter().map(|(_, trial)| trial).collect();
            let (audit, dropped): (Vec<_>, Vec<_>) = dropped
                .into_iter()
                .partition(|(t, _)| audits.picks(&t.point, self.options.audit));
            events.extend(drop_trials(s, (&name, evaluator), &dropped, &audit));
            audited.extend(audit.into_iter().map(|(t, _)| Trial {
                audited: Some(f.name()),
                ..t
            }));
            let learning_ns = f.learning_cpu_ns() - learnt_ns;
            s.filtering[at] += Filtering {
                learning_ns,
                judging_ns: watch.spent().cpu_ns.saturating_sub(learning_ns),
                asking_ns: dropped.iter().map(|(t, _)| t.proposing_cpu_ns).sum(),
            };
        }
        trials.append(&mut audited);
        s.filters = filters;
        s.check_similar()?;
        if events.is_empty() {
            return Ok(trials);
        }
        self.log.append(&[], &events)?;
        Ok(trials)
    }

    /// The trials with their schedules. A point whose schedule is illegal for the program is
    /// counted, and not built.
    fn replay(&mut self, search: usize, trials: Vec<Trial>) -> Result<Vec<Trial>> {
        let s = &mut self.searches[search];
        let Some(subject) = &s.subject else {
            return Err(Error::new(format!(
                "{} is a table, and its evaluator or a filter needs schedules",
                s.title
            )));
        };
        let mut legal = Vec::new();
        let mut illegal = Vec::new();
        for mut trial in trials {
            match s.space.candidate(&subject.program, &trial.point) {
                Ok(candidate) => {
                    trial.trace = schedule::print(&candidate.trace);
                    trial.candidate = Some(candidate);
                    legal.push(trial);
                }
                Err(refused) => {
                    let reason = refused.to_string();
                    illegal.push((trial, Outcome::Rejected { reason }));
                }
            }
        }
        for (trial, outcome) in illegal {
            *s.failures.entry("illegal".into()).or_default() += 1;
            s.learn(&trial.point, &outcome);
            s.history.push((None, trial.audited));
            let sketch = s.space.sketches[trial.point.sketch].name.clone();
            let asked = record::asked(&sketch, &trial.point, trial.number);
            let told = record::illegal(trial.number);
            let event = |kind: EventKind| record::event(&s.run_id, &s.key, kind);
            self.log
                .append(&[], &[event(asked.into()), event(told.into())])?;
        }
        Ok(legal)
    }

    /// The trials without those that the store knows, if a measuring evaluator is to answer
    /// them. A known time of code still needs that code, if it is among the best.
    fn unknown(&mut self, search: usize, trials: Vec<Trial>) -> Result<Vec<Trial>> {
        let Some(store) = self.log.store.filter(|_| self.measures(search)) else {
            return Ok(trials);
        };
        let needs_code = self.form(search) == Form::Code;
        let mut unknown = Vec::new();
        for trial in trials {
            let s = &mut self.searches[search];
            let algorithm = trial.candidate.as_ref().map_or("", |c| &c.algorithm);
            let key = CandidateKey {
                place: s.stored_place(),
                toolchain: self.toolchain,
                algorithm,
                trace: &trial.trace,
            };
            match store.outcome_of_candidate(&key, self.options.tolerance)? {
                Some(known) if known.outcome.median_ns().is_none() => {
                    s.cached += 1;
                    let events = told(s, &trial, &known.evaluator, &known.outcome);
                    self.log.append(&[], &events)?;
                    s.learn(&trial.point, &known.outcome);
                    s.history.push((None, trial.audited));
                }
                Some(known) if !needs_code => {
                    s.cached += 1;
                    let events = told(s, &trial, &known.evaluator, &known.outcome);
                    self.log.append(&[], &events)?;
                    s.tell(trial, &known.outcome, false);
                }
                _ => unknown.push(trial),
            }
        }
        Ok(unknown)
    }

    /// Has the plain schedule of a task built, before its first candidate. It is for the
    /// host, whatever the target: expected outputs are computed here.
    fn ask_oracle(&mut self, search: usize, builders: &mut Builders) -> Result<()> {
        let Some(subject) = &mut self.searches[search].subject else {
            return Ok(());
        };
        if std::mem::replace(&mut subject.oracle_asked, true) {
            return Ok(());
        }
        let (plain, host) = subject.plain()?;
        let request = builders.request(&subject.text, &plain, host, false);
        self.oracles.insert(builders.submit(request), search);
        Ok(())
    }

    fn build(&mut self, trial: Trial, builders: &mut Builders) {
        let subject = self.searches[trial.search].subject.as_ref();
        let subject = subject.expect("what has a schedule has a program");
        let candidate = trial.candidate.as_ref();
        let candidate = candidate.expect("it was replayed");
        let mut request = builders.request(&subject.text, candidate, &subject.target, false);
        // What was read has sections of identity. As a kernel it is built without them.
        request.options.read = match trial.read {
            Some(_) => None,
            None => self.reads_for(trial.search),
        };
        self.building.insert(builders.submit(request), trial);
    }

    /// Takes what builders have made. Waits for one build, or where nothing is measured meanwhile
    /// until nothing is left to build.
    pub(super) fn collect_built(&mut self, builders: &mut Builders) -> Result<()> {
        loop {
            let all = self.building.len() + self.oracles.len();
            let least = if self.options.overlap {
                all.min(1)
            } else {
                all
            };
            let mut outcomes = Vec::new();
            while outcomes.len() < least && !self.spent() {
                let asked = self.asking.as_ref().is_some_and(Asking::is_answered);
                if asked || self.is_answered_beside() {
                    break;
                }
                let patience = match self.measures_beside() {
                    true => PATIENCE_ASKING,
                    false => self.patience(),
                };
                outcomes.extend(builders.pool.next(patience));
            }
            self.pass_built(outcomes, builders)?;
            if self.options.overlap || self.building.is_empty() || self.spent() {
                return Ok(());
            }
        }
    }

    /// Hands builds to the filters that take them. What was read and kept is built again if a kernel
    /// of it is needed.
    fn pass_built(&mut self, outcomes: Vec<BuildResult>, builders: &mut Builders) -> Result<()> {
        let mut built: BTreeMap<(usize, Form), Vec<Trial>> = BTreeMap::new();
        for o in outcomes {
            if let Some(trial) = self.building.remove(&o.id) {
                let Some(trial) = self.take_built(trial, o)? else {
                    continue;
                };
                let form = match trial.kernel {
                    Some(_) => Form::Code,
                    None => Form::Read,
                };
                built.entry((trial.search, form)).or_default().push(trial);
            } else if let Some(search) = self.oracles.remove(&o.id) {
                self.take_oracle(search, o);
            }
        }
        for ((search, form), trials) in built {
            let kept = self.filter(search, form, trials)?;
            if form == self.form(search) {
                self.ready.extend(kept);
            } else {
                kept.into_iter().for_each(|t| self.build(t, builders));
            }
        }
        Ok(())
    }

    /// What a builder made of a plain schedule.
    fn take_oracle(&mut self, search: usize, o: BuildResult) {
        let s = &mut self.searches[search];
        let Some(subject) = &mut s.subject else {
            return;
        };
        let why = match o.result {
            Ok(Ok(built)) => return subject.make_data(built.kernel, self.options.seed),
            // The search is over.
            Err(Death::Withdrawn) => return,
            Ok(Err(e)) => format!("{:?}: {}", e.stage, e.reason),
            Err(death) => format!("the builder died: {death:?}"),
        };
        subject.unchecked = true;
        s.state = State::Exhausted;
        let title = &s.title;
        let warning = format!(
            "the plain schedule of {title}, which candidates are compared with, cannot be built: {why}; the task keeps its default"
        );
        self.disturbances.warnings.push(warning);
        self.ready.retain(|t| t.search != search);
    }

    /// The candidate with what a builder made of it; none if that is told, or the search is over.
    fn take_built(&mut self, mut trial: Trial, o: BuildResult) -> Result<Option<Trial>> {
        let spent = Spent {
            wall_ns: o.wall.as_nanos() as u64,
            cpu_ns: o.cpu.as_nanos() as u64,
        };
        trial.building += spent;
        self.worker_cpu_ns += spent.cpu_ns;
        let search = trial.search;
        let subject = self.searches[search].subject.as_ref();
        let outcome = match o.result {
            Ok(_) if subject.is_some_and(|s| s.unchecked) => return Ok(None),
            Ok(Ok(built)) => {
                match (built.read, subject) {
                    (Some(read), _) => trial.read = Some(Arc::new(read)),
                    (None, Some(s)) => {
                        let candidate = trial.candidate.as_ref();
                        trial.kernel = Some(named(built.kernel, candidate, &s.program));
                    }
                    (None, None) => {}
                }
                return Ok(Some(trial));
            }
            Ok(Err(e)) => Outcome::Rejected {
                reason: format!("{:?}: {}", e.stage, e.reason),
            },
            // The search is over, and nothing is known of the candidate.
            Err(Death::Withdrawn) => return Ok(None),
            Err(death) => death_outcome(death, Stage::Build),
        };
        self.conclude_unbuilt(trial, outcome)?;
        Ok(None)
    }
}

/// What the log says of a filter, so that a run that goes on brings it to the same state: what it noted, and what it kept.
fn remembered(s: &Search, filter: &mut dyn Filter, kept: &[(f64, Trial)]) -> Vec<NewEvent> {
    let (name, noted) = (filter.name(), filter.noted().into_iter());
    let seen = noted.filter_map(|(n, read)| record::seen(n, &read, Some(name)));
    let mut events: Vec<NewEvent> = seen
        .map(|seen| record::event(&s.run_id, &s.key, seen))
        .collect();
    if kept.is_empty() {
        return events;
    }
    let finite = |score: &f64| score.is_finite().then_some(*score);
    let scored = kept.iter().any(|(score, _)| *score != 0.0);
    let scores = kept.iter().filter(|_| scored).map(|(s, _)| finite(s));
    let kept = Kept {
        filter: name.into(),
        trials: kept.iter().map(|(_, t)| t.number).collect(),
        scores: scores.collect(),
        extra: Extra::new(),
    };
    events.push(record::event(&s.run_id, &s.key, kept));
    events
}

/// Tells a search of trials that a filter drops, of which some are audited; what is to be logged of it.
fn drop_trials(
    s: &mut Search,
    (filter, evaluator): (&str, &str),
    dropped: &[(Trial, String)],
    audit: &[(Trial, String)],
) -> Vec<NewEvent> {
    if dropped.is_empty() && audit.is_empty() {
        return vec![];
    }
    let outcome = Outcome::Skipped {
        filter: filter.into(),
    };
    let mut events: Vec<NewEvent> = Vec::new();
    for (t, _) in dropped {
        events.extend(told(s, t, evaluator, &outcome));
        s.learn(&t.point, &outcome);
    }
    let skipped = Skipped {
        filter: filter.into(),
        count: dropped.len() as u64,
        trials: dropped.iter().map(|(t, _)| t.number).collect(),
        reasons: dropped.iter().map(|(_, why)| why.clone()).collect(),
        audited: audit.iter().map(|(t, _)| t.number).collect(),
        extra: Extra::new(),
    };
    events.push(record::event(&s.run_id, &s.key, skipped));
    *s.skipped.entry(filter.into()).or_default() += dropped.len() as u64;
    events
}

/// The log entries of a trial that gets no new record.
pub(super) fn told(s: &Search, trial: &Trial, evaluator: &str, outcome: &Outcome) -> [NewEvent; 2] {
    let algorithm = match &trial.candidate {
        Some(c) => &c.algorithm,
        None => &s.space.sketches[trial.point.sketch].name,
    };
    let asked = record::asked(algorithm, &trial.point, trial.number);
    let told = Tell::of(trial.number, evaluator, outcome);
    [
        record::event(&s.run_id, &s.key, asked),
        record::event(&s.run_id, &s.key, told),
    ]
}
