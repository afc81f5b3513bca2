//! Stretches of a plan that can run in other layouts, as alternatives of one step.
//!
//! Owns which stretches there are and the kernels of their other layouts. The sets of steps that stay plain
//! are those that [`crate::layouts`] tries, and neighbours in pairs; the planner makes the plans, and what
//! differs between two plans is the stretch. Promises that all assignments of a stretch read and write the
//! same tensors at its border. Which of them runs is decided while the model runs.

use crate::compile::{Builders, defaults, named};
use crate::error::Result;
use crate::known::{Lookup, Requirements};
use crate::layouts::{Costs, neighbours, units};
use crate::saved::Saved;
use ir::Target;
use plan::{Layout, Plan, PlanStep, PlanTensorId, Task, TensorKind};
use runtime::BuiltKernel;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::{Range, RangeInclusive};
use std::slice::from_ref;
use std::sync::Arc;

/// One step has no neighbour to save a conversion with. The steps of a long stretch would choose together among too few
/// alternatives.
const STEPS: RangeInclusive<usize> = 2..=3;

/// Neighbouring steps of a plan that other plans have in other layouts.
#[derive(Clone, Debug)]
pub struct Stretch {
    /// Positions of its steps in the plan.
    pub steps: Range<usize>,
    /// What costs the least first.
    pub others: Vec<Assignment>,
}

/// The same part of the model in another plan.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// Without constants: the first plan has them.
    pub plan: Arc<Plan>,
    pub steps: Range<usize>,
}

/// The name of a stretch from one step to another.
pub(crate) fn joined(first: &str, last: &str) -> String {
    format!("{first}..{last}")
}

/// The names of the first and the last step of a stretch of this name; none if it is none.
pub fn ends(name: &str) -> Option<(&str, &str)> {
    name.split_once("..")
}

/// What a tensor is in any plan of one model: value and layout, and those of the tensor that holds its bytes
/// with the first element in it.
pub(crate) type Identity = [(usize, Layout, i64); 2];

pub(crate) fn identity(plan: &Plan, id: PlanTensorId) -> Identity {
    let (root, offset) = plan.place(id);
    let of = |id: PlanTensorId, offset| {
        let t = plan.tensor(id);
        (t.value.index(), t.layout, offset)
    };
    [of(id, 0), of(root, offset)]
}

fn identities(plan: &Plan, of: &[PlanTensorId]) -> Vec<Identity> {
    of.iter().map(|id| identity(plan, *id)).collect()
}

/// Whether two steps do the same with the same tensors.
fn same_step((a, plan_a): (&PlanStep, &Plan), (b, plan_b): (&PlanStep, &Plan)) -> bool {
    let key = |s: &PlanStep, plan: &Plan| plan.tasks[s.task].key.clone();
    key(a, plan_a) == key(b, plan_b)
        && identities(plan_a, &a.inputs) == identities(plan_b, &b.inputs)
        && identities(plan_a, &a.outputs) == identities(plan_b, &b.outputs)
}

/// The steps in which two plans differ; none if they do not, or if their outputs differ.
fn difference(a: &Plan, b: &Plan) -> Option<[Range<usize>; 2]> {
    if identities(a, &a.outputs) != identities(b, &b.outputs) {
        return None;
    }
    let same = |(x, y): &(&PlanStep, &PlanStep)| same_step((x, a), (y, b));
    let pairs = a.steps.iter().zip(&b.steps);
    let before = pairs.take_while(same).count();
    let pairs = a.steps.iter().rev().zip(b.steps.iter().rev());
    let least = a.steps.len().min(b.steps.len());
    let after = pairs.take(least - before).take_while(same).count();
    let parts = [a, b].map(|p| before..p.steps.len() - after);
    parts.iter().all(|r| !r.is_empty()).then_some(parts)
}

/// What steps write, and of that what none of them reads.
fn written(plan: &Plan, steps: &Range<usize>) -> [BTreeSet<Identity>; 2] {
    let steps = &plan.steps[steps.clone()];
    let of = |ids: fn(&PlanStep) -> &Vec<PlanTensorId>| -> BTreeSet<Identity> {
        let ids = steps.iter().flat_map(ids);
        ids.map(|id| identity(plan, *id)).collect()
    };
    let (read, all) = (of(|s| &s.inputs), of(|s| &s.outputs));
    let results = &all - &read;
    [all, results]
}

/// Whether another plan's steps can stand for those of the first: both give the same results, and the
/// first has all constants.
fn fit([a, b]: [&Plan; 2], [of_a, of_b]: [&Range<usize>; 2]) -> bool {
    let ([all_a, results_a], [all_b, results_b]) = (written(a, of_a), written(b, of_b));
    let known: HashSet<Identity> = a.tensor_ids().map(|id| identity(a, id)).collect();
    let steps = b.steps[of_b.clone()].iter();
    let mut tensors = steps.flat_map(|s| s.inputs.iter().chain(&s.outputs));
    let made_here = |id: &PlanTensorId| {
        let kind = &b.tensor(b.place(*id).0).kind;
        matches!(kind, TensorKind::Activation) || known.contains(&identity(b, b.place(*id).0))
    };
    results_a.is_subset(&all_b) && results_b.is_subset(&all_a) && tensors.all(made_here)
}

/// Another plan, where it differs, and what it costs.
struct Found {
    plan: Plan,
    own: Range<usize>,
    ns: f64,
}

/// The stretches of a plan, with at most so many other layouts each. `planned` plans the model with some
/// steps plain. Other layouts are predicted to cost less than the plan: a stretch takes the choice of its own from each of
/// its steps, and what it saves has to be worth that.
pub(crate) fn stretches(
    base: &Plan,
    planned: &dyn Fn(&[String]) -> Plan,
    costs: &Costs,
    most: usize,
) -> Vec<Stretch> {
    if most == 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let own_ns = costs.sum(base);
    for unit in units(base).into_iter().chain(neighbours(base)) {
        let plain: BTreeSet<String> = base.plain.iter().cloned().chain(unit).collect();
        let mut plan = planned(&plain.into_iter().collect::<Vec<String>>());
        let Some([own, other]) = difference(base, &plan) else {
            continue;
        };
        let ns = costs.sum(&plan);
        let worth = STEPS.contains(&own.len()) && ns < own_ns;
        if worth && fit([base, &plan], [&own, &other]) {
            plan.take_constants();
            found.push(Found { plan, own, ns });
        }
    }
    found.sort_by(|a, b| a.ns.total_cmp(&b.ns));
    let mut all: Vec<Stretch> = Vec::new();
    for Found { plan, own, .. } in found {
        let meets = |s: &&mut Stretch| s.steps.start < own.end && own.start < s.steps.end;
        let mut met = all.iter_mut().filter(meets);
        let stretch = match (met.next(), met.next()) {
            (None, _) => {
                let (steps, others) = (own, Vec::new());
                all.push(Stretch { steps, others });
                all.last_mut()
            }
            (Some(s), None) if s.steps.start <= own.start && own.end <= s.steps.end => Some(s),
            _ => None,
        };
        if let Some(s) = stretch.filter(|s| s.others.len() < most) {
            // Behind the stretch both plans are the same, up to their ends.
            let end = plan.steps.len() - (base.steps.len() - s.steps.end);
            let (plan, steps) = (Arc::new(plan), s.steps.start..end);
            s.others.push(Assignment { plan, steps });
        }
    }
    all.sort_by_key(|s| s.steps.start);
    all
}

/// Stretches, and kernels of those tasks that only their other layouts have.
#[derive(Default)]
pub struct Stretched {
    pub stretches: Vec<Stretch>,
    /// Alternatives of one stretch, at most.
    pub most: usize,
    /// By the keys of their tasks.
    pub kernels: HashMap<String, Arc<BuiltKernel>>,
    /// Steps beside the stretches that can keep columns for later ones.
    pub saved: Vec<Saved>,
}

impl Stretched {
    /// What all columns take that steps can keep.
    pub fn columns_bytes(&self) -> u64 {
        self.saved.iter().map(|s| s.columns.bytes()).sum()
    }
}

/// What the kernels of other layouts are made for.
pub(crate) struct Wanted<'a> {
    pub base: &'a Plan,
    pub target: &'a Target,
    pub requirements: Requirements,
    /// Knows the best of a task, if there is a store.
    pub lookup: Option<&'a Lookup<'a>>,
}

/// Builds what other layouts need beside the kernels of the plan: the best that the store knows of a task, or
/// its default. Layouts of which a kernel cannot be built are left out.
///
/// # Errors
/// If the store cannot be read.
pub(crate) fn stretched(
    mut stretches: Vec<Stretch>,
    saved: Vec<Saved>,
    most: usize,
    of: &Wanted<'_>,
    builders: &mut Builders,
) -> Result<Stretched> {
    let own: HashSet<&str> = of.base.tasks.iter().map(|t| &*t.key).collect();
    let mut asked = HashMap::new();
    let mut seen = HashSet::new();
    let others = stretches.iter().flat_map(|s| &s.others);
    for task in others.flat_map(tasks) {
        if own.contains(&*task.key) || !seen.insert(task.key.clone()) {
            continue;
        }
        let known = of.lookup.map(|l| l.best(task)).transpose()?.flatten();
        let default = || {
            let found = defaults(from_ref(task), of.target, of.requirements.allowed());
            found.ok()?.candidates.pop()
        };
        if let Some(candidate) = known.map(|k| k.candidate).or_else(default) {
            let text = ir::text::print(&task.program);
            let request = builders.request(&text, &candidate, of.target, false);
            asked.insert(builders.submit(request), (task, candidate));
        }
    }
    let mut kernels = HashMap::new();
    while let Some(o) = builders.pool.next(builders.patience()) {
        if let (Some((task, candidate)), Ok(Ok(built))) = (asked.get(&o.id), o.result) {
            let kernel = named(built.kernel, Some(candidate), &task.program);
            kernels.insert(task.key.clone(), kernel);
        }
    }
    let there = |t: &Task| own.contains(&*t.key) || kernels.contains_key(&t.key);
    for s in &mut stretches {
        s.others.retain(|a| tasks(a).all(there));
    }
    stretches.retain(|s| !s.others.is_empty());
    Ok(Stretched {
        stretches,
        most,
        kernels,
        saved,
    })
}

fn tasks(of: &Assignment) -> impl Iterator<Item = &Task> {
    let steps = of.plan.steps[of.steps.clone()].iter();
    steps.map(|s| &of.plan.tasks[s.task])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Precision, Source};
    use graph::Model;
    use graph::ops::{Conv, Op, Softmax};
    use plan::LayoutPolicy;
    use search::Accuracy;
    use tensor::{DType, Fill, fill_tensor};

    const ACCURACY: Accuracy = Accuracy::Relaxed;

    fn found(name: &str, most: usize) -> (Plan, Vec<Stretch>) {
        of(&Source::builtin(name).unwrap(), most)
    }

    /// Convolutions of 16 channels with a softmax, which has no blocks, between every two.
    fn convolutions(count: u64) -> Source {
        let mut m = Model::new("convolutions", 17);
        let mut x = m.add_input("x", DType::F32, &[1, 16, 10, 12]);
        for layer in 0..count {
            let w = fill_tensor(
                DType::F32,
                &[16, 16, 3, 3],
                Fill::Uniform { lo: -0.1, hi: 0.1 },
                layer,
            );
            let w = m.add_constant(&format!("w{layer}"), w);
            let conv = Conv {
                strides: vec![1; 2],
                dilations: vec![1; 2],
                pads: vec![(1, 1); 2],
                groups: 1,
            };
            x = m
                .add(&format!("conv{layer}"), Op::Conv(conv), &[x, w])
                .unwrap();
            if layer + 1 < count {
                let softmax = Op::Softmax(Softmax { axis: 3 });
                x = m.add(&format!("softmax{layer}"), softmax, &[x]).unwrap();
            }
        }
        m.add_output(x);
        Source {
            name: "convolutions".into(),
            model: m,
            layouts: LayoutPolicy::Blocked,
            dims: vec![],
            precision: Precision::Model,
            notes: vec![],
            untrained: Default::default(),
            settings: Default::default(),
        }
    }

    fn of(source: &Source, most: usize) -> (Plan, Vec<Stretch>) {
        let target = Target::generic(ir::Isa::X86Avx512);
        let plan = source.plan(&target, ACCURACY, &[]).unwrap();
        let costs = Costs::of_bytes();
        let stretches = source.stretches(&plan, &target, ACCURACY, &costs, most);
        let stretches = stretches.unwrap();
        (plan, stretches)
    }

    #[test]
    fn stretches_lie_apart_and_their_layouts_agree_at_the_border() {
        let (plan, all) = of(&convolutions(3), 2);
        assert_eq!(all.len(), 3, "{:?}", plan.steps);
        let pairs = all.windows(2);
        assert!(
            pairs
                .into_iter()
                .all(|w| w[0].steps.end <= w[1].steps.start)
        );
        for s in &all {
            assert!(STEPS.contains(&s.steps.len()) && (1..=2).contains(&s.others.len()));
            for a in &s.others {
                assert!(fit([&plan, &a.plan], [&s.steps, &a.steps]));
                // Steps before and behind are the same.
                let behind = [
                    plan.steps.len() - s.steps.end,
                    a.plan.steps.len() - a.steps.end,
                ];
                assert_eq!((a.steps.start, behind[0]), (s.steps.start, behind[1]));
                let names = |p: &Plan, of: &Range<usize>| -> Vec<String> {
                    let steps = p.steps[of.clone()].iter();
                    steps.map(|s| p.tasks[s.task].key.clone()).collect()
                };
                assert_ne!(names(&plan, &s.steps), names(&a.plan, &a.steps));
            }
        }
    }

    /// Whole networks in blocks have no conversions that other layouts could save.
    #[test]
    fn layouts_that_save_no_conversion_are_not_offered() {
        for name in ["squeezenet1.1", "resnet18"] {
            assert_eq!(found(name, 3).1.len(), 0);
        }
    }

    /// Blocks cost a conversion at both ends.
    #[test]
    fn one_convolution_alone_can_stay_plain() {
        let (plan, all) = found("op:conv2d(c=16,h=12,w=12,k=16,r=3,s=3,pad=1)", 1);
        assert_eq!((plan.steps.len(), all.len()), (3, 1));
        assert_eq!((&all[0].steps, all[0].others[0].steps.len()), (&(0..3), 1));
        assert_eq!(found("op:dense(m=4,n=32,k=16)", 3).1.len(), 0);
        assert_eq!(found("squeezenet1.1", 0).1.len(), 0);
    }

    #[test]
    fn the_name_of_a_stretch_tells_its_ends() {
        assert_eq!(ends(&joined("a.1", "b")), Some(("a.1", "b")));
        assert_eq!(ends("a.1"), None);
    }
}
