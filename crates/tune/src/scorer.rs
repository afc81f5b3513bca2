//! What scores are made of: the cycles of which processor and the rates of counts, or what a simulator
//! counts.
//!
//! Promises that evaluators, filters and choosers score alike.

use crate::error::{Error, Result};
use crate::options::Options;
use crate::scored_caches::Caches;
use analysis::{CacheLevel, Score};
use build::{Read, ReadOptions};
use ir::{CpuTarget, Target};
use plan::Task;
use simulate::{
    CacheSetting, External, Geometry, Means, Plugin, Predictor, PredictorError, Sample, Shipped,
    Statistics, Window,
};
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// Scores what builders read.
#[derive(Clone, Debug)]
pub struct Scorer {
    /// The processor whose cycles count, by LLVM's name.
    pub cpu: String,
    /// Its caches; none for those of the target.
    pub levels: Option<[CacheLevel; 3]>,
    /// What each count costs.
    pub rates: Score,
    /// The simulator whose counts are the score; none for predicted cycles.
    pub simulator: Option<Simulator>,
}

/// A simulated processor, and what makes a score of its counts.
#[derive(Clone, Debug)]
pub struct Simulator {
    /// The name of the processor, for people and in the kind of scores.
    pub name: String,
    /// The instruction set of the kernels.
    pub target: String,
    pub caches: CacheSetting,
    pub judge: Judge,
    /// One in so many iterations of outer loops is simulated for all; none for all.
    pub sample_iterations: Option<u32>,
    /// What simulates where data decide which addresses are accessed.
    pub plugin: Option<Plugin>,
    /// The command of the user's that simulates in place of this program.
    pub external: Option<External>,
}

#[derive(Clone, Debug)]
pub enum Judge {
    /// A name of [`simulate::Statistics::named`].
    Count(String),
    /// Which candidates of a task a predictor compares others with.
    Predictor(Arc<Predictor>, Window),
}

/// Candidates of a task whose means a predictor compares a candidate with.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    samples: Vec<Sample>,
    /// The means of all of these, with that of predicted cycles, once they are asked for.
    means: OnceCell<(Means, f64)>,
}

/// The first candidates of a task.
pub const FIRST: Window = Window::Static(64);

impl Simulator {
    /// The count that is the score if nothing else is asked for.
    pub const WEIGHTED: &str = "weighted";

    /// A processor with the caches of a target, whose name it has.
    pub fn of(target: &Target) -> Simulator {
        let Target::Cpu(cpu) = target;
        Simulator {
            name: target.name().into(),
            target: target.name().into(),
            caches: caches(cpu),
            judge: Judge::Count(Simulator::WEIGHTED.into()),
            sample_iterations: None,
            plugin: None,
            external: None,
        }
    }

    /// A command of the user's, which is tried out. It knows what its numbers are called, and what the processor is.
    ///
    /// # Errors
    /// If kernels of the target would have several threads, the command fails, or it does not tell the count that is the score.
    pub fn external(
        command: External,
        name: Option<&str>,
        count: Option<&str>,
        target: &Target,
    ) -> Result<Simulator> {
        if target.threads() != 1 {
            return Err(
                Error::new("executables for simulators have one thread").help("give --threads 1")
            );
        }
        let told = command.try_out(target).map_err(|e| {
            Error::new(format!("--simulator: {e}"))
                .help("the command was tried with an executable that does nothing")
        })?;
        // A command that counts anything of ours counts instructions.
        let names = match told.instructions > 0.0 {
            true => names(&told),
            false => told.others.into_keys().collect(),
        };
        if let Some(count) = count.filter(|c| !names.iter().any(|n| n == c)) {
            return Err(Error::new(format!("the simulator tells no `{count}`"))
                .help(format!("give --minimise with one of {}", names.join(", "))));
        }
        Ok(Simulator {
            name: name.unwrap_or(command.command()).into(),
            judge: Judge::Count(count.unwrap_or(Simulator::WEIGHTED).into()),
            external: Some(command),
            ..Simulator::of(target)
        })
    }

    /// The counts that can be the score.
    pub fn counts(&self) -> Vec<String> {
        names(&Statistics {
            shared: vec![Default::default(); self.caches.shared.len()],
            ..Statistics::default()
        })
    }

    /// What builders have to simulate.
    pub fn asks(&self) -> ReadOptions {
        let own = self.external.is_none();
        ReadOptions {
            caches: own.then(|| self.caches.clone()),
            sample_iterations: self.sample_iterations,
            plugin: self.plugin.clone().filter(|_| own),
            external: self.external.clone(),
            ..ReadOptions::default()
        }
    }

    /// A processor of the simulator by its name; one with the caches of the target where none is given, or the
    /// target's own name.
    ///
    /// # Errors
    /// If there is no such processor, or it does not run code for the target.
    pub fn named(name: Option<&str>, target: &Target) -> Result<Simulator> {
        let usual = Simulator::of(target);
        let Some(name) = name.filter(|name| *name != usual.name) else {
            return Ok(usual);
        };
        let mut all = simulate::cpus();
        all.retain(|c| target.triple().starts_with(c.architecture));
        let names: Vec<&str> = all.iter().map(|c| c.name).collect();
        let help = format!("for {} there are {}", target.name(), names.join(", "));
        let found = all.into_iter().find(|c| c.name == name);
        let cpu = found.ok_or_else(|| {
            let why = format!(
                "the simulator has no processor `{name}` for {}",
                target.name()
            );
            Error::new(why).help(help)
        })?;
        Ok(Simulator {
            name: cpu.name.into(),
            caches: cpu.caches,
            ..usual
        })
    }
}

/// What the counts of these statistics are called.
fn names(of: &Statistics) -> Vec<String> {
    let all = of.named().into_iter().chain(of.sums());
    all.map(|(name, _)| name).collect()
}

/// The caches of a target, in the sets and ways that are read of it.
fn caches(cpu: &CpuTarget) -> CacheSetting {
    let [l1, l2, last] = analysis::caches(cpu, analysis::levels(cpu)).map(|c| Geometry {
        sets: c.sets(),
        ways: c.ways.unwrap_or(1),
    });
    CacheSetting {
        l1d: l1,
        l1i: l1,
        shared: vec![l2, last],
        inclusive: false,
    }
}

impl Scorer {
    /// As the options say; by default the cycles are those of the target's usual processor.
    pub fn of(options: &Options, target: &Target) -> Scorer {
        let asked = options.score_cpu.clone();
        let cpu = asked.unwrap_or_else(|| llvm::scoring_cpu(target));
        Scorer {
            simulator: options.simulator.clone(),
            ..Scorer::of_cycles(cpu, options.rates, target)
        }
    }

    /// By predicted cycles of a processor, with its caches.
    pub fn of_cycles(cpu: String, rates: Score, target: &Target) -> Scorer {
        Scorer {
            levels: Some(Caches::of(&cpu, target).levels()),
            cpu,
            rates,
            simulator: None,
        }
    }

    /// What builders have to read.
    pub fn asks(&self) -> ReadOptions {
        ReadOptions {
            cpu: self.cpu.clone(),
            // Predictors learned from counts in the caches of the target.
            levels: self.levels.filter(|_| self.simulator.is_none()),
            ..self
                .simulator
                .as_ref()
                .map(Simulator::asks)
                .unwrap_or_default()
        }
    }

    /// # Errors
    /// If LLVM has no scheduling model of the processor.
    pub fn check(&self, target: &Target) -> Result<()> {
        llvm::check_scoring_cpu(target, &self.cpu).map_err(|why| {
            Error::new(why).help("name a processor that LLVM has a model of with --score-cpu")
        })
    }

    /// Refuses a predictor that is for none of the tasks, and names those that are for some.
    ///
    /// # Errors
    /// If all candidates would stay without a score.
    pub fn check_tasks(&self, tasks: &[Task]) -> Result<()> {
        let Some(Simulator {
            judge: Judge::Predictor(predictor, _),
            ..
        }) = &self.simulator
        else {
            return Ok(());
        };
        let about = predictor.about();
        let kinds: BTreeSet<&str> = tasks.iter().map(|t| &*t.program.name).collect();
        if kinds.contains(&*about.kind) {
            return Ok(());
        }
        let found: Vec<&str> = kinds.iter().copied().collect();
        let why = format!(
            "the predictor is for kernels of type {}, and the tasks are of type {}",
            about.kind,
            found.join(", ")
        );
        let fitting = Shipped::fitting(&kinds, &about.cpu);
        let names: Vec<&str> = fitting.iter().map(|s| s.name).collect();
        Err(Error::new(why).help(match names.is_empty() {
            true => "train one with `tunesmith simulate collect` and `simulate train`, or leave --predictor out".into(),
            false => format!("give --predictor {}", names.join(" or --predictor ")),
        }))
    }

    /// What says which scores compare. `from_memory` says whether kernels find their constants in memory.
    pub fn kind(&self, from_memory: bool) -> String {
        if let Some(s) = &self.simulator {
            let cpu = s.title();
            let kind = match &s.judge {
                Judge::Count(name) => format!("simulated {cpu} {name}"),
                Judge::Predictor(p, window) => {
                    let method = p.about().method.as_str();
                    match window {
                        w if *w == FIRST => format!("simulated {cpu} by {method}"),
                        Window::Static(n) => format!("simulated {cpu} by {method}, window of {n}"),
                        Window::Dynamic => format!("simulated {cpu} by {method}, dynamic window"),
                    }
                }
            };
            return match s.sample_iterations {
                Some(n) => format!("{kind}, one in {n} iterations"),
                None => kind,
            };
        }
        let kind = self.rates.kind(&self.cpu);
        match from_memory {
            true => format!("{kind} plus memory"),
            false => kind,
        }
    }

    /// What one call costs, lower is better. Under a predictor, `seen` has candidates of the same task that the candidate
    /// is compared with, and the cost is in predicted cycles of the mean one. While their mean moves, scores
    /// of different times do not compare.
    ///
    /// # Errors
    /// Why the candidate has no score.
    pub(crate) fn score(
        &self,
        read: &Read,
        kind: &str,
        from_memory: bool,
        seen: &Seen,
    ) -> std::result::Result<f64, String> {
        let Some(simulator) = &self.simulator else {
            return Ok(match from_memory {
                true => self.rates.cycles_from_memory(&read.features),
                false => self.rates.cycles(&read.features),
            });
        };
        let sample = simulator.sample(read, kind)?;
        match &simulator.judge {
            Judge::Count(count) => {
                let missing = || format!("the simulator counts no `{count}`");
                let value = sample.statistics.count(count).ok_or_else(missing)?;
                if !value.is_finite() || value < 0.0 {
                    return Err(format!("the simulator counts {value} of `{count}`"));
                }
                // Costs are positive: no event is half of one.
                Ok(value.max(0.5))
            }
            Judge::Predictor(predictor, _) => {
                let score = seen.predicted(predictor, &sample);
                score.map_err(|e| e.to_string())
            }
        }
    }

    /// Adds a candidate to those that others are compared with, if the window has room; whether it had.
    pub fn see(&self, read: &Read, kind: &str, seen: &mut Seen) -> bool {
        let window = match &self.simulator {
            Some(Simulator {
                judge: Judge::Predictor(_, window),
                ..
            }) => *window,
            _ => return false,
        };
        let open = match window {
            Window::Static(first) => seen.samples.len() < first,
            Window::Dynamic => true,
        };
        let sample = self.simulator.as_ref().map(|s| s.sample(read, kind));
        let Some(Ok(sample)) = sample.filter(|_| open) else {
            return false;
        };
        seen.samples.push(sample);
        seen.means.take();
        true
    }

    /// Whether scores move when more candidates are seen.
    pub fn revises(&self) -> bool {
        let judge = self.simulator.as_ref().map(|s| &s.judge);
        matches!(judge, Some(Judge::Predictor(_, Window::Dynamic)))
    }
}

impl Simulator {
    /// The processor, and of a command that is called otherwise a hash: two commands may be given the same name.
    fn title(&self) -> String {
        match &self.external {
            Some(e) if e.command() != self.name => {
                let hash = xxh3_64(e.command().as_bytes()) as u32;
                format!("{} ({hash:08x})", self.name)
            }
            _ => self.name.clone(),
        }
    }

    fn sample(&self, read: &Read, kind: &str) -> std::result::Result<Sample, String> {
        let statistics = read.statistics.as_ref().ok_or("nothing was simulated")?;
        Ok(Sample {
            kind: kind.into(),
            cpu: self.name.clone(),
            target: self.target.clone(),
            statistics: statistics.clone()?,
            code: Some(read.features.clone()),
            ..Sample::default()
        })
    }
}

impl Seen {
    /// The predicted time of a sample over the mean one's, times the mean of predicted cycles.
    fn predicted(
        &self,
        predictor: &Predictor,
        sample: &Sample,
    ) -> std::result::Result<f64, PredictorError> {
        let (means, cycles) = self.means.get_or_init(|| {
            let seen: Vec<&Sample> = self.samples.iter().collect();
            let cycles = seen.iter().filter_map(|s| s.static_score()).sum::<f64>();
            (Means::of(&seen), cycles / seen.len() as f64)
        });
        let score = predictor.score_against(&[sample], means)?;
        Ok((1.0 + score[0]).max(f64::MIN_POSITIVE) * cycles)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::Isa;

    #[test]
    fn simulated_caches_have_the_sets_that_are_read() {
        let target = CpuTarget {
            l1_bytes: 48 << 10,
            ..CpuTarget::generic(Isa::X86Avx2)
        };
        let l1 = caches(&target).l1d;
        assert_eq!((l1.sets, l1.ways), (64, 12));
        assert_eq!(l1.bytes(), target.l1_bytes);
    }
}
