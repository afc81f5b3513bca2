//! Every point that a sketch of minimal filtering proposes is a legal schedule,
//! for many shapes, targets and numbers of threads.
//!
//! `TUNESMITH_SHAPES` sets how many of the shapes are sampled, evenly spread;
//! a failure counts the illegal points of each sketch and shows some.

use ir::{BufferId, CpuTarget, DType, Expr, Isa, Program, ProgramBuilder, Reducer, Target};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use search::{Accuracy, Point, Space, space};
use std::collections::BTreeMap;
use testkit::setting;

const POINTS: usize = 50;

#[derive(Clone, Copy, Debug)]
struct Shape {
    isa: Isa,
    threads: u32,
    channels: i64,
    maps: i64,
    /// Rows and columns of the data.
    size: i64,
    taps: i64,
    pad: i64,
    /// A bias and a relu behind the sum.
    epilogue: bool,
}

fn shapes() -> Vec<Shape> {
    let mut all = Vec::new();
    for isa in Isa::ALL {
        for threads in [1, 2] {
            for (taps, pad) in [(3, 0), (3, 1), (5, 0), (5, 1)] {
                for size in [7, 13, 14, 28, 56] {
                    for channels in [16, 64, 512] {
                        for maps in [16, 64, 512] {
                            all.push(Shape {
                                isa,
                                threads,
                                channels,
                                maps,
                                size,
                                taps,
                                pad,
                                epilogue: all.len() % 2 == 1,
                            });
                        }
                    }
                }
            }
        }
    }
    all
}

/// As many of the shapes as `TUNESMITH_SHAPES` says.
fn some(usual: u64) -> Vec<Shape> {
    let all = shapes();
    let wanted = setting("TUNESMITH_SHAPES", usual) as usize;
    let wanted = wanted.clamp(1, all.len());
    // The number of shapes is even, and so are most of its divisors: an odd
    // offset a round meets all values of every parameter.
    let at = |i: usize| (i * all.len() / wanted + i % 7) % all.len();
    (0..wanted).map(|i| all[at(i)]).collect()
}

impl Shape {
    fn target(&self) -> Target {
        Target::generic(self.isa).with_threads(self.threads)
    }

    /// As `graph` writes it for activations in blocks of channels.
    fn program(&self, block: i64) -> Program {
        let (size, pad, taps) = (self.size, self.pad, self.taps);
        let out = size + 2 * pad - taps + 1;
        let mut b = ProgramBuilder::new("conv");
        let (co, ko) = (self.channels / block, self.maps / block);
        let x = b.input("X", DType::F32, &[1, co, size, size, block]);
        let w = b.constant("W", DType::F32, &[self.maps, self.channels, taps, taps]);
        let axes = [("n", 1), ("ko", ko), ("y", out), ("x", out), ("ki", block)];
        let sums = [("co", co), ("r", taps), ("s", taps), ("ci", block)];
        let main = b.reduce("main", &axes, &sums, Reducer::Sum, |o, t| {
            let at = [1, 2].map(|i| match pad {
                0 => &o[i + 1] + &t[i],
                _ => &o[i + 1] + &t[i] - pad,
            });
            let within = |e: &Expr| Expr::int(0).le(e).and(e.clone().lt(size));
            let inside = within(&at[0]).and(within(&at[1]));
            let [y, column] = at;
            let data = Expr::load(x, [o[0].clone(), t[0].clone(), y, column, t[3].clone()]);
            let data = match pad {
                0 => data,
                _ => Expr::select(inside, data, Expr::f32(0.0)),
            };
            let (map, channel) = (&o[1] * block + &o[4], &t[0] * block + &t[3]);
            data * Expr::load(w, [map, channel, t[1].clone(), t[2].clone()])
        });
        let last = match self.epilogue {
            true => self.relu(&mut b, main, &axes, block),
            false => main,
        };
        b.finish(&[last])
    }

    fn relu(
        &self,
        b: &mut ProgramBuilder,
        sum: BufferId,
        axes: &[(&str, i64)],
        block: i64,
    ) -> BufferId {
        let bias = b.constant("B", DType::F32, &[self.maps]);
        b.compute("out", axes, |o| {
            let biased = Expr::load(sum, o.to_vec()) + Expr::load(bias, [&o[1] * block + &o[4]]);
            biased.max(Expr::f32(0.0))
        })
    }
}

/// What was proposed for some shapes, and what of it was illegal.
#[derive(Default)]
struct Found {
    proposed: BTreeMap<String, usize>,
    illegal: BTreeMap<String, Vec<String>>,
}

impl Found {
    /// The default and `points` random points of each sketch of filtering.
    fn add(&mut self, shape: Shape, points: usize) {
        let target = shape.target();
        let program = shape.program(CpuTarget::generic(shape.isa).lanes(DType::F32));
        let all = space(&program, &target, Accuracy::Relaxed);
        let filtering = all
            .sketches
            .into_iter()
            .filter(|s| s.name.starts_with("winograd"));
        let mut rng = Pcg64Mcg::seed_from_u64(shape.size as u64);
        for sketch in filtering {
            let name = sketch.name.clone();
            let own = Space::of(vec![sketch]);
            let random: Vec<Point> = (0..points).map(|_| own.sample(&mut rng)).collect();
            for point in [vec![own.default_point()], random].concat() {
                *self.proposed.entry(name.clone()).or_default() += 1;
                let values = || own.decisions(&point);
                let candidate = own.candidate(&program, &point);
                let replayed = candidate
                    .map_err(|e| e.to_string())
                    .and_then(|c| schedule::replay(&program, &c.trace).map_err(|e| e.to_string()));
                let why = match replayed {
                    Err(why) => why,
                    Ok(_) if own.within_limits(&point) => continue,
                    Ok(_) => "it does not keep the limits".into(),
                };
                let illegal = self.illegal.entry(name.clone()).or_default();
                illegal.push(format!("{why}\n  {shape:?}\n  {:?}", values()));
            }
        }
    }

    /// Fails if a point was illegal, or a form was never proposed.
    fn check(&self) {
        for tile in [2, 4, 6] {
            for form in ["fused", "staged"] {
                let name = format!("winograd{tile}.{form}");
                let proposed = self.proposed.contains_key(&name);
                assert!(proposed, "no `{name}` in {:?}", self.proposed);
            }
        }
        let counts = self.illegal.iter().map(|(name, found)| {
            let shown = found.iter().take(3).cloned().collect::<Vec<_>>().join("\n");
            let (n, of) = (found.len(), self.proposed[name]);
            format!("{name}: {n} of {of} illegal\n{shown}")
        });
        let counts: Vec<String> = counts.collect();
        assert!(counts.is_empty(), "{}", counts.join("\n"));
    }
}

#[test]
fn defaults_are_legal() {
    let mut found = Found::default();
    some(30).into_iter().for_each(|s| found.add(s, 0));
    found.check();
}

#[test]
fn random_points_are_legal() {
    let mut found = Found::default();
    some(5).into_iter().for_each(|s| found.add(s, POINTS));
    found.check();
}

#[test]
fn data_are_prefetched_where_they_come_from_far() {
    for (size, far) in [(28, false), (224, true)] {
        let shape = Shape {
            isa: Isa::X86Avx512,
            threads: 1,
            channels: 64,
            maps: 64,
            size,
            taps: 3,
            pad: 1,
            epilogue: true,
        };
        let target = shape.target();
        let program = shape.program(CpuTarget::generic(shape.isa).lanes(DType::F32));
        let all = space(&program, &target, Accuracy::Relaxed).sketches;
        let (filtering, _): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|s| s.name.starts_with("winograd"));
        assert!(!filtering.is_empty());
        for sketch in filtering {
            let name = sketch.name.clone();
            let own = Space::of(vec![sketch]);
            let default = own.candidate(&program, &own.default_point());
            let trace = schedule::print(&default.expect("the default is legal").trace);
            let ahead = trace.contains("prefetch X main.d.x");
            assert_eq!(ahead, far, "{name}: {trace}");
        }
    }
}

#[test]
fn the_default_weighs_products_against_weights_from_memory() {
    let default = |channels, size, threads| {
        let shape = Shape {
            isa: Isa::X86Avx512,
            threads,
            channels,
            maps: channels,
            size,
            taps: 3,
            pad: 1,
            epilogue: true,
        };
        let program = shape.program(CpuTarget::generic(shape.isa).lanes(DType::F32));
        let space = space(&program, &shape.target(), Accuracy::Relaxed);
        space.sketches[0].name.clone()
    };
    // ResNet-18's four shapes: products, then weights, decide.
    assert_eq!(default(64, 56, 1), "winograd4.fused");
    assert_eq!(default(128, 28, 1), "winograd4.fused");
    assert_eq!(default(256, 14, 1), "winograd2.fused");
    // The plain form hides its weights behind its products.
    assert!(default(512, 7, 1).starts_with("direct"));
    // Of few pixels, tiles multiply so much less that their weights pay.
    assert!(default(256, 8, 1).starts_with("winograd2"));
    // Two cores multiply twice as fast, and share one memory.
    assert!(default(512, 7, 2).starts_with("direct"));
}

/// The tiles of the first sketch of filtering for an image that is not padded.
fn first_tiles(isa: Isa, size: i64, channels: i64, maps: i64) -> String {
    let shape = Shape {
        isa,
        threads: 1,
        channels,
        maps,
        size,
        taps: 3,
        pad: 0,
        epilogue: false,
    };
    let program = shape.program(CpuTarget::generic(isa).lanes(DType::F32));
    let all = space(&program, &shape.target(), Accuracy::Relaxed).sketches;
    let mut names = all.into_iter().map(|s| s.name);
    let first = names.find(|n| n.starts_with("winograd")).unwrap();
    first.split('.').next().unwrap().to_string()
}

#[test]
fn tiles_of_six_outputs_are_first_where_they_gain_much() {
    for isa in [Isa::X86Avx512, Isa::X86Avx2] {
        // 37 tiles of four are a prime number, 25 of six are not.
        assert_eq!(first_tiles(isa, 149, 32, 32), "winograd6");
        // 19 tiles of six are a prime number.
        assert_eq!(first_tiles(isa, 114, 64, 64), "winograd4");
        assert_eq!(first_tiles(isa, 58, 64, 64), "winograd4");
        // Few tiles do not hide that more weights come from memory.
        assert_eq!(first_tiles(isa, 26, 512, 512), "winograd4");
    }
}
