//! Schedules made by hand: new bodies for raw programs.

use ir::{
    Annotation, Block, BlockId, DType, Expr, Iter, Loop, LoopKind, Node, Program, Scope, VarId,
    Write,
};
use std::collections::BTreeSet;

/// Builds a new body from the blocks of a raw program.
pub struct Hand {
    pub p: Program,
    loops: BTreeSet<String>,
}

impl Hand {
    pub fn of(raw: &Program) -> Hand {
        Hand {
            p: raw.clone(),
            loops: BTreeSet::new(),
        }
    }

    pub fn nest(
        &mut self,
        name: &str,
        extent: i64,
        kind: LoopKind,
        f: impl FnOnce(&mut Hand, Expr) -> Vec<Node>,
    ) -> Node {
        self.annotated(name, extent, kind, vec![], f)
    }

    pub fn annotated(
        &mut self,
        name: &str,
        extent: i64,
        kind: LoopKind,
        annotations: Vec<Annotation>,
        f: impl FnOnce(&mut Hand, Expr) -> Vec<Node>,
    ) -> Node {
        let free = |n: &String| !self.loops.contains(n) && self.p.fresh_name(n) == *n;
        let mut names = std::iter::once(name.to_string());
        let name = names
            .by_ref()
            .chain((1..).map(|i| format!("{name}_{i}")))
            .find(free);
        let name = name.expect("names do not run out");
        self.loops.insert(name.clone());
        let var = self.p.add_var(name.clone());
        let body = f(self, Expr::var(var));
        Node::Loop(self.p.add_loop(Loop {
            name,
            var,
            extent,
            kind,
            annotations,
            body,
        }))
    }

    fn id(&self, name: &str) -> BlockId {
        self.p
            .block_named(name)
            .unwrap_or_else(|| panic!("no block {name}"))
    }

    /// A copy of the block with these bindings.
    pub fn block(&mut self, name: &str, bindings: &[Expr]) -> Node {
        self.guarded(name, bindings, None, true)
    }

    /// A copy with a predicate; `init`: whether a reduction sets its start value.
    pub fn guarded(
        &mut self,
        name: &str,
        bindings: &[Expr],
        predicate: Option<Expr>,
        init: bool,
    ) -> Node {
        let mut block = self.p.block(self.id(name)).clone();
        assert_eq!(block.iters.len(), bindings.len());
        let mut renamed = Vec::new();
        for (i, b) in block.iters.iter_mut().zip(bindings) {
            let var = self.p.add_var(self.p.var(i.var).name.clone());
            renamed.push((i.var, var));
            (i.var, i.binding) = (var, b.clone());
        }
        block.map_statement(|e| e.substitute(&|v| find(&renamed, v)));
        block.predicate = predicate;
        if let Some(r) = &mut block.reduction {
            r.init = init;
        }
        block.name = self.p.fresh_name(&format!("{name}.placed"));
        Node::Block(self.p.add_block(block))
    }

    /// The init block that `decompose_reduction` makes.
    pub fn init(&mut self, name: &str, bindings: &[Expr], predicate: Option<Expr>) -> Node {
        let block = self.p.block(self.id(name)).clone();
        let reduction = block.reduction.as_ref().expect("a reduction");
        let dtypes: Vec<DType> = block
            .writes
            .iter()
            .map(|w| self.p.buffer(w.buffer).dtype)
            .collect();
        let identity = reduction.reducer.identity(&dtypes);
        let mut iters = Vec::new();
        let mut map: Vec<(VarId, VarId)> = Vec::new();
        for (i, b) in block.spatial_iters().zip(bindings) {
            let var = self.p.add_var(self.p.var(i.var).name.clone());
            map.push((i.var, var));
            iters.push(Iter {
                var,
                binding: b.clone(),
                ..i.clone()
            });
        }
        let renamed =
            |e: &Expr| e.substitute(&|v| map.iter().find(|m| m.0 == v).map(|m| Expr::var(m.1)));
        let writes = block.writes.iter().zip(identity).map(|(w, value)| Write {
            buffer: w.buffer,
            indices: w.indices.iter().map(renamed).collect(),
            value,
        });
        let writes = writes.collect();
        let name = self.p.fresh_name(&format!("{name}.init"));
        let block = Block {
            name,
            iters,
            predicate,
            writes,
            reduction: None,
            tensor: None,
        };
        Node::Block(self.p.add_block(block))
    }

    pub fn scope(&mut self, buffer: &str, scope: Scope) {
        let b = self.p.buffer_named(buffer).expect("a buffer");
        self.p.buffer_mut(b).scope = scope;
    }

    pub fn finish(mut self, body: Vec<Node>) -> Program {
        self.p.body = body;
        self.p
    }
}

fn find(map: &[(VarId, VarId)], v: VarId) -> Option<Expr> {
    map.iter().find(|m| m.0 == v).map(|m| Expr::var(m.1))
}
