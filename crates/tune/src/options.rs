//! What a run is told.

use crate::energy::{Account, Stage};
use crate::error::{Error, Result, no_such};
use crate::evaluator::MeasureSettings;
use crate::filter::ColdRule;
use crate::filter::filter_names;
use crate::filter::trained::Trained;
use crate::knobs::{columns_bytes, knob, number};
use crate::known::Requirements;
use crate::objective::Objective;
use crate::scorer::Simulator;
use analysis::Score;
use measure::energy::PowerCurve;
use measure::{Constants, Policy};
use search::{Accuracy, Allowed, Learner, SpaceKind, SurveyRule};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use worker::Stop;

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StopRule {
    Time(Duration),
    /// Candidates tried, over all tasks: those that were executed, and those that could not be
    /// built. Candidates that were dropped by filters, or whose outcome is known, do not count.
    Trials(u64),
    /// Joules of the whole command, by [`Options::energy`].
    Energy(f64),
}

/// How CPUs are to be divided between kernels and builders; none for what the machine suggests.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuDivision {
    /// Builders run while a candidate is measured.
    pub overlap: Option<bool>,
    pub builders: Option<usize>,
    pub policy: Option<Policy>,
}

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// When the command began; a budget of time counts from here.
    pub begun: Instant,
    pub stop: StopRule,
    /// Asks the run to end before: it ranks what it knows, and gives the best model of that.
    pub interrupt: Stop,
    /// Counts the joules of the run, if they are counted.
    pub energy: Option<Arc<Account>>,
    pub strategy: String,
    /// Whether searches begin with a random point of each sketch in place of its default.
    pub start_random: bool,
    /// Whether models of strategies know what lowered programs tell, and not decisions only.
    pub learn_loops: bool,
    /// What models of strategies are made of.
    pub learner: Learner,
    /// How trials are divided between tasks, by name: one of [`search::BUDGETS`].
    pub budget: String,
    /// When a run with the budget `survey` goes on.
    pub survey: SurveyRule,
    /// Strategies that tune each model side by side, if there are several: the best one's result counts.
    pub tuners: Vec<String>,
    /// What several models are tuned for together.
    pub objective: Objective,
    /// Times of the kernels of the first requested models after which a model counts nothing, as long as others take
    /// longer than wanted.
    pub wanted_ns: Vec<f64>,
    /// What candidates pass before they are measured, by name and in this order: of
    /// [`crate::filter::FILTERS`].
    pub filters: Vec<String>,
    /// The network of the filter `cold`, if one was trained before.
    pub cold: Option<Arc<Trained>>,
    /// What it has dropped.
    pub cold_rule: ColdRule,
    /// Answers of a search that it waits for; none for its own default.
    pub cold_least: Option<usize>,
    /// Share of candidates that the filter `chance` drops.
    pub chance: f64,
    /// Share of what filters drop that is evaluated all the same, so that the report can say how often they are right.
    pub audit: f64,
    pub seed: u64,
    /// Builders run while a candidate is measured.
    pub overlap: bool,
    pub builders: usize,
    /// The CPUs of each set that candidates are measured on at the same time; none to measure on all CPUs.
    pub core_sets: Vec<Vec<usize>>,
    /// Constants rotate through copies larger than the last-level cache.
    pub rotate: bool,
    /// What candidates may be, and how far their outputs may be off (relative, L2).
    pub accuracy: Accuracy,
    /// Whose sketches are searched and used.
    pub space: SpaceKind,
    /// Prefixes of the names of sketches to search; all if there are none.
    /// A task without such a sketch is searched whole.
    pub algorithms: Vec<String>,
    pub tolerance: f64,
    pub build_limit: Duration,
    pub run_limit: Duration,
    pub measure: MeasureSettings,
    /// Share by which the CPU's speed may change before the run warns of it.
    pub drift: f64,
    /// Share of a task's trials that is ranked alone in the end.
    pub rank: f64,
    /// The model is also run under plain schedules, which show what any tuning gains.
    pub plain: bool,
    /// Time for choosing among finalists by whole-model latency.
    pub in_model: Duration,
    /// Time for reading candidates of all models before any is measured, of which each model has its
    /// part; those that are predicted to be the fastest are measured first.
    pub reading: Duration,
    /// The processor whose cycles scores count, by LLVM's name; the target's usual one if none.
    pub score_cpu: Option<String>,
    /// What each count of a score costs.
    pub rates: Score,
    /// The simulator whose counts are the scores; none for predicted cycles.
    pub simulator: Option<Simulator>,
    /// Time for comparing the tuned model with the defaults.
    pub comparing: Duration,
    /// Kernels that the model keeps for each step, at most: the chosen one, then finalists, which may be
    /// chosen among while the model runs.
    pub alternatives: usize,
    /// Room for the columns that convolutions of a training step may keep as one of these.
    pub columns_bytes: u64,
}

/// Most time for the choices inside the model by default, and that time where the budget is one
/// of trials.
const IN_MODEL_MOST: Duration = Duration::from_secs(30);
const IN_MODEL_TRIALS: Duration = Duration::from_secs(3);

/// Most time for reading candidates by default.
const READING_MOST: Duration = Duration::from_secs(10);

/// Time in which so many CPUs of a usual machine use these joules, if all of them are busy.
fn least_time(joules: f64, cpus: usize) -> Duration {
    let [curve, _] = PowerCurve::usual(cpus);
    Duration::try_from_secs_f64(joules / curve.full_w()).unwrap_or(Duration::MAX)
}

/// A rule as flags give it.
fn survey_text(rule: &SurveyRule) -> String {
    let SurveyRule {
        trials,
        phi,
        patience,
        misses,
    } = rule;
    format!("trials={trials},phi={phi},patience={patience},misses={misses}")
}

impl Options {
    /// The defaults of [`crate::knobs`], for kernels of so many threads on a machine with so many
    /// CPUs; time counts from now.
    pub fn new(cpus: usize, threads: u32, stop: StopRule) -> Options {
        let text = |name: &str| knob(name).default.to_string();
        let seconds = |name: &str| {
            let text = knob(name).default.trim_end_matches('s');
            let seconds = text.parse().ok().map(Duration::from_secs);
            seconds.unwrap_or_else(|| panic!("the default of --{name} is in seconds"))
        };
        let requirements = Requirements::of_knobs();
        let time = match stop {
            StopRule::Time(time) => Some(time),
            StopRule::Energy(joules) => Some(least_time(joules, cpus)),
            StopRule::Trials(_) => None,
        };
        let mut options = Options {
            begun: Instant::now(),
            stop,
            interrupt: Stop::default(),
            energy: None,
            strategy: text("strategy"),
            start_random: knob("start").default == "random",
            learn_loops: knob("learn-loops").default == "on",
            learner: Learner::of_name(knob("learner").default).expect("the default is a learner"),
            budget: text("budget"),
            survey: SurveyRule::PAPER,
            tuners: vec![],
            objective: Objective::of_name(knob("objective").default)
                .expect("the default is an objective"),
            wanted_ns: vec![],
            filters: vec![],
            cold: None,
            cold_rule: ColdRule::parse(knob("cold-rule").default).expect("the default is a rule"),
            cold_least: None,
            chance: number(knob("chance")),
            audit: number(knob("audit")),
            seed: number(knob("seed")),
            overlap: false,
            builders: 1,
            core_sets: vec![],
            rotate: knob("rotate").default == "on",
            accuracy: requirements.accuracy,
            space: requirements.space,
            algorithms: vec![],
            tolerance: requirements.tolerance,
            build_limit: seconds("build-limit"),
            run_limit: seconds("run-limit"),
            measure: MeasureSettings {
                policy: Policy::Serial,
                batch: number(knob("measure-batch")),
                devices: number(knob("devices")),
                core_set: vec![],
                oversubscribe: number(knob("oversubscribe")),
                constants: Constants::PAPER,
                lose: number(knob("lose")),
            },
            drift: number(knob("drift")),
            rank: number(knob("rank")),
            plain: knob("plain").default == "on",
            comparing: seconds("compare-time"),
            alternatives: number(knob("keep-alternatives")),
            columns_bytes: columns_bytes(),
            in_model: time.map_or(IN_MODEL_TRIALS, |t| (t / 10).min(IN_MODEL_MOST)),
            reading: time.map_or(Duration::ZERO, |t| (t / 10).min(READING_MOST)),
            score_cpu: None,
            rates: Score::USUAL,
            simulator: None,
        };
        options.divide_cpus(cpus, threads, CpuDivision::default());
        options
    }

    /// What kernels must keep to.
    pub fn requirements(&self) -> Requirements {
        Requirements {
            accuracy: self.accuracy,
            space: self.space,
            tolerance: self.tolerance,
        }
    }

    /// Which candidates are searched.
    pub fn allowed(&self) -> Allowed {
        self.requirements().allowed()
    }

    /// Divides the CPUs between kernels and builders; what is not given follows their number. Each core set has a kernel.
    pub fn divide_cpus(&mut self, cpus: usize, threads: u32, asked: CpuDivision) {
        let kernels = self.core_sets.len().max(1);
        let left = cpus.saturating_sub(kernels * threads as usize);
        self.overlap = asked.overlap.unwrap_or(left > 0);
        let spare = if self.overlap { left } else { cpus };
        self.builders = asked.builders.unwrap_or(spare).max(1);
        // Side by side where no builder needs the CPUs that a kernel leaves.
        let doppler = kernels == 1 && !self.overlap && left >= threads as usize;
        self.measure.policy = asked.policy.unwrap_or(match doppler {
            true => Policy::Doppler,
            false => Policy::Serial,
        });
    }

    /// Checks names that are given as text.
    ///
    /// # Errors
    /// If there is no such strategy, budget or filter, or a budget of energy and nothing that
    /// counts it.
    pub fn check(&self) -> Result<()> {
        if let (StopRule::Energy(_), None) = (self.stop, &self.energy) {
            return Err(
                Error::new("the run is to end by its energy, which nothing counts")
                    .help("set `energy` of the options to an account"),
            );
        }
        let known = |kind: &str, name: &String, all: &[&str]| match all.contains(&name.as_str()) {
            true => Ok(()),
            false => Err(no_such(kind, name, all)),
        };
        known("strategy", &self.strategy, &search::strategy_names())?;
        if self.tuners.len() == 1 {
            return Err(
                Error::new("one tuner has no others beside it").help("name it as the strategy")
            );
        }
        for (i, tuner) in self.tuners.iter().enumerate() {
            known("strategy", tuner, &search::strategy_names())?;
            if self.tuners[..i].contains(tuner) {
                return Err(Error::new(format!("the tuner `{tuner}` is named twice"))
                    .help("name each once: two of a name and seed ask for the same candidates"));
            }
        }
        self.check_core_sets()?;
        self.check_models()?;
        known("budget", &self.budget, &search::budget_names())?;
        let mut filters = self.filters.iter();
        filters.try_for_each(|name| known("filter", name, &filter_names()))
    }

    /// Refuses core sets where nothing would use several, or where candidates are to be alone.
    fn check_core_sets(&self) -> Result<()> {
        if self.core_sets.is_empty() {
            return Ok(());
        }
        let policy = self.measure.policy;
        if policy.is_parallel() {
            let why = format!(
                "the policy {} measures side by side by itself, and again alone, which core sets do not allow",
                policy.name()
            );
            return Err(Error::new(why).help("use the policy serial, or one set of all CPUs"));
        }
        if self.tuners.is_empty() && self.budget != "survey" {
            let why = format!(
                "the budget {} asks one task at a time, which leaves all core sets but one idle",
                self.budget
            );
            let help = "use the budget survey, or several tuners, or one set of all CPUs";
            return Err(Error::new(why).help(help));
        }
        Ok(())
    }

    /// Refuses settings of models for strategies none of which has any.
    fn check_models(&self) -> Result<()> {
        let fits = |name: &str| search::strategy(name, 0).is_some_and(|s| s.learned().is_some());
        let strategies = match self.tuners.is_empty() {
            true => std::slice::from_ref(&self.strategy),
            false => &self.tuners[..],
        };
        let default = knob("learner").default;
        let what = match (self.learn_loops, self.learner.name()) {
            (true, _) => "learn-loops".to_string(),
            (false, name) if name != default => format!("the learner `{name}`"),
            _ => return Ok(()),
        };
        if strategies.iter().any(|name| fits(name)) {
            return Ok(());
        }
        let names = search::strategy_names();
        let fitting: Vec<&str> = names.into_iter().filter(|name| fits(name)).collect();
        let why = format!(
            "{what} has no effect with the strategy {}, which fits no such model to answers",
            strategies.join(", ")
        );
        Err(Error::new(why).help(format!(
            "leave it out, or use one of: {}",
            fitting.join(", ")
        )))
    }

    /// From here on the joules are those of another stage.
    pub fn enter(&self, stage: Stage) {
        if let Some(account) = &self.energy {
            account.enter(stage);
        }
    }

    /// What a run with kernels of so many threads was started with, for the store.
    pub fn stored(&self, threads: u32) -> Value {
        // Without `..`, so that a new setting is recorded or left out on purpose.
        let Options {
            overlap,
            builders,
            core_sets,
            rotate,
            measure,
            rank,
            drift,
            accuracy,
            space,
            tolerance,
            budget,
            survey,
            tuners,
            objective,
            wanted_ns,
            filters,
            chance,
            audit,
            cold,
            cold_rule,
            cold_least,
            learn_loops,
            learner,
            start_random,
            // The run has these in fields of its own.
            begun: _,
            strategy: _,
            seed: _,
            // A candidate's time is the same under all of them.
            stop: _,
            interrupt: _,
            energy: _,
            plain: _,
            algorithms: _,
            build_limit: _,
            run_limit: _,
            in_model: _,
            // They decide which candidates come first.
            reading: _,
            score_cpu: _,
            rates: _,
            simulator: _,
            comparing: _,
            alternatives: _,
            columns_bytes: _,
        } = self;
        let mut stored = measuring(measure, core_sets);
        let others = json!({
            "threads": threads,
            "overlap": overlap,
            "builders": builders,
            "rotate": rotate,
            "rank": rank,
            "drift": drift,
            "accuracy": accuracy.name(),
            "space": space.name(),
            "tolerance": tolerance,
            "budget": budget,
            "survey": survey_text(survey),
            "tuners": tuners,
            "objective": objective.name(),
            "wanted_ns": wanted_ns,
            "filters": filters,
            "chance": chance,
            "audit": audit,
            "cold_trained": cold.is_some(),
            "cold_rule": cold_rule.to_string(),
            "cold_least": cold_least,
            "learn_loops": learn_loops,
            "learner": learner.name(),
            "start_random": start_random,
        });
        if let (Value::Object(stored), Value::Object(others)) = (&mut stored, others) {
            stored.extend(others);
        }
        stored
    }
}

/// What the store knows of how candidates are measured.
fn measuring(measure: &MeasureSettings, core_sets: &[Vec<usize>]) -> Value {
    let MeasureSettings {
        policy,
        batch: _,
        devices,
        // The run has all sets.
        core_set: _,
        oversubscribe,
        constants,
        lose,
    } = measure;
    let mut stored = json!({
        "measure": policy,
        "measure_batch": measure.batch(),
        "devices": devices,
        "oversubscribe": oversubscribe,
        "doppler": constants,
        "lose": lose,
    });
    // Without sets, runs go on from those of versions that knew none.
    if !core_sets.is_empty() {
        stored["core_sets"] = json!(core_sets);
    }
    stored
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(cpus: usize, threads: u32, overlap: Option<bool>) -> (bool, usize, Policy) {
        let mut options = Options::new(cpus, threads, StopRule::Trials(1));
        let asked = CpuDivision {
            overlap,
            ..CpuDivision::default()
        };
        options.divide_cpus(cpus, threads, asked);
        (options.overlap, options.builders, options.measure.policy)
    }

    #[test]
    fn builders_have_the_cpus_that_kernels_leave() {
        assert_eq!(of(4, 1, None), (true, 3, Policy::Serial));
        assert_eq!(of(4, 4, None), (false, 4, Policy::Serial));
        assert_eq!(of(4, 4, Some(true)), (true, 1, Policy::Serial));
        assert_eq!(of(4, 2, Some(false)), (false, 4, Policy::Doppler));
        assert_eq!(of(4, 3, Some(false)), (false, 4, Policy::Serial));
    }

    #[test]
    fn core_sets_have_a_kernel_each_and_are_for_several_jobs_measured_one_by_one() {
        let of = |cpus: usize, change: fn(&mut Options)| {
            let mut options = Options::new(cpus, 1, StopRule::Trials(1));
            options.core_sets = (0..4).map(|cpu| vec![cpu]).collect();
            options.budget = "survey".into();
            options.divide_cpus(cpus, 1, CpuDivision::default());
            change(&mut options);
            options
        };
        let divided = [4, 6, 16].map(|cpus| {
            let o = of(cpus, |_| {});
            (o.overlap, o.builders, o.measure.policy)
        });
        let serial = Policy::Serial;
        assert_eq!(
            divided,
            [(false, 4, serial), (true, 2, serial), (true, 12, serial)]
        );
        let said = |change| of(4, change).check().err().map(|e| e.to_string());
        assert_eq!(said(|_| {}), None);
        let turns = |o: &mut Options| o.budget = "promise".into();
        assert!(said(turns).unwrap().contains("asks one task at a time"));
        let tuners = |o: &mut Options| {
            o.budget = "promise".into();
            o.tuners = vec!["grid".into(), "random".into()];
        };
        assert_eq!(said(tuners), None);
        let parallel = |o: &mut Options| o.measure.policy = Policy::Doppler;
        assert!(
            said(parallel)
                .unwrap()
                .contains("doppler measures side by side")
        );
        let stored = of(4, |_| {}).stored(1);
        assert_eq!(stored["core_sets"], json!([[0], [1], [2], [3]]));
        let without = of(4, |o| o.core_sets.clear()).stored(1);
        assert!(without.get("core_sets").is_none());
    }

    #[test]
    fn defaults_are_those_of_the_knobs() {
        let time = |s| StopRule::Time(Duration::from_secs(s));
        let options = Options::new(2, 1, time(60));
        assert_eq!(options.in_model, Duration::from_secs(6));
        assert_eq!(Options::new(2, 1, time(6000)).in_model, IN_MODEL_MOST);
        assert_eq!(options.run_limit, Duration::from_secs(10));
        assert!(search::strategy(&options.strategy, 0).is_some());
        assert!(search::budget(&options.budget, options.survey).is_some());
    }

    #[test]
    fn a_budget_of_energy_needs_an_account_and_is_a_time() {
        let mut options = Options::new(2, 1, StopRule::Energy(600.0));
        // Two usual CPUs draw 10 W at most.
        assert_eq!(options.in_model, Duration::from_secs(6));
        let said = options.check().unwrap_err().to_string();
        assert!(said.contains("nothing counts"), "{said}");
        assert_eq!(crate::Clock::of(&options).end(Duration::ZERO), None);
        let account = Account::new(measure::energy::MachineFile::usual(2));
        options.energy = Some(Arc::new(account));
        options.check().unwrap();
        let time = crate::Clock::of(&options).time();
        assert_eq!(time, Some(Duration::from_secs(60)));
    }

    #[test]
    fn tuners_differ_and_one_of_them_reads_programs_where_that_is_asked_for() {
        let of = |tuners: &[&str], strategy: &str, learn_loops| {
            let options = Options {
                tuners: tuners.iter().map(|t| t.to_string()).collect(),
                strategy: strategy.into(),
                learn_loops,
                ..Options::new(2, 1, StopRule::Trials(9))
            };
            options.check().err().map(|e| e.to_string())
        };
        let twice = of(&["grid", "funnel", "grid"], "funnel", false).unwrap();
        assert!(twice.contains("`grid` is named twice"), "{twice}");
        assert_eq!(of(&["grid", "funnel"], "random", true), None);
        assert_eq!(of(&[], "annealing", true), None);
        assert_eq!(of(&[], "reinforcement", true), None);
        for strategy in ["evolutionary", "bayesian", "grid"] {
            assert_eq!(of(&[], strategy, false), None);
            let said = of(&[], strategy, true).unwrap();
            assert!(
                said.contains("no effect") && said.contains(strategy),
                "{said}"
            );
        }
        assert!(of(&["grid", "random"], "funnel", true).is_some());
    }

    #[test]
    fn learners_are_for_strategies_that_fit_models() {
        let of = |strategy: &str, learner| {
            let options = Options {
                strategy: strategy.into(),
                learner,
                ..Options::new(2, 1, StopRule::Trials(9))
            };
            (options.check(), options.stored(1)["learner"].clone())
        };
        for learner in Learner::ALL {
            let (checked, stored) = of("funnel", learner);
            assert!(checked.is_ok(), "{}", learner.name());
            assert_eq!(stored, learner.name());
        }
        assert!(of("grid", Learner::Trees).0.is_ok());
        let said = of("bayesian", Learner::Network).0.unwrap_err().to_string();
        assert!(said.contains("`network` has no effect"), "{said}");
        assert!(said.contains("bayesian"), "{said}");
    }

    #[test]
    fn knobs_list_every_member_of_the_tables() {
        let lists = |knob_name: &str, members: &[&str]| {
            let kind = knob(knob_name).kind;
            let listed = kind.rsplit(" of ").next().unwrap_or(kind);
            assert_eq!(listed, members.join(", "), "--{knob_name}");
        };
        lists("strategy", &search::strategy_names());
        lists("budget", &search::budget_names());
        lists("learner", &Learner::ALL.map(Learner::name));
        lists("objective", &Objective::ALL.map(Objective::name));
        lists("filter", &filter_names());
    }
}
