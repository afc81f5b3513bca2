//! The compiled models of one artifact: a variant for each combination of sizes.
//!
//! Owns the named dimensions, what variants share, and which variant the shapes
//! of inputs select. Promises that the variants of one value take and give
//! tensors of the same names and types, that no two of them have the same sizes,
//! and that they hold equal kernels and equal constants once. Which sizes there
//! are, and whether a dimension may be padded, is the compiler's decision.

use crate::artifact::LoadError;
use crate::constants::{Blob, Constant, compacted, gathered, held_bytes};
use crate::derived;
use crate::kernel::BuiltKernel;
use crate::model::{CompiledModel, Inconsistent, TensorId, TensorInfo};
use crate::pool::Pool;
use crate::run::{RunError, SelectionKey};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use xxhash_rust::xxh3::xxh3_128;

/// A dimension of a model's inputs that has a name, and one size in each variant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dim {
    pub name: String,
    /// Every axis that has its size, as the positions of an input and of an axis;
    /// at least one.
    pub inputs: Vec<(usize, usize)>,
    /// Where a size without a variant of its own runs on that of the next larger
    /// size: how the outputs are cropped.
    pub padding: Option<Padding>,
}

/// Says that rows of a dimension may be added behind those of the inputs and taken
/// off the outputs, whose other rows do not depend on them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Padding {
    /// For each output where it has the rows; none where it has none.
    pub outputs: Vec<Option<OutputRows>>,
    /// The inputs whose added rows are zero, such as a mask. A file has them elsewhere.
    #[serde(skip)]
    pub zeros: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputRows {
    pub axis: usize,
    /// Elements along the axis for each row.
    pub each: usize,
}

/// The variant that inputs select.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selected {
    pub(crate) variant: usize,
    /// The sizes that the inputs have, by dimension. Others than the variant's are padded.
    pub(crate) given: Vec<usize>,
}

/// At least one compiled model; all have the same dimensions in different sizes.
#[derive(Debug)]
pub struct Variants {
    dims: Vec<Dim>,
    models: Vec<Arc<CompiledModel>>,
    /// With all constants, while a model has them.
    ready: Mutex<Weak<Variants>>,
    /// What is left once some have chosen, while a model has it.
    left: Mutex<Vec<(Vec<Choices>, Weak<Variants>)>>,
}

/// The chosen alternatives of all steps of a variant; none if the variant stays as it is.
pub(crate) type Choices = Option<Vec<usize>>;

impl From<Arc<CompiledModel>> for Variants {
    /// A model whose dimensions have no names.
    fn from(model: Arc<CompiledModel>) -> Variants {
        Variants::unchecked(Vec::new(), vec![model])
    }
}

impl Variants {
    /// The first variant; [`Variants::add`] adds the others.
    ///
    /// # Errors
    /// If the dimensions are not those of the model.
    pub fn new(dims: Vec<Dim>, first: Arc<CompiledModel>) -> Result<Variants, Inconsistent> {
        Variants::of(dims, vec![first])
    }

    pub(crate) fn of(
        dims: Vec<Dim>,
        models: Vec<Arc<CompiledModel>>,
    ) -> Result<Variants, Inconsistent> {
        let variants = Variants::unchecked(dims, models);
        variants.check()?;
        Ok(variants)
    }

    fn unchecked(dims: Vec<Dim>, models: Vec<Arc<CompiledModel>>) -> Variants {
        Variants {
            dims,
            models,
            ready: Mutex::default(),
            left: Mutex::default(),
        }
    }

    /// Adds a variant. Its kernels and constants that the others have too are theirs
    /// afterwards.
    ///
    /// # Errors
    /// If it is no variant of the same model, or one of its sizes is there. Then nothing
    /// has changed.
    pub fn add(&mut self, model: &CompiledModel) -> Result<(), Inconsistent> {
        let shared = self.share(model);
        self.models.push(Arc::new(shared));
        (self.ready, self.left) = (Mutex::default(), Mutex::default());
        self.check().inspect_err(|_| _ = self.models.pop())
    }

    /// Bytes of constants that the file leaves out: they are made when a [`Model`](crate::Model) is. Those that variants make of the same
    /// constants count for each.
    pub fn derived_bytes(&self) -> u64 {
        let all = self.models.iter().flat_map(|m| m.derived());
        all.map(|(_, bytes)| bytes).sum()
    }

    /// The variants with all of their constants. Those that the file left out are made once, on `pool`.
    pub(crate) fn ready(self: Arc<Variants>, pool: &Pool) -> Result<Arc<Variants>, LoadError> {
        if !self.models.iter().any(|m| m.lacks_constants()) {
            return Ok(self);
        }
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ready) = ready.upgrade() {
            return Ok(ready);
        }
        let models = derived::made(&self.models, pool)?;
        let whole = Arc::new(Variants::unchecked(self.dims.clone(), models));
        *ready = Arc::downgrade(&whole);
        Ok(whole)
    }

    /// The variants without the alternatives that these choices leave out. Models with equal choices have one value; it
    /// shares with this one what stays, unless that is a small part of a large buffer.
    ///
    /// # Panics
    /// As [`CompiledModel::with_choices`].
    pub(crate) fn left(&self, choices: Vec<Choices>) -> Arc<Variants> {
        let mut known = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(_, left)| left.strong_count() > 0);
        let same = known.iter().find(|(of, _)| *of == choices);
        if let Some(left) = same.and_then(|(_, left)| left.upgrade()) {
            return left;
        }
        let own = self.models.iter().zip(&choices).map(|(m, c)| match c {
            Some(choices) => m.sharing_choices(choices),
            None => CompiledModel {
                manifest: m.manifest.clone(),
                constants: m.constants.clone(),
            },
        });
        let mut models: Vec<CompiledModel> = own.collect();
        compacted(models.iter_mut().flat_map(|m| &mut m.constants).collect());
        let models = models.into_iter().map(Arc::new).collect();
        let left = Arc::new(Variants::unchecked(self.dims.clone(), models));
        known.push((choices, Arc::downgrade(&left)));
        left
    }

    /// Bytes of memory that the constants of all variants keep.
    pub(crate) fn held_bytes(&self) -> u64 {
        held_bytes(self.models.iter().flat_map(|m| &m.constants))
    }

    /// In the order in which they were added.
    pub fn models(&self) -> &[Arc<CompiledModel>] {
        &self.models
    }

    pub fn dims(&self) -> &[Dim] {
        &self.dims
    }

    /// The sizes of a variant, by dimension.
    pub fn sizes(&self, variant: usize) -> Vec<usize> {
        let size = |d: &Dim| {
            let (input, axis) = d.inputs[0];
            input_of(&self.models[variant], input).shape[axis]
        };
        self.dims.iter().map(size).collect()
    }

    /// What the choice among the alternatives of a step of a variant may depend on.
    ///
    /// # Panics
    /// If there is no variant or step of this position.
    pub fn selection_key(&self, variant: usize, step: usize, threads: u32) -> SelectionKey {
        let sizes = self.sizes(variant).into_iter().map(|n| n as i64);
        let step = &self.models[variant].steps()[step];
        SelectionKey {
            shape: sizes.chain(step.key_shape.iter().copied()).collect(),
            threads,
        }
    }

    /// A variant's sizes for people: `batch=1 seq=32`; nothing where no dimension has a name.
    pub fn label(&self, variant: usize) -> String {
        let sizes = self.dims.iter().zip(self.sizes(variant));
        let texts: Vec<String> = sizes.map(|(d, n)| format!("{}={n}", d.name)).collect();
        texts.join(" ")
    }

    /// The variants with these sizes by the names of dimensions; all where there are none.
    ///
    /// # Errors
    /// If there is no such dimension, or no variant has these sizes.
    pub fn with_sizes(&self, sizes: &[(String, usize)]) -> Result<Vec<usize>, RunError> {
        let mut wanted = Vec::new();
        for (name, size) in sizes {
            let Some(at) = self.dims.iter().position(|d| d.name == *name) else {
                let known: Vec<&str> = self.dims.iter().map(|d| d.name.as_str()).collect();
                return Err(RunError::UnknownDim {
                    name: name.clone(),
                    known: match known.is_empty() {
                        true => "none of its dimensions has a name".into(),
                        false => format!("its dimensions are {}", known.join(", ")),
                    },
                });
            };
            self.known_size(at, *size)?;
            wanted.push((at, *size));
        }
        let fits = |v: &usize| {
            let sizes = self.sizes(*v);
            wanted.iter().all(|(at, size)| sizes[*at] == *size)
        };
        Ok((0..self.models.len()).filter(fits).collect())
    }

    fn known_size(&self, dim: usize, size: usize) -> Result<(), RunError> {
        let sizes = self.sizes_of(dim);
        if sizes.contains(&size) {
            return Ok(());
        }
        Err(self.no_size(dim, size))
    }

    fn no_size(&self, dim: usize, given: usize) -> RunError {
        let known: Vec<String> = self.sizes_of(dim).iter().map(usize::to_string).collect();
        let mut known = known.join(", ");
        let dim = &self.dims[dim];
        if dim.padding.is_some() {
            known += "; smaller ones are padded";
        }
        RunError::NoVariant {
            dim: dim.name.clone(),
            given,
            known,
        }
    }

    fn sizes_of(&self, dim: usize) -> BTreeSet<usize> {
        let all = 0..self.models.len();
        all.map(|v| self.sizes(v)[dim]).collect()
    }

    /// The sizes of an input, with the names of its dimensions: `batch`, `3`.
    pub fn input_shape(&self, input: usize) -> Vec<String> {
        let size = |(axis, size): (usize, &usize)| {
            let named = self.dims.iter().find(|d| d.inputs.contains(&(input, axis)));
            let named = named.filter(|_| self.models.len() > 1);
            named.map_or_else(|| size.to_string(), |dim| dim.name.clone())
        };
        let shape = &input_of(&self.models[0], input).shape;
        shape.iter().enumerate().map(size).collect()
    }

    /// The shape of an input as people read it: `[batch, 3]`.
    pub(crate) fn shape_text(&self, input: usize) -> String {
        format!("[{}]", self.input_shape(input).join(", "))
    }

    /// The variant for inputs of these shapes: that of their very sizes, or else that of the
    /// next larger ones of the dimensions that may be padded.
    pub(crate) fn select(&self, shapes: &[&[usize]]) -> Result<Selected, RunError> {
        let given = self.sizes_in(shapes)?;
        let mut wanted = Vec::with_capacity(given.len());
        for (at, size) in given.iter().enumerate() {
            let known = self.sizes_of(at);
            let next = match self.dims[at].padding {
                Some(_) if *size > 0 => known.range(size..).next(),
                _ => known.get(size),
            };
            wanted.push(*next.ok_or_else(|| self.no_size(at, *size))?);
        }
        let variant = (0..self.models.len()).find(|v| self.sizes(*v) == wanted);
        match variant {
            Some(variant) => Ok(Selected { variant, given }),
            None => Err(RunError::NoCombination {
                given: self.named(&wanted),
                known: (0..self.models.len())
                    .map(|v| self.label(v))
                    .collect::<Vec<_>>()
                    .join("; "),
            }),
        }
    }

    /// What stands for the rows that an input does not have.
    pub(crate) fn missing_rows(&self, input: usize) -> Missing {
        let mut padding = self.dims.iter().filter_map(|d| d.padding.as_ref());
        match padding.any(|p| p.zeros.contains(&input)) {
            true => Missing::Zero,
            false => Missing::LastRow,
        }
    }

    fn named(&self, sizes: &[usize]) -> String {
        let all = self.dims.iter().zip(sizes);
        let all: Vec<String> = all.map(|(d, n)| format!("{}={n}", d.name)).collect();
        all.join(" ")
    }

    /// The size of each dimension in inputs of these shapes.
    fn sizes_in(&self, shapes: &[&[usize]]) -> Result<Vec<usize>, RunError> {
        let name = |input: usize| input_of(&self.models[0], input).name.clone();
        for (input, given) in shapes.iter().enumerate() {
            let own = &input_of(&self.models[0], input).shape;
            let open = |axis| {
                let mut dims = self.dims.iter();
                dims.any(|d| d.inputs.contains(&(input, axis)))
            };
            let fits = |axis: usize| own[axis] == given[axis] || open(axis);
            if own.len() != given.len() || !(0..own.len()).all(fits) {
                return Err(RunError::InputShape {
                    name: name(input),
                    given: given.to_vec(),
                    expected: self.shape_text(input),
                });
            }
        }
        let mut sizes = Vec::with_capacity(self.dims.len());
        for dim in &self.dims {
            let size = |(input, axis): (usize, usize)| shapes[input][axis];
            let first = dim.inputs[0];
            if let Some(other) = dim.inputs.iter().find(|at| size(**at) != size(first)) {
                return Err(RunError::SizesDiffer {
                    dim: dim.name.clone(),
                    size: size(first),
                    input: name(first.0),
                    other_size: size(*other),
                    other: name(other.0),
                });
            }
            sizes.push(size(first));
        }
        Ok(sizes)
    }

    /// The model with what it has in common with the variants.
    fn share(&self, model: &CompiledModel) -> CompiledModel {
        let mut manifest = model.manifest.clone();
        let mut kernels: HashMap<(u64, &str), Vec<&Arc<BuiltKernel>>> = HashMap::new();
        for kernel in self.models.iter().flat_map(|m| m.kernels()) {
            let same = kernels
                .entry((kernel.code_hash(), &kernel.entry))
                .or_default();
            same.push(kernel);
        }
        for kernel in &mut manifest.kernels {
            let same = kernels.get(&(kernel.code_hash(), kernel.entry.as_str()));
            if let Some(known) = same.and_then(|all| all.iter().find(|k| **k == kernel)) {
                *kernel = Arc::clone(known);
            }
        }
        let key = |c: &Constant| (xxh3_128(&c.bytes), c.prepared);
        let mut known: HashMap<(u128, bool), &Blob> = HashMap::new();
        let mut seen = BTreeSet::new();
        for constant in self.models.iter().flat_map(|m| &m.constants) {
            if seen.insert((constant.bytes.as_ptr(), constant.bytes.len())) {
                known.insert(key(constant), &constant.bytes);
            }
        }
        let mut constants = model.constants.clone();
        let mut own = Vec::new();
        for (at, constant) in constants.iter_mut().enumerate() {
            match known.get(&key(constant)) {
                Some(bytes) => constant.bytes = Blob::clone(bytes),
                None => own.push(at),
            }
        }
        // What is left in the model's own buffer must not keep all of that alive.
        let copies = gathered(own.iter().map(|at| constants[*at].clone()).collect());
        for (at, copy) in own.into_iter().zip(copies) {
            constants[at] = copy;
        }
        CompiledModel {
            manifest,
            constants,
        }
    }

    fn check(&self) -> Result<(), Inconsistent> {
        let refuse = |why: String| Err(Inconsistent(why));
        let Some(first) = self.models.first() else {
            return refuse("there is no variant".into());
        };
        let mut names = BTreeSet::new();
        for dim in &self.dims {
            let name = &dim.name;
            let there = |(input, axis): &(usize, usize)| {
                let id = first.inputs().get(*input);
                id.is_some_and(|id| *axis < first.tensor(*id).shape.len())
            };
            if dim.inputs.is_empty() || !dim.inputs.iter().all(there) || !names.insert(name) {
                return refuse(format!("the dimension `{name}` is not one of the inputs"));
            }
        }
        let mut sizes = BTreeSet::new();
        for (at, model) in self.models.iter().enumerate() {
            self.check_variant(first, model)?;
            if !sizes.insert(self.sizes(at)) {
                return refuse(format!("two variants have the sizes {}", self.label(at)));
            }
        }
        Ok(())
    }

    /// Whether a model differs from the first in the sizes of the dimensions alone, as
    /// far as a caller sees it.
    fn check_variant(
        &self,
        first: &CompiledModel,
        model: &CompiledModel,
    ) -> Result<(), Inconsistent> {
        let refuse = |why: String| Err(Inconsistent(why));
        let face = |m: &CompiledModel, ids: &[TensorId]| -> Vec<_> {
            let face = |id: &TensorId| {
                let t = m.tensor(*id);
                (t.name.clone(), t.dtype, t.shape.len())
            };
            ids.iter().map(face).collect()
        };
        let same = model.name() == first.name()
            && face(model, model.inputs()) == face(first, first.inputs())
            && face(model, model.outputs()) == face(first, first.outputs());
        if !same {
            return refuse("variants take or give tensors of other names or types".into());
        }
        for (input, id) in model.inputs().iter().enumerate() {
            let (own, others) = (&model.tensor(*id).shape, &input_of(first, input).shape);
            for (axis, size) in own.iter().enumerate() {
                let mut dims = self.dims.iter();
                let dim = dims.find(|d| d.inputs.contains(&(input, axis)));
                let expected = match dim {
                    Some(d) => input_of(model, d.inputs[0].0).shape[d.inputs[0].1],
                    None => others[axis],
                };
                if *size != expected {
                    return refuse(format!("axis {axis} of input {input} has two sizes"));
                }
            }
        }
        for (dim, size) in self.dims.iter().map(|d| (d, d.inputs[0])) {
            let Some(padding) = &dim.padding else {
                continue;
            };
            let size = input_of(model, size.0).shape[size.1];
            let fits = |(id, rows): (&TensorId, &Option<OutputRows>)| {
                let shape = &model.tensor(*id).shape;
                let rows_fit = |r: &OutputRows| {
                    r.each > 0 && size.checked_mul(r.each) == shape.get(r.axis).copied()
                };
                rows.as_ref().is_none_or(rows_fit)
            };
            if padding.zeros.iter().any(|at| *at >= model.inputs().len()) {
                return refuse(format!("`{}` pads an input that is not there", dim.name));
            }
            let mut all = model.outputs().iter().zip(&padding.outputs);
            if padding.outputs.len() != model.outputs().len() || !all.all(fits) {
                let name = &dim.name;
                return refuse(format!(
                    "outputs do not have the rows of the dimension `{name}`"
                ));
            }
        }
        Ok(())
    }
}

fn input_of(model: &CompiledModel, input: usize) -> &TensorInfo {
    model.tensor(model.inputs()[input])
}

/// What stands for the rows that a tensor does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    LastRow,
    Zero,
}

/// Fills a tensor of the shape `want` from one of the shape `have`: with its first rows along
/// each axis, and what stands for those it does not have.
pub(crate) fn fit(from: &[u8], have: &[usize], to: &mut [u8], want: &[usize], missing: Missing) {
    if have == want {
        return to.copy_from_slice(from);
    }
    if to.is_empty() {
        return;
    }
    let (rows, step, stride) = (have[0], from.len() / have[0], to.len() / want[0]);
    for (row, place) in to.chunks_exact_mut(stride).enumerate() {
        if row >= rows && missing == Missing::Zero {
            place.fill(0);
            continue;
        }
        let at = row.min(rows - 1) * step;
        fit(&from[at..at + step], &have[1..], place, &want[1..], missing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_repeats_the_last_row_and_cropping_takes_it_off() {
        let mut large = [0; 12];
        let last = Missing::LastRow;
        fit(&[1, 2, 3, 4], &[2, 2], &mut large, &[3, 4], last);
        assert_eq!(large, [1, 2, 2, 2, 3, 4, 4, 4, 3, 4, 4, 4]);
        let mut small = [0; 4];
        fit(&large, &[3, 4], &mut small, &[2, 2], last);
        assert_eq!(small, [1, 2, 3, 4]);
        let mut empty = [];
        fit(&[], &[1, 0], &mut empty, &[3, 0], last);
        fit(&[], &[0, 1], &mut empty, &[0, 3], last);
        fit(&[], &[3, 0], &mut empty, &[1, 0], last);
    }

    #[test]
    fn a_mask_is_padded_with_zeros() {
        let mut large = [9; 12];
        fit(&[1, 2, 3, 4], &[2, 2], &mut large, &[3, 4], Missing::Zero);
        assert_eq!(large, [1, 2, 0, 0, 3, 4, 0, 0, 0, 0, 0, 0]);
    }
}
