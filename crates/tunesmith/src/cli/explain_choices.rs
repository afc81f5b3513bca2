//! What `explain` says of steps with alternatives: which there are, which is decided, and what groups keep.

use super::model_args::say_gone;
use super::screen::{self, wrapped};
use super::table::{Table, counted};
use crate::explain::{OTHER, short_schedule};
use crate::online::DecisionFile;
use runtime::{Alternative, CompiledModel, StepGroup, TensorId, TensorPlace, Variants};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::PathBuf;
use tune::{Error, Result};

/// The steps of a compiled model that choose among alternatives while the model runs.
#[derive(Serialize)]
pub struct Choices {
    /// Whether decisions of earlier runs are known.
    pub known: bool,
    pub steps: Vec<StepChoice>,
    pub groups: Vec<GroupChoice>,
}

/// A step with several alternatives.
#[derive(Serialize)]
pub struct StepChoice {
    pub index: usize,
    pub name: String,
    /// Whether it stands for several layers, which other alternatives run in other layouts.
    pub stretch: bool,
    /// The group that it is in, from 0.
    pub group: Option<usize>,
    /// The algorithms of what it can run apart from its group, in the order of the alternatives.
    pub alternatives: Vec<String>,
    /// The algorithm that is decided on, of an alternative or of a set.
    pub decided: Option<String>,
}

/// Steps that run apart, or a set of alternatives together.
#[derive(Serialize)]
pub struct GroupChoice {
    /// Indices of its steps.
    pub steps: Vec<usize>,
    /// Of each set, the algorithms of its steps.
    pub sets: Vec<String>,
    /// `apart`, or the set that is decided on.
    pub decided: Option<String>,
    /// Tensors that a set writes in one step and reads in a later one.
    pub saved: Vec<SavedTensor>,
}

#[derive(Serialize)]
pub struct SavedTensor {
    pub name: String,
    pub mbytes: f64,
}

/// What steps chose: the alternative of each, where it is decided.
pub type Decided = Vec<Option<usize>>;

/// What files of decisions say of a variant; the first wins.
///
/// # Errors
/// If there is no file, it holds elsewhere, or no step has a choice.
pub fn decided(variants: &Variants, at: usize, threads: u32, files: &[PathBuf]) -> Result<Decided> {
    let compiled = &variants.models()[at];
    if compiled.steps_with_choice().count() == 0 {
        let what = format!("{} has no step with alternatives", compiled.name());
        return Err(Error::new(what).help("leave out --decisions"));
    }
    let kept = DecisionFile::of_files(files, compiled, threads as usize);
    let kept = kept.ok_or_else(|| Error::new("no file of decisions is given"))?;
    if kept.load()?.is_none() {
        let what = format!("{}: there is no such file", files[0].display());
        return Err(Error::new(what).help("make it with bench FILE --select online --decisions"));
    }
    let key = |step: usize| variants.selection_key(at, step, threads);
    let selectors = kept.selectors(variants)?;
    say_gone(&selectors);
    Ok(selectors.decided(at, key))
}

/// The alternatives of a model's steps; none if no step has several.
pub fn choices(compiled: &CompiledModel, decided: Option<&Decided>) -> Option<Choices> {
    let chosen = |step: usize| decided.and_then(|d| d[step]);
    let of_step = |(index, step): (usize, &runtime::ModelStep)| {
        let free = &step.alternatives[..compiled.free_alternatives(index)];
        let names = labels(compiled, free);
        let of = |at: usize| match names.get(at) {
            Some(free) => free.clone(),
            None => named(compiled, &step.alternatives[at]),
        };
        StepChoice {
            index,
            name: step.name.clone(),
            stretch: tune::stretches::ends(&step.name).is_some(),
            group: compiled.group_of(index),
            decided: chosen(index).map(of),
            alternatives: names,
        }
    };
    let steps = compiled.steps().iter().enumerate();
    let steps = steps.filter(|(_, s)| s.alternatives.len() > 1);
    let steps: Vec<StepChoice> = steps.map(of_step).collect();
    let groups = compiled.groups().iter();
    (!steps.is_empty()).then(|| Choices {
        known: decided.is_some(),
        steps,
        groups: groups.map(|g| group(compiled, g, chosen)).collect(),
    })
}

fn named(compiled: &CompiledModel, alternative: &Alternative) -> String {
    match compiled.algorithm(alternative) {
        unknown if unknown.is_empty() => OTHER.into(),
        known => known,
    }
}

/// The algorithms of alternatives. Where several have one word, whole names, and of equal names the
/// decisions that differ: `direct.rows` and `direct.maps (k=4*2)`.
fn labels(compiled: &CompiledModel, alternatives: &[Alternative]) -> Vec<String> {
    let kernels = |a: &Alternative| {
        a.calls
            .iter()
            .map(|c| compiled.kernel(c))
            .collect::<Vec<_>>()
    };
    let whole = |a: &Alternative| {
        let names = kernels(a).into_iter().map(|k| &*k.algorithm);
        names.collect::<Vec<&str>>().join("+")
    };
    let schedule = |a: &Alternative| {
        let traces = kernels(a)
            .into_iter()
            .filter_map(|k| schedule::parse(&k.schedule).ok());
        traces
            .map(|t| short_schedule(&t))
            .collect::<Vec<String>>()
            .join(" ")
    };
    let label = |a: &Alternative| {
        let equal = |of: &dyn Fn(&Alternative) -> String| {
            let own = of(a);
            alternatives
                .iter()
                .filter(|o| of(o) == own)
                .collect::<Vec<_>>()
        };
        if equal(&|o| named(compiled, o)).len() == 1 {
            return named(compiled, a);
        }
        let alike: Vec<String> = equal(&whole).into_iter().map(schedule).collect();
        let own = schedule(a);
        let shared = |d: &&str| alike.iter().all(|s| s.split(' ').any(|o| o == *d));
        let apart: Vec<&str> = own.split(' ').filter(|d| !shared(d)).collect();
        match apart[..] {
            [] => whole(a),
            _ => format!("{} ({})", whole(a), apart.join(" ")),
        }
    };
    alternatives.iter().map(label).collect()
}

fn group(
    compiled: &CompiledModel,
    group: &StepGroup,
    chosen: impl Fn(usize) -> Option<usize>,
) -> GroupChoice {
    let steps: Vec<usize> = group.steps.iter().map(|s| s.index()).collect();
    let of = |at: usize, set: usize| {
        let all = &compiled.steps()[at].alternatives;
        &all[compiled.free_alternatives(at) + set]
    };
    let name = |set: usize| {
        let names = steps.iter().map(|at| named(compiled, of(*at, set)));
        names.collect::<Vec<String>>().join(" & ")
    };
    let mut saved: BTreeSet<TensorId> = BTreeSet::new();
    for set in 0..group.sets {
        let mut written: BTreeSet<TensorId> = BTreeSet::new();
        for at in &steps {
            let (reads, writes) = moved(compiled, of(*at, set));
            saved.extend(reads.intersection(&written));
            written.extend(writes);
        }
    }
    // What steps write that run apart is no tensor of a set.
    for at in &steps {
        let all = &compiled.steps()[*at].alternatives;
        for free in &all[..compiled.free_alternatives(*at)] {
            let (_, writes) = moved(compiled, free);
            saved.retain(|id| !writes.contains(id));
        }
    }
    let size = |id: &TensorId| {
        let t = compiled.tensor(*id);
        SavedTensor {
            name: t.name.clone(),
            mbytes: t.span_bytes().unwrap_or(0) as f64 / 1e6,
        }
    };
    let decided = chosen(steps[0]).map(|at| {
        let set = at.checked_sub(compiled.free_alternatives(steps[0]));
        set.map_or("apart".into(), name)
    });
    GroupChoice {
        sets: (0..group.sets).map(name).collect(),
        decided,
        saved: saved.iter().map(size).collect(),
        steps,
    }
}

/// The tensors that hold what an alternative reads from elsewhere and what it writes.
fn moved(
    compiled: &CompiledModel,
    alternative: &Alternative,
) -> (BTreeSet<TensorId>, BTreeSet<TensorId>) {
    let root = |id: TensorId| match compiled.tensor(id).place {
        TensorPlace::View { root, .. } => root,
        _ => id,
    };
    let (mut reads, mut writes) = (BTreeSet::new(), BTreeSet::new());
    for call in &alternative.calls {
        let params = &compiled.kernel(call).params;
        for (param, id) in params.iter().zip(&call.args) {
            match param.role {
                runtime::ParamRole::Output => writes.insert(root(*id)),
                _ => reads.insert(root(*id)),
            };
        }
    }
    (reads, writes)
}

/// For people: a table of the steps, one of the groups, and what both come to.
pub fn text(c: &Choices) -> String {
    let width = screen::bound().unwrap_or(usize::MAX);
    let line = |text: &str| format!("\n{}\n", wrapped(text, width, 4));
    let stretches = c.steps.iter().filter(|s| s.stretch).count();
    let mut head = format!(
        "{} with alternatives",
        counted(c.steps.len() as u32, "step")
    );
    if stretches > 0 {
        head += &format!(", of which {stretches} stand for several layers (..)");
    }
    head += match c.known {
        true => "; times are those of what is decided, or else of the first one:",
        false => "; times are those of the first one (--decisions FILE says what was decided):",
    };
    let mut out = line(&head) + &steps(c).text();
    if !c.groups.is_empty() {
        let mbytes = c.groups.iter().flat_map(|g| &g.saved).map(|s| s.mbytes);
        out += &line(&format!(
            "{} of steps that run apart or one set together; sets keep {:.2} MB between steps:",
            counted(c.groups.len() as u32, "group"),
            mbytes.fold(0.0, |a, b| a + b)
        ));
        out += &groups(c).text();
    }
    out
}

fn steps(c: &Choices) -> Table {
    let mut header = vec!["#", "step", "alternatives"];
    header.extend(c.known.then_some("decided"));
    header.extend((!c.groups.is_empty()).then_some("group"));
    let mut t = Table::new(&header);
    for s in &c.steps {
        let mut row = vec![
            s.index.to_string(),
            s.name.clone(),
            s.alternatives.join(", "),
        ];
        let decided = s.decided.clone().unwrap_or("-".into());
        row.extend(c.known.then_some(decided));
        let group = s.group.map_or(String::new(), |g| g.to_string());
        row.extend((!c.groups.is_empty()).then_some(group));
        t.row(row);
    }
    t
}

fn groups(c: &Choices) -> Table {
    let mut header = vec!["group", "steps", "sets"];
    header.extend(c.known.then_some("decided"));
    header.extend(["MB", "kept"]);
    let mut t = Table::new(&header);
    for (at, g) in c.groups.iter().enumerate() {
        let steps: Vec<String> = g.steps.iter().map(|s| format!("#{s}")).collect();
        let mut row = vec![at.to_string(), steps.join(" "), g.sets.join(", ")];
        row.extend(c.known.then(|| g.decided.clone().unwrap_or("-".into())));
        let mbytes = g.saved.iter().map(|s| s.mbytes).fold(0.0, |a, b| a + b);
        let names: Vec<&str> = g.saved.iter().map(|s| &*s.name).collect();
        row.extend([format!("{mbytes:.2}"), names.join(", ")]);
        t.row(row);
    }
    t
}
