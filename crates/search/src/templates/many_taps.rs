//! Gradients of the weights of convolutions, by minimal filtering.
//!
//! Such a gradient is a convolution with many taps and few outputs: an image for each pair of maps. The step cuts the taps
//! into parts and takes the outputs for one tile (see `schedule`'s `winograd`). What is left are matrix products, one for each
//! element of a tile: maps of the image times maps of the output's gradient, summed over images and parts.

use super::registers::{MOST_UNROLLED, Registers, limit_unrolled};
use super::winograd::{MadeBlocks, has_form, innermost, transform, transform_along};
use super::{Templates, main_sum, others};
use crate::draft::{Decided, Draft, REST, Written, given};
use crate::nests::Nest;
use ir::names::{AxisName, image};
use ir::{CpuTarget, DType, LoopId, Program, Role, Scope};
use schedule::Arg;

/// Taps of a part each way, the likely best first: larger parts multiply less.
const PARTS: [i64; 2] = [4, 2];
/// Taps from which on a part is a small share of them: fewer are no gradient of a large image.
const LEAST_TAPS: i64 = 8;
/// Terms of a matrix product from which on its results, 36 for 9 of the gradient, take less time to transform than it saves.
/// An order of magnitude: 32 terms of `vgg16-cifar --train --batch 8` gain 1.62x over the direct form (AMD EPYC of
/// family 26, one thread).
const LEAST_TERMS: i64 = 16;

const BATCH: &str = image::BATCH.as_str();
const MAP_BLOCK: &str = image::MAP_BLOCK.as_str();
const MAP_LANE: &str = image::MAP_LANE.as_str();
const CHANNEL: &str = image::CHANNEL.as_str();
const TAP_ROW: &str = image::TAP_ROW.as_str();
const TAP_COLUMN: &str = image::TAP_COLUMN.as_str();

/// Sketches for a program whose `main` has more taps than outputs each way; else none.
pub fn sketches(program: &Program, all: &[Nest], target: &CpuTarget, found: &mut Templates) {
    let Some(gradient) = Gradient::of(program, all, target) else {
        return;
    };
    for taps in PARTS {
        if !has_form(program, gradient.main, taps) {
            continue;
        }
        let name = format!("winograd{taps}.parts_of_taps");
        found.write(Draft::new(name, program), |d| {
            gradient.write(d, taps)?;
            others(d, all, &[gradient.main.block], target)
        });
    }
}

/// Whether the matrix products have so many terms that these sketches are better than the direct form.
pub fn is_worth_while(program: &Program, all: &[Nest], target: &CpuTarget) -> bool {
    Gradient::of(program, all, target).is_some_and(|g| g.terms(PARTS[0]) >= LEAST_TERMS)
}

/// The gradient that a program is about.
struct Gradient<'a> {
    main: &'a Nest,
    target: &'a CpuTarget,
    lanes: i64,
    /// Blocks of the gradient's maps.
    map_blocks: i64,
    images: i64,
    /// Rows and columns.
    taps: [i64; 2],
}

impl<'a> Gradient<'a> {
    fn of(program: &Program, all: &'a [Nest], target: &'a CpuTarget) -> Option<Gradient<'a>> {
        let main = main_sum(all)?;
        let lanes = target.lanes(DType::F32);
        let named = |axes: &[crate::nests::AxisLoop], names: &[AxisName]| {
            axes.len() == names.len() && axes.iter().zip(names).all(|(a, n)| a.is(*n))
        };
        let terms = [image::CHANNEL, image::TAP_ROW, image::TAP_COLUMN];
        if !named(&main.spatial, &image::BLOCKED_MAPS) || !named(&main.reduce, &terms) {
            return None;
        }
        let many = |taps: AxisName, outputs: AxisName| {
            let (taps, outputs) = (main.extent(taps)?, main.extent(outputs)?);
            (taps >= LEAST_TAPS && taps > outputs).then_some(taps)
        };
        let taps = [
            many(image::TAP_ROW, image::ROW)?,
            many(image::TAP_COLUMN, image::COLUMN)?,
        ];
        let constants = |b: &ir::BufferId| program.buffer(*b).role == Role::Constant;
        let whole = main.extent(image::BATCH)? % lanes == 0
            && main.extent(image::MAP_LANE)? == lanes
            && all.len() == 1
            && !program.params.iter().any(constants);
        whole.then_some(Gradient {
            main,
            target,
            lanes,
            map_blocks: main.extent(image::MAP_BLOCK)?,
            images: main.extent(image::CHANNEL)?,
            taps,
        })
    }

    /// Parts of so many taps, of rows and of columns.
    fn parts(&self, taps: i64) -> [i64; 2] {
        self.taps.map(|all| (all + taps - 1) / taps)
    }

    fn terms(&self, taps: i64) -> i64 {
        self.images * self.parts(taps).iter().product::<i64>()
    }

    fn write(&self, d: &mut Draft, taps: i64) -> Written<()> {
        let registers = Registers::of(self.target);
        let rows = d.tile("n", self.lanes, registers.most_rows(), 8);
        let maps = d.tile("k", self.map_blocks, 4, 2);
        let [_, columns] = self.parts(taps);
        let divides = |u: &i64| columns % u == 0;
        let options: Vec<i64> = [1, 2, 4, 8].into_iter().filter(divides).collect();
        let unroll = d.choose("unroll", &options, 4);
        registers.limit(d, &[rows.part(1)], maps.part(1), 1);
        let body = [rows.part(1), maps.part(1), unroll.value()];
        limit_unrolled(d, 1, &body, MOST_UNROLLED);
        let blocks = MadeBlocks::of(d, self.main.block, taps)?;
        let last = d.keep_in_registers(self.main.block)?;
        let [image, maps_out, y, x, lane] =
            d.along(last, image::BLOCKED_MAPS.map(AxisName::as_str))?;
        d.compute_at(self.main.block, y)?;
        d.compute_at(blocks.p.block, maps_out)?;
        let weights = self.weights(d, &blocks, maps)?;
        let products = self.products(d, &blocks, (rows, maps, unroll))?;
        let data = self.data(d, &blocks)?;
        blocks.leave(d, self.main.block, x, lane)?;
        let threads = self.target.threads;
        for loops in [&weights[..], &products, &data, &[image, maps_out]] {
            d.parallel(loops, threads)?;
        }
        Ok(())
    }

    /// The output's gradient, transformed: [e, f, panel of maps, images and parts, vector, lane]. Its outer loops.
    fn weights(&self, d: &mut Draft, s: &MadeBlocks, maps: Decided) -> Written<[LoopId; 4]> {
        let outer = d.along(s.u.block, [CHANNEL, "tr", "ts", MAP_BLOCK])?;
        let inner = d.along(s.u.block, ["e", TAP_COLUMN, "f", MAP_LANE])?;
        d.reorder(&[outer, inner].concat())?;
        d.compute_at(s.g.block, outer[3])?;
        transform(d, s.u, "e", [TAP_COLUMN, "f"], MAP_LANE)?;
        transform(d, s.g, TAP_COLUMN, [TAP_ROW, "e"], MAP_LANE)?;
        d.set_scope(s.g.result, Scope::Local)?;
        let order = [0, 1, 5, 2, 3, 4, 6, 7];
        d.lay_out(s.u.result, &[(5, maps.part(1).into())], &order)?;
        Ok(outer)
    }

    /// The image, transformed a tile and a vector of maps at a time: [e, f, vector of maps, images and parts, lane]. Its outer
    /// loops.
    fn data(&self, d: &mut Draft, s: &MadeBlocks) -> Written<[LoopId; 4]> {
        let [n] = d.along(s.v.block, [BATCH])?;
        let [vectors, lane] = d.split(n, [REST, given(self.lanes)])?;
        let parts = d.along(s.v.block, [CHANNEL, "tr", "ts"])?;
        let tile = d.along(s.v.block, ["ty", "tx"])?;
        let [e, j, f] = d.along(s.v.block, ["e", "j", "f"])?;
        let outer = [parts[0], parts[1], parts[2], vectors];
        d.reorder(&[&outer[..], &tile, &[e, j, f, lane]].concat())?;
        d.compute_at(s.b.block, tile[1])?;
        d.compute_at(s.d.block, tile[1])?;
        let [own] = d.along(s.d.block, [BATCH])?;
        innermost(d, s.d.block, own)?;
        d.vectorize(own)?;
        transform_along(d, s.v.block, [e, j, f, lane], ["f", BATCH])?;
        transform(d, s.b, "j", ["i", "e"], BATCH)?;
        let lanes = Arg::Lit(self.lanes);
        d.lay_out(s.v.result, &[(2, lanes)], &[0, 1, 2, 4, 5, 6, 7, 8, 3])?;
        d.lay_out(s.b.result, &[(2, lanes)], &[6, 7, 8, 2, 4, 5, 0, 1, 3])?;
        d.lay_out(s.d.result, &[(0, lanes)], &[4, 5, 6, 0, 2, 3, 1])?;
        d.set_scope(s.b.result, Scope::Local)?;
        d.set_scope(s.d.result, Scope::Local)?;
        Ok(outer)
    }

    /// The matrix products; their outer loops.
    fn products(
        &self,
        d: &mut Draft,
        s: &MadeBlocks,
        (rows, maps, unroll): (Decided, Decided, Decided),
    ) -> Written<[LoopId; 5]> {
        let [e, f, n, ko, ty, tx] = d.along(s.m.block, ["e", "f", BATCH, MAP_BLOCK, "ty", "tx"])?;
        let [c, tr, ts, ki] = d.along(s.m.block, [CHANNEL, "tr", "ts", MAP_LANE])?;
        let [n0, n1, n2] = d.split(n, [REST, rows.part(0).into(), rows.part(1).into()])?;
        let [k0, k1] = d.split(ko, [REST, maps.part(1).into()])?;
        let [t0, t1] = d.split(ts, [REST, unroll.value().into()])?;
        d.reorder(&[e, f, n0, n1, k0, ty, tx, c, tr, t0, t1, n2, k1, ki])?;
        let leaving = d.keep_in_registers(s.m.block)?;
        d.reverse_compute_at(leaving, tx)?;
        let [rows, vectors, lane] = d.along(leaving, [BATCH, MAP_BLOCK, MAP_LANE])?;
        d.vectorize(lane)?;
        d.vectorize(ki)?;
        for l in [rows, vectors, t1, n2, k1] {
            d.unroll(l)?;
        }
        d.decompose_reduction(s.m.block, c)?;
        Ok([e, f, n0, n1, k0])
    }
}
