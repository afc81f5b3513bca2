//! The selector: functions, options, and how calls are made.

use crate::decisions::Decisions;
use crate::entry::{Assignment, Entry, Purpose, UNDECIDED};
use crate::nest::{self, Entered};
use crate::report::{KeyReport, Report, Status};
use crate::table::Table;
use std::cell::Cell;
use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

static ENABLED: AtomicBool = AtomicBool::new(true);
/// One call in so many is timed after the decision, if decisions are watched.
const WATCH_ONE_IN: u32 = 16;

thread_local! {
    /// Numbers that look random say which calls are timed, so that no pattern of calls hides one.
    static DRAWS: Cell<u32> = const { Cell::new(0x9e37_79b9) };
}

/// Whether this call is one of those that are timed after the decision.
fn is_drawn() -> bool {
    // Marsaglia's xorshift.
    let mut x = DRAWS.get();
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    DRAWS.set(x);
    x.is_multiple_of(WATCH_ONE_IN)
}

/// Turns all selectors on or off. While they are off, default alternatives run and nothing is timed.
pub fn set_enabled(on: bool) {
    ENABLED.store(on, Ordering::Relaxed);
}

/// Whether selectors select.
pub fn is_enabled() -> bool {
    ENABLED.load(Ordering::Relaxed)
}

/// When alternatives are compared, pruned and chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Samples of each alternative before the decision; at least 1.
    pub rounds: usize,
    /// An alternative whose median is over so many times the best is dropped early; above 1.
    pub prune_speedup: f64,
    /// Complete rounds before that.
    pub prune_after: usize,
    /// Drops an alternative as soon as its times show that it has lost, at any moment of a round. A first call drops
    /// it if that took over 2.5 times the least median and 3 ms more, in which another program may have run
    /// ([`Circumstances::uninterrupted`]). 1.6 times are enough if its memory was there ([`Circumstances::warm`]). Then all its calls have to take over 1.3, 1.15, 1.1 and 1.05 times the least
    /// median, where 2, 3, 4 and more calls were timed.
    pub early: bool,
    /// The first alternative that applies is the default. It stays unless another takes less by this
    /// share: 0.05 keeps a default that is 4% slower.
    pub margin: f64,
    /// Opens a decision again when the running median of its times has changed by more than this
    /// share; none to watch nothing.
    pub drift: Option<f64>,
}

impl Default for Options {
    /// As in the paper.
    fn default() -> Options {
        Options {
            rounds: 10,
            prune_speedup: 10.0,
            prune_after: 4,
            early: false,
            margin: 0.0,
            drift: None,
        }
    }
}

impl Options {
    /// As in the paper, but what has lost is dropped early, and the default stays unless the least time of another
    /// is 5% less. For routines of which one call costs enough to matter, and takes as long as the last one.
    ///
    /// A call also changes what caches hold, and so the time of what runs next. A smaller difference may be lost there.
    pub fn early() -> Options {
        Options {
            early: true,
            margin: 0.05,
            ..Options::default()
        }
    }
}

/// Why a selector cannot be made.
#[derive(Clone, Debug, PartialEq)]
pub enum Unfit {
    NoAlternatives,
    /// Two alternatives have this name.
    NameTwice(String),
    /// No rounds.
    Rounds,
    /// A pruning speed-up that is not above 1.
    PruneSpeedup(f64),
    /// A margin that is no share from 0 to below 1, or a band that is not above 0.
    Share(f64),
    /// A group without stages.
    Stages,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::NoAlternatives => write!(f, "there are no alternatives; give one at least"),
            Unfit::NameTwice(name) => {
                write!(f, "two alternatives are called `{name}`; names must differ")
            }
            Unfit::Rounds => write!(f, "rounds is 0; give 1 or more"),
            Unfit::PruneSpeedup(v) => write!(f, "prune_speedup is {v}; give more than 1"),
            Unfit::Share(v) => write!(
                f,
                "{v} is no share; a margin is from 0 to below 1, a band is above 0"
            ),
            Unfit::Stages => write!(f, "a group has no stages; give 1 or more"),
        }
    }
}

impl std::error::Error for Unfit {}

type Applies<K> = Box<dyn Fn(&K) -> bool + Send + Sync>;
type Clock = Box<dyn Fn() -> Duration + Send + Sync>;

/// Chooses among alternatives of one type `F`, for each problem size of type `K`.
///
/// `F` is whatever a call needs: a function pointer, a boxed closure, or a struct with the functions of
/// a group.
pub struct BestOf<K, F> {
    name: String,
    names: Vec<String>,
    functions: Vec<F>,
    stages: usize,
    options: Options,
    applies: Vec<Option<Applies<K>>>,
    synchronise: Option<Box<dyn Fn() + Send + Sync>>,
    clock: Clock,
    known: OnceLock<Arc<Decisions>>,
    table: Table<K, Entry>,
}

/// A set of stages that one alternative runs: from [`BestOf::first`] to the last [`BestOf::stage`].
///
/// A ticket that is dropped before all its stages ran counts as no sample.
pub struct Ticket {
    entry: Arc<Entry>,
    assignment: Assignment,
    spent: Duration,
    /// An undecided selector ran inside.
    disturbed: bool,
    /// Another call was timed at the same time.
    overlapped: bool,
    /// Whether the first stage may be timed.
    entered: bool,
    /// Stages that ran.
    done: Vec<bool>,
    over: bool,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.entered {
            self.entry.leave();
        }
        if !self.over {
            self.entry.abandon(self.assignment);
        }
    }
}

/// Whether this thread may time a call now, and what is to be learnt of it.
fn begun(entry: &Entry) -> (bool, Assignment) {
    match entry.enter() {
        true => (true, entry.assign()),
        false => (false, entry.follow()),
    }
}

/// A call that [`BestOf::begin`] began. Dropping it counts as no sample.
pub struct Begun {
    alternative: usize,
    /// What has to be told of; none if the call need not be timed.
    entry: Option<(Arc<Entry>, Assignment)>,
}

impl Begun {
    /// The position of the alternative that runs.
    pub fn alternative(&self) -> usize {
        self.alternative
    }

    /// Whether the time of the call is wanted. A decided call needs no clock.
    pub fn is_timed(&self) -> bool {
        self.entry.is_some()
    }

    /// Adds selectors that ran inside.
    pub(crate) fn add_children(&self, children: Vec<String>) {
        if let Some((entry, _)) = &self.entry {
            entry.add_children(children);
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if let Some((entry, assignment)) = self.entry.take() {
            entry.abandon(assignment);
            entry.leave();
        }
    }
}

/// What is known of a timed call beside its time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Circumstances {
    /// An undecided selector ran inside. Such a call is no sample.
    pub disturbed: bool,
    /// Nothing else ran on the processors of the call while it ran. Then one call is enough to drop what is slow.
    pub uninterrupted: bool,
    /// The memory of the call was there, as it is in later calls.
    pub warm: bool,
    /// For a selector inside of an alternative of another one: the least median of the outer one's other
    /// alternatives. With [`Options::early`] what is far slower than that is dropped as well. The last alternative stays,
    /// and the outer selector judges it. A decision that is made so is not saved.
    pub rival: Option<Duration>,
}

/// Ends a timed call that did not return.
struct Timed<'a> {
    entry: &'a Entry,
    assignment: Option<Assignment>,
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        if let Some(assignment) = self.assignment {
            self.entry.abandon(assignment);
        }
        self.entry.leave();
    }
}

impl<K: Hash + Eq + Clone + fmt::Debug, F> BestOf<K, F> {
    /// A selector; the first alternative is the default.
    ///
    /// # Errors
    /// If there is no alternative, two have one name, or an option is out of its range.
    pub fn new<N: Into<String>>(
        name: &str,
        alternatives: impl IntoIterator<Item = (N, F)>,
        options: Options,
    ) -> Result<BestOf<K, F>, Unfit> {
        let (names, functions): (Vec<String>, Vec<F>) =
            alternatives.into_iter().map(|(n, f)| (n.into(), f)).unzip();
        if functions.is_empty() {
            return Err(Unfit::NoAlternatives);
        }
        if let Some(twice) = (1..names.len()).find(|i| names[..*i].contains(&names[*i])) {
            return Err(Unfit::NameTwice(names[twice].clone()));
        }
        if options.rounds == 0 {
            return Err(Unfit::Rounds);
        }
        if options.prune_speedup.is_nan() || options.prune_speedup <= 1.0 {
            return Err(Unfit::PruneSpeedup(options.prune_speedup));
        }
        if !(0.0..1.0).contains(&options.margin) {
            return Err(Unfit::Share(options.margin));
        }
        if let Some(band) = options.drift.filter(|b| b.is_nan() || *b <= 0.0) {
            return Err(Unfit::Share(band));
        }
        let begin = Instant::now();
        Ok(BestOf {
            name: name.into(),
            applies: names.iter().map(|_| None).collect(),
            names,
            functions,
            stages: 1,
            options,
            synchronise: None,
            clock: Box::new(move || begin.elapsed()),
            known: OnceLock::new(),
            table: Table::new(),
        })
    }

    /// A group: each alternative has so many stages that are chosen together.
    ///
    /// # Errors
    /// If there are none.
    pub fn stages(mut self, stages: usize) -> Result<BestOf<K, F>, Unfit> {
        self.stages = stages;
        match stages {
            0 => Err(Unfit::Stages),
            _ => Ok(self),
        }
    }

    /// An alternative is tried only for problem sizes that it applies to. No alternative of that name
    /// changes nothing.
    #[must_use]
    pub fn only_if(
        mut self,
        alternative: &str,
        applies: impl Fn(&K) -> bool + Send + Sync + 'static,
    ) -> Self {
        if let Some(at) = self.names.iter().position(|n| n == alternative) {
            self.applies[at] = Some(Box::new(applies));
        }
        self
    }

    /// Called before each reading of the clock in a timed call: waits for a device that works on its own.
    #[must_use]
    pub fn synchronised_by(mut self, wait: impl Fn() + Send + Sync + 'static) -> Self {
        self.synchronise = Some(Box::new(wait));
        self
    }

    /// Another clock than the system's: the time since any fixed moment.
    #[must_use]
    pub fn timed_by(mut self, clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// Problem sizes that these decisions know start decided.
    #[must_use]
    pub fn starting_from(mut self, known: Arc<Decisions>) -> Self {
        self.known = OnceLock::from(known);
        self
    }

    /// As [`BestOf::starting_from`], for problem sizes that have not been met. False if the selector has
    /// decisions to start from already: these stay.
    pub fn start_from(&self, known: Arc<Decisions>) -> bool {
        self.known.set(known).is_ok()
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many there are to choose among.
    pub fn alternatives(&self) -> usize {
        self.names.len()
    }

    /// The name of the alternative that was decided on; none while alternatives are tried.
    pub fn decision(&self, key: &K) -> Option<&str> {
        let at = self.decided_position(key)?;
        self.names.get(at).map(String::as_str)
    }

    /// The position of the alternative that was decided on; of a problem size that was not met, what is known from before.
    pub fn decided_position(&self, key: &K) -> Option<usize> {
        let Some(entry) = self.table.get(key) else {
            return self.known_position(key, &format!("{key:?}"));
        };
        let decided = entry.decided();
        (decided != UNDECIDED).then_some(decided)
    }

    /// What decisions of earlier runs say of a problem size, whose text this is.
    fn known_position(&self, key: &K, text: &str) -> Option<usize> {
        let known = self.known.get()?.get(&self.name, text)?;
        let at = self.names.iter().position(|n| n == known)?;
        let applies = self.applies[at].as_ref();
        applies.is_none_or(|a| a(key)).then_some(at)
    }

    /// Runs the routine: `run` gets the alternative that is to be called. Groups are called by
    /// [`BestOf::first`].
    pub fn call<R>(&self, key: &K, run: impl FnOnce(&F) -> R) -> R {
        self.call_at(self.entry(key), |_, f| run(f))
    }

    /// As [`BestOf::call`]; `run` gets the position of the alternative as well. Values of `F` may have no size, and
    /// then their addresses do not tell them apart.
    fn call_at<R>(&self, entry: &Arc<Entry>, run: impl FnOnce(usize, &F) -> R) -> R {
        let decided = entry.decided();
        if decided != UNDECIDED && self.options.drift.is_none() && is_enabled() {
            return run(decided, &self.functions[decided]);
        }
        self.slowly(entry, run)
    }

    #[inline(never)]
    fn slowly<R>(&self, entry: &Arc<Entry>, run: impl FnOnce(usize, &F) -> R) -> R {
        if !is_enabled() {
            let first = entry.first_applicable();
            return run(first, &self.functions[first]);
        }
        let decided = entry.decided();
        if decided != UNDECIDED {
            return self.watched(entry, decided, |f| run(decided, f));
        }
        debug_assert_eq!(self.stages, 1, "a group is called by its stages");
        let mut ticket = self.ticket(entry);
        let at = ticket.assignment.alternative;
        self.staged(&mut ticket, 0, |f| run(at, f))
    }

    /// As [`BestOf::call`] of alternatives that may fail. One that returns an error is dropped for this
    /// problem size, and the next one runs.
    ///
    /// # Errors
    /// That of the last alternative, if all fail.
    pub fn try_call<R, E>(&self, key: &K, mut run: impl FnMut(&F) -> Result<R, E>) -> Result<R, E> {
        let entry = self.entry(key);
        loop {
            let mut used = 0;
            let result = self.call_at(entry, |at, f| {
                used = at;
                run(f)
            });
            let Err(error) = result else {
                return result;
            };
            if !entry.drop_alternative(used, Status::Failed, &self.options) {
                return Err(error);
            }
        }
    }

    /// As [`BestOf::call`], and the first output of each alternative is compared with that of the default.
    /// An alternative that does not agree is dropped for this problem size, and the default's
    /// output is given.
    pub fn call_checked<R>(
        &self,
        key: &K,
        mut run: impl FnMut(&F) -> R,
        agree: impl Fn(&R, &R) -> bool,
    ) -> R {
        let entry = self.entry(key);
        if entry.decided() != UNDECIDED || !is_enabled() {
            return self.call(key, run);
        }
        let mut ticket = self.ticket(entry);
        let of = ticket.assignment;
        let result = self.staged(&mut ticket, 0, &mut run);
        let default = entry.first_applicable();
        if of.purpose != Purpose::WarmUp || of.alternative == default {
            return result;
        }
        let expected = run(&self.functions[default]);
        if agree(&expected, &result) {
            return result;
        }
        entry.drop_alternative(of.alternative, Status::Disagrees, &self.options);
        expected
    }

    /// The first stage of a group. The ticket binds the later stages to the same alternative.
    pub fn first<R>(&self, key: &K, run: impl FnOnce(&F) -> R) -> (R, Ticket) {
        let entry = self.entry(key);
        let mut ticket = match (is_enabled(), entry.decided()) {
            (false, _) => self.bound(entry, entry.first_applicable()),
            (true, UNDECIDED) => self.ticket(entry),
            (true, decided) => self.bound(entry, decided),
        };
        let result = self.staged(&mut ticket, 0, run);
        (result, ticket)
    }

    /// A later stage of a group, from 1. A stage that runs twice, or that the group does not have, makes
    /// the set count as no sample.
    pub fn stage<R>(&self, stage: usize, ticket: &mut Ticket, run: impl FnOnce(&F) -> R) -> R {
        self.staged(ticket, stage, run)
    }

    /// Begins a call that the caller times itself: which alternative runs, and what has to be told of it.
    /// For callers that cannot run inside of a closure, such as interpreters.
    pub fn begin(&self, key: &K) -> Begun {
        let entry = self.entry(key);
        let of = |alternative| Begun {
            alternative,
            entry: None,
        };
        if !is_enabled() {
            return of(entry.first_applicable());
        }
        match entry.decided() {
            UNDECIDED => nest::disturb(&|| format!("{} {}", self.name, entry.key)),
            decided => return of(decided),
        }
        let (entered, assignment) = begun(entry);
        if assignment.purpose == Purpose::Nothing {
            if entered {
                entry.leave();
            }
            return of(assignment.alternative);
        }
        Begun {
            alternative: assignment.alternative,
            entry: Some((entry.clone(), assignment)),
        }
    }

    /// Ends a call that was begun: how long it took, and whether an undecided selector ran inside. Such a call
    /// is no sample, as if it had been made by [`BestOf::call`].
    pub fn finish(&self, begun: Begun, took: Duration, disturbed: bool) {
        let how = Circumstances {
            disturbed,
            ..Circumstances::default()
        };
        self.finish_under(begun, took, how);
    }

    /// As [`BestOf::finish`], if more is known of the call.
    pub fn finish_under(&self, mut begun: Begun, took: Duration, how: Circumstances) {
        if let Some((entry, assignment)) = begun.entry.take() {
            entry.conclude(assignment, took, how, &self.options);
            entry.leave();
        }
    }

    /// The alternative at a position failed: it is dropped for this problem size. False if no other is left.
    pub fn fail(&self, key: &K, position: usize) -> bool {
        let entry = self.entry(key);
        entry.drop_alternative(position, Status::Failed, &self.options)
    }

    /// Tries alternatives again that were dropped for an outer selector's [`Circumstances::rival`], as the rival is gone.
    /// False if there are none.
    pub fn reopen_conceded(&self, key: &K) -> bool {
        self.entry(key).reopen_conceded(&self.options)
    }

    /// What the alternative at a position runs has changed: its times are forgotten, and it is tried again.
    pub fn retry(&self, key: &K, position: usize) {
        self.entry(key).retry(position, &self.options);
    }

    /// The alternative that a ticket is bound to.
    pub fn alternative_of(&self, ticket: &Ticket) -> &str {
        &self.names[ticket.assignment.alternative]
    }

    /// The problem sizes that were met, in no order.
    pub fn keys(&self) -> Vec<K> {
        self.table.iter().map(|(k, _)| k.clone()).collect()
    }

    /// The median of every alternative for a problem size, as far as it was tried.
    pub fn medians(&self, key: &K) -> Vec<Option<Duration>> {
        match self.table.get(key) {
            Some(entry) => entry.medians(),
            None => vec![None; self.names.len()],
        }
    }

    /// What was found so far.
    pub fn report(&self) -> Report {
        let one = |(_, entry): (&K, &Arc<Entry>)| {
            let (alternatives, children, reopened) = entry.report(&self.names);
            let decided = self.names.get(entry.decided()).cloned();
            KeyReport {
                key: entry.key.clone(),
                known: decided.is_some() && entry.known,
                decided,
                reopened,
                alternatives,
                children,
            }
        };
        let mut keys: Vec<KeyReport> = self.table.iter().map(one).collect();
        keys.sort_by(|a, b| a.key.cmp(&b.key));
        Report {
            name: self.name.clone(),
            keys,
        }
    }

    /// Adds the decisions made so far. One that was known from before, and was not made anew, keeps what it
    /// rests on.
    pub fn save(&self, into: &mut Decisions) {
        for (_, entry) in self.table.iter() {
            let Some(name) = self.names.get(entry.decided()) else {
                continue;
            };
            if entry.has_conceded() {
                continue;
            }
            let (samples, median) = entry.evidence();
            match self.known.get() {
                Some(known) if samples == 0 => into.put_as(known, &self.name, &entry.key),
                _ => into.put(&self.name, &entry.key, name, samples as u64, median),
            }
        }
    }

    fn entry(&self, key: &K) -> &Arc<Entry> {
        self.table.get_or_insert(key, || {
            let applies = self
                .applies
                .iter()
                .map(|a| a.as_ref().is_none_or(|a| a(key)));
            let mut applies: Vec<bool> = applies.collect();
            // Something has to run.
            if !applies.contains(&true) {
                applies[0] = true;
            }
            let text = format!("{key:?}");
            let known = self.known_position(key, &text);
            Entry::new(text, applies, known)
        })
    }

    /// A ticket for what is to be learnt next; for nothing if another call is being timed: both would
    /// be slower than they are.
    fn ticket(&self, entry: &Arc<Entry>) -> Ticket {
        let (entered, assignment) = begun(entry);
        let mut ticket = self.bound(entry, assignment.alternative);
        (ticket.assignment, ticket.entered) = (assignment, entered);
        ticket
    }

    /// A ticket for an alternative of which nothing is to be learnt.
    fn bound(&self, entry: &Arc<Entry>, alternative: usize) -> Ticket {
        Ticket {
            entry: entry.clone(),
            assignment: Assignment {
                alternative,
                purpose: Purpose::Nothing,
            },
            spent: Duration::ZERO,
            disturbed: false,
            overlapped: false,
            entered: false,
            done: vec![false; self.stages],
            over: false,
        }
    }

    /// Runs one stage of a ticket, timed if it is to be counted.
    fn staged<R>(&self, ticket: &mut Ticket, stage: usize, run: impl FnOnce(&F) -> R) -> R {
        let f = &self.functions[ticket.assignment.alternative];
        let entry = ticket.entry.clone();
        if entry.decided() == UNDECIDED && is_enabled() {
            nest::disturb(&|| format!("{} {}", self.name, entry.key));
        }
        let counted = !ticket.over && ticket.assignment.purpose != Purpose::Nothing;
        let entered = std::mem::take(&mut ticket.entered) || (counted && entry.enter());
        if !entered {
            ticket.overlapped = true;
            let result = run(f);
            self.stage_done(ticket, stage);
            return result;
        }
        // Until the call has returned, the guard gives back what was assigned.
        let over = std::mem::replace(&mut ticket.over, true);
        let mut guard = Timed {
            entry: &entry,
            assignment: counted.then_some(ticket.assignment),
        };
        let frame = Entered::new();
        let begin = self.now();
        let result = run(f);
        let took = self.now().saturating_sub(begin);
        ticket.disturbed |= frame.is_disturbed();
        entry.add_children(frame.children());
        drop(frame);
        guard.assignment = None;
        drop(guard);
        ticket.over = over;
        ticket.spent += took;
        self.stage_done(ticket, stage);
        result
    }

    /// Notes that a stage ran; the last one concludes the set.
    fn stage_done(&self, ticket: &mut Ticket, stage: usize) {
        if ticket.over {
            return;
        }
        let balanced = match ticket.done.get_mut(stage) {
            Some(done) => !std::mem::replace(done, true),
            None => false,
        };
        let (entry, of) = (&ticket.entry, ticket.assignment);
        if !balanced {
            entry.abandon(of);
            ticket.over = true;
        } else if ticket.done.iter().all(|d| *d) {
            match ticket.overlapped {
                true => entry.abandon(of),
                false => {
                    let how = Circumstances {
                        disturbed: ticket.disturbed,
                        ..Circumstances::default()
                    };
                    entry.conclude(of, ticket.spent, how, &self.options);
                }
            }
            ticket.over = true;
        }
    }

    fn watched<R>(&self, entry: &Entry, decided: usize, run: impl FnOnce(&F) -> R) -> R {
        let Some(band) = self.options.drift.filter(|_| is_drawn()) else {
            return run(&self.functions[decided]);
        };
        let frame = Entered::new();
        let begin = self.now();
        let result = run(&self.functions[decided]);
        let took = self.now().saturating_sub(begin);
        if !frame.is_disturbed() {
            entry.watch(decided, took, band);
        }
        result
    }

    pub(crate) fn now(&self) -> Duration {
        if let Some(wait) = &self.synchronise {
            wait();
        }
        (self.clock)()
    }
}
