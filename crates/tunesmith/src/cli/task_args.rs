//! Arguments that name a task of a plan, and a candidate of that task.

use super::board::shell_word;
use super::machine_option::MachineOption;
use crate::titles;
use ir::Target;
use plan::{Plan, Task};
use search::Candidate;
use std::path::{Path, PathBuf};
use std::slice::from_ref;
use store::Store;
use tune::compile::{defaults, fallbacks};
use tune::known::{Lookup, Requirements};
use tune::{Error, Result};

/// Tasks that an error lists before it stops.
const LISTED: usize = 12;
/// Characters of a title in that list.
const TITLE: usize = 56;

/// The position of the one task that `wanted` names: its number, the start of
/// its key, its title as tables show it, or a part of that or of its whole title.
pub fn pick(plan: &Plan, wanted: &str) -> Result<usize> {
    if let Ok(number) = wanted.parse::<usize>()
        && number < plan.tasks.len()
    {
        return Ok(number);
    }
    let all: Vec<usize> = (0..plan.tasks.len()).collect();
    let whole: Vec<String> = plan.tasks.iter().map(|t| t.title()).collect();
    let shown = titles::short(&whole.iter().map(String::as_str).collect::<Vec<_>>());
    let by_key = |i: &usize| !wanted.is_empty() && plan.tasks[*i].key.starts_with(wanted);
    let by_whole = |i: &usize| whole[*i].contains(wanted);
    let by_shown = |i: &usize| shown[*i].contains(wanted);
    let is_shown = |i: &usize| shown[*i] == wanted;
    let ways: [&dyn Fn(&usize) -> bool; 4] = [&is_shown, &by_key, &by_shown, &by_whole];
    let of = |way: &&dyn Fn(&usize) -> bool| -> Vec<usize> {
        all.iter().filter(|i| way(i)).copied().collect()
    };
    let found = ways.iter().map(of).find(|found| !found.is_empty());
    match found.unwrap_or_default().as_slice() {
        [one] => Ok(*one),
        [] => Err(
            Error::new(format!("no task of {} is called `{wanted}`", plan.name))
                .help(format!("the tasks are:{}", list(&shown, &all))),
        ),
        several => Err(Error::new(format!(
            "`{wanted}` names {} tasks of {}",
            several.len(),
            plan.name
        ))
        .help(format!("name one by its number:{}", list(&shown, several)))),
    }
}

fn list(titles: &[String], tasks: &[usize]) -> String {
    let line = |i: &usize| format!("\n  {i} {}", titles::fitted(&titles[*i], TITLE));
    let mut text: String = tasks.iter().take(LISTED).map(line).collect();
    if tasks.len() > LISTED {
        text += &format!("\n  and {} more", tasks.len() - LISTED);
    }
    text
}

/// Which candidate of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// What is used without measurements.
    Default,
    /// The plainest schedule.
    Fallback,
    /// The best that the store knows.
    Best,
    Trace(PathBuf),
}

impl From<&str> for Which {
    fn from(text: &str) -> Which {
        match text {
            "default" => Which::Default,
            "fallback" => Which::Fallback,
            "best" => Which::Best,
            file => Which::Trace(file.into()),
        }
    }
}

/// The trace in a file.
pub fn read_trace(path: &Path) -> Result<Candidate> {
    let help = "give a file with a trace, as `dump --stage trace` prints one";
    let text = std::fs::read_to_string(path)
        .map_err(|e| Error::new(format!("cannot read {}: {e}", path.display())).help(help))?;
    let trace = schedule::parse(&text)
        .map_err(|e| Error::new(format!("{}: {e}", path.display())).help(help))?;
    Ok(Candidate {
        algorithm: "trace file".into(),
        trace,
    })
}

impl Which {
    /// Refuses to name a machine where no candidate of the store is asked for.
    ///
    /// # Errors
    /// If one is named.
    pub fn check_machine(&self, machine: &MachineOption, flag: &str) -> Result<()> {
        match self {
            Which::Best => Ok(()),
            _ => machine.refuse(
                "no time in the store is asked for",
                &format!("give {flag} best with it"),
            ),
        }
    }

    /// The candidate for a task of a plan; the machine is the one whose times count, by its name in the store.
    pub fn candidate(
        &self,
        plan: &Plan,
        task: &Task,
        machine: &str,
        target: &Target,
        requirements: Requirements,
        store: &Store,
    ) -> Result<Candidate> {
        let one = |all: Result<Vec<Candidate>>| match all {
            Ok(mut all) => Ok(all.remove(0)),
            Err(e) => Err(Error::new(format!("{}: {e}", task.title()))),
        };
        match self {
            Which::Default => {
                one(defaults(from_ref(task), target, requirements.allowed()).map(|d| d.candidates))
            }
            Which::Fallback => one(fallbacks(from_ref(task), target)),
            Which::Trace(path) => read_trace(path),
            Which::Best => {
                let lookup = Lookup::new(store, plan, target, machine, requirements);
                if let Some(best) = lookup.best(task)? {
                    return Ok(best.candidate);
                }
                let mut advice = "tune it first, or give `default` instead of `best`".to_string();
                if let Some((other, _)) = lookup.other_machines()?.first() {
                    advice += &format!(
                        "; `--machine {}` has times of this model",
                        shell_word(other)
                    );
                }
                let title = task.title();
                let why = format!("the store knows no time of {title} on this target and machine");
                Err(Error::new(why).help(advice))
            }
        }
    }
}
