//! What flat code tells a learner: a row of numbers of one length, whatever the code.
//!
//! After the features of Ansor (Zheng et al., 2020, appendix B), which describe each innermost statement
//! and are summed over all of them. Here the sums are of the whole kernel. What cannot be
//! summed describes its *heart*: the statements without loops in between that compute most. Unrolled code repeats
//! statements, so all copies are one heart. Three things are ours, as kernels here depend on them: sums that
//! live in registers against the registers there are, the size of unrolled code, and lanes that masks and tails
//! leave idle. Numbers are as logarithms, so that trees split sizes of all tasks alike.

use crate::accesses::{Accesses, Extents, Forms, Gathered};
use crate::features::Features;
use crate::footprint::{Counter, Size};
use ir::{BinaryOp, BufferId, CpuTarget, Expr, ExprKind, UnaryOp, VarId};
use lower::flat::{BufferPlace, Code, FlatLoop, LaneOffsets, Stmt, Store};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Kinds of work that are counted, by name: of elements, then of accesses in statements.
const WORK: [&str; 18] = [
    "float add",
    "float multiply",
    "float divide",
    "float compare",
    "float special",
    "integer add",
    "integer multiply",
    "integer divide",
    "integer other",
    "select",
    "cast",
    "load one",
    "load lanes",
    "load apart",
    "store one",
    "store lanes",
    "store apart",
    "masked",
];
/// Of the kernel as a whole.
const WHOLE: [&str; 19] = [
    "statements",
    "vector share",
    "lanes used",
    "heart share",
    "iterations",
    "loops",
    "conditions",
    "code statements",
    "code nodes",
    "parallel extent",
    "parallel imbalance",
    "forks",
    "workspace",
    "worker workspace",
    "stack",
    "constants",
    "lines 1",
    "lines 2",
    "lines 3",
];
/// Of the heart.
const HEART: [&str; 13] = [
    "runs",
    "depth",
    "statements",
    "lanes",
    "sums",
    "sums by registers",
    "live by registers",
    "loads a statement",
    "operations a load",
    "extent 0",
    "extent 1",
    "extent 2",
    "masked share",
];
/// Points of the curve of arithmetic intensity.
const CURVE: usize = 10;
/// Buffers of the heart that are described, those with most bytes first.
const BUFFERS: usize = 5;
const OF_BUFFER: [&str; 13] = [
    "reads",
    "writes",
    "bytes",
    "unique bytes",
    "lines",
    "unique lines",
    "reused in loop",
    "distance",
    "distance bytes",
    "times",
    "bytes a use",
    "lines a use",
    "stride",
];

/// The name of each column of [`columns`].
pub fn column_names() -> Vec<String> {
    let of = |part: &'static str| move |name: &&str| format!("{part}: {name}");
    let curve = (0..CURVE).map(|i| format!("heart: intensity {i}"));
    let buffers = (0..BUFFERS).flat_map(|b| OF_BUFFER.map(|name| format!("buffer {b}: {name}")));
    let named = WORK
        .iter()
        .map(of("work"))
        .chain(WHOLE.iter().map(of("kernel")));
    named
        .chain(HEART.iter().map(of("heart")))
        .chain(curve)
        .chain(buffers)
        .collect()
}

/// A row for a learner, of the kernel of one candidate and of what [`crate::loops`] found in it. A buffer that the
/// heart does not have is NaN.
pub fn columns(code: &Code, found: &Features, target: &CpuTarget) -> Vec<f64> {
    let mut walk = Walk::new(code);
    walk.stmts(&code.kernel, 1.0);
    let mut row: Vec<f64> = walk.work.iter().map(|n| log(*n)).collect();
    row.extend(whole(&walk, found, target));
    match &walk.heart {
        Some(heart) => {
            let levels = levels(code, heart, target);
            row.extend(of_heart(code, heart, target));
            row.extend(intensities(heart, &levels));
            row.extend(buffers(heart, &levels));
        }
        None => row.resize(
            row.len() + HEART.len() + CURVE + BUFFERS * OF_BUFFER.len(),
            f64::NAN,
        ),
    }
    row
}

fn log(n: f64) -> f64 {
    (1.0 + n.max(0.0)).log2()
}

fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

/// Statements without loops that follow each other, and the loops around them, the outermost first.
struct Heart<'a> {
    stores: Vec<&'a Store>,
    loops: Vec<(VarId, i64)>,
    runs: f64,
    /// Operations of one run, of all lanes.
    operations: f64,
}

struct Walk<'a> {
    code: &'a Code,
    loops: Vec<(VarId, i64)>,
    work: [f64; WORK.len()],
    heart: Option<Heart<'a>>,
    statements: f64,
    vector: f64,
    lanes: f64,
    iterations: f64,
    conditions: f64,
    code_statements: f64,
    code_nodes: f64,
    parallel: i64,
}

impl<'a> Walk<'a> {
    fn new(code: &'a Code) -> Walk<'a> {
        Walk {
            code,
            loops: vec![],
            work: [0.0; WORK.len()],
            heart: None,
            statements: 0.0,
            vector: 0.0,
            lanes: 0.0,
            iterations: 0.0,
            conditions: 0.0,
            code_statements: 0.0,
            code_nodes: 0.0,
            parallel: 1,
        }
    }

    fn stmts(&mut self, stmts: &'a [Stmt], runs: f64) {
        let simple = |s: &Stmt| !matches!(s, Stmt::Loop(_) | Stmt::If { .. });
        for group in stmts.chunk_by(|a, b| simple(a) && simple(b)) {
            match group {
                [Stmt::Loop(l)] => self.repeated(l, runs),
                [
                    Stmt::If {
                        then, otherwise, ..
                    },
                ] => {
                    self.conditions += runs;
                    self.stmts(then, runs);
                    self.stmts(otherwise, runs);
                }
                _ => self.plain(group, runs),
            }
        }
    }

    fn repeated(&mut self, l: &'a FlatLoop, runs: f64) {
        if l.parallel {
            self.parallel = self.parallel.max(l.extent);
        }
        self.iterations += runs * l.extent as f64;
        self.loops.push((l.var, l.extent));
        self.stmts(&l.body, runs * l.extent as f64);
        self.loops.pop();
    }

    fn plain(&mut self, group: &'a [Stmt], runs: f64) {
        let mut stores = Vec::new();
        let before: f64 = self.work[..OPERATIONS].iter().sum();
        for s in group {
            if let Stmt::Store(s) = s {
                self.store(s, runs);
                stores.push(s);
            }
        }
        let operations = self.work[..OPERATIONS].iter().sum::<f64>() - before;
        let most = self.heart.as_ref().map_or(0.0, |h| h.runs * h.operations);
        if !stores.is_empty() && (operations > most || self.heart.is_none()) {
            self.heart = Some(Heart {
                stores,
                loops: self.loops.clone(),
                runs,
                operations: operations / runs.max(1.0),
            });
        }
    }

    fn store(&mut self, s: &Store, runs: f64) {
        let lanes = s.lane.map_or(1.0, |l| f64::from(l.lanes));
        self.statements += runs;
        self.code_statements += 1.0;
        self.lanes += runs * lanes;
        self.vector += if s.lane.is_some() { runs } else { 0.0 };
        self.work[MASKED] += if s.mask.is_some() { runs } else { 0.0 };
        self.expr(&s.value, runs * lanes);
        for (first, id) in s.loads.iter().map(|id| (LOAD, id)).chain([(STORE, &s.id)]) {
            let access = &self.code.accesses[*id as usize];
            let place = self.code.buffers[access.buffer.index()].place;
            if place != BufferPlace::Register {
                let kind = match access.offsets {
                    LaneOffsets::Uniform => 0,
                    LaneOffsets::Consecutive => 1,
                    LaneOffsets::Pattern(_) | LaneOffsets::Arbitrary => 2,
                };
                self.work[first + kind] += runs;
            }
        }
    }

    /// Counts the operations of a value; gives whether it is a float.
    fn expr(&mut self, e: &Expr, times: f64) -> bool {
        self.code_nodes += 1.0;
        let (float, kind) = match e.kind() {
            ExprKind::Int(_, d) | ExprKind::Arg(_, d) | ExprKind::Float(_, d) => {
                return d.is_float();
            }
            ExprKind::Var(_) => return false,
            ExprKind::Load(b, _) => return self.code.buffers[b.index()].dtype.is_float(),
            ExprKind::Unary(op, a) => {
                let float = self.expr(a, times);
                (float && *op != UnaryOp::Bits, unary(*op, float))
            }
            ExprKind::Binary(op, a, b) => {
                let float = self.expr(a, times) | self.expr(b, times);
                (float, binary(*op, float))
            }
            ExprKind::Select(c, a, b) => {
                self.expr(c, times);
                (self.expr(a, times) | self.expr(b, times), SELECT)
            }
            ExprKind::Cast(to, a) => {
                self.expr(a, times);
                (to.is_float(), CAST)
            }
        };
        self.work[kind] += times;
        float
    }
}

// Positions in `WORK`.
const SELECT: usize = 9;
const CAST: usize = 10;
/// Those before are operations.
const OPERATIONS: usize = 11;
const LOAD: usize = 11;
const STORE: usize = 14;
const MASKED: usize = 17;

fn unary(op: UnaryOp, float: bool) -> usize {
    match (op, float) {
        (UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Bits, true) => 0,
        (_, true) => 4,
        (UnaryOp::Neg | UnaryOp::Abs, false) => 5,
        (_, false) => 8,
    }
}

fn binary(op: BinaryOp, float: bool) -> usize {
    use BinaryOp::{Add, Div, Eq, FloorDiv, FloorMod, Le, Lt, Max, Min, Mul, Ne, Sub};
    match (op, float) {
        (Add | Sub, true) => 0,
        (Mul, true) => 1,
        (Div | FloorDiv | FloorMod, true) => 2,
        (Min | Max | Eq | Ne | Lt | Le, true) => 3,
        (_, true) => 4,
        (Add | Sub, false) => 5,
        (Mul, false) => 6,
        (Div | FloorDiv | FloorMod, false) => 7,
        (_, false) => 8,
    }
}

fn whole(w: &Walk<'_>, found: &Features, target: &CpuTarget) -> [f64; WHOLE.len()] {
    let threads = f64::from(target.threads.max(1));
    let extent = w.parallel as f64;
    let all: f64 = w.work[..OPERATIONS].iter().sum();
    let heart = w.heart.as_ref().map_or(0.0, |h| h.runs * h.operations);
    let stack = w
        .code
        .buffers
        .iter()
        .filter(|b| b.place == BufferPlace::Stack);
    let stack: i64 = stack.map(|b| b.elements * b.dtype.size() as i64).sum();
    // Without vectors one lane is widest.
    let widest = f64::from(target.vector_bits.max(32)) / 32.0;
    [
        log(w.statements),
        ratio(w.vector, w.statements),
        ratio(w.lanes, w.statements * widest),
        ratio(heart, all),
        log(w.iterations),
        log(w.code.loops.len() as f64),
        log(w.conditions),
        log(w.code_statements),
        log(w.code_nodes),
        log(extent),
        (extent / threads).ceil() * threads / extent,
        log(found.forks),
        log(w.code.workspace_bytes as f64),
        log(w.code.worker_workspace_bytes as f64),
        log(stack as f64),
        log(found.constants),
        log(found.lines[0]),
        log(found.lines[1]),
        log(found.lines[2]),
    ]
}

fn of_heart(code: &Code, h: &Heart<'_>, target: &CpuTarget) -> [f64; HEART.len()] {
    let (mut sums, mut loaded) = (HashSet::new(), HashSet::new());
    let (mut lanes, mut masked, mut loads) = (0, 0, 0);
    let mut bits = 0.0;
    for s in &h.stores {
        let of = s.lane.map_or(1, |l| l.lanes);
        lanes = lanes.max(of);
        masked += usize::from(s.mask.is_some());
        let buffer = &code.buffers[s.buffer.index()];
        if buffer.place == BufferPlace::Register && sums.insert((s.buffer, &s.offset)) {
            bits += f64::from(of) * 8.0 * buffer.dtype.size() as f64;
        }
        for (id, b, at) in s.loads_with_ids() {
            if code.buffers[b.index()].place != BufferPlace::Register {
                loads += 1;
                // What all lanes share is an operand in memory, or one register.
                if code.accesses[id as usize].offsets != LaneOffsets::Uniform {
                    loaded.insert((b, at));
                }
            }
        }
    }
    let registers = f64::from(target.vector_registers.max(1));
    let vectors = bits / f64::from(target.vector_bits.max(32));
    let extent = |from_inside: usize| {
        let inner = h.loops.iter().rev().nth(from_inside);
        inner.map_or(0.0, |(_, n)| log(*n as f64))
    };
    [
        log(h.runs),
        h.loops.len() as f64,
        log(h.stores.len() as f64),
        f64::from(lanes),
        log(sums.len() as f64),
        vectors / registers,
        (vectors + loaded.len() as f64) / registers,
        ratio(f64::from(loads), h.stores.len() as f64),
        log(ratio(h.operations, f64::from(loads))),
        extent(0),
        extent(1),
        extent(2),
        ratio(masked as f64, h.stores.len() as f64),
    ]
}

/// What one buffer has at one level.
#[derive(Clone, Copy, Default)]
struct Touched {
    bytes: f64,
    lines: f64,
}

/// What the heart touches, of each buffer: in one run, then with one more loop around it each time.
struct Levels {
    buffers: Vec<BufferUse>,
    /// Iterations of each level together.
    iterations: Vec<f64>,
}

struct BufferUse {
    element: f64,
    /// Statements that read and that write it, in one run; and elements of both.
    reads: f64,
    writes: f64,
    accessed: f64,
    /// Elements from one iteration of the innermost loop to the next.
    stride: f64,
    /// One more than there are loops.
    touched: Vec<Touched>,
    /// Whether it depends on each loop, the innermost first.
    depends: Vec<bool>,
}

fn levels(code: &Code, h: &Heart<'_>, target: &CpuTarget) -> Levels {
    let mut forms = Forms::new(code.vars.len());
    let mut gathered: BTreeMap<BufferId, Gathered> = BTreeMap::new();
    let mut counts: BTreeMap<BufferId, [f64; 3]> = BTreeMap::new();
    let mut vars: BTreeMap<BufferId, BTreeSet<VarId>> = BTreeMap::new();
    let mut extents = Extents::new(code.vars.len());
    for s in &h.stores {
        if let Some(l) = s.lane {
            extents.set(l.var, i64::from(l.lanes));
        }
        let loads = s.loads_with_ids();
        let loads = loads.iter().map(|(id, b, at)| (0, *id, *b, *at));
        for (kind, id, b, at) in loads.chain([(1, s.id, s.buffer, &s.offset)]) {
            let place = code.buffers[b.index()].place;
            if matches!(place, BufferPlace::Register | BufferPlace::Unused) {
                continue;
            }
            let (form, constant) = forms.of(at);
            gathered.entry(b).or_default().add(form, constant);
            let of = counts.entry(b).or_default();
            of[kind] += 1.0;
            of[2] += f64::from(code.accesses[id as usize].lanes);
            let known = vars.entry(b).or_default();
            known.extend(at.vars());
        }
    }
    let all: Vec<(BufferId, Accesses)> =
        gathered.into_iter().map(|(b, g)| (b, g.finish())).collect();
    let one = |(b, accesses): &(BufferId, Accesses)| {
        let element = code.buffers[b.index()].dtype.size() as f64;
        unvisited(h, &forms, accesses, (element, counts[b], &vars[b]))
    };
    let mut buffers: Vec<BufferUse> = all.iter().map(one).collect();
    let line = target.cache_line_bytes as i64;
    let mut by_lines: Counter<0> = Counter::new(line, []);
    let mut by_bytes: Counter<0> = Counter::new(1, []);
    let mut iterations = vec![1.0];
    for level in 0..=h.loops.len() {
        if let Some((var, extent)) = level.checked_sub(1).map(|l| h.loops[h.loops.len() - 1 - l]) {
            extents.set(var, extent);
            iterations.push(iterations[level - 1] * extent as f64);
        }
        for ((b, accesses), of) in all.iter().zip(&mut buffers) {
            // A loop that a buffer does not depend on touches nothing new of it.
            let last = level.checked_sub(1).filter(|l| !of.depends[*l]);
            if let Some(same) = last.and_then(|_| of.touched.last().copied()) {
                of.touched.push(same);
                continue;
            }
            let info = &code.buffers[b.index()];
            let element = info.dtype.size() as i64;
            let size = Size {
                element,
                all: info.elements * element,
            };
            let bytes = by_bytes.touched(accesses, &forms, &extents, size).lines;
            let lines = by_lines.touched(accesses, &forms, &extents, size).lines;
            of.touched.push(Touched { bytes, lines });
        }
    }
    Levels {
        buffers,
        iterations,
    }
}

/// A buffer before any level was visited, of its element's bytes, its counts in one run, and the variables of its offsets.
fn unvisited(
    h: &Heart<'_>,
    forms: &Forms,
    accesses: &Accesses,
    (element, [reads, writes, accessed], vars): (f64, [f64; 3], &BTreeSet<VarId>),
) -> BufferUse {
    let inner = h.loops.last().map(|l| l.0);
    let steps = accesses.forms().iter().flat_map(|(form, _)| {
        let terms = forms.terms(*form).iter();
        let own = terms.filter(|(t, _)| inner.is_some_and(|v| v.0 == *t));
        own.map(|(_, factor)| factor.unsigned_abs())
    });
    BufferUse {
        element,
        reads,
        writes,
        accessed,
        stride: steps.max().unwrap_or(0) as f64,
        touched: vec![],
        depends: h
            .loops
            .iter()
            .rev()
            .map(|(v, _)| vars.contains(v))
            .collect(),
    }
}

/// Operations a byte of what is touched, at equal distances of the logarithm of operations.
fn intensities(h: &Heart<'_>, levels: &Levels) -> [f64; CURVE] {
    let known: Vec<(f64, f64)> = levels
        .iterations
        .iter()
        .enumerate()
        .map(|(l, n)| {
            let bytes: f64 = levels.buffers.iter().map(|b| b.touched[l].bytes).sum();
            (log(n * h.operations), log(ratio(n * h.operations, bytes)))
        })
        .collect();
    let (first, last) = (known[0].0, known[known.len() - 1].0);
    std::array::from_fn(|i| {
        let at = first + (last - first) * i as f64 / (CURVE - 1) as f64;
        let above = known
            .iter()
            .position(|k| k.0 >= at)
            .unwrap_or(known.len() - 1);
        let (high, low) = (known[above], known[above.saturating_sub(1)]);
        let share = ratio(at - low.0, high.0 - low.0).clamp(0.0, 1.0);
        low.1 + share * (high.1 - low.1)
    })
}

fn buffers(h: &Heart<'_>, levels: &Levels) -> Vec<f64> {
    let top = levels.iterations.len() - 1;
    let mut order: Vec<&BufferUse> = levels.buffers.iter().collect();
    order.sort_by(|a, b| b.touched[top].bytes.total_cmp(&a.touched[top].bytes));
    let mut row: Vec<f64> = order
        .into_iter()
        .take(BUFFERS)
        .flat_map(|b| of_buffer(h, levels, b))
        .collect();
    row.resize(BUFFERS * OF_BUFFER.len(), f64::NAN);
    row
}

fn of_buffer(h: &Heart<'_>, levels: &Levels, b: &BufferUse) -> [f64; OF_BUFFER.len()] {
    let top = levels.iterations.len() - 1;
    let (bytes, lines) = (h.runs * b.accessed * b.element, h.runs * b.touched[0].lines);
    // The innermost loop that it does not depend on uses it again.
    let again = b.depends.iter().position(|d| !d);
    let (distance, between, times) = match again {
        Some(l) => {
            let between: f64 = levels.buffers.iter().map(|b| b.touched[l].bytes).sum();
            let (inside, outside) = (levels.iterations[l], levels.iterations[l + 1]);
            (inside, between, outside / inside)
        }
        None => (0.0, 0.0, 1.0),
    };
    [
        b.reads,
        b.writes,
        log(bytes),
        log(b.touched[top].bytes),
        log(lines),
        log(b.touched[top].lines),
        f64::from(u8::from(again.is_some())),
        log(distance),
        log(between),
        log(times),
        log(bytes / times),
        log(lines / times),
        log(b.stride),
    ]
}
