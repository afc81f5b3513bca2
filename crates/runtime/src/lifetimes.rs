//! When a model's activations are in use, and where they lie.
//!
//! Owns what the memory planner is told. Promises that tensors which are needed at the same time lie apart,
//! whichever alternatives run, and that a step with several calls leaves what it reads as it is until it
//! ends: another alternative may begin after one that failed. What a state becomes lies where it was, if the step that
//! writes it may work in place and is the last to read it.
//!
//! Time is counted in moments. A step of single calls is one moment. Any other step has one moment for each
//! call of each alternative, one alternative after the other. Tensors that only this step uses are in use
//! from moment to moment, so those of different alternatives share memory; all others are in use for the
//! whole step.

use crate::kernel::ParamRole;
use crate::model::{
    Alternative, Call, CompiledModel, Manifest, ModelStep, State, TensorId, TensorInfo, TensorPlace,
};
use crate::plan::{BufferUse, plan_memory};
use std::collections::{BTreeMap, BTreeSet};

/// The tensor that holds the bytes of a tensor, and the offset in it.
pub(crate) fn root(tensors: &[TensorInfo], id: TensorId) -> (TensorId, u64) {
    match tensors[id.index()].place {
        TensorPlace::View { root, byte_offset } => (root, byte_offset),
        _ => (id, 0),
    }
}

/// Whether two tensors may share bytes; strided views that interleave do
/// not count as overlapping unless one of them is dense.
pub(crate) fn overlap(tensors: &[TensorInfo], a: TensorId, b: TensorId) -> bool {
    let ((root_a, at_a), (root_b, at_b)) = (root(tensors, a), root(tensors, b));
    let (a, b) = (&tensors[a.index()], &tensors[b.index()]);
    let span = |info: &TensorInfo| info.span_bytes().unwrap_or(u64::MAX);
    let ranges_overlap = at_a < at_b.saturating_add(span(b)) && at_b < at_a.saturating_add(span(a));
    let interleaved = !a.is_dense() && !b.is_dense() && at_a != at_b;
    root_a == root_b && ranges_overlap && !interleaved
}

/// First and last moment of use.
type Moments = (usize, usize);

/// The moments of a model, and the tensors, no views, that are used in them.
struct Timeline {
    /// Of each step its first one.
    starts: Vec<usize>,
    uses: BTreeMap<TensorId, Moments>,
    /// The last moment in which a step uses a tensor.
    last: BTreeMap<TensorId, usize>,
}

/// Whether the step is one moment.
fn is_single(step: &ModelStep) -> bool {
    step.alternatives.iter().all(|a| a.calls.len() == 1)
}

impl Timeline {
    fn of(manifest: &Manifest) -> Timeline {
        let roots = |ids: &[TensorId]| -> BTreeSet<TensorId> {
            let roots = ids.iter().map(|id| root(&manifest.tensors, *id).0);
            roots.collect()
        };
        let (inputs, outputs) = (roots(&manifest.inputs), roots(&manifest.outputs));
        let mut shared: BTreeSet<TensorId> = &inputs | &outputs;
        let mut user: BTreeMap<TensorId, usize> = BTreeMap::new();
        for (at, step) in manifest.steps.iter().enumerate() {
            for id in step.calls().flat_map(|c| roots(&c.args)) {
                if *user.entry(id).or_insert(at) != at {
                    shared.insert(id);
                }
            }
        }
        let (mut starts, mut uses) = (Vec::new(), BTreeMap::<TensorId, Moments>::new());
        let mut used = |id, (first, last): Moments| {
            let known = uses.entry(id).or_insert((first, last));
            *known = (known.0.min(first), known.1.max(last));
        };
        let mut now = 0;
        for step in &manifest.steps {
            let single = is_single(step);
            let end = now + if single { 1 } else { step.calls().count() };
            for (at, call) in step.calls().enumerate() {
                let moment = if single { now } else { now + at };
                for id in roots(&call.args) {
                    let whole = shared.contains(&id);
                    used(
                        id,
                        if whole {
                            (now, end - 1)
                        } else {
                            (moment, moment)
                        },
                    );
                }
            }
            starts.push(now);
            now = end;
        }
        let last = uses.iter().map(|(id, moments)| (*id, moments.1)).collect();
        uses.extend(inputs.into_iter().map(|id| (id, (0, now))));
        for id in outputs {
            let first = uses.get(&id).map_or(0, |u| u.0);
            uses.insert(id, (first, now));
        }
        Timeline { starts, uses, last }
    }
}

/// Outputs that every alternative may write over an input, with that input. A step with several calls
/// has none.
fn shared_pairs(manifest: &Manifest, step: &ModelStep) -> Vec<(TensorId, TensorId)> {
    let pairs = |c: &Call| -> Vec<(TensorId, TensorId)> {
        let kernel = &manifest.kernels[c.kernel.index()];
        let arg = |at: u32| c.args[at as usize];
        // What another argument reads too is read at other times.
        let once = |at: u32| {
            let mut others = (0..c.args.len() as u32).filter(|i| *i != at);
            !others.any(|i| overlap(&manifest.tensors, arg(i), arg(at)))
        };
        let pairs = kernel.in_place.iter().filter(|(_, input)| once(*input));
        pairs
            .map(|(output, input)| (arg(*output), arg(*input)))
            .collect()
    };
    let of = |a: &Alternative| match &*a.calls {
        [call] => pairs(call),
        _ => Vec::new(),
    };
    let mut all = step.alternatives.iter().map(of);
    let first = all.next().unwrap_or_default();
    all.fold(first, |mut kept, of| {
        kept.retain(|pair| of.contains(pair));
        kept
    })
}

/// The tensors that share the memory of another, each with a number for
/// their group: outputs of a step that is the last to use an input as large. An input of the model is used for ever,
/// unless it is a state: then only what becomes of it is.
fn alias_groups(manifest: &Manifest, time: &Timeline) -> BTreeMap<TensorId, usize> {
    let mut groups = BTreeMap::new();
    let info = |id: TensorId| &manifest.tensors[id.index()];
    let in_arena = |id: TensorId| matches!(info(id).place, TensorPlace::Arena { .. });
    let becomes = |input: TensorId, output: TensorId| {
        let mut states = manifest.states.iter();
        states.any(|s| ends(manifest, *s) == [input, output])
    };
    for (step, start) in manifest.steps.iter().zip(&time.starts) {
        let pairs = shared_pairs(manifest, step);
        for (output, input) in &pairs {
            let begins = time.uses.get(output).is_some_and(|u| u.0 == *start);
            let used = time.uses.get(input).map(|u| u.1);
            let last = match becomes(*input, *output) {
                true => time.last.get(input).copied(),
                false => used,
            };
            let ends = last == Some(*start);
            let free = !groups.contains_key(output) && in_arena(*output) && in_arena(*input);
            let taken = pairs
                .iter()
                .any(|(o, i)| i == input && groups.contains_key(o));
            let same = info(*output).span_bytes() == info(*input).span_bytes();
            if begins && ends && free && !taken && same {
                let next = groups.len();
                let group = *groups.entry(*input).or_insert(next);
                groups.insert(*output, group);
            }
        }
    }
    groups
}

/// An input that is a state, and the output that it becomes.
fn ends(manifest: &Manifest, s: State) -> [TensorId; 2] {
    [manifest.inputs[s.input], manifest.outputs[s.output]]
}

fn is_in_place(manifest: &Manifest, s: State) -> bool {
    let [input, output] = ends(manifest, s).map(|id| &manifest.tensors[id.index()]);
    input.place == output.place && input.elements() != Some(0)
}

impl CompiledModel {
    /// Whether a state becomes what it becomes where it lies, so that nothing is copied between inferences. If a later
    /// step fails, the state has changed all the same.
    pub fn is_in_place(&self, s: State) -> bool {
        is_in_place(&self.manifest, s)
    }
}

/// Whether a state that lies where its output does may do so: kernels that write the output may write it over the
/// state, and no later step reads the state.
pub(crate) fn may_be_in_place(manifest: &Manifest, s: State) -> bool {
    let [input, output] = ends(manifest, s);
    if input == output || !is_in_place(manifest, s) {
        return true;
    }
    let is = |id: &TensorId, of| root(&manifest.tensors, *id).0 == of;
    let mut written = false;
    for step in &manifest.steps {
        if written && step.calls().any(|c| c.args.iter().any(|id| is(id, input))) {
            return false;
        }
        for call in step.calls() {
            let kernel = &manifest.kernels[call.kernel.index()];
            for (at, (id, param)) in call.args.iter().zip(&kernel.params).enumerate() {
                if param.role != ParamRole::Output || !is(id, output) {
                    continue;
                }
                let mut pairs = kernel.in_place.iter().filter(|p| p.0 as usize == at);
                if !pairs.any(|p| call.args.get(p.1 as usize) == Some(&input)) {
                    return false;
                }
                written = true;
            }
        }
    }
    true
}

/// Gives every activation that is used a place in the arena; others have none any more.
pub(crate) fn place_activations(manifest: &mut Manifest) {
    let time = Timeline::of(manifest);
    let groups = alias_groups(manifest, &time);
    let tensors = &mut manifest.tensors;
    let (mut roots, mut buffers) = (Vec::new(), Vec::new());
    for (i, tensor) in tensors.iter_mut().enumerate() {
        if !matches!(tensor.place, TensorPlace::Arena { .. }) {
            continue;
        }
        let id = TensorId(i as u32);
        let Some((first_use, last_use)) = time.uses.get(&id).copied() else {
            tensor.place = TensorPlace::Discarded;
            continue;
        };
        let bytes = tensor.span_bytes().unwrap_or(u64::MAX);
        roots.push(i);
        buffers.push(BufferUse {
            bytes,
            first_use,
            last_use,
            alias_group: groups.get(&id).copied(),
        });
    }
    let plan = plan_memory(&buffers);
    for (i, offset) in roots.into_iter().zip(plan.offsets) {
        tensors[i].place = TensorPlace::Arena { offset };
    }
    manifest.arena_bytes = plan.arena_bytes;
}
