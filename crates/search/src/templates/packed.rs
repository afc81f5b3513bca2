//! Products with weights of few bits: bytes are widened in registers and multiplied as whole
//! numbers; the sums of a block are scaled once.
//!
//! A register tile is rows by vectors of columns, as in `gemm`, and neither need divide. The
//! bytes of a tile's columns follow each other in memory, as do their scales: they are packed so
//! once, the last panel with zeros.

use super::registers::{IN_FLIGHT, Registers, limit_unrolled, spills};
use super::{Templates, epilogue, main_sum, others};
use crate::draft::{DecidedPart, Draft, REST, Written, given};
use crate::nests::Nest;
use crate::rates::lines_together;
use ir::names::{BLOCK_SUMS, product};
use ir::{BlockId, BufferId, CpuTarget, DType, LoopId, Program, Role, Scope};

/// Vectors of columns in a tile, at most.
const MOST_VECTORS: i64 = 8;
/// Multiply-adds in one unrolled body, at most. Chosen by hand; not measured apart.
const MOST_UNROLLED: i64 = 128;
/// Instructions that make a vector of floats of bytes, where one loads a number for a row: a mask
/// or a shift, a conversion, and half of a load.
const WIDENING: i64 = 3;
/// Registers for what is widened and broadcast. Chosen by hand; not measured apart.
const OTHERS: i64 = 4;

/// The sketch of a product with packed weights; none for others.
pub fn sketches(program: &Program, all: &[Nest], target: &CpuTarget, found: &mut Templates) {
    let block_sums = all.iter().find(|n| n.is(BLOCK_SUMS));
    let Some((main, block_sums)) = main_sum(all).zip(block_sums) else {
        return;
    };
    let form = Form {
        target,
        main,
        block_sums,
        out: epilogue(all, main),
        lanes: target.lanes(DType::F32),
    };
    found.write(Draft::new("packed", program), |d| {
        form.write(d)?;
        let handled: Vec<BlockId> = [Some(main), Some(block_sums), form.out]
            .into_iter()
            .flatten()
            .map(|n| n.block)
            .collect();
        others(d, all, &handled, target)
    });
}

struct Form<'a> {
    target: &'a CpuTarget,
    main: &'a Nest,
    block_sums: &'a Nest,
    out: Option<&'a Nest>,
    lanes: i64,
}

impl Form<'_> {
    fn extent(&self, axis: &str) -> i64 {
        let mut loops = self
            .block_sums
            .spatial
            .iter()
            .chain(&self.block_sums.reduce);
        loops.find(|l| l.axis == axis).map_or(1, |l| l.extent)
    }

    fn write(&self, d: &mut Draft) -> Written<()> {
        let (main, block_sums, lanes) = (self.main.block, self.block_sums.block, self.lanes);
        let m = self.extent(product::ROW.as_str());
        let n = self.extent(product::COLUMN.as_str());
        let registers = Registers::without(self.target, OTHERS);
        let vectors = (n + lanes - 1) / lanes;
        let widths: Vec<i64> = (1..=MOST_VECTORS.min(vectors)).collect();
        let rows: Vec<i64> = (1..=registers.most_rows().min(m)).collect();
        let [blocks, bytes, parts] = TERMS.map(|axis| self.extent(axis));
        let row_bytes = blocks * bytes * parts * DType::F32.size() as i64;
        let together = lines_together(row_bytes, self.target).max(1);
        let few: Vec<i64> = rows.iter().copied().filter(|t| *t <= together).collect();
        let (t, v) = tile(registers, (m, &few), (vectors, &widths));
        let widths: Vec<i64> = widths.iter().map(|v| v * lanes).collect();
        let columns = d.choose("columns", &widths, v * lanes).value();
        let rows = d.choose("rows", &rows, t).value();
        let unrolls: Vec<i64> = (1..=8).filter(|u| bytes % u == 0).collect();
        let unroll = d.choose("unroll_k", &unrolls, 2).value();
        registers.limit(d, &[rows], columns, lanes);
        limit_unrolled(d, parts, &[rows, columns, unroll], MOST_UNROLLED * lanes);

        let result = match self.out {
            Some(out) => {
                d.set_scope(d.output(main), Scope::Register)?;
                out.block
            }
            None => d.keep_in_registers(main)?,
        };
        let constants = self.constants(d);
        for block in [block_sums, main] {
            let [column] = d.along(block, [AXES[1]])?;
            d.pad(column, columns)?;
        }
        for (buffer, dims) in constants {
            let order = [&[dims - 1][..], &Vec::from_iter(0..dims - 1), &[dims]].concat();
            d.pack(buffer, &[(dims - 1, columns.into())], &order)?;
        }
        let [row, column, block] = d.along(main, AXES)?;
        let [n0, panel] = d.split(column, [REST, columns.into()])?;
        let [n1, n2] = d.split(panel, [REST, given(lanes)])?;
        let [m0, m1] = d.split(row, [REST, rows.into()])?;
        d.reorder(&[n0, m0, block, m1, n1, n2])?;
        d.parallel(&[n0], self.target.threads)?;
        let own = d.reverse_compute_at(result, m0)?;
        let [.., rows_out, columns_out] = own[..] else {
            return Err(d.missing("the result has no rows and columns".into()));
        };
        self.in_registers(d, rows_out, columns_out)?;
        d.compute_at(block_sums, block)?;
        self.sum_blocks(d, unroll)?;
        d.vectorize(n2)?;
        d.unroll(n1)?;
        d.unroll(m1)?;
        d.decompose_reduction(main, block)?;
        d.run_parallel()?;
        d.attempt_partition(m0);
        Ok(())
    }

    /// The constants with a value a column: bytes, scales, and zeros if there are several.
    fn constants(&self, d: &Draft) -> Vec<(BufferId, usize)> {
        let columns = self.extent(product::COLUMN.as_str());
        let mut found = Vec::new();
        for block in [self.main.block, self.block_sums.block] {
            for (buffer, at) in d.block(block).loads() {
                let info = d.program().buffer(buffer);
                let of_columns = info.shape.last() == Some(&columns);
                let packed = info.role == Role::Constant && of_columns;
                if packed && !found.contains(&(buffer, at.len())) {
                    found.push((buffer, at.len()));
                }
            }
        }
        found
    }

    /// The sums of one block of terms, for a tile.
    fn sum_blocks(&self, d: &mut Draft, unroll: DecidedPart) -> Written<()> {
        let block_sums = self.block_sums.block;
        let [row, column] = d.along(block_sums, [AXES[0], AXES[1]])?;
        let [byte, part] = d.along(block_sums, [TERMS[1], TERMS[2]])?;
        let [j0, j1] = d.split(byte, [REST, unroll.into()])?;
        let [n1, n2] = d.split(column, [REST, given(self.lanes)])?;
        d.reorder(&[j0, j1, part, row, n1, n2])?;
        d.set_scope(d.output(block_sums), Scope::Register)?;
        d.vectorize(n2)?;
        for l in [n1, row, part, j1] {
            d.unroll(l)?;
        }
        d.decompose_reduction(block_sums, j0).map(drop)
    }

    fn in_registers(&self, d: &mut Draft, row: LoopId, column: LoopId) -> Written<()> {
        let [vectors, lane] = d.split(column, [REST, given(self.lanes)])?;
        d.vectorize(lane)?;
        d.unroll(vectors)?;
        d.unroll(row)
    }
}

/// Of the terms: blocks, bytes of one, and parts of a byte.
const TERMS: [&str; 3] = [
    product::BLOCK.as_str(),
    product::BYTE.as_str(),
    product::PART.as_str(),
];
/// Of `main`.
const AXES: [&str; 3] = [
    product::ROW.as_str(),
    product::COLUMN.as_str(),
    product::BLOCK.as_str(),
];

/// The tile with which all `m` rows of all `n` vectors take the fewest instructions, of those that
/// fit the registers. Rows and columns that are left over take a tile of their own.
fn tile(registers: Registers, (m, rows): (i64, &[i64]), (n, vectors): (i64, &[i64])) -> (i64, i64) {
    let one = |t: i64, v: i64| (t * v).max(IN_FLIGHT) + t + WIDENING * v;
    let instructions = |(t, v): &(i64, i64)| {
        let rest = if m % t > 0 { one(m % t, *v) } else { 0 };
        (n + v - 1) / v * (m / t * one(*t, *v) + rest)
    };
    let all = rows.iter().flat_map(|t| vectors.iter().map(|v| (*t, *v)));
    let fitting = all.filter(|(t, v)| registers.fit(*t, *v) && !spills(*t, *v));
    fitting.min_by_key(instructions).unwrap_or((1, 1))
}
