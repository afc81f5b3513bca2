//! Convolutions as matrix products, on blocked layouts: rows of gathered data,
//! borders included, times panels of weights.
//!
//! *im2row* gathers the whole image first; *ConvGEMM* gathers the rows of a
//! tile of pixels while they stay in the core's own cache, for all maps.

use super::blocked::weights_lead_with_maps;
use super::registers::{ImageTile, MOST_UNROLLED, Registers, limit_unrolled};
use super::{Templates, main_sum, others};
use crate::draft::{Decided, DecidedPart, Draft, REST, Written};
use crate::nests::{AxisLoop, Nest, ids};
use ir::names::{AxisName, OUT, image};
use ir::{BlockId, BufferId, CpuTarget, DType, IterKind, LoopId, Program, Role, Scope};
use schedule::Arg;

/// Sketches for a program whose `main` is a convolution of several taps that
/// writes [n, channel block, y, x, channel]; else none.
pub fn sketches(program: &Program, all: &[Nest], target: &CpuTarget, found: &mut Templates) {
    let Some(main) = main_sum(all) else {
        return;
    };
    let lanes = target.lanes(DType::F32);
    let blocked = main.spatial.len() == 5 && main.spatial[4].extent == lanes;
    let taps = [image::TAP_ROW, image::TAP_COLUMN].map(|t| main.extent(t));
    let [Some(r), Some(s)] = taps else {
        return;
    };
    // One tap gathers nothing; without channels to sum over there is no product.
    let sums = |c: AxisName| main.reduce.iter().any(|l| l.is(c));
    let channels = sums(image::CHANNEL_LANE) || sums(image::CHANNEL);
    if !blocked || r * s == 1 || !channels {
        return;
    }
    let axes = image::BLOCKED_MAPS.map(|axis| main.axis(axis).map(|l| l.id));
    let [Some(batch), Some(maps), Some(y), Some(x), Some(lane)] = axes else {
        return;
    };
    let Some([data, weights]) = operands(program, main) else {
        return;
    };
    let pixels = pixels(program, main, data);
    // In narrow groups every map of a vector has data of its own.
    let is_product = pixels.iter().all(|axis| axis != image::MAP_LANE.as_str());
    if !is_product || !weights_lead_with_maps(program, main) {
        return;
    }
    let gathering = Gathering {
        program,
        main,
        loops: Loops {
            batch,
            maps,
            y,
            x,
            lane,
        },
        out: all.iter().find(|n| n.is(OUT) && n.spatial.len() == 5),
        target,
        pixels,
        data,
        weights,
    };
    for (name, in_tile) in [("convgemm", true), ("im2row", false)] {
        found.write(Draft::new(name, program), |d| {
            gathering.write(d, in_tile)?;
            let handled = [Some(main), gathering.out].into_iter().flatten();
            let handled: Vec<BlockId> = handled.map(|n| n.block).collect();
            others(d, all, &handled, target)
        });
    }
}

/// The input and the constant that `main` multiplies.
fn operands(program: &Program, main: &Nest) -> Option<[BufferId; 2]> {
    let loads = program.block(main.block).loads();
    let of = |wanted: &dyn Fn(Role) -> bool, dims: Option<usize>| {
        let mut found = loads
            .iter()
            .filter(|(b, i)| wanted(program.buffer(*b).role) && dims.is_none_or(|d| i.len() == d))
            .map(|(b, _)| *b)
            .collect::<Vec<BufferId>>();
        found.dedup();
        match found[..] {
            [one] => Some(one),
            _ => None,
        }
    };
    let data = of(&|r| r != Role::Constant, None)?;
    let weights = of(&|r| r == Role::Constant, Some(4))?;
    Some([data, weights])
}

/// The spatial axes along which `main` reads its data, those of maps too if
/// maps are in groups.
fn pixels(program: &Program, main: &Nest, data: BufferId) -> Vec<String> {
    let block = program.block(main.block);
    let loads = block.loads();
    let read = |v| {
        let mut of_data = loads.iter().filter(|(b, _)| *b == data);
        of_data.any(|(_, indices)| indices.iter().any(|i| i.uses_var(v)))
    };
    let spatial = block.iters.iter().filter(|i| i.kind == IterKind::Spatial);
    spatial
        .filter(|i| read(i.var))
        .map(|i| program.var(i.var).name.clone())
        .collect()
}

/// A convolution whose data are gathered.
struct Gathering<'a> {
    program: &'a Program,
    main: &'a Nest,
    loops: Loops,
    out: Option<&'a Nest>,
    target: &'a CpuTarget,
    /// Axes of the gathered data, outermost first, without those of sums.
    pixels: Vec<String>,
    data: BufferId,
    weights: BufferId,
}

/// The loops over the outputs.
struct Loops {
    batch: LoopId,
    maps: LoopId,
    y: LoopId,
    x: LoopId,
    lane: LoopId,
}

impl Gathering<'_> {
    fn extent(&self, l: LoopId) -> i64 {
        self.program.loop_(l).extent
    }

    fn write(&self, d: &mut Draft, in_tile: bool) -> Written<()> {
        let (main, loops) = (self.main.block, &self.loops);
        let registers = Registers::of(self.target);
        let [rows, columns, maps] = [loops.y, loops.x, loops.maps].map(|l| self.extent(l));
        let wanted = ImageTile::dividing(rows, columns, registers);
        let y = d.tiles("y", rows, &[rows / wanted.lines, wanted.lines], 4);
        let wanted_x = [columns / wanted.columns, wanted.columns];
        let x = d.tiles("x", columns, &wanted_x, registers.most_rows());
        let k = d.tile("k", maps, 4, wanted.maps);
        registers.limit(d, &[y.part(1), x.part(1)], k.part(1), 1);
        let gather = d.reindex(main, self.data)?;
        let [y0, y1] = d.split(loops.y, [REST, y.part(1).into()])?;
        let [x0, x1] = d.split(loops.x, [REST, x.part(1).into()])?;
        let [k0, k1] = d.split(loops.maps, [REST, k.part(1).into()])?;
        let mut sums = ids(&self.main.reduce);
        let unrolled = self.split_sum(d, &mut sums, [y.part(1), x.part(1), k.part(1)])?;
        self.pack(d, k)?;
        let outer = if in_tile {
            [loops.batch, y0, x0, k0]
        } else {
            [loops.batch, k0, y0, x0]
        };
        // Vectors of weights innermost: see `winograd`.
        let inner = [y1, x1, k1, loops.lane];
        d.reorder(&[&outer[..], &sums, &inner].concat())?;
        let result = match self.out {
            Some(out) => {
                d.set_scope(d.output(main), Scope::Register)?;
                out.block
            }
            None => d.keep_in_registers(main)?,
        };
        // With one thread the nest stays as it is.
        let tile = d.parallel(&outer[..3], self.target.threads)?;
        let tile = tile.unwrap_or(outer[2]);
        d.reverse_compute_at(result, outer[3])?;
        let leaving = [image::MAP_BLOCK, image::ROW, image::COLUMN, image::MAP_LANE];
        let leaving = d.along(result, leaving.map(AxisName::as_str))?;
        for (own, sum) in leaving.into_iter().zip([k1, y1, x1]) {
            d.unroll(own)?;
            d.unroll(sum)?;
        }
        d.vectorize(leaving[3])?;
        d.vectorize(loops.lane)?;
        d.unroll(unrolled)?;
        d.decompose_reduction(main, sums[0])?;
        let lanes = &self.last_sum().axis;
        if in_tile {
            d.compute_at(gather, tile)?;
            d.set_scope(d.output(gather), Scope::Local)?;
        } else {
            let of = |axis: &String| d.along(gather, [axis]).map(|[l]| l);
            let all = self.pixels.iter().map(of).collect::<Written<Vec<_>>>()?;
            d.parallel(&all, self.target.threads)?;
        }
        let [along] = d.along(gather, [lanes])?;
        d.vectorize_if_legal(along);
        Ok(())
    }

    /// The innermost sum.
    fn last_sum(&self) -> &AxisLoop {
        self.main.reduce.last().expect("recognised: a sum")
    }

    /// Splits the innermost sum; the loop to unroll.
    fn split_sum(
        &self,
        d: &mut Draft,
        sums: &mut Vec<LoopId>,
        tile: [DecidedPart; 3],
    ) -> Written<LoopId> {
        let last = self.last_sum();
        let options: Vec<i64> = (1..=8).filter(|u| last.extent % u == 0).collect();
        let u = d.choose("unroll_k", &options, 4);
        limit_unrolled(d, 1, &[&tile[..], &[u.value()]].concat(), MOST_UNROLLED);
        let [outer, inner] = d.split(last.id, [REST, u.value().into()])?;
        sums.pop();
        sums.extend([outer, inner]);
        Ok(inner)
    }

    /// Weights [panel of maps, the sums in their order, vector, lane].
    fn pack(&self, d: &mut Draft, k: Decided) -> Written<()> {
        let lanes = (0, Arg::Lit(self.extent(self.loops.lane)));
        let panels = [(0, Arg::from(k.part(1)))];
        match self.main.extent(image::CHANNEL_LANE) {
            // [ko, ki, co, ci, r, s], as the loops run.
            Some(ci) => {
                let tiles = [lanes, (1, Arg::Lit(ci))];
                let copier = d.pack(self.weights, &tiles, &[0, 2, 4, 5, 3, 1])?;
                d.lay_out(d.output(copier), &panels, &[0, 2, 3, 4, 5, 1, 6])
            }
            None => {
                let copier = d.pack(self.weights, &[lanes], &[0, 2, 3, 4, 1])?;
                d.lay_out(d.output(copier), &panels, &[0, 2, 3, 4, 1, 5])
            }
        }
    }
}
