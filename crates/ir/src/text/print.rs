//! Printing programs, under their own names or under normalised ones.

use crate::expr::{BinaryOp, Expr, ExprKind, UnaryOp};
use crate::program::{
    Annotation, Block, BlockId, BufferId, IterKind, LoopId, LoopKind, Node, Program, Reducer, Role,
    Scope, VarId,
};
use std::fmt::Write as _;
use tensor::DType;

/// The text form of a program.
///
/// # Panics
/// If the body mentions an id that the arenas lack, or a loop encloses itself.
pub fn print(program: &Program) -> String {
    Printer::new(program, Names::own(program)).program()
}

/// The text form under normalised names: two programs have the same canonical
/// text exactly if they differ in the names of the program, its parameters,
/// intermediates, loops, blocks and variables only. Basis of task keys.
///
/// # Panics
/// As [`print`].
pub fn canonical(program: &Program) -> String {
    Printer::new(program, Names::normalised(program)).program()
}

/// The text of one expression of `program`.
///
/// # Panics
/// If the expression mentions an id that the arenas lack.
pub fn expr(program: &Program, e: &Expr) -> String {
    let mut printer = Printer::new(program, Names::own(program));
    printer.expr(e, 0);
    printer.out
}

/// The names to print, by id.
struct Names {
    program: String,
    buffers: Vec<String>,
    loops: Vec<String>,
    blocks: Vec<String>,
    vars: Vec<String>,
    /// Iteration variables are renamed at their block.
    normalised: bool,
}

impl Names {
    fn own(p: &Program) -> Names {
        let var = |i| name(&p.var(VarId(i)).name);
        let loop_ = |i| name(&p.loop_(LoopId(i)).name);
        let block = |i| name(&p.block(BlockId(i)).name);
        Names {
            program: name(&p.name),
            buffers: p.buffer_ids().map(|b| name(&p.buffer(b).name)).collect(),
            loops: (0..p.loop_count() as u32).map(loop_).collect(),
            blocks: (0..p.block_count() as u32).map(block).collect(),
            vars: (0..p.var_count() as u32).map(var).collect(),
            normalised: false,
        }
    }

    fn normalised(p: &Program) -> Names {
        let mut names = Names::own(p);
        names.normalised = true;
        names.program = "_".into();
        for (i, b) in p.params.iter().enumerate() {
            names.buffers[b.index()] = format!("p{i}");
        }
        for (i, b) in intermediates(p).iter().enumerate() {
            names.buffers[b.index()] = format!("t{i}");
        }
        for (i, l) in p.loop_ids().into_iter().enumerate() {
            names.loops[l.index()] = format!("l{i}");
            names.vars[p.loop_(l).var.index()] = format!("l{i}");
        }
        for (i, b) in p.block_ids().into_iter().enumerate() {
            names.blocks[b.index()] = format!("b{i}");
        }
        names
    }
}

/// A name as the parser reads it: bare where possible, else quoted.
fn name(s: &str) -> String {
    if super::is_bare_name(s) {
        return s.to_string();
    }
    let mut out = String::from('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The buffers of the body that are not parameters, in order of first appearance.
fn intermediates(p: &Program) -> Vec<BufferId> {
    let mut out: Vec<BufferId> = Vec::new();
    let mut add = |b: BufferId| {
        if !p.params.contains(&b) && !out.contains(&b) {
            out.push(b);
        }
    };
    p.walk(&p.body, &mut |node, _| match node {
        Node::Loop(l) => {
            for a in &p.loop_(l).annotations {
                if let Annotation::Prefetch { buffer, .. } = a {
                    add(*buffer);
                }
            }
        }
        Node::Block(b) => {
            let block = p.block(b);
            block.writes.iter().for_each(|w| add(w.buffer));
            block.reads().into_iter().for_each(&mut add);
        }
    });
    out
}

pub(super) const ROLES: [(Role, &str); 4] = [
    (Role::Input, "input"),
    (Role::Constant, "constant"),
    (Role::Output, "output"),
    (Role::Intermediate, "intermediate"),
];

fn word<T: PartialEq>(table: &[(T, &'static str)], item: T) -> Option<&'static str> {
    table.iter().find(|(t, _)| *t == item).map(|(_, w)| *w)
}

/// Binding strength of infix operators; `None` for those written as calls.
pub(super) fn precedence(op: BinaryOp) -> Option<u8> {
    Some(match op {
        BinaryOp::Or => 1,
        BinaryOp::And => 2,
        BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le => 3,
        BinaryOp::Add | BinaryOp::Sub => 4,
        BinaryOp::Mul | BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::FloorMod => 5,
        BinaryOp::Min
        | BinaryOp::Max
        | BinaryOp::Pow
        | BinaryOp::BitAnd
        | BinaryOp::BitOr
        | BinaryOp::BitXor
        | BinaryOp::Shl
        | BinaryOp::Shr => return None,
    })
}

const PREFIX: u8 = 6;

struct Printer<'a> {
    p: &'a Program,
    names: Names,
    out: String,
    depth: usize,
    /// What `$i` is, in the block being printed.
    args: Vec<DType>,
}

impl<'a> Printer<'a> {
    fn new(p: &'a Program, names: Names) -> Printer<'a> {
        Printer {
            p,
            names,
            out: String::new(),
            depth: 0,
            args: vec![],
        }
    }

    fn push(&mut self, s: &str) {
        self.out.push_str(s);
    }

    fn start_line(&mut self) {
        for _ in 0..self.depth {
            self.out.push_str("  ");
        }
    }

    fn open(&mut self) {
        self.push(" {\n");
        self.depth += 1;
    }

    fn close(&mut self) {
        self.depth -= 1;
        self.start_line();
        self.push("}\n");
    }

    fn program(mut self) -> String {
        let p = self.p;
        let head = format!("program {}", self.names.program);
        self.push(&head);
        self.open();
        for b in p.params.iter().copied().chain(intermediates(p)) {
            self.buffer(b);
        }
        self.nodes(&p.body);
        self.close();
        self.out
    }

    fn buffer(&mut self, id: BufferId) {
        let b = self.p.buffer(id);
        self.start_line();
        let role = word(&ROLES, b.role).expect("every role has a word");
        let name = &self.names.buffers[id.index()];
        let shape = integers(&b.shape);
        let mut line = format!("{role} {name}: {}{shape}", b.dtype);
        // What no scope is written for is global.
        if b.scope != Scope::Global {
            line += &format!(" {}", b.scope.word());
        }
        if let Some(v) = &b.view {
            line += &format!(" strides {} offset {}", integers(&v.strides), v.offset);
        }
        line.push('\n');
        self.push(&line);
    }

    fn nodes(&mut self, nodes: &[Node]) {
        for n in nodes {
            match n {
                Node::Loop(l) => self.loop_(*l),
                Node::Block(b) => {
                    let name = self.names.blocks[b.index()].clone();
                    self.block(&name, self.p.block(*b));
                }
            }
        }
    }

    fn loop_(&mut self, id: LoopId) {
        let l = self.p.loop_(id);
        self.start_line();
        let mut line = format!("for {} in 0..{}", self.names.loops[id.index()], l.extent);
        line += &match l.kind {
            LoopKind::Serial => String::new(),
            LoopKind::Parallel => " parallel".into(),
            LoopKind::Vectorized => " vectorized".into(),
            LoopKind::Unrolled => " unrolled".into(),
            LoopKind::Bound(axis) => {
                format!(" bound {}", axis.word())
            }
        };
        for a in &l.annotations {
            line += &match a {
                Annotation::UnrollBy(n) => format!(" unroll_by {n}"),
                Annotation::Prefetch { buffer, distance } => {
                    format!(
                        " prefetch {} {distance}",
                        self.names.buffers[buffer.index()]
                    )
                }
            };
        }
        self.push(&line);
        self.open();
        self.nodes(&l.body);
        self.close();
    }

    fn block(&mut self, name: &str, b: &Block) {
        self.start_line();
        self.push(&format!("block {name} ["));
        let points = b.tensor.iter().flat_map(|t| t.iters.iter().map(|i| i.0));
        if self.names.normalised {
            for (i, v) in b.iters.iter().map(|i| i.var).chain(points).enumerate() {
                self.names.vars[v.index()] = format!("i{i}");
            }
        }
        for (i, iter) in b.iters.iter().enumerate() {
            self.comma(i);
            self.point(iter.var, iter.kind, iter.extent);
            self.push(" = ");
            self.expr(&iter.binding, 0);
        }
        self.push("]");
        if let Some(predicate) = &b.predicate {
            self.push(" where (");
            self.expr(predicate, 0);
            self.push(")");
        }
        if let Some(t) = &b.tensor {
            self.push(&format!(" tensor {} [", self::name(&t.intrinsic)));
            for (i, (var, extent, kind)) in t.iters.iter().enumerate() {
                self.comma(i);
                self.point(*var, *kind, *extent);
            }
            self.push("]");
        }
        self.open();
        self.writes(b);
        self.close();
    }

    fn comma(&mut self, i: usize) {
        if i > 0 {
            self.push(", ");
        }
    }

    fn point(&mut self, var: VarId, kind: IterKind, extent: i64) {
        let kind = kind.word();
        let text = format!("{}: {kind} {extent}", self.names.vars[var.index()]);
        self.push(&text);
    }

    fn writes(&mut self, b: &Block) {
        let mut assign = String::new();
        if let Some(r) = &b.reduction {
            assign.push(' ');
            assign += match r.reducer {
                Reducer::Sum => "sum",
                Reducer::Prod => "prod",
                Reducer::Min => "min",
                Reducer::Max => "max",
                Reducer::Tuple { .. } => "tuple",
            };
            if r.init {
                assign += " init";
            }
        }
        assign += " = ";
        for w in &b.writes {
            self.start_line();
            self.element(w.buffer, &w.indices);
            self.push(&assign);
            self.expr(&w.value, 0);
            self.push("\n");
        }
        if let Some(r) = &b.reduction
            && let Reducer::Tuple { combine, identity } = &r.reducer
        {
            let dtypes = b.writes.iter().map(|w| self.p.buffer(w.buffer).dtype);
            self.args = dtypes.collect();
            for (c, i) in combine.iter().zip(identity) {
                self.start_line();
                self.push("combine ");
                self.expr(c, 0);
                self.push(" from ");
                self.expr(i, 0);
                self.push("\n");
            }
            self.args.clear();
        }
    }

    fn element(&mut self, buffer: BufferId, indices: &[Expr]) {
        let text = self.names.buffers[buffer.index()].clone();
        self.push(&text);
        self.push("[");
        self.list(indices.iter());
        self.push("]");
    }

    fn list<'e>(&mut self, items: impl Iterator<Item = &'e Expr>) {
        for (i, e) in items.enumerate() {
            self.comma(i);
            self.expr(e, 0);
        }
    }

    fn call<'e>(&mut self, function: &str, operands: impl IntoIterator<Item = &'e Expr>) {
        self.push(function);
        self.push("(");
        self.list(operands.into_iter());
        self.push(")");
    }

    /// Prints `e`, in parentheses if it binds more weakly than `strength`.
    fn expr(&mut self, e: &Expr, strength: u8) {
        match e.kind() {
            ExprKind::Int(v, d) => self.push(&integer(*v, *d)),
            ExprKind::Float(bits, d) => self.push(&float(*bits, *d)),
            ExprKind::Var(v) => {
                let name = self.names.vars[v.index()].clone();
                self.push(&name);
            }
            ExprKind::Arg(i, d) => self.arg(*i, *d),
            ExprKind::Load(b, indices) => self.element(*b, indices),
            ExprKind::Unary(UnaryOp::Neg, a) => {
                // `-5` is a constant; its negation needs the parentheses.
                if matches!(a.kind(), ExprKind::Int(..) | ExprKind::Float(..)) {
                    self.call("-", [a]);
                } else {
                    self.push("-");
                    self.expr(a, PREFIX);
                }
            }
            ExprKind::Unary(op, a) => self.call(op.name(), [a]),
            ExprKind::Cast(d, a) => self.call(d.name(), [a]),
            ExprKind::Select(c, a, b) => self.call("select", [c, a, b]),
            ExprKind::Binary(op, a, b) => match precedence(*op) {
                None => self.call(op.name(), [a, b]),
                Some(own) => {
                    if own < strength {
                        self.push("(");
                    }
                    self.expr(a, own);
                    self.push(&format!(" {} ", op.name()));
                    self.expr(b, own + 1);
                    if own < strength {
                        self.push(")");
                    }
                }
            },
        }
    }

    fn arg(&mut self, i: u32, dtype: DType) {
        let n = self.args.len();
        let i = i as usize;
        let known = (i < 2 * n).then(|| self.args[i % n]);
        let _ = write!(self.out, "${i}");
        if known != Some(dtype) {
            let _ = write!(self.out, "_{dtype}");
        }
    }
}

fn integers(values: &[i64]) -> String {
    let items: Vec<String> = values.iter().map(i64::to_string).collect();
    format!("[{}]", items.join(", "))
}

/// A constant as programs have it, e.g. `-inf`, `0.5_f64` or `3_i32`; `None` for what is none.
pub fn literal(e: &Expr) -> Option<String> {
    match e.kind() {
        ExprKind::Int(v, d) => Some(integer(*v, *d)),
        ExprKind::Float(bits, d) => Some(float(*bits, *d)),
        _ => None,
    }
}

fn integer(v: i64, dtype: DType) -> String {
    match (dtype, v) {
        (DType::I64, _) => v.to_string(),
        (DType::Bool, 0) => "false".into(),
        (DType::Bool, 1) => "true".into(),
        _ => format!("{v}_{dtype}"),
    }
}

/// The shortest decimal that denotes exactly this value of this type.
fn float(bits: u64, dtype: DType) -> String {
    let v = f64::from_bits(bits);
    let exact = dtype.is_float()
        && match v.is_nan() {
            true => bits == f64::NAN.to_bits(),
            false => *Expr::constant(v, dtype).kind() == ExprKind::Float(bits, dtype),
        };
    if !exact {
        return format!("bits({bits:#x}, {dtype})");
    }
    let digits = match (v.is_nan(), v.is_infinite()) {
        (true, _) => "nan".into(),
        (_, true) if v > 0.0 => "inf".into(),
        (_, true) => "-inf".into(),
        _ => finite(v, dtype),
    };
    match dtype {
        DType::F32 => digits,
        _ => format!("{digits}_{dtype}"),
    }
}

/// The shortest decimal that rounds to `v`, which is a value of the type.
fn finite(v: f64, dtype: DType) -> String {
    match dtype {
        DType::F64 => return format!("{v:?}"),
        DType::F32 => return format!("{:?}", v as f32),
        _ => {}
    }
    let rounded = |digits: usize| format!("{v:.digits$e}").parse::<f64>().ok();
    let exact = |d: &f64| Expr::constant(*d, dtype).as_float() == Some(v);
    // Nine significant digits tell any two half-width values apart.
    let shortest = (0..9).filter_map(rounded).find(exact).unwrap_or(v);
    format!("{shortest:?}")
}
