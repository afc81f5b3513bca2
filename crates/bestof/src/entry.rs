//! What is known of one problem size: samples, rounds, pruning, the decision.

use crate::nest::lock;
use crate::report::{AlternativeReport, Status};
use crate::selector::{Circumstances, Options};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// No alternative is decided on.
pub(crate) const UNDECIDED: usize = usize::MAX;
/// Samples in a row that are discarded because an undecided selector ran inside. The next one counts
/// all the same: what runs there may never be decided.
const STALE: u32 = 50;
/// Times of calls after a decision that its running median is of.
const WATCHED: usize = 9;
/// [`Options::early`] drops an alternative whose least time is over so many times the least median. The position is
/// how often it was timed before, its first call included; the last one holds for all further calls.
const FAR: [f64; 5] = [2.5, 1.3, 1.15, 1.1, 1.05];
/// As the first of [`FAR`], for a call whose memory was there.
const FAR_IF_WARM: f64 = 1.6;
/// Another program that takes the processor keeps it about so long. One call alone has to be later by more than this,
/// unless nothing interrupted it.
const INTERRUPTION: Duration = Duration::from_millis(3);

/// One problem size of a selector.
pub(crate) struct Entry {
    /// The key as text.
    pub key: String,
    /// Whether the decision came from a file.
    pub known: bool,
    decided: AtomicUsize,
    /// Whether a call is being timed.
    busy: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    alternatives: Vec<Alternative>,
    /// Times since the decision, if it is watched.
    watched: Vec<Duration>,
    /// How often the decision was opened again.
    reopened: u32,
    /// Selectors that ran inside, with their keys.
    children: Vec<String>,
}

#[derive(Clone, Debug, Default)]
struct Alternative {
    status: Status,
    /// The first call was made.
    warm: bool,
    /// What the first call took, which is no sample; none if an undecided selector ran inside.
    first: Option<Duration>,
    /// Calls, or sets of stages, that were begun for a sample and are not over.
    pending: usize,
    samples: Vec<Duration>,
    discarded: u32,
    /// It was dropped because one outside of the selector is faster. Then what is left need not be the best.
    conceded: bool,
}

/// What a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    WarmUp,
    Sample,
    /// Another call is timed, or all samples are on their way.
    Nothing,
}

/// Which alternative runs, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub alternative: usize,
    pub purpose: Purpose,
}

impl Alternative {
    fn is_active(&self) -> bool {
        self.status == Status::Active
    }

    fn has_conceded(&self) -> bool {
        self.conceded && self.status == Status::Pruned
    }

    fn reopen(&mut self) {
        self.status = Status::Active;
        self.conceded = false;
    }

    fn median(&self) -> Option<Duration> {
        median(&self.samples)
    }

    /// What alternatives are chosen by. What disturbs a call makes it longer, so where a call is as long as the last one
    /// but for that, the least time is told by few quiet calls.
    fn deciding_time(&self, options: &Options) -> Option<Duration> {
        match options.early {
            true => self.samples.iter().min().copied(),
            false => self.median(),
        }
    }

    /// The median; of one that was dropped before it had a sample, what its first call took. None if it can run no more.
    fn known_time(&self) -> Option<Duration> {
        match self.status {
            Status::Active => self.median(),
            Status::Pruned => self.median().or(self.first),
            Status::NotApplicable | Status::Failed | Status::Disagrees => None,
        }
    }

    /// Whether its times so far show that it is slower than `best`. A first call may be slow because memory is
    /// cold, but it is never too fast.
    fn is_far_above(&self, best: Duration, how: Circumstances) -> bool {
        let times = || self.first.iter().chain(&self.samples);
        let Some(least) = times().min() else {
            return false;
        };
        let calls = times().count();
        let far = best.mul_f64(FAR[calls.min(FAR.len()) - 1]);
        *least
            > match (calls, how.uninterrupted, how.warm) {
                (1, true, true) => best.mul_f64(FAR_IF_WARM),
                (1, false, _) => far + INTERRUPTION,
                _ => far,
            }
    }
}

/// The middle one; of an even number, the mean of both.
pub(crate) fn median(of: &[Duration]) -> Option<Duration> {
    let mut sorted = of.to_vec();
    sorted.sort_unstable();
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2),
    }
}

impl Entry {
    /// Of so many alternatives, those that apply; decided if somebody knows the choice already.
    pub fn new(key: String, applies: Vec<bool>, known: Option<usize>) -> Entry {
        let one = |applies: &bool| Alternative {
            status: match applies {
                true => Status::Active,
                false => Status::NotApplicable,
            },
            ..Alternative::default()
        };
        let known = known.filter(|at| applies.get(*at) == Some(&true));
        let state = State {
            alternatives: applies.iter().map(one).collect(),
            ..State::default()
        };
        let entry = Entry {
            key,
            known: known.is_some(),
            decided: AtomicUsize::new(known.unwrap_or(UNDECIDED)),
            busy: AtomicBool::new(false),
            state: Mutex::new(state),
        };
        entry.settle(&mut lock(&entry.state), &Options::default());
        entry
    }

    /// The decision, or [`UNDECIDED`].
    pub fn decided(&self) -> usize {
        self.decided.load(Ordering::Acquire)
    }

    /// Whether this thread may time a call now; [`Entry::leave`] ends that.
    pub fn enter(&self) -> bool {
        !self.busy.swap(true, Ordering::AcqRel)
    }

    pub fn leave(&self) {
        self.busy.store(false, Ordering::Release);
    }

    /// Which alternative runs next. What is assigned for a warm-up or a sample has to be
    /// concluded or abandoned.
    pub fn assign(&self) -> Assignment {
        let mut state = lock(&self.state);
        if self.decided() != UNDECIDED {
            return self.nothing(&state);
        }
        let active = state
            .alternatives
            .iter()
            .enumerate()
            .filter(|(_, a)| a.is_active());
        let rounds = active.clone().map(|(_, a)| a.samples.len());
        let round = rounds.min().unwrap_or(0);
        let order = |i: usize| match is_backward(round) {
            true => state.alternatives.len() - i,
            false => i,
        };
        let least = active
            .min_by_key(|(i, a)| (a.samples.len() + a.pending, order(*i)))
            .map(|(i, _)| i);
        // A round is over before the next one begins.
        let open = |at: &usize| {
            let a = &state.alternatives[*at];
            a.samples.len() + a.pending <= round
        };
        let Some(next) = least.filter(open) else {
            return self.nothing(&state);
        };
        let a = &mut state.alternatives[next];
        a.pending += 1;
        Assignment {
            alternative: next,
            purpose: match a.warm {
                true => Purpose::Sample,
                false => Purpose::WarmUp,
            },
        }
    }

    /// What runs where nothing is to be learnt: the decision, or the best so far.
    pub fn follow(&self) -> Assignment {
        self.nothing(&lock(&self.state))
    }

    fn nothing(&self, state: &State) -> Assignment {
        let decided = self.decided();
        Assignment {
            alternative: match decided {
                UNDECIDED => leader(&state.alternatives),
                decided => decided,
            },
            purpose: Purpose::Nothing,
        }
    }

    /// Counts what was assigned: what it took, and how.
    pub fn conclude(&self, of: Assignment, took: Duration, how: Circumstances, options: &Options) {
        if of.purpose == Purpose::Nothing {
            return;
        }
        let mut state = lock(&self.state);
        let a = &mut state.alternatives[of.alternative];
        a.pending = a.pending.saturating_sub(1);
        match of.purpose {
            Purpose::Nothing => {}
            Purpose::WarmUp => {
                a.warm = true;
                a.first = (!how.disturbed).then_some(took);
            }
            Purpose::Sample if how.disturbed && a.discarded < STALE => a.discarded += 1,
            Purpose::Sample => {
                a.discarded = 0;
                a.samples.push(took);
            }
        }
        if options.early && !how.disturbed && self.decided() == UNDECIDED {
            drop_early(&mut state, of.alternative, how);
        }
        self.settle(&mut state, options);
    }

    /// What was assigned was not carried out.
    pub fn abandon(&self, of: Assignment) {
        if of.purpose != Purpose::Nothing {
            let a = &mut lock(&self.state).alternatives[of.alternative];
            a.pending = a.pending.saturating_sub(1);
        }
    }

    /// An alternative failed, or its output is not that of the default: it is out. False if no
    /// other is left.
    pub fn drop_alternative(&self, alternative: usize, why: Status, options: &Options) -> bool {
        let mut state = lock(&self.state);
        let best = is_best(&state.alternatives, alternative);
        state.alternatives[alternative].status = why;
        // What is slow is better than nothing.
        if best || !state.alternatives.iter().any(Alternative::is_active) {
            revive(&mut state.alternatives);
        }
        if self.decided() == alternative {
            self.decided.store(UNDECIDED, Ordering::Release);
        }
        self.settle(&mut state, options);
        state.alternatives.iter().any(Alternative::is_active)
    }

    /// The first alternative that applies and did not fail.
    pub fn first_applicable(&self) -> usize {
        let state = lock(&self.state);
        let runs = |a: &Alternative| matches!(a.status, Status::Active | Status::Pruned);
        state.alternatives.iter().position(runs).unwrap_or(0)
    }

    /// Adds selectors that ran inside.
    pub fn add_children(&self, children: Vec<String>) {
        if children.is_empty() {
            return;
        }
        let mut state = lock(&self.state);
        for child in children {
            if !state.children.contains(&child) {
                state.children.push(child);
            }
        }
    }

    /// Prunes and decides at the end of a round.
    fn settle(&self, state: &mut State, options: &Options) {
        if self.decided() != UNDECIDED {
            return;
        }
        let active: Vec<usize> = (0..state.alternatives.len())
            .filter(|i| state.alternatives[*i].is_active())
            .collect();
        if let [only] = active[..] {
            return self.decided.store(only, Ordering::Release);
        }
        let rounds = active.iter().map(|i| state.alternatives[*i].samples.len());
        let round = rounds.min().unwrap_or(0);
        if active
            .iter()
            .any(|i| state.alternatives[*i].samples.len() > round)
        {
            return;
        }
        if round >= options.prune_after.min(options.rounds) {
            let medians = active
                .iter()
                .filter_map(|i| state.alternatives[*i].median());
            let Some(best) = medians.min() else {
                return;
            };
            for i in &active {
                let a = &mut state.alternatives[*i];
                if a.median()
                    .is_some_and(|m| m.as_secs_f64() > options.prune_speedup * best.as_secs_f64())
                {
                    a.status = Status::Pruned;
                }
            }
        }
        let left = active
            .iter()
            .filter(|i| state.alternatives[**i].is_active())
            .count();
        if round >= options.rounds || left == 1 {
            let choice = choice(&state.alternatives, options);
            state.watched.clear();
            self.decided.store(choice, Ordering::Release);
        }
    }

    /// Notes what a call took after the decision. Opens the decision again if the running median
    /// has left the band around the median that the decision was made by.
    pub fn watch(&self, watched: usize, took: Duration, band: f64) {
        let mut state = lock(&self.state);
        let decided = self.decided();
        if decided != watched {
            return;
        }
        let State {
            alternatives,
            watched,
            reopened,
            ..
        } = &mut *state;
        watched.push(took);
        if watched.len() < WATCHED {
            return;
        }
        let now = median(watched).unwrap_or_default().as_secs_f64();
        watched.remove(0);
        let Some(then) = alternatives[decided].median().map(|m| m.as_secs_f64()) else {
            // What was decided elsewhere is measured by this first median.
            alternatives[decided].samples = watched.clone();
            return;
        };
        if now > then * (1.0 + band) || now < then / (1.0 + band) {
            for a in alternatives.iter_mut() {
                if matches!(a.status, Status::Active | Status::Pruned) {
                    *a = Alternative {
                        warm: a.warm,
                        ..Alternative::default()
                    };
                }
            }
            *reopened += 1;
            watched.clear();
            self.decided.store(UNDECIDED, Ordering::Release);
        }
    }

    /// What is known of each alternative, what ran inside, and how often the decision was opened again.
    pub fn report(&self, names: &[String]) -> (Vec<AlternativeReport>, Vec<String>, u32) {
        let state = lock(&self.state);
        let medians = state.alternatives.iter().filter_map(Alternative::median);
        let best = medians.min();
        let one = |(a, name): (&Alternative, &String)| AlternativeReport {
            name: name.clone(),
            status: a.status,
            samples: a.samples.len(),
            median: a.known_time(),
            over_best: a
                .known_time()
                .zip(best)
                .map(|(m, b)| m.as_secs_f64() / b.as_secs_f64().max(1e-12)),
        };
        let all = state.alternatives.iter().zip(names).map(one).collect();
        (all, state.children.clone(), state.reopened)
    }

    /// The median of every alternative; of one that was dropped before it had a sample, what its first call took.
    pub fn medians(&self) -> Vec<Option<Duration>> {
        let state = lock(&self.state);
        let all = state.alternatives.iter();
        all.map(Alternative::known_time).collect()
    }

    /// Whether the decision is what is left after one outside of the selector was faster than others.
    pub fn has_conceded(&self) -> bool {
        let state = lock(&self.state);
        state.alternatives.iter().any(Alternative::has_conceded)
    }

    /// Tries alternatives again that were dropped for one outside of the selector. False if there are none.
    pub fn reopen_conceded(&self, options: &Options) -> bool {
        let mut state = lock(&self.state);
        let mut any = false;
        for a in state.alternatives.iter_mut().filter(|a| a.has_conceded()) {
            a.reopen();
            any = true;
        }
        if any {
            self.decided.store(UNDECIDED, Ordering::Release);
            self.settle(&mut state, options);
        }
        any
    }

    /// An alternative is no longer what it was: it is tried again, and its times are forgotten. One that does not apply, or
    /// failed, stays out.
    pub fn retry(&self, alternative: usize, options: &Options) {
        let mut state = lock(&self.state);
        if is_best(&state.alternatives, alternative) {
            revive(&mut state.alternatives);
        }
        let a = &mut state.alternatives[alternative];
        if !matches!(a.status, Status::Active | Status::Pruned) {
            return;
        }
        *a = Alternative {
            warm: a.warm,
            pending: a.pending,
            ..Alternative::default()
        };
        self.decided.store(UNDECIDED, Ordering::Release);
        self.settle(&mut state, options);
    }

    /// The number of samples and the median of the decision.
    pub fn evidence(&self) -> (usize, Duration) {
        let state = lock(&self.state);
        let decided = state.alternatives.get(self.decided());
        decided.map_or((0, Duration::ZERO), |a| {
            (a.samples.len(), a.median().unwrap_or_default())
        })
    }
}

/// Whether others may have been dropped because this alternative is faster.
fn is_best(alternatives: &[Alternative], at: usize) -> bool {
    let active = alternatives.iter().filter(|a| a.is_active());
    let least = active.filter_map(Alternative::median).min();
    alternatives[at].is_active() && least.is_some() && alternatives[at].median() == least
}

/// Tries again what was dropped as it was slow.
fn revive(alternatives: &mut [Alternative]) {
    for a in alternatives
        .iter_mut()
        .filter(|a| a.status == Status::Pruned)
    {
        a.reopen();
    }
}

/// Drops the alternative that was timed last if it cannot be the best any more, and is not the only one left.
fn drop_early(state: &mut State, timed: usize, how: Circumstances) {
    let others = state.alternatives.iter().enumerate();
    let others = others.filter(|(i, a)| *i != timed && a.is_active());
    let others: Vec<Option<Duration>> = others.map(|(_, a)| a.median()).collect();
    let own = others.iter().flatten().min().copied();
    let a = &mut state.alternatives[timed];
    let far = |best: Option<Duration>| best.is_some_and(|b| a.is_far_above(b, how));
    // Another thread may have dropped it meanwhile.
    if !a.is_active() || others.is_empty() || !(far(own) || far(how.rival)) {
        return;
    }
    a.conceded = !far(own);
    a.status = Status::Pruned;
}

/// The best so far, or the first that may run.
fn leader(alternatives: &[Alternative]) -> usize {
    let active = alternatives
        .iter()
        .enumerate()
        .filter(|(_, a)| a.is_active());
    let best = active.min_by_key(|(i, a)| (a.median().unwrap_or(Duration::MAX), *i));
    best.map_or(0, |(i, _)| i)
}

/// Whether a round begins with the last alternative (the sequence of Thue and Morse). Callers take turns, too: layers of a
/// model that share a selector come in the same order in each inference. So no alternative always meets the same layer.
fn is_backward(round: usize) -> bool {
    round.count_ones() % 2 == 1
}

/// The active alternative of the least deciding time, the first of equal ones; the default unless the gain
/// is as large as asked.
fn choice(alternatives: &[Alternative], options: &Options) -> usize {
    let times = alternatives.iter().enumerate();
    let times = times.filter(|(_, a)| a.is_active());
    let times = times.filter_map(|(i, a)| Some((a.deciding_time(options)?, i)));
    let default = alternatives
        .iter()
        .position(|a| a.status != Status::NotApplicable);
    let of_default = times.clone().find(|(_, i)| Some(*i) == default);
    match (times.min(), of_default) {
        (Some((best, _)), Some((time, default)))
            if best.as_secs_f64() > (1.0 - options.margin) * time.as_secs_f64() =>
        {
            default
        }
        (Some((_, best)), _) => best,
        (None, _) => leader(alternatives),
    }
}
