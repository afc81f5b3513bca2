//! From an ONNX file to a bound model.

mod apart;
mod appended;
mod branches;
mod contradiction;
mod control;
pub(crate) mod cropped;
mod fixed;
mod flexible;
mod functions;
mod guarded;
mod halves;
mod inputs;
mod masks;
mod order;
mod outputs;
mod parameters;
mod placed;
mod sampled;
mod sized;
mod summed;
mod timed;
mod wanted;

use crate::attributes::Attributes;
use crate::declared::shape_allows;
use crate::error::{ImportError, NeededValue, UnboundDim, UnsupportedNode};
use crate::file::{DataFolder, FileBuf};
use crate::live::Live;
use crate::narrow::Narrows;
use crate::node::{Imported, NodeImport, Problem};
use crate::operators;
use crate::proto::tensor_shape_proto::dimension::Value as Dim;
use crate::proto::{GraphProto, ModelProto, NodeProto, TensorShapeProto, ValueInfoProto};
use crate::sequence::{self, Sequences};
use crate::tensors::{TensorError, any_tensor_from, dtype_of};
use crate::versions::{operator_sets, standard_domain};
use crate::wrapping;
use appended::Appending;
use control::{Definition, Stop};
use graph::{Limits, Model, NamedDim, TensorType, ValueId};
use prost::{DecodeError, Message};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use tensor::{DType, Tensor};

/// What the file leaves open.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImportOptions {
    /// The size of symbolic first dimensions of inputs, and of dimensions named
    /// `N`, `batch` or `batch_size`.
    pub batch: Option<usize>,
    /// Sizes of symbolic dimensions by their name, or by `INPUT.AXIS`. Take
    /// precedence over `batch`.
    pub dims: BTreeMap<String, usize>,
    /// Inputs that become constants, by name.
    pub consts: BTreeMap<String, Arc<Tensor>>,
    /// Initialisers that become inputs, whose values are given at run time.
    pub open_inputs: BTreeSet<String>,
    /// What a file may make of itself.
    pub limits: Limits,
    /// Whether a training step is to be made of the model: dropouts in training mode are kept for it, which are
    /// refused elsewhere.
    pub training: bool,
}

/// A model whose sizes are all known, and where the sizes that options gave are.
#[derive(Clone, Debug)]
pub struct BoundModel {
    pub model: Model,
    /// A dimension for each option that gave a size, `batch` for that of the batch; in the
    /// order of the inputs and axes that have them.
    pub dims: Vec<NamedDim>,
    /// What the file says wrongly and the model does not depend on, each in a sentence: a warning.
    pub notes: Vec<String>,
    /// With [`ImportOptions::training`], the constants that are no parameters: all but the initialisers of the graph.
    pub untrained: BTreeSet<String>,
}

/// A model file that was read once, to be imported with any sizes. All models that come of
/// it share its weights.
pub struct ModelFile {
    /// Without its graph.
    pub(crate) proto: ModelProto,
    pub(crate) graph: GraphProto,
    folder: Option<DataFolder>,
}

impl ModelFile {
    /// Reads a model file; external data is read from beside it.
    ///
    /// # Errors
    /// If it cannot be read, or is no model.
    pub fn open(path: &Path) -> Result<ModelFile, ImportError> {
        let io = |source| ImportError::Io {
            path: path.to_path_buf(),
            source,
        };
        let mut file = FileBuf::open(path).map_err(io)?;
        let proto = ModelProto::decode(&mut file);
        file.finish().map_err(io)?;
        let folder = DataFolder::of(path).map_err(io)?;
        ModelFile::new(decoded(proto)?, Some(folder))
    }

    /// Reads a model from the bytes of a file, which has no external data.
    ///
    /// # Errors
    /// If they are no model.
    pub fn read(bytes: &[u8]) -> Result<ModelFile, ImportError> {
        ModelFile::new(decoded(ModelProto::decode(bytes))?, None)
    }

    fn new(mut proto: ModelProto, folder: Option<DataFolder>) -> Result<ModelFile, ImportError> {
        let Some(mut graph) = proto.graph.take() else {
            return Err(ImportError::Decode("it has no graph".into()));
        };
        functions::inline(&mut proto, &mut graph)?;
        order::sort(&mut graph);
        Ok(ModelFile {
            proto,
            graph,
            folder,
        })
    }

    /// The model with these sizes. A size that the file fixes may be another one, if the
    /// model at that size does to each row what the model in the file does.
    ///
    /// # Errors
    /// See [`ImportError`]; unsupported nodes are all listed.
    pub fn import(&self, options: &ImportOptions) -> Result<BoundModel, ImportError> {
        let mut graph = self.graph.clone();
        inputs::open(&mut graph, &options.open_inputs)?;
        let Some(changed) = fixed::change(&mut graph, options) else {
            return bind(&self.proto, graph, self.folder.as_ref(), options);
        };
        // What the file itself cannot be imported for is the better reason.
        let original = self.import(&changed.options_without(options))?;
        let read = bind(&self.proto, graph, self.folder.as_ref(), options);
        changed.follow(original, read.ok(), options.limits)
    }
}

/// Imports a model file; external data is read from beside it.
///
/// # Errors
/// As [`ModelFile::open`] and [`ModelFile::import`].
pub fn import_file(path: &Path, options: &ImportOptions) -> Result<Model, ImportError> {
    Ok(ModelFile::open(path)?.import(options)?.model)
}

/// Imports a serialised model. `folder` is where external data lies.
///
/// # Errors
/// As [`import_file`].
pub fn import_bytes(
    bytes: &[u8],
    folder: Option<&Path>,
    options: &ImportOptions,
) -> Result<Model, ImportError> {
    let folder = folder.map(|path| {
        DataFolder::new(path).map_err(|source| ImportError::Io {
            path: path.to_path_buf(),
            source,
        })
    });
    let file = ModelFile::new(decoded(ModelProto::decode(bytes))?, folder.transpose()?)?;
    Ok(file.import(options)?.model)
}

fn decoded(proto: Result<ModelProto, DecodeError>) -> Result<ModelProto, ImportError> {
    proto.map_err(|e| ImportError::Decode(e.to_string()))
}

/// The model of a graph whose open sizes the options give.
fn bind(
    proto: &ModelProto,
    mut graph: GraphProto,
    folder: Option<&DataFolder>,
    options: &ImportOptions,
) -> Result<BoundModel, ImportError> {
    if options.training {
        masks::drop_unread(&mut graph);
    }
    let opsets = operator_sets(proto)?;
    let opset = opsets.get("").copied();
    let mut model = Model::new(graph.name(), opset.unwrap_or(0));
    model.set_limits(options.limits);
    let importer = Importer {
        model,
        values: HashMap::new(),
        unreadable: HashMap::new(),
        opsets,
        unsupported: Vec::new(),
        needed: Vec::new(),
        written: HashMap::new(),
        appending: HashMap::new(),
        guard: None,
        folder,
        bound: Bound::default(),
        live: Live::default(),
        sequences: Sequences::new(),
        narrow: Narrows::new(),
        notes: Vec::new(),
        wanted: wanted::wanted_rows(&graph),
        training: options.training,
        parameters: HashSet::new(),
    };
    let bound = importer.run(graph, options)?;
    if options.training {
        return Ok(bound);
    }
    Ok(BoundModel {
        model: bound.model.folded_to_bytes(),
        ..bound
    })
}

struct Importer<'a> {
    model: Model,
    /// What each ONNX name stands for; `None` if its node could not be imported.
    values: HashMap<String, Option<ValueId>>,
    /// Initializers of types without a counterpart, which matter to what reads them.
    unreadable: HashMap<String, TensorError>,
    opsets: HashMap<String, i64>,
    unsupported: Vec<UnsupportedNode>,
    needed: Vec<NeededValue>,
    /// Constants of graphs that are written out several times, by what defines them.
    written: HashMap<Definition, ValueId>,
    /// Bodies of loops that append to these states.
    appending: HashMap<(Definition, Vec<usize>), Appending>,
    /// Where the data decide whether the nodes run that are being imported, the value that says so.
    guard: Option<ValueId>,
    folder: Option<&'a DataFolder>,
    bound: Bound,
    live: Live,
    sequences: Sequences,
    narrow: Narrows,
    /// What is said about the file.
    notes: Vec<String>,
    /// Of values of which only the first rows are read, how many.
    wanted: HashMap<String, usize>,
    /// As [`ImportOptions::training`].
    training: bool,
    /// What a training step trains: initialisers of the graph. None without [`ImportOptions::training`].
    parameters: HashSet<ValueId>,
}

impl Importer<'_> {
    fn run(
        mut self,
        mut graph: GraphProto,
        options: &ImportOptions,
    ) -> Result<BoundModel, ImportError> {
        let initializers = std::mem::take(&mut graph.initializer);
        let given: BTreeSet<String> = initializers.iter().map(|t| t.name().to_string()).collect();
        self.import_inputs(&graph.input, &given, options)?;
        let mut seen = HashSet::new();
        for t in initializers {
            let name = t.name().to_string();
            let (value, kind) = match any_tensor_from(t, self.folder) {
                Ok(read) => read,
                Err(source @ TensorError::Type(_)) => {
                    self.define(&name, None)?;
                    self.unreadable.insert(name, source);
                    continue;
                }
                Err(source) => return Err(ImportError::Tensor { name, source }),
            };
            // Tensors that share their bytes in a file are no more constants for that.
            let id = match seen.insert(value.bytes().as_ptr()) {
                true => self.model.add_constant(&name, value),
                false => self.model.add_result(&name, value),
            };
            self.narrow.extend(kind.map(|k| (id, k)));
            self.parameters.extend(self.training.then_some(id));
            self.define(&name, id)?;
        }
        self.check_given(&graph)?;
        for t in &graph.sparse_initializer {
            let name = t.values.as_ref().map_or("", |v| v.name());
            self.report(
                "sparse initializer",
                "",
                name,
                "sparse tensors are not supported",
            );
            self.values.insert(name.to_string(), None);
        }
        for (i, node) in graph.node.iter().enumerate() {
            self.import_node(i, node)?;
        }
        if !self.unsupported.is_empty() {
            return Err(ImportError::Unsupported(self.unsupported));
        }
        if !self.needed.is_empty() {
            return Err(ImportError::NeededValues(self.needed));
        }
        let mut notes = self.check_results(&graph, options)?;
        notes.append(&mut self.notes);
        notes.extend(contradiction::drop_repeated(&mut graph.output));
        self.bind_outputs(&graph.output)?;
        Ok(BoundModel {
            untrained: match self.training {
                true => parameters::others(&self.model, &self.parameters),
                false => BTreeSet::new(),
            },
            model: self.model,
            dims: self.bound.dims(),
            notes,
        })
    }

    fn define(&mut self, name: &str, id: impl Into<Option<ValueId>>) -> Result<(), ImportError> {
        if self.values.insert(name.to_string(), id.into()).is_some() {
            return Err(ImportError::Invalid(format!(
                "the name `{name}` is defined twice"
            )));
        }
        Ok(())
    }

    fn report(&mut self, op: &str, domain: &str, node: &str, reason: &str) {
        self.unsupported.push(UnsupportedNode {
            node: node.to_string(),
            op: op.to_string(),
            domain: domain.to_string(),
            reason: reason.to_string(),
        });
    }

    fn import_inputs(
        &mut self,
        inputs: &[ValueInfoProto],
        initializers: &BTreeSet<String>,
        options: &ImportOptions,
    ) -> Result<(), ImportError> {
        let (mut unbound, mut bound) = (Vec::new(), Bound::default());
        for input in inputs.iter().filter(|i| !initializers.contains(i.name())) {
            let name = input.name();
            let constant = options.consts.get(name);
            let Some(ty) = input.r#type.as_ref().and_then(|t| t.tensor_type.as_ref()) else {
                self.report("graph input", "", name, "it is not a tensor");
                self.values.insert(name.to_string(), None);
                continue;
            };
            let dtype = match dtype_of(ty.elem_type()) {
                Ok(dtype) => dtype,
                Err(e) => {
                    self.report("graph input", "", name, &e.to_string());
                    self.values.insert(name.to_string(), None);
                    continue;
                }
            };
            if let Some(t) = constant {
                let refused = |reason| ImportError::Const {
                    name: name.to_string(),
                    reason,
                };
                if t.dtype() != dtype
                    || ty
                        .shape
                        .as_ref()
                        .is_some_and(|s| !shape_allows(s, t.shape()))
                {
                    return Err(refused(format!("{t:?} does not fit the declared type")));
                }
                bound.shape(name, None, t.shape(), options);
                let id = self.model.add_constant(name, t.clone());
                let id = self.taken(id)?;
                self.define(name, id)?;
                continue;
            }
            let Some(shape) = &ty.shape else {
                self.report("graph input", "", name, "its rank is unknown");
                self.values.insert(name.to_string(), None);
                continue;
            };
            let input = InputName {
                name,
                at: self.model.inputs().len(),
            };
            let shape = bind_shape(input, shape, options, &mut unbound, &mut bound);
            if !TensorType::new(dtype, &shape).is_possible() {
                return Err(ImportError::Invalid(format!(
                    "input `{name}` has shape {shape:?}"
                )));
            }
            let id = self.model.add_input(name, dtype, &shape);
            let id = self.taken(id)?;
            self.define(name, id)?;
        }
        self.check_consts(inputs, initializers, options)?;
        // A name that is wrong is the reason for the size that is missing, and what cannot be
        // imported is the better reason for either.
        if self.unsupported.is_empty() {
            bound.all_dims(options)?;
        }
        if !unbound.is_empty() {
            return Err(ImportError::UnboundDims(unbound));
        }
        if self.unsupported.is_empty() {
            bound.batch(options)?;
        }
        self.bound = bound;
        Ok(())
    }

    /// Refuses values of inputs that there are not.
    fn check_consts(
        &self,
        inputs: &[ValueInfoProto],
        initializers: &BTreeSet<String>,
        options: &ImportOptions,
    ) -> Result<(), ImportError> {
        for name in options.consts.keys() {
            if !inputs.iter().any(|i| i.name() == name) || initializers.contains(name) {
                let names: Vec<_> = self
                    .model
                    .inputs()
                    .iter()
                    .map(|v| self.model[*v].name())
                    .collect();
                let reason = format!("the model has no such input; it has {}", names.join(", "));
                return Err(ImportError::Const {
                    name: name.clone(),
                    reason,
                });
            }
        }
        Ok(())
    }

    fn import_node(&mut self, index: usize, node: &NodeProto) -> Result<(), ImportError> {
        let domain = standard_domain(node.domain());
        let first = node.output.iter().find(|n| !n.is_empty());
        let name = match (node.name(), first) {
            ("", Some(first)) => first.clone(),
            ("", None) => format!("node {index}"),
            (name, _) => name.to_string(),
        };
        let imported = self.try_node(node, domain, &name)?;
        match imported {
            Some(Ok(())) => return Ok(()),
            Some(Err(Problem::TooLarge(source))) => {
                return Err(ImportError::TooLarge {
                    node: name,
                    op: node.op_type().to_string(),
                    source,
                });
            }
            Some(Err(Problem::Unsupported(reason))) => {
                self.report(node.op_type(), domain, &name, &reason);
            }
            Some(Err(Problem::NotConstant { value, role })) => {
                let inputs = inputs::deciding(&self.model, value);
                if inputs.is_empty() {
                    let source = self.model[value].name();
                    let reason = format!(
                        "its {role} comes from `{source}`, which is too much to compute when a \
                         model is read; make `{source}` a constant of the file"
                    );
                    self.report(node.op_type(), domain, &name, &reason);
                } else if inputs.iter().any(|i| inputs::is_data(&self.model, i)) {
                    let reason = format!(
                        "its {role} comes from the numbers of input `{}`, and nothing in the model bounds it: bound it \
                         in the model (as by Clip or Min with a constant), or export the model without this node and \
                         apply it to the model's outputs",
                        inputs.join("`, `")
                    );
                    self.report(node.op_type(), domain, &name, &reason);
                } else {
                    self.needed.push(NeededValue {
                        node: name,
                        op: node.op_type().to_string(),
                        role,
                        inputs,
                    });
                }
            }
            None => {}
        }
        for output in node.output.iter().filter(|n| !n.is_empty()) {
            self.values.insert(output.clone(), None);
        }
        Ok(())
    }

    /// `None` if an operand's node could not be imported, so this one was not tried.
    fn try_node(
        &mut self,
        node: &NodeProto,
        domain: &str,
        name: &str,
    ) -> Result<Option<Result<(), Problem>>, ImportError> {
        let Some(&opset) = self.opsets.get(domain) else {
            return Ok(Some(Problem::unsupported(
                "the model imports no operator set of its domain",
            )));
        };
        if control::OPERATORS.contains(&(domain, node.op_type())) {
            return self.try_control(node, opset, name);
        }
        let Some(operator) = operators::find(domain, node.op_type()) else {
            let reason = operators::refusal(domain, node.op_type());
            return Ok(Some(Problem::unsupported(reason)));
        };
        let mut inputs = Vec::with_capacity(node.input.len());
        for input in &node.input {
            inputs.push(match self.values.get(input) {
                _ if input.is_empty() => None,
                Some(Some(id)) => Some(*id),
                Some(None) => {
                    let unreadable = self.unreadable.get(input);
                    return Ok(unreadable
                        .map(|e| Problem::unsupported(format!("its input `{input}`: {e}"))));
                }
                None => {
                    return Err(ImportError::Invalid(format!(
                        "node `{name}` ({}) reads `{input}`, which nothing before it makes",
                        node.op_type()
                    )));
                }
            });
        }
        let before = self.model.values().len();
        let mut import = NodeImport {
            model: &mut self.model,
            proto: node,
            attributes: Attributes::new(node),
            opset,
            inputs,
            read: RefCell::default(),
            name: name.to_string(),
            folder: self.folder,
            live: &mut self.live,
            sequences: &mut self.sequences,
            narrow: &mut self.narrow,
            at_bounds: false,
            notes: &mut self.notes,
            wanted: node
                .output
                .first()
                .and_then(|o| self.wanted.get(o).copied()),
            roundings: 0,
            training: self.training,
            parameters: &self.parameters,
        };
        let imported = sequence::check(&import, operator.name).and_then(|()| {
            wrapping::import(&mut import, operator.name, |n| {
                if let Some(runs) = self.guard {
                    guarded::guard(n, operator.name, runs)?;
                }
                sized::find_bounds(n, operator);
                match sized::concerns(n) {
                    true => sized::import(n, operator),
                    false => complete(n, operator.import),
                }
            })
        });
        match imported {
            Ok(values) => {
                self.name_outputs(node, &values, before)?;
                Ok(Some(Ok(())))
            }
            Err(problem) => Ok(Some(Err(problem))),
        }
    }

    /// As [`Importer::try_node`], of a node with graphs.
    fn try_control(
        &mut self,
        node: &NodeProto,
        opset: i64,
        name: &str,
    ) -> Result<Option<Result<(), Problem>>, ImportError> {
        let before = self.model.values().len();
        match self.control(node, opset, name) {
            Ok(values) => {
                self.name_outputs(node, &values, before)?;
                Ok(Some(Ok(())))
            }
            Err(Stop::Node(problem)) => Ok(Some(Err(problem))),
            Err(Stop::File(error)) => Err(error),
            Err(Stop::Reported) => Ok(None),
        }
    }

    fn name_outputs(
        &mut self,
        node: &NodeProto,
        values: &[ValueId],
        before: usize,
    ) -> Result<(), ImportError> {
        for (output, &id) in node
            .output
            .iter()
            .zip(values)
            .filter(|(name, _)| !name.is_empty())
        {
            // An importer may pass an operand through; its own name stays then.
            if id.index() >= before {
                self.model.take_name(id, output);
            }
            self.define(output, id)?;
        }
        Ok(())
    }
}

/// Runs an importer and checks what it left: attributes, inputs and outputs.
fn complete(n: &mut NodeImport, import: fn(&mut NodeImport) -> Imported) -> Imported {
    if let Some(name) = n.attributes.repeated() {
        return Problem::unsupported(format!("attribute `{name}` is given twice"));
    }
    let mark = n.model.mark();
    n.roundings = 0;
    let mut values = import(n)?;
    if n.roundings > 1 {
        let types: Vec<DType> = values.iter().map(|v| n.dtype(*v)).collect();
        n.model.return_to(mark);
        values = halves::in_f32(n, import, &types)?;
    }
    let unread = n.attributes.unread();
    if !unread.is_empty() {
        return Problem::unsupported(format!("attribute {} is not supported", unread.join(", ")));
    }
    if let Some(i) = n.unread() {
        let (input, opset) = (&n.proto.input[i], n.opset);
        return Problem::unsupported(format!(
            "input {i}, `{input}`, is not one of this operator in operator set {opset}"
        ));
    }
    if let Some(i) = (values.len()..n.proto.output.len()).find(|i| n.wants(*i)) {
        return Problem::unsupported(format!("output {i} is not supported"));
    }
    Ok(values)
}

/// The name under which `--batch` stands among dimensions.
const BATCH: &str = "batch";

/// The options that bound a dimension of an input.
#[derive(Default)]
struct Bound {
    dims: BTreeSet<String>,
    /// The names of the dimensions that the file leaves open.
    open: BTreeSet<String>,
    /// One could take the batch size, or a fixed first one has it.
    batch: bool,
    /// One could, and has another from `dims`.
    batch_elsewhere: bool,
    /// The axes that an option bound, as the positions of an input and of an axis.
    places: BTreeMap<(usize, usize), (String, usize)>,
}

/// An input of the file, and its position among those of the model.
#[derive(Clone, Copy)]
struct InputName<'a> {
    name: &'a str,
    at: usize,
}

impl Bound {
    /// Options may say what is so anyway. `at` is the position of the input, unless it is
    /// a constant.
    fn shape(&mut self, input: &str, at: Option<usize>, shape: &[usize], options: &ImportOptions) {
        for (axis, size) in shape.iter().enumerate() {
            let position = format!("{input}.{axis}");
            if options.dims.get(&position) == Some(size) {
                self.place(at, axis, &position, *size);
                self.dims.insert(position);
            }
        }
        if let Some(n) = options.batch.filter(|n| shape.first() == Some(n)) {
            self.batch = true;
            self.place(at, 0, BATCH, n);
        }
    }

    /// An axis keeps the first name that it is given.
    fn place(&mut self, at: Option<usize>, axis: usize, name: &str, size: usize) {
        if let Some(at) = at {
            let place = self.places.entry((at, axis));
            place.or_insert_with(|| (name.to_string(), size));
        }
    }

    fn dims(self) -> Vec<NamedDim> {
        let mut dims: Vec<NamedDim> = Vec::new();
        for (place, (name, size)) in self.places {
            match dims.iter_mut().find(|d| d.name == name) {
                Some(dim) => dim.inputs.push(place),
                None => dims.push(NamedDim {
                    name,
                    size,
                    inputs: vec![place],
                    padding: None,
                }),
            }
        }
        dims
    }

    /// Refuses sizes of dimensions of other names than there are.
    fn all_dims(&self, options: &ImportOptions) -> Result<(), ImportError> {
        let Some(name) = options.dims.keys().find(|d| !self.dims.contains(*d)) else {
            return Ok(());
        };
        let open: Vec<&str> = self.open.iter().map(String::as_str).collect();
        let open = match open.is_empty() {
            true => "the file fixes all sizes".into(),
            false => format!("the open ones are {}", open.join(", ")),
        };
        Err(ImportError::Unused {
            option: format!("--dim {name}"),
            reason: format!("no open dimension is called so; {open}"),
        })
    }

    /// Refuses a size of the batch that no dimension took.
    fn batch(&self, options: &ImportOptions) -> Result<(), ImportError> {
        match options.batch {
            Some(n) if !self.batch => Err(ImportError::Unused {
                option: format!("--batch {n}"),
                reason: match self.batch_elsewhere {
                    true => "--dim gives another size to every dimension that is the batch's",
                    false => "no open dimension is the batch's",
                }
                .into(),
            }),
            _ => Ok(()),
        }
    }
}

/// Whether an open dimension has the size of the batch.
fn takes_batch(axis: usize, symbol: Option<&str>) -> bool {
    axis == 0 || matches!(symbol, Some("N" | "batch" | "batch_size"))
}

/// The sizes of a declared shape; what stays open is added to `unbound` and
/// given as 1.
fn bind_shape(
    InputName { name: input, at }: InputName<'_>,
    shape: &TensorShapeProto,
    options: &ImportOptions,
    unbound: &mut Vec<UnboundDim>,
    bound: &mut Bound,
) -> Vec<usize> {
    let mut sizes = Vec::with_capacity(shape.dim.len());
    for (axis, dim) in shape.dim.iter().enumerate() {
        let symbol = match &dim.value {
            Some(Dim::DimValue(v)) if *v >= 0 => {
                sizes.push(*v as usize);
                continue;
            }
            Some(Dim::DimParam(name)) if !name.is_empty() => Some(name.clone()),
            _ => None,
        };
        let names = symbol.iter().cloned().chain([format!("{input}.{axis}")]);
        let names: Vec<String> = names.collect();
        bound.open.extend(names.first().cloned());
        let named = names
            .into_iter()
            .find_map(|n| options.dims.get_key_value(&n));
        if let Some((name, _)) = named {
            bound.dims.insert(name.clone());
        }
        let batch = options.batch.as_ref();
        let batch = batch.filter(|_| takes_batch(axis, symbol.as_deref()));
        let gives = |n: &usize| named.is_none_or(|(_, size)| size == n);
        bound.batch |= batch.is_some_and(gives);
        bound.batch_elsewhere |= batch.is_some() && named.is_some();
        match (named, batch) {
            (Some((name, size)), _) => bound.place(Some(at), axis, name, *size),
            (None, Some(size)) => bound.place(Some(at), axis, BATCH, *size),
            (None, None) => {}
        }
        match named.map(|(_, size)| size).or(batch) {
            Some(size) => sizes.push(*size),
            None => {
                unbound.push(UnboundDim {
                    input: input.to_string(),
                    axis,
                    symbol,
                });
                sizes.push(1);
            }
        }
    }
    bound.shape(input, Some(at), &sizes, options);
    sizes
}
