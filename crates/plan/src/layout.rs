//! Activation layouts: what they are, and which one every value gets.
//!
//! Promises that graph inputs, graph outputs and everything of rank other than
//! 3, 4 and 5 are plain, and that a blocked tensor's tail channels hold zeros. The
//! choice is greedy in execution order; conversions are inserted where a kernel
//! reads a value in another layout than it was written in.

use crate::fold::{batch_sum, swaps_batch, window_image};
use crate::fuse::{Group, is_elementwise};
use graph::ops::{Conv, ConvTranspose, Op, Reduce};
use graph::{Model, NodeId, Origin, Users, ValueId};
use std::collections::HashMap;
use std::ops::RangeInclusive;
use tensor::DType;

/// How the elements of an activation lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layout {
    /// Row-major in the order of the logical dimensions.
    Plain,
    /// [N, ceil(C / block), spatial.., block]; channels from C on hold zeros.
    Blocked { block: i64 },
}

impl Layout {
    /// The extents in memory of a tensor of this logical shape.
    ///
    /// # Panics
    /// If a blocked tensor has fewer than two dimensions.
    pub fn physical(self, shape: &[usize]) -> Vec<i64> {
        let dims = shape.iter().map(|d| *d as i64);
        match self {
            Layout::Plain => dims.collect(),
            Layout::Blocked { block } => {
                assert!(shape.len() >= 2, "a blocked tensor has channels");
                let mut physical: Vec<i64> = dims.collect();
                physical[1] = blocks(physical[1], block);
                physical.push(block);
                physical
            }
        }
    }

    /// Whether a tensor of this logical shape has the same bytes as a plain one.
    pub fn is_plain_for(self, shape: &[usize]) -> bool {
        match self {
            Layout::Plain => true,
            Layout::Blocked { block } => {
                (shape[1] as i64) % block == 0 && shape[2..].iter().all(|d| *d == 1)
            }
        }
    }

    /// Channels a block, if blocked.
    pub fn block(self) -> Option<i64> {
        match self {
            Layout::Plain => None,
            Layout::Blocked { block } => Some(block),
        }
    }
}

impl std::fmt::Display for Layout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Layout::Plain => f.write_str("plain"),
            Layout::Blocked { block } => write!(f, "blocked{block}"),
        }
    }
}

/// Blocks that hold so many channels.
pub(crate) fn blocks(channels: i64, block: i64) -> i64 {
    (channels + block - 1) / block
}

/// The layouts of one kernel: of its result, and in which it reads operands
/// (plain where nothing is said).
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub output: Layout,
    pub reads: HashMap<ValueId, Layout>,
    /// Groups of parts of a block are summed as whole blocks, with 0 for weights between groups.
    pub fills_groups: bool,
}

impl Choice {
    pub fn plain() -> Choice {
        Choice {
            output: Layout::Plain,
            reads: HashMap::new(),
            fills_groups: false,
        }
    }

    pub fn read(&self, v: ValueId) -> Layout {
        self.reads.get(&v).copied().unwrap_or(Layout::Plain)
    }
}

/// At most so many channels are read directly from a plain input.
const FEW_CHANNELS: usize = 4;

/// Multiply-adds in the time that the conversion of an element takes: at 130 billion of them
/// a second, and 60 GB/s, nine (an order of magnitude, Zen 5).
const PRODUCTS_AN_ELEMENT: f64 = 9.0;

/// Multiply-adds in the time that a tap of a depthwise convolution takes longer on a plain image than in blocks, with and
/// without a stride along rows, and in the time of converting an element around one: in blocks a tap takes 1.3, plain 4
/// and 6 or more, and an element takes 15 to 35. `op:depthwise_conv2d(c=144,h=56,w=56)` takes 0.36 ms in blocks and 0.12
/// plain; with 5x5 taps, `c=240,h=28,w=28` takes 0.10 and 0.19 (a Xeon with AMX).
const PLAIN_TAP: [f64; 2] = [2.7, 4.7];
const DEPTHWISE_ELEMENT: f64 = 15.0;

/// Of maps that fill no more than this part of a block, each is a sum over vectors of channels
/// instead: lanes of channels are added up once a pixel, empty lanes are multiplied for each term.
const MOST_EMPTY: i64 = 4;

/// Bytes that a dot product takes, or bf16 that two take: blocks of so many hold the few channels of
/// an image.
const FOUR: i64 = 4;

/// Channels of a group from which blocks of several groups are summed as a whole, by tiles: groups of
/// 4 use a quarter of the products, and tiles add 16 times as many as vectors of f32.
const FEWEST_OF_GROUP: i64 = 4;

/// Ranks of tensors that may be blocked: images of one to three spatial axes.
const IMAGE_RANKS: RangeInclusive<usize> = 3..=5;

/// How the groups of a grouped convolution lie in blocks of channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grouping {
    /// A group's channels and maps are whole blocks; so is a single group, up to its tail.
    Whole,
    /// Every channel is a group with one map.
    Depthwise,
    /// Blocks of channels, and of maps, are whole groups of these sizes.
    Narrow { depth: i64, maps: i64 },
}

impl Grouping {
    /// Of a convolution from so many channels to so many maps; none if groups straddle
    /// blocks.
    pub fn of(groups: usize, channels: usize, maps: usize, block: i64) -> Option<Grouping> {
        let [depth, own_maps] = [channels, maps].map(|n| (n / groups) as i64);
        if groups == 1 || depth % block == 0 && own_maps % block == 0 {
            return Some(Grouping::Whole);
        }
        if depth == 1 && own_maps == 1 {
            return Some(Grouping::Depthwise);
        }
        // A block of maps reads whole blocks of channels, or parts of one evenly.
        let even = depth % own_maps == 0 || own_maps % depth == 0;
        let narrow = even && block % depth == 0 && block % own_maps == 0;
        narrow.then_some(Grouping::Narrow {
            depth,
            maps: own_maps,
        })
    }
}

/// The layouts of every group, in the order of `groups`. Without a `block`
/// everything is plain; with one, the groups whose anchors `plain` names.
pub(crate) fn choose(
    model: &Model,
    groups: &[Group],
    block: Option<i64>,
    plain: &[String],
    has_tiles: bool,
) -> Vec<Choice> {
    let Some(block) = block else {
        return groups.iter().map(|_| Choice::plain()).collect();
    };
    let mut chooser = Chooser {
        model,
        users: model.users(),
        blocked: Layout::Blocked { block },
        block,
        plain,
        has_tiles,
        homes: HashMap::new(),
    };
    groups.iter().map(|g| chooser.group(g)).collect()
}

struct Chooser<'a> {
    model: &'a Model,
    users: Users,
    blocked: Layout,
    block: i64,
    /// Names of nodes whose groups stay plain.
    plain: &'a [String],
    /// Whether the target multiplies whole tiles.
    has_tiles: bool,
    /// The layout that values are written in, where it is not plain.
    homes: HashMap<ValueId, Layout>,
}

impl Chooser<'_> {
    fn group(&mut self, group: &Group) -> Choice {
        let plain = !group.rows.is_empty() || self.plain.contains(&self.model[group.anchor].name);
        let choice = match &group.moves {
            _ if plain => Choice::plain(),
            moves if moves.blocked => self.moved(group),
            moves if !moves.nodes.is_empty() => Choice::plain(),
            _ => self.anchor(group),
        };
        if choice.output != Layout::Plain {
            for v in group.outputs(self.model) {
                self.homes.insert(v, choice.output);
            }
        }
        choice
    }

    fn home(&self, v: ValueId) -> Layout {
        match self.model[v].origin() {
            Origin::Node(n, _) if matches!(self.model[*n].op, Op::Identity | Op::Dropout(_)) => {
                self.model[*n]
                    .input(0)
                    .map_or(Layout::Plain, |v| self.home(v))
            }
            Origin::Node(n, _) if keeps_blocks(self.model, *n, self.block) => {
                self.home(self.model[*n].inputs[0].expect("a reshape has an operand"))
            }
            _ => self.homes.get(&v).copied().unwrap_or(Layout::Plain),
        }
    }

    fn is_image(&self, v: ValueId) -> bool {
        is_image(self.model, v)
    }

    /// Whether all that the group reads and makes may lie in blocks.
    fn group_fits_blocks(&self, group: &Group) -> bool {
        group.nodes().all(|n| fits_blocks(self.model, n))
    }

    /// Blocked, of operands in blocks that are read through chains of moves.
    fn moved(&self, group: &Group) -> Choice {
        let operands = self.model[group.anchor].inputs.iter().flatten();
        let leaves = operands.flat_map(|v| group.leaves(self.model, *v));
        let leaves: Vec<ValueId> = leaves.collect();
        let mut choice = self.blocked(group, leaves[0], self.blocked);
        choice
            .reads
            .extend(leaves.iter().map(|v| (*v, self.blocked)));
        choice
    }

    fn anchor(&self, group: &Group) -> Choice {
        let node = &self.model[group.anchor];
        let x = node.inputs.first().copied().flatten();
        if let (Op::ConvInteger(c), Some(x)) = (&node.op, x) {
            return self.conv(group, &c.conv, x);
        }
        let Some(x) = x.filter(|_| self.group_fits_blocks(group)) else {
            return Choice::plain();
        };
        match &node.op {
            Op::Conv(c) => self.conv(group, c, x),
            Op::ConvTranspose(c) => self.conv_transpose(group, c, x),
            // Positions in a window are i32 and fit into blocks.
            Op::Pool(_) => self.follow(group, x),
            Op::MaxPoolGradient(_) => {
                let mut choice = self.follow(group, node.input(1).unwrap_or(x));
                if choice.output == self.blocked {
                    choice.reads.insert(x, self.blocked);
                }
                choice
            }
            Op::Resize(r) if r.axes.iter().take(2).all(Option::is_none) => self.follow(group, x),
            Op::Lrn(_) => self.follow(group, x),
            Op::Reduce(r) => self.global_pool(group, r, x),
            Op::Concat(c) if c.axis == 1 && IMAGE_RANKS.contains(&self.model[x].ty().rank()) => {
                self.concat(group)
            }
            Op::Split(s) if s.axis == 1 => {
                let whole = s.sizes.iter().all(|n| *n as i64 % self.block == 0);
                if whole {
                    self.follow(group, x)
                } else {
                    Choice::plain()
                }
            }
            Op::Transpose(_) if swaps_batch(&node.op) && self.home(x) == self.blocked => Choice {
                reads: HashMap::from([(x, self.blocked)]),
                ..Choice::plain()
            },
            op if is_elementwise(op) => self.elementwise(group),
            _ => Choice::plain(),
        }
    }

    /// Blocked, with `reads` for the anchor's data operand, and the operands of
    /// the chain blocked where they are, or where they are as large as the result.
    fn blocked(&self, group: &Group, x: ValueId, read: Layout) -> Choice {
        let mut reads = HashMap::from([(x, read)]);
        let result = self.model[group.outputs(self.model)[0]].shape();
        for v in group.chain_operands(self.model) {
            let full = self.model[v].shape() == result;
            let moves = self.model.constant(v).is_none();
            // Of fewer axes, their second one is none of channels.
            let lies = self.home(v) == self.blocked && self.model[v].ty().rank() == result.len();
            if moves && (lies || full && self.is_image(v)) {
                reads.entry(v).or_insert(self.blocked);
            }
        }
        Choice {
            output: self.blocked,
            reads,
            fills_groups: false,
        }
    }

    fn conv(&self, group: &Group, c: &Conv, x: ValueId) -> Choice {
        let node = &self.model[group.anchor];
        let fits = match node.op {
            Op::ConvInteger(_) => self.model[x].ty().rank() == 4 && !self.model[x].ty().is_empty(),
            _ => self.is_image(x) && self.is_image(node.output()),
        };
        // Constants lie as the model has them.
        if !fits || self.model.constant(x).is_some() {
            return Choice::plain();
        }
        let (channels, maps) = (
            self.model[x].shape()[1],
            self.model[node.output()].shape()[1],
        );
        if let Some(images) = batch_sum(self.model, node) {
            return self.batch_sum(group, images);
        }
        if let Some(windows) = window_image(self.model, node) {
            return self.windows(group, x, windows);
        }
        let grouping = Grouping::of(c.groups, channels, maps, self.block);
        let fits = match grouping {
            Some(Grouping::Whole | Grouping::Depthwise) => true,
            Some(Grouping::Narrow { .. }) => {
                matches!(node.op, Op::Conv(_)) && self.is_worth_a_block(channels.min(maps))
            }
            None => false,
        };
        // Images of two spatial axes stay in blocks that their operand is in, few maps or not.
        let whole = grouping == Some(Grouping::Whole) && matches!(node.op, Op::Conv(_));
        let stays = whole && self.home(x) == Layout::Plain;
        let image = self.model[x].ty().rank() == 4 && !stays;
        let fits = fits && (image || self.is_worth_a_block(maps));
        let cheaper_plain = match grouping {
            Some(Grouping::Depthwise) => self.is_light_depthwise(group, c, x),
            _ => self.is_product_of_pixels(group, c, x),
        };
        if !fits || cheaper_plain && self.is_between_plain(group, x) {
            return Choice::plain();
        }
        let float = matches!(node.op, Op::Conv(_));
        let few = maps as i64 * MOST_EMPTY <= self.block;
        if float && few && c.groups == 1 && self.home(x) == self.blocked {
            return Choice {
                reads: HashMap::from([(x, self.blocked)]),
                ..Choice::plain()
            };
        }
        let halves = self.model[x].dtype() == DType::BF16;
        let fills_groups = match grouping {
            Some(Grouping::Narrow { depth, maps }) => {
                self.has_tiles && halves && depth == maps && depth >= FEWEST_OF_GROUP
            }
            _ => false,
        };
        Choice {
            fills_groups,
            ..self.products(group, x, c.groups)
        }
    }

    /// Of a convolution over the batch. Both images are read in blocks of channels: vectors
    /// of the weights' channels, and elements of the data's.
    fn batch_sum(&self, group: &Group, [data, maps]: [ValueId; 2]) -> Choice {
        let channels = |v: ValueId| self.model[v].shape()[1];
        if !self.is_worth_a_block(channels(maps)) {
            return Choice::plain();
        }
        let mut choice = self.blocked(group, maps, self.blocked);
        if channels(data) > FEW_CHANNELS {
            choice.reads.insert(data, self.blocked);
        }
        choice
    }

    /// Of a depthwise convolution whose windows are as large as images. Blocks hold channels
    /// of one image of the batch only.
    fn windows(&self, group: &Group, x: ValueId, windows: ValueId) -> Choice {
        let in_blocks = |v: ValueId| self.home(v) == self.blocked;
        if !in_blocks(x) || !in_blocks(windows) {
            return Choice::plain();
        }
        let mut choice = self.blocked(group, x, self.blocked);
        choice.reads.insert(windows, self.blocked);
        choice
    }

    /// Whether no neighbour of a group may be in blocks.
    fn is_between_plain(&self, group: &Group, x: ValueId) -> bool {
        let results = group.outputs(self.model);
        let mut users = results.iter().flat_map(|v| self.users.of(*v));
        let blocked = |n: NodeId| self.may_be_blocked(n);
        let made = self.model.producer(x).is_some_and(|(n, _)| blocked(n));
        !made && !users.any(|(n, _)| blocked(*n))
    }

    /// Whether a convolution is a product of matrices with the image as one of them, and the
    /// lanes that pixels leave empty cost less than blocks: their empty lanes, and a
    /// conversion of both images.
    fn is_product_of_pixels(&self, group: &Group, c: &Conv, x: ValueId) -> bool {
        let node = &self.model[group.anchor];
        let Some(weights) = node.input(1).filter(|_| matches!(node.op, Op::Conv(_))) else {
            return false;
        };
        let pads = c.pads.iter().all(|p| *p == (0, 0));
        let taps = &self.model[weights].shape()[2..];
        let each_pixel = taps.iter().chain(&c.strides).all(|n| *n == 1) && pads && c.groups == 1;
        if !each_pixel {
            return false;
        }
        let sizes = |v: ValueId| {
            let shape = self.model[v].shape();
            let pixels: usize = shape[2..].iter().product();
            (
                shape[1] as f64,
                shape[0] as f64 * pixels as f64,
                pixels as i64,
            )
        };
        let ((channels, all, pixels), (maps, ..)) = (sizes(x), sizes(node.output()));
        let filled = |n: i64| (blocks(n, self.block) * self.block) as f64 / n as f64;
        let products = channels * maps * all;
        let plain = products * (filled(pixels) - 1.0);
        let in_blocks = products * (filled(channels as i64) * filled(maps as i64) - 1.0);
        plain < in_blocks + (channels + maps) * all * PRODUCTS_AN_ELEMENT
    }

    /// Whether a depthwise convolution has so few taps that blocks gain less than the conversion of both images costs.
    fn is_light_depthwise(&self, group: &Group, c: &Conv, x: ValueId) -> bool {
        let node = &self.model[group.anchor];
        let Some(weights) = node.input(1).filter(|_| matches!(node.op, Op::Conv(_))) else {
            return false;
        };
        let size = |shape: &[usize]| shape.iter().product::<usize>() as f64;
        let [read, made] = [x, node.output()].map(|v| size(self.model[v].shape()));
        let taps = size(&self.model[weights].shape()[2..]);
        let strided = c.strides.last().is_some_and(|s| *s > 1);
        made * taps * PLAIN_TAP[usize::from(strided)] < (read + made) * DEPTHWISE_ELEMENT
    }

    /// Whether an operator may run in blocks where its operand is in blocks.
    fn may_be_blocked(&self, n: NodeId) -> bool {
        let op = &self.model[n].op;
        !matches!(
            op,
            Op::MatMul | Op::Gemm(_) | Op::Contract(_) | Op::Softmax(_) | Op::LayerNorm(_)
        )
    }

    /// Whether blocks of so many channels are more than half full. With fewer, vectors of
    /// pixels are.
    fn is_worth_a_block(&self, channels: usize) -> bool {
        2 * channels as i64 > self.block
    }

    /// Blocked, of sums over all channels of a group; few channels are read from a
    /// plain operand as they are.
    fn products(&self, group: &Group, x: ValueId, groups: usize) -> Choice {
        let (channels, rank) = (self.model[x].shape()[1], self.model[x].ty().rank());
        let few = channels <= FEW_CHANNELS || rank != 4 && !self.is_worth_a_block(channels);
        let direct = self.home(x) == Layout::Plain && few && groups == 1;
        let halves = self.model[x].dtype() == DType::BF16 && rank == 4;
        let read = match self.model[group.anchor].op {
            Op::ConvInteger(_) if direct => Layout::Blocked { block: FOUR },
            Op::Conv(_) if direct && halves => Layout::Blocked { block: FOUR },
            _ if direct => Layout::Plain,
            _ => self.blocked,
        };
        self.blocked(group, x, read)
    }

    fn conv_transpose(&self, group: &Group, c: &ConvTranspose, x: ValueId) -> Choice {
        let result = self.model[group.anchor].output();
        let (channels, maps) = (self.model[x].shape()[1], self.model[result].shape()[1]);
        let grouping = Grouping::of(c.groups, channels, maps, self.block);
        let fits = self.is_image(x) && self.is_image(result) && self.model.constant(x).is_none();
        let in_blocks = matches!(grouping, Some(Grouping::Whole | Grouping::Depthwise));
        if !fits || !in_blocks || !self.is_worth_a_block(maps) {
            return Choice::plain();
        }
        self.products(group, x, c.groups)
    }

    /// As the operand is.
    fn follow(&self, group: &Group, x: ValueId) -> Choice {
        if self.is_image(x) && self.home(x) == self.blocked {
            self.blocked(group, x, self.blocked)
        } else {
            Choice::plain()
        }
    }

    /// Reads blocks; writes blocks unless that would only cost a conversion, or empty lanes
    /// would be computed of terms.
    fn global_pool(&self, group: &Group, r: &Reduce, x: ValueId) -> Choice {
        let all: Vec<usize> = (2..self.model[x].ty().rank()).collect();
        let spatial = r.axes == all && r.keepdims;
        let sources = group.sources(self.model, x);
        let fits = sources.iter().all(|v| self.is_image(*v));
        if !spatial || !fits || !sources.iter().any(|v| self.home(*v) == self.blocked) {
            return Choice::plain();
        }
        let whole = self.model[x].shape()[1] as i64 % self.block == 0;
        let result = group.outputs(self.model)[0];
        let feeds_conv = self
            .users
            .of(result)
            .iter()
            .any(|(n, _)| matches!(self.model[*n].op, Op::Conv(_)));
        let mut choice = match whole || feeds_conv && group.terms.is_empty() {
            true => self.blocked(group, x, self.blocked),
            false => Choice::plain(),
        };
        choice
            .reads
            .extend(sources.iter().map(|v| (*v, self.blocked)));
        choice
    }

    fn concat(&self, group: &Group) -> Choice {
        let parts = self.model[group.anchor].inputs.iter().flatten().copied();
        let parts: Vec<ValueId> = parts.filter(|v| !self.model[*v].ty().is_empty()).collect();
        let whole = |v: &ValueId| self.model[*v].shape()[1] as i64 % self.block == 0;
        let blocked = parts
            .iter()
            .filter(|v| self.home(**v) == self.blocked)
            .count();
        if !parts.iter().all(whole) || 2 * blocked < parts.len() {
            return Choice::plain();
        }
        let mut choice = self.blocked(group, parts[0], self.blocked);
        for v in parts {
            choice.reads.insert(v, self.blocked);
        }
        choice
    }

    fn elementwise(&self, group: &Group) -> Choice {
        let result = group.outputs(self.model)[0];
        let shape = self.model[result].shape();
        let operands = group.chain_operands(self.model);
        let lead = operands
            .iter()
            .find(|v| self.model[**v].shape() == shape && self.home(**v) == self.blocked);
        match lead {
            Some(v) if self.is_image(result) => self.blocked(group, *v, self.blocked),
            _ => Choice::plain(),
        }
    }
}

/// Whether a value may lie in blocks of channels.
pub(crate) fn is_image(model: &Model, v: ValueId) -> bool {
    let ty = model[v].ty();
    IMAGE_RANKS.contains(&ty.rank()) && fills_lanes(ty.dtype) && !ty.is_empty()
}

/// Whether all that a node reads and makes may lie in blocks.
pub(crate) fn fits_blocks(model: &Model, n: NodeId) -> bool {
    let node = &model[n];
    let mut all = node.inputs.iter().flatten().chain(&node.outputs);
    all.all(|v| fills_lanes(model[*v].dtype()))
}

/// Whether blocks, whose channels fill a vector of f32, are for this type: that of
/// floats, of halves, which are computed in f32, of truth values that chains make of them,
/// and of quantised images between operators that compute in as many lanes.
fn fills_lanes(dtype: DType) -> bool {
    use DType::{BF16, Bool, F16, F32, I8, I32, U8};
    matches!(dtype, F32 | F16 | BF16 | I32 | U8 | I8 | Bool)
}

/// Whether a node is a reshape of images that moves nothing in blocks: of whole blocks of
/// channels, which are counted over another number of images.
pub(crate) fn keeps_blocks(model: &Model, n: NodeId, block: i64) -> bool {
    let node = &model[n];
    let (Op::Reshape(_), Some(x)) = (&node.op, node.input(0)) else {
        return false;
    };
    let images = [x, node.output()].iter().all(|v| is_image(model, *v));
    let shapes = [x, node.output()].map(|v| model[v].shape());
    images && shapes[0][2..] == shapes[1][2..] && shapes.iter().all(|s| s[1] as i64 % block == 0)
}

/// Whether a node only renames or reshapes bytes.
pub(crate) fn is_alias(model: &Model, node: NodeId) -> bool {
    matches!(
        model[node].op,
        Op::Identity | Op::Dropout(_) | Op::Reshape(_)
    )
}
