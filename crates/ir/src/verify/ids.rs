//! Ids exist, and the body is a tree.

use super::Broken;
use crate::expr::{Expr, ExprKind};
use crate::program::{Annotation, BlockId, BufferId, LoopId, Node, Program, Reducer, VarId};

pub(super) fn check(p: &Program) -> Vec<Broken> {
    let mut ids = Ids {
        p,
        loops: vec![false; p.loop_count()],
        blocks: vec![false; p.block_count()],
        broken: vec![],
    };
    for b in &p.params {
        ids.buffer(*b, || "the parameter list".into());
    }
    ids.nodes(&p.body, "the body");
    ids.broken
}

struct Ids<'a> {
    p: &'a Program,
    /// Already seen in the body, by id.
    loops: Vec<bool>,
    blocks: Vec<bool>,
    broken: Vec<Broken>,
}

impl Ids<'_> {
    fn known(
        &mut self,
        kind: &'static str,
        id: u32,
        count: usize,
        place: impl Fn() -> String,
    ) -> bool {
        let known = (id as usize) < count;
        if !known {
            let place = place();
            self.broken.push(Broken::UnknownId {
                place,
                kind,
                id,
                count,
            });
        }
        known
    }

    fn buffer(&mut self, id: BufferId, place: impl Fn() -> String) {
        let count = self.p.buffer_ids().count();
        self.known("buffer", id.0, count, place);
    }

    fn var(&mut self, id: VarId, place: impl Fn() -> String) {
        self.known("variable", id.0, self.p.var_count(), place);
    }

    fn nodes(&mut self, nodes: &[Node], parent: &str) {
        for n in nodes {
            match n {
                Node::Loop(l) => {
                    let count = self.p.loop_count();
                    if self.known("loop", l.0, count, || parent.to_string()) {
                        self.loop_(*l);
                    }
                }
                Node::Block(b) => {
                    let count = self.p.block_count();
                    if self.known("block", b.0, count, || parent.to_string()) {
                        self.block(*b);
                    }
                }
            }
        }
    }

    fn loop_(&mut self, id: LoopId) {
        let l = self.p.loop_(id);
        let node = format!("loop `{}`", l.name);
        if std::mem::replace(&mut self.loops[id.index()], true) {
            self.broken.push(Broken::Repeated { node });
            return;
        }
        self.var(l.var, || node.clone());
        for a in &l.annotations {
            if let Annotation::Prefetch { buffer, .. } = a {
                self.buffer(*buffer, || node.clone());
            }
        }
        self.nodes(&l.body, &node);
    }

    fn block(&mut self, id: BlockId) {
        let b = self.p.block(id);
        let node = format!("block `{}`", b.name);
        if std::mem::replace(&mut self.blocks[id.index()], true) {
            self.broken.push(Broken::Repeated { node });
            return;
        }
        for i in &b.iters {
            self.var(i.var, || node.clone());
            self.expr(&i.binding, &node);
        }
        for (v, ..) in b.tensor.iter().flat_map(|t| &t.iters) {
            self.var(*v, || node.clone());
        }
        if let Some(predicate) = &b.predicate {
            self.expr(predicate, &node);
        }
        for w in &b.writes {
            self.buffer(w.buffer, || node.clone());
            w.indices.iter().for_each(|i| self.expr(i, &node));
            self.expr(&w.value, &node);
        }
        if let Some(r) = &b.reduction
            && let Reducer::Tuple { combine, identity } = &r.reducer
        {
            for e in combine.iter().chain(identity) {
                self.expr(e, &node);
            }
        }
    }

    fn expr(&mut self, e: &Expr, place: &str) {
        e.visit(&mut |e| match e.kind() {
            ExprKind::Var(v) => self.var(*v, || place.to_string()),
            ExprKind::Load(b, _) => self.buffer(*b, || place.to_string()),
            _ => {}
        });
    }
}
