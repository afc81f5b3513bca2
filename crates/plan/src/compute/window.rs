//! Windows along one axis: where their taps are, and whether that is inside the operand.

use ir::Expr;

/// Position `out * stride + tap * dilation - pad` of a window.
#[derive(Clone, Copy)]
pub(super) struct Window {
    /// Elements of the operand, and windows, along the axis.
    pub size: i64,
    pub count: i64,
    pub taps: i64,
    pub stride: i64,
    pub dilation: i64,
    pub pad: i64,
}

impl Window {
    pub fn position(&self, out: &Expr, tap: &Expr) -> Expr {
        let scaled = |e: &Expr, by: i64| if by == 1 { e.clone() } else { e * by };
        let at = scaled(out, self.stride) + scaled(tap, self.dilation);
        if self.pad == 0 { at } else { at - self.pad }
    }

    /// The conditions under which a position is inside, those only that can fail.
    pub fn inside(&self, at: &Expr) -> Vec<Expr> {
        let last = (self.count - 1) * self.stride + (self.taps - 1) * self.dilation - self.pad;
        let mut conditions = Vec::new();
        if self.pad > 0 {
            conditions.push(Expr::int(0).le(at));
        }
        if last >= self.size {
            conditions.push(at.clone().lt(self.size));
        }
        conditions
    }
}
