//! Loading models: an ONNX file, a built-in name, or one operator; at one size, or at each
//! combination of several.

use crate::file_kind::FileKind;
use graph::{Limits, NamedDim, Padded, padded};
use onnx::{BoundModel, ImportError, ImportOptions, ModelFile};
use plan::LayoutPolicy;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::thread::{ScopedJoinHandle, available_parallelism};
use tensor::Tensor;
use tune::source::{Precision, Source};
use tune::{Error, Result};

/// Combinations of sizes that one artifact may have, and sizes at which a model is read to
/// prove that a dimension may be padded.
const MOST_VARIANTS: usize = 256;
const MOST_PROOFS: usize = 512;
/// Models that are read at the same time for such proofs: each takes memory.
const MOST_READINGS: usize = 4;
/// Masks that take less than this from scores are told of. Scores of f32 cannot come near it.
const STRONG_MASK: f64 = 1e30;
/// The name of the dimension of [`Sizes::batch`].
const BATCH: &str = "batch";

/// The sizes that a model is to have; every combination is a variant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sizes {
    /// Of the batch, as [`ImportOptions::batch`].
    pub batch: Vec<usize>,
    /// Of dimensions by their names, as [`ImportOptions::dims`].
    pub dims: BTreeMap<String, Vec<usize>>,
    /// As [`ImportOptions::consts`].
    pub consts: BTreeMap<String, Arc<Tensor>>,
    /// As [`ImportOptions::open_inputs`].
    pub open_inputs: BTreeSet<String>,
    /// As [`ImportOptions::limits`].
    pub limits: Limits,
    /// As [`ImportOptions::training`].
    pub training: bool,
    /// The name of the dimension whose smaller sizes are to run on the next larger variant. It
    /// is one, as what is proven of each of two says nothing of both together.
    pub pad: Option<String>,
}

impl Sizes {
    /// All combinations, the sizes of each dimension in ascending order.
    fn combinations(&self) -> Result<Vec<ImportOptions>> {
        if !self.batch.is_empty() && self.dims.contains_key(BATCH) {
            return Err(
                Error::new("--batch and --dim batch both give the size of the batch")
                    .help("give one of them"),
            );
        }
        let mut all = vec![ImportOptions {
            consts: self.consts.clone(),
            open_inputs: self.open_inputs.clone(),
            limits: self.limits,
            training: self.training,
            ..ImportOptions::default()
        }];
        let lists = self.dims.iter().map(|(name, sizes)| (Some(name), sizes));
        let batch = (!self.batch.is_empty()).then_some((None, &self.batch));
        for (name, sizes) in batch.into_iter().chain(lists) {
            let sizes: BTreeSet<usize> = sizes.iter().copied().collect();
            if all.len() * sizes.len() > MOST_VARIANTS {
                return Err(Error::new(format!(
                    "there are more than {MOST_VARIANTS} combinations of sizes"
                ))
                .help("give fewer sizes; each combination is compiled"));
            }
            let with = |o: &ImportOptions| {
                let one = |size: &usize| with_size(o, name, *size);
                sizes.iter().map(one).collect::<Vec<_>>()
            };
            all = all.iter().flat_map(with).collect();
        }
        Ok(all)
    }
}

fn with_size(options: &ImportOptions, name: Option<&String>, size: usize) -> ImportOptions {
    let mut options = options.clone();
    match name {
        Some(name) => _ = options.dims.insert(name.clone(), size),
        None => options.batch = Some(size),
    }
    options
}

/// Loads a model: an ONNX file, a built-in model by its name, or one operator such as
/// `op:matmul(m=64,n=64,k=64)`. `tunesmith models` lists the names. The options fix sizes that
/// an ONNX file leaves open.
///
/// # Errors
/// If there is no such file or name, the file is no model that is supported, or options are
/// given for what has no open sizes.
pub fn load(name: &str, options: &ImportOptions) -> Result<Source> {
    if names_file(name) {
        let bound = import(&open(name)?, options)?;
        return Ok(source(name, bound));
    }
    let of_images = ImportOptions {
        batch: options.batch,
        training: options.training,
        ..ImportOptions::default()
    };
    let batch = options.batch.filter(|_| *options == of_images);
    let source = Source::builtin_batch(name, batch.unwrap_or(1)).map_err(|e| {
        e.help(
            "give an ONNX file, a name that `tunesmith models` lists, or op:NAME(argument=value, ...)",
        )
    })?;
    if *options != of_images {
        return Err(Error::new(format!(
            "import options are for ONNX files, and the shapes of {name} are fixed"
        ))
        .help("an operator takes its sizes as arguments, as in op:conv2d(n=8)"));
    }
    Ok(source)
}

/// Loads a model at every combination of sizes: the variants of one artifact. They share
/// their weights.
///
/// # Errors
/// As [`load`]; if a dimension that is to be padded is not proven to be; and if there are too many combinations.
pub fn load_variants(name: &str, sizes: &Sizes) -> Result<Vec<Source>> {
    let all = sizes.combinations()?;
    if !names_file(name) {
        if sizes.pad.is_some() || all.len() > 1 {
            let several = Error::new(format!("the shapes of {name} are fixed"));
            return Err(several.help("give an ONNX file with open sizes"));
        }
        return Ok(vec![load(name, &all[0])?]);
    }
    let file = open(name)?;
    let mut sources = Vec::with_capacity(all.len());
    for options in &all {
        sources.push(source(name, import(&file, options)?));
    }
    agree(&mut sources)?;
    if let Some(dim) = &sizes.pad {
        let padding = Padding { file: &file, dim }.prove(&all, &sources)?;
        let weak = padding.hidden_by.filter(|by| *by < STRONG_MASK);
        sources[0].notes.extend(weak.map(|by| {
            format!(
                "--pad {dim}: a mask of the model adds {} to scores, so that padding has no weight only \
                 while scores of a token differ by less than {}, as those of trained models do",
                -by,
                0.9 * by
            )
        }));
        for own in sources.iter_mut().flat_map(|s| &mut s.dims) {
            if own.name == *dim {
                own.padding = Some(padding.clone());
            }
        }
    }
    Ok(sources)
}

/// The ONNX file at a path; an error names the file, and says what to do with one of another kind.
pub fn open(name: &str) -> Result<ModelFile> {
    let path = Path::new(name);
    ModelFile::open(path).map_err(|e| match FileKind::of(path) {
        None if matches!(e, ImportError::Io { .. }) => Error::new(e.to_string()),
        None => Error::new(format!("{name}: {e}")),
        Some(kind) => Error::new(format!("{name} is {}, and no ONNX model", kind.name()))
            .help(kind.instead_of_model()),
    })
}

fn import(file: &ModelFile, options: &ImportOptions) -> Result<BoundModel> {
    file.import(options).map_err(|e| {
        let error = Error::new(e.to_string());
        match advice(&e) {
            Some(advice) => error.help(advice),
            None => error,
        }
    })
}

/// What a user can do about a model that cannot be imported.
fn advice(e: &ImportError) -> Option<&'static str> {
    match e {
        ImportError::Unsupported(_) => Some(
            "export the model without these nodes: with fixed sizes where they come from open ones, \
             as one function without control flow, or with another operator in their place; \
             docs/howto/when-something-is-missing.md shows how",
        ),
        ImportError::Tensor { .. } => Some(
            "a model with external data is several files: keep them in one folder, under the names \
             that they were exported with",
        ),
        _ => None,
    }
}

/// A model is named after its file: exporters give graphs no names, or all the same one, such as
/// `main_graph`.
fn source(name: &str, mut bound: BoundModel) -> Source {
    let stem = Path::new(name).file_stem();
    let name = stem.map_or(name.into(), |s| s.to_string_lossy().into_owned());
    bound.model.name.clone_from(&name);
    Source {
        name,
        model: bound.model,
        layouts: LayoutPolicy::Blocked,
        precision: Precision::Model,
        dims: bound.dims,
        notes: bound.notes,
        untrained: bound.untrained,
        settings: BTreeMap::new(),
    }
}

/// Leaves the axes that a dimension has in all variants: another may have the size at one of
/// them by chance.
fn agree(sources: &mut [Source]) -> Result<()> {
    let places = |s: &Source| -> BTreeMap<String, BTreeSet<(usize, usize)>> {
        let dim = |d: &NamedDim| (d.name.clone(), d.inputs.iter().copied().collect());
        s.dims.iter().map(dim).collect()
    };
    let all: Vec<_> = sources.iter().map(places).collect();
    for source in sources {
        for dim in &mut source.dims {
            let everywhere = |at: &(usize, usize)| {
                let mut all = all.iter();
                all.all(|p| p.get(&dim.name).is_some_and(|p| p.contains(at)))
            };
            dim.inputs.retain(everywhere);
            if dim.inputs.is_empty() {
                return Err(Error::new(format!(
                    "no input has the dimension `{}` at all of its sizes",
                    dim.name
                ))
                .help("give it one size"));
            }
        }
    }
    Ok(())
}

/// A dimension that is to be padded, if that is proven to change nothing.
struct Padding<'a> {
    file: &'a ModelFile,
    dim: &'a str,
}

impl Padding<'_> {
    fn size(&self, source: &Source) -> Option<usize> {
        let dim = source.dims.iter().find(|d| d.name == self.dim);
        dim.map(|d| d.size)
    }

    /// Reads the model at every size that would run on a larger variant, and compares it with
    /// that variant.
    fn prove(&self, all: &[ImportOptions], sources: &[Source]) -> Result<Padded> {
        let known: BTreeSet<usize> = sources.iter().filter_map(|s| self.size(s)).collect();
        let Some(largest) = known.last().copied() else {
            let names = sources[0].dims.iter().map(|d| d.name.as_str());
            let names: Vec<&str> = names.collect();
            return Err(
                Error::new(format!("--pad {}: no such dimension was given", self.dim)).help(
                    format!("the dimensions with sizes are: {}", names.join(", ")),
                ),
            );
        };
        let between: Vec<usize> = (1..largest).filter(|n| !known.contains(n)).collect();
        if between.len() * sources.len() / known.len() > MOST_PROOFS {
            return Err(self.refused(&format!(
                "the model would have to be read at {} sizes to prove that it may",
                between.len() * sources.len() / known.len()
            )));
        }
        if between.is_empty() {
            return Err(self.refused("every smaller size has a variant of its own"));
        }
        let mut readings = Vec::new();
        for size in between {
            let next = known.range(size..).next();
            let variants = all.iter().zip(sources);
            let of_next = variants.filter(|(_, s)| self.size(s).as_ref() == next);
            readings.extend(of_next.map(|(options, large)| (size, options, large)));
        }
        let threads = available_parallelism().map_or(1, NonZero::get);
        let mut proven: Option<Padded> = None;
        // A model that cannot be padded is refused after the first sizes.
        for some in readings.chunks(threads.min(MOST_READINGS)) {
            for how in self.proofs(some) {
                let how = how?;
                let before = proven.get_or_insert_with(|| how.clone());
                let weakest = before.hidden_by.into_iter().chain(how.hidden_by);
                before.hidden_by = weakest.reduce(f64::min);
                if (&before.outputs, &before.zeros) != (&how.outputs, &how.zeros) {
                    return Err(self.refused("sizes differ in how they may be padded"));
                }
            }
        }
        proven.ok_or_else(|| self.refused("there is no larger variant"))
    }

    /// The proofs for some sizes and their variants, each on a thread of its own.
    fn proofs(&self, some: &[(usize, &ImportOptions, &Source)]) -> Vec<Result<Padded>> {
        let one = |(size, options, large): &(usize, &ImportOptions, &Source)| {
            let inputs = large.dims.iter().find(|d| d.name == self.dim);
            let inputs = inputs.map_or(&[][..], |d| &d.inputs);
            let name = options.dims.keys().find(|k| *k == self.dim);
            let small = import(self.file, &with_size(options, name, *size))
                .map_err(|e| self.refused(&format!("with {size} it cannot be read: {e}")))?;
            padded(&small.model, &large.model, inputs)
                .map_err(|why| self.refused(&format!("with {size}, {why}")))
        };
        std::thread::scope(|scope| {
            let one = &one;
            let all: Vec<_> = some.iter().map(|r| scope.spawn(move || one(r))).collect();
            let join = |t: ScopedJoinHandle<'_, _>| t.join().unwrap_or_else(|e| resume_unwind(e));
            all.into_iter().map(join).collect()
        })
    }

    fn refused(&self, why: &str) -> Error {
        let dim = self.dim;
        Error::new(format!("{dim} cannot be padded: {why}")).help(format!(
            "leave out --pad {dim} and give all sizes that inputs have with --dim {dim}=SIZE,..."
        ))
    }
}

/// Whether a model's name is that of a file, and not of a built-in model or an operator.
pub fn names_file(name: &str) -> bool {
    let path = Path::new(name);
    path.extension().is_some_and(|e| e == "onnx") || path.is_file()
}
